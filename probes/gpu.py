"""The GPUs, through NVML: what they are, what they are allowed, what holds them back, and how they reach each other.

NVML is the driver's own library and opens no CUDA context; NVIDIA's Python binding of it, pynvml, travels along with
this package. It runs in a child of its own, because it can hang in the kernel and has crashed before: such a child is
ended or abandoned, and the rest of the capture is there. Each of its answers can be missing on a given board or driver,
so each is a value or a reason by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from probes.amd import collect as amd_gpus
from probes.reading import Json, attempt, is_unread, names_in, read_text, run, run_module, unread

DEADLINE_S = 15.0
LIBRARIES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
_NOT_LOADED = "NVML cannot be loaded"
_SMI_FIELDS = (
    "pci.bus_id", "name", "uuid", "driver_version", "vbios_version", "memory.total", "power.limit",
    "power.default_limit", "enforced.power.limit", "clocks.max.sm", "clocks.max.mem", "persistence_mode",
    "compute_mode", "pcie.link.width.current", "pcie.link.width.max", "temperature.gpu",
)  # fmt: skip
_MOST_GPUS = 64
_MOST_LINKS = 36
_MOST_PROCESSES = 256

_ERRORS = {18: "driver/library version mismatch"}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_EVENT_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip
_P2P = (
    "ok", "chipset not supported", "GPU not supported", "topology not supported", "disabled by registry key",
    "not supported", "unknown",
)  # fmt: skip
_FABRIC_STATES = ("not supported", "not started", "in progress", "completed")
_FABRIC_FAULTS = {0: "degraded bandwidth", 2: "route recovery", 4: "unhealthy route", 6: "access timeout recovery"}
"""By the place of their two bits in the health mask, which are 1 for yes."""
_ALWAYS = ("memory_bytes", "temperature_c", "power_now_w", "utilization", "performance_state")
"""A board that lacks all of these is there and does not work."""
_LEVELS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def read(context: Dict[str, Any]) -> Json:
    """The gpu section."""
    module = _kernel_module()
    named = context["ask"].get("nvml")
    if not named and module is None and not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/dxg"):
        return amd_gpus() or {
            "status": "absent",
            "reason": "no NVIDIA driver is loaded here, and no GPU of AMD's shows itself",
        }
    section: Dict[str, Json] = {"kernel_module": module, "parameters": attempt(_parameters) if module else {}}
    told = _ask_nvml([named] if named else list(LIBRARIES))
    if is_unread(told) and told["unread"].startswith(_NOT_LOADED):
        told = _ask_nvidia_smi(told["unread"])
    if is_unread(told):
        return {**section, "status": "failed", "reason": told["unread"], "gpus": _only_in_sysfs({}, told["unread"])}
    ours = set(((context.get("serving") or {}).get("processes") or {}).values())
    theirs = used_by(told["gpus"], ours)
    for bus, gpu in told["gpus"].items():
        if not is_unread(gpu) and not is_unread(gpu["processes"]):
            gpu["processes"] = [_described(process, ours if bus in theirs else set()) for process in gpu["processes"]]
    if not named:
        told["gpus"].update(_only_in_sysfs(told["gpus"], "NVML does not list it"))
    return {**section, **told}


def used_by(gpus: Dict[str, Json], pids: Set[int]) -> Set[str]:
    """The GPUs, by bus id, that processes use: all where NVML names none of them, as from inside a container."""

    def of(one: Json) -> Set[int]:
        used = None if is_unread(one) else one.get("processes")
        return set() if is_unread(used) else {process["pid"] for process in used or []}

    return {bus for bus, one in gpus.items() if of(one) & pids} or set(gpus)


def _described(process: Dict[str, Json], ours: Set[int]) -> Dict[str, Json]:
    """A process on a GPU, with whether it is a stranger to the captured server there."""
    try:
        name = read_text(f"/proc/{process['pid']}/comm").strip()
    except OSError:
        name = ""  # in another process namespace
    return {**process, "name": name, "foreign": bool(ours) and process["pid"] not in ours}


def _kernel_module() -> Optional[Dict[str, Json]]:
    """The loaded kernel module, which NVML's own library need not match."""
    try:
        text = read_text("/proc/driver/nvidia/version")
    except OSError:
        return None
    version = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return {"version": version[1] if version else text.strip()[:200], "open": "Open Kernel Module" in text}


def _parameters() -> Dict[str, str]:
    """The kernel module's parameters."""
    pairs = (line.partition(":") for line in read_text("/proc/driver/nvidia/params").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _only_in_sysfs(known: Dict[str, Json], reason: str) -> Dict[str, Json]:
    """GPUs that are on the PCI bus and that NVML does not give: fallen off, or not bound to the driver."""
    found: Dict[str, Json] = {}
    for name in names_in("/sys/bus/pci/devices"):
        try:
            vendor = read_text(f"/sys/bus/pci/devices/{name}/vendor").strip()
            kind = read_text(f"/sys/bus/pci/devices/{name}/class").strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind[:6] in {"0x0300", "0x0302"} and name not in known:
            found[name] = unread(reason)
    return found


def _ask_nvml(libraries: List[str]) -> Json:
    done = run_module("probes.gpu", DEADLINE_S, *libraries)
    if done.reason is not None:
        return unread(done.reason.replace(sys.executable, "NVML"))
    try:
        return json.loads(done.text())
    except ValueError:
        return unread("NVML answered nothing")


def _ask_nvidia_smi(reason: str) -> Json:
    """The most important values by way of the tool: for a Python that cannot load the driver's library."""
    query = [f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    done = run(["nvidia-smi", *query], DEADLINE_S)
    if done.reason is not None:
        return unread(f"{reason}; {done.reason}")
    gpus: Dict[str, Json] = {}
    driver = None
    for number, line in enumerate(done.text().splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_SMI_FIELDS):
            gpus[f"index {number}"] = unread(f"nvidia-smi: {line[:200]}")
            continue
        read = dict(zip(_SMI_FIELDS, (_smi_cell(cell) for cell in cells)))
        driver = read["driver_version"]
        gpus[bus_id(cells[0])] = {
            "index": number,
            "name": read["name"],
            "uuid": read["uuid"],
            "vbios": read["vbios_version"],
            "memory_bytes": _scaled(read["memory.total"], 1 << 20),
            "power_limit_w": _scaled(read["power.limit"], 1.0),
            "power_default_w": _scaled(read["power.default_limit"], 1.0),
            "power_enforced_w": _scaled(read["enforced.power.limit"], 1.0),
            "clocks_max_mhz": {
                kind: value
                for kind, value in (
                    ("sm", _scaled(read["clocks.max.sm"], 1)),
                    ("memory", _scaled(read["clocks.max.mem"], 1)),
                )
                if value is not None
            },
            "persistence": None if read["persistence_mode"] is None else read["persistence_mode"] == "Enabled",
            "compute_mode": str(read["compute_mode"]).replace("_", " ").lower() if read["compute_mode"] else None,
            "pcie_width": _scaled(read["pcie.link.width.current"], 1),
            "pcie_width_max": _scaled(read["pcie.link.width.max"], 1),
            "temperature_c": _scaled(read["temperature.gpu"], 1),
            "processes": [],
        }
    return {"driver": driver, "gpus": gpus}


def _smi_cell(text: str) -> Json:
    """A cell of nvidia-smi; None for what the board does not have."""
    if text in {"[N/A]", "N/A", "[Not Supported]", ""}:
        return None
    return unread(f"nvidia-smi: {text.strip('[]')}") if text.startswith("[") else text


def _scaled(value: Json, unit: float) -> Json:
    if value is None or is_unread(value):
        return value
    try:
        return type(unit)(float(value) * unit)
    except ValueError:
        return unread(f"nvidia-smi: {value}")


# What follows runs in the child.


class NvmlError(Exception):
    """NVML answered with an error; the text is its own."""


class Nvml:
    """The library by way of NVIDIA's own Python binding, which knows its structures and their versions."""

    def __init__(self, libraries: List[str]) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise NvmlError(f"{_NOT_LOADED}: {error}") from None
        self._binding = pynvml
        reasons = []
        for name in libraries:
            try:
                pynvml.nvmlLib = ctypes.CDLL(name)
                return
            except OSError as error:  # noqa: PERF203 - the next one may be there
                reasons.append(str(error))
        raise NvmlError(f"{_NOT_LOADED}: {reasons[0]}")

    def ask(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - whatever the function takes and gives
        """Call a function of the binding; bytes come back as text.

        Raises:
            NvmlError: it does not exist in this driver, or failed.
        """
        function = getattr(self._binding, name, None)
        if function is None:
            raise NvmlError(f"pynvml has no {name}")
        try:
            answer = function(*arguments)
        except self._binding.NVMLError as error:
            if error.value == self._binding.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise NvmlError(f"this driver's NVML has no {name}") from None
            raise NvmlError(_ERRORS.get(error.value) or str(error)) from None
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    def structure(self, name: str) -> Any:  # noqa: ANN401 - the binding's own
        """An empty structure of the binding, of the version that its name says.

        Raises:
            NvmlError: the binding does not know it.
        """
        made = getattr(self._binding, name, None)
        if made is None:
            raise NvmlError(f"pynvml has no {name}")
        return made()


def _value(read: Callable[[], Json]) -> Json:
    """What `read` returns; None for what this board does not have; else the reason."""
    try:
        return read()
    except NvmlError as error:
        return None if str(error) == "Not Supported" else unread(str(error))
    except (ValueError, OSError) as error:
        return unread(error)


def bus_id(text: str) -> str:
    """A PCI address as the kernel writes it: `0000:3b:00.0`."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def collect(nvml: Nvml) -> Dict[str, Json]:
    """Everything that the gpu section takes from NVML."""
    nvml.ask("nvmlInit")
    try:
        found: Dict[str, Json] = {
            "driver": _value(lambda: nvml.ask("nvmlSystemGetDriverVersion")),
            "nvml": _value(lambda: nvml.ask("nvmlSystemGetNVMLVersion")),
            "cuda": _value(lambda: _cuda(nvml.ask("nvmlSystemGetCudaDriverVersion_v2"))),
            "confidential": _confidential(nvml),
        }
        count = min(nvml.ask("nvmlDeviceGetCount"), _MOST_GPUS)
        gpus: Dict[str, Json] = {}
        handles: Dict[str, Any] = {}
        for index in range(count):
            try:
                handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
                pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
            except NvmlError as error:
                gpus[f"index {index}"] = unread(str(error))
                continue
            address = pci.busId if isinstance(pci.busId, str) else pci.busId.decode("ascii", "replace")
            place = bus_id(address)
            handles[place] = handle
            told = _gpu(nvml, handle, pci.pciDeviceId, index)
            gpus[place] = (
                told if any(told[one] is not None for one in _ALWAYS) else unread("no reading of it is to be had")
            )
        found["gpus"] = gpus
        found["links"] = {
            f"{first} {second}": _link(nvml, handles[first], handles[second])
            for first in handles
            for second in handles
            if first < second
        }
        return found
    finally:
        nvml.ask("nvmlShutdown")


def _confidential(nvml: Nvml) -> Optional[bool]:
    """Whether confidential computing is on; None where this driver or board knows nothing of it."""
    try:
        return bool(nvml.ask("nvmlSystemGetConfComputeState").ccFeature)
    except NvmlError:
        return None


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpu(nvml: Nvml, handle: Any, device: int, index: int) -> Dict[str, Json]:  # noqa: ANN401 - the binding's own
    def told(name: str, *arguments: int) -> Json:
        return _value(lambda: nvml.ask(name, handle, *arguments))

    def watts(name: str) -> Json:
        return _value(lambda: nvml.ask(name, handle) / 1000)

    def clocks(name: str) -> Dict[str, Json]:
        found = {kind: told(name, number) for kind, number in _CLOCKS.items()}
        return {kind: value for kind, value in found.items() if value is not None}

    def first(name: str) -> Json:
        return _value(lambda: nvml.ask(name, handle)[0])

    mode, persistence = told("nvmlDeviceGetComputeMode"), told("nvmlDeviceGetPersistenceMode")
    return {
        "index": index,
        "name": told("nvmlDeviceGetName"),
        "uuid": told("nvmlDeviceGetUUID"),
        "serial": told("nvmlDeviceGetSerial"),
        "pci_id": f"{device & 0xFFFF:04x}:{device >> 16:04x}",
        "part_number": told("nvmlDeviceGetBoardPartNumber"),
        "vbios": told("nvmlDeviceGetVbiosVersion"),
        "inforom": told("nvmlDeviceGetInforomImageVersion"),
        "gsp_firmware": told("nvmlDeviceGetGspFirmwareVersion"),
        "compute_capability": _value(lambda: "{}.{}".format(*nvml.ask("nvmlDeviceGetCudaComputeCapability", handle))),
        "cores": told("nvmlDeviceGetNumGpuCores"),
        "memory_bytes": _value(lambda: int(nvml.ask("nvmlDeviceGetMemoryInfo", handle).total)),
        "memory_used_bytes": _value(lambda: int(nvml.ask("nvmlDeviceGetMemoryInfo", handle).used)),
        "memory_bus_bits": told("nvmlDeviceGetMemoryBusWidth"),
        "bar1_bytes": _value(lambda: int(nvml.ask("nvmlDeviceGetBAR1MemoryInfo", handle).bar1Total)),
        "clocks_max_mhz": clocks("nvmlDeviceGetMaxClockInfo"),
        "clocks_application_mhz": clocks("nvmlDeviceGetApplicationsClock"),
        "clocks_now_mhz": clocks("nvmlDeviceGetClockInfo"),
        "clock_ranges": _value(lambda: clock_ranges(nvml, handle)),
        "event_reasons": _value(lambda: _reasons(nvml, handle)),
        "performance_state": told("nvmlDeviceGetPerformanceState"),
        "power_limit_w": watts("nvmlDeviceGetPowerManagementLimit"),
        "power_enforced_w": watts("nvmlDeviceGetEnforcedPowerLimit"),
        "power_default_w": watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        "power_range_w": _value(
            lambda: [limit / 1000 for limit in nvml.ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)]
        ),
        "power_now_w": watts("nvmlDeviceGetPowerUsage"),
        "temperature_c": told("nvmlDeviceGetTemperature", 0),
        "utilization": _value(lambda: int(nvml.ask("nvmlDeviceGetUtilizationRates", handle).gpu)),
        "persistence": persistence if persistence is None or is_unread(persistence) else bool(persistence),
        "compute_mode": _COMPUTE_MODES.get(mode, mode) if isinstance(mode, int) else mode,
        "ecc": first("nvmlDeviceGetEccMode"),
        "ecc_errors": _value(lambda: _ecc_errors(nvml, handle)),
        "remapped_rows": _value(lambda: _remapped(nvml.ask("nvmlDeviceGetRemappedRows", handle))),
        "mig": first("nvmlDeviceGetMigMode"),
        "virtualization": told("nvmlDeviceGetVirtualizationMode"),
        "pcie_generation_now": told("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": told("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_generation_max": told("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_max": told("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replays": told("nvmlDeviceGetPcieReplayCounter"),
        "nvlinks": _value(lambda: _nvlinks(nvml, handle)),
        "fabric": fabric(nvml, handle),
        "processes": _value(lambda: _processes(nvml, handle)),
    }


def fabric(nvml: Nvml, handle: Any) -> Optional[List[str]]:  # noqa: ANN401
    """How far the board has joined the fabric of NVSwitches, and what is wrong there; None where there is none."""
    try:
        info = nvml.structure("c_nvmlGpuFabricInfo_v2_t")
        nvml.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
    except NvmlError:
        return None  # no such board, or a driver that knows nothing of it
    if not 0 < info.state < len(_FABRIC_STATES):
        return None
    told = [_FABRIC_STATES[info.state]]
    if told == ["completed"] and info.status:
        told.append(f"error {info.status}")
    return told + [name for shift, name in _FABRIC_FAULTS.items() if info.healthMask >> shift & 3 == 1]


def clock_ranges(nvml: Nvml, handle: Any) -> Dict[str, str]:  # noqa: ANN401
    """Between which clocks the board may choose now, where the driver tells: the trace that locked clocks leave."""
    values = dict(re.findall(r"(\w+)=(\d+)", nvml.ask("nvmlDeviceGetCurrentClockFreqs", handle)))
    return {
        kind: f"{values[f'{short}clockmin']}-{values[f'{short}clockmax']}"
        for kind, short in (("graphics", "nv"), ("memory", "mem"))
        if f"{short}clockmin" in values and f"{short}clockmax" in values
    }


def _reasons(nvml: Nvml, handle: Any) -> List[str]:  # noqa: ANN401
    try:
        mask = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    except NvmlError:
        mask = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # the older name
    return [name for number, name in enumerate(_EVENT_REASONS) if mask >> number & 1]


def _ecc_errors(nvml: Nvml, handle: Any) -> Dict[str, int]:  # noqa: ANN401
    corrected, uncorrected, volatile, aggregate = 0, 1, 0, 1
    return {
        f"{word} {since}": nvml.ask("nvmlDeviceGetTotalEccErrors", handle, kind, counter)
        for word, kind in (("corrected", corrected), ("uncorrected", uncorrected))
        for since, counter in (("since boot", volatile), ("ever", aggregate))
    }


def _remapped(rows: Tuple[int, ...]) -> Dict[str, int]:
    return dict(zip(("correctable", "uncorrectable", "pending", "failed"), rows))


def _nvlinks(nvml: Nvml, handle: Any) -> Dict[str, Json]:  # noqa: ANN401
    states: List[int] = []
    for link in range(_MOST_LINKS):
        try:
            states.append(nvml.ask("nvmlDeviceGetNvLinkState", handle, link))
        except NvmlError:  # noqa: PERF203 - there is no other way to count them
            if link == 0:
                raise
            break
    errors = 0
    for link, active in enumerate(states):
        for counter in range(4) if active else []:
            try:
                errors += nvml.ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)
            except NvmlError:  # noqa: PERF203 - newer boards count elsewhere
                continue
    version = _value(lambda: nvml.ask("nvmlDeviceGetNvLinkVersion", handle, 0)) if states else None
    return {"active": sum(states), "inactive": len(states) - sum(states), "version": version, "errors": errors}


def _processes(nvml: Nvml, handle: Any) -> List[Dict[str, Json]]:  # noqa: ANN401
    found: Dict[int, Dict[str, Json]] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        try:
            entries = nvml.ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle)
        except NvmlError:
            if kind == "Compute":
                raise
            continue
        for entry in entries[:_MOST_PROCESSES]:
            memory = entry.usedGpuMemory
            found[entry.pid] = {"pid": int(entry.pid), "memory_bytes": None if memory is None else int(memory)}
    return list(found.values())


def _link(nvml: Nvml, first: Any, second: Any) -> Dict[str, Json]:  # noqa: ANN401
    level = _value(lambda: nvml.ask("nvmlDeviceGetTopologyCommonAncestor", first, second))
    kinds = ("read", "write", "nvlink", "atomics")
    p2p = {
        kind: _value(lambda number=number: nvml.ask("nvmlDeviceGetP2PStatus", first, second, number))  # type: ignore[misc]
        for number, kind in enumerate(kinds)
    }
    return {
        "path": _LEVELS.get(level, level) if isinstance(level, int) else level,
        "p2p": {kind: _P2P[min(code, 6)] if isinstance(code, int) else code for kind, code in p2p.items()},
    }


def main() -> None:
    """Print what NVML says as one JSON object; the words of the command line are libraries to try."""
    os.nice(10)  # the binding is large, and a server works beside it
    try:
        found: Json = collect(Nvml(sys.argv[2:]))
    except NvmlError as error:
        found = unread(f"NVML: {error}" if "NVML" not in str(error) else str(error))
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # a driver's exit handlers are none of our business
