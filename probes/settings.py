"""Settings of the host itself that a trial needs otherwise: really changed, written down first, put back by value.

Clocks, power limits, sysctls and governors have no private form. Before one is changed, the value that it has now is on
disk, in a file that outlives this program; that file is what is put back from, at the end of the trial, by the keeper
when the program is killed, and by the next command when both are. A machine that was started again since has
settings of its own: what was written down before is dropped. A production server that was stopped for the trials is
written down in the same way and started again from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from probes import gpu, lifetimes
from probes.reading import Json, read_text, run, run_module, unread

DEADLINE_S = 30.0
STOP_DEADLINE_S = 300.0
_FILES = re.compile(
    r"proc/sys/(kernel|vm|net/core)/[a-z_]+"
    r"|sys/kernel/mm/transparent_hugepage/(enabled|defrag|shmem_enabled|khugepaged/defrag)"
    r"|sys/devices/system/cpu/cpu\d+/cpufreq/scaling_governor"
)
_GPU = re.compile(r"gpu/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])/(power_limit_w|persistence|clocks)")
GOVERNOR = "governor"
SERVER = "server"
_DETACH = """
import os, sys
os.fork() and os._exit(0)
os.setsid()
os.chdir(sys.argv[1])
os.execvp(sys.argv[2], sys.argv[2:])
"""


class SettingError(Exception):
    """A setting that cannot be changed or read; the text says which and why."""


def journal_folder() -> str:
    """Where the values before lie: on disk, kept over a restart of the machine, this user's alone."""
    return f"/var/tmp/fingerprint-{os.geteuid()}"


class Settings:
    """The settings of one host.

    Args:
        root: where `proc` and `sys` are, the file system's own except in tests.
        libraries: the NVML libraries to try.
        folder: where the journal lies.
    """

    def __init__(self, root: str = "/", libraries: Optional[List[str]] = None, folder: Optional[str] = None) -> None:
        self._root = root
        self._libraries = libraries or list(gpu.LIBRARIES)
        self._folder = folder or journal_folder()
        self._path = os.path.join(self._folder, "before.jsonl")
        self._held: Optional[int] = None
        """The lock that says "I live, leave my lines alone": it goes with the process, also for other namespaces."""

    # --- reading and writing one -------------------------------------------------------------------------------------

    def expanded(self, wanted: Dict[str, Json]) -> Dict[str, Json]:
        """The same, with a governor for all processors written out for each.

        Raises:
            SettingError: a name that is no setting, or a governor where there is none.
        """
        found: Dict[str, Json] = {}
        for name, value in wanted.items():
            if name == GOVERNOR:
                pattern = os.path.join(self._root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
                files = sorted(glob.glob(pattern))
                if not files:
                    raise SettingError("this host has no frequency governor that can be set")
                found.update({os.path.relpath(path, self._root): value for path in files})
            elif _FILES.fullmatch(name) or _GPU.fullmatch(name):
                found[name] = value
            else:
                raise SettingError(f"{name} is no setting that can be changed")
        return found

    def read(self, names: List[str]) -> Dict[str, Json]:
        """Their present values.

        Raises:
            SettingError: one cannot be read.
        """
        found: Dict[str, Json] = {}
        for name in names:
            if not name.startswith("gpu/"):
                try:
                    text = read_text(os.path.join(self._root, name)).strip()
                except OSError as error:
                    raise SettingError(f"{name} cannot be read: {error.strerror}") from None
                chosen = re.search(r"\[(\S+)\]", text)
                found[name] = chosen[1] if chosen else text
        found.update(self._gpus("read", {name: None for name in names if name.startswith("gpu/")}))
        return found

    def _write(self, name: str, value: Json) -> None:
        if name.startswith("gpu/"):
            self._gpus("write", {name: value})
            return
        try:
            with open(os.path.join(self._root, name), "w") as stream:
                stream.write(str(value))
        except OSError as error:
            raise SettingError(f"{name} cannot be set to {value}: {error.strerror}; root may") from None

    def _gpus(self, action: str, values: Dict[str, Json]) -> Dict[str, Json]:
        if not values:
            return {}
        ask = {"action": action, "values": values, "libraries": self._libraries}
        done = run_module("probes.settings", DEADLINE_S, stdin=json.dumps(ask).encode())
        if done.reason is not None:
            raise SettingError(f"NVML: {done.reason}")
        answer: Dict[str, Dict[str, Json]] = json.loads(done.text())
        for name, one in answer.items():
            if "error" in one:
                raise SettingError(f"{name} cannot be {'set' if action == 'write' else 'read'}: {one['error']}")
        return {name: one["value"] for name, one in answer.items()}

    def refusal(self, wanted: Dict[str, Json]) -> Optional[str]:
        """Why these cannot be changed here by this user, or None. Nothing is changed to find out."""
        try:
            names = list(self.expanded(wanted))
            self.read(names)
        except SettingError as error:
            return str(error)
        for name in names:
            if name.startswith("gpu/") and os.geteuid() != 0:
                return f"{name} needs root"
            if not name.startswith("gpu/") and not os.access(os.path.join(self._root, name), os.W_OK):
                return f"{name} is not writable here; root may"
        return None

    # --- changing and putting back -----------------------------------------------------------------------------------

    def change(self, wanted: Dict[str, Json]) -> List[str]:
        """Change settings, each after its present value is on disk. Returns the names of those that were other.

        Raises:
            SettingError: one cannot be changed; what was changed before it is in the journal.
        """
        values = self.expanded(wanted)
        before = self.read(list(values))
        others = [name for name in values if str(before[name]) != str(values[name])]
        for name in others:
            self.note(name, before[name])
            self._write(name, values[name])
        return others

    def note(self, name: str, value: Json) -> None:
        """Write down what is to be put back, and wait until it is on disk.

        Raises:
            SettingError: it cannot be written: nothing may be changed then.
        """
        line = {"name": name, "before": value, "boot": _boot()}
        try:
            if not self._own(make=True):
                raise SettingError(f"another program changes settings of this host now, so {name} is not changed")
            with _opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as handle:
                os.write(handle, b"\n" + json.dumps(line).encode() + b"\n")  # the line before may have been cut off
                os.fsync(handle)
            _sync_folder(self._folder)
        except OSError as error:
            reason = error.strerror or error
            raise SettingError(f"{self._path} cannot be written ({reason}), so {name} is not changed") from None

    def _own(self, *, make: bool) -> bool:
        """Become the one program that changes and puts back. Raises OSError where the folder cannot be trusted."""
        if self._held is not None:
            return True
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
        self._trusted()
        path = os.path.join(self._folder, "lock")
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_ino == os.fstat(handle).st_ino:  # not one that its owner has just removed
                        self._held = handle
                        return True
            except OSError:
                os.close(handle)
                return False
            os.close(handle)

    def _release(self) -> None:
        """Let go, and leave nothing that says nothing."""
        if self._held is None:
            return
        if not os.path.exists(self._path):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, "lock"))
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)
        os.close(self._held)
        self._held = None

    def noted(self) -> List[Dict[str, Any]]:
        """What is to be put back, oldest first; a line that was cut off by a kill or a power loss is left out."""
        try:
            self._trusted()
            with _opened(self._path, os.O_RDONLY) as handle:
                text = b"".join(iter(lambda: os.read(handle, 1 << 16), b"")).decode("utf-8", "replace")
        except OSError:
            return []
        lines: List[Dict[str, Any]] = []
        for row in text.split("\n"):
            with contextlib.suppress(ValueError, RecursionError):
                line = json.loads(row)
                if isinstance(line, dict) and isinstance(line.get("name"), str) and {"before", "boot"} <= line.keys():
                    lines.append(line)
        return lines

    def _trusted(self) -> None:
        about = os.lstat(self._folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise OSError(1, f"{self._folder} is not this user's own")

    def put_back(self, *, server: bool, abandoned: bool = False) -> List[str]:
        """Put back what is written down, the newest first. Returns what was done, in words.

        Args:
            server: also start the production server that was stopped.
            abandoned: what a program that is gone has left; otherwise only what this one changed.
        """
        if self._held is None:
            try:
                if not abandoned or not self._own(make=False):
                    return []
            except OSError:
                return []
        said: List[str] = []
        lines = self.noted()
        left: List[Dict[str, Any]] = []
        for place, line in reversed(list(enumerate(lines))):
            if line["name"] == SERVER and not server:
                left.insert(0, line)
            elif any(line["name"] == earlier["name"] for earlier in lines[:place]):
                continue  # the oldest value is the host's own
            else:
                words, done = self._put_one_back(line)
                said.append(words)
                if not done:
                    left.insert(0, line)
        self._rewrite(left)
        if not left or abandoned:
            self._release()
        return said

    def _put_one_back(self, line: Dict[str, Any]) -> tuple[str, bool]:
        name, before = line["name"], line["before"]
        try:
            if name == SERVER:
                return start_server(before), True
            if line["boot"] != _boot():
                return f"{name}: the machine was started again since; left as it is", True
            if str(self.read([name])[name]) == str(before):
                return f"{name} is {before} as before", True
            self._write(name, before)
            there = self.read([name])[name]
        except SettingError as error:
            return f"{name} could NOT be put back to {before}: {error}", False
        if str(there) != str(before):
            return f"{name} could NOT be put back to {before}: it is {there}", False
        return f"{name} is {before} again", True

    def _rewrite(self, lines: List[Dict[str, Any]]) -> None:
        partial = f"{self._path}.new"
        if lines:
            with _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
                os.write(handle, "".join(json.dumps(line) + "\n" for line in lines).encode())
                os.fsync(handle)
            os.replace(partial, self._path)
            _sync_folder(self._folder)
            return
        for path in (partial, self._path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        _sync_folder(self._folder)


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _sync_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _boot() -> str:
    try:
        return read_text("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


# --- the production server -------------------------------------------------------------------------------------------


def stop_server(command: str, pids: List[int]) -> None:
    """Run the command that stops the production server, and wait until its processes are gone.

    Raises:
        SettingError: it failed, or they did not end.
    """
    done = run(shlex.split(command), STOP_DEADLINE_S)
    if done.reason is not None:
        raise SettingError(f"the stop command failed: {done.reason}")
    until = time.monotonic() + STOP_DEADLINE_S
    identity = {pid: lifetimes.started(pid) for pid in pids}
    while any(
        identity[pid] and lifetimes.started(pid) == identity[pid] and not lifetimes.is_zombie(pid) for pid in pids
    ):
        if time.monotonic() > until:
            raise SettingError(f"the stop command has run, but the server still does after {STOP_DEADLINE_S:g} s")
        time.sleep(0.05)


def start_server(how: Dict[str, Any]) -> str:
    """Start the production server again, out of reach of whatever ends this program. Returns what was done, in words.

    Args:
        how: `command`, `cwd`, and the `port` on which it listens once it is up.
    """
    if listens(how["port"]):
        return "the production server runs"
    lifetimes.prctl(lifetimes.PR_SET_CHILD_SUBREAPER, 0)  # it is nobody's to reap but the machine's
    try:
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _DETACH, how["cwd"], *shlex.split(how["command"])],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).wait(DEADLINE_S)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingError(f"the start command failed: {error}") from None
    return f"the production server was started again: {how['command']}"


def listens(port: Optional[int]) -> bool:
    """Whether something on this host answers on a port."""
    if port is None:
        return False
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except OSError:
        return False
    return True


# --- NVML, in a child of its own -------------------------------------------------------------------------------------


def _read_clocks(nvml: gpu.Nvml, handle: Any) -> str:  # noqa: ANN401 - the binding's own
    ranges = gpu.clock_ranges(nvml, handle)
    if "graphics" not in ranges:
        raise gpu.NvmlError("this driver does not tell between which clocks the board may choose")
    return ranges["graphics"]


def _write_clocks(nvml: gpu.Nvml, handle: Any, value: str) -> None:  # noqa: ANN401
    low, _, high = str(value).partition("-")
    highest = nvml.ask("nvmlDeviceGetMaxClockInfo", handle, 0)
    if int(high) >= highest and int(low) < highest:
        nvml.ask("nvmlDeviceResetGpuLockedClocks", handle)  # the whole range: no lock
    else:
        nvml.ask("nvmlDeviceSetGpuLockedClocks", handle, int(low), int(high))


_READ: Dict[str, Callable[[gpu.Nvml, Any], Json]] = {
    "power_limit_w": lambda nvml, handle: nvml.ask("nvmlDeviceGetPowerManagementLimit", handle) / 1000,
    "persistence": lambda nvml, handle: bool(nvml.ask("nvmlDeviceGetPersistenceMode", handle)),
    "clocks": _read_clocks,
}
_WRITE: Dict[str, Callable[[gpu.Nvml, Any, Any], None]] = {
    "power_limit_w": lambda nvml, handle, value: nvml.ask(
        "nvmlDeviceSetPowerManagementLimit", handle, round(float(value) * 1000)
    ),
    "persistence": lambda nvml, handle, value: nvml.ask("nvmlDeviceSetPersistenceMode", handle, int(value)),
    "clocks": _write_clocks,
}


def main() -> None:
    """Read or write the settings of GPUs that standard input names, and print what came of each."""
    ask = json.load(sys.stdin)
    answers: Dict[str, Json] = {}
    try:
        nvml = gpu.Nvml(ask["libraries"])
        nvml.ask("nvmlInit")
    except gpu.NvmlError as error:
        answers = {name: {"error": str(error)} for name in ask["values"]}
    else:
        for name, value in ask["values"].items():
            named = _GPU.fullmatch(name)
            try:
                if named is None:
                    raise gpu.NvmlError("it is no setting of a GPU")
                handle = nvml.ask("nvmlDeviceGetHandleByPciBusId", named[1].encode())
                if ask["action"] == "write":
                    _WRITE[named[2]](nvml, handle, value)
                answers[name] = {"value": _READ[named[2]](nvml, handle)}
            except (gpu.NvmlError, ValueError) as error:
                answers[name] = {"error": unread(error)["unread"] if isinstance(error, ValueError) else str(error)}
        with contextlib.suppress(gpu.NvmlError):
            nvml.ask("nvmlShutdown")
    sys.stdout.write(json.dumps(answers))
    sys.stdout.flush()
    os._exit(0)  # a driver's exit handlers are none of our business
