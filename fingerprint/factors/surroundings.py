"""What surrounded a launch, as a snapshot tells it, in the form in which the host program gives it to another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapshots import Limits, Process, Snapshot


def surroundings_of(snapshot: Snapshot) -> dict[str, Any]:
    """The launcher's surroundings, as far as they were readable, in the host program's form."""
    launcher = snapshot.server.processes.get("launcher")
    if launcher is None:
        return {}
    found: dict[str, Any] = shown_by(launcher)
    nodes = launcher.memory_nodes
    known = {str(node) for node in snapshot.topology.nodes}
    if found.get("memory_policy") == "default" and isinstance(nodes, str) and known and _numbers(nodes) < known:
        found["memory_policy"] = f"bind:{nodes}"  # a cpuset's doing; for what it allocates, the same
    limits = snapshot.limits
    if limits.status not in {"failed", "absent"}:
        if isinstance(limits.limits, dict) and limits.limits:
            found["limits"] = dict(limits.limits)
        found["cpu_quota"] = _quota(limits)
    return found


def shown_by(process: Process) -> dict[str, Any]:
    """What one process shows by itself."""
    values = {
        "affinity": process.affinity or None,
        "memory_policy": process.memory_policy,
        "nice": process.nice,
        "policy": process.policy,
    }
    return {name: value for name, value in values.items() if isinstance(value, (str, int))}


def _numbers(text: str) -> set[str]:
    found: set[str] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(str(number) for number in range(int(first), min(int(last or first), int(first) + 4096) + 1))
    return found


def _quota(limits: Limits) -> str:
    """The tightest quota of all levels, `max` where there is none."""
    tightest, share = "max", float("inf")
    for level in limits.cgroup_levels.values():
        quota, _, period = level.settings.get("cpu.max", "").partition(" ")
        if not quota:
            quota, period = level.settings.get("cpu.cfs_quota_us", ""), level.settings.get("cpu.cfs_period_us", "")
        if quota.isdigit() and period.isdigit() and int(period) > 0 and 0 < int(quota) / int(period) < share:
            tightest, share = f"{quota} {period}", int(quota) / int(period)
    return tightest


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Those paths that lie below no other one."""
    known = sorted(set(paths))
    return tuple(path for path in known if not any(path.startswith(f"{other}/") for other in known))
