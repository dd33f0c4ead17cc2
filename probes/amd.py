"""AMD's GPUs, as far as the kernel's own files tell: no library of theirs is loaded.

The files are those of the amdgpu driver (kernel documentation, "GPU amdgpu sysfs" and "hwmon"): what a board is, how
much memory it has, what power and clocks it is allowed, and how it is partitioned. Links are in the section topology.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Optional

from probes.reading import Json, attempt, is_unread, names_in, read_text

VENDOR = "0x1002"
REASON = "AMD GPUs are read from the kernel's files: ECC, XGMI links and what holds clocks down are not among them"


def collect(root: str = "/sys") -> Optional[Dict[str, Json]]:
    """The gpu section of a host with AMD GPUs; None where there are none."""
    devices = f"{root}/bus/pci/devices"
    gpus: Dict[str, Json] = {}
    for name in names_in(devices):
        place = f"{devices}/{name}"
        if _line(f"{place}/vendor") != VENDOR or not os.path.isfile(f"{place}/mem_info_vram_total"):
            continue
        index = len(gpus)
        gpus[name] = attempt(lambda place=place, index=index: _gpu(place, index))  # type: ignore[misc]
    if not gpus:
        return None
    release = _line(f"{root}/module/amdgpu/version")
    return {
        "driver": f"amdgpu {release}" if release else "amdgpu of the kernel",
        "parameters": {
            name: value
            for name in names_in(f"{root}/module/amdgpu/parameters")
            if (value := _line(f"{root}/module/amdgpu/parameters/{name}")) is not None
        },
        "gpus": gpus,
        "status": "partial",
        "reason": REASON,
    }


def _gpu(place: str, index: int) -> Dict[str, Json]:
    sensors = next((f"{place}/hwmon/{name}" for name in names_in(f"{place}/hwmon")), f"{place}/hwmon")
    vendor, device = _line(f"{place}/vendor"), _line(f"{place}/device")
    limit, default = _watts(f"{sensors}/power1_cap"), _watts(f"{sensors}/power1_cap_default")
    bounds = [_watts(f"{sensors}/power1_cap_{end}") for end in ("min", "max")]
    temperature = _number(f"{sensors}/temp1_input")
    found: Dict[str, Json] = {
        "index": index,
        "name": _line(f"{place}/product_name"),
        "uuid": _line(f"{place}/unique_id"),
        "serial": _line(f"{place}/serial_number"),
        "pci_id": f"{(vendor or '0x')[2:]}:{(device or '0x')[2:]}",
        "part_number": _line(f"{place}/product_number"),
        "vbios": _line(f"{place}/vbios_version"),
        "memory_bytes": _number(f"{place}/mem_info_vram_total"),
        "memory_used_bytes": _number(f"{place}/mem_info_vram_used"),
        "clocks_max_mhz": _clocks(place, -1),
        "clocks_now_mhz": _clocks(place, None),
        "power_limit_w": limit,
        "power_enforced_w": limit,
        "power_default_w": default,
        "power_range_w": None if None in bounds else bounds,
        "power_now_w": _watts(f"{sensors}/power1_average") or _watts(f"{sensors}/power1_input"),
        "temperature_c": None if temperature is None else temperature // 1000,
        "utilization": _number(f"{place}/gpu_busy_percent"),
        "pcie_width": _number(f"{place}/current_link_width"),
        "pcie_width_max": _number(f"{place}/max_link_width"),
    }
    modes = {
        "performance level": _line(f"{place}/power_dpm_force_performance_level"),
        "compute partition": _line(f"{place}/current_compute_partition"),
        "memory partition": _line(f"{place}/current_memory_partition"),
    }
    found["modes"] = {name: mode for name, mode in modes.items() if mode is not None}
    return found


def _clocks(place: str, level: Optional[int]) -> Dict[str, int]:
    """The clock of one level (-1: the highest), or of the one that is marked as present; in MHz."""
    found: Dict[str, int] = {}
    for kind, name in (("graphics", "pp_dpm_sclk"), ("memory", "pp_dpm_mclk")):
        text = attempt(lambda name=name: read_text(f"{place}/{name}"))  # type: ignore[misc]
        if is_unread(text):
            continue
        levels = re.findall(r"^\s*\w+:\s*(\d+)\s*Mhz\s*(\*?)", text, re.MULTILINE | re.IGNORECASE)
        chosen = [levels[level]] if level is not None and levels else [one for one in levels if one[1]]
        if chosen:
            found[kind] = int(chosen[0][0])
    return found


def _line(path: str) -> Optional[str]:
    try:
        return read_text(path, 4096).strip() or None
    except OSError:
        return None


def _number(path: str) -> Optional[int]:
    text = _line(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _watts(path: str) -> Optional[float]:
    """A hwmon power reading, which is in microwatts."""
    value = _number(path)
    return None if value is None else value / 1e6
