"""Servers that share GPUs take turns: each waits, before it touches them, until no other is there, and keeps them.

`benchmarks.gpu_acceptance` puts this file into the served tree. Locks of files are given up by the kernel when the
process that holds them ends, whatever ends it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

LONGEST_S = 900.0


def wait(rank: int) -> None:
    """Return when it is this server's turn on all of its GPUs, which are those of CUDA_VISIBLE_DEVICES.

    Raises:
        TimeoutError: the others took longer than LONGEST_S.
    """
    named = os.environ.get("ACCEPTANCE_TURNS")
    if named is None:
        return
    folder = Path(named)
    until = time.monotonic() + LONGEST_S
    taken = folder / f"server-{os.getppid()}"
    if rank > 0:  # all ranks have the launcher as their parent, and the first one waits for all
        _until(taken.exists, until)
        return
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    files = [os.open(folder / f"gpu-{gpu}", os.O_RDWR | os.O_CREAT) for gpu in gpus]
    _until(functools.partial(_locked, files), until)
    taken.touch()


def _until(done: Callable[[], bool], until: float) -> None:
    while not done():
        if time.monotonic() > until:
            raise TimeoutError("the other servers keep the GPUs for too long")
        time.sleep(0.02)


def _locked(files: list[int]) -> bool:
    """Take all or none: a GPU that is held while another is waited for works for nobody."""
    try:
        for file in files:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        for file in files:
            fcntl.flock(file, fcntl.LOCK_UN)
        return False
    return True
