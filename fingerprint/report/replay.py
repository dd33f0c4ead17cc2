"""The search of a case over again, from its journal: what was probable after which launch.

The search is a pure function of what it was told, so the journal is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fingerprint.bisect.told import search_of, tell
from fingerprint.bisect.verdict import Verdict
from fingerprint.case import Outcome, unseen
from fingerprint.report.scene import explanation

if TYPE_CHECKING:
    from fingerprint.bisect.journal import CaseLine, TrialLine
    from snapshots import Snapshot

SHOWN = 6
WORTH_SHOWING = 0.02
MOST_MOMENTS = 12
"""Judging after a launch costs tens of milliseconds, and a curve needs no more points."""


@dataclass(frozen=True)
class Replayed:
    """What the search would say after all launches, and the probabilities on the way (launch, explanation -> p)."""

    verdict: Verdict
    moments: tuple[tuple[int, dict[str, float]], ...]


def replay(line: CaseLine, trials: Sequence[TrialLine]) -> Replayed:
    """Tell a search everything that the journal holds of it; launches inside of culprits are another search's."""
    search = search_of(line)
    trials = [trial for trial in trials if not trial.inside]
    held: list[tuple[int, dict[str, float]]] = []
    judged = {round((step + 1) * len(trials) / MOST_MOMENTS) for step in range(MOST_MOMENTS)}
    for place, trial in enumerate(trials, 1):
        tell(search, trial)
        if len(trials) > MOST_MOMENTS and place not in judged:
            continue
        posterior = search.verdict().posterior
        if posterior:
            held.append((trial.number, {explanation(one.structure, one.factors): one.probability for one in posterior}))
    return Replayed(search.verdict(), _shown(held))


def _shown(held: list[tuple[int, dict[str, float]]]) -> tuple[tuple[int, dict[str, float]], ...]:
    """The explanations that were ever likely, and the rest as one."""
    peak: dict[str, float] = {}
    for _, probabilities in held:
        for name, value in probabilities.items():
            peak[name] = max(peak.get(name, 0.0), value)
    last = held[-1][1] if held else {}
    likely = [name for name in peak if peak[name] >= WORTH_SHOWING]
    names = sorted(likely, key=lambda name: (-last.get(name, 0.0) - 0.01 * peak[name], name))[:SHOWN]
    return tuple((at, {name: probabilities.get(name, 0.0) for name in names}) for at, probabilities in held)


def outcome_so_far(
    line: CaseLine, trials: Sequence[TrialLine], replayed: Replayed, old: Snapshot, new: Snapshot
) -> Outcome:
    """The outcome of a bisect that has not come to its end."""
    first = next((trial for trial in trials if trial.metric is not None), None)
    return Outcome(
        **dict(replayed.verdict),
        metric=first.metric if first else None,
        source=first.source if first else None,
        fixed=line.fixed,
        unseen=unseen(old, new),
    )
