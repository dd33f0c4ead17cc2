"""The machine below the server."""

from snapshots.base import Part, Read, Section, State


class Cpu(Part):
    """The processors; where they may differ from each other, every value that occurs."""

    model: str | None = None
    microcode: str | None = None
    sockets: int | None = None
    online: str | None = None
    isolated: str | None = None
    nohz_full: str | None = None
    smt: str | None = None
    governors: list[str] = []
    frequency_driver: list[str] = []
    energy_preferences: list[str] = []
    max_khz: list[str] = []
    khz_now: State[list[str]] = []
    boost: str | None = None
    no_turbo: str | None = None
    idle_driver: str | None = None
    idle_disabled: list[str] = []
    mitigations: dict[str, str] = {}


class Host(Section):
    """Kernel, boot parameters, processors, memory policy, clock and firmware."""

    kernel: str | None = None
    kernel_build: str | None = None
    machine: str | None = None
    name: State[str | None] = None
    command_line: str | None = None
    boot_id: State[str | None] = None
    """Another one means that the machine was started again in between."""
    uptime_s: State[float | None] = None
    system: dict[str, str] = {}
    firmware: dict[str, str] = {}
    virtualization: str | None = None
    cpu: Cpu = Cpu.model_construct()
    memory_kib: State[int | None] = None
    memory_available_kib: State[int | None] = None
    swap_kib: int | None = None
    huge_pages: dict[str, str] = {}
    clocksource: str | None = None
    sysctls: dict[str, str] = {}
    load: State[list[float]] = []
    pressure: State[dict[str, float]] = {}
    """Share of the last ten seconds (percent) in which something waited for `cpu`, `memory` or `io`."""
    modules: list[str] = []
    """Loaded kernel modules of GPUs, of network cards that read their memory, and of what copies between them."""
    module_versions: dict[str, str] = {}
    """Those of them that tell a version, as drivers do that are not the kernel's own."""
    module_parameters: dict[str, str] = {}
    """`MODULE.PARAMETER` -> value, of those that any user may read."""
    tuned_profile: str | None = None
    """The profile that the tuned daemon goes by."""
    library_directories: list[str] = []
    """Where the dynamic linker looks first, by /etc/ld.so.conf and its directory."""
    page_merging: str | None = None
    """Whether the kernel looks for equal pages to merge (KSM): `1` while it does."""
    daemons: list[str] = []
    """What runs beside the server and has a say in how it runs: `MPS`, `DCGM`, `fabric manager`, `irqbalance` ..."""
    steal_ticks: State[int | None] = None
    preload: Read[str | None] = None
    """/etc/ld.so.preload: libraries that every process loads."""
    numactl: bool | None = None
    """Whether numactl is installed: without it an engine that binds ranks to NUMA nodes silently does not."""
