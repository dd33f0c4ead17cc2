"""Reading a host without trusting it: every failure is a value, every read has a bound.

A value that cannot be read is `{"unread": reason}`; `None` means that the thing is not there.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

Json = Any
Unread = Dict[str, str]

LARGEST_TEXT_BYTES = 256 * 1024

_RUNNING: Set[int] = set()
"""Process groups of commands that are running now."""
_ABANDONED: List[subprocess.Popen[bytes]] = []
"""Commands that could not be ended: kept, so that nothing waits for them when they are forgotten."""
_GATE = threading.Lock()
_ENDED = threading.Event()
"""No command is started any more."""


def unread(reason: object) -> Unread:
    """The value that stands for a failed read; an exception is put into words."""
    if isinstance(reason, FileNotFoundError):
        return {"unread": f"{reason.filename} does not exist"}
    if isinstance(reason, OSError):
        name = f"{reason.filename}: " if reason.filename else ""
        return {"unread": f"{name}{reason.strerror or reason}"}
    if isinstance(reason, BaseException):
        return {"unread": f"{type(reason).__name__}: {reason}"}
    return {"unread": str(reason)}


def is_unread(value: object) -> bool:
    """Whether a value stands for a failed read."""
    return isinstance(value, dict) and value.keys() == {"unread"}


def attempt(read: Callable[[], Json]) -> Json:
    """What `read` returns, or the reason why it could not."""
    try:
        return read()
    except Exception as error:
        return unread(error)


def read_bytes(path: Union[str, os.PathLike[str]], limit: int = LARGEST_TEXT_BYTES) -> bytes:
    """The contents of a regular file (or a file of /proc or /sys), at most `limit` bytes of it.

    A FIFO, a device or a socket in its place is refused instead of waited for.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        chunks: List[bytes] = []
        left = limit
        while left > 0:
            chunk = os.read(handle, min(left, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(handle)


def read_text(path: Union[str, os.PathLike[str]], limit: int = LARGEST_TEXT_BYTES) -> str:
    """The contents of a small text file; bytes that are not UTF-8 are kept as surrogates' replacements.

    Raises:
        OSError: as `read_bytes`.
    """
    return read_bytes(path, limit).decode("utf-8", "replace")


def names_in(directory: str) -> List[str]:
    """What a directory holds, sorted; nothing when it cannot be read or is none."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def files_below(site: str, top: str) -> Iterator[str]:
    """The files below one directory of `site`, as paths below `site`; linked directories are not entered."""
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            entries = sorted(os.scandir(f"{site}/{directory}"), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__" and not entry.is_symlink():
                    waiting.append(f"{directory}/{entry.name}")
            elif not entry.name.endswith(".pyc"):
                yield f"{directory}/{entry.name}"


def without_server(context: Dict[str, Any]) -> Optional[Dict[str, Json]]:
    """The section of a probe that needs the live server, when it cannot have it; None when it can.

    There is none, or it was not chosen, or it sees other files than we do.
    """
    serving = context.get("serving")
    if not serving:
        server = context.get("server") or {}
        return {"status": server.get("status", "absent"), "reason": server.get("reason") or "no server runs here"}
    if serving.get("elsewhere"):
        return {"status": "failed", "reason": serving["elsewhere"]}
    return None


class Finished:
    """How a command ended: `code` (None when it was abandoned), `out`, and `reason` when there is no usable output."""

    def __init__(self, code: Optional[int], out: bytes, reason: Optional[str]) -> None:
        self.code = code
        self.out = out
        self.reason = reason

    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode("utf-8", "replace")


def run(
    argv: List[str],
    deadline_s: float,
    *,
    cwd: Optional[str] = None,
    variables: Optional[Mapping[str, str]] = None,
    limit: int = 8 << 20,
    stdin: Optional[bytes] = None,
    user: Optional[Tuple[int, int]] = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run one command, without a shell, in the C locale, for at most `deadline_s` seconds.

    It runs as `user` (user and group number) where one is given and we may do so. A child that does not end is killed;
    one that cannot be killed (asleep in the kernel) is abandoned.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    other: Dict[str, Any] = {}
    if user is not None and os.geteuid() == 0 and user[0] != 0:
        other = {"user": user[0], "group": user[1], "extra_groups": []}
    environment.update(LC_ALL="C", LANGUAGE="C")
    environment.update(variables or {})
    with _GATE:
        if _ENDED.is_set():
            return Finished(None, b"", f"{argv[0]} was not started: nobody waits for it any more")
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                pass_fds=pass_fds,
                **other,
            )
        except OSError as error:
            return Finished(None, b"", f"{argv[0]}: {error.strerror}")
        _RUNNING.add(child.pid)
    try:
        return _finish(child, argv[0], deadline_s, limit, stdin)
    finally:
        _RUNNING.discard(child.pid)


_MODULE = (
    "import sys,importlib;sys.path[:0]=sys.argv[1].split(':');sys.dont_write_bytecode=True;"
    "importlib.import_module(%r).main()"
)


def run_module(name: str, deadline_s: float, *words: str, stdin: Optional[bytes] = None) -> Finished:
    """Run the `main` of one of this program's modules in a child of its own, which may hang or crash.

    The words are `sys.argv[2:]` there.
    """
    place = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    handed = re.match(r"/proc/self/fd/(\d+)$", place)
    binding = importlib.util.find_spec("pynvml")  # it travels beside this package
    beside = os.path.dirname(binding.origin) if binding is not None and binding.origin else place
    return run(
        [sys.executable, "-I", "-S", "-c", _MODULE % name, f"{place}:{beside}", *words],
        deadline_s,
        stdin=stdin,
        pass_fds=(int(handed[1]),) if handed else (),
    )


def end_commands() -> None:
    """End the commands that are still running, and start no more: their readers are about to leave."""
    _ENDED.set()
    held = _GATE.acquire(timeout=1)
    if held:
        _GATE.release()
    for group in list(_RUNNING):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _finish(
    child: subprocess.Popen[bytes], name: str, deadline_s: float, limit: int, stdin: Optional[bytes]
) -> Finished:
    try:
        out, err = child.communicate(stdin, timeout=deadline_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        ended = time.monotonic() + 0.5
        while child.poll() is None and time.monotonic() < ended:
            time.sleep(0.01)
        fate = "was ended" if child.poll() is not None else "could not be ended and was left alone"
        if child.poll() is None:
            _ABANDONED.append(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        return Finished(None, b"", f"{name} did not finish within {deadline_s:g} s and {fate}")
    if child.returncode != 0:
        words = err.decode("utf-8", "replace").strip().splitlines()
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit status {child.returncode}"
        return Finished(child.returncode, out[:limit], f"{name}: {how}" + (f": {words[0][:200]}" if words else ""))
    if len(out) > limit:
        return Finished(0, out[:limit], f"{name}: its output was cut at {limit} bytes")
    return Finished(0, out, None)


def canonical(name: str) -> str:
    """A project's name as all its spellings have it in common (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
