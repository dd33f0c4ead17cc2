"""Processes as those see them that end them: what lives below a process, who it is for certain, and how it goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import List

from probes import reading

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set one property of this process; failure is not worth a word, the caller has a second line of defence."""
    _libc.prctl(option, value, 0, 0, 0)


def children(pid: int) -> List[int]:
    """The direct children of a process."""
    found: List[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found.extend(int(child) for child in reading.read_text(f"/proc/{pid}/task/{task}/children").split())
    return found


def descendants(pid: int) -> List[int]:
    """Every process below `pid`, parents before their children."""
    found: List[int] = []
    waiting = [pid]
    while waiting:
        below = [child for child in children(waiting.pop()) if child not in found]
        found.extend(below)
        waiting.extend(below)
    return found


def started(pid: int) -> str:
    """When a process started, in clock ticks since boot: with the pid, a name that is never used twice."""
    try:
        return reading.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def lives(pid: int, start: str) -> bool:
    """Whether the process of this number and start still runs."""
    return bool(start) and started(pid) == start and not is_zombie(pid)


def end(pids: List[int], grace_s: float, patience_s: float = 20.0) -> List[int]:
    """End processes: SIGTERM to the first, SIGKILL to all that remain after `grace_s`. Returns those that would not."""
    identity = {pid: started(pid) for pid in pids}

    def alive() -> List[int]:
        reap()
        return [pid for pid in pids if identity[pid] and started(pid) == identity[pid] and not is_zombie(pid)]

    if pids and grace_s > 0:
        with contextlib.suppress(OSError):
            os.kill(pids[0], signal.SIGTERM)
        until = time.monotonic() + grace_s
        while alive() and time.monotonic() < until:
            time.sleep(0.005)
    until = time.monotonic() + patience_s
    while alive() and time.monotonic() < until:
        for pid in alive():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return alive()


def is_zombie(pid: int) -> bool:
    """Whether a process has ended, whether or not somebody asked for its exit status."""
    try:
        return reading.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def reap() -> None:
    """Take note of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
