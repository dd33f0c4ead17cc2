"""The GPUs, through NVML: what they are, what they are allowed, what holds them back, and how they reach each other.

NVML is the driver's own library and opens no CUDA context. It runs in a child of its own, because it can hang in the
kernel and has crashed before: such a child is ended or abandoned, and the rest of the capture is there. Each of its
answers can be missing on a given board or driver, so each is a value or a reason by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

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
    for gpu in told["gpus"].values():
        if not is_unread(gpu) and not is_unread(gpu["processes"]):
            gpu["processes"] = [_described(process, ours) for process in gpu["processes"]]
    if not named:
        told["gpus"].update(_only_in_sysfs(told["gpus"], "NVML does not list it"))
    return {**section, **told}


def _described(process: Dict[str, Json], ours: set[int]) -> Dict[str, Json]:
    """A process on a GPU, with whether it belongs to the captured server."""
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


class _PciInfo(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint), ("device_id", ctypes.c_uint), ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]  # fmt: skip


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint),
    ]  # fmt: skip


class Nvml:
    """The library, its functions by name."""

    def __init__(self, libraries: List[str]) -> None:
        reasons = []
        for name in libraries:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                reasons.append(str(error))
        else:
            raise NvmlError(f"{_NOT_LOADED}: {reasons[0]}")

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        """Call a function that answers with a status.

        Raises:
            NvmlError: it does not exist in this driver, or failed.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(f"this driver's NVML has no {name}") from None
        code = function(*arguments)
        if code != 0:
            words = self._library.nvmlErrorString
            words.restype = ctypes.c_char_p
            raise NvmlError(_ERRORS.get(code) or (words(code) or b"error %d" % code).decode("utf-8", "replace"))

    def text(self, name: str, *arguments: Any) -> str:  # noqa: ANN401
        """A function that fills a buffer and takes its length."""
        buffer = ctypes.create_string_buffer(256)
        self.call(name, *arguments, buffer, ctypes.c_uint(96))
        return buffer.value.decode("utf-8", "replace")

    def number(self, name: str, *arguments: Any) -> int:  # noqa: ANN401
        """A function that answers with one unsigned number."""
        value = ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def wide(self, name: str, *arguments: Any) -> int:  # noqa: ANN401
        """A function that answers with one wide unsigned number."""
        value = ctypes.c_ulonglong()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def pair(self, name: str, *arguments: Any) -> Tuple[int, int]:  # noqa: ANN401
        """A function that answers with two numbers."""
        first, second = ctypes.c_uint(), ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(first), ctypes.byref(second))
        return first.value, second.value


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
    nvml.call("nvmlInit_v2")
    try:
        found: Dict[str, Json] = {
            "driver": _value(lambda: nvml.text("nvmlSystemGetDriverVersion")),
            "nvml": _value(lambda: nvml.text("nvmlSystemGetNVMLVersion")),
            "cuda": _value(lambda: _cuda(nvml.number("nvmlSystemGetCudaDriverVersion_v2"))),
        }
        count = min(nvml.number("nvmlDeviceGetCount_v2"), _MOST_GPUS)
        gpus: Dict[str, Json] = {}
        handles: Dict[str, ctypes.c_void_p] = {}
        for index in range(count):
            try:
                handle = ctypes.c_void_p()
                nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
                pci = _PciInfo()
                nvml.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
            except NvmlError as error:
                gpus[f"index {index}"] = unread(str(error))
                continue
            place = bus_id(pci.bus_id.decode("ascii", "replace"))
            handles[place] = handle
            gpus[place] = _gpu(nvml, handle, pci, index)
        found["gpus"] = gpus
        found["links"] = {
            f"{first} {second}": _link(nvml, handles[first], handles[second])
            for first in handles
            for second in handles
            if first < second
        }
        return found
    finally:
        nvml.call("nvmlShutdown")


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpu(nvml: Nvml, handle: ctypes.c_void_p, pci: _PciInfo, index: int) -> Dict[str, Json]:
    def text(name: str) -> Json:
        return _value(lambda: nvml.text(name, handle))

    def number(name: str) -> Json:
        return _value(lambda: nvml.number(name, handle))

    def milliwatts(name: str) -> Json:
        return _value(lambda: nvml.number(name, handle) / 1000)

    def clocks(name: str) -> Dict[str, Json]:
        found = {kind: _value(lambda kind=kind: nvml.number(name, handle, _CLOCKS[kind])) for kind in _CLOCKS}  # type: ignore[misc]
        return {kind: value for kind, value in found.items() if value is not None}

    def first(pair: Json) -> Json:
        return pair if pair is None or is_unread(pair) else pair[0]

    ecc = _value(lambda: nvml.pair("nvmlDeviceGetEccMode", handle))
    mig = _value(lambda: nvml.pair("nvmlDeviceGetMigMode", handle))
    limits = _value(lambda: nvml.pair("nvmlDeviceGetPowerManagementLimitConstraints", handle))
    mode = number("nvmlDeviceGetComputeMode")
    persistence = number("nvmlDeviceGetPersistenceMode")
    return {
        "index": index,
        "name": text("nvmlDeviceGetName"),
        "uuid": text("nvmlDeviceGetUUID"),
        "serial": text("nvmlDeviceGetSerial"),
        "pci_id": f"{pci.device_id & 0xFFFF:04x}:{pci.device_id >> 16:04x}",
        "part_number": text("nvmlDeviceGetBoardPartNumber"),
        "vbios": text("nvmlDeviceGetVbiosVersion"),
        "inforom": text("nvmlDeviceGetInforomImageVersion"),
        "gsp_firmware": _value(lambda: _gsp(nvml, handle)),
        "compute_capability": _value(lambda: _capability(nvml, handle)),
        "cores": number("nvmlDeviceGetNumGpuCores"),
        "memory_bytes": _value(lambda: _memory(nvml, handle, "total")),
        "memory_used_bytes": _value(lambda: _memory(nvml, handle, "used")),
        "memory_bus_bits": number("nvmlDeviceGetMemoryBusWidth"),
        "bar1_bytes": _value(lambda: _bar1(nvml, handle)),
        "clocks_max_mhz": clocks("nvmlDeviceGetMaxClockInfo"),
        "clocks_application_mhz": clocks("nvmlDeviceGetApplicationsClock"),
        "clocks_now_mhz": clocks("nvmlDeviceGetClockInfo"),
        "clock_ranges": _value(lambda: clock_ranges(nvml, handle)),
        "event_reasons": _value(lambda: _reasons(nvml, handle)),
        "performance_state": number("nvmlDeviceGetPerformanceState"),
        "power_limit_w": milliwatts("nvmlDeviceGetPowerManagementLimit"),
        "power_enforced_w": milliwatts("nvmlDeviceGetEnforcedPowerLimit"),
        "power_default_w": milliwatts("nvmlDeviceGetPowerManagementDefaultLimit"),
        "power_range_w": limits if limits is None or is_unread(limits) else [limit / 1000 for limit in limits],
        "power_now_w": milliwatts("nvmlDeviceGetPowerUsage"),
        "temperature_c": _value(lambda: nvml.number("nvmlDeviceGetTemperature", handle, 0)),
        "utilization": _value(lambda: _utilization(nvml, handle)),
        "persistence": persistence if persistence is None or is_unread(persistence) else bool(persistence),
        "compute_mode": _COMPUTE_MODES.get(mode, mode) if isinstance(mode, int) else mode,
        "ecc": first(ecc),
        "ecc_errors": _value(lambda: _ecc_errors(nvml, handle)),
        "remapped_rows": _value(lambda: _remapped(nvml, handle)),
        "mig": first(mig),
        "virtualization": number("nvmlDeviceGetVirtualizationMode"),
        "pcie_generation_now": number("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": number("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_generation_max": number("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_max": number("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replays": number("nvmlDeviceGetPcieReplayCounter"),
        "nvlinks": _value(lambda: _nvlinks(nvml, handle)),
        "processes": _value(lambda: _processes(nvml, handle)),
    }


def _gsp(nvml: Nvml, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(256)
    nvml.call("nvmlDeviceGetGspFirmwareVersion", handle, buffer)
    return buffer.value.decode("ascii", "replace")


def _capability(nvml: Nvml, handle: ctypes.c_void_p) -> str:
    return "{}.{}".format(*nvml.pair("nvmlDeviceGetCudaComputeCapability", handle))


def _memory(nvml: Nvml, handle: ctypes.c_void_p, part: str) -> int:
    memory = _Memory()
    nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return int(getattr(memory, part))


def _bar1(nvml: Nvml, handle: ctypes.c_void_p) -> int:
    memory = _Memory()
    nvml.call("nvmlDeviceGetBAR1MemoryInfo", handle, ctypes.byref(memory))
    return int(memory.total)


def clock_ranges(nvml: Nvml, handle: ctypes.c_void_p) -> Dict[str, str]:
    """Between which clocks the board may choose now, where the driver tells: the trace that locked clocks leave."""

    class Frequencies(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), ("text", ctypes.c_char * 2048)]

    told = Frequencies()
    told.version = ctypes.sizeof(Frequencies) | 1 << 24
    nvml.call("nvmlDeviceGetCurrentClockFreqs", handle, ctypes.byref(told))
    values = dict(re.findall(r"(\w+)=(\d+)", told.text.decode("ascii", "replace")))
    return {
        kind: f"{values[f'{short}clockmin']}-{values[f'{short}clockmax']}"
        for kind, short in (("graphics", "nv"), ("memory", "mem"))
        if f"{short}clockmin" in values and f"{short}clockmax" in values
    }


def _reasons(nvml: Nvml, handle: ctypes.c_void_p) -> List[str]:
    try:
        mask = nvml.wide("nvmlDeviceGetCurrentClocksEventReasons", handle)
    except NvmlError:
        mask = nvml.wide("nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # the older name
    return [name for number, name in enumerate(_EVENT_REASONS) if mask >> number & 1]


def _utilization(nvml: Nvml, handle: ctypes.c_void_p) -> int:
    used = _Utilization()
    nvml.call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(used))
    return int(used.gpu)


def _ecc_errors(nvml: Nvml, handle: ctypes.c_void_p) -> Dict[str, int]:
    corrected, uncorrected, volatile, aggregate = 0, 1, 0, 1
    return {
        f"{word} {since}": nvml.wide("nvmlDeviceGetTotalEccErrors", handle, kind, counter)
        for word, kind in (("corrected", corrected), ("uncorrected", uncorrected))
        for since, counter in (("since boot", volatile), ("ever", aggregate))
    }


def _remapped(nvml: Nvml, handle: ctypes.c_void_p) -> Dict[str, int]:
    values = [ctypes.c_uint() for _ in range(4)]
    nvml.call("nvmlDeviceGetRemappedRows", handle, *(ctypes.byref(value) for value in values))
    return dict(zip(("correctable", "uncorrectable", "pending", "failed"), (value.value for value in values)))


def _nvlinks(nvml: Nvml, handle: ctypes.c_void_p) -> Dict[str, Json]:
    states: List[int] = []
    for link in range(_MOST_LINKS):
        try:
            states.append(nvml.number("nvmlDeviceGetNvLinkState", handle, link))
        except NvmlError:  # noqa: PERF203 - there is no other way to count them
            if link == 0:
                raise
            break
    errors = 0
    for link, active in enumerate(states):
        for counter in range(4) if active else []:
            try:
                errors += nvml.wide("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)
            except NvmlError:  # noqa: PERF203 - newer boards count elsewhere
                continue
    version = _value(lambda: nvml.number("nvmlDeviceGetNvLinkVersion", handle, 0)) if states else None
    return {"active": sum(states), "inactive": len(states) - sum(states), "version": version, "errors": errors}


def _processes(nvml: Nvml, handle: ctypes.c_void_p) -> List[Dict[str, Json]]:
    found: Dict[int, Dict[str, Json]] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        entries = (_Process * _MOST_PROCESSES)()
        count = ctypes.c_uint(_MOST_PROCESSES)
        try:
            nvml.call(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle, ctypes.byref(count), entries)
        except NvmlError:
            if kind == "Compute":
                raise
            continue
        for entry in entries[: min(count.value, _MOST_PROCESSES)]:
            memory = None if entry.memory == 2**64 - 1 else int(entry.memory)
            found[entry.pid] = {"pid": int(entry.pid), "memory_bytes": memory}
    return list(found.values())


def _link(nvml: Nvml, first: ctypes.c_void_p, second: ctypes.c_void_p) -> Dict[str, Json]:
    level = _value(lambda: nvml.number("nvmlDeviceGetTopologyCommonAncestor", first, second))
    kinds = ("read", "write", "nvlink", "atomics")
    p2p = {
        kind: _value(lambda number=number: nvml.number("nvmlDeviceGetP2PStatus", first, second, number))  # type: ignore[misc]
        for number, kind in enumerate(kinds)
    }
    return {
        "path": _LEVELS.get(level, level) if isinstance(level, int) else level,
        "p2p": {kind: _P2P[min(code, 6)] if isinstance(code, int) else code for kind, code in p2p.items()},
    }


def main() -> None:
    """Print what NVML says as one JSON object; the words of the command line are libraries to try."""
    try:
        found: Json = collect(Nvml(sys.argv[2:]))
    except NvmlError as error:
        found = unread(f"NVML: {error}" if "NVML" not in str(error) else str(error))
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # a driver's exit handlers are none of our business
