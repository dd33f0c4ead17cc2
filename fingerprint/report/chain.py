"""How it was found out: each suspect and what became of it, and the steps in the order in which a reader needs them.

Only a launch rules out. What no launch had apart from the others is "not tested", whatever its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

from fingerprint.report.model import (
    Standing,
    Step,
    Suspect,
)
from fingerprint.report.scene import Scene, title_of
from fingerprint.report.screen import decided
from fingerprint.report.words import (
    listing,
    ms,
    probability,
)

if TYPE_CHECKING:
    from fingerprint.bisect.verdict import Culprit, Evidence

LEFT = 0.05
"""A difference is ruled out when less than this is left of it among the explanations that blame a difference ..."""
SIMPLE = 0.8
"""... and when those hold at least so much: what fits no simple explanation clears nobody."""


def suspects_of(scene: Scene) -> tuple[Suspect, ...]:
    """Every difference and what became of it: causes, then what is open, then the rest by suspicion."""
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
                name=factor.id.partition(":")[2],
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
    out += [
        Suspect(
            id=one.id,
            title=title_of(one.id),
            name=one.id.partition(":")[2],
            kind=one.id.partition(":")[0],
            old=one.old,
            new=one.new,
            standing="cannot be switched",
            why=one.reason,
        )
        for one in outcome.fixed
    ]
    order = ("cause", "open", "not tested", "ruled out", "not judged", "cannot be switched")
    return tuple(sorted(out, key=lambda one: (order.index(one.standing), one.rank or len(out), one.id)))


def _standing(scene: Scene, factor: str) -> tuple[Standing, str, tuple[int, ...]]:
    outcome = scene.outcome
    for culprit in outcome.culprits:
        if factor in culprit.factors:
            return "cause", *_proof(scene, culprit)
    if outcome.kind == "phantom":
        restored = tuple(launch.number for launch in scene.arm("old"))
        said = f"with it and everything else restored it is as slow as before ({_numbers_words(restored)})"
        return "ruled out", said, restored
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
    if _cleared(left, scene):
        words = words or ["no single launch, all of them together"]
        if scene.simple < SIMPLE:
            return "open", f"{'; '.join(words)}; {_not_simple(scene)}", tuple(sorted({*fast, *slow}))
        return "ruled out", f"{'; '.join(words)}; {probability(left)} left", tuple(sorted({*fast[:1], *slow[:1]}))
    held = left or sum(one.probability for one in outcome.posterior if factor in one.factors)
    words.append(f"still {probability(held)} probable")
    return "open", "; ".join(words), tuple(sorted({*fast, *slow}))


def _cleared(left: float | None, scene: Scene) -> TypeGuard[float]:
    """Whether next to nothing is left of a difference among the explanations that blame one."""
    return left is not None and left < LEFT * scene.simple


def _not_simple(scene: Scene) -> str:
    """Why a difference stays open that no simple explanation needs."""
    return f"open because {probability(1 - scene.simple)} is left for explanations that need none of them"


def _numbers_words(numbers: Sequence[int]) -> str:
    return f"{'launch' if len(numbers) == 1 else 'launches'} {listing((str(one) for one in numbers), 5)}"


def _launches_at(scene: Scene, evidence: Evidence) -> tuple[int, ...]:
    return tuple(launch.number for launch in scene.measured if set(launch.new) == evidence.new)


def _proof(scene: Scene, culprit: Culprit) -> tuple[str, tuple[int, ...]]:
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


def steps_of(scene: Scene, suspects: Sequence[Suspect]) -> tuple[Step, ...]:
    """The chain of questions, each with its finding and the launches that show it."""
    steps = [_step_today(scene)]
    if scene.measured:
        steps.append(_step_same_work(scene))
    outcome = scene.outcome
    for culprit in scene.culprits:
        name = listing((title_of(factor) for factor in sorted(culprit.factors)), 4)
        it = "its share" if outcome.structure in {"adds", "masked"} else "it"
        for evidence, question in (
            (culprit.sufficient, f"Does {name} cause {it}, alone on the old side?"),
            (culprit.necessary, f"Is {it} gone with {name} alone reverted on the new side?"),
        ):
            if evidence is None:
                steps.append(Step(question=question, finding="That could not be launched.", settled=False))
            else:
                steps.append(
                    Step(
                        question=question,
                        finding=_confirmed(scene, evidence),
                        launches=_launches_at(scene, evidence),
                    )
                )
        if told := decided(scene, culprit):
            steps.append(
                Step(
                    question=f"What does the engine itself say that it does otherwise with {name}?",
                    finding=f"{'; '.join(told)}.",
                    launches=tuple(sorted({number for one in scene.decisions(culprit) for number in one.launches})),
                )
            )
    for one in outcome.opened:
        if one.verdict is not None:
            found = listing((part.title for part in one.culprits), 4)
            steps.append(
                Step(
                    question=f"What is it inside {one.title or title_of(one.of)}, of {len(one.parts)} parts?",
                    finding=f"{found[:1].upper()}{found[1:]}." if found else one.verdict.sentence,
                    launches=tuple(launch.number for launch in scene.launches if launch.inside == one.of),
                    settled=bool(found),
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
            unneeded = standing == "open" and all(_cleared(one.left, scene) for one in names)
            why = f"; {_not_simple(scene)}" if unneeded else ""
            steps.append(
                Step(
                    question=question,
                    finding=f"{len(names)}: {listing((one.title for one in names), 8)}{why}.",
                    launches=numbers if settled else (),
                    settled=settled,
                )
            )
    return tuple(steps)


def _confirmed(scene: Scene, evidence: Evidence) -> str:
    measured, other = ms(evidence.measured_ms, scene.decimals), ms(evidence.other_ms, scene.decimals)
    yes = abs(evidence.measured_ms - evidence.expected_ms) < abs(evidence.measured_ms - evidence.other_ms)
    return f"{'Yes' if yes else 'Not clearly'}: {measured}, where {other} would mean no."


def _step_today(scene: Scene) -> Step:
    outcome = scene.outcome
    ends = tuple(launch.number for launch in scene.measured if launch.arm != "mixed")
    question = "Is the gap there today?"
    if not scene.factors:
        return Step(question=question, finding="It was not asked: no launch can have the old side.", settled=False)
    if outcome.old_ms is None or outcome.new_ms is None or outcome.gap_ms is None:
        return Step(question=question, finding="No pair of launches was measured.", launches=ends, settled=False)
    levels = f"everything old takes {scene.ms(outcome.old_ms)}, everything new {scene.ms(outcome.new_ms)}"
    if outcome.kind in {"phantom", "healed"}:
        seen = f"everything old takes {scene.seen('old')}, everything new {scene.seen('new')}"
        return Step(question=question, finding=f"No: {seen}.", launches=ends)
    if not scene.settled:
        return Step(question=question, finding=f"Not settled: {levels}.", launches=ends, settled=False)
    return Step(question=question, finding=f"Yes: {levels}.", launches=ends)


def _step_same_work(scene: Scene) -> Step:
    question = "Did every launch do the same work?"
    outputs: dict[str, list[int]] = {}
    for launch in scene.measured:
        if launch.outputs:
            outputs.setdefault(launch.outputs, []).append(launch.number)
    accepted = [launch.accept_length for launch in scene.measured if launch.accept_length is not None]
    span = f"accept length {min(accepted):.2f} to {max(accepted):.2f}" if accepted else "no accept length was read"
    if scene.line.accept_length is not None:
        return Step(question=question, finding=f"By order, not by their words: it was fixed; {span}.")
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
