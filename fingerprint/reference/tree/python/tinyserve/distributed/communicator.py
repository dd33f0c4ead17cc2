"""The collectives of one tensor-parallel group, on top of whichever transport the collective library chose."""

from __future__ import annotations

from multiprocessing.connection import Connection

import numpy as np
import tiny_collective
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Communicator:
    """This rank's end of the group; with one rank every operation is the identity."""

    def __init__(self, rank: int, world_size: int, bootstrap: Connection | None) -> None:
        self.rank = rank
        self.world_size = world_size
        self._transport = None if bootstrap is None else tiny_collective.connect(rank, bootstrap)

    def all_reduce(self, part: Array) -> Array:
        """The sum of every rank's `part`, added in rank order so that all ranks get the same bits."""
        if self._transport is None:
            return part
        other = self._transport.exchange(part)
        return part + other if self.rank == 0 else other + part

    def all_gather(self, part: Array) -> Array:
        """Every rank's `part` side by side along the last axis, in rank order."""
        if self._transport is None:
            return part
        other = self._transport.exchange(part)
        return np.concatenate((part, other) if self.rank == 0 else (other, part), axis=-1)
