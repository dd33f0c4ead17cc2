"""What a comparison is made of: changes of leaves, differences as people see them, and what tells two leaves apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from pydantic import BaseModel

from snapshots import Key, Leaf, Section, Snapshot, Unread

Verdict: TypeAlias = Literal["changed", "only in old", "only in new", "not comparable"]

SECRET = re.compile(r"<secret:([0-9a-f]+):([0-9a-f]+)>")


@dataclass(frozen=True)
class Change:
    """One leaf that is not the same on both sides; None where that side has no such leaf."""

    key: Key
    old: Leaf | None
    new: Leaf | None


@dataclass(frozen=True)
class Reason:
    """Why a difference is likely, or not, to move verify time.

    Attributes:
        text: the reason, for a person.
        weight: what it adds to the log-odds; negative speaks against.
        source: where the knowledge comes from: a public report, a measurement, or the snapshots themselves.
    """

    text: str
    weight: float
    source: str


@dataclass(frozen=True)
class Difference:
    """What a person would call one difference.

    Attributes:
        key: natural key, stable over snapshots.
        verdict: how the two sides relate.
        old: the value that stands for the old side; None where it is not there.
        new: the same for the new side.
        title: what it is called.
        note: what the two values do not say ("newer", "same version, other contents").
        where: the places in which it shows (`launch`, `rank 0`, a bus id).
        details: further lines, one fact each.
        changes: the leaves behind it.
        factor: the identifier of the factor that could switch it, or None where no launch can.
        group: key of the difference that brought this one about.
        likelihood: 0 to 1, how much it deserves a trial; a ranking, not a calibrated probability.
        reasons: what the likelihood is made of, strongest first.
    """

    key: Key
    verdict: Verdict
    old: Leaf | None
    new: Leaf | None
    title: str
    note: str = ""
    where: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    factor: str | None = None
    group: Key | None = None
    likelihood: float = 0.0
    reasons: tuple[Reason, ...] = ()

    @property
    def section(self) -> str:
        """The section that it was read in."""
        return self.key[0]

    @property
    def name(self) -> str:
        """The key as text, as `--explain` takes it."""
        return "/".join(self.key)


@dataclass(frozen=True)
class Line:
    """One line of the short list: a difference with the consequences that open below it."""

    difference: Difference
    below: tuple[Line, ...] = ()

    @property
    def likelihood(self) -> float:
        """That of the likeliest member."""
        return max([self.difference.likelihood, *(line.likelihood for line in self.below)])

    def members(self) -> Iterator[Difference]:
        """The difference and everything below it."""
        yield self.difference
        for line in self.below:
            yield from line.members()


@dataclass(frozen=True)
class Comparison:
    """What changed, what did not, and what cannot be known.

    Attributes:
        old: the old snapshot.
        new: the new snapshot.
        differences: likeliest first.
        not_comparable: what one side, or both, could not read.
        same: number of equal values, by section.
        state: readings that move on their own and inert variables; empty unless asked for.
        unseen: sections that neither snapshot has, with the reason.
        changes: every leaf that differs, in key order: the whole comparison without any judgement.
    """

    old: Snapshot = field(repr=False, compare=False)
    new: Snapshot = field(repr=False, compare=False)
    differences: tuple[Difference, ...]
    not_comparable: tuple[Difference, ...]
    same: dict[str, int]
    state: tuple[Difference, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()

    @cached_property
    def old_id(self) -> str:
        """Identity of the old snapshot."""
        return self.old.id

    @cached_property
    def new_id(self) -> str:
        """Identity of the new snapshot."""
        return self.new.id

    @property
    def equal(self) -> bool:
        """Nothing differs, and nothing is known on one side only."""
        return not self.differences and all(_blind_on_both(item) for item in self.not_comparable)

    def lines(self) -> tuple[Line, ...]:
        """The differences with consequences below their causes, likeliest line first."""
        below: dict[Key, list[Difference]] = {}
        keys = {difference.key for difference in self.differences}
        roots: list[Difference] = []
        for difference in self.differences:
            if difference.group in keys and difference.group is not None:
                below.setdefault(difference.group, []).append(difference)
            else:
                roots.append(difference)

        def line(difference: Difference) -> Line:
            return Line(difference, _likeliest(line(child) for child in below.get(difference.key, ())))

        return _likeliest(line(root) for root in roots)

    def find(self, wanted: str) -> tuple[Difference, ...]:
        """Differences by factor id, by key, by the end of a key, or by title."""
        everything = (*self.differences, *self.not_comparable, *self.state)
        for matches in (
            lambda item: item.factor == wanted or item.name == wanted,
            lambda item: item.title == wanted or item.name.endswith("/" + wanted),
            lambda item: any("/".join(change.key) == wanted for change in item.changes),
        ):
            found = tuple(item for item in everything if matches(item))
            if found:
                return found
        return ()


def _likeliest(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.likelihood, line.difference.key)))


def _blind_on_both(difference: Difference) -> bool:
    return isinstance(difference.old, Unread) and isinstance(difference.new, Unread)


def same_leaf(old: Leaf | None, new: Leaf | None) -> bool:
    """Equality as the identity has it: `1`, `1.0` and `True` differ, and two unread values are alike."""
    if type(old) is not type(new):
        return False
    if isinstance(old, Unread):
        return True
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(same_leaf, old, new))
    return old == new


def judge(old: Leaf | None, new: Leaf | None) -> Verdict:
    """How two values that are not the same relate."""
    if isinstance(old, Unread) or isinstance(new, Unread):
        return "not comparable"
    if old is None:
        return "only in new"
    if new is None:
        return "only in old"
    if isinstance(old, str) and isinstance(new, str) and _other_keys(old, new):
        return "not comparable"
    return "changed"


def _other_keys(old: str, new: str) -> bool:
    """Whether two texts differ only in secrets that were replaced under different keys."""
    before, after = SECRET.findall(old), SECRET.findall(new)
    if not before or len(before) != len(after) or SECRET.sub("", old) != SECRET.sub("", new):
        return False
    return any(was[0] != now[0] for was, now in zip(before, after, strict=True))


@dataclass(frozen=True)
class Pair:
    """The two sides of one section, as the views see them."""

    name: str
    old: Section
    new: Section

    def has(self, side: Literal["old", "new"], key: Key) -> bool:
        """Whether that side has anything under the key."""
        return found(self.old if side == "old" else self.new, key[1:]) is not None


def found(value: object, key: Key) -> object:
    """What stands under `key` below `value`; None where nothing does."""
    for step in key:
        if isinstance(value, BaseModel):
            value = getattr(value, step, None)
        elif isinstance(value, Mapping):
            value = value.get(step, value.get(int(step)) if step.isdecimal() else None)
        else:
            return None
    return value


SAME_CHANGE = "the same local change, on another version of the file"
