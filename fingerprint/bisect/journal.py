"""The journal of a case: one JSON line for every thing that happened, on disk before the next one begins.

It is the transaction log of a search: a case is resumed, reported and doubted from it alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fingerprint.engines import figure_of
from fingerprint.errors import CaseError

Status = Literal["measured", "disturbed", "void", "unlaunchable", "failed"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FactorLine(_Line):
    """A factor or a fixed difference as the journal knows it."""

    id: str
    old: str
    new: str
    revert: str = ""
    reason: str = ""
    """Why it cannot be switched; empty for a factor."""
    covers: list[str] = []
    """The differences that it is, where it is a bundle of several; empty: its own."""
    title: str = ""
    """What a person calls a part of a factor; empty for a factor, whose id says it."""


class CaseLine(_Line):
    """The first line: what is searched, and everything that a resumed search must have in common with it."""

    event: Literal["case"] = "case"
    at: datetime
    tool: str
    target: str
    old: str
    """Id of the old snapshot."""
    new: str
    seed: int
    engine: str
    factors: list[FactorLine]
    fixed: list[FactorLine]
    prior: dict[str, float]
    then_old_ms: float | None = None
    then_new_ms: float | None = None
    budget: int | None = None
    expected_launches: float | None = None
    metric: str = "verify_ms"
    """The figure that launches are compared by."""
    compared: str = ""
    """Why that is not the engine's best one; empty: it is, or none was measured yet."""
    accept_length: float | None = None
    """Of every launch, where it was fixed: what came out is nonsense then, and no speed is known."""
    conditions: list[str] = []
    """What every launch had, whatever its factors, and how it was measured, in words."""
    asked: list[str] = []
    """The words of the command that asked for this way of measuring."""


class FigureLine(_Line):
    """All launches, those before this line too, are compared by this figure: the best one that both ends have."""

    event: Literal["figure"] = "figure"
    at: datetime
    metric: str
    source: str
    reason: str
    """What the better ones lack, in words."""
    then_old_ms: float | None = None
    """The figures of the past in this metric, where they are known."""
    then_new_ms: float | None = None
    expected_launches: float | None = None


class OpenLine(_Line):
    """A culprit is opened: the launches inside of it are a search of their own."""

    event: Literal["open"] = "open"
    at: datetime
    of: str
    """Id of the factor, or of the part of one that is opened in its turn."""
    parts: list[FactorLine]
    beside: list[str]
    """What stays new in all of its launches; everything else stays old."""
    ordered: bool
    expected_launches: float


class TrialLine(_Line):
    """One launch, whatever came of it."""

    event: Literal["trial"] = "trial"
    number: int
    at: datetime
    hours: float
    """Since the first launch; searches take drift from it."""
    new: list[str]
    """The factors at their new value; all others were at their old one."""
    inside: str = ""
    """The opened culprit whose parts `new` names; empty: the case's own factors."""
    status: Status
    value_ms: float | None = None
    metric: str | None = None
    source: str | None = None
    reason: str = ""
    marks: list[str] = []
    """What was odd about it without making it void."""
    figures: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    """What the engine said that it decided, by name, or why that could not be read."""
    proof: list[dict[str, Any]] = []
    watch: dict[str, Any] = {}
    isolation: str = ""
    seconds: dict[str, float] = {}


class ControlLine(_Line):
    """One launch of an end of the comparison without speculation: what plain decoding gives today."""

    event: Literal["control"] = "control"
    at: datetime
    side: Literal["old", "new"]
    step_ms: float | None = None
    """The median gap between two chunks, each of one token."""
    tokens_per_second: float | None = None
    reason: str = ""
    """Why there is no figure."""
    figures: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    proof: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}


class EndLine(_Line):
    """The last line: the host before and after."""

    event: Literal["end"] = "end"
    at: datetime
    verdict: str
    host_before: str
    host_after: str
    host_differences: list[str] = []


Line: TypeAlias = CaseLine | FigureLine | OpenLine | TrialLine | ControlLine | EndLine
_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


class Journal:
    """The journal file of one case."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: Line) -> None:
        """Write one line and wait until it is on disk."""
        text = line.model_dump_json(exclude_defaults=False) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())

    def lines(self) -> Iterator[Line]:
        """Everything written; a last line that was cut off by a kill is left out.

        Raises:
            CaseError: the file is not a journal.
        """
        try:
            rows = self.path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            raise CaseError(f"{self.path} cannot be read; is {self.path.parent} a case folder?") from None
        for number, row in enumerate(rows, 1):
            if not row:
                continue
            try:
                yield _LINES.validate_json(row)
            except ValidationError:
                if number >= len(rows) - 1:
                    return
                raise CaseError(f"{self.path}, line {number}, is no line of a journal.") from None

    def case(self) -> CaseLine:
        """The first line, with the figure that was decided on since.

        Raises:
            CaseError: there is none.
        """
        for line in self.lines():
            if isinstance(line, CaseLine):
                figure = self._figure()
                if figure is None:
                    return line
                decided = figure.model_dump(include={"metric", "then_old_ms", "then_new_ms", "expected_launches"})
                return line.model_copy(update={**decided, "compared": figure.reason})
        raise CaseError(f"{self.path} has no first line; the bisect ended before its first launch. Start it again.")

    def trials(self) -> list[TrialLine]:
        """All launches, in order, each with the figure by which they are compared."""
        figure = self._figure()
        return [_compared(line, figure) for line in self.lines() if isinstance(line, TrialLine)]

    def _figure(self) -> FigureLine | None:
        decided = [line for line in self.lines() if isinstance(line, FigureLine)]
        return decided[-1] if decided else None

    def opened(self) -> list[OpenLine]:
        """The culprits that were opened, in order."""
        return [line for line in self.lines() if isinstance(line, OpenLine)]

    def controls(self) -> list[ControlLine]:
        """The launches without speculation."""
        return [line for line in self.lines() if isinstance(line, ControlLine)]

    def end(self) -> EndLine | None:
        """The last line, when the bisect came to its end."""
        ends = [line for line in self.lines() if isinstance(line, EndLine)]
        return ends[-1] if ends else None


def _compared(line: TrialLine, by: FigureLine | None) -> TrialLine:
    """A launch with another figure than the one that it was written with: it holds them all."""
    if by is None or line.metric is None or (line.metric, line.source) == (by.metric, by.source):
        return line
    figure = figure_of(line.figures, (by.metric,))
    if isinstance(figure, str):
        return line.model_copy(update={"status": "void", "value_ms": None, "reason": figure})
    return line.model_copy(update={"value_ms": figure.value, "metric": figure.metric, "source": figure.source})
