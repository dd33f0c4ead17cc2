"""Which tokens a row of logits stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_sampler import argmax_rows

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array


def top1(logits: Array) -> list[int]:
    """The most likely token of each row of (rows, vocabulary); the lowest one where two are equal."""
    return argmax_rows(logits)
