"""The live server, read from outside: its processes, their variables three ways, and its own account of itself."""

from typing import Annotated, Literal

from pydantic import JsonValue

from snapshots.base import IdentityOf, Part, Read, Section, State
from snapshots.launch import settings, without_a_name, without_a_session

Variables = dict[str, str]


class Library(Part):
    """A shared object that is mapped in a process."""

    path: State[str] = ""
    build_id: Read[str | None] = None
    version: State[Read[str | None]] = None
    """The version that it exports (cuDNN) or that its file is named by; most tell none, and the build-id counts."""
    inode: State[int] = 0
    deleted: bool = False
    """The file was replaced on disk after the process mapped it."""


class Process(Part):
    """One process of the server."""

    role: Literal["launcher", "rank", "detokenizer", "tracker", "helper"]
    rank: int | None = None
    pid: State[int]
    parent: State[int]
    title: str
    argv: Annotated[Read[list[str]], IdentityOf(settings)]
    executable: Read[str]
    cwd: Read[str]
    started: State[Read[float]]
    """Seconds since the epoch."""
    at_exec: Annotated[Read[Variables], IdentityOf(without_a_session)]
    """Variables that it was started with; a process that writes its title over them makes this unreadable."""
    variables: Annotated[Read[Variables], IdentityOf(without_a_session)]
    """Variables as they are now, from the C library's `environ` in the process's memory."""
    libraries: Read[dict[str, Library]] = {}
    jit: State[list[str]] = []
    """Mapped objects that were compiled at run time: they come with the first request that needs them."""
    compiling: State[list[str]] = []
    """Variables that torch's compiler has set since the start, because it had something to compile."""
    affinity: Read[str] = ""
    threads: State[Read[int | None]] = None
    """How many threads a rank has."""
    thread_affinity: Read[list[str]] = []
    """Processors to which single threads of a rank are bound, where they are not its main thread's."""
    thread_names: State[dict[str, dict[str, int]]] = {}
    """For each of these: the names of its threads, and how many have that name."""
    memory_nodes: Read[str] = ""
    """NUMA nodes that it may allocate on."""
    memory_policy: Read[str] = "default"
    """Where its memory is put, as the kernel writes it: `bind:0`, `interleave:0-1`."""
    nice: Read[int] = 0
    policy: str = "other"
    """The kernel's scheduling class: `other`, `fifo`, `round robin`, `batch`, `idle`, `deadline`."""
    cgroup: State[Read[str]] = ""
    namespaces: State[Read[dict[str, str]]] = {}
    """Kind (`pid`, `net`, `mnt` ...) to the number that the kernel gave it: equal numbers are one namespace."""
    apart: Read[list[str]] = []
    """The kinds in which it does not share the launcher's namespace."""


class SettingsFile(Part):
    """A file of settings that the launch names."""

    path: State[str]
    sha256: Read[str]
    text: State[Read[str | None]] = None
    """Secrets replaced; None for a long one."""


class Declared(Part):
    """What starts the server, and the variables that it declares for it."""

    by: str
    """`systemd`, or the engine of the container: `docker`, `cri-containerd`, `crio`, `libpod`, `kubepods`."""
    name: State[str]
    """The unit, or the container's id."""
    files: State[list[str]] = []
    """Where that was read."""
    variables: dict[str, Read[str]] = {}


class Choice(Part):
    """One of several servers on a host."""

    pid: int
    port: int | None = None
    argv: list[str] = []


class Server(Section):
    """The server's process tree by role (`launcher`, `rank 0`, `detokenizer` ...)."""

    engine: str | None = None
    url: State[str | None] = None
    choices: State[list[Choice]] = []
    """The servers of the host, when none was chosen or none is meant."""
    processes: dict[str, Process] = {}
    declared: Read[Declared | None] = None
    """None where no service manager or container engine is seen, as from inside a container."""
    files: dict[str, SettingsFile] = {}
    """Files of settings (YAML, JSON, TOML, templates) by the flag or variable of the launch that names them."""
    arguments: Annotated[Read[dict[str, JsonValue]], IdentityOf(without_a_name)] = {}
    """Resolved arguments from `/server_info`, without ports, times and secrets."""
