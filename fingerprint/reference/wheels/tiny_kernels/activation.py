"""Gated activation."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def silu_and_mul(gate_up: Array) -> Array:
    """silu(gate) * up for (rows, 2 * inner), gate in the first half of the columns."""
    inner = gate_up.shape[1] // 2
    gate, up = gate_up[:, :inner], gate_up[:, inner:]
    out: Array = gate * up / (1.0 + np.exp(-gate))
    return out
