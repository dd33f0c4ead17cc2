"""Who computes attention, and the cache of keys and values it reads.

`fused` is the kernel of the tiny-kernels package; `native` is the plain reference, one head after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tiny_kernels import grouped_attention

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array


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
    """The same as `grouped_attention`, head by head and row by row."""
    rows, heads, head_dim = query.shape
    group = heads // len(keys)
    first = keys.shape[1] - rows
    out = np.empty((rows, heads, head_dim))
    for head in range(heads):
        key, value = keys[head // group], values[head // group]
        for row in range(rows):
            seen = first + row + 1
            scores = key[:seen] @ query[row, head] / np.sqrt(head_dim)
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ value[:seen] / weights.sum()
    return out.reshape(rows, heads * head_dim)
