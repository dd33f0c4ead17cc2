"""`nvidia-smi -q` as text: sections by indentation, values by the path of their names."""

from __future__ import annotations

import re

from snapshots import Gpu, Read, Unread

Values = dict[tuple[str, ...], str]

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_LOST = re.compile(
    r"Unable to determine the device handle for GPU ?([0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d): (.+)"
)
_MISMATCH = re.compile(r"Failed to initialize NVML: (.+)\s*\n(?:NVML library version: (\S+))?")
_OLD_NAMES = {"clocks throttle reasons": "clocks event reasons", "power readings": "gpu power readings"}


def address(text: str) -> str:
    """A PCI address as the kernel writes it."""
    domain, bus, rest = text.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{rest}"


def lost(text: str) -> dict[str, Unread]:
    """GPUs that the tool had no handle for: address to the error."""
    return {address(where): Unread(unread=f"nvidia-smi: {why.strip()}") for where, why in _LOST.findall(text)}


def mismatch(text: str) -> str | None:
    """That the driver's library did not match the kernel module, with the library's version where it is told."""
    found = _MISMATCH.search(text)
    if found is None:
        return None
    return f"NVML: {found[1].strip()}" + (f" (library {found[2]})" if found[2] else "")


def sections(text: str) -> tuple[Values, dict[str, Values]]:
    """What `-q` says of the host, and of every GPU by its PCI address. Names are lower case, nested by indentation."""
    host: Values = {}
    gpus: dict[str, Values] = {}
    here = host
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _GPU.match(line)
        if found:
            here = gpus.setdefault(address(found[1]), {})
            above = []
            continue
        if not line.strip() or line.startswith("="):
            continue
        indent = len(line) - len(line.lstrip())
        name, mark, value = line.strip().partition(" : ") if " : " in line else (line.strip(), "", "")
        name = name.strip().lower()
        while above and above[-1][0] >= indent:
            above.pop()
        if mark:
            here[tuple(part for _, part in above) + (name,)] = value.strip()  # noqa: RUF005 - Python 3.10 has no other form
        # A line with a value can have others below it, as `HW Slowdown` has.
        above.append((indent, _OLD_NAMES.get(name, name)))
    return host, gpus


def number(values: Values, *path: str) -> float | None:
    """A figure without its unit; None for what the board does not have."""
    found = re.match(r"-?\d+(?:\.\d+)?", values.get(path, ""))
    return float(found[0]) if found else None


def gpu(values: Values, index: int) -> Read[Gpu]:
    """One GPU of the report."""
    told = [value for value in values.values() if value]
    if told and all(value in {"N/A", "[N/A]", "Unknown Error"} for value in told):
        return Unread(unread="nvidia-smi: all readings N/A")
    limits = [number(values, "gpu power readings", f"{kind} power limit") for kind in ("min", "max")]
    reasons = [
        path[-1].replace(" ", "_")
        for path, value in values.items()
        if path[0] == "clocks event reasons" and value == "Active" and path[-1] != "idle"
    ]
    clocks = {
        kind: int(figure)
        for kind in ("graphics", "sm", "memory", "video")
        if (figure := number(values, "max clocks", kind)) is not None
    }
    return Gpu.model_validate(
        {
            "index": index,
            "name": _text(values, "product name"),
            "uuid": _text(values, "gpu uuid"),
            "vbios": _text(values, "vbios version"),
            "inforom": _text(values, "inforom version", "image version"),
            "gsp_firmware": _text(values, "gsp firmware version"),
            "part_number": _text(values, "board part number"),
            "persistence": _on(values, "persistence mode"),
            "compute_mode": (_text(values, "compute mode") or "").lower() or None,
            "ecc": _bit(values, "ecc mode", "current"),
            "mig": _bit(values, "mig mode", "current"),
            "power_limit_w": number(values, "gpu power readings", "requested power limit")
            or number(values, "gpu power readings", "power limit")
            or number(values, "gpu power readings", "current power limit"),
            "power_enforced_w": number(values, "gpu power readings", "current power limit")
            or number(values, "gpu power readings", "enforced power limit"),
            "power_default_w": number(values, "gpu power readings", "default power limit"),
            "power_range_w": limits if None not in limits else None,
            "power_now_w": number(values, "gpu power readings", "average power draw")
            or number(values, "gpu power readings", "power draw"),
            "temperature_c": _whole(values, "temperature", "gpu current temp"),
            "clocks_max_mhz": clocks,
            "event_reasons": reasons if any(path[0] == "clocks event reasons" for path in values) else None,
            "pcie_width": _width(values, "current"),
            "pcie_width_max": _width(values, "max"),
            "pcie_generation_max": _whole(values, "pci", "gpu link info", "pcie generation", "max"),
            "pcie_generation_now": _whole(values, "pci", "gpu link info", "pcie generation", "current"),
        }
    )


def _text(values: Values, *path: str) -> str | None:
    value = values.get(path, "")
    return None if value in {"", "N/A", "[N/A]", "Requested functionality has been deprecated"} else value


def _on(values: Values, *path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(values.get(path, ""))


def _bit(values: Values, *path: str) -> int | None:
    on = _on(values, *path)
    return None if on is None else int(on)


def _whole(values: Values, *path: str) -> int | None:
    figure = number(values, *path)
    return None if figure is None else int(figure)


def _width(values: Values, which: str) -> int | None:
    found = re.match(r"(\d+)x", values.get(("pci", "gpu link info", "link width", which), ""))
    return int(found[1]) if found else None
