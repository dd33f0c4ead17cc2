"""Root-mean-square norm."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EPSILON = 1e-6


def rms_norm(x: Array, weight: Array) -> Array:
    """Rows of (rows, hidden) scaled to mean square 1, times `weight` (hidden)."""
    mean_square = np.einsum("ij,ij->i", x, x) / x.shape[1]
    out: Array = x * (weight / np.sqrt(mean_square + _EPSILON)[:, None])
    return out
