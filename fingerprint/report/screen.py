"""The first screen, in words: what was asked, the answer, what to do now, how sure it is, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fingerprint.case import NEVER_SEEN
from fingerprint.report.model import (
    BreakEven,
    Fact,
    Speed,
    Suspect,
)
from fingerprint.report.scene import Scene, explanation, title_of
from fingerprint.report.words import (
    count,
    duration,
    how_sure,
    listing,
    ms,
    number,
    out_of_reach,
    percent_interval,
    probability,
)
from fingerprint.speed import accept_length_for

if TYPE_CHECKING:
    from fingerprint.bisect.journal import ControlLine, EndLine, TrialLine
    from fingerprint.bisect.verdict import Culprit, Suspicion
    from snapshots import Snapshot


def question(scene: Scene, old: Snapshot, new: Snapshot) -> str:
    """What was asked, with the figures of the past where they are known."""
    line = scene.line
    days, now = _moments(old.taken_at, new.taken_at)
    if line.then_old_ms is not None and line.then_new_ms is not None:
        figures = f"took {ms(line.then_old_ms)} {days} and {ms(line.then_new_ms)} {now}"
    else:
        figures = f"was fast {days} and is slow {now}"
    return f"{scene.what.capitalize()} on {host_of(new)} {figures}. What changed, and did that change do it?"


def _moments(old: datetime, new: datetime) -> tuple[str, str]:
    """Two times, as exact as it takes to tell them apart."""
    if old.date() != new.date():
        form = "on %Y-%m-%d"
    else:
        form = "at %H:%M" if abs(old - new).total_seconds() >= 60 else "at %H:%M:%S"
    return old.strftime(form), new.strftime(form)


def host_of(snapshot: Snapshot) -> str:
    """What the host is called: the target, and its own name where the target is this machine."""
    if snapshot.target == "local":
        return snapshot.host.name or "this machine"
    return snapshot.target


def answer(scene: Scene) -> str:
    """The verdict in one sentence, with its number and interval."""
    outcome = scene.outcome
    if not scene.finished:
        found = f"{count(len(scene.launches), 'launch')} so far"
        return f"No verdict yet: {found}{_likeliest(outcome.posterior)}."
    match outcome.kind:
        case "attributed" | "several" | "interaction":
            words = _blame(scene)
            return words[:1].upper() + words[1:] if words.startswith("the ") else words
        case "phantom":
            return _phantom(scene)
        case "healed":
            new = scene.ms(outcome.new_ms) if outcome.new_ms else "as long as the old side"
            then = f", not the {ms(outcome.then.new_ms)} of then" if outcome.then is not None else ""
            return f"The slowdown is not there today: with everything new, {scene.what} takes {new}{then}."
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
            if outcome.old_ms is None and outcome.sentence:
                return outcome.sentence  # the search knows which end cannot be launched
            return f"{count(outcome.launches, 'launch')} did not settle it{_likeliest(outcome.posterior)}."


def _likeliest(posterior: Sequence[Suspicion]) -> str:
    best = _best(posterior)
    if best is None:
        return ""
    return f"; likeliest: {explanation(best.structure, best.factors)} ({probability(best.probability)})"


def _best(posterior: Sequence[Suspicion]) -> Suspicion | None:
    return max(posterior, key=lambda one: one.probability, default=None)


def _blame(scene: Scene) -> str:
    outcome, gap = scene.outcome, scene.outcome.gap_ms
    of_gap = f"of {scene.ms(gap, sign=True)} {scene.what}" if gap else "of the gap"
    plain_gap = f"of {ms(gap[1], scene.decimals, sign=True)} {scene.what}" if gap else "of the gap"
    first = scene.culprits[0]
    match outcome.structure:
        case "and":
            return (
                f"{scene.name(first)} explain {percent_interval(first.share)} {plain_gap}, and only together: "
                "reverting either removes it."
            )
        case "or":
            names = " and ".join(scene.name(one) for one in scene.culprits)
            return f"{names} each cause {of_gap.removeprefix('of ')} on their own; both must be reverted."
        case "adds" | "masked":
            parts = listing(f"{scene.name(one)} explains {percent_interval(one.share)}" for one in scene.culprits)
            hides = any(one.share[1] < 0 for one in scene.culprits)
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


def _phantom(scene: Scene) -> str:
    outcome, then = scene.outcome, scene.outcome.then
    today = scene.ms(outcome.old_ms) if outcome.old_ms else "as long as the new side"
    restored = count(len(scene.factors), "difference")
    if then is not None and then.gap_ms > 0:
        return (
            f"The old speed does not come back: with all {restored} restored, {scene.what} takes {today}, "
            f"not the {ms(then.old_ms)} of then. None of them made it slower."
        )
    new = f"and {scene.ms(outcome.new_ms)}" if outcome.new_ms and not scene.pooled else "the same as"
    before = f", and was not in the past ({ms(then.old_ms)}, then {ms(then.new_ms)})" if then is not None else ""
    return (
        f"The new side is not slower today{before}: with all {restored} restored, {scene.what} takes {today}, {new} "
        "with everything new."
    )


def more(scene: Scene, speeds: Sequence[Speed], even: BreakEven | None) -> tuple[str, ...]:
    """What follows from the answer: the part not explained, and what the speed is."""
    outcome = scene.outcome
    lines: list[str] = [*inside(scene)]
    if outcome.remainder_ms is not None and outcome.gap_ms is not None and outcome.structure in {"adds", "single"}:
        low, _, high = outcome.remainder_ms
        if low > 0 or high < 0:
            lines.append(f"{scene.ms(outcome.remainder_ms, sign=True)} of the gap is not explained by it.")
    if scene.finished and outcome.kind == "phantom" and outcome.unseen:
        lines.append(f"What neither snapshot could see may have: {'; '.join(outcome.unseen[-len(NEVER_SEEN) :][:2])}.")
    lines += [
        f"With {scene.name(culprit)} the engine decided otherwise: {listing(told, 4)}."
        for culprit in scene.culprits
        if (told := decided(scene, culprit))
    ]
    if scene.line.compared:
        lines.append(f"Launches are compared by {scene.metric}: {scene.line.compared}.")
    if scene.line.accept_length is not None:
        lines.append(
            f"The accept length of every launch was fixed at {scene.line.accept_length:g}: speeds are not known."
        )
    if outcome.kind in {"phantom", "healed"} and speeds:
        now = speeds[-1]
        lines.append(
            f"So the speed of this host is {number(now.tokens_per_second)} tok/s, at accept length "
            f"{now.accept_length:.2f} and {number(now.cycle_ms)} ms a cycle."
        )
    lines += _plainly(scene, speeds)
    if even is not None:
        reach = out_of_reach(even.accept_length, even.most)
        wanted = number(even.wanted_tokens_per_second)
        if outcome.kind == "phantom":
            lines.append(
                f"It would take an accept length of {even.accept_length:.2f} to have {wanted} tok/s here{reach}."
            )
        else:
            lines.append(
                f"The gap turns {wanted} tok/s into {number(even.tokens_per_second)} at an accept length of "
                f"{even.at_accept_length:.2f}; one of {even.accept_length:.2f} would make up for it{reach}."
            )
            lines += _unlike_hosts(scene)
    return tuple(lines)


def _unlike_hosts(scene: Scene) -> list[str]:
    """Said where the launches' own speeds are no measure of the gap."""
    host = [launch.parts["host_ms"] for launch in scene.measured if "host_ms" in launch.parts]
    gap_ms = scene.outcome.gap_ms
    if scene.metric != "verify_ms" or not host or gap_ms is None or max(host) - min(host) <= gap_ms[1]:
        return []
    share = f"the host's share of their cycles was {_from_to(host)} ms and moves by more than the gap"
    return [f"What single launches had in tok/s does not show it: {share}."]


def _plainly(scene: Scene, speeds: Sequence[Speed]) -> list[str]:
    """What plain decoding gives today, and the accept length at which speculation breaks even with it.

    Which is faster is left open where the launches of plain decoding lie farther apart than the two.
    """
    lines = []
    for side, controls in _by_side(scene.outcome.controls).items():
        plain = sorted(one.tokens_per_second for one in controls if one.tokens_per_second is not None)
        if not plain:
            lines.append(f"Plain decoding was not measured with {side}: {controls[0].reason}.")
            continue
        words = f"Plain decoding gives {_from_to(plain)} tok/s ({count(len(plain), 'launch')}) with {side}"
        for speed in speeds:
            if speed.side.startswith(side):
                needed = [accept_length_for(one, speed.cycle_ms) for one in plain]
                words += f": speculation breaks even at an accept length of {_from_to(needed, '.2f')}"
                words += f", and has {speed.accept_length:.2f}"
                apart = needed[-1] - needed[0]
                if needed[0] - apart <= speed.accept_length <= needed[-1] + apart:
                    words += "; these launches lie too far apart to tell which is faster"
        lines.append(f"{words}.")
    return lines


def _by_side(controls: Sequence[ControlLine]) -> dict[str, list[ControlLine]]:
    sides: dict[str, list[ControlLine]] = {}
    for one in controls:
        sides.setdefault(f"everything {one.side}", []).append(one)
    return dict(sorted(sides.items(), reverse=True))  # old first


def _from_to(values: Sequence[float], form: str = "") -> str:
    """The least and the greatest of some values; one of them where they read alike."""
    low, high = (format(one, form) if form else number(one) for one in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def decided(scene: Scene, culprit: Culprit) -> list[str]:
    """What the engine decided otherwise with a culprit: `graph mode: every decode pass → no decode pass`."""
    return [f"{one.name}: {_or_nothing(one.old)} → {_or_nothing(one.new)}" for one in scene.decisions(culprit)]


def _or_nothing(value: str | None) -> str:
    return "nothing said" if value is None else value


RESTART = "Then restart the server, capture and measure it again."


def _where(lines: Sequence[str]) -> str:
    """Where to type lines that take contents out of the old snapshot."""
    return (
        "Type them in the folder of this report: old.json lies there."
        if any("old.json" in line for line in lines)
        else ""
    )


def inside(scene: Scene) -> tuple[str, ...]:
    """What was found inside of the culprits, a sentence each."""
    lines = []
    for one in scene.outcome.opened:
        what = one.title or title_of(one.of)
        if one.reason:
            lines.append(f"Inside {what} nothing was searched: {one.reason}.")
        elif one.verdict is None:
            lines.append(f"Inside {what} there is one part alone: {one.parts[0].title}.")
        elif one.verdict.culprits:
            names = listing((part.title for part in one.culprits), 4)
            first = one.verdict.culprits[0]
            whole = f" {percent_interval(first.share)} of it" if len(one.verdict.culprits) == 1 else ""
            apart = ", which no launch can separate" if first.bundle else ""
            lines.append(f"Inside {what} it is {names}{apart}{f':{whole}' if whole else ''}.")
        else:
            lines.append(f"Inside {what}, of {count(len(one.parts), 'part')}: {one.verdict.sentence}")
    return tuple(lines)


def advice(scene: Scene, suspects: Sequence[Suspect]) -> tuple[str, ...]:
    """What to do now, beside the lines to type."""
    outcome = scene.outcome
    record = "Record this host as it is now, so that the next comparison starts from a figure that was measured."
    if not scene.finished:
        return ("Continue it with `fingerprint bisect --resume` and the same arguments.",)
    match outcome.kind:
        case "attributed" | "several":
            either = ""
            if outcome.structure == "or":
                either = "All of these lines are needed: one alone changes nothing."
            elif len(outcome.revert) > 1:
                either = "Each of these lines takes its own share away."
            narrower = _narrower(scene)
            return tuple(filter(None, [either, *narrower, _where(outcome.revert), RESTART]))
        case "interaction":
            return tuple(filter(None, ["Either of these lines is enough.", _where(outcome.revert), RESTART]))
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
                *([outcome.next] if outcome.next else []),
                "Then start the bisect again.",
            )
        case "not switchable":
            return (
                "Change one suspect by hand, capture with --measure, and compare; the likeliest first.",
                *(f"{title_of(one.id)}: {one.reason}" for one in outcome.fixed[:5]),
            )
        case _:
            noisy = ""
            if outcome.sigma_ms and outcome.gap_ms and outcome.sigma_ms[1] > 0.3 * abs(outcome.gap_ms[1]):
                noisy = (
                    f"Launches of one setting scatter by {ms(outcome.sigma_ms[1], scene.decimals)}: make them steadier "
                    "first (lock the clocks, stop what else runs on the machine)."
                )
            still = [one.title for one in suspects if one.standing in {"open", "not tested"}]
            return tuple(
                filter(
                    None,
                    [
                        outcome.next,
                        noisy,
                        f"Still open: {listing(still)}." if still else "",
                        "More launches: start the bisect again with a larger --budget.",
                    ],
                )
            )


def _narrower(scene: Scene) -> list[str]:
    """How to take back only the guilty part of each culprit: the smallest for which there is a line to type, if any."""
    opened = {one.of: one for one in scene.outcome.opened}
    said = []
    for name in (name for culprit in scene.outcome.culprits for name in sorted(culprit.factors)):
        parts = []
        one, searched = opened.get(name), False
        while one is not None and len(one.culprits) == 1:
            part = one.culprits[0]
            searched = searched or one.verdict is not None  # a part that is alone is the whole
            if searched and part.revert:
                parts.append(part)
            one = opened.get(part.id)
        typed = [part for part in parts if not part.revert.startswith("#")]
        said += [
            f"Or only what is to blame, {part.title}: {part.revert.removeprefix('# ')}"
            for part in (typed or parts)[-1:]
        ]
    return said


def confidence(scene: Scene) -> str:
    """How sure the answer is, in words and as a probability."""
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
            chance = held.get("none", 0.0) + held.get("faster", 0.0)
            seen = ""
            if outcome.smallest_effect_ms is not None:
                seen = f" A gap of {ms(outcome.smallest_effect_ms, scene.decimals)} or more would have shown."
            words = how_sure(chance).capitalize()
            return f"{words} that the new side is not slower today ({probability(chance)}).{seen}"
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


def cost(scene: Scene, trials: Sequence[TrialLine], end: EndLine | None) -> str:
    """Launches and time."""
    if not trials:
        return "no launch"
    last = trials[-1]
    until = end.at.timestamp() if end else last.at.timestamp() + last.seconds.get("whole", 0.0)
    words = [count(len(trials), "launch")]
    lost = sum(launch.value_ms is None or launch.status != "measured" for launch in scene.launches)
    if lost:
        words.append(f"{lost} of them without a figure")
    words.append(duration(max(0.0, until - scene.line.at.timestamp())))
    if scene.line.expected_launches is not None:
        words.append(f"about {scene.line.expected_launches:.0f} launches were expected")
    return ", ".join(words)


def figures(scene: Scene, speeds: Sequence[Speed], old: Snapshot, new: Snapshot) -> tuple[Fact, ...]:
    """The levels of then and of today, the scatter, and the speeds."""
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
    pooled = scene.pooled
    if pooled and outcome.old_ms is not None:
        add("today, old and new alike", scene.ms(outcome.old_ms))
    elif outcome.old_ms is not None and scene.factors:
        add("everything old, today", scene.ms(outcome.old_ms))
    if not pooled and outcome.new_ms is not None:
        add("everything new, today", scene.ms(outcome.new_ms))
    if outcome.gap_ms is not None and outcome.kind not in {"phantom", "healed"} and scene.factors:
        add("gap today", scene.ms(outcome.gap_ms, sign=True))
    if outcome.sigma_ms is not None:
        add("scatter of launches", scene.ms(outcome.sigma_ms))
    if outcome.smallest_effect_ms is not None:
        add("smallest gap that would have shown", ms(outcome.smallest_effect_ms, scene.decimals))
    for side, controls in _by_side(outcome.controls).items():
        plain = [one.tokens_per_second for one in controls if one.tokens_per_second is not None]
        steps = [one.step_ms for one in controls if one.step_ms is not None]
        if plain and steps:
            add(
                f"plain decoding, {side}, today",
                f"{_from_to(plain)} tok/s, {_from_to(steps)} ms a step ({count(len(plain), 'launch')})",
            )
    for speed in speeds:
        add(
            f"speed, {speed.side}",
            f"{number(speed.tokens_per_second)} tok/s at accept length {speed.accept_length:.2f}",
        )
    return tuple(facts)
