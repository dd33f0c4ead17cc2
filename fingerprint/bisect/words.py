"""The verdict in one sentence for the person on call, and what would settle what is open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fingerprint.bisect.verdict import Culprit, Interval, Verdict


def sentence(verdict: Verdict, blocked: tuple[str, ...] = ()) -> str:
    """One sentence that says the verdict and its figures.

    Args:
        verdict: all but its words.
        blocked: the ends ("old", "new") that cannot be launched.
    """
    if verdict.kind == "not switchable":
        return "No difference can be switched by a launch, so no launch can tell which one is the cause."
    if blocked:
        ends = " and ".join(f"the {end} side (every factor at its {end} value)" for end in blocked)
        return f"Nothing can be compared: {ends} cannot be launched."
    if verdict.old_ms is None or verdict.new_ms is None or verdict.gap_ms is None or verdict.sigma_ms is None:
        missing = "no launch of both ends has given a figure yet"
        return f"Nothing can be said after {_count(verdict.launches)}: {missing}."
    gap = f"the gap of {ms(verdict.gap_ms[1])} ({ms(verdict.old_ms[1])} to {ms(verdict.new_ms[1])})"
    if verdict.kind in {"attributed", "several", "interaction"}:
        return _blame(verdict, gap)
    if verdict.kind == "phantom":
        return _phantom(verdict)
    if verdict.kind == "healed":
        return _healed(verdict)
    if verdict.kind == "unstable":
        return (
            f"Launches of one setting scatter by {ms(verdict.sigma_ms[1])}, so that {_count(verdict.measured)} neither "
            f"show nor exclude a gap."
        )
    if verdict.kind == "reproduced":
        return f"It is there today: {gap}; which factor causes it is still open."
    return f"Undecided after {_count(verdict.launches)}: {_likely(verdict)}."


def next_step(verdict: Verdict, factors: int) -> str:
    """What more launches would settle, or what to do without them."""
    if verdict.kind in {"phantom", "healed"}:
        return "Look at what no snapshot sees: other users of the host, temperatures, the requests themselves."
    if verdict.kind == "not switchable":
        return "Compare the fixed differences (driver, kernel, hardware) with a host that is still fast."
    if verdict.kind == "unstable":
        size = abs(verdict.then.gap_ms) if verdict.then else None
        if size and verdict.sigma_ms:
            side = max(2, math.ceil(2 * (2.8 * verdict.sigma_ms[1] / size) ** 2))
            return f"About {side} launches of each side would show a gap of {ms(size)}; a steadier metric needs fewer."
        return "Measure with a steadier metric (the engine's GPU timer), or find what makes equal launches differ."
    if verdict.kind not in {"undecided", "reproduced"} or not verdict.posterior:
        return ""
    bits = -sum(s.probability * math.log2(s.probability) for s in verdict.posterior if s.probability > 0)
    rest = 1 - sum(s.probability for s in verdict.posterior)
    bits += max(rest, 0) * math.log2(max(factors, 2))
    return f"About {math.ceil(1.4 * bits) + 2} more launches would settle it."


def ms(value: float) -> str:
    """Milliseconds with three significant digits and more where they are whole."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f} ms"


def _percent(share: Interval) -> str:
    return f"{100 * share[1]:.0f} % of it ({100 * share[0]:.0f} to {100 * share[2]:.0f})"


def _names(culprit: Culprit) -> str:
    return " and ".join(sorted(culprit.factors))


def _count(launches: int) -> str:
    return f"{launches} launch" if launches == 1 else f"{launches} launches"


def _blame(verdict: Verdict, gap: str) -> str:
    first = verdict.culprits[0]
    if verdict.structure == "and":
        return f"{_names(first)} cause {gap} only together: with either of them reverted it is gone."
    if verdict.structure == "or":
        each = " and ".join(_names(c) for c in verdict.culprits)
        return f"{each} each cause {gap} alone: it is gone only when both are reverted."
    if verdict.structure == "masked":
        hides = verdict.culprits[1]
        return (
            f"{_names(first)} makes it slower by {100 * first.share[1]:.0f} % of {gap}, and {_names(hides)} hides "
            f"{-100 * hides.share[1]:.0f} %."
        )
    if verdict.structure == "adds":
        each = ", ".join(f"{_names(c)} {_percent(c.share)}" for c in verdict.culprits)
        return f"Several causes of {gap} add up: {each}."
    if first.bundle:
        return f"{_names(first)}, which no launch can separate, cause {gap}: {_percent(first.share)}."
    if first.sufficient is None or first.necessary is None:
        return f"{_names(first)} causes {gap}: {_percent(first.share)}; not every confirmation can be launched."
    return (
        f"{_names(first)} causes {gap}: alone on the old side it makes it slow, reverted alone on the new side it is "
        f"fast again; it explains {_percent(first.share)}."
    )


def _phantom(verdict: Verdict) -> str:
    if verdict.old_ms is None:
        return ""
    today = f"old and new both take {ms(verdict.old_ms[1])} today"
    if verdict.then is None:
        return f"No gap today: {today}; what it was before is not known, so it may be gone or hidden."
    if verdict.then.gap_ms <= 0:
        return (
            f"No gap today: {today}; nor was there one before ({ms(verdict.then.old_ms)}, {ms(verdict.then.new_ms)})."
        )
    return (
        f"The old speed does not come back: {today} with every factor restored, where it was "
        f"{ms(verdict.then.old_ms)}; no factor here is the cause."
    )


def _healed(verdict: Verdict) -> str:
    if verdict.old_ms is None or verdict.new_ms is None:
        return ""
    return f"It is not slow today: the old side takes {ms(verdict.old_ms[1])}, the new one {ms(verdict.new_ms[1])}."


def _likely(verdict: Verdict) -> str:
    words = {"none": "no gap today", "faster": "the new side is faster", "other": "none of the simple explanations"}
    parts = []
    for suspicion in verdict.posterior[:3]:
        what = words.get(suspicion.structure) or " and ".join(sorted(suspicion.factors))
        if suspicion.structure in {"and", "or", "adds", "masked"}:
            how = {"and": "only together", "or": "either", "adds": "adding up", "masked": "one hiding the other"}
            what = f"{what} ({how[suspicion.structure]})"
        parts.append(f"{what} {100 * suspicion.probability:.0f} %")
    return "most probable are " + ", ".join(parts) if parts else "nothing is known yet"
