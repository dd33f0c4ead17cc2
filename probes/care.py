"""Care for the host before the first trial: one bisect at a time, and nothing started for which there is no room.

What a trial will use is estimated from the live server, which is the same server: its memory, its GPUs' memory. A host
that has less left is refused before anything is touched, with what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
import sys
import time
from typing import List, Optional

from probes import gpu, keeper, lifetimes, processes
from probes.reading import Json, attempt, is_unread, read_text, run_module

LOCK = "\0fingerprint-bisect"
"""An abstract name: it vanishes with the process that holds it."""
GPU_SLACK_BYTES = 256 << 20
"""What a GPU's memory may lack before it is said: contexts differ a little from start to start."""


class BusyError(Exception):
    """Another bisect runs on this host; the text says whose."""


def take_lock() -> socket.socket:
    """The host's lock, held until the socket is closed.

    Raises:
        BusyError: somebody has it.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(LOCK)
        lock.listen(64)  # so that a second one can ask whose it is
    except OSError:
        lock.close()
        raise BusyError(f"another bisect is running on this host{_owner()}; wait for it or end it first") from None
    return lock


def _owner() -> str:
    """Whose the lock is, as far as the kernel tells."""
    with contextlib.suppress(OSError, KeyError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ask:
        ask.settimeout(1.0)
        ask.connect(LOCK)
        pid, uid, _gid = struct.unpack("3i", ask.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        words = f": process {pid} of {_user(uid)}"
        with contextlib.suppress(OSError, ValueError):
            words += time.strftime(", since %Y-%m-%d %H:%M UTC", time.gmtime(processes.started_at(pid)))
            variables = processes.variables_at_exec(pid)
            client = "" if is_unread(variables) else variables.get("SSH_CONNECTION", "").partition(" ")[0]
            words += f", from {client}" if client else ""
        return words
    return ""


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"


def objections(ask: Json, live: List[int], nvml: Optional[str] = None) -> List[str]:
    """What speaks against trials here and now, in words.

    Args:
        ask: `trees` and `prefixes` (directories that trials change), `bytes` that they write, `stops` (whether the
            live server is stopped meanwhile), `isolation` as for a trial.
        live: the live server's processes.
        nvml: the library to ask, where it is not the driver's own.
    """
    return [*_memory(ask, live), *_disk(ask), *_gpus(ask, live, nvml)]


def resident_bytes(pids: List[int]) -> int:
    """Memory of their own that processes hold: what another server of the kind will need."""
    total = 0
    shared = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            status = processes.status(pid)
            total += int(status["RssAnon"].split()[0]) << 10
            shared = max(shared, int(status["RssShmem"].split()[0]) << 10)  # the same pages in every rank
    return total + shared


def _memory(ask: Json, live: List[int]) -> List[str]:
    held = resident_bytes(live)
    needed = held + int(ask.get("bytes", 0))
    available = attempt(_available_bytes)
    if is_unread(available):
        return []
    available += held if ask.get("stops") else 0
    if needed <= available:
        return []
    hint = "" if ask.get("stops") else "; --stop-command stops the production server meanwhile"
    return [f"another server needs about {_size(needed)} of memory and {_size(available)} are available{hint}"]


def _available_bytes() -> int:
    """Memory that can be had without pushing anything else out."""
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError(2, "/proc/meminfo has no MemAvailable")


def _disk(ask: Json) -> List[str]:
    """Only copies need disk; private layers are in memory."""
    if not ask.get("trees") and not ask.get("prefixes"):
        return []
    if ask.get("isolation") != "copies" and can_isolate() is None:
        return []
    folder = keeper.temporary_folder()
    needed = int(ask.get("bytes", 0)) + sum(_tree_bytes(root, but=".git") for root in ask.get("trees", []))
    for prefix in ask.get("prefixes", []):  # hard links cost nothing, but do not go from one file system to another
        with contextlib.suppress(OSError):
            needed += _tree_bytes(prefix) if os.stat(prefix).st_dev != os.stat(folder).st_dev else 0
    about = os.statvfs(folder)
    free = about.f_bavail * about.f_frsize
    if needed <= free:
        return []
    return [f"copies for a trial need about {_size(needed)} in {folder}, where {_size(free)} are free"]


def _tree_bytes(root: str, but: str = "") -> int:
    total = 0
    for place, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name != but]
        for name in names:
            with contextlib.suppress(OSError):
                about = os.lstat(os.path.join(place, name))
                total += about.st_blocks * 512
    return total


def _gpus(ask: Json, live: List[int], nvml: Optional[str]) -> List[str]:
    """GPUs of the live server that others use, or that have no room for a second server beside it."""
    numbered = {str(pid): pid for pid in live}
    section = attempt(lambda: gpu.read({"ask": {"nvml": nvml}, "serving": {"processes": numbered}}))
    words: List[str] = []
    gpus = {} if is_unread(section) else section.get("gpus") or {}
    theirs = gpu.used_by(gpus, set(live))
    for bus, one in sorted(gpus.items()):
        used = [] if is_unread(one) else one.get("processes") or []
        if is_unread(used) or not used:
            continue
        foreign = [process for process in used if process["pid"] not in live]
        ours = [process for process in used if process["pid"] in live]
        if foreign and bus in theirs:
            names = ", ".join(f"{process['pid']} {process.get('name', '')}".strip() for process in foreign[:3])
            words.append(f"GPU {bus} is used by others: process {names}")
        held = sum(process.get("memory_bytes") or 0 for process in ours)
        total, taken = one.get("memory_bytes"), one.get("memory_used_bytes")
        if held and not ask.get("stops") and isinstance(total, int) and isinstance(taken, int):
            free = total - taken
            if free + GPU_SLACK_BYTES < held:
                words.append(
                    f"GPU {bus} has {_size(free)} free and another server needs about {_size(held)};"
                    " --stop-command stops the production server meanwhile"
                )
    return words


def still_on_gpus(pids: List[int], nvml: Optional[str], patience_s: float) -> List[str]:
    """Wait until no GPU holds memory for these processes any more. Returns, in words, what still does after that."""
    until = time.monotonic() + patience_s
    while True:
        section = attempt(lambda: gpu.read({"ask": {"nvml": nvml}, "serving": {}}))
        words = [
            f"GPU {bus} still holds memory for process {process['pid']}"
            for bus, one in ({} if is_unread(section) else section.get("gpus") or {}).items()
            if not is_unread(one) and not is_unread(one.get("processes"))
            for process in one.get("processes") or []
            if process["pid"] in pids
        ]
        if not words or time.monotonic() > until:
            return words
        time.sleep(0.2)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 29 else f"{count / (1 << 20):.0f} MiB"


def can_isolate() -> Optional[str]:
    """Why this user gets no private mount namespace with overlays here, or None: tried in a child."""
    done = run_module("probes.care", 20.0)
    if done.reason is not None:
        return done.reason
    reason: Optional[str] = json.loads(done.text())["reason"]
    return reason


def main() -> None:
    """Try a private world in this process, and print why there is none."""
    scratch = os.path.join(
        keeper.temporary_folder(), f"{keeper.SCRATCH_PREFIX}{os.getpid()}-{lifetimes.started(os.getpid())}-0"
    )
    os.mkdir(scratch, 0o700)
    try:
        reason = keeper.new_namespace() or keeper.can_overlay(scratch)
        keeper.leave(scratch)
    finally:
        keeper.remove_tree(scratch)
    sys.stdout.write(json.dumps({"reason": reason}))
    sys.stdout.flush()
