"""A case fit for strangers: the same pseudonym for the same name in snapshots, journal, verdict and report.

The case's key makes the pseudonyms and stays in the case folder. Who has the originals and the key can redact them in
the same way and compare: equal things are equal still. Level `names` replaces names, addresses and paths; level
`texts` also turns patches, startup files and other long texts into digests under the key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fingerprint.case import Case, Outcome
from fingerprint.errors import CaseError
from snapshots import Snapshot, save
from snapshots.redact import Redactor, names_in, redact

if TYPE_CHECKING:
    from collections.abc import Iterable

Level = Literal["names", "texts"]
KEY_FILE = "redaction.key"


def case_key(folder: Path) -> bytes:
    """The case's key, made on first use; it is never part of a bundle.

    Raises:
        CaseError: the folder cannot be written, or the key file is damaged.
    """
    path = folder / KEY_FILE
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(32) + "\n", encoding="ascii")
        return bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise CaseError(f"{path} cannot be used: {error.strerror}.") from None
    except ValueError:
        raise CaseError(f"{path} is damaged; without it no redaction matches earlier ones. Move it away.") from None


def redacted(snapshot: Snapshot, key: bytes, level: Level = "names", hosts: frozenset[str] = frozenset()) -> Snapshot:
    """One snapshot with pseudonyms; equal ones stay equal under the same key, level and `hosts`."""
    named = redact(snapshot, key, hosts=hosts)
    if level == "names":
        return named
    body = _without_texts(named.model_dump(mode="json", by_alias=True), key)
    return Snapshot.model_validate(body)


def redact_case(case: Case, folder: Path, level: Level = "names") -> Case:
    """Write a redacted copy of a case, with its report, into a new folder.

    Raises:
        CaseError: the case is damaged, or the folder exists or cannot be written.
    """
    from fingerprint.report import write_reports

    key = case_key(case.folder)
    old, new = case.old, case.new
    hosts, _users = _names((old, new))
    sides = {side.id: redacted(side, key, level, hosts) for side in (old, new)}
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise CaseError(f"{folder} cannot be made: {error.strerror}; name a folder that does not exist.") from None
    save(sides[old.id], folder / "old.json")
    save(sides[new.id], folder / "new.json")
    redactor = _redactor(key, (old, new))
    copy = Case(folder)
    for line in case.journal.lines():
        body = _walk(line.model_dump(mode="json"), redactor, {name: side.id for name, side in sides.items()})
        if level == "texts":
            body = _without_texts(body, key)
        copy.journal.append(type(line).model_validate(body))
    if (case.folder / "verdict.json").exists():
        body = _walk(case.outcome().model_dump(mode="json"), redactor, {})
        copy.write_outcome(Outcome.model_validate(_without_texts(body, key) if level == "texts" else body))
    write_reports(copy)
    return copy


@dataclass(frozen=True)
class Replaced:
    """One name in a preview: what it is, what stands for it, and how often it occurs."""

    kind: str
    name: str
    pseudonym: str
    times: int


def preview(case: Case) -> list[Replaced]:
    """Every name that a redaction would replace, most frequent first. Not for sharing: it is the way back."""
    key = case_key(case.folder)
    noting = _Noting(key, *map(set, _names((case.old, case.new))))
    for side in (case.old, case.new):
        _walk(side.model_dump(mode="json"), noting, {})
    for line in case.journal.lines():
        _walk(line.model_dump(mode="json"), noting, {})
    found = [Replaced(kind, name, noting.pseudonym(kind, name), times) for (kind, name), times in noting.seen.items()]
    return sorted(found, key=lambda one: (-one.times, one.kind, one.name))


class _Noting(Redactor):
    """Counts what it replaces."""

    def __init__(self, key: bytes, hosts: set[str], users: set[str]) -> None:
        super().__init__(key, hosts, users)
        self.seen: Counter[tuple[str, str]] = Counter()

    def pseudonym(self, kind: str, name: str) -> str:
        """What stands for a name; counted."""
        self.seen[kind, name] += 1
        return super().pseudonym(kind, name)


def _names(sides: Iterable[Snapshot]) -> tuple[frozenset[str], frozenset[str]]:
    """The names of hosts and of users in both snapshots."""
    hosts: set[str] = set()
    users: set[str] = set()
    for side in sides:
        found = names_in(side)
        hosts |= found[0]
        users |= found[1]
    return frozenset(hosts), frozenset(users)


def _redactor(key: bytes, sides: Iterable[Snapshot]) -> Redactor:
    hosts, users = _names(sides)
    return Redactor(key, set(hosts), set(users))


def _walk(value: Any, redactor: Redactor, known: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """JSON with every text redacted; `known` texts (ids of snapshots) become what is given."""
    if isinstance(value, str):
        return known.get(value) or redactor.text(value)
    if isinstance(value, list):
        return [_walk(one, redactor, known) for one in value]
    if isinstance(value, dict):
        return {redactor.key(name): _walk(one, redactor, known) for name, one in value.items()}
    return value


def _without_texts(value: Any, key: bytes) -> Any:  # noqa: ANN401 - JSON
    """JSON in which a text of several lines is its length and its digest under the key."""
    if isinstance(value, str) and "\n" in value:
        digest = hmac.new(key, f"text\0{value}".encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
        return f"<text of {value.count(chr(10)) + 1} lines: {digest[:16]}>"
    if isinstance(value, list):
        return [_without_texts(one, key) for one in value]
    if isinstance(value, dict):
        return {name: _without_texts(one, key) for name, one in value.items()}
    return value
