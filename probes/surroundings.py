"""What surrounds a process: processors, memory policy, niceness, limits, CPU quota. Given before it starts, read after.

All of these are inherited, so a launch has them from its first instruction on. Whether this user may have a value here
is not guessed but tried, in a child that ends right after.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import sys
from typing import Callable, Dict, List, Optional, Set, Tuple

from probes import limits, processes
from probes.reading import Json, is_unread, read_text, unread

LIMITS = {
    "cpu time": resource.RLIMIT_CPU, "file size": resource.RLIMIT_FSIZE, "data size": resource.RLIMIT_DATA,
    "stack size": resource.RLIMIT_STACK, "core file size": resource.RLIMIT_CORE, "resident set": resource.RLIMIT_RSS,
    "processes": resource.RLIMIT_NPROC, "open files": resource.RLIMIT_NOFILE,
    "locked memory": resource.RLIMIT_MEMLOCK, "address space": resource.RLIMIT_AS, "file locks": 10,
    "pending signals": resource.RLIMIT_SIGPENDING, "msgqueue size": resource.RLIMIT_MSGQUEUE,
    "nice priority": resource.RLIMIT_NICE, "realtime priority": resource.RLIMIT_RTPRIO,
    "realtime timeout": resource.RLIMIT_RTTIME,
}  # fmt: skip
"""The kernel's names in /proc/PID/limits -> the resource."""

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "s390x": 270, "riscv64": 237}
_MODES = {
    "default": 0, "prefer": 1, "bind": 2, "interleave": 3, "local": 4, "prefer (many)": 5, "weighted interleave": 6,
}  # fmt: skip
"""As /proc/PID/numa_maps calls them -> the number in <linux/mempolicy.h>."""
_MODE_FLAGS = {"static": 1 << 15, "relative": 1 << 14, "balancing": 1 << 13}
_CLASSES = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}
_CPU_HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")


def numbers(text: str) -> Set[int]:
    """What a list like `0-3,8` names.

    Raises:
        ValueError: it is no such list.
    """
    found: Set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


# --- giving --------------------------------------------------------------------------------------------------------


def give(name: str, value: Json) -> None:
    """Give one surrounding to this process, for itself and all that it starts.

    Args:
        name: `affinity` (`0-3,8`), `memory_policy` (as numa_maps writes it), `nice`, `policy` (scheduling class),
            `limits` (soft ones, by the kernel's names), `cpu_quota` (the folder of a cgroup to move into).
        value: the value.

    Raises:
        OSError, ValueError: this user may not have it here, or it means nothing here.
    """
    _GIVE[name](value)


def _affinity(value: Json) -> None:
    wanted = numbers(value)
    os.sched_setaffinity(0, wanted)
    if os.sched_getaffinity(0) != wanted:
        raise OSError(22, f"only processors {sorted(os.sched_getaffinity(0))} of {value} may be used here")


def _memory_policy(value: Json) -> None:
    words, _, nodes = str(value).partition(":")
    name, _, flag = words.partition("=")
    if name not in _MODES or (flag and flag not in _MODE_FLAGS):
        raise ValueError(f"memory policy {value} is not known")
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise ValueError(f"how a memory policy is set on {platform.machine()} is not known")
    mask = sum(1 << node for node in numbers(nodes))
    words_of_mask = max(1, (mask.bit_length() + 63) // 64)
    array = (ctypes.c_ulong * words_of_mask)(*(mask >> 64 * place & (1 << 64) - 1 for place in range(words_of_mask)))
    bits = words_of_mask * 64 + 1 if mask else 0  # the kernel leaves the last bit out
    library = ctypes.CDLL(None, use_errno=True)
    mode = _MODES[name] | _MODE_FLAGS.get(flag, 0)
    if library.syscall(ctypes.c_long(number), ctypes.c_int(mode), array if mask else None, ctypes.c_ulong(bits)) != 0:
        raise OSError(ctypes.get_errno(), f"{os.strerror(ctypes.get_errno())}: memory policy {value}")


def _nice(value: Json) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, int(value))


def _policy(value: Json) -> None:
    if value not in _CLASSES:
        raise ValueError(f"scheduling class {value} has a priority of its own, which snapshots do not hold")
    os.sched_setscheduler(0, _CLASSES[value], os.sched_param(0))


def _limits(value: Json) -> None:
    for name, text in sorted(value.items()):
        soft = resource.RLIM_INFINITY if text == "unlimited" else int(text)
        hard = resource.getrlimit(LIMITS[name])[1]
        enough = hard == resource.RLIM_INFINITY or (soft != resource.RLIM_INFINITY and soft <= hard)
        try:
            resource.setrlimit(LIMITS[name], (soft, hard if enough else soft))
        except (OSError, ValueError) as error:
            raise OSError(1, f"{name} {text} is above the hard limit, {hard}; root may raise it") from error


def _enter(value: Json) -> None:
    for name in value:
        with open(os.path.join(name, "cgroup.procs"), "w") as stream:
            stream.write("0")


_GIVE: Dict[str, Callable[[Json], None]] = {
    "cpu_quota": _enter,
    "policy": _policy,
    "nice": _nice,
    "affinity": _affinity,
    "memory_policy": _memory_policy,
    "limits": _limits,
}
ORDER = tuple(_GIVE)
"""The order in which they are given: limits last, for they may keep the others from working."""


def refusal(name: str, value: Json) -> Optional[str]:
    """Why this process may not have a surrounding, or None: tried in a child. The caller has one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        words = b""
        try:
            give(name, value)
        except Exception as error:
            words = unread(error)["unread"].encode()[:2000] or b"refused"
        finally:
            os.write(writing, words)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return text or None


# --- a cgroup with a quota -------------------------------------------------------------------------------------------


def cpu_hierarchy(places: Tuple[str, ...] = _CPU_HIERARCHIES) -> Tuple[str, bool]:
    """The cgroup file system that divides processor time: its folder, and whether it is version 2.

    Raises:
        OSError: there is none, or its root does not hand the division on.
    """
    reason = "this host has no cgroup file system that divides processor time"
    for place in places:
        with contextlib.suppress(OSError):
            if "cpu" in read_text(f"{place}/cgroup.controllers").split():
                if "cpu" in read_text(f"{place}/cgroup.subtree_control").split():
                    return place, True
                reason = f"{place} does not hand the cpu controller on to further cgroups"
        if os.path.exists(f"{place}/cpu.cfs_quota_us"):
            return place, False
    raise OSError(2, reason)


def make_cgroup(name: str, quota: str, places: Tuple[str, ...] = _CPU_HIERARCHIES) -> str:
    """A new cgroup with a quota (`50000 100000` microseconds, or `max`); returns its folder.

    Raises:
        OSError: this user may not make one here.
    """
    base, unified = cpu_hierarchy(places)
    folder = os.path.join(base, name)
    try:
        os.mkdir(folder)
    except OSError as error:
        raise OSError(error.errno, f"no cgroup can be made in {base} ({error.strerror}); root may") from None
    try:
        limit, _, period = quota.partition(" ")
        period = period or "100000"
        if unified:
            _write(f"{folder}/cpu.max", f"{limit} {period}")
        else:
            _write(f"{folder}/cpu.cfs_period_us", period)
            _write(f"{folder}/cpu.cfs_quota_us", "-1" if limit == "max" else limit)
    except OSError:
        remove_cgroup(folder)
        raise
    return folder


def remove_cgroup(folder: str) -> None:
    """Remove an empty cgroup; one that is not there is fine."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def cgroups_named(prefix: str, places: Tuple[str, ...] = _CPU_HIERARCHIES) -> List[str]:
    """The folders of cgroups whose names begin so, wherever `make_cgroup` may have put them."""
    found: List[str] = []
    for place in places:
        with contextlib.suppress(OSError):
            found += [os.path.join(place, name) for name in os.listdir(place) if name.startswith(prefix)]
    return found


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


# --- reading ---------------------------------------------------------------------------------------------------------


def seen(pid: int, name: str) -> Json:
    """A surrounding as a process has it now, in the form in which it is given.

    Raises:
        OSError: it cannot be read.
    """
    return _SEE[name](pid)


def quota_of(pid: int) -> str:
    """The tightest quota over a process, of its cgroup and all that can be seen above; `max` where there is none."""
    paths = limits.cgroup_paths(read_text(f"/proc/{pid}/cgroup"))
    tightest, share = "max", float("inf")
    for level in limits.levels("/", paths):
        quota = limits.cpu_quota(level["settings"])
        if quota is not None and quota[0] / quota[1] < share:
            tightest, share = f"{quota[0]} {quota[1]}", quota[0] / quota[1]
    return tightest


_SEE: Dict[str, Callable[[int], Json]] = {
    "affinity": lambda pid: processes.status(pid)["Cpus_allowed_list"],
    "memory_policy": processes.memory_policy,
    "nice": lambda pid: processes.stat(pid).nice,
    "policy": lambda pid: processes.stat(pid).policy,
    "limits": lambda pid: limits.limits(read_text(f"/proc/{pid}/limits")),
    "cpu_quota": quota_of,
}


def equal(name: str, wanted: Json, there: Json) -> bool:
    """Whether a process has what it was to have."""
    if is_unread(there):
        return False
    if name == "affinity":
        return numbers(wanted) == numbers(there)
    if name == "limits":
        return all(there.get(limit) == value for limit, value in wanted.items())
    if name == "cpu_quota":
        return _share(wanted) == _share(there)
    if name == "memory_policy":
        return _policy_of(wanted) == _policy_of(there)
    return bool(wanted == there)


def _share(quota: str) -> float:
    limit, _, period = quota.partition(" ")
    return float("inf") if limit == "max" else int(limit) / int(period or 100000)


def _policy_of(text: str) -> Tuple[str, Set[int]]:
    words, _, nodes = text.partition(":")
    return words, numbers(nodes)


def choose(wanted: Dict[str, Json], switched: List[str], folder: Optional[str]) -> Tuple[Dict[str, Json], List[str]]:
    """What of the surroundings wanted this process can give, and in words what it cannot.

    Args:
        wanted: name -> value; what is here already is left out of the answer.
        switched: those without which there is no launch.
        folder: the cgroup that was made for the quota, where there is one.

    Raises:
        OSError: one of `switched` cannot be had.
    """
    given: Dict[str, Json] = {}
    missing: List[str] = []
    for name in ORDER:
        if name not in wanted:
            continue
        here = seen(os.getpid(), name)
        if name == "cpu_quota":
            given.update({name: [folder]} if folder is not None else {})
            continue
        # Each limit by itself: one that only root may raise costs no other.
        parts = [wanted[name]]
        if name == "limits":
            parts = [{limit: value} for limit, value in sorted(wanted[name].items())]
        for part in parts:
            if equal(name, part, here):
                continue
            reason = refusal(name, part)
            if reason is None:
                given[name] = {**given.get(name, {}), **part} if name == "limits" else part
            elif name in switched:
                raise OSError(1, f"{name}: {reason}")
            else:
                missing.append(f"unlike the live server's, its {name} is not {part}: {reason}")
    return given, missing


def main() -> None:
    """Try the surroundings that standard input lists, each with its `factor`; print factor -> why it cannot be had."""
    refused: Dict[str, str] = {}
    for one in json.load(sys.stdin):
        name, value = one["surrounding"], one["value"]
        reason: Optional[str] = None
        if name == "cpu_quota":
            try:
                remove_cgroup(make_cgroup(f"fingerprint-trial-{os.getpid()}-0-0", value))
            except OSError as error:
                reason = str(error.strerror)
        else:
            reason = refusal(name, value)
        if reason is not None:
            refused.setdefault(one["factor"], reason)
    sys.stdout.write(json.dumps(refused))
