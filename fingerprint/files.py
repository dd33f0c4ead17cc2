"""Snapshot files, read with this project's own errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import snapshots
from fingerprint.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path


def load_snapshot(path: Path) -> snapshots.Snapshot:
    """Read a snapshot file.

    Raises:
        SnapshotError: it is none; the text says what is wrong.
    """
    try:
        return snapshots.load(path)
    except snapshots.NotASnapshotError as error:
        raise SnapshotError(str(error)) from None
