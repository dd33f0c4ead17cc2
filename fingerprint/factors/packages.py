"""Installed packages: another version, or the same version with other contents."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from fingerprint.factors.base import Evidence, Factor, Fixed, extract_line
from fingerprint.factors.plan import LaunchPlan
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
        if self.files:
            old_build = extract_line(self.id, into=".")
            return f'{install} --force-reinstall "$({old_build})"'
        return f"{install} {shlex.quote(f'{self.name}=={self.old.version}')}"

    def objects(self) -> frozenset[str]:
        """The old files."""
        return frozenset(digest for _path, digest in self.files)


def find(old: Snapshot, new: Snapshot, evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Distributions whose version, RECORD or installed contents differ."""
    before, after = old.packages.distributions, new.packages.distributions
    if old.packages.status in {"failed", "absent"} or new.packages.status in {"failed", "absent"}:
        return
    python = new.packages.interpreter.executable if new.packages.interpreter is not None else "python"
    for name in sorted(before.keys() | after.keys()):
        was, is_now = before.get(name), after.get(name)
        if was is not None and is_now is not None and _contents(was, is_now) == _contents(is_now, was):
            continue
        identifier, old_words, new_words = f"package:{name}", _words(was, is_now), _words(is_now, was)
        files = tuple(sorted(old.packages.files.get(name, {}).items()))
        if was is not None and not files:
            reason = f"its old files were not kept; capture with `--keep {name}` next time"
            yield Fixed(identifier, old_words, new_words, reason)
        elif missing := evidence.missing(digest for _path, digest in files):
            reason = f"{len(missing)} of its {len(files)} kept files are not in the store beside the old snapshot"
            yield Fixed(identifier, old_words, new_words, reason)
        else:
            yield Package(identifier, old_words, new_words, name, was, is_now, files, python)


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
