"""Files that trials put in place, on the host: sent once, in pieces, each under its SHA-256, and gone with the program.

The folder is named after the process that owns it and held by it, as scratch directories are, so that the next program
removes it if this one was killed, and only then.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from typing import Any, Dict, Optional

from probes import keeper

SPARE_BYTES = 1 << 30
"""Left free on the disk."""
MOST_BYTES = 64 << 30
"""Of all objects of one conversation together."""


class NoRoomError(Exception):
    """The objects do not fit on the host, or are not what they are called; the text says so."""


class Objects:
    """The objects of one conversation, below a folder that is made for the first of them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._held: Optional[int] = None
        self._bytes = 0
        self._digest = hashlib.sha256()

    def has(self, sha256: str) -> bool:
        """Whether an object is here, whole."""
        return os.path.exists(os.path.join(self.folder, sha256))

    def put(self, ask: Dict[str, Any]) -> None:
        """Take in a piece of an object: `sha256`, `size` of all of it, `offset` and `data` (base64) of this piece.

        Raises:
            NoRoomError: it does not fit, or it is another file than it is called.
        """
        sha256, size, offset = str(ask["sha256"]), int(ask["size"]), int(ask["offset"])
        if len(sha256) != 64 or not sha256.isalnum():
            raise NoRoomError(f"{sha256[:80]!r} is no SHA-256")
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        if self._held is None:
            self._held = keeper.hold(self.folder)
        partial = os.path.join(self.folder, ".partial")
        if offset == 0:
            self._digest = hashlib.sha256()
            free = shutil.disk_usage(self.folder).free
            if self._bytes + size > MOST_BYTES or size + SPARE_BYTES > free:
                raise NoRoomError(f"a file of {size >> 20} MiB does not fit into {self.folder}: {free >> 20} MiB free")
            self._bytes += size
        data = base64.b64decode(ask["data"])
        with open(partial, "wb" if offset == 0 else "ab") as stream:
            if stream.tell() != offset:
                raise NoRoomError(f"a piece of {sha256} is missing before byte {offset}")
            stream.write(data)
        self._digest.update(data)
        if offset + len(data) >= size:
            if self._digest.hexdigest() != sha256:
                raise NoRoomError(f"the file sent as {sha256} has another digest")
            os.chmod(partial, 0o755)  # noqa: S103 - some of them are programs, and all are linked into place
            os.replace(partial, os.path.join(self.folder, sha256))

    def close(self) -> None:
        """Remove all of it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
        shutil.rmtree(self.folder, ignore_errors=True)
