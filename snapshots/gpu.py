"""The GPUs and the driver. A reading that the board does not offer is None, one that failed is unread."""

from snapshots.base import Part, Read, Section, State


class KernelModule(Part):
    """The loaded driver, as the kernel tells it."""

    version: str
    open: bool = False
    """Whether it is the open kernel module."""


class GpuProcess(Part):
    """A process that has memory on a GPU."""

    pid: int
    name: str = ""
    """Empty when the process is in a namespace that cannot be seen from here."""
    memory_bytes: int | None = None
    foreign: bool = False
    """It does not belong to the captured server."""


class NvLinks(Part):
    """The NVLinks of one GPU."""

    active: int
    inactive: int = 0
    version: Read[int | None] = None
    errors: State[int] = 0


class Gpu(Part):
    """One GPU, under its PCI address."""

    index: State[int]
    name: Read[str | None] = None
    uuid: State[Read[str | None]] = None
    serial: State[Read[str | None]] = None
    pci_id: str = ""
    """Vendor and device, such as `10de:2335`."""
    part_number: Read[str | None] = None
    vbios: Read[str | None] = None
    inforom: Read[str | None] = None
    gsp_firmware: Read[str | None] = None
    compute_capability: Read[str | None] = None
    cores: Read[int | None] = None
    memory_bytes: Read[int | None] = None
    memory_used_bytes: State[Read[int | None]] = None
    memory_bus_bits: Read[int | None] = None
    bar1_bytes: Read[int | None] = None
    clocks_max_mhz: dict[str, Read[int]] = {}
    clocks_application_mhz: dict[str, Read[int]] = {}
    clocks_now_mhz: State[dict[str, Read[int]]] = {}
    clock_ranges: State[Read[dict[str, str] | None]] = None
    """Clocks (MHz) between which the board may choose now. NVML does not tell of locks; a narrow range hints at one."""
    event_reasons: State[Read[list[str] | None]] = None
    """What holds the clocks down at this moment."""
    performance_state: State[Read[int | None]] = None
    power_limit_w: Read[float | None] = None
    power_enforced_w: Read[float | None] = None
    power_default_w: Read[float | None] = None
    power_range_w: Read[list[float] | None] = None
    power_now_w: State[Read[float | None]] = None
    temperature_c: State[Read[int | None]] = None
    utilization: State[Read[int | None]] = None
    """Percent."""
    persistence: Read[bool | None] = None
    compute_mode: Read[str | int | None] = None
    ecc: Read[int | None] = None
    ecc_errors: State[Read[dict[str, int] | None]] = None
    remapped_rows: State[Read[dict[str, int] | None]] = None
    mig: Read[int | None] = None
    modes: dict[str, str] = {}
    """AMD: `performance level`, `compute partition`, `memory partition`."""
    virtualization: Read[int | None] = None
    """0 none, 1 passed through to a virtual machine, 2 vGPU, 3 host of vGPUs."""
    pcie_generation_now: State[Read[int | None]] = None
    """Goes down by itself when the GPU is idle."""
    pcie_width: Read[int | None] = None
    pcie_generation_max: Read[int | None] = None
    pcie_width_max: Read[int | None] = None
    pcie_replays: State[Read[int | None]] = None
    nvlinks: Read[NvLinks | None] = None
    fabric: list[str] | None = None
    """How far it has joined the fabric of NVSwitches (`completed`, `in progress` ...), then what is wrong."""
    processes: State[Read[list[GpuProcess] | None]] = None


class GpuLink(Part):
    """How two GPUs reach each other."""

    path: Read[str | int | None] = None
    """What they share: `PIX` a bridge, `PXB` several, `PHB` the host bridge, `NODE` a NUMA node, `SYS` none."""
    p2p: dict[str, Read[str | None]] = {}
    """`read`, `write`, `nvlink`, `atomics`: `ok` or why not."""


class Gpus(Section):
    """The driver and every GPU by PCI address."""

    driver: Read[str | None] = None
    nvml: Read[str | None] = None
    cuda: Read[str | None] = None
    """The newest CUDA version that the driver serves."""
    confidential: bool | None = None
    """Whether confidential computing is on, which encrypts what goes to and from the GPU."""
    kernel_module: KernelModule | None = None
    parameters: Read[dict[str, str]] = {}
    gpus: dict[str, Read[Gpu]] = {}
    links: dict[str, GpuLink] = {}
    """Two PCI addresses, the smaller one first, separated by a blank."""
