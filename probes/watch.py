"""Watches a host while a trial is measured: what else used its processors and GPUs, and what held the clocks down.

The GPUs are looked at once, in the middle, by a child process: the look costs a fraction of a second, needs no GPU
context, and a driver that hangs costs only its own deadline.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Dict, Optional, Set

from probes import gpu, limits
from probes.reading import Json, attempt, is_unread, read_text, unread

HELD_DOWN = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
"""Clock-event reasons that say "slower than this configuration runs": heat or power failure, not a setting."""
AFTER_S = 0.5
"""The look at the GPUs comes so long after the start, when requests are running."""


class Watch:
    """One measurement's surroundings.

    Args:
        ours: processes whose use of a GPU is expected: the trial's, and the live server's beside it.
        nvml: the library to ask, where it is not the driver's own.
        server: the measured launcher: how long cgroup quotas held it up is counted.
    """

    def __init__(self, ours: Set[int], nvml: Optional[str] = None, server: Optional[int] = None) -> None:
        self._ours = ours
        self._server = server
        self._throttled = _throttled_s(server)
        self._ask = {} if nvml is None else {"nvml": nvml}
        self._before = _processor_times()
        self._gpus: Json = None
        self._timer: Optional[threading.Timer] = threading.Timer(AFTER_S, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        numbered = {str(pid): pid for pid in self._ours}
        section = attempt(lambda: gpu.read({"ask": self._ask, "serving": {"processes": numbered}}))
        self._gpus = section.get("gpus") or {} if not is_unread(section) else section

    def end(self) -> Json:
        """What was seen.

        Returns:
            `steal_share` and `idle_share` of all processor time; `gpus`, those of ours by bus id: `sm_mhz`,
            `memory_mhz`, `power_w`, `event_reasons` and the `foreign` processes; `throttled_s`, the time for which the
            tightest quota over the server held it up; `disturbances`, in words.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join(gpu.DEADLINE_S + 1.0)  # a driver that hangs has lost its child by then
            self._timer = None
        seen = _shares(self._before, _processor_times())
        words = []
        gpus: Dict[str, Json] = {}
        looked_at = {} if is_unread(self._gpus) else self._gpus or {}
        theirs = gpu.used_by(looked_at, self._ours)
        for bus, one in looked_at.items():
            if bus not in theirs or is_unread(one) or "clocks_now_mhz" not in one:
                continue
            reasons = one.get("event_reasons") or []
            used = one.get("processes") or []
            foreign = [process for process in used if process.get("foreign")] if isinstance(used, list) else []
            clocks = one["clocks_now_mhz"]
            gpus[bus] = {
                "sm_mhz": clocks.get("sm"),
                "memory_mhz": clocks.get("memory"),
                "power_w": one.get("power_now_w"),
                "event_reasons": reasons,
                "foreign": [f"{process['pid']} {process.get('name', '')}".strip() for process in foreign],
            }
            words += [f"GPU {bus}: process {name} is not ours" for name in gpus[bus]["foreign"]]
            held = sorted(HELD_DOWN.intersection(reasons)) if isinstance(reasons, list) else []
            words += [f"GPU {bus}: clocks held down by {', '.join(held)}"] if held else []
        until = _throttled_s(self._server)
        held_up = [until[path] - since for path, since in self._throttled.items() if path in until]
        return {**seen, "gpus": gpus, "throttled_s": max(held_up, default=None), "disturbances": words}


def _throttled_s(pid: Optional[int]) -> Dict[str, float]:
    """For how long each cgroup over a process was held up by its quota so far, in seconds."""
    if pid is None:
        return {}
    with contextlib.suppress(OSError, ValueError):
        levels = limits.levels("/", limits.cgroup_paths(read_text(f"/proc/{pid}/cgroup")))
        stats = {f"{number} {level['path']}": level["cpu_stat"] for number, level in enumerate(levels)}
        return {
            name: stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
            for name, stat in stats.items()
            if stat
        }
    return {}


def _processor_times() -> Dict[str, float]:
    """Time of all processors since boot, in ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = [float(field) for field in read_text("/proc/stat").splitlines()[0].split()[1:]]
        return {"steal": fields[7], "idle": fields[3] + fields[4], "total": sum(fields[:8])}
    return {}


def _shares(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, Json]:
    total = after.get("total", 0.0) - before.get("total", 0.0)
    if total <= 0:
        return {
            "steal_share": unread("/proc/stat could not be read"),
            "idle_share": unread("/proc/stat could not be read"),
        }
    return {
        "steal_share": (after["steal"] - before["steal"]) / total,
        "idle_share": (after["idle"] - before["idle"]) / total,
    }
