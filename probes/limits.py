"""What the server's processes may use: limits, cgroups with every ancestor's, shared memory, privileges, container.

A limit can stand on any ancestor of a cgroup, so all that can be seen are read; inside a container the ones above it
cannot, and the section says so.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Collection, Dict, List, Optional, Tuple

from probes.reading import Json, attempt, is_unread, read_bytes, read_text, unread, without_server

_V2 = (
    "cpu.max", "cpu.weight", "cpuset.cpus.effective", "cpuset.mems.effective", "memory.max", "memory.high", "pids.max",
    "io.max",
)  # fmt: skip
_V1 = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"),
    "cpuset": ("cpuset.cpus", "cpuset.mems", "cpuset.effective_cpus", "cpuset.effective_mems"),
    "memory": ("memory.limit_in_bytes",),
    "pids": ("pids.max",),
}
_MEMORY_EVENTS = ("high", "max", "oom", "oom_kill")
_UNLIMITED_BYTES = 1 << 60
_FIRST_NAMESPACE = "cgroup:[4026531835]"
"""The cgroup namespace that a kernel starts with always has this number."""
_PRIVILEGES = ("CapEff", "NoNewPrivs", "Seccomp")
_CONTAINER = re.compile(r"(docker|libpod|crio|cri-containerd|lxc|machine)[-/:]([0-9a-f]{12,64})")
_POD = re.compile(r"(kubepods)[-/.].*/([0-9a-f]{64})")

_OPEN_CONTAINERS = "var/lib/containers/storage/overlay-containers/%s/userdata/config.json"
_TASKS = "containerd/io.containerd.runtime.v2.task"
_KUBERNETES = (f"run/{_TASKS}/k8s.io/%s/config.json", f"run/k3s/{_TASKS}/k8s.io/%s/config.json")
_MADE_OF = {
    "docker": ("{docker}/containers/%s/config.v2.json", f"run/{_TASKS}/moby/%s/config.json"),
    "cri-containerd": _KUBERNETES,
    "kubepods": (*_KUBERNETES, _OPEN_CONTAINERS),
    "crio": (_OPEN_CONTAINERS,),
    "libpod": (_OPEN_CONTAINERS,),
}
"""Where each engine writes down what it made a container of, for root on the host to read."""
_IMAGE = {
    "image": (
        ("Config", "Image"),
        ("annotations", "io.kubernetes.cri.image-name"),
        ("annotations", "io.kubernetes.cri-o.ImageName"),
    ),
    "imageid": (("Image",), ("annotations", "io.kubernetes.cri-o.ImageRef")),
}


def read(context: Dict[str, Any]) -> Json:
    """The limits section: of the server's launcher, or of nothing when there is no server."""
    if not context.get("serving"):
        return without_server(context) or {}
    return collect("/", context["serving"]["pid"])


def collect(root: str, pid: int) -> Json:
    """The limits of one process, below `root`, which is the file system's except in tests."""
    process = os.path.join(root, "proc", str(pid))
    status = attempt(lambda: _status(read_text(os.path.join(process, "status"))))
    paths = attempt(lambda: cgroup_paths(read_text(os.path.join(process, "cgroup"))))
    found = levels(root, paths) if not is_unread(paths) else []
    affinity = None if is_unread(status) else status.get("Cpus_allowed_list")
    return {
        "limits": attempt(lambda: limits(read_text(os.path.join(process, "limits")))),
        "cgroup_levels": {str(number): level for number, level in enumerate(found)},
        "cpus": effective_cpus([level["settings"] for level in found], affinity),
        "memory_bytes": _least_memory([level["settings"] for level in found]),
        "throttling": attempt(lambda: _throttling(found)),
        "shared_memory_bytes": _shared_memory(os.path.join(process, "root/dev/shm")),
        "privileges": {
            **({} if is_unread(status) else {name: status[name] for name in _PRIVILEGES if name in status}),
            **_label(process),
        },
        "container": _container(root, process, paths),
        "hidden_ancestors": attempt(lambda: os.readlink(os.path.join(process, "ns/cgroup")) != _FIRST_NAMESPACE),
    }


def _label(process: str) -> Dict[str, str]:
    """What AppArmor or SELinux calls a process, without the categories that a container gets by chance."""
    try:
        text = read_bytes(os.path.join(process, "attr/current"), 4096).strip(b"\0\n ").decode("utf-8", "replace")
    except OSError:
        return {}
    return {"label": re.sub(r"(:s0)(?:-s0)?:c[\d,.c]+$", r"\1", text)} if text else {}


def _status(text: str) -> Dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def limits(text: str) -> Dict[str, str]:
    """/proc/PID/limits: name -> soft limit, `unlimited` where there is none."""
    found: Dict[str, str] = {}
    for line in text.splitlines()[1:]:
        match = re.match(r"Max (.+?)\s{2,}(\S+)\s+(\S+)", line)
        if match:
            found[match[1]] = match[2]
    return found


def cgroup_paths(text: str) -> Dict[str, str]:
    """Controller -> path; the unified hierarchy's name is empty."""
    paths: Dict[str, str] = {}
    for line in text.splitlines():
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def levels(root: str, paths: Dict[str, str]) -> List[Dict[str, Json]]:
    """The settings on a process's own cgroup and on every ancestor, its own first."""
    base = os.path.join(root, "sys/fs/cgroup")
    unified = next((place for place in (base, f"{base}/unified") if os.path.exists(f"{place}/cgroup.procs")), None)
    found: List[Dict[str, Json]] = []
    if "" in paths and unified is not None:
        for number, path in enumerate(_ancestors(paths[""])):
            _put(found, number, path, _settings(unified + path, _V2), _stat(unified + path))
            found[number]["memory_events"] = _counts(f"{unified}{path}/memory.events", _MEMORY_EVENTS)
    for controller, names in _V1.items():
        if controller in paths:
            mount = next(
                (place for place in (f"{base}/{controller}", f"{base}/cpu,cpuacct") if os.path.isdir(place)), None
            )
            for number, path in enumerate(_ancestors(paths[controller]) if mount else []):
                stat = _stat(f"{mount}{path}") if controller == "cpu" else {}
                _put(found, number, path, _settings(f"{mount}{path}", names), stat)
    return found


def _put(levels: List[Dict[str, Json]], number: int, path: str, settings: Dict[str, str], stat: Dict[str, int]) -> None:
    while len(levels) <= number:
        levels.append({"path": path, "settings": {}, "cpu_stat": {}, "memory_events": {}})
    levels[number]["settings"].update(settings)
    levels[number]["cpu_stat"].update(stat)


def _ancestors(path: str) -> List[str]:
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/" + "/".join(parts[:length]) if length else "" for length in range(len(parts), -1, -1)]


def _settings(place: str, names: tuple[str, ...]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for name in names:
        try:
            value = read_text(os.path.join(place, name)).strip()
        except OSError:
            continue
        if value:
            found[name] = value
    return found


def _stat(place: str) -> Dict[str, int]:
    return _counts(f"{place}/cpu.stat", {"nr_periods", "nr_throttled", "throttled_usec", "throttled_time"})


def _counts(path: str, kept: Collection[str]) -> Dict[str, int]:
    """The counters of these names in a file of a cgroup; none where there is no such file."""
    try:
        rows = [line.split() for line in read_text(path).splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] in kept and row[1].isdigit()}


def effective_cpus(levels: List[Dict[str, str]], affinity: Optional[str]) -> Optional[float]:
    """How many processors may be used at once: the least of every quota, set and affinity. None: no limit is known."""
    counts: List[float] = []
    for settings in levels:
        quota = cpu_quota(settings)
        counts.extend([quota[0] / quota[1]] if quota is not None else [])
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            counts.extend([count_cpus(settings[name])] if settings.get(name) else [])
    if affinity:
        counts.append(count_cpus(affinity))
    return min(counts) if counts else None


def cpu_quota(settings: Dict[str, str]) -> Optional[Tuple[int, int]]:
    """Quota and period (microseconds) of one cgroup's settings, of either version; None where it has no quota."""
    quota, _, period = settings.get("cpu.max", "").partition(" ")
    if not quota:
        quota, period = settings.get("cpu.cfs_quota_us", ""), settings.get("cpu.cfs_period_us", "")
    if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
        return int(quota), int(period)
    return None


def count_cpus(text: str) -> int:
    """How many processors `0-3,8` names."""
    total = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            total += (int(last) if last.isdigit() else int(first)) - int(first) + 1
    return total


def _least_memory(levels: List[Dict[str, str]]) -> Optional[int]:
    values = [settings.get(name, "") for settings in levels for name in ("memory.max", "memory.limit_in_bytes")]
    sizes = [int(value) for value in values if value.isdigit() and int(value) < _UNLIMITED_BYTES]
    return min(sizes) if sizes else None


def _throttling(levels: List[Dict[str, Json]]) -> Dict[str, int]:
    """The counters of the level that was throttled most."""
    stats = [level["cpu_stat"] for level in levels if level["cpu_stat"]]
    return max(stats, key=lambda stat: stat.get("nr_throttled", 0)) if stats else {}


def _shared_memory(place: str) -> Json:
    try:
        about = os.statvfs(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unread(error)
    return about.f_frsize * about.f_blocks


def container_of(paths: Dict[str, str]) -> Optional[Tuple[str, str]]:
    """The kind and the id of the container whose cgroups these are; None where none is seen."""
    matches = (_CONTAINER.search(path) or _POD.search(path) for path in paths.values())
    return next(((match[1], match[2]) for match in matches if match), None)


def made_of(root: str, kind: str, number: str) -> Tuple[Optional[str], Json]:
    """Which file tells what a container was made of, and what it tells; None where there is none, as from inside.

    Raises:
        OSError: it may not be read.
        ValueError: it is no JSON.
    """
    for pattern in _MADE_OF.get(kind, ()):
        path = pattern.replace("{docker}", _docker(root)) % number
        if os.path.isfile(os.path.join(root, path)) or not _may_look(os.path.dirname(os.path.join(root, path))):
            return f"/{path}", json.loads(read_text(os.path.join(root, path), 4 << 20))
    return None, None


def _may_look(place: str) -> bool:
    """Whether a missing file is known to be missing: somebody who may not enter a directory sees nothing in it."""
    try:
        os.stat(place)
    except PermissionError:
        return False
    except OSError:
        return True
    return os.access(place, os.X_OK)


def _docker(root: str) -> str:
    """Docker's own directory."""
    try:
        told = json.loads(read_text(os.path.join(root, "etc/docker/daemon.json")))
        return str(told["data-root"]).strip("/")
    except (OSError, ValueError, KeyError, TypeError):
        return "var/lib/docker"


def _image(root: str, kind: str, number: str) -> Dict[str, str]:
    """The image of a container, seen from its host; empty where that cannot be seen."""
    try:
        _path, told = made_of(root, kind, number)
    except (OSError, ValueError):
        return {}
    found: Dict[str, str] = {}
    for name, ways in _IMAGE.items():
        for steps in ways:
            value = told
            for step in steps:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, str) and value:
                found.setdefault(name, value)
    return found


def _container(root: str, process: str, paths: Json) -> Dict[str, str]:
    """What kind of container the server is in, its id and image, as far as files tell."""
    found: Dict[str, str] = {}
    seen = None if is_unread(paths) else container_of(paths)
    if seen is not None:
        found.update(kind=seen[0], id=seen[1], **_image(root, *seen))
    for mark, kind in (("root/.dockerenv", "docker"), ("root/run/.containerenv", "podman")):
        if "kind" not in found and os.path.exists(os.path.join(process, mark)):
            found["kind"] = kind
    try:
        text = read_text(os.path.join(process, "root/run/.containerenv"))
    except OSError:
        text = ""
    for name in ("image", "imageid"):
        match = re.search(rf'^{name}="(.*)"$', text, re.MULTILINE)
        if match:
            found[name] = match[1]
    if "kind" not in found and os.path.isdir(os.path.join(process, "root/var/run/secrets/kubernetes.io")):
        found["kind"] = "kubernetes"
    return found
