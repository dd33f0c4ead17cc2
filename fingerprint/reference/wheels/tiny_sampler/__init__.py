"""Greedy sampling and greedy acceptance of drafted tokens."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["accept_greedy", "argmax_rows"]


def argmax_rows(logits: NDArray[np.float64]) -> list[int]:
    """The column of the largest value of each row; the lowest column where two are equal."""
    best: list[int] = logits.argmax(axis=1).tolist()
    return best


def accept_greedy(drafted: Sequence[int], predicted: Sequence[int]) -> int:
    """How many drafted tokens the target would have chosen itself, counted until the first that it would not."""
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == predicted[accepted]:
        accepted += 1
    return accepted
