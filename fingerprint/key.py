"""The operator's own key for secrets' digests: two snapshots taken with it still tell "same" from "changed"."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """Where fingerprint keeps what is the operator's own."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "fingerprint"


def secret_key() -> str:
    """The key in hexadecimal, made on first use and readable by its owner alone.

    Where it cannot be stored, a key of this run is used: snapshots then compare secrets only among themselves.
    """
    path = data_folder() / "secret.key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            text = path.read_text(encoding="ascii").strip()
            bytes.fromhex(text)
            return text
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            key = os.urandom(32).hex()
            stream.write(key + "\n")
        return key
    except (OSError, ValueError, UnicodeDecodeError):
        return os.urandom(32).hex()
