"""Surroundings of the launched process: processors, memory policy, niceness, limits, CPU quota, directory, caches.

What the launcher was given is inherited by all that it starts, so the launcher is compared. Where only the ranks
differ, the engine or somebody else gave it to them after the launch: that follows from another factor, or from none.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fingerprint.factors.base import Evidence, Factor, Fixed, short
from fingerprint.factors.plan import LaunchPlan
from fingerprint.factors.surroundings import outermost, shown_by, surroundings_of
from snapshots import Caches, Process, Snapshot

NAMES = {
    "affinity": "affinity",
    "memory_policy": "numa",
    "nice": "nice",
    "policy": "class",
    "limits": "limits",
    "cpu_quota": "cpu-quota",
}
"""A surrounding as the host program calls it (`probes.surroundings`) -> the last part of the factor's id."""

_CLASSES = frozenset({"other", "batch", "idle"})
"""Scheduling classes without a priority of their own."""


@dataclass(frozen=True)
class Surrounding(Factor):
    """One surrounding of the launcher."""

    name: str
    old: Any
    new: Any
    ranks_old: bool
    """Whether the ranks had what the launcher had; an engine may give them their own."""
    ranks_new: bool

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Launch with one value or the other."""
        value = self.new if new else self.old
        plan.surroundings[self.name] = (
            {**plan.surroundings.get(self.name, {}), **value} if isinstance(value, dict) else value
        )
        plan.switched.add(self.name)
        in_ranks = self.ranks_new if new else self.ranks_old
        plan.check(self.id, "surrounding", name=self.name, value=value, ranks=in_ranks)

    def revert(self) -> str:
        """How to launch with the old value: a comment, for the line to change is in somebody's script."""
        match self.name:
            case "affinity":
                return f"# launch with taskset --cpu-list {self.old}"
            case "nice":
                return f"# launch with niceness {self.old} (renice -n {self.old} -p PID; Nice={self.old} in a unit)"
            case "memory_policy" if self.old == "default":
                return "# launch without numactl"
            case "memory_policy":
                mode, _, nodes = str(self.old).partition(":")
                option = {"bind": "membind", "prefer": "preferred", "interleave": "interleave"}.get(mode, mode)
                return f"# launch with numactl --{option}={nodes}"
            case "limits":
                return "# launch with " + ", ".join(f"limit {name} {value}" for name, value in self.old.items())
            case "cpu_quota":
                return f"# set the quota of the server's cgroup to {self.old} (cpu.max, or CPUQuota= in a unit)"
        return f"# launch with {self.name} {self.old}"

    def demands(self) -> list[dict[str, Any]]:
        """Both values: whether this user may have them is tried on the host."""
        return [{"surrounding": self.name, "value": value} for value in (self.old, self.new)]


@dataclass(frozen=True)
class Directory(Factor):
    """The directory in which the server is started."""

    old: str
    new: str

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Start it in one or the other."""
        plan.cwd = self.new if new else self.old
        plan.check(self.id, "directory", path=plan.cwd)

    def revert(self) -> str:
        """Where to launch."""
        return f"cd {shlex.quote(self.old)}"

    def demands(self) -> list[dict[str, Any]]:
        """Both must be there."""
        return [{"directory": self.old}, {"directory": self.new}]


@dataclass(frozen=True)
class JitCaches(Factor):
    """Caches of compiled code and measured choices: new is as they are, old is cold, so that the engine makes them."""

    paths: tuple[str, ...]

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Launch with a private copy of each cache, or with an empty one."""
        for path in self.paths:
            plan.caches[path] = not new
            plan.check(self.id, "cache", path=path, cold=not new)

    def revert(self) -> str:
        """What to do with the caches."""
        return "rm -r " + shlex.join(self.paths)

    def demands(self) -> list[dict[str, Any]]:
        """A copy of another place, or a private layer over it."""
        return [{"cache": path} for path in self.paths]


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Surroundings that the two launches differ in."""
    before, after = old.server.processes.get("launcher"), new.server.processes.get("launcher")
    if before is None or after is None:
        return
    was, is_now = surroundings_of(old), surroundings_of(new)
    for name, label in NAMES.items():
        identifier = f"process:{label}"
        if name in was and name in is_now and was[name] != is_now[name]:
            yield _surrounding(identifier, name, (was[name], is_now[name]), (old, new))
        elif name in was and name in is_now and (moved := _moved_in_ranks(name, old, new)) is not None:
            reason = "the launcher has the same in both: it was given to the ranks after the launch"
            yield Fixed(f"{identifier} of {moved[0]}", short(moved[1]), short(moved[2]), reason)
    if isinstance(before.cwd, str) and isinstance(after.cwd, str) and before.cwd != after.cwd:
        yield Directory("process:cwd", short(before.cwd), short(after.cwd), before.cwd, after.cwd)
    yield from _caches(old.caches, new.caches)


def _surrounding(
    identifier: str, name: str, values: tuple[Any, Any], sides: tuple[Snapshot, Snapshot]
) -> Factor | Fixed:
    was, is_now = values
    if name == "limits":
        differing = [limit for limit in sorted(was.keys() & is_now.keys()) if was[limit] != is_now[limit]]
        was, is_now = ({limit: side[limit] for limit in differing} for side in values)
        words = [short(", ".join(f"{limit} {value}" for limit, value in side.items())) for side in (was, is_now)]
    else:
        words = [short(was), short(is_now)]
    if name == "policy" and not {was, is_now} <= _CLASSES:
        reason = "its scheduling class has a priority of its own, which snapshots do not hold"
        return Fixed(identifier, words[0], words[1], reason)
    in_ranks = [_inherited(name, side) for side in sides]
    return Surrounding(identifier, words[0], words[1], name, was, is_now, in_ranks[0], in_ranks[1])


def _ranks(snapshot: Snapshot) -> dict[str, Process]:
    return {name: one for name, one in snapshot.server.processes.items() if one.role == "rank"}


def _inherited(name: str, side: Snapshot) -> bool:
    """Whether the ranks have what the launcher has; limits and quota are read of the launcher only, and inherited."""
    launcher = shown_by(side.server.processes["launcher"])
    return name not in launcher or all(shown_by(rank).get(name) == launcher[name] for rank in _ranks(side).values())


def _moved_in_ranks(name: str, old: Snapshot, new: Snapshot) -> tuple[str, Any, Any] | None:
    """The first rank whose value differs between the sides, with both."""
    after = _ranks(new)
    for role, rank in _ranks(old).items():
        values = (
            shown_by(rank).get(name),
            shown_by(after[role]).get(name) if role in after else None,
        )
        if None not in values and values[0] != values[1]:
            return role, *values
    return None


def _caches(old: Caches, new: Caches) -> Iterator[Factor | Fixed]:
    """The caches as one factor, where the sides tell of different contents that steer the next start.

    What an old cache held is not kept. Two of its states can be had without it: none at all, and made anew.
    """
    if old.status in {"failed", "absent"} or new.status in {"failed", "absent"}:
        return
    emptied, filled, changed = [], [], []
    for name in sorted(old.caches.keys() & new.caches.keys()):
        was, is_now = old.caches[name], new.caches[name]
        if not isinstance(was.exists, bool) or not isinstance(is_now.exists, bool):
            continue
        had, has = was.exists and was.files > 0, is_now.exists and is_now.files > 0
        if has and not had:
            filled.append(is_now.path)
        elif had and not has:
            emptied.append(is_now.path)
        elif was.choices != is_now.choices:
            changed.append(is_now.path)
    if filled or changed:
        words = "cold" if not changed else "made anew (what they held then was not kept)"
        yield JitCaches("process:caches", words, "as they are", outermost(filled + changed))
    if emptied:
        reason = "what they held then was not kept; a launch cannot have it back"
        yield Fixed("process:caches emptied", "in use", f"cold: {short(', '.join(emptied))}", reason)
