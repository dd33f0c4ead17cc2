"""Launch flags: the words after the program, as flags with their values."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from fingerprint.factors.base import Evidence, Factor, Fixed, short
from fingerprint.factors.plan import LaunchPlan
from fingerprint.factors.tree import in_place_of, moved_roots
from fingerprint.launch import command_line
from snapshots import Snapshot
from snapshots.launch import CommandLine, is_inert_flag
from snapshots.spellings import Words, names_of, paired


@dataclass(frozen=True)
class Flag(Factor):
    """One setting of the launch, under the name that either launch wrote."""

    name: str
    """As the new launch writes it, else as the old one does."""
    old: Words | None
    new: Words | None
    old_name: str = ""
    """As the old launch writes it; empty: as `name`."""
    old_resolved: tuple[JsonValue, ...] = ()
    """What the old server said that it made of it; empty: it did not say."""
    new_resolved: tuple[JsonValue, ...] = ()

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Give the command line this setting's words, or take it away, under whatever name it is there."""
        values = self.new if new else self.old
        name = self.name if new else self.old_name or self.name
        line = CommandLine.of(plan.argv)
        for flag in {self.name, self.old_name or self.name} - {name}:
            line = line.with_flag(flag, None)
        plan.argv = line.with_flag(name, values).argv()
        if values is None:
            plan.check(self.id, "no word", values=[name])
            return
        plan.needed_flags.append(name)
        plan.check(self.id, "word", values=names_of(name))  # the version at hand may know it by another of them
        for word in values:
            plan.check(self.id, "word", values=[word])
        resolved = self.new_resolved if new else self.old_resolved
        if resolved:
            plan.check(self.id, "argument", names=_arguments(name), words=list(values), values=list(resolved))

    def revert(self) -> str:
        """What to change in the launch command."""
        if self.old is None:
            return f"# take {self.name} out of the launch command"
        return f"# launch with {shlex.join([self.old_name or self.name, *self.old])}"


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Flags that the two launches differ in."""
    before = command_line(old.server.processes.get("launcher"))
    after = command_line(new.server.processes.get("launcher"))
    if before is None or after is None:
        return
    if before.program[1:] != after.program[1:]:
        reason = "the two servers were started by different programs"
        yield Fixed("flag:program", short(shlex.join(before.program)), short(shlex.join(after.program)), reason)
    moved = moved_roots(old, new)
    for name, (old_name, new_name) in sorted(paired(before.flags, after.flags).items()):
        was, is_now = before.flags.get(old_name or ""), after.flags.get(new_name or "")
        was = tuple(in_place_of(moved, word) for word in was) if was is not None else None
        if was == is_now or is_inert_flag(name):
            continue
        if was is not None and any("<secret:" in word for word in was):
            reason = "its old value is a secret, which snapshots do not hold"
            yield Fixed(f"flag:{name}", "a secret", _words(is_now), reason)
        else:
            made = _resolved(old, old_name), _resolved(new, new_name)
            yield Flag(f"flag:{name}", _words(was), _words(is_now), name, was, is_now, old_name or "", *made)


def _arguments(flag: str) -> list[str]:
    """What an engine may call the setting of a flag in its account of itself."""
    return [name.lstrip("-").replace("-", "_") for name in names_of(flag)]


def _resolved(side: Snapshot, flag: str | None) -> tuple[JsonValue, ...]:
    """What the server of one side says that it made of a flag of its own command line."""
    told = side.server.arguments
    if flag is None or not isinstance(told, dict):
        return ()
    return tuple(told[name] for name in _arguments(flag) if name in told)[:1]


def _words(values: Words | None) -> str:
    return "absent" if values is None else short(shlex.join(values) or "given")
