"""Kernels for small decoders on CPU cores."""

from tiny_kernels.activation import silu_and_mul
from tiny_kernels.attention import grouped_attention
from tiny_kernels.norm import rms_norm

__all__ = ["grouped_attention", "rms_norm", "silu_and_mul"]
