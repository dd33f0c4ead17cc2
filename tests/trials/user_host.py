"""A changed host that belongs to whoever runs this: says where it is, and serves until standard input ends.

Its server has one processor for two ranks, a niceness and a limit of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from incident_host import changed_host


def main() -> None:
    """The arguments are the folder for the host and one with its models."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.nice(3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with changed_host(Path(sys.argv[1]), seed=1, models=Path(sys.argv[2])) as incident:
        print(json.dumps({"pid": incident.pid, "port": incident.port}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
