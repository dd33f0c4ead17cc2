"""What the engine itself decided otherwise because of a culprit: evidence beside the times, by its own words.

Every launch brings facts from its log, from `/server_info` and from its counters. One of them belongs to a culprit when
all launches with it say one thing and all launches without it another; whatever else was old or new among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from fingerprint.bisect.journal import TrialLine
    from fingerprint.bisect.verdict import Culprit

LONGEST = 200
SERVER_INFO = "/server_info"
"""The first word of facts that are from there."""


class Decision(BaseModel):
    """One fact that goes with a culprit; a side is None where nothing was said of it.

    Attributes:
        factors: the culprit.
        name: of the fact: `graph mode`, `/server_info attention_backend`.
        old: in all launches with none of the factors.
        new: in all launches with all of them.
        launches: those that show it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    factors: list[str]
    name: str
    old: str | None
    new: str | None
    launches: list[int]


def decisions(culprits: Iterable[Culprit], trials: Sequence[TrialLine]) -> list[Decision]:
    """The facts that go with each culprit, by the measured launches of the case's own factors."""
    told = [trial for trial in trials if trial.status == "measured" and trial.facts and not trial.inside]
    found: list[Decision] = []
    for culprit in culprits:
        without = [trial for trial in told if culprit.factors.isdisjoint(trial.new)]
        having = [trial for trial in told if culprit.factors.issubset(trial.new)]
        names = {name for trial in told for name in trial.facts}
        for name in sorted(names, key=lambda name: (name.startswith("/"), name)):
            before, after = _said(name, without), _said(name, having)
            if len(before) == len(after) == 1 and before != after:
                launches = sorted(trial.number for trial in (*without, *having))
                found.append(
                    Decision(
                        factors=sorted(culprit.factors),
                        name=name,
                        old=before.pop(),
                        new=after.pop(),
                        launches=launches,
                    )
                )
    return found


def _said(name: str, trials: Sequence[TrialLine]) -> set[str | None]:
    """What launches said of a fact, those apart in which it could not be read, or not looked for with confidence."""
    source = SERVER_INFO if name.startswith(SERVER_INFO) else "log"  # alone: why a fact of it may be missing
    return {
        _short(trial.facts.get(name))
        for trial in trials
        if not isinstance(trial.facts.get(name, trial.facts.get(source)), dict)
    }


def _short(value: Any) -> str | None:  # noqa: ANN401 - what a host said
    return value[:LONGEST] if isinstance(value, str) else None
