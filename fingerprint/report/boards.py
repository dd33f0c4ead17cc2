"""The devices of a host and how they are connected, for a small drawing; what the old side had otherwise is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fingerprint.report.model import Board
from snapshots.gpu import Gpu, NvLinks

if TYPE_CHECKING:
    from snapshots import Snapshot

MOST_BOARDS = 24


def boards_of(old: Snapshot, new: Snapshot) -> tuple[Board, ...]:
    """GPUs and network cards of the new side, by NUMA node; empty where no section tells of them."""
    found = []
    kinds = {address: device.kind for address, device in new.topology.devices.items()}
    addresses = {**dict.fromkeys(new.gpu.gpus, "gpu"), **{a: k for a, k in kinds.items() if k in {"gpu", "network"}}}
    for address, kind in addresses.items():
        device = new.topology.devices.get(address)
        gpu = new.gpu.gpus.get(address)
        index = f" {gpu.index}" if isinstance(gpu, Gpu) else ""
        link, before = _link(new, address), _link(old, address)
        found.append(
            Board(
                title=f"{'GPU' if kind == 'gpu' else 'network'}{index} {address.removeprefix('0000:')}",
                kind=kind,
                node=device.node if device is not None else None,
                link=link,
                before=before if before != link and before else (),
            )
        )
    if "gpu" not in addresses.values():
        return ()
    return tuple(sorted(found, key=lambda board: (board.kind, board.title))[:MOST_BOARDS])


def _link(snapshot: Snapshot, address: str) -> tuple[str, ...]:
    """A device's links in words; what is not known is left out."""
    words = []
    device = snapshot.topology.devices.get(address)
    gpu = snapshot.gpu.gpus.get(address)
    if device is not None and device.width and device.speed_max_gts:
        words.append(f"PCIe x{device.width}, {device.speed_max_gts:g} GT/s")
    elif isinstance(gpu, Gpu) and isinstance(gpu.pcie_width, int) and isinstance(gpu.pcie_generation_max, int):
        words.append(f"PCIe x{gpu.pcie_width}, generation {gpu.pcie_generation_max}")
    if isinstance(gpu, Gpu) and isinstance(held := gpu.nvlinks, NvLinks):
        words.append(f"{held.active} NVLinks" + (f", {held.inactive} down" if held.inactive else ""))
    limit = snapshot.topology.limit(address) if device is not None else None
    if limit is not None and limit.at != address:
        words.append(f"held to {limit.gigabytes_per_s:g} GB/s by {limit.at.removeprefix('0000:')}")
    return tuple(words)
