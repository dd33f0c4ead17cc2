"""How data gets to the GPUs: every PCI link from a GPU or network card up to the root port, and the NUMA nodes.

A link is as fast as the slowest bridge above it, so the whole chain is read. The present speed of an idle link says
little (the card lowers it to save power), so it goes with the power state in which it was read; its width does say
something at any time.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Any, Dict, List, Optional

from probes import network
from probes.network import number, word
from probes.reading import Json, attempt, names_in, read_bytes, read_text, unread

_MOST_DEVICES = 512
_ACS_CAPABILITY = 0x000D
_ACS_FLAGS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_KINDS = {"03": "gpu", "02": "network", "12": "gpu", "0108": "disk"}


def read(context: Dict[str, Any]) -> Json:
    """The topology section."""
    return collect("/", (context.get("serving") or {}).get("pid"))


def collect(root: str, pid: Optional[int] = None) -> Json:
    """The topology below `root`, which is the file system's except in tests; interfaces as the process sees them."""
    devices: Dict[str, Json] = {}
    below = os.path.join(root, "sys/bus/pci/devices")
    try:
        names = sorted(os.listdir(below))
    except OSError as error:
        return {"status": "absent", "reason": unread(error)["unread"]}
    for name in names[:_MOST_DEVICES]:
        place = os.path.join(below, name)
        kind = _kind(word(place, "class"))
        if kind is None:
            continue
        # The kernel's own path names every bridge on the way: .../pci0000:3a/0000:3a:00.0/0000:3b:00.0
        chain = [part for part in os.path.realpath(place).split("/") if _ADDRESS.match(part)]
        devices[name] = _device(place, kind, above=list(reversed(chain[:-1])))
        for bridge in chain[:-1]:
            if bridge not in devices:
                devices[bridge] = _device(os.path.join(below, bridge), "bridge", above=[])
    for bridge in [name for name, device in devices.items() if device["kind"] == "bridge"]:
        chain = [part for part in os.path.realpath(os.path.join(below, bridge)).split("/") if _ADDRESS.match(part)]
        devices[bridge]["above"] = list(reversed(chain[:-1]))
    return {
        "devices": devices,
        "nodes": _nodes(root),
        "infiniband": network.infiniband(root),
        "network": network.interfaces_of(pid) if root == "/" else network.interfaces(root),
        "aspm": attempt(lambda: _chosen(read_text(os.path.join(root, "sys/module/pcie_aspm/parameters/policy"))))
        if os.path.exists(os.path.join(root, "sys/module/pcie_aspm/parameters/policy"))
        else None,
    }


def _kind(code: Optional[str]) -> Optional[str]:
    code = (code or "").replace("0x", "")
    return _KINDS.get(code[:2]) or _KINDS.get(code[:4])


def _chosen(text: str) -> str:
    """The chosen one of `default [performance] powersave`."""
    marked = re.search(r"\[(\S+)\]", text)
    return marked[1] if marked else text.strip()


def _device(place: str, kind: str, above: List[str]) -> Dict[str, Json]:
    node = number(word(place, "numa_node"))
    return {
        "kind": kind,
        "pci_id": f"{(word(place, 'vendor') or '')[2:]}:{(word(place, 'device') or '')[2:]}",
        "driver": os.path.basename(os.path.realpath(os.path.join(place, "driver")))
        if os.path.exists(os.path.join(place, "driver"))
        else None,
        "above": above,
        "speed_now_gts": _speed(word(place, "current_link_speed")),
        "width": _positive(word(place, "current_link_width")),
        "speed_max_gts": _speed(word(place, "max_link_speed")),
        "width_max": _positive(word(place, "max_link_width")),
        "power_state": word(place, "power_state"),
        "runtime_power": word(place, "power/control") if kind != "bridge" else None,
        "node": node if node is not None and node >= 0 else None,
        "cpus": word(place, "local_cpulist"),
        "iommu": _iommu(place),
        "acs": _acs(place) if kind == "bridge" else None,
        "errors": _aer(place),
    }


def _speed(text: Optional[str]) -> Optional[float]:
    """GT/s of `16.0 GT/s PCIe`; None for `Unknown` and blanks."""
    found = re.match(r"([\d.]+) GT/s", text or "")
    return float(found[1]) if found else None


def _positive(text: Optional[str]) -> Optional[int]:
    lanes = number(text)
    return lanes if lanes and lanes < 255 else None  # 0 and 255: there is no link


def _iommu(place: str) -> Optional[str]:
    """How the device's addresses are translated: `identity`, `DMA`, `DMA-FQ`; None without an IOMMU."""
    group = os.path.join(place, "iommu_group")
    return (word(group, "type") or "present") if os.path.exists(group) else None


def _acs(place: str) -> Json:
    """The access control flags that are set on a bridge; None when it has no such capability."""
    try:
        config = read_bytes(os.path.join(place, "config"), 4096)
    except OSError as error:
        return unread(error)
    if len(config) <= 256:
        return unread("only root may read it") if os.geteuid() != 0 and len(config) <= 64 else None
    return acs_flags(config)


def acs_flags(config: bytes) -> Optional[List[str]]:
    """The access control flags in a PCI Express configuration space."""
    at, seen = 0x100, 0
    while 0x100 <= at <= len(config) - 8 and seen < 64:
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return [flag for bit, flag in enumerate(_ACS_FLAGS) if control >> bit & 1]
        at, seen = header >> 20, seen + 1
    return None


def _aer(place: str) -> Optional[Dict[str, int]]:
    """Corrected and fatal link errors since boot, where the kernel counts them."""
    counts: Dict[str, int] = {}
    for kind in ("correctable", "nonfatal", "fatal"):
        for line in (word(place, f"aer_dev_{kind}") or "").splitlines():
            name, _, count = line.rpartition(" ")
            if name.startswith("TOTAL") and count.isdigit():
                counts[kind] = int(count)
    return counts or None


def _nodes(root: str) -> Dict[str, Json]:
    place = os.path.join(root, "sys/devices/system/node")
    nodes: Dict[str, Json] = {}
    for name in names_in(place):
        if not re.fullmatch(r"node\d+", name):
            continue
        here = os.path.join(place, name)
        memory = re.search(r"MemTotal:\s+(\d+) kB", word(here, "meminfo") or "")
        nodes[name[4:]] = {
            "cpus": word(here, "cpulist") or "",
            "distances": [int(step) for step in (word(here, "distance") or "").split() if step.isdigit()],
            "memory_kib": int(memory[1]) if memory else None,
        }
    return nodes
