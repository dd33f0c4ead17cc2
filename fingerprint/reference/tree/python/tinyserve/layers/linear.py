"""Matrix products whose weight is split over the ranks of a tensor-parallel group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array, Communicator


def shard(weight: Array, axis: int, comm: Communicator) -> Array:
    """This rank's slice of `weight` along `axis`, as its own block of memory."""
    part = np.split(weight, comm.world_size, axis=axis)[comm.rank]
    return np.ascontiguousarray(part, dtype=np.float64)


class ColumnParallelLinear:
    """Each rank has some output columns; nothing is exchanged. Several weights are packed side by side."""

    def __init__(self, weights: list[Array], comm: Communicator) -> None:
        self.weight = np.concatenate([shard(weight, 1, comm) for weight in weights], axis=1)

    def __call__(self, x: Array) -> Array:
        """(rows, in) to (rows, this rank's share of out)."""
        out: Array = x @ self.weight
        return out


class RowParallelLinear:
    """Each rank has some input rows; the partial products are summed over the ranks."""

    def __init__(self, weight: Array, comm: Communicator) -> None:
        self.weight = shard(weight, 0, comm)
        self._comm = comm

    def __call__(self, x: Array) -> Array:
        """(rows, this rank's share of in) to (rows, out)."""
        return self._comm.all_reduce(x @ self.weight)
