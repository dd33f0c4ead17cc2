"""The snapshot file: sections, identity, load and save.

The file is JSON. `schema` says which version wrote it, `id` is the digest of the identity part, and `digest` that of
the whole file, so one that was edited or cut is noticed when it is read again.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from snapshots.base import Part, Read, Section, State, identity_digest
from snapshots.caches import Caches
from snapshots.gpu import Gpus
from snapshots.host import Host
from snapshots.limits import Limits
from snapshots.log import Log
from snapshots.models import Models
from snapshots.nccl import Nccl
from snapshots.packages import Packages
from snapshots.server import Server
from snapshots.startup import Startup
from snapshots.topology import Topology
from snapshots.tree import Trees

SCHEMA = 1
LARGEST_FILE_BYTES = 256 * 2**20


class NotASnapshotError(ValueError):
    """The file is not a snapshot that this version can read; the text is one sentence for a person."""


class Batch(Part):
    """What was measured with one number of requests at a time."""

    figures: dict[str, Read[float]] = {}
    """By name, times in ms: `verify_ms`, `cycle_ms`, `accept_length`, `tokens_per_second` ..."""
    sources: dict[str, str] = {}
    """Where each came from."""
    ranks: dict[str, dict[str, Read[float]]] = {}
    """The timed figures of every rank that exports them."""


class Measured(Part):
    """What was measured on the live server: the figure that is compared, and the others beside it."""

    metric: str
    """`verify_ms`, `gpu_cycle_ms` or `cycle_ms`."""
    value: float
    source: str
    """Where the figure came from; figures of different sources are never compared."""
    accept_length: float | None = None
    most_accepted: int | None = None
    """Tokens that a cycle can gain at most, by the number of draft steps; None: not known."""
    tokens_per_second: float | None = None
    requests: int = 0
    max_new_tokens: int = 0
    batches: dict[str, Batch] = {}
    """By requests at a time; the figure that is compared is of `1`."""


class Snapshot(Part):
    """What was read from one serving host at one time."""

    schema_number: State[int] = Field(default=SCHEMA, alias="schema")
    tool: State[str]
    taken_at: State[datetime]
    target: State[str]
    seconds: State[float] = 0.0
    method: State[Literal["captured", "imported"]] = "captured"
    """`imported`: made of a pasted report, so what it does not hold is unknown and not absent."""
    measured: State[Measured | None] = None
    packages: Packages = Packages.model_construct()
    startup: Startup = Startup.model_construct()
    trees: Trees = Trees.model_construct()
    server: Server = Server.model_construct()
    gpu: Gpus = Gpus.model_construct()
    topology: Topology = Topology.model_construct()
    host: Host = Host.model_construct()
    limits: Limits = Limits.model_construct()
    nccl: Nccl = Nccl.model_construct()
    caches: Caches = Caches.model_construct()
    models: Models = Models.model_construct()
    log: Log = Log.model_construct()

    @property
    def id(self) -> str:
        """SHA-256 of the identity part."""
        return identity_digest(self)

    def sections(self) -> dict[str, Section]:
        """The sections by name, in the order in which people read them."""
        return {name: value for name, value in self if isinstance(value, Section)}

    def text(self) -> str:
        """The file's text."""
        head = {"schema": SCHEMA, "id": self.id}
        body = self.model_dump(mode="json", by_alias=True, exclude_defaults=True) | head
        head["digest"] = _digest(body)
        return json.dumps({**head, **body}, indent=1, ensure_ascii=False) + "\n"


Snapshot.model_rebuild()  # here, and not in whichever thread reads the first one


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _digest(body: object) -> str:
    """SHA-256 of a file's whole contents in canonical JSON, whatever the layout and however later models read them."""
    digest = hashlib.sha256()
    for piece in _pieces(body, depth=3):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(value: object, depth: int) -> Iterator[str]:
    """Canonical JSON in pieces: as one text it takes a quarter longer, for the memory alone."""
    if depth == 0 or not isinstance(value, dict) or not value:
        yield _canonical(value)
        return
    mark = "{"
    for name in sorted(value):
        yield f"{mark}{_canonical(name)}:"
        yield from _pieces(value[name], depth - 1)
        mark = ","
    yield "}"


def save(snapshot: Snapshot, path: Path) -> None:
    """Write the file whole or not at all: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(snapshot.text())
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load(path: Path) -> Snapshot:
    """Read a snapshot file.

    Raises:
        NotASnapshotError: missing, cut off, foreign, newer than this version, or edited since it was written.
    """
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise NotASnapshotError(f"{path} is larger than {LARGEST_FILE_BYTES >> 20} MiB: not a snapshot.")
        text = path.read_bytes()
    except FileNotFoundError:
        raise NotASnapshotError(f"{path} does not exist; `fingerprint capture -o {path}` writes one.") from None
    except OSError as error:
        raise NotASnapshotError(f"{path} cannot be read: {error.strerror}.") from None
    return parse(text, str(path))


def parse(text: str | bytes, name: str) -> Snapshot:
    """Make a snapshot of a file's text; `name` is what messages call it. Raises as `load` does."""
    try:
        body = from_json(text, cache_strings="none")  # nearly every string in it is a path or a digest: there once
    except ValueError as error:
        begun = text[:64].lstrip()[:1] in {"{", b"{"}
        kind = "is cut off or damaged" if begun else "is not a snapshot"
        raise NotASnapshotError(f"{name} {kind} ({error}); capture it again or fetch a whole copy.") from None
    if not isinstance(body, dict) or not isinstance(body.get("schema"), int) or "taken_at" not in body:
        raise NotASnapshotError(
            f"{name} is JSON but not a snapshot: it has no `schema` number; `fingerprint capture` writes one."
        )
    if body["schema"] > SCHEMA:
        raise NotASnapshotError(
            f"{name} was written by a newer version (schema {body['schema']}, this version reads up to {SCHEMA});"
            " upgrade fingerprint to read it."
        )
    if "digest" not in body:
        raise NotASnapshotError(f"{name} has no digest, so nothing says that it is whole; capture it again.")
    if body.pop("digest") != _digest(body):
        raise NotASnapshotError(
            f"{name} does not match its own digest: it was edited or damaged since it was written; use the original."
        )
    body.pop("id", None)
    try:
        snapshot = Snapshot.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise NotASnapshotError(
            f"{name} is not a whole snapshot: {where}: {first['msg']} ({error.error_count()} such faults)."
        ) from None
    return snapshot
