"""Variables of the launch: set, changed or removed."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from fingerprint.factors.base import Evidence, Factor, Fixed, short
from fingerprint.factors.plan import LaunchPlan
from fingerprint.factors.tree import in_place_of, moved_roots
from fingerprint.launch import launch_variables
from snapshots import Snapshot

CACHES = frozenset(
    {
        "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "FLASHINFER_CUBIN_DIR", "DG_JIT_CACHE_DIR",
        "SGLANG_DG_CACHE_DIR", "TILELANG_CACHE_DIR", "SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR",
        "SGLANG_CUTE_AOT_CACHE_DIR",
    }
)  # fmt: skip
"""Variables that say where a cache of compiled kernels lies."""


@dataclass(frozen=True)
class Variable(Factor):
    """One variable of the launch."""

    name: str
    old: str | None
    new: str | None

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Set it, or take it away."""
        value = self.new if new else self.old
        if value is None:
            plan.variables.pop(self.name, None)
        else:
            plan.variables[self.name] = value
            if self.name in CACHES and value.startswith("/"):  # no launch writes to the other side's either
                plan.caches.setdefault(posixpath.normpath(value), False)
        plan.check(self.id, "variable", name=self.name, value=value)

    def revert(self) -> str:
        """The line for the launch script."""
        return (
            f"unset {shlex.quote(self.name)}"
            if self.old is None
            else f"export {shlex.quote(self.name)}={shlex.quote(self.old)}"
        )


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Variables that the two launches differ in."""
    before = launch_variables(old.server.processes.get("launcher"))
    after = launch_variables(new.server.processes.get("launcher"))
    if not before or not after:
        return
    moved = moved_roots(old, new)
    for name in sorted(before.keys() | after.keys()):
        was, is_now = before.get(name), after.get(name)
        was = in_place_of(moved, was) if was is not None else None
        if was == is_now:
            continue
        if was is not None and "<secret:" in was:
            reason = "its old value is a secret, which snapshots do not hold"
            yield Fixed(f"variable:{name}", "a secret", short(is_now), reason)
        elif reason := _elsewhere(name, ("old", was, old), ("new", is_now, new)):
            yield Fixed(f"variable:{name}", short(was), short(is_now), reason)
        else:
            yield Variable(f"variable:{name}", short(was), short(is_now), name, was, is_now)


def _elsewhere(name: str, *sides: tuple[str, str | None, Snapshot]) -> str:
    """Why no launch can give the ranks its value: on some side they have another one than their launch said.

    An engine that sets a variable itself does so in every trial, too.
    """
    for side, launched, snapshot in sides:
        for key, process in sorted(snapshot.server.processes.items()):
            if process.role == "rank" and isinstance(process.variables, dict):
                has = process.variables.get(name)
                if has != launched:
                    there = "none" if has is None else short(has)
                    said = f"{there} whatever the launch says ({short(launched)} on the {side} side)"
                    return f"{key} has {said}: the engine or a startup file decides it"
    return ""
