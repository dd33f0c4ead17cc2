"""Which launch comes next, so that the fewest launches name the cause of a gap, and never an innocent.

A launch is worth the bits it tells about the explanations (see `model`), and it is worth more where the verdict needs
it anyway: a culprit must be confirmed both ways, alone on the old side and reverted alone on the new side. So each
question maximises

    information / (what a launch can tell at most)  +  probability that it is a confirmation still missing

and endpoints, search and confirmations are one pool of launches that all inform each other. Once a claim is confirmed
and more probable than all else, only one thing is still to be known, and a question is worth what it tells about that:
does the claim hold or not? Which of its rivals would be right instead no longer matters. The search is a pure
function of what it was told: the same factors, seed and launches give the same next question, in any process.

    search = Search(["variable:NCCL_PROTO", "package:torch"], seed=1)
    while (new := search.ask()) is not None:
        search.tell(new, launch_and_measure(new))
    print(search.verdict().sentence)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from fingerprint.bisect.conflicts import Conflicts, old
from fingerprint.bisect.model import LEVEL_OF, LEVELS, SHAPES, Data, Model, Points, Posterior
from fingerprint.bisect.noise import Noise
from fingerprint.bisect.verdict import Culprit, Evidence, Interval, Kind, Structure, Suspicion, Then, Verdict
from fingerprint.bisect.words import next_step, sentence

__all__ = [
    "Budget",
    "Estimate",
    "OrderedSearch",
    "Search",
    "Then",
    "Unlaunchable",
    "Void",
    "chain",
    "old",
]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LIMIT: Final = 40
_GAP_LIMIT: Final = 16
_GAP_EVIDENCE: Final = math.log(20.0)
_NONE_CERTAIN: Final = 0.87
_INNOCENT: Final = 0.02
_LEFT_OUT: Final = 0.12
_PROBABLE: Final = 0.5
_FASTER_CERTAIN: Final = 0.99
_SEARCH_AT: Final = 0.6
_TRUST_PRIOR: Final = 0.7
_STRUCTURE: Final = 0.85
_PATIENCE: Final = 22
_MORE_PATIENCE: Final = 8
_VOID_LIMIT: Final = 3
_STRUCTURES: Final[tuple[Structure, ...]] = tuple(dict.fromkeys(shape.structure for shape in SHAPES))
_STRUCTURE_OF: Final = np.array([_STRUCTURES.index(shape.structure) for shape in SHAPES])
# The share of the gap, up or down, that each of two factors has where they act apart.
_APART: Final = np.array([shape.structure in {"adds", "masked"} for shape in SHAPES])
_JOINT: Final = np.array([shape.structure in {"and", "or"} for shape in SHAPES])
_FIRST: Final = np.where(_APART, [min(abs(shape.first), 1.0) for shape in SHAPES], 0.0)
_SECOND: Final = np.where(_APART, [min(abs(shape.second), 1.0) for shape in SHAPES], 0.0)
_MAIN_AND_HELPER: Final = np.array([shape.structure == "adds" and shape.first > 0.5 for shape in SHAPES])


@dataclass(frozen=True)
class Unlaunchable:
    """The launch did not start with these settings."""

    reason: str


@dataclass(frozen=True)
class Void:
    """The launch started, but its figure does not count: a factor did not arrive, a clock was throttled."""

    reason: str


@dataclass(frozen=True)
class Budget:
    """What a search may cost.

    Attributes:
        launches: most launches, all told; None: no limit but the search's own.
        minutes: most minutes.
        minutes_per_launch: what a launch takes.
    """

    launches: int | None = None
    minutes: float | None = None
    minutes_per_launch: float = 10.0

    def limit(self, own: int) -> int:
        """Most launches, given the search's own limit."""
        limits = [own if self.launches is None and self.minutes is None else 10**9]
        if self.launches is not None:
            limits.append(self.launches)
        if self.minutes is not None:
            limits.append(int(self.minutes / self.minutes_per_launch))
        return min(limits)


@dataclass(frozen=True)
class Estimate:
    """What a search is going to cost, before its first launch.

    Attributes:
        launches: expected number of launches, with a gap of about five standard deviations.
        worst: launches after which it ends in any case.
        minutes, worst_minutes: the same in minutes.
        smallest_effect: the smallest gap that it would find, as a share of the level, with the noise expected.
    """

    launches: float
    worst: int
    minutes: float
    worst_minutes: float
    smallest_effect: float


@dataclass(frozen=True)
class _Told:
    new: frozenset[str]
    value: float | None
    reason: str
    unlaunchable: bool
    hours: float | None


@dataclass(frozen=True)
class _Claim:
    """One explanation in words: a structure and the columns it blames, with its probability."""

    structure: Structure
    columns: tuple[int, ...]
    p: float
    row: int


class Search:
    """Finds which of some factors cause a gap, by asking for launches.

    Args:
        factors: names; the order does not matter.
        conflicts: sets of settings that cannot be launched; see `fingerprint.bisect.conflicts`.
        prior: how suspicious factors are, as positive weights; a factor without one weighs 1.
        noise: what is known about the scatter of launches.
        seed: decides between questions of equal worth.
        then: the figures of the past, if known.
        budget: most launches or minutes.
        certainty: the probability at which a culprit is named.
    """

    def __init__(
        self,
        factors: Sequence[str],
        conflicts: Iterable[frozenset[str]] = (),
        prior: Mapping[str, float] | None = None,
        noise: Noise | None = None,
        seed: int = 0,
        then: Then | None = None,
        budget: Budget | None = None,
        certainty: float = 0.96,
    ) -> None:
        self.factors = tuple(sorted(set(factors)))
        self.conflicts = tuple(sorted({frozenset(c) for c in conflicts}, key=sorted))
        self.prior = dict(sorted((prior or {}).items()))
        self.noise = noise or Noise()
        self.seed = seed
        self.then = then
        self.budget = budget or Budget()
        self.certainty = certainty
        single = Conflicts(self.factors, self.conflicts)
        # Factors that need each other move together: one column each bundle.
        bundles: dict[tuple[int, ...], list[str]] = {}
        for i, name in enumerate(self.factors):
            mutual = single.needs[i] & single.needs[:, i]
            bundles.setdefault(tuple(np.flatnonzero(mutual)), []).append(name)
        self.bundles = tuple(frozenset(names) for names in bundles.values())
        self._column = {name: c for c, names in enumerate(self.bundles) for name in names}
        weights = _weights(self.factors, self.prior)
        self._weight = np.array([sum(weights[n] for n in names) for names in self.bundles])
        self._conflicts = Conflicts(self._names(), self._bundled())
        self._told: list[_Told] = []
        self._model = Model(len(self.bundles), self._weight, self.noise, then)
        self._state_at = -1
        self._state: _State | None = None

    # -- told and asked ----------------------------------------------------------------------------------------

    def tell(
        self,
        subset: Iterable[str],
        value: float | Unlaunchable | Void,
        hours: float | None = None,
    ) -> None:
        """Take in one launch, asked or not.

        Args:
            subset: the factors that were at their new value.
            value: what it measured, in ms (lower is better), or why it measured nothing.
            hours: when it was measured, on any clock, in hours.

        Raises:
            ValueError: an unknown factor, a bundle in two parts, or a figure that is no positive number.
        """
        new = frozenset(subset)
        row = self._row(new)
        if isinstance(value, (Unlaunchable, Void)):
            unlaunchable = isinstance(value, Unlaunchable)
            self._told.append(_Told(new, None, value.reason, unlaunchable, hours))
            voids = sum(t.new == new and t.value is None for t in self._told)
            if unlaunchable or voids == _VOID_LIMIT:
                self._conflicts.did_not_launch(row)
            return
        if not (math.isfinite(value) and value > 0):
            msg = f"a launch measured {value} ms: a positive number is needed, or the reason why there is none"
            raise ValueError(msg)
        self._conflicts.launched(row)
        self._told.append(_Told(new, float(value), "", unlaunchable=False, hours=hours))

    @overload
    def ask(self) -> frozenset[str] | None: ...

    @overload
    def ask(self, k: int, pending: Sequence[frozenset[str]] = ()) -> list[frozenset[str]]: ...

    def ask(
        self, k: int | None = None, pending: Sequence[frozenset[str]] = ()
    ) -> frozenset[str] | list[frozenset[str]] | None:
        """The next launch: the factors to set to their new value; None when the search is done.

        With `k`, up to k launches that are worth doing at the same time, given those `pending` elsewhere; the list is
        empty when the search is done. Asking changes nothing: without a new `tell` the answer is the same.
        """
        rows = [self._row(p) for p in pending]
        asked: list[Bools] = []
        state = self._now()
        while len(asked) < (k or 1) and not state.done:
            row = self._next(state, rows + asked) if rows or asked else state.row
            if row is None:
                break
            asked.append(row)
        sets = [self._set(row) for row in asked]
        if k is None:
            return sets[0] if sets else None
        return sets

    def _row(self, new: frozenset[str]) -> Bools:
        row = np.zeros(len(self.bundles), bool)
        for name in new:
            if name not in self._column:
                msg = f"{name} is not a factor of this search"
                raise ValueError(msg)
            row[self._column[name]] = True
        if self._set(row) != new:
            part = sorted(self._set(row) - new)
            msg = f"{', '.join(part)} cannot stay old in this launch: a bundle moves as a whole"
            raise ValueError(msg)
        return row

    def _set(self, row: Bools) -> frozenset[str]:
        return frozenset(name for c in np.flatnonzero(row) for name in self.bundles[c])

    def _names(self) -> list[str]:
        return [min(names) for names in self.bundles]

    def _bundled(self) -> Iterable[frozenset[str]]:
        """The conflicts, said of bundles."""
        first = {name: min(self.bundles[c]) for name, c in self._column.items()}
        for rule in self.conflicts:
            out = set()
            for setting in rule:
                value_old = setting.startswith(old(""))
                name = setting[len(old("")) :] if value_old else setting
                name = first.get(name, name)
                out.add(old(name) if value_old else name)
            if not any(old(name) in out for name in out):
                yield frozenset(out)

    # -- what is known now -------------------------------------------------------------------------------------

    def _now(self) -> _State:
        if self._state is None or self._state_at != len(self._told):
            self._state = state = self._assess()
            self._state_at = len(self._told)
            if not state.done:
                state.row = self._next(state, [])
                if state.row is None:
                    self._give_up(state)
        return self._state

    def _bundle(self, state: _State) -> None:
        """Factors that no launch can separate any more are named together, once the launches around them agree."""
        post = state.posterior
        alike = [c for c in state.claims if c.structure == "single" and c.p >= 0.01]
        if post is None or not alike:
            return
        group = [alike[0], *(c for c in alike[1:] if not self._separable(alike[0].columns[0], c.columns[0]))]
        columns = tuple(sorted(c.columns[0] for c in group))
        if len(group) == 1:
            return
        agree = np.ones(post.p.size, bool)
        for where, level in (("above", 1.0), ("below", 0.0)):
            row = self._isolating(where, columns)
            if row is None:
                continue
            agree &= np.abs(LEVELS[post.levels(row[None])[0]] - level) <= 0.45
            at = state.launched.get(row.tobytes())
            if at is None or self._log_ratio(state, at, level, 1.0 - level) <= 0:
                state.around.append(row)
        if float(post.p[agree].sum()) + post.other < self.certainty:
            state.around.clear()
            return
        if not state.around:
            state.together = columns
            state.finish("attributed", alike[0])

    def _separable(self, a: int, b: int) -> bool:
        """Whether some setting that may still start has exactly one of two columns new."""
        one = np.eye(len(self.bundles), dtype=bool)
        for first, second in ((a, b), (b, a)):
            least, most = self._conflicts.above(one[first]), self._conflicts.below(one[second])
            if least[second] or not most[first]:
                continue
            free = np.flatnonzero(most & ~least)
            if free.size > 8:
                return True
            choice = (np.arange(2**free.size)[:, None] >> np.arange(free.size)) & 1
            rows = np.repeat(least[None], choice.shape[0], axis=0)
            rows[:, free] = choice == 1
            if self._conflicts.allowed(rows).any():
                return True
        return False

    def _give_up(self, state: _State) -> None:
        """No launch that can be made tells any more."""
        state.around.clear()
        self._bundle(state)
        if not state.done:
            state.finish("undecided")

    @property
    def evidence(self) -> float:
        """How many times better a gap explains the launches so far than no gap; 20 or more is a finding."""
        post = self._now().posterior
        return math.exp(min(post.log_gap, 700.0)) if post is not None else 1.0

    def _assess(self) -> _State:
        measured = [t for t in self._told if t.value is not None]
        count = len(self.bundles)
        ends = (np.zeros(count, bool), np.ones(count, bool))
        state = _State(self._told, ends, self.budget.limit(_LIMIT))
        if not count:
            return state.finish("not switchable")
        rules = Conflicts(self._names(), self._bundled())
        for name, end in (("old", ends[0]), ("new", ends[1])):
            tries = [t for t in self._told if (self._row(t.new) == end).all()]
            failed = sum(2 if t.unlaunchable else 1 for t in tries if t.value is None)
            never = failed > _VOID_LIMIT and all(t.value is None for t in tries)
            if never or not rules.allowed(end[None])[0]:
                state.blocked.append(name)
        if state.blocked:
            return state.finish("undecided")
        if not measured:
            return state.finish("undecided") if len(self._told) >= state.limit else state
        new = np.array([self._row(t.new) for t in measured])
        value = np.array([t.value for t in measured], float)
        hours = [t.hours for t in measured]
        index = np.array([i for i, t in enumerate(self._told) if t.value is not None], float)
        when = index if None in hours else 6.0 * np.array(hours, float)
        state.data = Data(new, value, when)
        for number, row in enumerate(new):
            state.launched.setdefault(row.tobytes(), []).append(number)
        at_old, at_new = (int((new == end).all(axis=1).sum()) for end in ends)
        state.ends_told = (at_old, at_new)
        if not (at_old and at_new):
            return state.finish("undecided") if len(self._told) >= state.limit else state
        post = self._model.posterior(state.data)
        state.posterior = post
        state.claims = _claims(post, len(self.bundles))
        best = state.claims[0] if state.claims else None
        if best and best.p >= _PROBABLE and not self._missing(state, best):
            # A pair that acts together and agrees about the confirmations is no rival that a launch could refute.
            joint = _JOINT[post.shape] & self._agreeing(state, post, best)
            state.doubted = ~(joint | self._same(post, best))
        enough = at_old >= 2 and at_new >= 2
        if enough and post.none + post.faster >= _NONE_CERTAIN:
            return state.finish(self._no_gap(state))
        if best and post.log_gap >= _GAP_EVIDENCE:
            settled = self._settled(state)
            if settled is not None:
                low, _, high = self._shares(state, settled)[0]
                if settled.structure == "adds" and high - low > 0.2 and len(self._told) < state.limit:
                    state.sharpen = True
                    state.doubted = None
                    return state
                kinds: dict[str, Kind] = {"single": "attributed", "and": "interaction"}
                return state.finish(kinds.get(settled.structure, "several"), settled)
        if self._conflicts.failed and best and post.log_gap >= _GAP_EVIDENCE:
            self._bundle(state)
            if state.done:
                return state
        if len(self._told) >= state.limit:
            return state.finish("undecided")
        if post.gap < 0.7 and len(measured) >= _GAP_LIMIT:
            return state.finish(self._not_settled(state))
        return state

    def _no_gap(self, state: _State) -> Kind:
        """The new side is not slower today: because both are slow, or because both are fast."""
        post = state.posterior
        if post is None:
            return "undecided"
        if self.then is None or self.then.gap_ms <= 0:  # the past shows no slowdown that could have gone
            return "healed" if post.faster >= _FASTER_CERTAIN and self.then is None else "phantom"
        middle = 0.5 * (self.then.old_ms + self.then.new_ms)
        points = post.none_points if post.none >= post.faster else post.gap_points
        return "healed" if points.quantiles(points.old)[1] < middle else "phantom"

    def _not_settled(self, state: _State) -> Kind:
        post, data = state.posterior, state.data
        if post is None or data is None:
            return "undecided"
        sigma = post.none_points.quantiles(post.none_points.sigma)[1]
        size = self.then.gap_ms if self.then else 0.05 * float(np.median(data.value))
        return "unstable" if sigma > 0.75 * abs(size) else "undecided"

    # -- confirmations -----------------------------------------------------------------------------------------

    def _needed(self, state: _State, claim: _Claim) -> list[tuple[str, tuple[int, ...], Bools]]:
        """Confirmations of a claim: side ("sufficient" or "necessary"), the columns meant, the setting.

        A sufficient setting would be at the old level if the claim were wrong, a necessary one at the new level. For
        a pair that is needed or suffices together, the last two show that neither of them is the culprit alone.
        """
        c = claim.columns
        if (claim.structure, c) in state.needed:
            return state.needed[claim.structure, c]
        parts: list[tuple[str, tuple[int, ...], str]]
        if claim.structure == "and":
            parts = [("sufficient", c, "above"), *(("necessary", (i,), "below") for i in c)]
            parts += [("necessary", (i,), "above") for i in c]
        elif claim.structure == "or":
            parts = [*(("sufficient", (i,), "above") for i in c), ("necessary", c, "below")]
            parts += [("sufficient", (i,), "below") for i in c]
        else:
            parts = [part for i in c for part in (("sufficient", (i,), "above"), ("necessary", (i,), "below"))]
        out = []
        for side, columns, where in parts:
            if (where, columns) not in state.isolated:
                state.isolated[where, columns] = self._isolating(where, columns)
            row = state.isolated[where, columns]
            if row is not None:
                out.append((side, columns, row))
        state.needed[claim.structure, c] = out
        return out

    def _isolating(self, where: str, columns: tuple[int, ...]) -> Bools | None:
        """The launchable setting that comes nearest to "these alone new" (above) or "these alone old" (below)."""
        core = np.zeros(len(self.bundles), bool)
        core[list(columns)] = True
        up = where == "above"
        row = self._conflicts.above(core) if up else self._conflicts.below(core)
        if self._conflicts.allowed(row[None])[0]:
            return row
        # Next best: the nearest that did start, if it is nearer to this end than to the other.
        started = [self._row(t.new) for t in self._told if t.value is not None]
        fit = [r for r in started if (r[core].all() if up else not r[core].any())]
        if fit:
            near = min(fit, key=lambda r: (int((r != row).sum()), r.tobytes()))
            if (near != row).sum() <= row.size // 2:
                return near
        # Else a few factors more moved along, as likely to start and as few as can be.
        free = np.flatnonzero(~row if up else row)
        rng = self._rng(2)
        trial = np.repeat(row[None], 4 * free.size, axis=0)
        for k in range(trial.shape[0]):
            moved = rng.permutation(free)[: 1 + k // 8 if k >= free.size else 1]
            trial[k, free[k] if k < free.size else moved] = up
        trial = self._conflicts.repaired(trial)
        keeps = trial[:, core].all(axis=1) if up else ~trial[:, core].any(axis=1)
        trial = trial[keeps & self._conflicts.allowed(trial)]
        if not trial.shape[0]:
            return None
        value = self._conflicts.chance(trial) - (trial != row).mean(axis=1)
        return np.asarray(trial[int(np.argmax(value))])

    def _missing(self, state: _State, claim: _Claim) -> list[Bools]:
        """Settings of confirmations that no launch has shown yet, or that spoke against the claim."""
        post, data = state.posterior, state.data
        if post is None or data is None:
            return []
        out = []
        for side, _, row in self._needed(state, claim):
            expected = self._level(post, claim, row)
            other = 0.0 if side == "sufficient" else 1.0
            if abs(expected - other) < 0.15:
                continue
            at = state.launched.get(row.tobytes())
            if at is None or self._log_ratio(state, at, expected, other) <= 0:
                out.append(row)
        return out

    def _settled(self, state: _State) -> _Claim | None:
        """The claim that may be named: confirmed both ways, certain, and clear about how its factors act.

        Where long patience has not made the last clear (does a second factor hide a little of it?), a single culprit
        that every explanation left agrees about is named all the same: its share says what is open. Where a pair is by
        then more probable than that, it gets some launches more.
        """
        post = state.posterior
        if post is None:
            return None
        patient = state.data is not None and state.data.value.size >= _PATIENCE
        if post.none + post.faster > _INNOCENT:
            return None
        for number, claim in enumerate(state.claims[:4] if patient else state.claims[:1]):
            if (number and claim.structure != "single") or self._missing(state, claim):
                continue
            if (
                number
                and state.claims[0].p > 0.6
                and state.data is not None
                and state.data.value.size < _PATIENCE + _MORE_PATIENCE
            ):
                continue
            sure = self._certainty(state, post, claim)
            if sure < self.certainty:
                continue
            if claim.structure != "single":
                clear = claim.p >= (0.5 if patient else _STRUCTURE) * sure
            elif patient:
                clear = claim.p >= 0.05 * sure
            else:
                clear = self._left_out(state, post, claim) <= _LEFT_OUT
            if clear:
                return claim
        return None

    def _left_out(self, state: _State, post: Posterior, claim: _Claim) -> float:
        """Share of the gap, up or down, that a single culprit leaves to others (root of the expected square).

        A helper that has half of the gap counts four times as much as one that has a quarter: a small one is not worth
        many launches, and the share of the culprit and the remainder tell of it. Another culprit that the
        confirmations cannot tell from this one has all of the gap; what they speak against is counted in `_certainty`.
        """
        first, second = post.first == claim.columns[0], post.second == claim.columns[0]
        another = np.where(self._agreeing(state, post, claim), 1.0, 0.0)
        share = np.where(first, _SECOND[post.shape], np.where(second, _FIRST[post.shape], another))
        return math.sqrt(float(post.p @ np.where(first & second, 0.0, share) ** 2))

    @staticmethod
    def _same(post: Posterior, claim: _Claim) -> Bools:
        """The explanations that are this claim, whatever shares they give its factors."""
        same = np.array([s.structure == claim.structure for s in SHAPES])[post.shape]
        a, b = claim.columns[0], claim.columns[-1]
        same &= ((post.first == a) & (post.second == b)) | ((post.first == b) & (post.second == a))
        return np.asarray(same)

    def _certainty(self, state: _State, post: Posterior, claim: _Claim) -> float:
        """Probability that a claim holds whose confirmations were all launched.

        What a claim says is what its confirmations show, so each explanation that agrees with it about them counts;
        "other" does, because it takes the confirmations as they came.
        """
        return float(post.p[self._agreeing(state, post, claim)].sum()) + post.other

    def _agreeing(self, state: _State, post: Posterior, claim: _Claim) -> Bools:
        """The explanations that are a claim or agree with it about its confirmations."""
        agree = np.ones(post.p.size, bool)
        for side, _, row in self._needed(state, claim):
            other = 0.0 if side == "sufficient" else 1.0
            own = self._level(post, claim, row)
            if abs(own - other) >= 0.15:
                # More than half of what the claim says this launch shows.
                agree &= (LEVELS[post.levels(row[None])[0]] - other) / (own - other) >= 0.55
        return np.asarray(agree | self._same(post, claim))

    def _level(self, post: Posterior, claim: _Claim, row: Bools) -> float:
        shape = int(post.shape[claim.row])
        first, second = bool(row[post.first[claim.row]]), bool(row[post.second[claim.row]])
        return float(LEVELS[LEVEL_OF[shape, 2 * first + second]])

    def _log_ratio(self, state: _State, at: list[int], expected: float, other: float) -> float:
        """How much more these launches look like the one level than like the other, as a log ratio."""
        post, data = state.posterior, state.data
        if post is None or data is None:
            return 0.0
        if state.fit is None:
            points = post.gap_points
            low, gap = _centre(points)
            width = points.scale(LEVELS[:, None]) @ points.weight
            state.fit = self.noise.log_density(data.value[:, None] - low - gap * LEVELS, width)
        here, there = np.searchsorted(LEVELS, (expected, other))
        return float((state.fit[at, here] - state.fit[at, there]).sum())

    # -- the next question -------------------------------------------------------------------------------------

    def _next(self, state: _State, pending: list[Bools]) -> Bools | None:
        low, high = state.ends
        waiting = [int(sum((p == end).all() for p in pending)) for end in state.ends]
        told = (state.ends_told[0] + waiting[0], state.ends_told[1] + waiting[1])
        if not told[0]:
            return low
        if not told[1]:
            return high
        post = state.posterior
        if post is None or post.gap < _SEARCH_AT:
            # Is it there at all? Both ends, ABBA.
            if told[0] != told[1]:
                return low if told[0] < told[1] else high
            last = state.data is not None and bool((state.data.new[-1] == high).all())
            return high if last else low
        rows = self._candidates(state)
        if not rows.shape[0]:
            return None
        worth, information = self._worth(state, rows, pending)
        best = int(np.argmax(worth))
        rows, worth, information = self._improved(state, rows, worth, information, pending)
        best = int(np.argmax(worth))
        if worth[best] < 1e-3:
            return None
        return np.asarray(rows[best])

    def _rng(self, salt: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(self._told), salt])

    def _candidates(self, state: _State) -> Bools:
        post = state.posterior
        count = len(self.bundles)
        if post is None:
            return np.stack(state.ends)
        rng = self._rng()
        pair = post.first != post.second
        mass = np.bincount(post.first, post.p, count) + np.bincount(post.second[pair], post.p[pair], count)
        rows = [*state.ends, *state.around]
        for claim in state.claims[:12]:
            rows += [row for _, _, row in self._needed(state, claim)]
        # Splits of the suspicion, most of them in half: each takes the suspects in an order of its own, heavy first.
        share = np.repeat((0.5, 0.5, 0.5, 0.3, 0.7), 10)
        every = np.arange(share.size)
        order = np.argsort(-(mass + 1e-12) * rng.uniform(0.3, 1.0, (share.size, count)), axis=1, kind="stable")
        split = np.zeros((share.size, count), bool)
        inside, outside = np.zeros(share.size), np.zeros(share.size)
        for column in order.T:
            takes = inside * (1 - share) <= outside * share
            split[every, column] = takes
            weight = mass[column] + 1e-12
            inside += takes * weight
            outside += ~takes * weight
        suspects = np.argsort(-mass, kind="stable")[:16]
        single = np.zeros((suspects.size, count), bool)
        single[np.arange(suspects.size), suspects] = True
        base = np.concatenate([np.array(rows), split, single, ~single])
        return self._launchable(base)

    def _launchable(self, rows: Bools) -> Bools:
        ok = self._conflicts.allowed(rows)
        if not ok.all():
            rows = np.concatenate([rows[ok], self._conflicts.repaired(rows[~ok])])
            rows = rows[self._conflicts.allowed(rows)]
        return np.unique(rows, axis=0)

    def _improved(
        self, state: _State, rows: Bools, worth: Floats, information: Floats, pending: list[Bools]
    ) -> tuple[Bools, Floats, Floats]:
        """Flip one factor at a time while that makes the best question better."""
        for _ in range(2):
            best = int(np.argmax(worth))
            flips: npt.NDArray[Any] = np.arange(rows.shape[1])
            if flips.size > 48:
                flips = self._rng(1).permutation(flips)[:48]
            trial = np.repeat(rows[best][None], flips.size, axis=0)
            trial[np.arange(flips.size), flips] ^= True
            trial = self._launchable(trial)
            if not trial.shape[0]:
                break
            more, bits = self._worth(state, trial, pending)
            if more.max() <= worth[best] + 1e-6:
                break
            rows = np.concatenate([rows, trial])
            worth = np.concatenate([worth, more])
            information = np.concatenate([information, bits])
        return rows, worth, information

    def _worth(self, state: _State, rows: Bools, pending: list[Bools]) -> tuple[Floats, Floats]:
        """Worth of each setting as the next launch, in launches saved, and its information in nats."""
        post = state.posterior
        if post is None:
            return np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
        if state.scale is None:
            state.scale = _Scale(post, self.noise)
        scale = state.scale
        heavy = np.argsort(-post.p, kind="stable")[:600]
        heavy = heavy[: 1 + int(np.searchsorted(np.cumsum(post.p[heavy]), 0.99 * post.p.sum()))]
        p = post.p[heavy]
        mean = post.old[heavy] + LEVELS[post.levels(rows)[:, heavy]] * post.size[heavy]
        cell = scale.cell(mean)

        def by_cell(member: Bools) -> Floats:
            """Probability of each cell (column) for each setting (row), from some explanations."""
            flat = cell[:, member] + scale.cells * np.arange(rows.shape[0])[:, None]
            weight = np.broadcast_to(p[member], flat.shape)
            out = np.bincount(flat.ravel(), weight.ravel(), rows.shape[0] * scale.cells)
            return out.astype(np.float64).reshape(rows.shape[0], scale.cells)

        if state.doubted is not None:
            doubted = state.doubted[heavy]
            bits = scale.doubt(by_cell(~doubted), by_cell(doubted), post.none + post.faster)
            # A setting that another server has in hand is worth less; none is worth nothing while a claim is in doubt.
            same = np.array([[(row == other).all() for other in pending] for row in rows], int).sum(axis=1)
            return (bits / scale.most + 1e-3) / (1 + same) * self._conflicts.chance(rows), bits
        # Explanations that a pending launch will tell apart are looked at one class at a time.
        classes: npt.NDArray[Any] = np.zeros(heavy.size, int)
        if pending:
            codes = post.levels(np.array(pending))[:, heavy]
            _, classes = np.unique(codes, axis=1, return_inverse=True)
            classes = classes.ravel()
        # "Other" has no idea of a setting between the ends, and learns nothing that matters there.
        at_ends = [(rows == end).all(axis=1) for end in state.ends]
        other_at = np.where(at_ends[0], 0, np.where(at_ends[1], 1, 2))
        bits = np.zeros(rows.shape[0])
        for number in np.unique(classes):
            member = classes == number
            share = float(p[member].sum() / p.sum())
            bits += scale.information(by_cell(member), (post.none + post.faster) * share, post.other * share, other_at)
        worth = bits / scale.most
        if state.wanted is None:
            state.wanted = {row.tobytes(): 1.0 for row in state.around}
            for claim in state.claims[:24]:
                for row in self._missing(state, claim):
                    # One that spoke against the claim is wanted the less the more often it was launched.
                    key, times = row.tobytes(), len(state.launched.get(row.tobytes(), ()))
                    state.wanted[key] = state.wanted.get(key, 0.0) + claim.p / (1 + times)
        asked = {p_.tobytes() for p_ in pending}
        worth += [0.0 if row.tobytes() in asked else state.wanted.get(row.tobytes(), 0.0) for row in rows]
        if state.sharpen and state.claims:
            for _, _, row in self._needed(state, state.claims[0]):
                times = int((state.data.new == row).all(axis=1).sum()) if state.data is not None else 0
                worth = worth + (rows == row).all(axis=1) / (1 + times)
        return worth * self._conflicts.chance(rows), bits

    # -- the verdict -------------------------------------------------------------------------------------------

    def _shares(self, state: _State, claim: _Claim) -> list[Interval]:
        """Share of the gap of each column of a claim (low, mid, high; 90 %); one share for a pair that acts as one."""
        key = claim.structure, claim.columns
        if key not in state.shares:
            state.shares[key] = self._shared(state, claim)
        return state.shares[key]

    def _shared(self, state: _State, claim: _Claim) -> list[Interval]:
        post, data = state.posterior, state.data
        if post is None or data is None:
            return []
        new = data.new.astype(float)
        first, second = new[:, claim.columns[0]], new[:, claim.columns[-1]]
        apart = claim.structure in {"adds", "masked"}
        if apart:
            blamed, rest = first, second
        else:
            blamed = {"single": first, "and": first * second, "or": np.maximum(first, second)}[claim.structure]
            others = len(self.bundles) - len(claim.columns)
            if not others:
                return [(1.0, 1.0, 1.0)]
            rest = (new.sum(axis=1) - new[:, list(claim.columns)].sum(axis=1)) / others
        points = post.gap_points.only(post.gap_points.weight > 1e-4 * post.gap_points.weight.max())
        drift = points.drift * (data.when - data.when.mean())[:, None]

        def log_density(share: Floats) -> Floats:
            level = (share[:, None] * blamed + (1 - share[:, None]) * rest)[:, :, None]
            mean = points.old + level * (points.new - points.old) + drift
            away = (data.value[:, None] - mean).astype(np.float32)
            like = self.noise.log_density(away, points.scale(level).astype(np.float32)).sum(axis=1, dtype=float)
            return np.asarray(np.logaddexp.reduce(like + points.log_prior, axis=1))

        # A look at all shares, then a closer one where they are probable.
        grid = np.linspace(-3.0, 4.0, 36) if apart else np.linspace(0.0, 2.0, 11)
        density = log_density(grid)
        probable = grid[density > density.max() - 12]
        step = grid[1] - grid[0]
        grid = np.linspace(max(probable[0] - step, grid[0]), min(probable[-1] + step, grid[-1]), 48)
        density = log_density(grid)
        low, mid, high = _quantiles(grid, np.exp(density - density.max()))
        if apart:
            return [(low, mid, high), (1 - high, 1 - mid, 1 - low)]
        return [(low, mid, high)]

    def verdict(self) -> Verdict:
        """What is known so far, or the answer."""
        state = self._now()
        post, data = state.posterior, state.data
        running: Kind = "reproduced" if post and post.log_gap >= _GAP_EVIDENCE else "undecided"
        found: dict[str, Any] = {
            "kind": state.kind or running,
            "launches": len(self._told),
            "then": self.then,
            "reasons": tuple(t.reason for t in self._told if t.value is None),
        }
        if post is not None and data is not None:
            points = post.gap_points
            if state.kind in {"phantom", "healed", "unstable"} or post.gap < 0.5:
                points = post.none_points if post.none >= post.faster else post.faster_points
            sigma_ms = points.quantiles(points.sigma)
            found |= {
                "measured": int(data.value.size),
                "old_ms": points.quantiles(points.old),
                "new_ms": points.quantiles(points.new),
                "gap_ms": points.quantiles(points.new - points.old),
                "sigma_ms": sigma_ms,
                "smallest_effect_ms": _smallest(sigma_ms[1], *state.ends_told),
                "evidence": self.evidence,
                "posterior": self._suspicions(state),
            }
            if state.named is not None:
                found["structure"] = state.named.structure
                found["culprits"], found["remainder_ms"] = self._culprits(state, state.named, found["gap_ms"])
            found["eliminated"] = self._eliminated(found.get("culprits", ()))
        bare = Verdict(**found)
        words = {"sentence": sentence(bare, tuple(state.blocked)), "next": next_step(bare, len(self.factors))}
        return bare.model_copy(update=words)

    def estimate(self) -> Estimate:
        """What the search is going to cost, before its first launch.

        The expectation is fitted to simulated incidents with one culprit and a gap of five standard deviations:
        endpoints and confirmations, and 1.4 launches for each bit that the factors hide.
        """
        bits = float(-(self._weight * np.log2(self._weight)).sum()) if self.bundles else 0.0
        worst = self.budget.limit(_LIMIT) if self.bundles else 0
        expected = min(4 + 1.4 * bits, worst)
        each = self.budget.minutes_per_launch
        return Estimate(
            launches=expected,
            worst=worst,
            minutes=expected * each,
            worst_minutes=worst * each,
            smallest_effect=_smallest(self.noise.relative, _GAP_LIMIT // 2, _GAP_LIMIT // 2),
        )

    # -- saved, and opened -------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Everything the search was given and told; `from_json` asks the same next question."""
        return json.dumps(
            {
                "factors": self.factors,
                "conflicts": [sorted(rule) for rule in self.conflicts],
                "prior": self.prior,
                "noise": asdict(self.noise),
                "seed": self.seed,
                "then": self.then.model_dump() if self.then else None,
                "budget": asdict(self.budget),
                "certainty": self.certainty,
                "told": [asdict(t) | {"new": sorted(t.new)} for t in self._told],
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> Search:
        """The search that `to_json` wrote."""
        saved = json.loads(text)
        search = Search(
            saved["factors"],
            [frozenset(rule) for rule in saved["conflicts"]],
            saved["prior"],
            Noise(**saved["noise"]),
            saved["seed"],
            Then(**saved["then"]) if saved["then"] else None,
            Budget(**saved["budget"]),
            saved["certainty"],
        )
        for told in saved["told"]:
            reason = told["reason"]
            missing = Unlaunchable(reason) if told["unlaunchable"] else Void(reason)
            search.tell(told["new"], missing if told["value"] is None else told["value"], told["hours"])
        return search

    def anew(self, noise: Noise, then: Then | None) -> Search:
        """The same search for figures of another kind, not told of any launch yet."""
        return Search(self.factors, self.conflicts, self.prior, noise, self.seed, then, self.budget, self.certainty)

    def opened(
        self,
        culprit: Iterable[str],
        inside: Sequence[str],
        conflicts: Iterable[frozenset[str]] = (),
        prior: Mapping[str, float] | None = None,
        beside: Iterable[str] = (),
    ) -> Search:
        """A search among the parts of a culprit: the files of a patch, the packages of a bundle.

        Everything else stays old, or new where it is `beside`. No part new is then the old side, and all parts new is
        the culprit alone, so what this search was told about those two settings is told again and its launches are not
        repeated. The parts of a range of commits come in order: pass the conflicts of `chain(inside)`. A budget of
        launches is what is left of this search's own.

        Args:
            culprit: the factors to open.
            inside: their parts, all together the same as the culprit at its new value.
            conflicts: of the parts, as for a search.
            prior: of the parts, as for a search.
            beside: factors that stay new in all of its launches.
        """
        around = frozenset(beside)
        ends = {around: frozenset[str](), around | frozenset(culprit): frozenset(inside)}
        known = [told for told in self._told if told.new in ends and told.value is not None]
        budget = self.budget
        if budget.launches is not None:
            budget = replace(budget, launches=budget.launches - len(self._told) + len(known))
        inner = Search(inside, conflicts, prior, self.noise, self.seed, None, budget, self.certainty)
        for told in known:
            inner.tell(ends[told.new], told.value or 0.0, told.hours)
        return inner

    def _culprits(
        self, state: _State, claim: _Claim, gap_ms: tuple[float, ...]
    ) -> tuple[tuple[Culprit, ...], Interval]:
        shares = self._shares(state, claim)
        explained = shares[0] if len(shares) == 1 else (1.0, 1.0, 1.0)
        gap = gap_ms[1]
        remainder = (gap * (1 - explained[2]), gap * (1 - explained[1]), gap * (1 - explained[0]))
        groups = [claim.columns] if claim.structure == "and" else [(c,) for c in claim.columns]
        if state.together:
            groups = [state.together]
        out = []
        for number, columns in enumerate(groups):
            names = frozenset(n for c in columns for n in self.bundles[c])
            out.append(
                Culprit(
                    factors=names,
                    share=shares[min(number, len(shares) - 1)],
                    bundle=bool(state.together) or any(len(self.bundles[c]) > 1 for c in columns),
                    sufficient=self._evidence(state, claim, "sufficient", columns),
                    necessary=self._evidence(state, claim, "necessary", columns),
                )
            )
        return tuple(out), remainder

    def _evidence(self, state: _State, claim: _Claim, side: str, columns: tuple[int, ...]) -> Evidence | None:
        post, data = state.posterior, state.data
        if post is None or data is None:
            return None
        for side_, meant, row in self._needed(state, claim):
            at = (data.new == row).all(axis=1)
            if side_ == side and set(meant) & set(columns) and at.any():
                low, gap = _centre(post.gap_points)
                return Evidence(
                    new=self._set(row),
                    launches=int(at.sum()),
                    measured_ms=float(data.value[at].mean()),
                    expected_ms=low + gap * self._level(post, claim, row),
                    other_ms=low if side == "sufficient" else low + gap,
                )
        return None

    def _suspicions(self, state: _State) -> tuple[Suspicion, ...]:
        post = state.posterior
        if post is None:
            return ()
        out = [
            Suspicion(structure="none", factors=frozenset(), probability=post.none),
            Suspicion(structure="faster", factors=frozenset(), probability=post.faster),
            Suspicion(structure="other", factors=frozenset(), probability=post.other),
        ]
        for claim in state.claims[:10]:
            names = frozenset(n for c in claim.columns for n in self.bundles[c])
            out.append(Suspicion(structure=claim.structure, factors=names, probability=claim.p))
        return tuple(sorted((s for s in out if s.probability >= 1e-4), key=lambda s: -s.probability))

    def suspicion(self) -> dict[str, float]:
        """How probable it is, after the launches so far, that each factor takes part in a gap of today."""
        post = self._now().posterior
        if post is None:
            return {}
        out = {}
        for column, names in enumerate(self.bundles):
            mass = float(post.p[(post.first == column) | (post.second == column)].sum())
            out.update(dict.fromkeys(names, mass))
        return dict(sorted(out.items()))

    def _eliminated(self, culprits: tuple[Culprit, ...]) -> dict[str, float]:
        blamed = {name for culprit in culprits for name in culprit.factors}
        return {name: p for name, p in self.suspicion().items() if p < 0.05 and name not in blamed}


class _State:
    """What follows from the launches told so far."""

    def __init__(self, told: list[_Told], ends: tuple[Bools, Bools], limit: int) -> None:
        self.told = told
        self.ends = ends
        self.limit = limit
        self.blocked: list[str] = []
        self.data: Data | None = None
        self.ends_told = (0, 0)
        self.posterior: Posterior | None = None
        self.claims: list[_Claim] = []
        self.sharpen = False
        self.doubted: Bools | None = None
        self.done = False
        self.kind: Kind | None = None
        self.named: _Claim | None = None
        self.row: Bools | None = None
        self.together: tuple[int, ...] = ()
        self.around: list[Bools] = []
        self.shares: dict[tuple[Structure, tuple[int, ...]], list[Interval]] = {}
        self.scale: _Scale | None = None
        self.wanted: dict[bytes, float] | None = None
        self.launched: dict[bytes, list[int]] = {}
        self.fit: Floats | None = None
        self.isolated: dict[tuple[str, tuple[int, ...]], Bools | None] = {}
        self.needed: dict[tuple[Structure, tuple[int, ...]], list[tuple[str, tuple[int, ...], Bools]]] = {}

    def finish(self, kind: Kind, named: _Claim | None = None) -> _State:
        self.done, self.kind, self.named = True, kind, named
        return self


def _weights(factors: Sequence[str], prior: Mapping[str, float]) -> dict[str, float]:
    """Probability of each factor to be a single culprit: the ranking, trusted by 70 %, over an even share."""
    count = len(factors)
    if not count:
        return {}
    known = {f: prior[f] for f in factors if f in prior and prior[f] > 0 and math.isfinite(prior[f])}
    if not known:
        return dict.fromkeys(factors, 1 / count)
    weight = {f: known.get(f, 1.0) for f in factors}
    total = sum(weight.values())
    return {f: _TRUST_PRIOR * w / total + (1 - _TRUST_PRIOR) / count for f, w in weight.items()}


def _claims(post: Posterior, count: int) -> list[_Claim]:
    """Explanations by what they would say, most probable first."""
    rows = np.argsort(-post.p, kind="stable")[: max(300, int((post.p > 1e-4).sum()))]
    shape, first, second, p = post.shape[rows], post.first[rows], post.second[rows], post.p[rows]
    swapped = (first > second) & (_STRUCTURE_OF[shape] != _STRUCTURES.index("masked"))
    key = (_STRUCTURE_OF[shape] * count + np.where(swapped, second, first)) * count + np.where(swapped, first, second)
    keys, best, which = np.unique(key, return_index=True, return_inverse=True)
    mass = np.bincount(which, p)
    # A helper that no launch points at is a remainder, not a culprit: the main factor stands alone.
    alone = first * (count + 1)
    single = np.minimum(np.searchsorted(keys, alone), keys.size - 1)
    moved = _MAIN_AND_HELPER[shape] & (mass[which] < 0.05) & (keys[single] == alone)
    mass += np.bincount(single[moved], p[moved], keys.size) - np.bincount(which[moved], p[moved], keys.size)
    claims = []
    for k in np.lexsort((keys, -mass))[:100]:
        a, b = divmod(int(keys[k]) % count**2, count)
        columns = (a,) if a == b else (a, b)
        claims.append(_Claim(_STRUCTURES[int(keys[k]) // count**2], columns, float(mass[k]), int(rows[best[k]])))
    return claims


def _quantiles(grid: Floats, density: Floats) -> Interval:
    """The 5 %, 50 % and 95 % points of a density on an even grid."""
    total = np.cumsum(density) - 0.5 * density
    low, mid, high = (float(np.interp(q * density.sum(), total, grid)) for q in (0.05, 0.5, 0.95))
    return low, mid, high


def _centre(points: Points) -> tuple[float, float]:
    """Posterior means of the old level and of the gap."""
    w = points.weight
    return float(w @ points.old), float(w @ (points.new - points.old))


class _Scale:
    """Predictive densities of a launch on a grid of cells half a standard deviation wide or less, if there is room."""

    def __init__(self, post: Posterior, noise: Noise) -> None:
        points = post.gap_points
        low, gap = _centre(points)
        wide = np.array([points.weight @ points.scale(level) for level in (-1.0, 0.0, 1.0, 2.0)])
        self.start = low - gap - 5 * wide[0]
        stop = low + 2 * gap + 5 * wide[3]
        self.cells = int(min(400, math.ceil(2.5 * (stop - self.start) / wide[1])))
        self.step = (stop - self.start) / self.cells
        middle = self.start + self.step * (np.arange(self.cells) + 0.5)
        # One shape for all levels, that of the old side, as wide as the noise is at the level.
        at_level = np.hypot(np.interp((middle - low) / gap, (-1.0, 0.0, 1.0, 2.0), wide), post.width)
        pick = _resampled(points, 24)
        width = np.hypot(points.scale(0.0)[pick], post.width) / math.hypot(wide[1], post.width)
        away = np.concatenate([np.arange(0.0, 8.0, 0.1), np.geomspace(8.0, 1e4, 60)])
        shape = np.exp(noise.log_density(away[:, None], width[None])).mean(axis=1)
        table = np.interp(np.abs(middle[None] - middle[:, None]) / at_level[:, None], away, shape)
        self.table = table / table.sum(axis=1, keepdims=True)
        none = post.none_points
        pick = _resampled(none, 64)
        away = middle[:, None] - none.old[pick]
        flat = np.exp(noise.log_density(away, np.broadcast_to(none.sigma[pick], away.shape))).mean(axis=1)
        self.flat = flat / flat.sum()
        at_old, at_new = (int(self.cell(np.array(v))) for v in (low, low + gap))
        ends = self.table[[at_old, at_new]]
        self.others = np.concatenate([ends, ends.mean(axis=0, keepdims=True)])
        self.entropy = _entropy(self.table)
        even = np.zeros((1, self.cells))
        even[0, at_old] = even[0, at_new] = 0.5
        self.most = max(float(self.information(even, 0.0, 0.0, np.array([2]))[0]), 0.05)

    def cell(self, mean: Floats) -> npt.NDArray[np.int64]:
        """The cell of a mean; the edges take what lies beyond."""
        cell = ((mean - self.start) / self.step).astype(int)
        return np.asarray(np.clip(cell, 0, self.cells - 1))

    def information(self, by_cell: Floats, none: float, other: float, other_at: npt.NDArray[np.int64]) -> Floats:
        """What a launch tells, in nats, about which cell its mean is in, or that no simple explanation holds.

        Args:
            by_cell: probability of each cell (rows: questions).
            none: probability that there is no gap.
            other: probability that none of the simple explanations holds.
            other_at: what that one expects of each question: 0 the old level, 1 the new one, 2 either.
        """
        total = by_cell.sum(axis=1) + none + other
        mix = (by_cell @ self.table + none * self.flat + other * self.others[other_at]) / total[:, None]
        inside = by_cell @ self.entropy + none * float(_entropy(self.flat[None])[0])
        inside += other * _entropy(self.others)[other_at]
        return np.asarray(np.maximum(_entropy(mix) - inside / total, 0) * total)

    def doubt(self, holds: Floats, fails: Floats, none: float) -> Floats:
        """What a launch tells, in nats, about whether a claim holds, and nothing beside that.

        Args:
            holds: probability of each cell if it holds (rows: questions).
            fails: the same of its rivals.
            none: probability that there is no gap.
        """
        yes = holds @ self.table
        no = fails @ self.table + none * self.flat
        parts = (yes + no, yes, no)
        mass = [np.maximum(part.sum(axis=1), 1e-300) for part in parts]
        both, one, other = (m * _entropy(part / m[:, None]) for m, part in zip(mass, parts, strict=True))
        return np.asarray(np.maximum(both - one - other, 0))


def _entropy(table: Floats) -> Floats:
    return np.asarray(-(table * np.log(np.maximum(table, 1e-300))).sum(axis=1))


def _resampled(points: Points, count: int) -> npt.NDArray[np.int64]:
    """Indices of points in proportion to their weight (systematic)."""
    at = (np.arange(count) + 0.5) / count
    total = np.cumsum(points.weight)
    return np.asarray(np.minimum(np.searchsorted(total / total[-1], at), points.weight.size - 1))


def _smallest(sigma: float, at_old: int, at_new: int) -> float:
    """Gap that this many launches of both ends would have shown in four cases of five at 5 %."""
    return sigma * (1.96 + 0.84) * math.sqrt(1 / max(at_old, 1) + 1 / max(at_new, 1))


def chain(steps: Sequence[str]) -> list[frozenset[str]]:
    """The conflicts of a line of changes: each needs the one before it."""
    return [frozenset({late, old(early)}) for early, late in pairwise(steps)]


class OrderedSearch(Search):
    """A search along a line of changes, such as commits, where a launch has the first k of them.

    The chain is said in conflicts, so everything else is the same search: a launch is a point of the line, and the
    confirmations are the two neighbours of the culprit. A point that cannot be launched is skipped; steps that only
    it would separate are named together.

    Args:
        steps: the changes, oldest first.
        prior, noise, seed, then, budget, certainty: as for `Search`.
    """

    def __init__(
        self,
        steps: Sequence[str],
        prior: Mapping[str, float] | None = None,
        noise: Noise | None = None,
        seed: int = 0,
        then: Then | None = None,
        budget: Budget | None = None,
        certainty: float = 0.96,
    ) -> None:
        super().__init__(steps, chain(steps), prior, noise, seed, then, budget, certainty)
