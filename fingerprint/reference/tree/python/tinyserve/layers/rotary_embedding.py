"""Rotary position embedding: pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array


class RotaryEmbedding:
    """Turns queries and keys; the angles of all positions are computed once."""

    def __init__(self, head_dim: int, max_positions: int, theta: float) -> None:
        self._frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)
        self._max_positions = max_positions
        self._cos, self._sin = self._tables()

    def _tables(self) -> tuple[Array, Array]:
        angles = np.outer(np.arange(self._max_positions), self._frequencies)[:, None, :]
        return np.cos(angles), np.sin(angles)

    def __call__(self, x: Array, start: int) -> Array:
        """Turn `x` (rows, heads, head_dim), whose first row is at position `start`."""
        rows, _heads, head_dim = x.shape
        cos, sin = self._cos[start : start + rows], self._sin[start : start + rows]
        left, right = x[..., : head_dim // 2], x[..., head_dim // 2 :]
        turned = np.empty_like(x)
        turned[..., : head_dim // 2] = left * cos - right * sin
        turned[..., head_dim // 2 :] = right * cos + left * sin
        return turned
