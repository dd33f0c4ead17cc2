"""Settings of the host that have no private form: sysctls, huge pages, frequency governor, GPU clocks and power.

A trial really changes them, with the value before on the host's disk first, and puts them back (`probes.settings`).
That is done only where the user allows it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fingerprint.factors.base import Evidence, Factor, Fixed, short
from fingerprint.factors.plan import LaunchPlan
from snapshots import Gpu, Snapshot

SYSCTLS = frozenset(
    {
        "kernel.numa_balancing", "kernel.sched_autogroup_enabled", "kernel.timer_migration", "kernel.nmi_watchdog",
        "net.core.busy_poll", "vm.compaction_proactiveness", "vm.stat_interval", "vm.swappiness",
        "vm.zone_reclaim_mode",
    }
)  # fmt: skip
"""Those that act on a running server and can be set back and forth; a difference in another one is only shown."""

KINDS = frozenset({"host", "gpu"})
"""Kinds of factors that really change the host."""


@dataclass(frozen=True)
class HostSetting(Factor):
    """One setting, or the same one of several GPUs."""

    old: dict[str, Any]
    """Setting as the host program calls it -> value."""
    new: dict[str, Any]
    command: str
    """What sets the old value for good."""

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Have the host in one state or the other while the trial runs."""
        values = self.new if new else self.old
        plan.settings.update(values)
        for name, value in values.items():
            plan.check(self.id, "setting", name=name, value=value)

    def revert(self) -> str:
        """The command."""
        return self.command

    def demands(self) -> list[dict[str, Any]]:
        """Both states: whether this user may set them is asked on the host."""
        return [{"settings": self.old}, {"settings": self.new}]


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Settings that the two hosts differ in."""
    if old.host.status not in {"failed", "absent"} and new.host.status not in {"failed", "absent"}:
        yield from _sysctls(old, new)
        yield from _huge_pages(old, new)
        yield from _governor(old, new)
    if old.gpu.status not in {"failed", "absent"} and new.gpu.status not in {"failed", "absent"}:
        yield from _gpus("gpu:power-limit", "power_limit_w", "{:g} W", _power, old, new)
        yield from _gpus("gpu:persistence", "persistence", "{}", lambda gpu: gpu.persistence, old, new)
        yield from _gpus("gpu:clocks", "clocks", "{} MHz", _clocks, old, new)


def _one(identifier: str, name: str, was: str, is_now: str, command: str) -> HostSetting:
    return HostSetting(identifier, short(was), short(is_now), {name: was}, {name: is_now}, command)


def _sysctls(old: Snapshot, new: Snapshot) -> Iterator[Factor]:
    for name in sorted(SYSCTLS & old.host.sysctls.keys() & new.host.sysctls.keys()):
        was, is_now = old.host.sysctls[name], new.host.sysctls[name]
        if was != is_now:
            path = f"proc/sys/{name.replace('.', '/')}"
            yield _one(f"host:{name}", path, was, is_now, f"sysctl -w {shlex.quote(f'{name}={was}')}")


def _huge_pages(old: Snapshot, new: Snapshot) -> Iterator[Factor]:
    for name in sorted(old.host.huge_pages.keys() & new.host.huge_pages.keys()):
        was, is_now = old.host.huge_pages[name], new.host.huge_pages[name]
        if was != is_now:
            path = f"sys/kernel/mm/transparent_hugepage/{name}"
            yield _one(f"host:transparent_hugepage/{name}", path, was, is_now, f"echo {shlex.quote(was)} > /{path}")


def _governor(old: Snapshot, new: Snapshot) -> Iterator[Factor | Fixed]:
    was, is_now = old.host.cpu.governors, new.host.cpu.governors
    if was == is_now or not was or not is_now:
        return
    if len(was) == len(is_now) == 1:
        command = f"cpupower frequency-set --governor {shlex.quote(was[0])}"
        yield _one("host:governor", "governor", was[0], is_now[0], command)
    else:
        reason = "the processors had different governors, and snapshots do not say which had which"
        yield Fixed("host:governor", short(", ".join(was)), short(", ".join(is_now)), reason)


def _power(gpu: Gpu) -> object:
    return gpu.power_limit_w


def _clocks(gpu: Gpu) -> object:
    return gpu.clock_ranges.get("graphics") if isinstance(gpu.clock_ranges, dict) else None


_COMMANDS = {
    "power_limit_w": "nvidia-smi --id={bus} --power-limit={value:g}",
    "persistence": "nvidia-smi --id={bus} --persistence-mode={value:d}",
    "clocks": "nvidia-smi --id={bus} --lock-gpu-clocks={value}",
}


def _gpus(
    identifier: str, name: str, form: str, value_of: Callable[[Gpu], object], old: Snapshot, new: Snapshot
) -> Iterator[Factor]:
    """One setting of all GPUs that have it otherwise, as one factor: they are set together."""
    was: dict[str, Any] = {}
    is_now: dict[str, Any] = {}
    commands: list[str] = []
    for bus in sorted(old.gpu.gpus.keys() & new.gpu.gpus.keys()):
        before, after = old.gpu.gpus[bus], new.gpu.gpus[bus]
        if not isinstance(before, Gpu) or not isinstance(after, Gpu):
            continue
        values = value_of(before), value_of(after)
        if values[0] != values[1] and all(isinstance(value, (bool, int, float, str)) for value in values):
            was[f"gpu/{bus}/{name}"], is_now[f"gpu/{bus}/{name}"] = values
            value = values[0].replace("-", ",") if isinstance(values[0], str) else values[0]
            commands.append(_COMMANDS[name].format(bus=bus, value=value))
    if was:
        words = [
            short(", ".join(dict.fromkeys(form.format(value) for value in side.values()))) for side in (was, is_now)
        ]
        count = f" ({len(was)} GPUs)" if len(was) > 1 else ""
        yield HostSetting(identifier, words[0], words[1] + count, was, is_now, "; ".join(commands))
