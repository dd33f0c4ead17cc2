"""The machine below the server: kernel, boot parameters, processors and governor, memory policy, clock, firmware."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from probes.reading import Json, attempt, names_in, read_bytes, read_text
from probes.secrets import Keeper

_SYSCTLS = (
    "kernel/numa_balancing", "kernel/sched_autogroup_enabled", "kernel/sched_rt_runtime_us", "kernel/timer_migration",
    "kernel/watchdog", "kernel/nmi_watchdog", "kernel/perf_event_paranoid", "kernel/yama/ptrace_scope",
    "kernel/randomize_va_space", "kernel/sched_energy_aware", "kernel/sched_schedstats",
     "kernel/soft_watchdog", "net/core/rmem_max", "net/core/wmem_max", "net/core/somaxconn",
    "net/core/busy_poll", "net/ipv4/tcp_congestion_control", "vm/swappiness", "vm/zone_reclaim_mode",
    "vm/nr_hugepages", "vm/overcommit_memory", "vm/max_map_count", "vm/dirty_ratio", "vm/compaction_proactiveness",
    "vm/stat_interval",
)  # fmt: skip
_MODULES = re.compile(r"^((?:nvidia|amdgpu|nouveau|gdrdrv|mlx[45]_|bnxt_re|efa|xpmem|knem|vfio_pci)\w*) ", re.MULTILINE)
_DAEMONS = {
    "nvidia-cuda-mps": "MPS", "nvidia-persiste": "persistence", "nv-fabricmanage": "fabric manager",
    "nv-hostengine": "DCGM", "dcgm-exporter": "DCGM exporter", "irqbalance": "irqbalance", "tuned": "tuned",
}  # fmt: skip
"""By the 15 letters that the kernel keeps of a name."""
_MOST_PARAMETERS = 200
_HUGE = ("enabled", "defrag", "shmem_enabled", "khugepaged/defrag")


def read(context: Dict[str, Any]) -> Json:
    """The host section."""
    return collect("/", context["keeper"])


def collect(root: str, keeper: Keeper) -> Json:
    """The host below `root`, which is the file system's except in tests."""

    def word(path: str) -> Optional[str]:
        """One small file; None when the kernel does not have it."""
        try:
            return read_text(os.path.join(root, path)).strip()
        except OSError:
            return None

    def chosen(path: str) -> Optional[str]:
        text = word(path)
        marked = re.search(r"\[(\S+)\]", text or "")
        return marked[1] if marked else text

    cpuinfo = word("proc/cpuinfo") or ""
    uptime = (word("proc/uptime") or "").split()
    memory = dict(re.findall(r"^(\w+):\s+(\d+)", word("proc/meminfo") or "", re.MULTILINE))
    system = os.uname() if root == "/" else None
    return {
        "kernel": word("proc/sys/kernel/osrelease"),
        "kernel_build": word("proc/sys/kernel/version"),
        "machine": system.machine if system else None,
        "name": system.nodename if system else None,
        "command_line": keeper.text(word("proc/cmdline") or ""),
        "boot_id": word("proc/sys/kernel/random/boot_id"),
        "uptime_s": float(uptime[0]) if uptime else None,
        "system": _os_release(word("etc/os-release") or ""),
        "firmware": {
            name: value
            for name in ("bios_vendor", "bios_version", "bios_date", "board_name", "product_name", "sys_vendor")
            for value in [word(f"sys/class/dmi/id/{name}")]
            if value
        },
        "virtualization": _virtualization(
            cpuinfo, word("sys/class/dmi/id/sys_vendor") or "", word("sys/hypervisor/type")
        ),
        "cpu": _cpu(root, cpuinfo, word),
        "memory_kib": int(memory["MemTotal"]) if "MemTotal" in memory else None,
        "memory_available_kib": int(memory["MemAvailable"]) if "MemAvailable" in memory else None,
        "swap_kib": int(memory["SwapTotal"]) if "SwapTotal" in memory else None,
        "huge_pages": {
            name: value
            for name in _HUGE
            for value in [chosen(f"sys/kernel/mm/transparent_hugepage/{name}")]
            if value is not None
        },
        "page_merging": word("sys/kernel/mm/ksm/run"),
        "clocksource": word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "sysctls": {
            path.replace("/", "."): value
            for path in _SYSCTLS
            for value in [word(f"proc/sys/{path}")]
            if value is not None
        },
        "load": [float(number) for number in (word("proc/loadavg") or "").split()[:3]],
        "pressure": {
            kind: float(found[1])
            for kind in ("cpu", "memory", "io")
            for found in [re.search(r"some avg10=([\d.]+)", word(f"proc/pressure/{kind}") or "")]
            if found
        },
        "modules": (modules := sorted(_MODULES.findall(word("proc/modules") or ""))),
        "module_versions": {
            name: version for name in modules for version in [word(f"sys/module/{name}/version")] if version
        },
        "module_parameters": {
            f"{name}.{parameter}": value for name in modules for parameter, value in _parameters(root, name)
        },
        "tuned_profile": word("etc/tuned/active_profile"),
        "library_directories": _library_directories(root),
        "daemons": _daemons(root),
        "steal_ticks": _steal(word("proc/stat") or ""),
        "preload": attempt(lambda: read_text(os.path.join(root, "etc/ld.so.preload")))
        if os.path.exists(os.path.join(root, "etc/ld.so.preload"))
        else None,
        "numactl": _on_path("numactl", root),
    }


def _parameters(root: str, module: str) -> Iterator[Tuple[str, str]]:
    """What a kernel module was told, as far as any user may read it, so that root's captures say no more."""
    place = os.path.join(root, "sys/module", module, "parameters")
    for name in names_in(place)[:_MOST_PARAMETERS]:
        try:
            if os.stat(os.path.join(place, name)).st_mode & 0o004:
                yield name, read_bytes(os.path.join(place, name), 200).decode("utf-8", "replace").strip()
        except OSError:  # noqa: PERF203 - one that cannot be read just now
            continue


def _library_directories(root: str) -> List[str]:
    """Where the dynamic linker looks before its own places, by its configuration, in order."""
    found: List[str] = []
    for path in (
        "etc/ld.so.conf",
        *(f"etc/ld.so.conf.d/{name}" for name in names_in(os.path.join(root, "etc/ld.so.conf.d"))),
    ):
        lines = attempt(lambda path=path: read_text(os.path.join(root, path)))  # type: ignore[misc]
        for line in lines.splitlines() if isinstance(lines, str) and path.endswith(".conf") else []:
            place = line.partition("#")[0].strip()
            found += [place] if place.startswith("/") and place not in found else []
    return found


def _daemons(root: str) -> List[str]:
    """Programs beside the server that have a say in how it runs, as far as processes can be seen from here."""
    found = set()
    for name in names_in(os.path.join(root, "proc")):
        if name.isdigit():
            try:
                comm = read_text(os.path.join(root, "proc", name, "comm")).strip()
            except OSError:
                continue
            found.update([_DAEMONS[comm]] if comm in _DAEMONS else [])
    return sorted(found)


def _os_release(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    kept = {"ID", "VERSION_ID", "PRETTY_NAME", "BUILD_ID", "IMAGE_ID", "IMAGE_VERSION"}
    return {name.lower(): value.strip().strip('"') for name, _, value in pairs if name in kept}


def _virtualization(cpuinfo: str, vendor: str, hypervisor: Optional[str]) -> str:
    """What the machine runs on: `none`, or a hypervisor as far as it can be told."""
    if hypervisor:
        return hypervisor
    for mark, name in {
        "QEMU": "kvm",
        "VMware": "vmware",
        "Microsoft": "hyperv",
        "Amazon": "amazon",
        "Google": "kvm",
    }.items():
        if mark in vendor and re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
            return name
    return "some hypervisor" if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) else "none"


def _cpu(root: str, cpuinfo: str, word: Any) -> Json:  # noqa: ANN401 - a closure
    def field(name: str) -> Optional[str]:
        found = re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
        return found[1].strip() if found else None

    base = "sys/devices/system/cpu"
    packages = set(re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.MULTILINE))
    return {
        "model": field("model name") or field("CPU part"),
        "microcode": field("microcode"),
        "sockets": len(packages) or None,
        "online": word(f"{base}/online"),
        "isolated": word(f"{base}/isolated") or None,
        "nohz_full": (word(f"{base}/nohz_full") or "").replace("(null)", "") or None,
        "smt": word(f"{base}/smt/control"),
        # Values over all processors, each once: one processor with another governor is seen.
        "governors": _all(root, f"{base}/cpu*/cpufreq/scaling_governor"),
        "frequency_driver": _all(root, f"{base}/cpu*/cpufreq/scaling_driver"),
        "energy_preferences": _all(root, f"{base}/cpu*/cpufreq/energy_performance_preference"),
        "max_khz": _all(root, f"{base}/cpu*/cpufreq/scaling_max_freq"),
        "khz_now": _all(root, f"{base}/cpu*/cpufreq/scaling_cur_freq")[:16],
        "boost": word(f"{base}/cpufreq/boost"),
        "no_turbo": word(f"{base}/intel_pstate/no_turbo"),
        "idle_driver": word(f"{base}/cpuidle/current_driver"),
        "idle_disabled": _disabled_idle_states(root, base),
        "mitigations": {
            os.path.basename(path): value
            for path in sorted(glob.glob(os.path.join(root, f"{base}/vulnerabilities/*")))
            for value in [word(os.path.relpath(path, root))]
            if value
        },
    }


def _all(root: str, pattern: str) -> List[str]:
    found = set()
    for path in glob.glob(os.path.join(root, pattern)):
        try:
            found.add(read_bytes(path, 4096).decode("ascii", "replace").strip())
        except OSError:  # noqa: PERF203 - a processor that is switched off
            continue
    return sorted(found)


def _disabled_idle_states(root: str, base: str) -> List[str]:
    disabled = set()
    for path in glob.glob(os.path.join(root, f"{base}/cpu*/cpuidle/state*/disable")):
        try:
            if read_text(path).strip() not in {"0", ""}:
                disabled.add(read_text(os.path.join(os.path.dirname(path), "name")).strip())
        except OSError:  # noqa: PERF203
            continue
    return sorted(disabled)


def _steal(text: str) -> Optional[int]:
    """Ticks that the hypervisor gave to others since boot."""
    words = text.split("\n", 1)[0].split()
    return int(words[8]) if len(words) > 8 and words[0] == "cpu" else None


def _on_path(name: str, root: str) -> bool:
    """Whether a program is installed in one of the usual places."""
    return any(os.access(os.path.join(root, place, name), os.X_OK) for place in ("usr/bin", "bin", "usr/local/bin"))
