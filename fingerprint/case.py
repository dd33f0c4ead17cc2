"""A case: the folder that holds one incident, and the outcome that is written into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

import snapshots
from fingerprint.bisect.decisions import Decision
from fingerprint.bisect.journal import ControlLine, FactorLine, Journal
from fingerprint.bisect.verdict import Verdict
from fingerprint.errors import CaseError
from fingerprint.files import load_snapshot
from snapshots import Snapshot


class Opened(BaseModel):
    """A culprit that was opened, or why it was not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str
    """Id of the factor, or of the part that was opened in its turn."""
    title: str = ""
    """What a person calls it, where it is a part; a factor's id says it."""
    parts: list[FactorLine] = []
    verdict: Verdict | None = None
    """Of the search inside; None where there is one part alone, or none could be searched."""
    reason: str = ""
    """Why it was not searched."""

    @property
    def culprits(self) -> list[FactorLine]:
        """The parts that are to blame."""
        if self.verdict is None:
            return self.parts if len(self.parts) == 1 else []
        blamed = {name for culprit in self.verdict.culprits for name in culprit.factors}
        return [part for part in self.parts if part.id in blamed]


class Outcome(Verdict):
    """`verdict.json`: the search's verdict with what surrounds it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_number: Literal[1] = 1
    metric: str | None = None
    source: str | None = None
    fixed: list[FactorLine] = []
    """Differences that no launch can switch: suspects that stay."""
    conditions: list[str] = []
    """What every launch had, whatever its factors, and how it was measured."""
    decisions: list[Decision] = []
    """What the engine itself decided otherwise with a culprit than without."""
    controls: list[ControlLine] = []
    """Both ends without speculation, where that was asked for."""
    compared: str = ""
    """Why launches are not compared by the engine's best figure; empty: they are."""
    unseen: list[str] = []
    """What neither snapshot could see."""
    opened: list[Opened] = []
    """The insides of the culprits, each before its own parts."""
    revert: list[str] = []
    """What to do on the host to have the old speed again, as lines to type."""
    host_before: str | None = None
    host_after: str | None = None
    host_differences: list[str] = []
    """What is different on the host after the search; empty means nothing."""


class Case:
    """One folder: `old.json`, `new.json`, `journal.jsonl`, `verdict.json`, `report.md`, `report.html`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.jsonl")

    @classmethod
    def create(cls, folder: Path, old: Snapshot, new: Snapshot) -> Case:
        """Make the folder with both snapshots in it.

        Raises:
            CaseError: it holds a case already, or cannot be made.
        """
        case = cls(folder)
        if case.journal.path.exists():
            raise CaseError(
                f"{folder} already holds a case; continue it with --resume, or name another folder with --case."
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            snapshots.save(old, folder / "old.json")
            snapshots.save(new, folder / "new.json")
        except OSError as error:
            raise CaseError(f"{folder} cannot be written: {error.strerror}.") from None
        return case

    @classmethod
    def open(cls, folder: Path) -> Case:
        """An existing case.

        Raises:
            CaseError: there is none in this folder.
        """
        case = cls(folder)
        if not case.journal.path.is_file():
            raise CaseError(f"{folder} holds no case (no journal.jsonl in it); `fingerprint bisect` makes one.")
        return case

    @property
    def old(self) -> Snapshot:
        """The good side."""
        return load_snapshot(self.folder / "old.json")

    @property
    def new(self) -> Snapshot:
        """The slow side."""
        return load_snapshot(self.folder / "new.json")

    def write_outcome(self, outcome: Outcome) -> None:
        """Write `verdict.json`."""
        text = json.dumps(outcome.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
        partial = self.folder / ".verdict.json"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.folder / "verdict.json")

    def outcome(self) -> Outcome:
        """Read `verdict.json`.

        Raises:
            CaseError: there is none yet, or it is damaged.
        """
        path = self.folder / "verdict.json"
        try:
            return Outcome.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise CaseError(f"{path} is not there: the bisect has not ended; continue it with --resume.") from None
        except (ValidationError, ValueError, OSError) as error:
            raise CaseError(f"{path} is damaged ({str(error).splitlines()[0]}).") from None


def unseen(old: Snapshot, new: Snapshot) -> list[str]:
    """What these two snapshots could not see, in words; a part of every verdict."""
    lines: list[str] = []
    sources = [one.measured.source for one in (old, new) if one.measured is not None]
    if len(set(sources)) > 1:
        lines.append(
            f"how the two measured figures compare: the old one is of the {sources[0]}, the new of the {sources[1]}"
        )
    for side, snapshot in (("old", old), ("new", new)):
        for name, section in snapshot.sections().items():
            if section.status in {"failed", "absent"}:
                lines.append(f"{side}: {name}: {section.reason or 'was not captured'}")
        for key, leaf in snapshots.leaves(snapshot):
            if isinstance(leaf, snapshots.Unread):
                lines.append(f"{side}: {' '.join(key)}: {leaf.unread}")
    return [*dict.fromkeys(lines), *NEVER_SEEN]


NEVER_SEEN = (
    "what else ran on the machine, its temperature and its clocks when the old figure was taken",
    "traffic, prompts and client of the old figure, where they are not in the old snapshot",
    "contents of memory that no file shows: page cache, memory fragmentation, and where the kernel placed each process",
)
