"""Incidents that are made up, to test a search against a known truth.

The truth of an incident is a function from the factors that are new to a slowdown in standard deviations of a launch;
the noise of its launches may be of several kinds, and the search knows neither: the scatter of an incident is drawn
anew between 0.3 % and 6 % of the level, and every search starts with the same wide prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from fingerprint.bisect.conflicts import old
from fingerprint.bisect.search import Search, Unlaunchable
from fingerprint.bisect.verdict import Then

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fingerprint.bisect.verdict import Verdict

Scatter = Literal["normal", "student", "bimodal", "drift", "proportional", "wild"]


@dataclass
class Incident:
    """One incident: what is true, and how its launches scatter.

    Attributes:
        factors: what differs.
        slower: slowdown in standard deviations, given the factors that are new.
        culprits: the factors that the right verdict names, and no others.
        structure: how they act.
        rng: where the luck of the launches comes from.
        level_ms: the old level.
        sigma: standard deviation of a launch, as a share of the level (scale of Student's t).
        scatter: normal; student: t with 3 degrees of freedom; bimodal: one launch in ten is slower by five standard
            deviations; drift: slower by one standard deviation an hour, at ten minutes a launch; proportional: the
            standard deviation grows with the level; wild: the same, and a slowed launch takes any multiple of its time,
            a third up or down as a rule and now and then several times (logarithm: Student's t, 3 degrees).
        then, conflicts, prior: what the search is told.
        starts: whether a launch starts, given the factors that are new.
    """

    factors: list[str]
    slower: Callable[[frozenset[str]], float]
    culprits: frozenset[str]
    structure: str | None
    rng: np.random.Generator
    level_ms: float = 20.0
    sigma: float = 0.01
    scatter: Scatter = "normal"
    then: Then | None = None
    conflicts: tuple[frozenset[str], ...] = ()
    prior: Mapping[str, float] | None = None
    starts: Callable[[frozenset[str]], bool] = field(default=lambda _: True)
    launches: int = 0

    def launch(self, new: frozenset[str]) -> float | Unlaunchable:
        """Launch and measure: ms, or why there is no figure."""
        self.launches += 1
        if not self.starts(new):
            return Unlaunchable("it did not start")
        luck = float(self.rng.standard_t(3) if self.scatter == "student" else self.rng.standard_normal())
        if self.scatter == "bimodal" and self.rng.random() < 0.1:
            luck += 5.0
        if self.scatter == "drift":
            luck += self.launches / 6
        slowed = 1 + self.sigma * self.slower(new)
        if self.scatter in {"proportional", "wild"}:
            luck *= slowed
        wild = math.exp(0.3 * self.rng.standard_t(3)) if self.scatter == "wild" and slowed > 1 else 1.0
        # Far in a tail a launch still takes some time.
        return self.level_ms * max((slowed + self.sigma * luck) * wild, 0.05)

    def search(self, seed: int = 0) -> Search:
        """A search for this incident that knows only what an operator would."""
        return Search(self.factors, self.conflicts, self.prior, seed=seed, then=self.then)


@dataclass(frozen=True)
class Outcome:
    """How a search ended: its verdict, whether it ever found a gap established, and what it named."""

    verdict: Verdict
    gap_found: bool
    named: frozenset[str]


def solve(search: Search, incident: Incident) -> Outcome:
    """Run a search to its end."""
    found = False
    while (new := search.ask()) is not None:
        search.tell(new, incident.launch(new))
        found |= search.evidence >= 20
    verdict = search.verdict()
    return Outcome(verdict, found, frozenset(n for c in verdict.culprits for n in c.factors))


def factors(count: int) -> list[str]:
    """Names of that many factors."""
    return [f"variable:F{i:03d}" for i in range(count)]


def one(rng: np.random.Generator, count: int, gap: float, scatter: Scatter = "normal") -> Incident:
    """One culprit among `count` factors that costs `gap` standard deviations."""
    names = factors(count)
    culprit = names[int(rng.integers(count))]
    return Incident(
        names,
        lambda new: gap * (culprit in new),
        frozenset({culprit}),
        "single",
        rng,
        sigma=_sigma(rng),
        scatter=scatter,
    )


def slowed(rng: np.random.Generator, count: int, times: float, scatter: Scatter) -> Incident:
    """One culprit that makes the server that many times slower, such as one that starts more threads than cores."""
    incident = one(rng, count, 1.0, scatter)
    gap, culprit = (times - 1) / incident.sigma, min(incident.culprits)
    incident.slower = lambda new: gap * (culprit in new)
    return incident


def ranked(rng: np.random.Generator, count: int, gap: float, *, right: bool) -> Incident:
    """One culprit, and a ranking whose top three hold it (or not): ten times as suspicious as the rest."""
    incident = one(rng, count, gap)
    innocent = sorted(set(incident.factors) - incident.culprits)
    top = [innocent[i] for i in rng.choice(len(innocent), 3, replace=False)]
    if right:
        top[0] = min(incident.culprits)
    incident.prior = {name: 10.0 if name in top else 1.0 for name in incident.factors}
    return incident


def pair(rng: np.random.Generator, count: int, gap: float, structure: str) -> Incident:
    """Two factors that cause `gap` standard deviations.

    Both needed (and), either (or), half each (adds), or one that costs half as much again and one that hides a third
    of that (masked).
    """
    names = factors(count)
    a, b = (names[i] for i in rng.choice(count, 2, replace=False))
    slower: dict[str, Callable[[frozenset[str]], float]] = {
        "and": lambda new: gap * (a in new and b in new),
        "or": lambda new: gap * (a in new or b in new),
        "adds": lambda new: gap * (0.5 * (a in new) + 0.5 * (b in new)),
        "masked": lambda new: gap * (1.5 * (a in new) - 0.5 * (b in new)),
    }
    return Incident(names, slower[structure], frozenset({a, b}), structure, rng, sigma=_sigma(rng))


def nothing(
    rng: np.random.Generator, count: int, then_gap: float | None = None, scatter: Scatter = "normal"
) -> Incident:
    """No gap today; the past was faster by `then_gap` standard deviations, or is not known."""
    sigma = _sigma(rng)
    then = None if then_gap is None else Then(old_ms=20.0 * (1 - then_gap * sigma), new_ms=20.0)
    return Incident(factors(count), lambda _: 0.0, frozenset(), None, rng, sigma=sigma, scatter=scatter, then=then)


def tangled(rng: np.random.Generator, count: int, gap: float, pairs: int, *, known: bool) -> Incident:
    """One culprit; in so many random pairs the one factor cannot be new while the other is old.

    The right answer is the culprit, or the factors that can only move together with it.
    """
    incident = one(rng, count, gap)
    names = incident.factors
    every = [(i, j) for i in range(count) for j in range(i)]
    needs = np.eye(count, dtype=bool)
    rules = []
    for k in rng.choice(len(every), pairs, replace=False):
        i, j = every[int(k)] if rng.random() < 0.5 else every[int(k)][::-1]
        needs[i, j] = True
        rules.append((names[i], names[j]))
    for k in range(count):
        needs |= needs[:, k : k + 1] & needs[k : k + 1, :]
    culprit = names.index(min(incident.culprits))
    incident.culprits = frozenset(names[j] for j in np.flatnonzero(needs[culprit] & needs[:, culprit]))
    incident.starts = lambda new: not any(a in new and b not in new for a, b in rules)
    if known:
        incident.conflicts = tuple(frozenset({a, old(b)}) for a, b in rules)
    return incident


def _sigma(rng: np.random.Generator) -> float:
    return math.exp(rng.uniform(math.log(0.003), math.log(0.06)))
