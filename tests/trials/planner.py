"""Plans bisects one after the other, each in a process of its own, forked from this one that has everything loaded.

A line of standard input is one bisect; a line of standard output says the pid of its planner, the next how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from incident_host import BRIEF, KEY

import snapshots
from fingerprint import cli
from fingerprint.bisect.journal import FigureLine, OpenLine, TrialLine
from fingerprint.bisect.run import Options, bisect
from fingerprint.bisect.search import Search
from fingerprint.errors import FingerprintError
from fingerprint.host import HostProgram
from fingerprint.targets import parse_target


class Nobody:
    def launching(self, number: int, new: frozenset[str], search: Search) -> None: ...
    def stage(self, number: int, stage: str) -> None: ...
    def launched(self, line: TrialLine, search: Search) -> None: ...
    def comparing(self, line: FigureLine, search: Search) -> None: ...
    def opening(self, line: OpenLine) -> None: ...


def plan(ask: dict[str, Any]) -> int:
    """One bisect, as the command runs it, with a measurement just long enough to have a figure."""
    signal.signal(signal.SIGTERM, cli._terminate)
    signal.signal(signal.SIGHUP, cli._terminate)
    old, new = (snapshots.load(Path(ask[name])) for name in ("old", "new"))
    options = Options(
        folder=Path(ask["case"]),
        only=frozenset(ask["only"]),
        engine=BRIEF,
        secret_key=KEY,
        resume=ask["resume"],
        open=False,
        allow_host_changes=True,
    )
    try:
        with HostProgram(parse_target(ask["target"]), sys.executable) as host:
            bisect(host, old, new, Path(ask["old"]), options, Nobody())
    except FingerprintError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except SystemExit as end:
        return int(str(end.code))
    return 0


def main() -> None:
    """Fork a planner for every line."""
    parse_target("loaded-now")  # so that no planner has to load it
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(plan(json.loads(line)))
        print(json.dumps({"pid": child}), flush=True)
        _pid, status = os.waitpid(child, 0)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
