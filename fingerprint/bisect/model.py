"""Every explanation of the launches, and how probable each one is.

The idea in one line: an explanation says at which *level* a launch lies between the old speed (0) and the new one (1),
and a launch is that level plus noise. "Factor i alone" puts a launch at 1 when i is new; "i and j together" when both
are; "i causes 60 % and j 40 %" at 0.6, 0.4 or 1; a factor that hides another one lies beyond. All of them share the
unknowns (old speed, new speed, noise and how it grows, drift), so one table of log densities, launches by levels by
sample points of the unknowns, scores all explanations with three matrix products. The unknowns are integrated out by
quasi-Monte-Carlo points that adapt to the posterior; nothing is fitted and then trusted.

Noise grows as a power of the level, with an exponent that is one more unknown. Where old and new lie close together
that is one scatter for both; where a server is slowed down tenfold, each side has a scatter of its own.

Two explanations are not simple: "none" (no gap today) and "other" (every set of factors has a level of its own, which
explains anything and therefore nothing well; it keeps a bad explanation from winning because its rivals are worse).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

    from fingerprint.bisect.noise import Noise
    from fingerprint.bisect.verdict import Structure, Then

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shape:
    """How one or two factors act: the level with only the first, with only the second; with both it is 1."""

    structure: Structure
    first: float
    second: float
    ordered: bool
    prior: float


# Prior probabilities: one culprit is what most incidents turn out to have.
P_NONE: Final = 0.35
P_FASTER: Final = 0.05
P_OTHER: Final = 0.04
SHAPES: Final = (
    Shape("single", 1.0, 0.0, ordered=True, prior=0.42),
    Shape("and", 0.0, 0.0, ordered=False, prior=0.025),
    Shape("or", 1.0, 1.0, ordered=False, prior=0.025),
    Shape("adds", 0.5, 0.5, ordered=False, prior=0.0125),
    *(Shape("adds", share, 1 - share, ordered=True, prior=0.0125) for share in (0.6, 0.7, 0.8)),
    *(Shape("masked", share, 1 - share, ordered=True, prior=0.01) for share in (1.25, 1.5, 2.0, 3.0)),
)
LEVELS: Final = np.array(sorted({0.0, 1.0, *(round(v, 6) for s in SHAPES for v in (s.first, s.second))}))
ZERO: Final = int(np.searchsorted(LEVELS, 0.0))
ONE: Final = int(np.searchsorted(LEVELS, 1.0))
# Level of a launch by shape and by which of the two factors are new: 0 none, 1 second only, 2 first only, 3 both.
LEVEL_OF: Final = np.array(
    [
        [ZERO, np.searchsorted(LEVELS, round(s.second, 6)), np.searchsorted(LEVELS, round(s.first, 6)), ONE]
        for s in SHAPES
    ]
)
_OTHER_LEVELS: Final = np.array([ZERO, ONE, *(int(np.searchsorted(LEVELS, v)) for v in (0.3, 0.5, 0.7))])
_OTHER_PRIOR: Final = np.log(np.array([0.35, 0.35, 0.1, 0.1, 0.1], np.float32))
# Nobody needs a level to better than 4 % of the gap, and real factors never act that exactly.
_SLACK: Final = 0.04
# Noise in proportion to the level, give or take: constant noise and noise of its square are one deviation away.
_GROWTH: Final = (1.0, 1.0)
# What the noise is taken to follow: levels from a twentieth of the old one to a thousand times, and no farther.
_LEAST: Final = 0.05
_MOST: Final = 1e3
_NOISIER: Final = 1e4
_KEEP: Final = 1000
_REPRESENTED: Final = 1500
_PASSES: Final = (96, 64, 128)


@dataclass(frozen=True)
class Data:
    """The launches that gave a figure: which factors were new (launch by factor), the figure, and when."""

    new: Bools
    value: Floats
    when: Floats


@dataclass(frozen=True)
class Points:
    """Weighted sample points of the unknowns: noise at the old level, old level, new level, drift per launch (in ms).

    `growth` is the power of the level that the noise grows with. `weight` is the posterior and sums to 1; `log_prior`
    is the prior over the density the points were drawn from, so that any likelihood can be integrated over them.
    """

    sigma: Floats
    old: Floats
    new: Floats
    drift: Floats
    growth: Floats
    log_prior: Floats
    weight: Floats

    def scale(self, level: Floats | float) -> Floats:
        """Noise of a launch at this level (0 old, 1 new), with the slack that explanations are allowed, per point."""
        gap = self.new - self.old
        return np.asarray(np.hypot(self.sigma * _grown(self.old, level * gap, self.growth), _SLACK * gap))

    def only(self, some: Bools) -> Points:
        """Some of the points."""
        return Points(*(getattr(self, field.name)[some] for field in fields(self)))

    def quantiles(self, values: Floats, at: tuple[float, ...] = (0.05, 0.5, 0.95)) -> tuple[float, ...]:
        """Weighted quantiles of a figure that is known for each point."""
        order = np.argsort(values)
        total = np.cumsum(self.weight[order])
        return tuple(float(np.interp(q * total[-1], total - 0.5 * self.weight[order], values[order])) for q in at)


@dataclass(frozen=True)
class Posterior:
    """Explanations with their probabilities: arrays over explanations, and those that are not simple.

    Attributes:
        shape, first, second: what each explanation says: index into SHAPES, and its factors (equal for a single).
        p: probability of each.
        none, faster, other: probability of no gap, of a gap the other way round, of none of the simple explanations.
        log_gap: log evidence of a gap against none, whatever their prior probabilities.
        old, size: the old level and the gap (ms) if this explanation holds.
        width: how well it then knows a level (ms).
        gap_points, faster_points, none_points: the unknowns, if the new side is slower, faster, or neither.
    """

    shape: Ints
    first: Ints
    second: Ints
    p: Floats
    none: float
    faster: float
    other: float
    log_gap: float
    old: Floats
    size: Floats
    width: float
    gap_points: Points
    faster_points: Points
    none_points: Points

    @property
    def gap(self) -> float:
        """Probability that the new side is slower today."""
        return float(self.p.sum()) + self.other

    def levels(self, new: Bools) -> Ints:
        """Index into LEVELS that each explanation gives to each setting (setting by explanation)."""
        both = new.astype(np.int16)
        return np.asarray(LEVEL_OF.ravel()[4 * self.shape + (2 * both[:, self.first] + both[:, self.second])])


@dataclass(frozen=True)
class _Rows:
    """Explanations by classes of factors, in the order of their shapes."""

    shape: Ints
    first: Ints
    second: Ints
    log_prior: npt.NDArray[np.float32]

    def only(self, some: Ints) -> _Rows:
        return _Rows(self.shape[some], self.first[some], self.second[some], self.log_prior[some])


def _heaviest(weight: npt.NDArray[np.floating], least: float, most: int) -> Ints:
    """Indices, in order, of at most so many entries that weigh at least this share of the heaviest."""
    some = np.flatnonzero(weight > weight.max() * least)
    if some.size > most:
        some = np.sort(some[np.argsort(-weight[some], kind="stable")[:most]])
    return np.asarray(some)


@cache
def _nodes(count: int, skip: int) -> Floats:
    """Five-dimensional standard normal points that fill the space evenly (additive recurrence), count by 5."""
    golden = 1.0
    for _ in range(40):
        golden = (1 + golden) ** (1 / 6)
    steps = golden ** -np.arange(1, 6)
    uniform = (0.5 + np.outer(np.arange(skip + 1, skip + count + 1), steps)) % 1.0
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(min(max(u, 1e-9), 1 - 1e-9)) for u in row] for row in uniform])


@dataclass(frozen=True)
class _Settings:
    """The launches by setting: of the old side, of the new side, and an order of the rest in runs of equal settings."""

    old: Ints
    new: Ints
    order: Ints
    starts: Ints

    @staticmethod
    def of(launches: Bools, at_old: Bools, at_new: Bools) -> _Settings:
        """These launches; where old and new are the same setting, it is old."""
        between = np.flatnonzero(~(at_old | at_new))
        _, which = np.unique(np.packbits(launches[between], axis=1), axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        starts = np.flatnonzero(np.diff(which.ravel()[order], prepend=-1))
        return _Settings(np.flatnonzero(at_old), np.flatnonzero(at_new & ~at_old), between[order], starts)


def _grown(old: Floats, more: Floats, growth: Floats) -> Floats:
    """How many times noisier than at the old level a launch is that lies this much (ms) beyond it."""
    times = np.clip(1 + more / np.maximum(old, 1e-9), _LEAST, _MOST)
    return np.asarray(np.clip(times**growth, 1 / _NOISIER, _NOISIER))


def _log_normal(x: Floats, mean: Floats | float, width: Floats | float) -> Floats:
    return np.asarray(-0.5 * ((x - mean) / width) ** 2 - np.log(width) - 0.5 * math.log(2 * math.pi))


def _log_sum(values: npt.NDArray[np.floating], axis: int | None = None) -> Floats:
    top = np.max(values, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out = np.log(np.sum(np.exp(values - top), axis=axis, keepdims=True)) + top
    return np.asarray(np.squeeze(out, axis=axis) if axis is not None else out.reshape(())[()])


class Model:
    """The explanations of a gap among some factors, and their posterior given launches.

    Args:
        count: number of factors.
        prior: probability that a single culprit is this factor; sums to 1.
        noise: the prior of the noise.
        then: the figures of the past, if known: they say how large a gap to expect.
    """

    def __init__(self, count: int, prior: Floats, noise: Noise, then: Then | None) -> None:
        self.count = count
        self.drift = max(noise.drift, 1e-6)
        self.noise = noise
        self.then = then if then is not None and then.gap_ms > 0 else None
        self.weight = prior

    # -- the explanations --------------------------------------------------------------------------------------

    def _classes(self, new: Bools) -> tuple[Bools, list[Ints]]:
        """Factors that no launch has told apart yet: a column for each class, and its members."""
        _, index, which = np.unique(new, axis=1, return_index=True, return_inverse=True)
        which = which.ravel()
        order = np.argsort(index, kind="stable")
        return new[:, index[order]], [np.flatnonzero(which == c) for c in order]

    def _rows(self, members: list[Ints]) -> _Rows:
        """All explanations by classes, with their prior: singles, then each shape for each two classes."""
        count = len(members)
        mass = np.array([self.weight[m].sum() for m in members])
        shapes: list[Ints] = [np.zeros(count, int)]
        firsts: list[Ints] = [np.arange(count)]
        seconds: list[Ints] = [np.arange(count)]
        priors = [SHAPES[0].prior * mass]
        if self.count > 1:
            pair = np.outer(mass, mass)
            pair[np.diag_indices(count)] -= [float((self.weight[m] ** 2).sum()) for m in members]
            pair /= pair.sum()
            first, second = np.nonzero(pair > 1e-12)
            ordered = pair[first, second]
            unordered = np.where(first < second, 2.0, np.where(first == second, 1.0, 0.0)) * ordered
            for number, shape in enumerate(SHAPES[1:], start=1):
                some = np.flatnonzero(ordered if shape.ordered else unordered)
                shapes.append(np.full(some.size, number))
                firsts.append(first[some])
                seconds.append(second[some])
                priors.append(shape.prior * (ordered if shape.ordered else unordered)[some])
        log_prior = np.log(np.concatenate(priors)).astype(np.float32)
        return _Rows(np.concatenate(shapes), np.concatenate(firsts), np.concatenate(seconds), log_prior)

    def _expanded(self, rows: _Rows, p: Floats, members: list[Ints]) -> tuple[Ints, Ints, Ints, Floats]:
        """Explanations by factors: every single, and of pairs of large classes as many as their probability is worth.

        Returns:
            For each: which row it comes from, its two factors, and its probability.
        """
        size = np.array([m.size for m in members])
        flat = np.concatenate(members)
        start = np.concatenate([[0], np.cumsum(size)[:-1]])
        s1, s2 = size[rows.first], size[rows.second]
        single = rows.shape == 0
        same = (rows.first == rows.second) & ~single
        every = np.where(single, s1, s1 * np.where(same, s2 - 1, s2))
        # At most so many as there are, so that a ratio of tiny numbers does no harm.
        worth = np.ceil(np.minimum(_REPRESENTED * p / max(float(p[~single].sum()), 1e-300), 1e9)).astype(int)
        times = np.where(single, every, np.clip(worth, 1, every))
        row = np.repeat(np.arange(rows.shape.size), times)
        k = np.arange(row.size) - np.repeat(np.cumsum(times) - times, times)
        a = k % s1[row]
        b = np.where(single[row], a, (k // s1[row] + a + same[row]) % s2[row])
        first, second = flat[start[rows.first[row]] + a], flat[start[rows.second[row]] + b]
        share = np.where(single[row], self.weight[first] / np.bincount(row, self.weight[first])[row], 1 / times[row])
        return row, first, second, p[row] * share

    # -- the unknowns ------------------------------------------------------------------------------------------

    def _log_prior_gap(self, gap: Floats, sigma: Floats) -> Floats:
        """Log density of a gap (ms, positive): vanishes at 0, wide, and near the gap of the past if that is known.

        `sigma` is the noise of the slower side.
        """
        size = np.maximum(gap, 0) / sigma
        density = size / 25 * (1 + size**2 / 25) ** -1.5 / sigma
        if self.then is not None:
            width = 0.3 * self.then.gap_ms
            density = 0.1 * density + 0.9 * np.exp(_log_normal(gap, self.then.gap_ms, width)) * (gap > 0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(density))

    def _log_prior_sigma(self, log_sigma: Floats, old: Floats) -> Floats:
        expected = np.log(self.noise.relative * np.maximum(old, 1e-9))
        return _log_normal(log_sigma, expected, math.log(self.noise.spread))

    def _first_guess(self, scatter: _Scatter, more: _Scatter | None = None) -> tuple[float, float]:
        """Mean and width of log sigma to begin with: the prior and the scatter of equal launches.

        What `more` launches say counts in proportion, and the less the farther their level lies away.
        """
        squares, dof = scatter.squares, float(scatter.dof)
        if more is not None:
            ratio = math.log(more.level / scatter.level)
            near = math.exp(-2 * ratio**2)
            squares += near * more.squares * math.exp(-2 * ratio)
            dof += near * more.dof
        sigma2 = (2 * (self.noise.relative * scatter.level) ** 2 + squares) / (2 + dof)
        width = 1.2 / math.sqrt(1 / math.log(self.noise.spread) ** 2 + dof)
        return 0.5 * math.log(sigma2), max(width, 0.45)

    def _first_growth(self, old: _Scatter, new: _Scatter) -> float:
        """Power of the level that the noise seems to grow with, as far as the levels are apart."""
        ratio = math.log(new.level / old.level)
        if abs(ratio) < 0.1:
            return _GROWTH[0]
        log_noise = [
            0.5 * math.log((2 * (self.noise.relative * side.level) ** 2 + side.squares) / (2 + side.dof))
            for side in (old, new)
        ]
        seen = (log_noise[1] - log_noise[0]) / ratio
        return _GROWTH[0] + (seen - _GROWTH[0]) * ratio**2 / (ratio**2 + 0.5)

    def _start_gap(self, data: Data, at_old: Bools, at_new: Bools, sign: int) -> _Start:
        """Where to look first for (log sigma, old level, log of the gap, drift in sigma, growth of the noise)."""
        low, high = float(data.value.min()), float(data.value.max())
        old, new = data.value[at_old & ~at_new], data.value[at_new]
        centre_old = float(np.median(old)) if old.size else low
        centre_new = float(np.median(new)) if new.size else high
        spread_old = 0.5 * float(np.ptp(old)) if old.size else high - low
        spread_new = 0.5 * float(np.ptp(new)) if new.size else high - low

        scatter_old, scatter_new = _scatter(old, centre_old), _scatter(new, centre_new)
        growth = self._first_growth(scatter_old, scatter_new)
        noisier = max((centre_new / centre_old) ** growth, 1e-3)

        def conditional(sigma: Floats) -> tuple[Floats, Floats]:
            wide_old = np.hypot(1.4 * sigma / math.sqrt(max(old.size, 1)), spread_old)
            wide_new = np.hypot(1.4 * noisier * sigma / math.sqrt(max(new.size, 1)), spread_new)
            gap = np.maximum(sign * (centre_new - centre_old), sigma)
            wide_gap = np.clip(np.hypot(wide_old, wide_new) / gap, 0.1, 1.2)
            same = np.ones(sigma.size)
            mean = np.stack([centre_old * same, np.log(gap), 0 * same, growth * same], axis=1)
            return mean, np.stack([wide_old, wide_gap, self.drift * same, _GROWTH[1] * same], axis=1)

        return _Start(self._first_guess(scatter_old, scatter_new), conditional)

    # -- the posterior -----------------------------------------------------------------------------------------

    def posterior(self, data: Data) -> Posterior:
        """Probabilities of all explanations given the launches."""
        level = float(np.median(data.value))
        at_new = np.asarray(data.new.all(axis=1))
        at_old = np.asarray(~data.new.any(axis=1))
        when = data.when - data.when.mean()
        settings = _Settings.of(data.new, at_old, at_new)
        column, members = self._classes(data.new)
        rows = self._rows(members)
        # Blocks of points, explanation by point: prior times likelihood, over exp(top) of the point.
        blocks: list[npt.NDArray[np.float32]] = []
        tops: list[Floats] = []
        frees: list[Floats] = []

        def prior(u: Floats, sign: int) -> Floats:
            sigma, gap = np.exp(u[:, 0]), np.exp(u[:, 2])
            slow = sigma * _grown(u[:, 1], gap, u[:, 4]) if sign > 0 else sigma
            # The gap's own term turns a density of the gap into one of its logarithm.
            return (
                self._log_prior_sigma(u[:, 0], u[:, 1])
                + self._log_prior_gap(gap, slow)
                + u[:, 2]
                + _log_normal(u[:, 3], 0.0, self.drift)
                + _log_normal(u[:, 4], *_GROWTH)
            )

        def table(u: Floats, sign: int) -> Floats:
            """Log density of each launch at each level and point: launch by level by point."""
            sigma, gap = np.exp(u[:, 0]), np.exp(u[:, 2])
            more = sign * LEVELS[:, None] * gap
            scale = np.hypot(sigma * _grown(u[:, 1], more, u[:, 4]), _SLACK * gap)
            mean = (u[:, 1] + more) + (u[:, 3] * sigma) * when[:, None, None]
            away = (data.value[:, None, None] - mean).astype(np.float32)
            return self.noise.log_density(away, scale.astype(np.float32))

        def slower(u: Floats) -> Floats:
            """All explanations of a gap together; those that explain nothing are dropped on the first call."""
            nonlocal rows
            dense = table(u, +1)
            before = prior(u, +1)
            if not blocks and rows.shape.size > _KEEP:
                # So many explanations that a look at a few points decides which ones to score at all.
                coarse = np.argsort(-(before + self._other(dense, settings)), kind="stable")[:8]
                rows = self._best(rows, column, dense[:, :, coarse], before[coarse], 1e-9, 3 * _KEEP)
            like = self._score(column, dense, rows)
            like += rows.log_prior[:, None]
            top = like.max(axis=0)
            like = np.exp(like - top)
            if not blocks:
                weight = np.exp(top + before - (top + before).max()).astype(np.float32)
                score = like @ weight
                alive = _heaviest(score, 1e-6, _KEEP)
                rows, like = rows.only(alive), like[alive]
            blocks.append(like)
            tops.append(top.astype(np.float64))
            frees.append(self._other(dense, settings) + math.log(P_OTHER))
            with np.errstate(divide="ignore"):
                return np.asarray(np.logaddexp(np.log(like.sum(axis=0)) + tops[-1], frees[-1]) + before)

        def faster(u: Floats) -> Floats:
            return self._other(table(u, -1), settings) + prior(u, -1) + math.log(P_FASTER)

        points, proposal, mixed = _sample(self._start_gap(data, at_old, at_new, +1), slower, _PASSES)
        weight = prior(points, +1) - proposal
        top = np.concatenate(tops)
        highest = float((top + weight).max())
        like = np.concatenate(blocks, axis=1)
        like *= np.exp(top + weight - highest).astype(np.float32)
        evidence = like.sum(axis=1)
        unknown = np.stack([points[:, 1] - level, np.exp(points[:, 2])], axis=1)
        middle = unknown[:, 0] + 0.5 * unknown[:, 1]
        known = np.column_stack([unknown, middle, middle**2]).astype(np.float32)
        by = (like @ known) / np.maximum(evidence, 1e-30)[:, None]
        with np.errstate(divide="ignore"):
            log_p = np.log(evidence.astype(np.float64)) + highest
        variance = np.maximum(by[:, 3] - by[:, 2] ** 2, 0.0)
        log_other = float(_log_sum(np.concatenate(frees) + weight))
        other_way, other_proposal, against = _sample(self._start_gap(data, at_old, at_new, -1), faster, (64, 96))
        log_faster = float(_log_sum(against))
        none_points, log_none = self._none(data.value, when)
        log_gap = float(np.logaddexp(_log_sum(log_p), log_other))
        total = float(np.logaddexp.reduce([log_gap, log_faster, log_none]))
        row, first, second, p = self._expanded(rows, np.exp(log_p - total), members)
        return Posterior(
            shape=rows.shape[row],
            first=first,
            second=second,
            p=p,
            none=math.exp(log_none - total),
            faster=math.exp(log_faster - total),
            other=math.exp(log_other - total),
            log_gap=log_gap - math.log(1 - P_NONE - P_FASTER) - (log_none - math.log(P_NONE)),
            old=by[row, 0].astype(np.float64) + level,
            size=by[row, 1].astype(np.float64),
            width=math.sqrt(float(np.exp(log_p - log_p.max()) @ variance) / float(np.exp(log_p - log_p.max()).sum())),
            faster_points=_points(other_way, prior(other_way, -1) - other_proposal, against, -1),
            gap_points=_points(points, weight, mixed, +1),
            none_points=none_points,
        )

    def _score(self, column: Bools, dense: Floats, rows: _Rows) -> npt.NDArray[np.float32]:
        """Log likelihood of each explanation at each point (explanation by point)."""
        base = dense[:, ZERO].sum(axis=0)
        out = np.empty((rows.shape.size, dense.shape[2]), np.float32)
        numbers = np.concatenate([[0], np.cumsum(np.bincount(rows.shape, minlength=len(SHAPES)))])
        for number in range(len(SHAPES)):
            part = slice(int(numbers[number]), int(numbers[number + 1]))
            if part.start == part.stop:
                continue
            _, only_second, only_first, both = LEVEL_OF[number]
            a, b = column[:, rows.first[part]], column[:, rows.second[part]]
            whens, gains = [a & b], [dense[:, both] - dense[:, ZERO]]
            if number and only_first != ZERO:
                whens.append(a & ~b)
                gains.append(dense[:, only_first] - dense[:, ZERO])
            if number and only_second != ZERO:
                whens.append(b & ~a)
                gains.append(dense[:, only_second] - dense[:, ZERO])
            np.matmul(np.concatenate(whens).T.astype(np.float32), np.concatenate(gains), out=out[part])
        out += base
        return out

    def _best(
        self,
        rows: _Rows,
        column: Bools,
        dense: Floats,
        before: Floats,
        least: float,
        most: int,
    ) -> _Rows:
        """The explanations that are worth scoring at more points; singles always are."""
        score = self._score(column, dense, rows) + (rows.log_prior[:, None] + before.astype(np.float32))
        best = score.max(axis=1)
        keep = _heaviest(np.exp(best - best.max()), least, most)
        return rows.only(np.union1d(np.flatnonzero(rows.shape == 0), keep))

    def _other(self, dense: Floats, settings: _Settings) -> Floats:
        """Log likelihood at each point when every setting between the ends has a level of its own."""
        out = dense[settings.old, ZERO].sum(axis=0) + dense[settings.new, ONE].sum(axis=0)
        if settings.order.size:
            part = np.add.reduceat(dense[settings.order][:, _OTHER_LEVELS], settings.starts, axis=0)
            out = out + _log_sum(part + _OTHER_PRIOR[:, None], axis=1).sum(axis=0)
        return np.asarray(out)

    def _none(self, value: Floats, when: Floats) -> tuple[Points, float]:
        """Points and log evidence of "no gap": one level for all launches."""
        centre = float(np.median(value))
        offset = abs(centre - float(value.mean()))

        def conditional(sigma: Floats) -> tuple[Floats, Floats]:
            wide = np.hypot(1.5 / math.sqrt(value.size) * sigma, offset)
            mean = np.stack([np.full(sigma.size, centre), np.zeros(sigma.size)], axis=1)
            return mean, np.stack([wide, np.full(sigma.size, self.drift)], axis=1)

        def target(u: Floats) -> Floats:
            sigma = np.exp(u[:, 0])
            mean = u[:, 1] + (u[:, 2] * sigma) * when[:, None]
            like = self.noise.log_density(value[:, None] - mean, np.broadcast_to(sigma, mean.shape)).sum(axis=0)
            before = self._log_prior_sigma(u[:, 0], u[:, 1]) + _log_normal(u[:, 2], 0.0, self.drift)
            return np.asarray(like + before + math.log(P_NONE))

        points, proposal, weight = _sample(
            _Start(self._first_guess(_scatter(value, centre)), conditional), target, _PASSES
        )
        sigma = np.exp(points[:, 0])
        same = points[:, 1]
        before = self._log_prior_sigma(points[:, 0], same) + _log_normal(points[:, 2], 0.0, self.drift) - proposal
        flat = np.zeros(sigma.size)
        return Points(sigma, same, same, points[:, 2] * sigma, flat, before, _shares(weight)), float(_log_sum(weight))


@dataclass(frozen=True)
class _Scatter:
    """How launches of one setting scatter: their level, the sum of squares around their mean, degrees of freedom."""

    level: float
    squares: float
    dof: int


def _scatter(value: Floats, level: float) -> _Scatter:
    return _Scatter(level, float(((value - value.mean()) ** 2).sum()) if value.size else 0.0, max(value.size - 1, 0))


@dataclass(frozen=True)
class _Start:
    """A first proposal for the unknowns: log sigma normal, the rest normal given sigma."""

    log_sigma: tuple[float, float]
    conditional: Callable[[Floats], tuple[Floats, Floats]]

    def draw(self, count: int) -> Floats:
        log_sigma = self.log_sigma[0] + self.log_sigma[1] * _nodes(count, 0)[:, 0]
        mean, width = self.conditional(np.exp(log_sigma))
        return np.column_stack([log_sigma, mean + width * _nodes(count, 0)[:, 1 : 1 + mean.shape[1]]])

    def log_density(self, points: Floats) -> Floats:
        mean, width = self.conditional(np.exp(points[:, 0]))
        return np.asarray(
            _log_normal(points[:, 0], *self.log_sigma) + _log_normal(points[:, 1:], mean, width).sum(axis=1)
        )


def _sample(
    start: _Start, log_target: Callable[[Floats], Floats], passes: tuple[int, ...]
) -> tuple[Floats, Floats, Floats]:
    """Sample points that adapt to a posterior: each pass adds points where the weight of the earlier ones lies.

    Returns:
        The points, the log of their proposal density times their number, and their log weights, whose sum of
        exponentials is the integral of the target.
    """
    points = start.draw(passes[0])
    target = log_target(points)
    normals: list[tuple[Floats, Floats]] = []
    for number in range(len(passes)):
        parts = [math.log(passes[0]) + start.log_density(points)]
        parts += [math.log(c) + _log_density(points, *m) for c, m in zip(passes[1:], normals, strict=False)]
        proposal = np.logaddexp.reduce(parts, axis=0)
        if number + 1 < len(passes):
            normals.append(_moments(points, target - proposal))
            mean, root = normals[-1]
            nodes = _nodes(passes[number + 1], sum(passes[: number + 1]))[:, : points.shape[1]]
            added = mean + nodes @ root.T
            points = np.concatenate([points, added])
            target = np.concatenate([target, log_target(added)])
    return points, proposal, target - proposal


def _points(u: Floats, log_prior: Floats, log_weight: Floats, sign: int) -> Points:
    """Points of (log sigma, old level, log of the gap, drift in sigma, growth), as the unknowns they stand for."""
    sigma, new = np.exp(u[:, 0]), u[:, 1] + sign * np.exp(u[:, 2])
    return Points(sigma, u[:, 1], new, u[:, 3] * sigma, u[:, 4], log_prior, _shares(log_weight))


def _shares(log_weight: Floats) -> Floats:
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _moments(points: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
    """Weighted mean of points and a root of their covariance, widened for use as a proposal."""
    weight = np.exp(log_weight - log_weight.max())
    # A few points may hold all the weight: temper until a dozen share it.
    power = 1.0
    while weight.sum() ** 2 / (weight**2).sum() < 12 and power > 0.05:
        power *= 0.7
        weight = np.exp(power * (log_weight - log_weight.max()))
    weight /= weight.sum()
    mean = weight @ points
    centred = points - mean
    spread = (centred * weight[:, None]).T @ centred
    spread += np.diag(1e-4 * np.var(points, axis=0) + 1e-18)
    return mean, np.linalg.cholesky(1.7 * spread)


def _log_density(points: Floats, mean: Floats, root: Floats) -> Floats:
    """Log density of the normal with this mean and covariance root."""
    z = np.linalg.solve(root, (points - mean).T)
    return np.asarray(-0.5 * (z**2).sum(axis=0) - np.log(np.diag(root)).sum() - 0.5 * mean.size * math.log(2 * math.pi))
