"""From a case to its report: pure but for `of_case`, which reads the folder."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fingerprint.case import NEVER_SEEN
from fingerprint.errors import CaseError
from fingerprint.report.boards import boards_of
from fingerprint.report.chain import steps_of, suspects_of
from fingerprint.report.model import (
    PARTS,
    Arm,
    BreakEven,
    BudgetRow,
    Change,
    Fact,
    Moment,
    Report,
    Share,
    Speed,
)
from fingerprint.report.scene import Scene, explanation, launch_of
from fingerprint.report.screen import advice, answer, confidence, cost, figures, host_of, more, question
from fingerprint.report.words import (
    count,
    decimals_for,
    listing,
    number,
    probability,
)
from fingerprint.speed import accept_length_for, tokens_per_second
from snapshots import Unread

if TYPE_CHECKING:
    from fingerprint.bisect.journal import CaseLine, EndLine, OpenLine, TrialLine
    from fingerprint.case import Case, Outcome
    from fingerprint.diff import Comparison
    from snapshots import Snapshot


MOST_CHANGES = 60
LARGEST_FIGURE = 1e9
"""In ms, hours or seconds: nothing that is measured here lasts as long."""
MOST_UNSEEN = 60

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
    _refuse_nonsense(None, line, trials)
    replayed = replay(line, trials)
    finished = (case.folder / "verdict.json").exists()
    outcome = case.outcome() if finished else outcome_so_far(line, trials, replayed, old, new)
    return build(
        outcome,
        line,
        trials,
        case.journal.end(),
        old,
        new,
        compare(old, new),
        replayed.moments,
        case.journal.opened(),
        finished=finished,
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
    opened: Sequence[OpenLine] = (),
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
        opened: the culprits that were opened.
        finished: whether the verdict is final.

    Raises:
        CaseError: a file of the case holds figures that no launch can have.
    """
    _refuse_nonsense(outcome, line, trials)
    decimals = decimals_for(outcome.sigma_ms[1]) if outcome.sigma_ms else 2
    launches = tuple(launch_of(trial, trials[0].at, line, opened) for trial in trials)
    scene = Scene(outcome, line, launches, decimals, finished=finished)
    speeds, break_even = speeds_of(scene, old)
    suspects = suspects_of(scene)
    lines = comparison.lines()
    unseen = _unseen(outcome.unseen)
    culprits = scene.culprits
    gap = outcome.gap_ms
    return Report(
        kind=outcome.kind,
        label=_LABELS[outcome.kind] if finished else "Not finished",
        title=f"{scene.what} on {host_of(new)}",
        question=question(scene, old, new),
        answer=answer(scene),
        more=more(scene, speeds, break_even),
        actions=tuple(outcome.revert),
        advice=advice(scene, suspects),
        confidence=confidence(scene),
        cost=cost(scene, trials, end),
        figures=figures(scene, speeds, old, new),
        steps=steps_of(scene, suspects),
        suspects=suspects,
        launches=launches,
        boards=boards_of(old, new),
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
        budget=budget_of(scene),
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
                switchable=shown.difference.factor in scene.switched,
            )
            for shown in lines[:MOST_CHANGES]
        ),
        changes_in_all=len(lines),
        not_comparable=len(comparison.not_comparable),
        unseen=tuple(unseen[:MOST_UNSEEN]),
        unseen_in_all=len(unseen),
        method=method_of(scene, old, new, end),
        command=command_of(line),
        posterior=tuple(
            Fact(name=explanation(one.structure, one.factors), value=probability(one.probability))
            for one in outcome.posterior[:12]
        ),
        host_differences=tuple(outcome.host_differences),
    )


def _refuse_nonsense(outcome: Outcome | None, line: CaseLine, trials: Sequence[TrialLine]) -> None:
    """Refuse figures that are no numbers, or absurd ones: somebody else wrote them."""
    parts: list[tuple[str, object]] = [("journal.jsonl", line.model_dump())]
    if outcome is not None:
        odds: Any = {"evidence": True, "opened": {"__all__": {"verdict": {"evidence"}}}}  # these have no largest value
        parts.append(("verdict.json", outcome.model_dump(exclude=odds)))
    parts += [("journal.jsonl", trial.model_dump(exclude={"figures", "watch", "proof"})) for trial in trials]
    for name, part in parts:
        if not all(math.isfinite(value) and abs(value) <= LARGEST_FIGURE for value in _floats(part)):
            raise CaseError(f"{name} holds a figure that no launch can have; is this the folder as it was written?")


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _floats(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _floats(one)


def _unseen(lines: Sequence[str]) -> list[str]:
    """What no snapshot ever sees first; then what these did not, said once where both did not."""
    always = [line for line in lines if line in NEVER_SEEN]
    old, new = ([line for line in lines if line.startswith(side)] for side in ("old: ", "new: "))
    both = {line.removeprefix("old: ") for line in old} & {line.removeprefix("new: ") for line in new}
    rest = [line for line in lines if line not in always and line[5:] not in both]
    return [*always, *(line.removeprefix("old: ") for line in old if line[5:] in both), *rest]


def _value(leaf: object) -> str:
    if leaf is None:
        return "absent"
    if isinstance(leaf, Unread):
        return f"not read: {leaf.unread}"
    if isinstance(leaf, tuple):
        return " ".join(_value(item) for item in leaf[:40])
    return str(leaf)


# -- where the time goes -----------------------------------------------------------------------------------------


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def budget_of(scene: Scene) -> tuple[BudgetRow, ...]:
    """The parts of a cycle on both sides; empty where nothing was timed."""
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


def speeds_of(scene: Scene, old: Snapshot) -> tuple[tuple[Speed, ...], BreakEven | None]:
    """The speed of each side's launches today, and the accept length that would make up for the difference."""
    if scene.line.accept_length is not None:
        return (), None
    speeds: list[Speed] = []
    sides: tuple[tuple[Arm, str], ...] = (("old", "everything old, today"), ("new", "everything new, today"))
    for arm, side in sides:
        cycle = _median(launch.cycle_ms for launch in scene.arm(arm))
        accept = _median(launch.accept_length for launch in scene.arm(arm))
        if cycle and accept:
            speeds.append(
                Speed(
                    side=side, cycle_ms=cycle, accept_length=accept, tokens_per_second=tokens_per_second(accept, cycle)
                )
            )
    if len(speeds) < 2 or scene.outcome.kind == "healed" or not (scene.settled or scene.outcome.kind == "phantom"):
        return tuple(speeds), None
    if scene.outcome.kind == "phantom":
        return tuple(speeds), _as_fast_as_then(scene, speeds[1], old)
    return tuple(speeds), _made_up_for(scene, speeds[0])


def _made_up_for(scene: Scene, before: Speed) -> BreakEven | None:
    """What the gap costs, and the accept length that would make up for it.

    Not the two sides' speeds: each is of a launch or two, and the host's share of a cycle may move by more between two
    launches than the gap is.
    """
    gap_ms = scene.outcome.gap_ms
    if gap_ms is None or gap_ms[1] <= 0:
        return None
    return _break_even(
        scene,
        wanted=before.tokens_per_second,
        cycle_ms=before.cycle_ms + gap_ms[1],
        accept_length=before.accept_length,
        note="the old side's cycle today, longer by the gap; tokens a second are accept length over cycle time",
    )


def _as_fast_as_then(scene: Scene, now: Speed, old: Snapshot) -> BreakEven | None:
    """The accept length at which today's host would have the speed that did not come back."""
    then = old.measured
    if then is not None and then.tokens_per_second is not None:
        wanted, note = then.tokens_per_second, "the speed that the old snapshot recorded"
    elif scene.line.then_old_ms is not None and scene.metric == "verify_ms":
        verify = _verify_now(scene)
        if verify is None or now.cycle_ms - verify + scene.line.then_old_ms <= 0:
            return None
        cycle_then = now.cycle_ms - verify + scene.line.then_old_ms
        wanted = tokens_per_second(now.accept_length, cycle_then)
        note = "the old verify time, with the other parts of the cycle as they are today"
    else:
        return None
    return _break_even(scene, wanted=wanted, cycle_ms=now.cycle_ms, accept_length=now.accept_length, note=note)


def _break_even(scene: Scene, *, wanted: float, cycle_ms: float, accept_length: float, note: str) -> BreakEven:
    verify = _verify_now(scene)
    return BreakEven(
        wanted_tokens_per_second=wanted,
        cycle_ms=cycle_ms,
        tokens_per_second=tokens_per_second(accept_length, cycle_ms),
        at_accept_length=accept_length,
        accept_length=accept_length_for(wanted, cycle_ms),
        most=next((launch.most_accepted for launch in scene.arm("new") if launch.most_accepted), None),
        floor=cycle_ms / verify if verify else None,
        note=note,
    )


def _verify_now(scene: Scene) -> float | None:
    return _median(launch.parts.get("verify_ms") for launch in scene.arm("new"))


# -- for the doubter ---------------------------------------------------------------------------------------------


def command_of(line: CaseLine) -> str:
    """The command that does it again."""
    words = ["fingerprint", "bisect", "old.json", "new.json", "--target", line.target, "--seed", str(line.seed)]
    for option, value in (
        ("--then-old", line.then_old_ms),
        ("--then-new", line.then_new_ms),
        ("--budget", line.budget),
    ):
        if value is not None:
            words += [option, f"{value:g}"]
    return shlex.join([*words, *line.asked, "--case", "again"])


def method_of(scene: Scene, old: Snapshot, new: Snapshot, end: EndLine | None) -> tuple[Fact, ...]:
    """What a doubter asks: how it was measured, decided and switched, by which versions."""
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
            (
                "every explanation places a launch between the old and the new level; scatter is normal with a wide "
                "tail; slow drift is allowed for; all intervals are 90 %"
            ),
        ),
        ("evidence for a gap", f"{number(outcome.evidence)} to 1" if outcome.evidence is not None else "none"),
        (
            "assumptions",
            (
                "at most two changes act, alone, together or in shares; what else happened on the machine hit launches "
                "by chance; anything else is the explanation “none of the simple ones”"
            ),
        ),
        ("engine", line.engine),
        ("every launch", "; ".join(line.conditions) or "not recorded"),
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
