"""The topology that NCCL writes where NCCL_TOPO_DUMP_FILE says: a tree of processors and PCI devices in XML.

What NCCL did not find out it writes as `""`, `-1` or a width of 0. The link of a device is the slower one of its own
and its port's at their best (NCCL, src/graph/xml.cc); of a GPU newer versions write the present one, so a GPU's is left
out. The text is scanned for tags and never handed to an XML parser: it may be cut off, and it is not ours.
"""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

_TAG = re.compile(r"<(/?)(system|cpu|pci)\b([^<>]*)>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_KINDS = {"0x03": "gpu", "0x12": "gpu", "0x02": "network", "0x06": "bridge", "0x0108": "disk"}


def devices(text: str) -> dict[str, Json]:
    """The PCI devices of a dumped topology by address, as a snapshot has them; none where there is no such text."""
    found: dict[str, Json] = {}
    above: list[str] = []
    node: int | None = None
    inside = False
    for tag in _TAG.finditer(text):
        closing, name, rest = tag.groups()
        told = dict(_ATTRIBUTE.findall(rest))
        if name == "system":
            inside, above, node = not closing and "version" in told, [], None
        elif name == "cpu":
            above, node = [], None if closing else _positive(told.get("numaid"), least=0)
        elif inside and closing:
            above = above[1:]
        elif inside:
            address = _address(told.get("busid", ""))
            device = _device(told, [one for one in above if one], node)
            if address and device is not None:
                found[address] = device
            if not rest.endswith("/"):
                above = [address, *above]
    return found


def _device(told: dict[str, str], above: list[str], node: int | None) -> Json | None:
    code = told.get("class", "")
    kind = _KINDS.get(code[:4]) or _KINDS.get(code[:6])
    if kind is None:
        return None
    speed = re.match(r"([\d.]+) GT/s", told.get("link_speed", "")) if kind != "gpu" else None
    vendor, device = (told.get(name, "").removeprefix("0x") for name in ("vendor", "device"))
    return {
        "kind": kind,
        "pci_id": f"{vendor}:{device}" if vendor and device else "",
        "above": above,
        "speed_max_gts": float(speed[1]) if speed else None,
        "width_max": _positive(told.get("link_width"), least=1) if kind != "gpu" else None,
        "node": node,
    }


def _positive(text: str | None, least: int) -> int | None:
    number = int(text) if text and re.fullmatch(r"\d{1,5}", text) else -1
    return number if number >= least else None


def _address(text: str) -> str:
    """A PCI address as the kernel writes it; empty for anything else."""
    match = _ADDRESS.fullmatch(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else ""
