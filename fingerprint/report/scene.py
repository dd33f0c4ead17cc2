"""What every sentence of a report needs: the verdict, the launches by arm, and how things are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fingerprint.report.model import (
    PARTS,
    Arm,
    Check,
    Launch,
)
from fingerprint.report.words import count, listing, ms, ms_interval

if TYPE_CHECKING:
    from fingerprint.bisect.decisions import Decision
    from fingerprint.bisect.journal import CaseLine, FactorLine, OpenLine, TrialLine
    from fingerprint.bisect.verdict import Culprit, Interval
    from fingerprint.case import Outcome


class Scene:
    """What every sentence needs: the verdict, the launches by arm, and how things are called."""

    def __init__(
        self, outcome: Outcome, line: CaseLine, launches: Sequence[Launch], decimals: int, *, finished: bool
    ) -> None:
        self.outcome = outcome
        self.line = line
        self.launches = launches
        self.decimals = decimals
        self.finished = finished
        self.factors: dict[str, FactorLine] = {factor.id: factor for factor in line.factors}
        self.measured = [
            launch
            for launch in launches
            if launch.value_ms is not None and launch.status == "measured" and not launch.inside
        ]
        self.metric = outcome.metric or "verify_ms"
        self.what = self.metric.removesuffix("_ms")
        self.culprits = sorted(outcome.culprits, key=lambda culprit: -culprit.share[1])

    @property
    def switched(self) -> set[str]:
        """The differences that launches switched, those in bundles among them."""
        return {name for factor in self.line.factors for name in factor.covers or [factor.id]}

    @property
    def simple(self) -> float:
        """Probability that some difference causes a gap in a simple way."""
        return 1.0 - sum(one.probability for one in self.outcome.posterior if not one.factors)

    @property
    def pooled(self) -> bool:
        """Whether old and new have one common level today."""
        outcome = self.outcome
        return outcome.kind in {"phantom", "healed"} and outcome.old_ms == outcome.new_ms

    @property
    def settled(self) -> bool:
        """Whether it is known if there is a gap today."""
        evidence = self.outcome.evidence
        return self.outcome.kind != "unstable" and (evidence is None or not 1 / 20 < evidence < 20)

    def arm(self, arm: Arm) -> list[Launch]:
        """Measured launches of one arm."""
        return [launch for launch in self.measured if launch.arm == arm]

    def decisions(self, culprit: Culprit) -> list[Decision]:
        """What the engine said that it decided otherwise with a culprit."""
        return [one for one in self.outcome.decisions if set(one.factors) == culprit.factors]

    def name(self, culprit: Culprit) -> str:
        """A culprit in words, with what changed."""
        return " together with ".join(self.called(factor) for factor in sorted(culprit.factors))

    def called(self, factor: str) -> str:
        """A factor in words, with what changed."""
        line = self.factors.get(factor)
        title = title_of(factor)
        if line is None:
            return title
        if line.old == "absent" and factor.startswith("variable:"):
            return f"{title}={line.new}"
        version, contents, _ = line.new.partition(" (contents ")
        if contents and line.old.startswith(version + contents):
            return f"{title} ({version}, other contents)"
        return f"{title} ({line.old} → {line.new})"

    def ms(self, interval: Interval, *, sign: bool = False) -> str:
        """An interval in ms."""
        return ms_interval(interval, self.decimals, sign=sign)

    def seen(self, arm: Arm) -> str:
        """What the launches of one arm measured: `12.21 ms (2 launches, 12.18 to 12.24)`."""
        values = [launch.value_ms for launch in self.arm(arm) if launch.value_ms is not None]
        if not values:
            return "nothing"
        span = "" if len(values) == 1 else f", {min(values):.{self.decimals}f} to {max(values):.{self.decimals}f}"
        return f"{ms(sum(values) / len(values), self.decimals)} ({count(len(values), 'launch')}{span})"

    def position(self, launch: Launch) -> float | None:
        """Where a launch lies between the old level (0) and the new one (1)."""
        old, gap = self.outcome.old_ms, self.outcome.gap_ms
        if launch.value_ms is None or old is None or gap is None or not gap[1]:
            return None
        return (launch.value_ms - old[1]) / gap[1]


def title_of(factor: str) -> str:
    """What a person calls a factor."""
    kind, _, name = factor.partition(":")
    commit = re.fullmatch(r"tree:(?:([^@]+)/)?commit(?:@(.+))?", factor)
    if commit is not None and commit[2]:
        return f"commit {commit[2]}"
    if commit is not None:
        return f"the commit of {commit[1] or 'the source tree'}"
    if kind == "tree":
        return f"the local change of {name}"
    if kind == "together":
        return listing((title_of(one) for one in name.split(" + ")), 4)
    if kind == "bundle":
        return f"the bundle of {listing(name.split('+'), 4)}"
    return name or factor


def explanation(structure: str, factors: Iterable[str]) -> str:
    """One explanation in words."""
    names = [title_of(name) for name in sorted(factors)]
    match structure:
        case "none":
            return "no gap today"
        case "faster":
            return "the new side is faster today"
        case "other":
            return "none of the simple explanations"
        case "single":
            return f"{listing(names)} alone"
        case "and":
            return f"{listing(names)}, only together"
        case "or":
            return f"{listing(names)}, each on its own"
        case "adds":
            return f"{listing(names)}, a share each"
        case _:
            return f"{listing(names)}, one hiding the other"


def launch_of(trial: TrialLine, began: datetime, line: CaseLine, opened: Sequence[OpenLine] = ()) -> Launch:
    """One line of the journal as the reader sees it."""
    inside = next((one for one in opened if one.of == trial.inside), None)
    titles = {part.id: part.title or title_of(part.id) for part in (inside.parts if inside else line.factors)}
    moved = set(trial.new)
    setting = _setting(moved, titles)
    arm: Arm = "mixed"
    if trial.inside:
        setting = f"inside {title_of(trial.inside)}: {setting}"
    elif not moved and titles:
        arm = "old"
    elif moved >= titles.keys():
        arm = "new"
    figures = trial.figures
    return Launch(
        number=trial.number,
        at=trial.at,
        minutes=(trial.at - began).total_seconds() / 60,
        arm=arm,
        setting=setting,
        inside=trial.inside,
        new=tuple(sorted(moved)),
        status=trial.status,
        value_ms=trial.value_ms,
        reason=trial.reason,
        marks=tuple(trial.marks),
        parts={key: value for key, _ in PARTS if (value := _number(figures.get(key))) is not None},
        cycle_ms=_number(figures.get("cycle_ms")),
        accept_length=_number(figures.get("accept_length")),
        most_accepted=most if type(most := figures.get("most_accepted")) is int else None,
        tokens_per_second=_number(figures.get("tokens_per_second")),
        samples=tuple(_numbers(sample) for sample in _dicts(figures.get("samples"))[:200]),
        proof=tuple(
            Check(
                factor=str(one.get("factor", "")),
                ok=one.get("ok") is True,
                seen=str(one.get("seen", "")),
            )
            for one in _dicts(trial.proof)[:500]
        ),
        watch=_flat(trial.watch),
        isolation=trial.isolation,
        seconds=dict(trial.seconds),
        outputs=str(figures.get("outputs") or ""),
    )


def _setting(moved: set[str], titles: Mapping[str, str]) -> str:
    if not titles:
        return "as it is now"
    if not moved:
        return "everything old"
    if moved >= titles.keys():
        return "everything new"
    if len(moved) == 1:
        return f"only {titles.get(min(moved), min(moved))} new"
    rest = titles.keys() - moved
    if len(rest) == 1:
        return f"all new but {titles[min(rest)]}"
    return f"{len(moved)} of {len(titles)} new"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e9:
        return None
    return float(value)


def _numbers(value: object) -> dict[str, float]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {str(name): held for name, one in pairs if (held := _number(one)) is not None}


def _flat(value: object, name: str = "") -> dict[str, float]:
    """Every number in nested readings, under the names that lead to it."""
    if isinstance(value, Mapping):
        found: dict[str, float] = {}
        for key, one in list(value.items())[:200]:
            found |= _flat(one, f"{name} {key}".strip())
        return found
    number = _number(value)
    return {} if number is None else {name: number}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []
