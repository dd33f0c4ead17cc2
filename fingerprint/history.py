"""The history: captures with their figures, kept so that "before" exists next time.

A plain directory, also on a shared disk, with no index and no lock, so there is nothing to corrupt:

    snapshots/ID.json      one for each different environment, under its own id; written whole, then renamed into place
    snapshots/kept/        files of kept packages, by digest
    records/TIME-xxxx.json one small file for every recording: when, of which host, which id, which figure
    tags/NAME              the name of a record

A record is written after its snapshot and under a name that no other writer uses. So two writers lose nothing, and a
writer that is killed or meets a full disk leaves at most a hidden partial file, which nobody reads and pruning removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fingerprint.errors import HistoryError, SnapshotError, UsageError
from fingerprint.files import load_snapshot
from snapshots import Measured, Snapshot

LARGEST_BYTES = 2 << 30
"""A history keeps to this size unless told otherwise."""
_FRESH_S = 3600.0
"""Files younger than this may belong to a writer that is not done; pruning leaves them."""
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_RECORD = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}\.json")
_ID = re.compile(r"[0-9a-f]{6,64}")
_WORDS = frozenset({"last", "first"})


class Record(BaseModel):
    """One recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_number: int = 1
    at: datetime
    target: str
    snapshot: str
    """Id of the snapshot."""
    measured: Measured | None = None
    tool: str = ""
    name: str = ""
    """File name of the record; not in the file itself."""


@dataclass(frozen=True)
class Pruned:
    """What pruning removed, and what is left."""

    records: int
    snapshots: int
    bytes_left: int


def default_root(environment: Mapping[str, str]) -> Path:
    """Where the history lies: `FINGERPRINT_HISTORY`, else in the user's state directory."""
    if place := environment.get("FINGERPRINT_HISTORY"):
        return Path(place)
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return Path(state) / "fingerprint" / "history"


class History:
    """A history directory.

    Args:
        root: the directory; made when something is recorded.
        now: the clock.
        zone: the time zone of dates in references; the machine's own when None.
    """

    def __init__(
        self,
        root: Path,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        zone: tzinfo | None = None,
    ) -> None:
        self.root = root
        self._now = now
        self._zone = zone

    # -- writing -----------------------------------------------------------------------------------------------

    def record(self, snapshot: Snapshot, tag: str | None = None) -> Record:
        """Store a capture with its figure.

        Args:
            snapshot: the capture; stored once for each different environment.
            tag: a name for this recording; moves there if it is in use.

        Raises:
            HistoryError: the directory cannot be written; what it held is as before.
            UsageError: the tag is no name.
        """
        if tag is not None:
            _check_tag(tag)
        record = Record(
            at=snapshot.taken_at,
            target=snapshot.target,
            snapshot=snapshot.id,
            measured=snapshot.measured,
            tool=snapshot.tool,
        )
        name = f"{self._now().astimezone(timezone.utc):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(4)}.json"
        text = json.dumps(record.model_dump(mode="json", exclude={"name"}), indent=1, ensure_ascii=False) + "\n"
        try:
            self._keep(snapshot)
            self._write(self.root / "records" / name, text)
            self._keep(snapshot)  # a pruning at the same time may have found it without a record
            if tag is not None:
                self._write(self.root / "tags" / tag, name + "\n")
        except OSError as error:
            raise HistoryError(
                f"The history in {self.root} cannot be written ({error.strerror}); nothing in it was changed."
            ) from None
        return record.model_copy(update={"name": name})

    def tag(self, reference: str, name: str) -> Record:
        """Give a record a name, or move the name to it."""
        _check_tag(name)
        record = self.resolve(reference)
        try:
            self._write(self.root / "tags" / name, record.name + "\n")
        except OSError as error:
            raise HistoryError(f"The tag {name} cannot be written in {self.root} ({error.strerror}).") from None
        return record

    def untag(self, name: str) -> None:
        """Take a name away; its record may then be pruned."""
        _check_tag(name)
        try:
            (self.root / "tags" / name).unlink()
        except FileNotFoundError:
            raise HistoryError(f"The history in {self.root} has no tag {name}.") from None

    def _keep(self, snapshot: Snapshot) -> None:
        path = self.path(snapshot.id)
        try:
            os.utime(path)  # it is in use: pruning leaves it
        except FileNotFoundError:
            self._write(path, snapshot.text())

    def _write(self, path: Path, text: str) -> None:
        """Write a file whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    # -- reading -----------------------------------------------------------------------------------------------

    def path(self, snapshot_id: str) -> Path:
        """The file of a snapshot; kept package files lie beside it."""
        return self.root / "snapshots" / f"{snapshot_id}.json"

    def records(self, target: str | None = None) -> list[Record]:
        """All recordings, oldest first; of one host if asked.

        Raises:
            HistoryError: a record is damaged, or the directory cannot be read.
        """
        folder = self.root / "records"
        try:
            names = sorted(path.name for path in folder.iterdir() if _RECORD.fullmatch(path.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HistoryError(f"The history in {self.root} cannot be read ({error.strerror}).") from None
        found = []
        for name in names:
            try:
                record = Record.model_validate_json((folder / name).read_bytes())
            except FileNotFoundError:
                continue  # pruned meanwhile
            except (ValidationError, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no record"
                raise HistoryError(f"{folder / name} is damaged ({reason}); move it away to go on.") from None
            if target is None or record.target == target:
                found.append(record.model_copy(update={"name": name}))
        return sorted(found, key=lambda record: (record.at, record.name))

    def tags(self) -> dict[str, str]:
        """Tag -> name of its record."""
        folder = self.root / "tags"
        if not folder.is_dir():
            return {}
        return {
            path.name: path.read_text(encoding="utf-8").strip()
            for path in sorted(folder.iterdir())
            if _TAG.fullmatch(path.name)
        }

    def load(self, record: Record) -> Snapshot:
        """The snapshot of a record, with the record's own time and figure.

        Raises:
            SnapshotError: its file is damaged or gone.
        """
        path = self.path(record.snapshot)
        snapshot = load_snapshot(path)
        with path.open(encoding="utf-8") as stream:
            head = stream.read(400)
        if f'"id": "{record.snapshot}"' not in head:  # as written then: a later version may read another id out of it
            raise SnapshotError(f"{path} holds another snapshot than its name says.")
        return snapshot.model_copy(update={"taken_at": record.at, "measured": record.measured})

    def resolve(self, reference: str) -> Record:
        """The record that a reference means.

        `@last`, `@first`, a tag (`@good`), a day (`@2026-11-03`: the last of it), a time (`@2026-11-03T08:15`: the last
        until then), or the beginning of an id. `@last@gpu-17` is of that host.

        Raises:
            HistoryError: there is none, or it could be several hosts'.
        """
        what, _, target = reference.removeprefix("@").partition("@")
        tags = self.tags()
        if what in tags and not target:
            return self._named(tags[what], what)
        records = self.records(target or None)
        if not records:
            of_host = f" of {target}" if target else ""
            raise HistoryError(f"The history in {self.root} holds nothing{of_host}; `fingerprint record` adds to it.")
        if what in _WORDS:
            _one_host(records, reference)
            return records[-1 if what == "last" else 0]
        span = self._span(what)
        if span is not None:
            since, until = span
            fitting = [record for record in records if (since is None or record.at >= since) and record.at < until]
            if not fitting:
                raise HistoryError(f"The history in {self.root} holds nothing for {reference}; {_reach(records)}.")
            _one_host(fitting, reference)
            return fitting[-1]
        if _ID.fullmatch(what):
            fitting = [record for record in records if record.snapshot.startswith(what)]
            if fitting:
                return fitting[-1]
        known = ", ".join(f"@{tag}" for tag in tags) or "none"
        raise HistoryError(
            f"The history in {self.root} has nothing called {reference}. Tags: {known}. "
            "Other references: @last, @2026-11-03, @2026-11-03T08:15, or the beginning of an id."
        )

    def _named(self, name: str, tag: str) -> Record:
        for record in self.records():
            if record.name == name:
                return record
        raise HistoryError(f"The record that is tagged {tag} is gone from {self.root}.")

    def _span(self, what: str) -> tuple[datetime | None, datetime] | None:
        """The span that a day or a time means."""
        try:
            day = date.fromisoformat(what)
        except ValueError:
            pass
        else:
            start = self._local(datetime.combine(day, time()))
            return start, self._local(datetime.combine(day + timedelta(days=1), time()))
        try:
            moment = datetime.fromisoformat(what)
        except ValueError:
            return None
        return None, (moment if moment.tzinfo else self._local(moment)) + timedelta(minutes=1)

    def _local(self, moment: datetime) -> datetime:
        return moment.replace(tzinfo=self._zone) if self._zone is not None else moment.astimezone()

    # -- keeping to a size -------------------------------------------------------------------------------------

    def prune(self, most_bytes: int = LARGEST_BYTES) -> Pruned:
        """Remove the oldest recordings without a tag until the history fits, and what nothing refers to.

        The last recording of each host stays, and so does everything that was written within the last hour.
        """
        records = self.records()
        keep = {*self.tags().values(), *{record.target: record.name for record in records}.values()}
        files = self._files()
        size = sum(files.values())
        users: dict[str, int] = {}
        for record in records:
            users[record.snapshot] = users.get(record.snapshot, 0) + 1
        removed = gone = 0
        for record in records:
            if size <= most_bytes:
                break
            if record.name in keep or self._fresh(self.root / "records" / record.name):
                continue
            size -= self._remove(self.root / "records" / record.name, files)
            removed += 1
            users[record.snapshot] -= 1
            if users[record.snapshot] == 0 and not self._fresh(self.path(record.snapshot)):
                size -= self._remove(self.path(record.snapshot), files)
                gone += 1
        for path in sorted(files):
            partial = path.name.startswith(".partial-")
            unused = path.parent == self.root / "snapshots" and path.suffix == ".json" and path.stem not in users
            if path.exists() and (partial or unused) and not self._fresh(path):
                size -= self._remove(path, files)
                gone += unused
        if gone:
            size -= self._remove_unused_objects(files)
        return Pruned(removed, gone, size)

    def _files(self) -> dict[Path, int]:
        found = {}
        for path in self.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # pruned or renamed meanwhile
                if path.is_file():
                    found[path] = path.stat().st_size
        return found

    def _fresh(self, path: Path) -> bool:
        try:
            return self._now().timestamp() - path.stat().st_mtime < _FRESH_S
        except FileNotFoundError:
            return False

    def _remove(self, path: Path, files: Mapping[Path, int]) -> int:
        path.unlink(missing_ok=True)
        return files.get(path, 0)

    def _remove_unused_objects(self, files: Mapping[Path, int]) -> int:
        """Remove kept package files that no snapshot left refers to."""
        used: set[str] = set()
        for path in (self.root / "snapshots").glob("*.json"):
            try:
                packages = load_snapshot(path).packages
            except SnapshotError:
                return 0  # a damaged snapshot may refer to any of them
            used.update(digest for held in packages.files.values() for digest in held.values())
        kept = self.root / "snapshots" / "kept"
        return sum(
            self._remove(path, files)
            for path in files
            if path.is_relative_to(kept) and path.name not in used and not self._fresh(path)
        )


def snapshot_of(text: str, history: History) -> tuple[Snapshot, Path]:
    """The snapshot that an argument names, `@reference` or file, and the file beside which kept files lie.

    Raises:
        SnapshotError: the file is no snapshot.
        HistoryError: the reference means nothing.
    """
    if text.startswith("@"):
        record = history.resolve(text)
        return history.load(record), history.path(record.snapshot)
    return load_snapshot(Path(text)), Path(text)


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes:
        record: the recording.
        tags: its names.
        changed: what is different from the recording before it of the same host, likeliest first.
        more: how many further differences there are.
        first: there is none before it.
    """

    record: Record
    tags: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    more: int = 0
    first: bool = False


def log(history: History, target: str | None = None, limit: int = 50, shown: int = 3) -> list[Entry]:
    """The recordings, oldest first, with what changed between neighbours.

    Args:
        history: the history.
        target: only of this host.
        limit: the last so many.
        shown: differences named in each.
    """
    from fingerprint.diff import compare

    names: dict[str, list[str]] = {}
    for tag, name in history.tags().items():
        names.setdefault(name, []).append(tag)
    records = history.records(target)
    before: dict[str, Record] = {}
    entries = []
    for place, record in enumerate(records):
        previous = before.get(record.target)
        before[record.target] = record
        if place < len(records) - limit:
            continue
        titles: list[str] = []
        if previous is not None and previous.snapshot != record.snapshot:
            lines = compare(history.load(previous), history.load(record)).lines()
            titles = [line.difference.title for line in lines]
        entries.append(
            Entry(
                record,
                tuple(names.get(record.name, ())),
                tuple(titles[:shown]),
                max(0, len(titles) - shown),
                first=previous is None,
            )
        )
    return entries


def _check_tag(tag: str) -> None:
    if not _TAG.fullmatch(tag) or tag in _WORDS or _ID.fullmatch(tag):
        raise UsageError(
            f"{tag[:70]!r} cannot be a tag; use letters, digits, dots and dashes, such as `good` or `before-upgrade`."
        )


def _one_host(records: Sequence[Record], reference: str) -> None:
    targets = sorted({record.target for record in records})
    if len(targets) > 1:
        raise HistoryError(
            f"{reference} could be one of {len(targets)} hosts ({', '.join(targets[:4])}); "
            f"say which: {reference}@{targets[0]}."
        )


def _reach(records: Sequence[Record]) -> str:
    return f"it reaches from {records[0].at:%Y-%m-%d %H:%M} to {records[-1].at:%Y-%m-%d %H:%M %Z}"
