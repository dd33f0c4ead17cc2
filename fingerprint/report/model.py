"""What a report says, before any format: pure, from a case's snapshots, journal and verdict.

The reader was not there. So the report answers in this order: what was asked, what is the answer with its number, what
to do now, how sure it is and what it cost; then how each suspect was settled and by which launch, where "never tested"
is not "ruled out"; then what nobody could see; then everything that a doubter asks. Every text that came from a host
passes `words.clean` on its way in, so no format can be harmed by it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fingerprint.bisect.verdict import Interval
from fingerprint.report.words import CommandLine, Text

Arm = Literal["old", "new", "mixed"]
Standing = Literal["cause", "open", "not tested", "ruled out", "not judged", "cannot be switched"]
PARTS = (("verify_ms", "verify"), ("draft_ms", "draft"), ("extend_ms", "draft extend"), ("host_ms", "host"))
"""What a speculative cycle consists of."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Suspect(_Part):
    """One difference and what became of it.

    Attributes:
        id: the factor.
        title: what it is called in a sentence.
        name: the same in a table that has its kind.
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
    name: Text
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
    inside: Text = ""
    new: tuple[Text, ...]
    status: Text
    value_ms: float | None
    reason: Text
    marks: tuple[Text, ...]
    parts: dict[str, float]
    cycle_ms: float | None
    accept_length: float | None
    most_accepted: int | None = None
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
        cycle_ms: the cycle that is there instead of the old one.
        tokens_per_second: the speed that this cycle has at `at_accept_length`, today's accept length.
        accept_length: the accept length at which it would have the wanted speed.
        most: tokens that a cycle of the new side can gain at most; None: not known.
        floor: below this one, plain decoding is certainly not slower: a plain step costs at most one verify pass.
        note: what the figure rests on.
    """

    wanted_tokens_per_second: float
    cycle_ms: float
    tokens_per_second: float
    at_accept_length: float
    accept_length: float
    most: int | None = None
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


class Board(_Part):
    """A GPU or network card and its way to the processors.

    Attributes:
        title: what it is called.
        kind: `gpu` or `network`.
        node: its NUMA node; None where the host does not say.
        link: lanes and speed of its PCI link, and its NVLinks, in words.
        before: the same in the old snapshot, where it was another.
    """

    title: Text
    kind: Text
    node: int | None
    link: tuple[Text, ...]
    before: tuple[Text, ...] = ()


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
    boards: tuple[Board, ...]
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
