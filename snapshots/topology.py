"""How data gets to the GPUs and out: PCI links with every bridge above them, NUMA nodes, network and InfiniBand."""

from typing import Literal, NamedTuple

from snapshots.base import Part, Read, Section, State

_LANE_GBPS = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}
"""Gigabytes a second of one lane, one way, after the line code (PCI-SIG's figures)."""
_HYPERVISORS = {"1af4", "1b36", "15ad", "1414", "5853", "1d0f"}
"""Vendors of virtual bridges: Red Hat (two), VMware, Microsoft, Xen, Amazon."""


class PciDevice(Part):
    """A GPU, network card, disk or bridge, under its PCI address."""

    kind: Literal["gpu", "network", "disk", "bridge"]
    pci_id: str = ""
    driver: str | None = None
    above: list[str] = []
    """The bridges above it, the nearest first."""
    speed_now_gts: State[float | None] = None
    """GT/s per lane at the time, in `power_state`; an idle link is slower on purpose."""
    width: int | None = None
    speed_max_gts: float | None = None
    width_max: int | None = None
    power_state: State[str | None] = None
    runtime_power: str | None = None
    """`auto`: the kernel may put it to sleep while it is idle; `on`: it may not."""
    node: int | None = None
    cpus: str | None = None
    iommu: str | None = None
    acs: Read[list[str] | None] = None
    """Access control flags that are set on a bridge; ReqRedir and CmpltRedir send peer traffic through the root."""
    errors: State[dict[str, int] | None] = None

    @property
    def virtual(self) -> bool:
        """Whether it is a hypervisor's artefact, whose link figures mean nothing."""
        return self.pci_id[:4] in _HYPERVISORS

    @property
    def redirects(self) -> bool | None:
        """Whether peer traffic is sent through the root complex; None when it could not be read."""
        return None if not isinstance(self.acs, list) else bool({"ReqRedir", "CmpltRedir"} & set(self.acs))


class Limit(NamedTuple):
    """The slowest link between a device and the root."""

    gigabytes_per_s: float
    at: str
    """The PCI address of the device or bridge whose link it is."""


class NumaNode(Part):
    """A NUMA node."""

    cpus: str
    distances: list[int] = []
    memory_kib: State[int | None] = None


class InfinibandPort(Part):
    """A port of a network card that speaks InfiniBand verbs."""

    rate: str | None = None
    state: str | None = None
    link_layer: str | None = None
    firmware: str | None = None
    link: str | None = None
    """The physical link, such as `5: LinkUp`."""
    errors: State[dict[str, int]] = {}
    """Counters of errors that are not zero."""
    interfaces: list[str] = []
    """The network interfaces of the port: over Ethernet its MTU follows theirs."""


class NetworkInterface(Part):
    """A network interface, as the server sees it."""

    mtu: int
    speed_mbps: int | None = None
    """Megabits a second of the present link; None without a link, and for most virtual interfaces."""
    state: str | None = None
    """`up`, `down`, `lowerlayerdown`; `unknown` where the kernel does not follow it."""
    device: str | None = None
    """The card's PCI address."""
    master: str | None = None
    """The bond or bridge that it is part of."""


class Topology(Section):
    """PCI devices by address, NUMA nodes by number, network interfaces and InfiniBand ports by name."""

    devices: dict[str, PciDevice] = {}
    nodes: dict[str, NumaNode] = {}
    infiniband: dict[str, InfinibandPort] = {}
    network: Read[dict[str, NetworkInterface]] = {}
    aspm: Read[str | None] = None

    def limit(self, address: str) -> Limit | None:
        """The slowest link from a device up to its root port, at its highest speed and present width.

        Virtual bridges are left out: their figures are invented. None when no link on the way is known.
        """
        slowest: Limit | None = None
        for place in [address, *self.devices[address].above]:
            device = self.devices.get(place)
            if device is None or device.virtual or device.speed_max_gts is None or device.width is None:
                continue
            rate = _LANE_GBPS.get(device.speed_max_gts, device.speed_max_gts / 8) * device.width
            if slowest is None or rate < slowest.gigabytes_per_s:
                slowest = Limit(round(rate, 2), place)
        return slowest
