"""PCI chains, laid out as the kernel lays them out."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import network, topology
from snapshots import NetworkInterface, Topology


class Bus:
    """A /sys/bus/pci of the test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/bus/pci/devices").mkdir(parents=True)

    def add(self, chain: str, **attributes: str | bytes) -> None:
        """A device at the end of a chain of addresses separated by slashes."""
        place = self.root / "sys/devices/pci0000:00" / chain
        place.mkdir(parents=True, exist_ok=True)
        for name, value in attributes.items():
            (place / name.replace("kind", "class")).write_bytes(value if isinstance(value, bytes) else value.encode())
        (self.root / "sys/bus/pci/devices" / place.name).symlink_to(place)

    def read(self) -> Topology:
        """What the probe makes of it."""
        return Topology.model_validate(topology.collect(str(self.root)))


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


def link(now: str, width: str, most: str, most_width: str) -> dict[str, str]:
    return {
        "current_link_speed": f"{now} GT/s PCIe\n", "current_link_width": f"{width}\n",
        "max_link_speed": f"{most} GT/s PCIe\n", "max_link_width": f"{most_width}\n",
    }  # fmt: skip


GPU = {"kind": "0x030200\n", "vendor": "0x10de\n", "device": "0x2335\n", "numa_node": "1\n"}
BRIDGE = {"kind": "0x060400\n", "vendor": "0x8086\n", "device": "0x352a\n", "numa_node": "-1\n"}


def test_a_slow_bridge_above_a_fast_gpu_is_the_limit(bus: Bus, tmp_path: Path) -> None:
    root, port, gpu = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"
    bus.add(root, **BRIDGE, **link("16.0", "16", "16.0", "16"))
    bus.add(f"{root}/{port}", **BRIDGE, **link("2.5", "1", "5.0", "1"))
    bus.add(f"{root}/{port}/{gpu}", **GPU, **link("8.0", "16", "16.0", "16"))
    power = tmp_path / f"sys/devices/pci0000:00/{root}/{port}/{gpu}/power"
    power.mkdir()
    (power / "control").write_text("auto\n")
    found = bus.read()
    assert found.devices[gpu].runtime_power == "auto"
    assert found.devices[gpu].above == [port, root]
    assert found.devices[gpu].node == 1
    assert found.devices[port].node is None
    assert found.limit(gpu) == (0.5, port)
    assert found.limit(root) == (31.5, root)


def test_an_idle_link_is_slow_on_purpose_but_not_narrow(bus: Bus) -> None:
    bus.add("0000:06:00.0", **GPU, **link("2.5", "16", "16.0", "16"), power_state="D0\n")
    bus.add("0000:07:00.0", **GPU, **link("2.5", "8", "16.0", "16"), power_state="D0\n")
    found = bus.read()
    assert found.limit("0000:06:00.0") == (31.5, "0000:06:00.0")
    assert found.limit("0000:07:00.0") == (15.75, "0000:07:00.0")
    assert found.devices["0000:06:00.0"].speed_now_gts == 2.5


def test_a_hypervisor_s_bridge_is_no_limit(bus: Bus) -> None:
    bus.add("0000:00:02.0", **{**BRIDGE, "vendor": "0x1b36\n"}, **link("2.5", "1", "2.5", "1"))
    bus.add("0000:00:02.0/0000:01:00.0", **GPU, **link("32.0", "16", "32.0", "16"))
    found = bus.read()
    assert found.devices["0000:00:02.0"].virtual
    assert found.limit("0000:01:00.0") == (63.01, "0000:01:00.0")


def test_blanks_zeros_and_unknowns_are_none(bus: Bus) -> None:
    bus.add("0000:00:03.0", kind="0x020000\n", vendor="0x1af4\n", device="0x1041\n", numa_node="-1\n",
            current_link_speed="Unknown\n", current_link_width="0\n", max_link_speed="\n")  # fmt: skip
    device = bus.read().devices["0000:00:03.0"]
    assert (device.speed_now_gts, device.width, device.speed_max_gts, device.width_max, device.node) == (None,) * 5
    assert bus.read().limit("0000:00:03.0") is None


def config(control: int, *, behind: bool = False) -> bytes:
    """A configuration space with an access control capability, behind another one if wished."""
    space = bytearray(4096)
    at = 0x148 if behind else 0x100
    if behind:
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", space, at, 0x000D | 1 << 16, 0x7F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("control", "flags", "redirects"),
    [
        (0x1D, ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"], True),
        (0x01, ["SrcValid"], False),
        (0x00, [], False),
    ],
)
def test_only_redirects_are_redirects(bus: Bus, control: int, flags: list[str], *, redirects: bool) -> None:
    bus.add("0000:00:01.0", **BRIDGE, config=config(control, behind=True))
    bus.add("0000:00:01.0/0000:01:00.0", **GPU)
    bridge = bus.read().devices["0000:00:01.0"]
    assert (bridge.acs, bridge.redirects) == (flags, redirects)


@given(st.binary(max_size=5000))
def test_no_configuration_space_leads_astray(space: bytes) -> None:
    flags = topology.acs_flags(space)
    assert flags is None or set(flags) <= set(topology._ACS_FLAGS)


def test_a_machine_without_pci_is_absent(tmp_path: Path) -> None:
    section = topology.collect(str(tmp_path))
    assert section["status"] == "absent"
    assert "does not exist" in section["reason"]


def test_nodes_ports_and_error_counters_are_read(bus: Bus, tmp_path: Path) -> None:
    node = tmp_path / "sys/devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0-31\n")
    (node / "distance").write_text("10 21\n")
    (node / "meminfo").write_text("Node 0 MemTotal:       1024 kB\n")
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    for name, number in {"ens1f0": "0\n", "ens1f1": "1\n"}.items():
        (tmp_path / "sys/class/infiniband/mlx5_0/device/net" / name).mkdir(parents=True)
        (tmp_path / "sys/class/infiniband/mlx5_0/device/net" / name / "dev_port").write_text(number)
    for name, text in {"phys_state": "5: LinkUp", "counters/symbol_error": "7", "counters/link_downed": "0"}.items():
        (port / name).parent.mkdir(exist_ok=True)
        (port / name).write_text(f"{text}\n")
    bus.add("0000:06:00.0", **GPU, aer_dev_correctable="RxErr 3\nTOTAL_ERR_COR 7\n")
    found = bus.read()
    assert (found.nodes["0"].cpus, found.nodes["0"].distances, found.nodes["0"].memory_kib) == ("0-31", [10, 21], 1024)
    assert found.infiniband["mlx5_0 port 1"].rate == "400 Gb/sec (4X NDR)"
    assert found.infiniband["mlx5_0 port 1"].errors == {"symbol_error": 7}
    assert found.infiniband["mlx5_0 port 1"].link == "5: LinkUp"
    assert found.infiniband["mlx5_0 port 1"].interfaces == ["ens1f0"]
    assert found.devices["0000:06:00.0"].errors == {"correctable": 7}


def interface(root: Path, name: str, **attributes: str) -> Path:
    place = root / "sys/class/net" / name
    place.mkdir(parents=True)
    for attribute, value in attributes.items():
        (place / attribute).write_text(f"{value}\n")
    return place


def test_interfaces_have_their_mtu_speed_card_and_bond(bus: Bus, tmp_path: Path) -> None:
    card = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:5e:00.1"
    card.mkdir(parents=True)
    bond = interface(tmp_path, "bond0", mtu="9000", speed="200000", operstate="up")
    port = interface(tmp_path, "ens1f1", mtu="9000", speed="100000", operstate="up")
    (port / "device").symlink_to(card)
    (port / "master").symlink_to(bond)
    interface(tmp_path, "eth0", mtu="1400", speed="-1", operstate="up")
    for passing in ("veth17ab2c", "br-0123456789ab"):
        interface(tmp_path, passing, mtu="1500", operstate="up")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    assert bus.read().network == {
        "bond0": NetworkInterface(mtu=9000, speed_mbps=200_000, state="up"),
        "ens1f1": NetworkInterface(mtu=9000, speed_mbps=100_000, state="up", device="0000:5e:00.1", master="bond0"),
        "eth0": NetworkInterface(mtu=1400, state="up"),
    }


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="root makes a network namespace, with ip")
def test_a_server_in_another_network_namespace_has_other_interfaces() -> None:
    """Its own /sys tells of them; with ours mounted over it nobody does."""
    for setup in ("mount -t sysfs none /sys; ip link set lo mtu 12345", "ip link add one7 type veth peer name veth7"):
        with subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-ec", f"{setup}; echo ready; read line"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as child:  # fmt: skip
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            found = network.interfaces_of(child.pid)
            child.stdin.close()
        if "sysfs" in setup:
            assert (list(found), found["lo"]["mtu"]) == (["lo"], 12345)
        else:
            assert "another network namespace" in found["unread"]
    assert network.interfaces_of(os.getpid()) == network.interfaces_of(None)
