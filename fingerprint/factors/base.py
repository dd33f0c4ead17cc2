"""What all kinds of factors have in common."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from fingerprint.capture import Store
    from fingerprint.factors.plan import LaunchPlan
    from fingerprint.wheels import Wheels


@dataclass(frozen=True)
class Evidence:
    """What is at hand to bring old values back."""

    stores: tuple[Store, ...] = ()
    """Where kept files may lie."""
    clones: tuple[Path, ...] = ()
    """Git repositories that may have the commits of the served trees."""

    wheels: Wheels | None = None
    """Where else the files of a package may come from."""

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those of `digests` that nothing at hand holds."""
        return [digest for digest in digests if not any(source.has(digest) for source in self._sources())]

    def get(self, digest: str) -> bytes:
        """A file by its digest.

        Raises:
            KeyError: nothing at hand holds it.
        """
        with self.open(digest)[1] as stream:
            return stream.read()

    def open(self, digest: str) -> tuple[int, BinaryIO]:
        """Size of a file, and the file opened.

        Raises:
            KeyError: nothing at hand holds it.
        """
        for source in self._sources():
            if source.has(digest):
                return source.open(digest)
        raise KeyError(digest)

    def size(self, digest: str) -> int:
        """Size of a file in bytes; raises as `open` does."""
        size, stream = self.open(digest)
        stream.close()
        return size

    def _sources(self) -> tuple[Store | Wheels, ...]:
        return (*self.stores, *([self.wheels] if self.wheels is not None else []))


@dataclass(frozen=True)
class Factor(ABC):
    """One difference, or a bundle that only moves together, that a launch can have in either value."""

    id: str
    """Stable and readable: `variable:NCCL_PROTO`, `tree:python/engine.py`."""
    old_words: str
    """The old value in a few words; `absent` where the old side had none."""
    new_words: str

    @property
    def kind(self) -> str:
        """The first part of the id."""
        return self.id.partition(":")[0]

    @abstractmethod
    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Give the plan this factor's new or old value, and the checks that prove it in effect.

        Every factor of a search is applied to every plan, with one value or the other: both arms take the same way.
        """

    def revert(self) -> str:
        """A line to type on the host to have the old value for good; a comment (`# …`) where it takes a hand."""
        return f"# bring back {self.id} to {self.old_words}"

    def objects(self) -> frozenset[str]:
        """Digests of kept files that its plans refer to."""
        return frozenset()

    def demands(self) -> list[dict[str, Any]]:
        """What the host has to allow this user for both values (`probes.trial.Trials.able`); nothing for most."""
        return []

    def covers(self) -> frozenset[str]:
        """Ids of the differences that it is: its own, or those of its members."""
        return frozenset({self.id})

    def inside(self, _evidence: Evidence) -> Inside | str:
        """What it is made of, where a launch can have some of that; else why not, empty where it simply has no parts.

        Args:
            evidence: what is at hand to look into it.
        """
        return ""


@dataclass(frozen=True)
class Part:
    """One part of a factor: a hunk, a commit, a package of a bundle."""

    id: str
    title: str
    """What a person calls it: `hunk @@ forward of python/models/llama.py`."""
    old_words: str
    new_words: str
    revert: str = ""
    """How to take back this part alone, as `Factor.revert` says it; empty where that is not known."""


@dataclass(frozen=True)
class Inside(ABC):
    """What a factor is made of: a launch can have some of its parts new and the others old."""

    parts: tuple[Part, ...]
    ordered: ClassVar[bool] = False
    """Whether each part needs the ones before it, as commits do."""

    @abstractmethod
    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Give the plan these parts new and all others old, in place of the factor's own value, with the checks."""

    def around(self, plan: LaunchPlan, new: frozenset[str], opened: frozenset[str]) -> None:
        """The same around parts that are opened: they are old so far, and nothing is proven of them yet."""
        count = len(plan.checks)
        self.apply(plan, new - opened)
        made = plan.checks[count:]
        plan.checks[count:] = [one for one in made if not any(_holds(one["factor"], part) for part in opened)]

    def inside(self, _part: str) -> Inside | str:
        """What one part is made of, in its turn: all others stay old, or where they come in order, those after it do.

        Answers as `Factor.inside` does.
        """
        return ""


def _holds(factor: str, part: str) -> bool:
    """Whether a check of `factor` is of this part, or of what it is a part of."""
    return part == factor or (part.startswith(factor) and part[len(factor)] in "@/#")


@dataclass(frozen=True)
class Every(Inside):
    """The factors of a search themselves, as the parts of what is searched."""

    factors: Mapping[str, Factor]
    evidence: Evidence

    @classmethod
    def of(cls, factors: Mapping[str, Factor], evidence: Evidence) -> Every:
        """All factors of a search; a factor's title is its id."""
        parts = tuple(Part(one.id, "", one.old_words, one.new_words, one.revert()) for one in factors.values())
        return cls(parts, factors, evidence)

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Every factor at its value."""
        self.around(plan, new, frozenset())

    def around(self, plan: LaunchPlan, new: frozenset[str], opened: frozenset[str]) -> None:
        """Every factor but those that are opened, which give the plan their own."""
        for name in sorted(self.factors.keys() - opened):
            self.factors[name].apply(plan, new=name in new)

    def inside(self, part: str) -> Inside | str:
        """What the factor is made of."""
        return self.factors[part].inside(self.evidence)


@dataclass(frozen=True)
class Together(Inside):
    """Parts that no launch can separate, each as what it is made of: some of that may be launched apart.

    Attributes:
        outer: what they are parts of.
        members: their ids.
        opened: those that have parts of their own which come in no order.
        beside: parts of `outer` that stay new.
    """

    outer: Inside
    members: frozenset[str]
    opened: Mapping[str, Inside]
    beside: frozenset[str]

    @classmethod
    def of(cls, outer: Inside, members: frozenset[str], beside: frozenset[str]) -> Together | None:
        """Look into all of them; None where none has parts to search."""
        inner = {name: outer.inside(name) for name in sorted(members)}
        opened = {
            name: one for name, one in inner.items() if isinstance(one, Inside) and not one.ordered and one.parts[1:]
        }
        if not opened:
            return None
        plain = [one for one in outer.parts if one.id in members - opened.keys()]
        parts = [*(replace(one, title=one.title or one.id) for one in plain)]
        parts += [part for one in opened.values() for part in one.parts]
        return cls(tuple(parts), outer, members, opened, beside)

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Each member's own parts, and the members that have none."""
        self.around(plan, new, frozenset())

    def around(self, plan: LaunchPlan, new: frozenset[str], opened: frozenset[str]) -> None:
        """The same, but for a member that is opened itself."""
        self.outer.around(plan, self.beside | (new & self.members), frozenset(self.opened) | (opened & self.members))
        for one in self.opened.values():
            names = frozenset(part.id for part in one.parts)
            one.around(plan, new & names, opened & names)

    def inside(self, part: str) -> Inside | str:
        """What a member, or one part of it, is made of."""
        if part in self.members:
            return self.outer.inside(part)
        owner = next(one for one in self.opened.values() if part in {inner.id for inner in one.parts})
        return owner.inside(part)


@dataclass(frozen=True)
class Fixed:
    """A difference that no launch can switch: a suspect that can only be named."""

    id: str
    old_words: str
    new_words: str
    reason: str
    """Why not, and what would make it switchable."""


@dataclass(frozen=True)
class Need:
    """A value of one factor with which another has to have the same, by what their packages require.

    It ran like that on either side and may run without: a search asks, and learns what does not start.
    """

    id: str
    side: Literal["old", "new"]
    """The value of both, as a factor has it."""
    other: str
    requirement: str


@dataclass(frozen=True)
class Found:
    """What `find` gives."""

    factors: list[Factor]
    fixed: list[Fixed]
    needs: tuple[Need, ...] = ()


def extract_line(identifier: str, into: str | None = None) -> str:
    """The command that takes a factor's old contents out of a case's old snapshot."""
    output = ["-o", into] if into is not None else []
    return shlex.join(["fingerprint", "extract", "old.json", identifier, *output])


def short(value: object, limit: int = 60) -> str:
    """A value in a few words for a person; `absent` for None."""
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
