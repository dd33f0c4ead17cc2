"""One process, read from outside through /proc: never stopped, never signalled, never written to.

A process has two sets of variables. Those it was started with are in /proc/PID/environ, until it writes its title over
them (setproctitle does; all that is left is NUL bytes). Those it has *now* are where its C library's `environ` points:
the executable's own copy of that symbol where it has one (a copy relocation), the library's otherwise. Both are kept,
because an engine changes its variables after it has started and passes the changed ones on.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from typing import TYPE_CHECKING, Collection, Dict, List, NamedTuple, Optional, Tuple

from probes.elf import ElfError, Image, file_build_id
from probes.reading import Json, attempt, read_bytes, read_text, unread

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGEST_CMDLINE_BYTES = 2 << 20
_LARGEST_MAPS_BYTES = 64 << 20
_MOST_VARIABLES = 65_536
_MOST_THREADS = 4096
_LONGEST_VARIABLE_BYTES = 128 * 1024 + 1
_PAGE = 4096
_POLICIES = {"0": "other", "1": "fifo", "2": "round robin", "3": "batch", "5": "idle", "6": "deadline"}
_C_LIBRARY = re.compile(r"/(libc\.so\.6|libc-2\.\d+\.so|ld-musl-[^/]+\.so\.1|libc\.musl-[^/]+\.so\.1)$")
_SITE = re.compile(r".*/(?:site|dist)-packages/")


class Stat(NamedTuple):
    """What /proc/PID/stat says."""

    pid: int
    state: str
    parent: int
    nice: int
    started_ticks: int
    policy: str = "other"
    """The kernel's scheduling class."""


def pids() -> List[int]:
    """Every process that can be seen."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def stat(pid: int) -> Stat:
    """Read /proc/PID/stat.

    Raises:
        OSError: the process is gone.
    """
    text = read_text(f"/proc/{pid}/stat")
    fields = text[text.rindex(")") + 2 :].split()
    policy = _POLICIES.get(fields[38], fields[38])
    return Stat(pid, fields[0], int(fields[1]), int(fields[16]), int(fields[19]), policy)


def argv(pid: int) -> List[str]:
    """The command line; a process that wrote a title over it has that as its only word.

    Raises:
        OSError: the process is gone or belongs to somebody else.
    """
    raw = read_bytes(f"/proc/{pid}/cmdline", _LARGEST_CMDLINE_BYTES)
    words = raw.rstrip(b"\0").split(b"\0")
    return [word.decode("utf-8", "replace") for word in words] if raw.strip(b"\0") else []


def started_at(pid: int) -> float:
    """Start time in seconds since the epoch."""
    for line in read_text("/proc/stat", 16 << 20).splitlines():
        if line.startswith("btime "):
            return round(int(line.split()[1]) + stat(pid).started_ticks / os.sysconf("SC_CLK_TCK"), 2)
    raise OSError("/proc/stat has no btime")


def status(pid: int) -> Dict[str, str]:
    """/proc/PID/status as a dictionary."""
    pairs = (line.partition(":") for line in read_text(f"/proc/{pid}/status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def memory_policy(pid: int) -> str:
    """Where a process's memory is put, as /proc/PID/numa_maps writes it: `default`, `bind:0`, `interleave:0-1`.

    Only the first mapping is read: it has no policy of its own, and a whole file takes seconds on a large process.
    """
    try:
        first = read_text(f"/proc/{pid}/numa_maps", 4096).split("\n", 1)[0].split()
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}"):
            return "default"  # a kernel without NUMA
        raise
    return " ".join(first[1:3]) if first[1:2] in (["prefer"], ["weighted"]) and len(first) > 2 else first[1]


class Threads(NamedTuple):
    """The threads of a process."""

    number: int
    elsewhere: Dict[str, Dict[str, int]]
    """Processors that are not the main thread's, as `0-3,8` -> name of a thread that is bound to them -> how many."""


def threads(pid: int) -> Threads:
    """How many threads a process has, and which of them (the first 4096) are bound to other processors than its first.

    Raises:
        OSError: the process is gone.
    """
    place = f"/proc/{pid}/task"
    names = os.listdir(place)
    usual = os.sched_getaffinity(pid)
    elsewhere: Dict[str, Dict[str, int]] = {}
    for name in names[:_MOST_THREADS]:
        try:
            own = os.sched_getaffinity(int(name))
            if own != usual:
                named = elsewhere.setdefault(cpu_list(own), {})
                comm = read_text(f"{place}/{name}/comm").strip()
                named[comm] = named.get(comm, 0) + 1
        except OSError:  # noqa: PERF203
            continue  # it ended meanwhile
    return Threads(len(names), {cpus: dict(sorted(named.items())) for cpus, named in sorted(elsewhere.items())})


def cpu_list(numbers: Collection[int]) -> str:
    """Processors as the kernel writes them, such as `0-3,8`."""
    runs: List[List[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def namespaces(pid: int) -> Dict[str, str]:
    """The namespaces of a process: kind to the kernel's number.

    Raises:
        OSError: the process is gone or somebody else's.
    """
    place = f"/proc/{pid}/ns"
    return {kind: os.readlink(f"{place}/{kind}").partition("[")[2].rstrip("]") for kind in _NAMESPACES}


def cgroup(pid: int) -> str:
    """The process's path in the unified hierarchy, or in the first one where there is no unified one."""
    lines = [line.split(":", 2) for line in read_text(f"/proc/{pid}/cgroup").splitlines()]
    unified = [path for number, _, path in lines if number == "0"]
    return (unified or [path for _, _, path in lines] or [""])[0]


def variables_at_exec(pid: int) -> Json:
    """The variables that the process was started with, or why they cannot be read."""
    raw = read_bytes(f"/proc/{pid}/environ", 16 << 20)
    if raw.startswith(b"\0"):  # behind its title SGLang leaves the second half of them
        return unread("clobbered by a title: the process wrote its title over its variables")
    entries = [entry for entry in raw.split(b"\0") if entry]
    if any(b"=" not in entry for entry in entries):
        return unread("clobbered by a title: what is left is no list of variables")
    return _table(entries)


def _table(entries: List[bytes]) -> Dict[str, str]:
    table: Dict[str, str] = {}
    for entry in entries:
        name, mark, value = entry.decode("utf-8", "replace").partition("=")
        if mark:
            table.setdefault(name, value)  # getenv finds the first one
    return table


_FULL_VERSION = re.compile(r"/lib(?:cu|nv|nccl)[^/]*\.so\.(\d+(?:\.\d+){2,3})$")
_CUDNN_VERSIONS = (
    b"cudnn_graph_version", b"cudnn_ops_version", b"cudnn_ops_infer_version", b"cudnn_cnn_version",
    b"cudnn_cnn_infer_version", b"cudnn_adv_version", b"cudnn_adv_infer_version",
)  # fmt: skip


_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


class Mapping(NamedTuple):
    """A file that is mapped in a process, at its lowest address."""

    start: int
    path: str
    device: str
    inode: int
    deleted: bool
    executable: bool


def mappings(pid: int) -> List[Mapping]:
    """The files mapped in a process, one entry a file, in order of address.

    Raises:
        OSError: the process is gone or may not be read.
    """
    found: Dict[Tuple[str, str, int], Mapping] = {}
    for line in read_bytes(f"/proc/{pid}/maps", _LARGEST_MAPS_BYTES).decode("utf-8", "replace").splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        path = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[5])
        deleted = path.endswith(" (deleted)")
        path = path[: -len(" (deleted)")] if deleted else path
        key = (path, fields[3], int(fields[4]))
        known = found.get(key)
        runs = "x" in fields[1]
        if known is None:
            found[key] = Mapping(int(fields[0].split("-")[0], 16), path, key[1], key[2], deleted, runs)
        elif runs and not known.executable:
            found[key] = known._replace(executable=True)
    return list(found.values())


class Memory:
    """A process's memory, read a page at a time through /proc/PID/mem."""

    def __init__(self, pid: int) -> None:
        try:
            self._handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise OSError(error.errno, f"its memory may not be read ({_yama()})", error.filename) from None
        self._pages: Dict[int, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def forget(self) -> None:
        """Drop what was read, so that it is read again."""
        self._pages.clear()

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = os.pread(self._handle, _PAGE, number * _PAGE)
        return page

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`.

        Raises:
            OSError: not mapped.
        """
        first, last = address // _PAGE, (address + size - 1) // _PAGE
        if last - first > 4096:
            raise OSError("an implausible size in the process's memory")
        blob = b"".join(self._page(number) for number in range(first, last + 1))
        part = blob[address - first * _PAGE :][:size]
        if len(part) < size:
            raise OSError("not mapped in the process's memory")
        return part

    def string(self, address: int) -> bytes:
        """The NUL-terminated string at `address`."""
        parts: List[bytes] = []
        size = 0
        while size < _LONGEST_VARIABLE_BYTES:
            page = self._page(address // _PAGE)[address % _PAGE :]
            end = page.find(b"\0")
            if end >= 0:
                return b"".join(parts) + page[:end]
            if not page:
                raise OSError("not mapped in the process's memory")
            parts.append(page)
            size += len(page)
            address += len(page)
        raise OSError("a variable without an end")


def _yama() -> str:
    try:
        scope = read_text("/proc/sys/kernel/yama/ptrace_scope").strip()
    except OSError:
        return "another user's process"
    return f"kernel.yama.ptrace_scope is {scope}; root may" if scope != "0" else "another user's process"


def variables_now(pid: int) -> Dict[str, str]:
    """The variables that the process has now, from its memory.

    Raises:
        OSError: the memory may not be read, or the process changed while it was read.
        ElfError: its executable or C library is not understood.
    """
    with Memory(pid) as memory:
        pointer = _environ_symbol(pid, memory)
        failure: Optional[Exception] = None
        for _ in range(3):  # the process may be adding one at this very moment
            try:
                before = memory.read(pointer, 8)
                entries = _entries(memory, struct.unpack("<Q", before)[0])
                memory.forget()
                if memory.read(pointer, 8) == before:
                    return _table(entries)
            except OSError as error:  # noqa: PERF203 - that is the retry
                failure = error
                memory.forget()
        raise failure or OSError("its variables kept changing while they were read")


def _environ_symbol(pid: int, memory: Memory) -> int:
    program = os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", "")
    files = mappings(pid)
    own = [entry for entry in files if entry.path == program]
    library = [entry for entry in files if _C_LIBRARY.search(entry.path)]
    for entry in own[:1] + library[:1]:
        image = Image(memory.read, entry.start)
        for name in (b"environ", b"__environ", b"_environ"):
            address = image.symbol(name)
            if address is not None:
                return address
    raise ElfError("neither the executable nor a C library in it defines environ")


def _entries(memory: Memory, table: int) -> List[bytes]:
    entries: List[bytes] = []
    if table == 0:
        return entries
    for number in range(_MOST_VARIABLES):
        (pointer,) = struct.unpack("<Q", memory.read(table + 8 * number, 8))
        if pointer == 0:
            return entries
        entries.append(memory.string(pointer))
    raise OSError("a list of variables without an end")


def libraries(pid: int) -> Dict[str, Json]:
    """The shared objects mapped in a process: key -> path, build-id, whether it was replaced on disk.

    The key is the file's name, or its path below site-packages; two different files of one name have their full paths.
    """
    program = os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", "")
    entries = [entry for entry in mappings(pid) if entry.executable and ".so" in entry.path and entry.path != program]
    names = [_library_name(entry.path) for entry in entries]
    found: Dict[str, Json] = {}
    for name, entry in sorted(zip(names, entries)):
        key = name if names.count(name) == 1 else entry.path
        # Replaced twice over: the same path, mapped as several files.
        key = key if key not in found else f"{key} (inode {entry.inode})"
        found[key] = {
            "path": entry.path,
            "build_id": attempt(functools.partial(_mapped_build_id, pid, entry)),
            "inode": entry.inode,
            "deleted": entry.deleted,
        }
        version = attempt(functools.partial(_library_version, pid, entry))
        if version is not None:
            found[key]["version"] = version
    return found


def _library_version(pid: int, entry: Mapping) -> Optional[str]:
    """The version of a CUDA library, where it exports one or its file is named by it; None where it does neither.

    cuDNN exports three bytes in each of its parts. cuBLAS and the CUDA runtime only compute theirs.
    """
    named = _FULL_VERSION.search(entry.path)
    if named:
        return named[1]
    if not os.path.basename(entry.path).startswith("libcudnn"):
        return None
    with Memory(pid) as memory:
        image = Image(memory.read, entry.start)
        for symbol in _CUDNN_VERSIONS:
            at = image.symbol(symbol)
            if at is not None:
                patch, minor, major = memory.read(at, 3)
                return f"{major}.{minor}.{patch}"
    return None


def _library_name(path: str) -> str:
    below = _SITE.sub("", path)
    return below if below != path else os.path.basename(path)


def _mapped_build_id(pid: int, entry: Mapping) -> Optional[str]:
    try:
        handle = os.open(f"/proc/{pid}/root{entry.path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        handle = -1
    if handle >= 0:
        try:
            same = os.fstat(handle).st_ino == entry.inode and not entry.deleted
            if same:
                return file_build_id(lambda offset, size: os.pread(handle, size, offset))
        finally:
            os.close(handle)
    with Memory(pid) as memory:
        return Image(memory.read, entry.start).build_id()


class Listener(NamedTuple):
    """A TCP port that a process accepts connections on."""

    address: str
    port: int


def listeners(pid: int) -> List[Listener]:
    """The TCP ports on which a process listens, lowest first.

    Raises:
        OSError: its descriptors may not be read.
    """
    sockets = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if link.startswith("socket:["):
            sockets.add(link[8:-1])
    found = set()
    for family in ("tcp", "tcp6"):
        try:
            lines = read_text(f"/proc/{pid}/net/{family}", 16 << 20).splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[9] in sockets:
                raw, _, port = fields[1].partition(":")
                found.add(Listener(_address(raw), int(port, 16)))
    return sorted(found, key=lambda listener: (listener.port, listener.address))


def _address(raw: str) -> str:
    import socket

    packed = b"".join(struct.pack("=I", int(raw[at : at + 8], 16)) for at in range(0, len(raw), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
