"""One server is one environment, whenever it is looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable

from live_server import Live, serving, serving_at

from fingerprint.capture import capture
from fingerprint.diff import compare
from fingerprint.host import HostProgram
from fingerprint.reference.world import World
from fingerprint.targets import parse_target
from snapshots import Snapshot


def seen(live: Live, program: HostProgram) -> Snapshot:
    return capture(program, {"pid": live.process.pid, "secret_key": "11" * 32, "verify": True, "deadline_s": 120.0})


def busy(live: Live, look: Callable[[], Snapshot]) -> Snapshot:
    """What is seen while requests run."""
    enough = threading.Event()

    def load() -> None:
        while not enough.is_set():
            live.generate("Once more", 24)

    worker = threading.Thread(target=load)
    worker.start()
    try:
        return look()
    finally:
        enough.set()
        worker.join()


def test_a_server_has_one_identity_from_its_first_moment_through_load_and_beyond(host: World) -> None:
    with HostProgram(parse_target("local")) as program:
        with serving(host) as live:
            moments = {"before the first request": seen(live, program)}
            live.generate("Hello", 8)
            moments["after the first request"] = seen(live, program)
            moments["under load"] = busy(live, lambda: seen(live, program))
            live.get("/metrics")
            live.get("/server_info")
            moments["idle again"] = seen(live, program)
            port = live.port
        with serving_at(port, host) as again:
            moments["after a restart"] = seen(again, program)
        with serving(host, SSH_CONNECTION="127.0.0.1 1 127.0.0.1 2", LANG="C") as moved:
            moments["on another port, from another session"] = seen(moved, program)
    first = next(iter(moments.values()))
    for moment, snapshot in moments.items():
        assert list(compare(first, snapshot).changes) == [], moment
        assert snapshot.id == first.id, moment
