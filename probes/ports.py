"""A port for a server that is about to start."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port of loopback that is free now, below the range that the kernel hands out to connections.

    Engines derive further ports from theirs (SGLang 0.5.14 adds 10000 for gRPC), so it must not be a high one.

    Raises:
        OSError: there is none.
    """
    for _ in range(200):
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port between 20000 and 32000 is free on this host")
