"""Installed packages: another version, or the same version with other contents; bundles that only move together.

The old files are those that were kept beside the old snapshot, else a wheel's, or another installed copy's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fingerprint.factors.base import Evidence, Factor, Fixed, Inside, Need, Part, extract_line, short
from fingerprint.factors.plan import LaunchPlan
from fingerprint.ties import bundles, ties
from snapshots import Distribution, Snapshot


@dataclass(frozen=True)
class Package(Factor):
    """One distribution, rebuilt at its old place from kept files."""

    name: str
    old: Distribution | None
    new: Distribution | None
    files: tuple[tuple[str, str], ...]
    """The old files: path below the location, digest."""
    python: str
    """The serving interpreter's executable."""
    kept: bool = True
    """Whether the old files are beside the old snapshot."""

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Leave the live files, or lay the old ones over them."""
        for location in {side.location for side in (self.old, self.new) if side is not None}:
            plan.directory(location)  # both arms take the same way: the layer is there even when nothing in it changes
        wanted = self.new if new else self.old
        if not new:
            if self.new is not None:
                plan.directory(self.new.location).uninstall.append(self.name)
            if self.old is not None:
                write = plan.directory(self.old.location).write
                write.update({path: {"object": digest} for path, digest in self.files})
        where = wanted or self.old or self.new
        plan.check(
            self.id,
            "package",
            name=self.name,
            location=where.location if where is not None else "",
            version=wanted.version if wanted is not None else None,
            record=wanted.record if wanted is not None else None,
        )

    def revert(self) -> str:
        """The pip command: of the old build where its files are kept, else of the old version."""
        pip = f"{shlex.quote(self.python)} -m pip"
        if self.old is None:
            return f"{pip} uninstall {shlex.quote(self.name)}"
        install = f"{pip} install --no-deps"
        if self.files and self.kept:
            old_build = extract_line(self.id, into=".")
            return f'{install} --force-reinstall "$({old_build})"'
        return f"{install} {shlex.quote(f'{self.name}=={self.old.version}')}"

    def objects(self) -> frozenset[str]:
        """The old files."""
        return frozenset(digest for _path, digest in self.files)


@dataclass(frozen=True)
class Bundle(Factor):
    """Packages whose requirements tie them: in an environment they only move together."""

    members: tuple[Package, ...]

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Leave all of them, or bring all of them back."""
        for member in self.members:
            member.apply(plan, new=new)

    def revert(self) -> str:
        """One line for all of them, where versions say it all; else one after the other."""
        return " && ".join(member.revert() for member in self.members)

    def objects(self) -> frozenset[str]:
        """The old files of all of them."""
        return frozenset[str]().union(*(member.objects() for member in self.members))

    def covers(self) -> frozenset[str]:
        """The differences of all of them."""
        return frozenset(member.id for member in self.members)

    def inside(self, _evidence: Evidence) -> Inside | str:
        """Its packages one by one, against their requirements: what does not start like that is asked around."""
        parts = tuple(
            Part(one.id, f"package {one.name}", one.old_words, one.new_words, one.revert()) for one in self.members
        )
        return Members(parts=parts, members=self.members)


@dataclass(frozen=True)
class Members(Inside):
    """The packages of a bundle."""

    members: tuple[Package, ...]

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Leave these packages, and bring the others back."""
        for member in self.members:
            member.apply(plan, new=member.id in new)


def find(old: Snapshot, new: Snapshot, evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Distributions whose version, RECORD or installed contents differ; those that are tied as one."""
    found: dict[str, Factor | Fixed] = {one.id: one for one in _packages(old, new, evidence)}
    for names in bundles(ties(old, new)):
        members = [found.get(f"package:{name}") for name in names]
        switchable = [one for one in members if isinstance(one, Package)]
        if len(switchable) < len(names):  # what cannot be brought back holds the others where they are
            held = ", ".join(name for name, one in zip(names, members, strict=True) if not isinstance(one, Package))
            for one in switchable:
                reason = f"it moves only together with {held}, whose old files are not at hand"
                found[one.id] = Fixed(one.id, one.old_words, one.new_words, reason)
            continue
        for one in switchable:
            del found[one.id]
        was, is_now = (
            short("; ".join(f"{one.name} {one.new_words if new else one.old_words}" for one in switchable))
            for new in (False, True)
        )
        identifier = f"bundle:{'+'.join(names)}"
        found[identifier] = Bundle(identifier, was, is_now, tuple(switchable))
    yield from (found[name] for name in sorted(found))


def needs(old: Snapshot, new: Snapshot, factors: Iterable[Factor], fixed: Iterable[Fixed]) -> Iterator[Need]:
    """Which packages, not bundled, do not go without another by what they require; what is fixed is always new."""
    holder = {name: one.id for one in factors for name in one.covers()}
    always_new = {one.id for one in fixed}
    for tie in ties(old, new):
        one, other = (holder.get(name, name) for name in (f"package:{tie.mover}", f"package:{tie.moved}"))
        if one != other and (one if tie.side == "old" else other) not in always_new:
            yield Need(one, tie.side, other, tie.requirement)


def _packages(old: Snapshot, new: Snapshot, evidence: Evidence) -> Iterator[Package | Fixed]:
    before, after = old.packages.distributions, new.packages.distributions
    if old.packages.status in {"failed", "absent"} or new.packages.status in {"failed", "absent"}:
        return
    python = new.packages.interpreter.executable if new.packages.interpreter is not None else "python"
    for name in sorted(before.keys() | after.keys()):
        was, is_now = before.get(name), after.get(name)
        if was is not None and is_now is not None and _contents(was, is_now) == _contents(is_now, was):
            continue
        identifier, old_words, new_words = f"package:{name}", _words(was, is_now), _words(is_now, was)
        files = _old_files(name, was, old, evidence) if was is not None else ()
        if isinstance(files, str):
            yield Fixed(identifier, old_words, new_words, files)
        else:
            kept = name in old.packages.files
            yield Package(identifier, old_words, new_words, name, was, is_now, files, python, kept)


def _old_files(name: str, was: Distribution, old: Snapshot, evidence: Evidence) -> tuple[tuple[str, str], ...] | str:
    """The old files: those that were kept, else those of a wheel or another installed copy; or why there are none."""
    kept = tuple(sorted(old.packages.files.get(name, {}).items()))
    missing = evidence.missing(digest for _path, digest in kept)
    if kept and not missing:
        return kept
    reason = (
        f"{len(missing)} of its {len(kept)} kept files are not in the store beside the old snapshot"
        if kept
        else "its old files were not kept"
    )
    if was.editable:
        return "it is an editable install: its files are a source tree's"
    if evidence.wheels is None:
        return f"{reason}; name a folder of wheels with --wheelhouse, or capture with `--keep {name}` next time"
    if was.altered:
        return f"{reason}, and they were altered after their installation: no wheel has them"
    found = evidence.wheels.files(name, was, old.packages.interpreter)
    return f"{reason}, and {found}" if isinstance(found, str) else found


def _contents(one: Distribution, other: Distribution) -> tuple[object, ...]:
    """What is compared: the contents as verified only where both sides were."""
    verified = isinstance(one.contents, str) and isinstance(other.contents, str)
    return (one.version, one.record, one.contents if verified else None)


def _words(one: Distribution | None, other: Distribution | None) -> str:
    if one is None:
        return "absent"
    if other is None or one.version != other.version:
        return str(one.version)
    digest = one.contents if one.record == other.record else one.record
    return f"{one.version} (contents {str(digest)[:8]})"
