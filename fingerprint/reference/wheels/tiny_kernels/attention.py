"""Causal grouped-query attention of a few new rows over a cache."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def grouped_attention(query: Array, keys: Array, values: Array) -> Array:
    """All heads at once.

    `query` is (rows, heads, head_dim); `keys` and `values` are (kv_heads, length, head_dim) and end with the rows
    themselves. Returns (rows, heads * head_dim).
    """
    rows, heads, head_dim = query.shape
    kv_heads, length, _ = keys.shape
    group = heads // kv_heads
    # The heads that share keys become more rows of one product.
    packed: Array = query.reshape(rows, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    packed = packed.reshape(kv_heads, -1, head_dim)
    scores = (packed * head_dim**-0.5) @ keys.transpose(0, 2, 1)
    if rows > 1:
        later = np.triu(np.full((rows, rows), -np.inf), 1)
        scores.reshape(kv_heads, group, rows, length)[..., length - rows :] += later
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    context: Array = weights @ values / weights.sum(axis=-1, keepdims=True)
    context = context.reshape(kv_heads, group, rows, head_dim).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(context).reshape(rows, heads * head_dim)
