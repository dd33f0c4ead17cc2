"""Exchange between the two ranks of one host, over shared memory or TCP.

The transport is chosen by TCCL_TRANSPORT (`shm`, the default, or `tcp`); each rank reads it itself. TCCL_DEBUG=INFO
says on standard error what was chosen.
"""

import os
import sys
from multiprocessing.connection import Connection

from tiny_collective.shm import SharedMemoryTransport
from tiny_collective.tcp import TcpTransport

__all__ = ["SharedMemoryTransport", "TcpTransport", "connect"]


def connect(rank: int, bootstrap: Connection) -> SharedMemoryTransport | TcpTransport:
    """Meet the other rank, whose end of the pipe `bootstrap` is, and agree on a transport."""
    name = os.environ.get("TCCL_TRANSPORT", "shm")
    if name not in ("shm", "tcp"):
        raise ValueError(f"TCCL_TRANSPORT={name} is no transport: use shm or tcp")
    bootstrap.send(name)
    if (other := bootstrap.recv()) != name:
        raise ValueError(f"rank {rank} was told TCCL_TRANSPORT={name}, its peer {other}")
    if os.environ.get("TCCL_DEBUG", "").upper() == "INFO":
        sys.stderr.write(f"TCCL INFO rank {rank}: using transport {name}\n")
    return SharedMemoryTransport(rank, bootstrap) if name == "shm" else TcpTransport(rank, bootstrap)
