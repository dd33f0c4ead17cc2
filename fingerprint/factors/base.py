"""What all kinds of factors have in common."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

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

    def inside(self, _part: str) -> Inside | str:
        """What one part is made of, in its turn: all others stay old, or where they come in order, those after it do.

        Answers as `Factor.inside` does.
        """
        return ""


@dataclass(frozen=True)
class Fixed:
    """A difference that no launch can switch: a suspect that can only be named."""

    id: str
    old_words: str
    new_words: str
    reason: str
    """Why not, and what would make it switchable."""


@dataclass(frozen=True)
class Found:
    """What `find` gives."""

    factors: list[Factor]
    fixed: list[Fixed]


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
