"""Snapshot files, read and written with this project's own errors."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from fingerprint.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file.

    Raises:
        SnapshotError: it is none; the text says what is wrong.
    """
    from snapshots import NotASnapshotError, load

    try:
        return load(path)
    except NotASnapshotError as error:
        raise SnapshotError(str(error)) from None


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot file, whole or not at all.

    Raises:
        SnapshotError: it cannot be written there.
    """
    from snapshots import save

    try:
        save(snapshot, path)
    except OSError as error:
        raise SnapshotError(f"{path} cannot be written: {error.strerror}.") from None


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it would hold; makes its folder.

    Raises:
        SnapshotError: it is a folder, or its folder cannot be made or written to.
    """
    if path.is_dir():
        raise SnapshotError(f"{path} is a folder; name a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise SnapshotError(f"{path} cannot be written: {error.strerror}.") from None
