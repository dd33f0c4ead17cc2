"""The answer of a search, in words and numbers.

A verdict never says more than the launches showed: every figure has its interval, a culprit carries the launches that
proved it both ways, and what is left open says what it would cost to settle.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

Kind = Literal[
    "reproduced",
    "phantom",
    "healed",
    "unstable",
    "attributed",
    "several",
    "interaction",
    "not switchable",
    "undecided",
]
Structure = Literal["single", "and", "or", "adds", "masked"]
Interval = tuple[float, float, float]
Names = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str])]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(_Frozen):
    """The launches of one setting that confirm a culprit.

    Attributes:
        new: the factors that were at their new value.
        launches: how many launches had exactly this setting.
        measured_ms: mean of those launches.
        expected_ms: what the verdict predicts for this setting.
        other_ms: what it would have been if the culprit were innocent.
    """

    new: Names
    launches: int
    measured_ms: float
    expected_ms: float
    other_ms: float


class Culprit(_Frozen):
    """Factors that cause the gap, or a share of it.

    Attributes:
        factors: one factor; several where they act only together or cannot be launched apart.
        share: share of the gap it causes (low, mid, high), an interval of 90 %; below 0 where it hides another.
        bundle: the factors could not be separated by any launch, so the blame is on the whole.
        sufficient: alone on the old side: launches that show the gap (or its share).
        necessary: reverted alone on the new side: launches that show it gone.
    """

    factors: Names
    share: Interval
    bundle: bool = False
    sufficient: Evidence | None = None
    necessary: Evidence | None = None


class Suspicion(_Frozen):
    """One explanation and how probable it is.

    Attributes:
        structure: how its factors act; "none": no gap today; "other": none of the simple explanations.
        factors: the factors it blames.
        probability: between 0 and 1, given all launches.
    """

    structure: Structure | Literal["none", "faster", "other"]
    factors: Names
    probability: float


class Then(_Frozen):
    """What was measured in the past, in ms, by the same source as today's launches.

    Attributes:
        old_ms: the figure before the regression.
        new_ms: the figure after it.
    """

    old_ms: float
    new_ms: float

    @property
    def gap_ms(self) -> float:
        """How much slower the new one was."""
        return self.new_ms - self.old_ms


class Verdict(_Frozen):
    """What a search has found so far, or in the end.

    Attributes:
        kind: the verdict; "reproduced" only while a search still runs.
        structure: how the culprits act, when there are some.
        culprits: what is blamed, proven both ways.
        launches: all launches told, also void and unlaunchable ones.
        measured: launches that gave a figure.
        old_ms, new_ms, gap_ms: levels today and their difference (low, mid, high), intervals of 90 %.
        sigma_ms: scatter of launches of one setting (low, mid, high).
        remainder_ms: part of the gap that the culprits do not explain (low, mid, high).
        smallest_effect_ms: the smallest gap that these launches would have shown in four cases of five.
        evidence: how many times better a gap explains the launches than no gap.
        posterior: the most probable explanations.
        eliminated: factors with the probability left that they take part in the gap.
        then: the figures of the past, if known.
        sentence: the verdict in one sentence.
        next: what would settle what is open.
        reasons: launches that gave no figure, and why.
    """

    kind: Kind
    structure: Structure | None = None
    culprits: tuple[Culprit, ...] = ()
    launches: int = 0
    measured: int = 0
    old_ms: Interval | None = None
    new_ms: Interval | None = None
    gap_ms: Interval | None = None
    sigma_ms: Interval | None = None
    remainder_ms: Interval | None = None
    smallest_effect_ms: float | None = None
    evidence: float | None = None
    posterior: tuple[Suspicion, ...] = ()
    eliminated: dict[str, float] = {}
    then: Then | None = None
    sentence: str = ""
    next: str = ""
    reasons: tuple[str, ...] = ()
