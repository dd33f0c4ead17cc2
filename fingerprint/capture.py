"""Capture: one target in, one snapshot out."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fingerprint import __version__
from fingerprint.errors import FingerprintError, HostProgramError
from fingerprint.host import HostProgram

if TYPE_CHECKING:
    from fingerprint.targets.base import Target
    from snapshots import Section, Snapshot

MOST_AT_ONCE = 64


class Store:
    """Content-addressed copies of files, in a folder beside the snapshots that need them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        """Where the file with this digest lies."""
        return self.root / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        """Whether it is kept."""
        return self.path(sha256).is_file()

    def put(self, data: bytes) -> str:
        """Keep a file; its digest is its name."""
        import hashlib

        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{sha256}.{time.monotonic_ns()}")
            partial.write_bytes(data)
            partial.replace(path)
        return sha256

    def get(self, sha256: str) -> bytes:
        """The file's bytes.

        Raises:
            FileNotFoundError: it is not kept.
        """
        return self.path(sha256).read_bytes()

    def open(self, sha256: str) -> tuple[int, BinaryIO]:
        """The file's size, and the file opened; raises as `get` does."""
        path = self.path(sha256)
        return path.stat().st_size, path.open("rb")


def store_beside(snapshot: Path) -> Store:
    """The store that goes with a snapshot file."""
    return Store(snapshot.parent / "kept")


def capture(
    host: HostProgram,
    ask: dict[str, Any],
    *,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    store: Store | None = None,
    on_section: Callable[[str, Section], None] = lambda _name, _section: None,
) -> Snapshot:
    """Read one host.

    Args:
        host: the program on the target.
        ask: what the probes want to know (see `probes.capture.capture`).
        now: the clock.
        store: where kept files go.
        on_section: called with every section as soon as it is there.

    Raises:
        TargetError: the way to the host broke.
        HostProgramError: the host program answered with a failure.
    """
    began = time.monotonic()
    taken_at = now()
    sections: dict[str, Section] = {}

    def hear(event: str, value: dict[str, Any]) -> None:
        if event == "object" and store is not None:
            store.put(base64.b64decode(value["data"]))
        elif event == "section":
            section = _section(value["name"], value["section"])
            sections[value["name"]] = section
            on_section(value["name"], section)

    host.call("capture", ask, hear)
    from snapshots import Snapshot

    return Snapshot(
        tool=__version__,
        taken_at=taken_at,
        target=host.target.name,
        seconds=round(time.monotonic() - began, 3),
        **sections,
    )


def capture_many(
    targets: Sequence[Target],
    ask: dict[str, Any],
    *,
    python: str = "python3",
    on_snapshot: Callable[[int, Snapshot], None] = lambda _number, _snapshot: None,
) -> list[Snapshot | FingerprintError]:
    """Read several hosts at once; one that fails is an error in its place and costs the others nothing.

    Args:
        targets: where to read.
        ask: as for `capture`, the same for all.
        python: the interpreter that runs the host program there.
        on_snapshot: called from the host's own thread, with its number in `targets`, as soon as it is read; an error
            that it raises stands for the snapshot.
    """
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> Snapshot | FingerprintError:
        try:
            with HostProgram(targets[number], python) as host:
                snapshot = capture(host, ask)
            on_snapshot(number, snapshot)
        except FingerprintError as error:
            return error
        return snapshot

    with ThreadPoolExecutor(max(1, min(len(targets), MOST_AT_ONCE))) as pool:
        return list(pool.map(one, range(len(targets))))


def _section(name: str, answer: dict[str, Any]) -> Section:
    from pydantic import ValidationError

    from snapshots import Section, Snapshot

    field = Snapshot.model_fields.get(name)
    if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, Section):
        raise HostProgramError(f"the host answered with a section {name!r} that does not exist here.")
    try:
        # As a part of a snapshot, whose validator is there: to build one for each section takes six times as long.
        section: Section = getattr(Snapshot.model_validate({**_NOTHING, name: answer}), name)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"][1:])
        return field.annotation(status="failed", reason=f"the host's answer does not fit: {where}: {first['msg']}")
    return section


_NOTHING = {"tool": "", "taken_at": 0, "target": ""}
"""What no snapshot is without."""
