"""What the server's processes may use."""

from snapshots.base import Part, Read, Section, State


class CgroupLevel(Part):
    """One cgroup on the way from the process's own to the root."""

    path: State[str]
    settings: dict[str, str] = {}
    cpu_stat: State[dict[str, int]] = {}
    memory_events: State[dict[str, int]] = {}
    """How often memory was taken back at a limit (`high`, `max`) and processes were ended for it (`oom_kill`)."""


class Limits(Section):
    """Limits, cgroups (level 0 is the process's own, then its ancestors), shared memory, privileges, container."""

    limits: Read[dict[str, str]] = {}
    """Soft limits by the kernel's names, such as `open files`."""
    cgroup_levels: dict[str, CgroupLevel] = {}
    cpus: float | None = None
    """How many processors may be used at once: the least of every quota, set and the affinity."""
    memory_bytes: int | None = None
    throttling: State[Read[dict[str, int]]] = {}
    shared_memory_bytes: Read[int | None] = None
    privileges: dict[str, str] = {}
    """`CapEff`, `NoNewPrivs`, `Seccomp`, and `label`: what AppArmor or SELinux calls the process."""
    container: State[dict[str, str]] = {}
    hidden_ancestors: State[Read[bool | None]] = None
    """Whether the process is in a cgroup namespace, so that limits above it cannot be seen from inside."""
