"""Who computes attention, and the cache of keys and values it reads.

`fused` is the kernel of the tiny-kernels package; `native` is the reference: one row of one head after the other, its
softmax accumulated over blocks of keys as flash attention does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tiny_kernels import grouped_attention

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array


_BLOCK = 16


class KVCache:
    """Keys and values of one layer of one sequence, one block of memory for each head."""

    def __init__(self, kv_heads: int, capacity: int, head_dim: int) -> None:
        self.keys = np.zeros((kv_heads, capacity, head_dim))
        self.values = np.zeros((kv_heads, capacity, head_dim))

    def write(self, keys: Array, values: Array, start: int) -> None:
        """Store rows (rows, kv_heads, head_dim) from position `start` on, over whatever was there."""
        end = start + len(keys)
        self.keys[:, start:end] = keys.transpose(1, 0, 2)
        self.values[:, start:end] = values.transpose(1, 0, 2)


class AttentionBackend:
    """Causal attention of new rows over the cache that already holds them."""

    def __init__(self, name: str) -> None:
        self._attend = grouped_attention if name == "fused" else native_attention

    def forward(self, query: Array, cache: KVCache, start: int) -> Array:
        """(rows, heads, head_dim) at positions from `start` on, to (rows, heads * head_dim)."""
        end = start + len(query)
        return self._attend(query, cache.keys[:, :end], cache.values[:, :end])


def native_attention(query: Array, keys: Array, values: Array) -> Array:
    """The same as `grouped_attention`, but for rounding."""
    rows, heads, head_dim = query.shape
    group = heads // len(keys)
    first = keys.shape[1] - rows
    out = np.empty((rows, heads, head_dim))
    for head in range(heads):
        key, value = keys[head // group], values[head // group]
        for row in range(rows):
            out[row, head] = _online_softmax(query[row, head] * head_dim**-0.5, key, value, first + row + 1)
    return out.reshape(rows, heads * head_dim)


def _online_softmax(query: Array, keys: Array, values: Array, seen: int) -> Array:
    """Softmax(keys @ query) @ values over the first `seen` keys, block by block."""
    best = -np.inf
    total = 0.0
    out = np.zeros(values.shape[1])
    for begin in range(0, seen, _BLOCK):
        end = min(begin + _BLOCK, seen)
        scores = keys[begin:end] @ query
        new_best = max(best, scores.max())
        rescale = np.exp(best - new_best)
        weights = np.exp(scores - new_best)
        total = total * rescale + weights.sum()
        out = out * rescale + weights @ values[begin:end]
        best = new_best
    return out / total
