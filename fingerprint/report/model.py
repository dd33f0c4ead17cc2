"""What a report says, before any format: pure, from a case's snapshots, journal and verdict.

The reader was not there. So the report answers in this order: what was asked, what is the answer with its number, what
to do now, how sure it is and what it cost; then how each suspect was settled and by which launch, where "never tested"
is not "ruled out"; then what nobody could see; then everything that a doubter asks. Every text that came from a host
passes `words.clean` on its way in, so no format can be harmed by it.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from fingerprint.bisect.verdict import Interval
from fingerprint.report.words import (
    CommandLine,
    Text,
    count,
    decimals_for,
    duration,
    how_sure,
    listing,
    ms,
    ms_interval,
    number,
    percent_interval,
    probability,
)
from snapshots import Unread

if TYPE_CHECKING:
    from fingerprint.bisect.journal import CaseLine, EndLine, FactorLine, TrialLine
    from fingerprint.bisect.verdict import Culprit, Evidence, Suspicion
    from fingerprint.case import Case, Outcome
    from fingerprint.diff import Comparison
    from snapshots import Snapshot

Arm = Literal["old", "new", "mixed"]
Standing = Literal["cause", "open", "not tested", "ruled out", "not judged", "cannot be switched"]
PARTS = (("verify_ms", "verify"), ("draft_ms", "draft"), ("extend_ms", "draft extend"), ("host_ms", "host"))
"""What a speculative cycle consists of."""
MOST_CHANGES = 60
MOST_UNSEEN = 60


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Suspect(_Part):
    """One difference and what became of it.

    Attributes:
        id: the factor.
        title: what it is called without its kind.
        kind: variable, package, flag ...
        old, new: its two values in a few words.
        standing: what is known about it now.
        why: the evidence, in words.
        launches: the launches that settled it.
        left: probability left that it takes part in the gap.
        rank: place in the ranking before the first launch, from 1.
    """

    id: Text
    title: Text
    kind: Text
    old: Text
    new: Text
    standing: Standing
    why: Text
    launches: tuple[int, ...] = ()
    left: float | None = None
    rank: int | None = None


class Check(_Part):
    """One proof of one launch: the factor was read again where it acts."""

    factor: Text
    ok: bool
    seen: Text


class Launch(_Part):
    """One launch as the reader sees it; `parts` are ms by `PARTS`, `watch` is what else happened on the machine."""

    number: int
    at: datetime
    minutes: float
    arm: Arm
    setting: Text
    new: tuple[Text, ...]
    status: Text
    value_ms: float | None
    reason: Text
    marks: tuple[Text, ...]
    parts: dict[str, float]
    cycle_ms: float | None
    accept_length: float | None
    tokens_per_second: float | None
    samples: tuple[dict[Text, float], ...]
    proof: tuple[Check, ...]
    watch: dict[Text, float]
    isolation: Text
    seconds: dict[Text, float]
    outputs: Text


class Moment(_Part):
    """How probable the explanations were after one launch."""

    launch: int
    probabilities: dict[Text, float]


class Share(_Part):
    """One culprit's part of the gap, in ms (low, mid, high)."""

    title: Text
    share: Interval
    part_ms: Interval


class Step(_Part):
    """One step of the chain: a question, what was found, and the launches that show it."""

    question: Text
    finding: Text
    launches: tuple[int, ...] = ()
    settled: bool = True


class BudgetRow(_Part):
    """One part of the cycle on both sides, medians over launches, in ms."""

    part: Text
    old_ms: float | None
    new_ms: float | None


class Speed(_Part):
    """What the user gets: accept length, cycle and tokens per second of a side."""

    side: Text
    cycle_ms: float
    accept_length: float
    tokens_per_second: float


class BreakEven(_Part):
    """Accept lengths at which the speed tips over.

    Attributes:
        wanted_tokens_per_second: the speed of the old side.
        accept_length: the accept length at which the new side would have it.
        floor: below this one, plain decoding is certainly not slower: a plain step costs at most one verify pass.
        note: what the figure rests on.
    """

    wanted_tokens_per_second: float
    accept_length: float
    floor: float | None
    note: Text


class Change(_Part):
    """One difference of the two snapshots, for the overview."""

    title: Text
    section: Text
    old: Text
    new: Text
    note: Text
    likelihood: float
    below: int
    switchable: bool


class Fact(_Part):
    """A name and a value, for the tables of figures and of method."""

    name: Text
    value: Text


class Report(_Part):
    """Everything that a format shows, in the order in which it is read."""

    kind: Text
    label: Text
    title: Text
    question: Text
    answer: Text
    more: tuple[Text, ...]
    actions: tuple[CommandLine, ...]
    advice: tuple[Text, ...]
    confidence: Text
    cost: Text
    figures: tuple[Fact, ...]
    steps: tuple[Step, ...]
    suspects: tuple[Suspect, ...]
    launches: tuple[Launch, ...]
    moments: tuple[Moment, ...]
    shares: tuple[Share, ...]
    remainder_ms: Interval | None
    old_ms: Interval | None
    new_ms: Interval | None
    gap_ms: Interval | None
    then_old_ms: float | None
    then_new_ms: float | None
    decimals: int
    metric: Text
    budget: tuple[BudgetRow, ...]
    speeds: tuple[Speed, ...]
    break_even: BreakEven | None
    changes: tuple[Change, ...]
    changes_in_all: int
    not_comparable: int
    unseen: tuple[Text, ...]
    unseen_in_all: int
    method: tuple[Fact, ...]
    command: CommandLine
    posterior: tuple[Fact, ...]
    host_differences: tuple[Text, ...]


def of_case(case: Case) -> Report:
    """The report of a case folder; of one that still runs or was interrupted, too.

    Raises:
        CaseError: there is no case, or it is damaged.
        SnapshotError: one of its snapshots is damaged.
    """
    from fingerprint.diff import compare
    from fingerprint.report.replay import outcome_so_far, replay

    old, new = case.old, case.new
    line, trials = case.journal.case(), case.journal.trials()
    replayed = replay(line, trials)
    finished = (case.folder / "verdict.json").exists()
    outcome = case.outcome() if finished else outcome_so_far(line, trials, replayed, old, new)
    return build(
        outcome, line, trials, case.journal.end(), old, new, compare(old, new), replayed.moments, finished=finished
    )


def build(
    outcome: Outcome,
    line: CaseLine,
    trials: Sequence[TrialLine],
    end: EndLine | None,
    old: Snapshot,
    new: Snapshot,
    comparison: Comparison,
    moments: Sequence[tuple[int, Mapping[str, float]]] = (),
    *,
    finished: bool = True,
) -> Report:
    """The report of a case.

    Args:
        outcome: the verdict with what surrounds it.
        line: the journal's first line.
        trials: its launches.
        end: its last line, if the bisect came to its end.
        old: the good side.
        new: the slow side.
        comparison: what differs between them.
        moments: after each launch, its number and the probability of each explanation.
        finished: whether the verdict is final.
    """
    decimals = decimals_for(outcome.sigma_ms[1]) if outcome.sigma_ms else 2
    launches = tuple(_launch(trial, trials[0].at, line) for trial in trials)
    scene = _Scene(outcome, line, launches, decimals, finished=finished)
    speeds, break_even = _speeds(scene, old)
    suspects = _suspects(scene)
    lines = comparison.lines()
    culprits = outcome.culprits
    gap = outcome.gap_ms
    return Report(
        kind=outcome.kind,
        label=_LABELS[outcome.kind] if finished else "Not finished",
        title=f"{scene.what} on {new.target}",
        question=_question(scene, old, new),
        answer=_answer(scene),
        more=_more(scene, speeds, break_even),
        actions=tuple(outcome.revert),
        advice=_advice(scene, suspects),
        confidence=_confidence(scene),
        cost=_cost(scene, trials, end),
        figures=_figures(scene, speeds, old, new),
        steps=_steps(scene, suspects),
        suspects=suspects,
        launches=launches,
        moments=tuple(Moment(launch=at, probabilities=dict(held)) for at, held in moments),
        shares=tuple(
            Share(
                title=scene.name(culprit),
                share=culprit.share,
                part_ms=(gap[1] * culprit.share[0], gap[1] * culprit.share[1], gap[1] * culprit.share[2]),
            )
            for culprit in culprits
            if gap is not None
        ),
        remainder_ms=outcome.remainder_ms,
        old_ms=outcome.old_ms,
        new_ms=outcome.new_ms,
        gap_ms=gap,
        then_old_ms=line.then_old_ms,
        then_new_ms=line.then_new_ms,
        decimals=decimals,
        metric=scene.metric,
        budget=_budget(scene),
        speeds=speeds,
        break_even=break_even,
        changes=tuple(
            Change(
                title=shown.difference.title,
                section=shown.difference.section,
                old=_value(shown.difference.old),
                new=_value(shown.difference.new),
                note=shown.difference.note,
                likelihood=shown.likelihood,
                below=sum(1 for _ in shown.members()) - 1,
                switchable=shown.difference.factor in scene.factors,
            )
            for shown in lines[:MOST_CHANGES]
        ),
        changes_in_all=len(lines),
        not_comparable=len(comparison.not_comparable),
        unseen=tuple(outcome.unseen[-3:] + outcome.unseen[:-3][:MOST_UNSEEN]),
        unseen_in_all=len(outcome.unseen),
        method=_method(scene, old, new, end),
        command=_command(line),
        posterior=tuple(
            Fact(name=explanation(one.structure, one.factors), value=probability(one.probability))
            for one in outcome.posterior[:12]
        ),
        host_differences=tuple(outcome.host_differences),
    )


_LABELS: Mapping[str, str] = {
    "reproduced": "Reproduced",
    "phantom": "Phantom",
    "healed": "Healed",
    "unstable": "Unstable",
    "attributed": "Attributed",
    "several": "Several causes",
    "interaction": "Interaction",
    "not switchable": "Not switchable",
    "undecided": "Undecided",
}


class _Scene:
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
        self.measured = [launch for launch in launches if launch.value_ms is not None and launch.status == "measured"]
        self.metric = outcome.metric or "verify_ms"
        self.what = self.metric.removesuffix("_ms")

    def arm(self, arm: Arm) -> list[Launch]:
        """Measured launches of one arm."""
        return [launch for launch in self.measured if launch.arm == arm]

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
        return f"{title} ({line.old} → {line.new})"

    def ms(self, interval: Interval, *, sign: bool = False) -> str:
        """An interval in ms."""
        return ms_interval(interval, self.decimals, sign=sign)

    def position(self, launch: Launch) -> float | None:
        """Where a launch lies between the old level (0) and the new one (1)."""
        old, gap = self.outcome.old_ms, self.outcome.gap_ms
        if launch.value_ms is None or old is None or gap is None or not gap[1]:
            return None
        return (launch.value_ms - old[1]) / gap[1]


def title_of(factor: str) -> str:
    """What a person calls a factor."""
    kind, _, name = factor.partition(":")
    if factor == "tree:commit":
        return "the commit of the source tree"
    if kind == "tree":
        return f"the local change of {name}"
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


def _launch(trial: TrialLine, began: datetime, line: CaseLine) -> Launch:
    all_factors = {factor.id for factor in line.factors}
    moved = set(trial.new)
    arm: Arm = "mixed"
    if not moved and all_factors:
        arm = "old"
    elif moved >= all_factors:
        arm = "new"
    figures = trial.figures
    return Launch(
        number=trial.number,
        at=trial.at,
        minutes=(trial.at - began).total_seconds() / 60,
        arm=arm,
        setting=_setting(moved, all_factors),
        new=tuple(sorted(moved)),
        status=trial.status,
        value_ms=trial.value_ms,
        reason=trial.reason,
        marks=tuple(trial.marks),
        parts={key: value for key, _ in PARTS if (value := _number(figures.get(key))) is not None},
        cycle_ms=_number(figures.get("cycle_ms")),
        accept_length=_number(figures.get("accept_length")),
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
        watch=_numbers(trial.watch),
        isolation=trial.isolation,
        seconds=dict(trial.seconds),
        outputs=str(figures.get("outputs") or ""),
    )


def _setting(moved: set[str], factors: set[str]) -> str:
    if not factors:
        return "as it is now"
    if not moved:
        return "everything old"
    if moved >= factors:
        return "everything new"
    if len(moved) == 1:
        return f"only {title_of(next(iter(moved)))} new"
    rest = factors - moved
    if len(rest) == 1:
        return f"all new but {title_of(next(iter(rest)))}"
    return f"{len(moved)} of {len(factors)} new"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e15:
        return None
    return float(value)


def _numbers(value: object) -> dict[str, float]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {str(name): held for name, one in pairs if (held := _number(one)) is not None}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []


def _value(leaf: object) -> str:
    if leaf is None:
        return "absent"
    if isinstance(leaf, Unread):
        return f"not read: {leaf.unread}"
    if isinstance(leaf, tuple):
        return " ".join(_value(item) for item in leaf[:40])
    return str(leaf)


# -- the first screen --------------------------------------------------------------------------------------------


def _question(scene: _Scene, old: Snapshot, new: Snapshot) -> str:
    line = scene.line
    days = f"on {old.taken_at:%Y-%m-%d}" if old.taken_at.date() != new.taken_at.date() else f"at {old.taken_at:%H:%M}"
    now = f"on {new.taken_at:%Y-%m-%d}" if old.taken_at.date() != new.taken_at.date() else f"at {new.taken_at:%H:%M}"
    if line.then_old_ms is not None and line.then_new_ms is not None:
        figures = f"took {ms(line.then_old_ms)} {days} and {ms(line.then_new_ms)} {now}"
    else:
        figures = f"was fast {days} and is slow {now}"
    return f"{scene.what.capitalize()} on {new.target} {figures}. What changed, and did that change do it?"


def _answer(scene: _Scene) -> str:
    outcome = scene.outcome
    if not scene.finished:
        found = f"{count(len(scene.launches), 'launch')} so far"
        return f"No verdict yet: {found}{_likeliest(outcome.posterior)}."
    match outcome.kind:
        case "attributed" | "several" | "interaction":
            return _blame(scene)
        case "phantom":
            return _phantom(scene)
        case "healed":
            new = scene.ms(outcome.new_ms) if outcome.new_ms else "as fast as the old side"
            return f"The slowdown is not there today: with everything new, {scene.what} takes {new}."
        case "unstable":
            sigma = scene.ms(outcome.sigma_ms) if outcome.sigma_ms else "too much"
            return (
                f"Launches of one and the same setting scatter by {sigma} (standard deviation): more than the gap, "
                "so no difference can be blamed or cleared."
            )
        case "not switchable":
            fixed = listing((title_of(one.id) for one in outcome.fixed), 4)
            named = f": {count(len(outcome.fixed), 'suspect')} left ({fixed})" if outcome.fixed else ""
            return f"Nothing that differs can be switched by a launch{named}. No trial can tell which of them it is."
        case _:
            return f"{count(outcome.launches, 'launch')} did not settle it{_likeliest(outcome.posterior)}."


def _likeliest(posterior: Sequence[Suspicion]) -> str:
    best = _best(posterior)
    if best is None:
        return ""
    return f"; likeliest: {explanation(best.structure, best.factors)} ({probability(best.probability)})"


def _best(posterior: Sequence[Suspicion]) -> Suspicion | None:
    return max(posterior, key=lambda one: one.probability, default=None)


def _blame(scene: _Scene) -> str:
    outcome, gap = scene.outcome, scene.outcome.gap_ms
    of_gap = f"of {scene.ms(gap, sign=True)} {scene.what}" if gap else "of the gap"
    plain_gap = f"of {ms(gap[1], scene.decimals, sign=True)} {scene.what}" if gap else "of the gap"
    first = outcome.culprits[0]
    match outcome.structure:
        case "and":
            return (
                f"{scene.name(first)} explain {percent_interval(first.share)} {plain_gap}, and only together: "
                "reverting either removes it."
            )
        case "or":
            names = " and ".join(scene.name(one) for one in outcome.culprits)
            return f"{names} each cause {of_gap.removeprefix('of ')} on their own; both must be reverted."
        case "adds" | "masked":
            parts = listing(f"{scene.name(one)} explains {percent_interval(one.share)}" for one in outcome.culprits)
            hides = any(one.share[1] < 0 for one in outcome.culprits)
            return f"{parts} {plain_gap}{'; a negative share hides part of the other' if hides else ''}."
        case _:
            proof = _proof_words(first)
            bundle = " (these move only together)" if first.bundle else ""
            return f"{scene.name(first)}{bundle} explains {percent_interval(first.share)} {plain_gap}; {proof}."


def _proof_words(culprit: Culprit) -> str:
    if culprit.sufficient and culprit.necessary:
        return "sufficient and necessary"
    if culprit.sufficient:
        return "sufficient; reverting it alone could not be launched"
    if culprit.necessary:
        return "necessary; setting it alone could not be launched"
    return "neither alone nor all-but-it could be launched"


def _phantom(scene: _Scene) -> str:
    outcome, then = scene.outcome, scene.outcome.then
    today = scene.ms(outcome.old_ms) if outcome.old_ms else "as long as the new side"
    restored = count(len(scene.factors), "difference")
    if then is not None:
        return (
            f"The old speed does not come back: with all {restored} restored, {scene.what} takes {today}, "
            f"not the {ms(then.old_ms)} of then. None of them made it slower."
        )
    return (
        f"There is no gap today: with all {restored} restored, {scene.what} takes {today}, the same as with "
        "everything new."
    )


def _more(scene: _Scene, speeds: Sequence[Speed], even: BreakEven | None) -> tuple[str, ...]:
    outcome = scene.outcome
    lines: list[str] = []
    if outcome.remainder_ms is not None and outcome.gap_ms is not None and outcome.structure in {"adds", "single"}:
        low, _, high = outcome.remainder_ms
        if low > 0 or high < 0:
            lines.append(f"{scene.ms(outcome.remainder_ms, sign=True)} of the gap is not explained by it.")
    if outcome.kind in {"phantom", "healed"} and speeds:
        now = speeds[-1]
        lines.append(
            f"So the speed of this host is {number(now.tokens_per_second)} tok/s, at accept length "
            f"{now.accept_length:.2f} and {number(now.cycle_ms)} ms a cycle."
        )
    if even is not None and outcome.kind != "healed":
        lines.append(
            f"It would take an accept length of {even.accept_length:.2f} to have "
            f"{number(even.wanted_tokens_per_second)} tok/s on the slow side."
        )
    return tuple(lines)


def _advice(scene: _Scene, suspects: Sequence[Suspect]) -> tuple[str, ...]:
    outcome = scene.outcome
    record = "Record this host as it is now, so that the next comparison starts from a figure that was measured."
    if not scene.finished:
        return ("Continue it with `fingerprint bisect --resume` and the same arguments.",)
    match outcome.kind:
        case "attributed" | "several":
            either = "All of these lines are needed." if len(outcome.revert) > 1 else ""
            return tuple(filter(None, [either, "Then restart the server, capture and measure it again."]))
        case "interaction":
            return ("Either of these lines is enough.", "Then restart the server, capture and measure it again.")
        case "phantom":
            return (
                "Do not revert any of the differences for speed: it would change nothing.",
                "Ask how the old figure was taken: which client, prompts, accept length, clocks and neighbours.",
                record,
            )
        case "healed":
            return ("Nothing is to be reverted.", record)
        case "unstable":
            return (
                "Make launches steadier first: lock the clocks, stop what else runs on the machine, measure longer.",
                "Then start the bisect again.",
            )
        case "not switchable":
            return (
                "Change one suspect by hand, capture with --measure, and compare; the likeliest first.",
                *(f"{title_of(one.id)}: {one.reason}" for one in outcome.fixed[:5]),
            )
        case _:
            still = [one.title for one in suspects if one.standing in {"open", "not tested"}]
            return tuple(
                filter(
                    None,
                    [
                        outcome.next,
                        f"Still open: {listing(still)}." if still else "",
                        "More launches: start the bisect again with a larger --budget.",
                    ],
                )
            )


def _confidence(scene: _Scene) -> str:
    outcome = scene.outcome
    held = {one.structure: one.probability for one in outcome.posterior if not one.factors}
    if not scene.finished:
        return "Open: the bisect has not come to its end."
    match outcome.kind:
        case "attributed" | "several" | "interaction":
            both = all(one.sufficient and one.necessary for one in outcome.culprits)
            blamed = {name for one in outcome.culprits for name in one.factors}
            against = sum(
                one.probability for one in outcome.posterior if one.structure != "other" and not blamed & one.factors
            )
            shown = (
                "set alone on the old side it causes the gap, reverted alone on the new side it removes it"
                if both
                else "not every confirmation could be launched"
            )
            return f"{how_sure(1 - against).capitalize()}: {shown}. Probability of innocence: {probability(against)}."
        case "phantom":
            none = held.get("none", 0.0)
            seen = ""
            if outcome.smallest_effect_ms is not None:
                seen = f" These launches would have shown a gap of {ms(outcome.smallest_effect_ms, scene.decimals)}."
            return f"{how_sure(none).capitalize()} that there is no gap today ({probability(none)}).{seen}"
        case "healed":
            chance = held.get("none", 0.0) + held.get("faster", 0.0)
            return f"{how_sure(chance).capitalize()} that the new side is not slower today ({probability(chance)})."
        case "unstable":
            return "Nothing is sure but the scatter itself."
        case "not switchable":
            return "Sure that no launch can tell; which suspect it is stays open."
        case _:
            best = _best(outcome.posterior)
            return f"Open: {probability(best.probability)} for the likeliest explanation." if best else "Open."


def _cost(scene: _Scene, trials: Sequence[TrialLine], end: EndLine | None) -> str:
    if not trials:
        return "no launch"
    last = trials[-1]
    until = end.at.timestamp() if end else last.at.timestamp() + last.seconds.get("whole", 0.0)
    words = [count(len(trials), "launch")]
    lost = len(trials) - len(scene.measured)
    if lost:
        words.append(f"{lost} of them without a figure")
    words.append(duration(max(0.0, until - scene.line.at.timestamp())))
    if scene.line.expected_launches is not None:
        words.append(f"about {scene.line.expected_launches:.0f} launches were expected")
    return ", ".join(words)


def _figures(scene: _Scene, speeds: Sequence[Speed], old: Snapshot, new: Snapshot) -> tuple[Fact, ...]:
    outcome = scene.outcome
    facts: list[Fact] = []

    def add(name: str, value: str) -> None:
        facts.append(Fact(name=name, value=value))

    for side, then, snapshot in (("old", scene.line.then_old_ms, old), ("new", scene.line.then_new_ms, new)):
        if then is not None:
            taken = snapshot.measured
            rest = ""
            if taken is not None and taken.value == then and taken.tokens_per_second is not None:
                rest = f", {number(taken.tokens_per_second)} tok/s"
            add(f"{side} side, in the past", f"{ms(then)}{rest}")
    if outcome.old_ms is not None and scene.factors:
        add("everything old, today", scene.ms(outcome.old_ms))
    if outcome.new_ms is not None:
        add("everything new, today", scene.ms(outcome.new_ms))
    if outcome.gap_ms is not None and outcome.kind not in {"phantom", "healed"} and scene.factors:
        add("gap today", scene.ms(outcome.gap_ms, sign=True))
    if outcome.sigma_ms is not None:
        add("scatter of launches", scene.ms(outcome.sigma_ms))
    if outcome.smallest_effect_ms is not None:
        add("smallest gap that would have shown", ms(outcome.smallest_effect_ms, scene.decimals))
    for speed in speeds:
        add(
            f"speed, {speed.side}",
            f"{number(speed.tokens_per_second)} tok/s at accept length {speed.accept_length:.2f}",
        )
    return tuple(facts)


# -- the chain of eliminations -----------------------------------------------------------------------------------


def _suspects(scene: _Scene) -> tuple[Suspect, ...]:
    outcome, line = scene.outcome, scene.line
    ranking = sorted(line.prior, key=lambda name: -line.prior[name])
    rank = {name: place for place, name in enumerate(ranking, 1)}
    out = []
    for factor in line.factors:
        standing, why, launches = _standing(scene, factor.id)
        out.append(
            Suspect(
                id=factor.id,
                title=title_of(factor.id),
                kind=factor.id.partition(":")[0],
                old=factor.old,
                new=factor.new,
                standing=standing,
                why=why,
                launches=launches,
                left=outcome.eliminated.get(factor.id),
                rank=rank.get(factor.id),
            )
        )
    for one in outcome.fixed:
        out.append(
            Suspect(
                id=one.id,
                title=title_of(one.id),
                kind=one.id.partition(":")[0],
                old=one.old,
                new=one.new,
                standing="cannot be switched",
                why=one.reason,
            )
        )
    order = ("cause", "open", "not tested", "ruled out", "not judged", "cannot be switched")
    return tuple(sorted(out, key=lambda one: (order.index(one.standing), one.rank or len(out), one.id)))


def _standing(scene: _Scene, factor: str) -> tuple[Standing, str, tuple[int, ...]]:
    outcome = scene.outcome
    for culprit in outcome.culprits:
        if factor in culprit.factors:
            return "cause", *_proof(scene, culprit)
    if outcome.kind == "phantom":
        restored = tuple(launch.number for launch in scene.arm("old"))
        return "ruled out", "with it and everything else restored it is as slow as before", restored
    if outcome.kind == "healed":
        return "not judged", "there is no gap today that it could have caused", ()
    if outcome.kind == "unstable":
        return "not judged", "the scatter of launches hides whatever it does", ()
    if not scene.arm("mixed") or outcome.gap_ms is None:
        return "not tested", "no launch had it apart from the others", ()
    fast, slow = [], []
    for launch in scene.measured:
        position = scene.position(launch)
        if position is not None and factor in launch.new and position < 0.3:
            fast.append(launch.number)
        if position is not None and factor not in launch.new and position > 0.7:
            slow.append(launch.number)
    words = []
    if fast:
        words.append(f"fast although it was new ({_numbers_words(fast)})")
    if slow:
        words.append(f"slow although it was old ({_numbers_words(slow)})")
    left = outcome.eliminated.get(factor)
    if left is not None:
        words = words or ["no single launch, all of them together"]
        return "ruled out", f"{'; '.join(words)}; {probability(left)} left", tuple(sorted({*fast[:1], *slow[:1]}))
    held = sum(one.probability for one in outcome.posterior if factor in one.factors)
    words.append(f"still {probability(held)} probable")
    return "open", "; ".join(words), tuple(sorted({*fast, *slow}))


def _numbers_words(numbers: Sequence[int]) -> str:
    return f"{'launch' if len(numbers) == 1 else 'launches'} {listing((str(one) for one in numbers), 5)}"


def _launches_at(scene: _Scene, evidence: Evidence) -> tuple[int, ...]:
    return tuple(launch.number for launch in scene.measured if set(launch.new) == evidence.new)


def _proof(scene: _Scene, culprit: Culprit) -> tuple[str, tuple[int, ...]]:
    words: list[str] = []
    numbers: list[int] = []
    for side, evidence in (("alone on the old side", culprit.sufficient), ("reverted alone", culprit.necessary)):
        if evidence is not None:
            at = _launches_at(scene, evidence)
            numbers += at
            words.append(
                f"{side}: {ms(evidence.measured_ms, scene.decimals)} ({_numbers_words(at)}), "
                f"not {ms(evidence.other_ms, scene.decimals)}"
            )
    return "; ".join(words) or "by the launches as a whole", tuple(sorted(set(numbers)))


def _steps(scene: _Scene, suspects: Sequence[Suspect]) -> tuple[Step, ...]:
    steps = [_step_today(scene), _step_same_work(scene)]
    outcome = scene.outcome
    for culprit in outcome.culprits:
        name = listing((title_of(factor) for factor in sorted(culprit.factors)), 4)
        for evidence, question in (
            (culprit.sufficient, f"Does {name} cause it, alone on the old side?"),
            (culprit.necessary, f"Is it gone with {name} alone reverted on the new side?"),
        ):
            if evidence is None:
                steps.append(Step(question=question, finding="That could not be launched.", settled=False))
            else:
                steps.append(
                    Step(
                        question=question,
                        finding=f"Yes: {ms(evidence.measured_ms, scene.decimals)}, where "
                        f"{ms(evidence.other_ms, scene.decimals)} would mean no.",
                        launches=_launches_at(scene, evidence),
                    )
                )
    for standing, question, settled in (
        ("ruled out", "What was ruled out?", True),
        ("open", "What is still open?", False),
        ("not tested", "What was never tested?", False),
        ("not judged", "What could not be judged?", False),
        ("cannot be switched", "What can no launch switch?", False),
    ):
        names = [one for one in suspects if one.standing == standing]
        if names:
            numbers = tuple(sorted({number_of for one in names for number_of in one.launches}))
            steps.append(
                Step(
                    question=question,
                    finding=f"{len(names)}: {listing((one.title for one in names), 8)}.",
                    launches=numbers if settled else (),
                    settled=settled,
                )
            )
    return tuple(steps)


def _step_today(scene: _Scene) -> Step:
    outcome = scene.outcome
    ends = tuple(launch.number for launch in scene.measured if launch.arm != "mixed")
    question = "Is the gap there today?"
    if not scene.factors:
        return Step(question=question, finding="It was not asked: no launch can have the old side.", settled=False)
    if outcome.old_ms is None or outcome.new_ms is None or outcome.gap_ms is None:
        return Step(question=question, finding="No pair of launches was measured.", launches=ends, settled=False)
    levels = f"everything old takes {scene.ms(outcome.old_ms)}, everything new {scene.ms(outcome.new_ms)}"
    if outcome.kind in {"phantom", "healed"}:
        return Step(question=question, finding=f"No: {levels}.", launches=ends)
    if outcome.kind == "unstable" or (outcome.evidence is not None and outcome.evidence < 20):
        return Step(question=question, finding=f"Not settled: {levels}.", launches=ends, settled=False)
    return Step(question=question, finding=f"Yes: {levels}.", launches=ends)


def _step_same_work(scene: _Scene) -> Step:
    question = "Did every launch do the same work?"
    outputs: dict[str, list[int]] = {}
    for launch in scene.measured:
        if launch.outputs:
            outputs.setdefault(launch.outputs, []).append(launch.number)
    accepted = [launch.accept_length for launch in scene.measured if launch.accept_length is not None]
    span = f"accept length {min(accepted):.2f} to {max(accepted):.2f}" if accepted else "no accept length was read"
    if not outputs:
        return Step(question=question, finding=f"Unknown: outputs were not recorded; {span}.", settled=False)
    if len(outputs) == 1:
        return Step(question=question, finding=f"Yes: the same tokens came out of all of them; {span}.")
    usual = max(outputs.values(), key=len)
    other = sorted(number_of for group in outputs.values() if group is not usual for number_of in group)
    return Step(
        question=question,
        finding=f"No: other tokens came out of {_numbers_words(other)}; {span}.",
        launches=tuple(other),
        settled=False,
    )


# -- where the time goes -----------------------------------------------------------------------------------------


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _budget(scene: _Scene) -> tuple[BudgetRow, ...]:
    rows = [
        BudgetRow(
            part=name,
            old_ms=_median(launch.parts.get(key) for launch in scene.arm("old")),
            new_ms=_median(launch.parts.get(key) for launch in scene.arm("new")),
        )
        for key, name in PARTS
    ]
    if all(row.old_ms is None and row.new_ms is None for row in rows):
        return ()
    return tuple(rows)


def _speeds(scene: _Scene, old: Snapshot) -> tuple[tuple[Speed, ...], BreakEven | None]:
    """The speed of each side today, and the accept length that would make up for the difference."""
    speeds: list[Speed] = []
    sides: tuple[tuple[Arm, str], ...] = (("old", "everything old, today"), ("new", "everything new, today"))
    for arm, side in sides:
        cycle = _median(launch.cycle_ms for launch in scene.arm(arm))
        accept = _median(launch.accept_length for launch in scene.arm(arm))
        if cycle and accept:
            speeds.append(
                Speed(side=side, cycle_ms=cycle, accept_length=accept, tokens_per_second=1000 * accept / cycle)
            )
    if len(speeds) < 2:
        return tuple(speeds), None
    before, after = speeds
    then = old.measured
    note = "same cycle parts, same requests; tokens a second are accept length over cycle time"
    wanted = before.tokens_per_second
    if scene.outcome.kind in {"phantom", "healed"}:
        if then is not None and then.tokens_per_second is not None:
            wanted, note = then.tokens_per_second, "the speed that the old snapshot recorded"
        elif scene.line.then_old_ms is not None and scene.metric == "verify_ms":
            verify = _median(launch.parts.get("verify_ms") for launch in scene.arm("new"))
            if verify is None or after.cycle_ms - verify + scene.line.then_old_ms <= 0:
                return tuple(speeds), None
            cycle_then = after.cycle_ms - verify + scene.line.then_old_ms
            wanted = 1000 * after.accept_length / cycle_then
            note = "the old verify time, with the other parts of the cycle as they are today"
        else:
            return tuple(speeds), None
    verify_now = _median(launch.parts.get("verify_ms") for launch in scene.arm("new"))
    return tuple(speeds), BreakEven(
        wanted_tokens_per_second=wanted,
        accept_length=wanted * after.cycle_ms / 1000,
        floor=after.cycle_ms / verify_now if verify_now else None,
        note=note,
    )


# -- for the doubter ---------------------------------------------------------------------------------------------


def _command(line: CaseLine) -> str:
    words = ["fingerprint", "bisect", "old.json", "new.json", "--target", line.target, "--seed", str(line.seed)]
    for option, value in (
        ("--then-old", line.then_old_ms),
        ("--then-new", line.then_new_ms),
        ("--budget", line.budget),
    ):
        if value is not None:
            words += [option, f"{value:g}"]
    return shlex.join([*words, "--case", "again"])


def _method(scene: _Scene, old: Snapshot, new: Snapshot, end: EndLine | None) -> tuple[Fact, ...]:
    line, outcome = scene.line, scene.outcome
    isolation = sorted({launch.isolation for launch in scene.launches if launch.isolation})
    orders = [launch.arm for launch in scene.measured if launch.arm != "mixed"]
    turns = sum(1 for one, other in pairwise(orders) if one != other)
    facts = [
        ("figure", f"{scene.metric}, source: {outcome.source or 'unknown'}; the median over the requests of a launch"),
        ("unit", "one launch of the server is one measurement; requests within it are not counted as independent"),
        ("order", f"chosen by the search after every launch; the two ends took turns {turns} times"),
        (
            "model",
            "every explanation places a launch between the old and the new level; noise is normal with a wide tail, "
            "and a slow drift is allowed for; all intervals are 90 %",
        ),
        ("evidence for a gap", f"{number(outcome.evidence)} to 1" if outcome.evidence is not None else "none"),
        (
            "assumptions",
            "at most two changes act, alone, together or in shares; what else happened on the machine hit launches "
            "by chance; anything else is the explanation “none of the simple ones”",
        ),
        ("engine", line.engine),
        ("how factors are switched", listing(isolation) or "not recorded"),
        ("seed", str(line.seed)),
        ("budget", str(line.budget) if line.budget is not None else "the search's own"),
        ("tool", f"fingerprint {line.tool}; snapshots by {old.tool} and {new.tool}"),
        ("old snapshot", f"{line.old}, taken {old.taken_at:%Y-%m-%d %H:%M %Z} of {old.target}"),
        ("new snapshot", f"{line.new}, taken {new.taken_at:%Y-%m-%d %H:%M %Z} of {new.target}"),
        ("host before and after", _host_words(outcome, end)),
    ]
    return tuple(Fact(name=name, value=value) for name, value in facts)


def _host_words(outcome: Outcome, end: EndLine | None) -> str:
    before, after = outcome.host_before, outcome.host_after
    if end is None or before is None or after is None:
        return "not read again: the bisect did not come to its end"
    if before == after:
        return f"the same: {before[:16]}"
    differences = count(len(outcome.host_differences), "difference")
    return f"{before[:16]} and {after[:16]}: {differences}"
