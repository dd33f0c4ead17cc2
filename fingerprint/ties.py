"""What packages require of each other: which versions cannot be mixed, and which packages only move together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from snapshots import Distribution, Snapshot


@dataclass(frozen=True)
class Tie:
    """On one side, `mover` requires another `moved` than the other side has: they cannot be mixed that way.

    Attributes:
        mover: canonical name of the package that requires.
        moved: canonical name of the package required.
        requirement: the requirement's text.
        exact: it names one version.
        side: whose `mover` requires it. `new`: a new `mover` does not go with an old `moved`; `old`: the reverse.
    """

    mover: str
    moved: str
    requirement: str
    exact: bool
    side: Literal["old", "new"]


def ties(old: Snapshot, new: Snapshot) -> Iterator[Tie]:
    """Which packages that changed version cannot be mixed, by what they require; those of the new side first.

    A requirement that its own side does not meet ties nothing: that environment ran without it being met.
    """
    before, after = old.packages.distributions, new.packages.distributions
    changed = {name for name in before.keys() | after.keys() if _version(before.get(name)) != _version(after.get(name))}
    sides: tuple[tuple[Literal["old", "new"], Place, dict[str, Distribution], dict[str, Distribution]], ...] = (
        ("new", place_of(new), after, before),
        ("old", place_of(old), before, after),
    )
    for side, place, here, there in sides:
        for mover in sorted(changed & here.keys()):
            seen: set[str] = set()
            for text in here[mover].requires:
                requirement = requirement_of(text, place)
                if requirement is None:
                    continue
                moved = canonicalize_name(requirement.name)
                if moved == mover or moved not in changed or moved in seen:
                    continue
                if meets(here.get(moved), requirement) and not meets(there.get(moved), requirement):
                    seen.add(moved)
                    exact = any(spec.operator in {"==", "==="} for spec in requirement.specifier)
                    yield Tie(mover, moved, text, exact, side)


def bundles(tied: Iterable[Tie]) -> tuple[tuple[str, ...], ...]:
    """Packages that only move together: neither goes without the other, whichever of them is new.

    Each bundle is sorted, as are the bundles. A package that only needs another one, which also goes without it, is in
    none: that is an order, not a bundle.
    """
    needs: dict[str, set[str]] = {}
    for tie in tied:  # a new `one` needs a new `other`
        one, other = (tie.mover, tie.moved) if tie.side == "new" else (tie.moved, tie.mover)
        needs.setdefault(one, set()).add(other)
        needs.setdefault(other, set())
    reached = {name: _reached(name, needs) for name in needs}
    together = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in needs}
    return tuple(sorted(bundle for bundle in together if len(bundle) > 1))


def _reached(start: str, needs: Mapping[str, set[str]]) -> set[str]:
    """Everything that follows from `start`, itself included."""
    reached, waiting = {start}, [start]
    while waiting:
        for name in needs[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def _version(dist: Distribution | None) -> object:
    return None if dist is None else dist.version


_ELSEWHERE = {
    "extra": "",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


_EXTRA = re.compile(r"""[^;]*;(?!.*\bor\b).*(?<![\w"'])extra\s*==\s*["']\w.*""")
"""A requirement of an extra: most are, and it is told without parsing them. `or` might make it hold all the same."""


class Place(NamedTuple):
    """Where a requirement is to hold; empty what is not known. Without a version it is that of this interpreter."""

    python: str = ""
    machine: str = ""


def place_of(snapshot: Snapshot) -> Place:
    """The serving interpreter's version and the host's architecture."""
    interpreter = snapshot.packages.interpreter
    python = interpreter.version if interpreter is not None and isinstance(interpreter.version, str) else ""
    return Place(python, snapshot.host.machine or "")


@lru_cache(maxsize=8192)
def requirement_of(text: str, place: Place) -> Requirement | None:
    """A requirement that holds on a Linux host; None for extras, other platforms and what cannot be parsed."""
    if _EXTRA.fullmatch(text):
        return None
    there = dict(_ELSEWHERE)
    if place.machine:
        there["platform_machine"] = place.machine
    if place.python:
        there["python_full_version"] = there["implementation_version"] = place.python
        there["python_version"] = ".".join(place.python.split(".")[:2])
    try:
        requirement = Requirement(text)
        holds = requirement.marker is None or requirement.marker.evaluate(there)
    except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
        return None
    return requirement if holds else None


def meets(dist: Distribution | None, requirement: Requirement) -> bool:
    """Whether an installed distribution satisfies a requirement; one of unknown version does."""
    if dist is None:
        return False
    try:
        return not isinstance(dist.version, str) or requirement.specifier.contains(dist.version, prereleases=True)
    except InvalidVersion:
        return True
