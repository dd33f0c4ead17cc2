"""Which differences deserve a trial first, with every reason and its source."""

from __future__ import annotations

from collections.abc import Iterable

from fingerprint.diff import Difference
from snapshots import Snapshot


def rank(differences: Iterable[Difference], old: Snapshot, new: Snapshot) -> list[Difference]:
    """The differences, likeliest first."""
    return sorted(differences, key=lambda item: item.key)
