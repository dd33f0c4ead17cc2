"""The drawing of a host's devices: what is known of each, and which one hangs on another link than before."""

from __future__ import annotations

from made_cases import snapshot

from fingerprint.report.boards import boards_of
from snapshots import Snapshot, Unread
from snapshots.gpu import Gpu, Gpus, NvLinks
from snapshots.topology import PciDevice, Topology

BRIDGE = PciDevice(kind="bridge", pci_id="10b5:8747", speed_max_gts=8.0, width=8)


def host(width: int = 16, *, behind: bool = False) -> Snapshot:
    above = ["0000:00:01.0"] if behind else []
    devices = {
        "0000:0b:00.0": PciDevice(kind="gpu", speed_max_gts=32.0, width=width, node=0, above=above),
        "0000:8c:00.0": PciDevice(kind="network", speed_max_gts=16.0, width=16, node=1),
        "0000:00:01.0": BRIDGE,
    }
    gpus: dict[str, Gpu | Unread] = {
        "0000:0b:00.0": Gpu(index=0, nvlinks=NvLinks(active=18)),
        "0000:0c:00.0": Gpu(index=1, pcie_width=16, pcie_generation_max=5, nvlinks=NvLinks(active=16, inactive=2)),
        "0000:0d:00.0": Unread(unread="fell off the bus"),
    }
    sections = {"gpu": Gpus(status="ok", gpus=gpus), "topology": Topology(status="ok", devices=devices)}
    return snapshot({}).model_copy(update=sections)


def test_each_board_says_its_links_and_only_what_is_known() -> None:
    boards = {board.title: board for board in boards_of(host(), host())}
    assert boards["GPU 0 0b:00.0"].link == ("PCIe x16, 32 GT/s", "18 NVLinks")
    assert boards["GPU 1 0c:00.0"].link == ("PCIe x16, generation 5", "16 NVLinks, 2 down")
    assert boards["GPU 0d:00.0"].link == ()
    assert boards["network 8c:00.0"].node == 1
    assert not any(board.before for board in boards.values())


def test_a_link_that_is_another_one_now_is_marked() -> None:
    changed = [board for board in boards_of(host(16), host(8)) if board.before]
    assert [(board.title, board.before[0]) for board in changed] == [("GPU 0 0b:00.0", "PCIe x16, 32 GT/s")]


def test_a_bridge_that_slows_a_device_down_is_named() -> None:
    board = boards_of(host(behind=True), host(behind=True))[0]
    assert board.link[-1] == "held to 7.88 GB/s by 00:01.0"


def test_a_host_that_tells_nothing_has_no_drawing() -> None:
    assert boards_of(snapshot({}), snapshot({})) == ()
