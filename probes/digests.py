"""Digests of very many files, on two threads, without holding any of them in memory.

Small files cost Python's time, large ones the processor's hashing time, which runs outside Python's lock. So the files
are ordered by size and the two threads start at opposite ends: one is busy with many small ones while the other hashes
the large ones, and they meet in the middle.
"""

from __future__ import annotations

import collections
import hashlib
import os
import stat
import threading
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

_CHUNK = 1 << 18
"""Read at once into one buffer of each thread: what is hashed is still in the processor's cache."""


class Job(NamedTuple):
    """A file to digest."""

    size: int
    path: str
    algorithm: str


Answer = Union[Tuple[str, int], OSError]
"""Digest in hexadecimal and size, or why it cannot be read."""


def of_file(path: str, algorithm: str = "sha256", buffer: Optional[memoryview] = None) -> Tuple[str, int]:
    """Digest and size of a regular file, read through `buffer` where one is given.

    Raises:
        OSError: it cannot be read, or is none.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("not a regular file")
        digest = getattr(hashlib, algorithm)()
        view = buffer if buffer is not None else memoryview(bytearray(_CHUNK))
        size = 0
        while True:
            got = os.readv(handle, [view])
            digest.update(view[:got])
            size += got
            if not got or size == about.st_size:
                return digest.hexdigest(), size
    finally:
        os.close(handle)


def of_files(jobs: List[Job], threads: int = 2) -> Dict[str, Answer]:
    """Path -> digest and size, or the reason."""
    waiting: Deque[Job] = collections.deque(sorted(jobs))
    found: Dict[str, Answer] = {}

    def work(take: Callable[[], Job]) -> None:
        buffer = memoryview(bytearray(_CHUNK))
        while True:
            try:
                job = take()
            except IndexError:
                return
            try:
                found[job.path] = of_file(job.path, job.algorithm, buffer)
            except OSError as error:
                found[job.path] = error

    ends = [waiting.pop if number == 0 else waiting.popleft for number in range(threads)]
    workers = [threading.Thread(target=work, args=(take,), daemon=True) for take in ends]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found
