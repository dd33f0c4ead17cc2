"""Servers that speak TLS and want to see a key: captured, tried and waited for like any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import self_signed
from incident_host import BRIEF, KEY, Incident, read

import snapshots
from fingerprint.bisect.run import _start_server
from fingerprint.engines import SGLANG
from fingerprint.errors import HostProgramError
from fingerprint.factors import plan_of
from fingerprint.history import History, log
from fingerprint.host import HostProgram
from fingerprint.measure import KEY_VARIABLE, Address, measure
from probes.measure import Server
from probes.ports import free_port
from probes.trial import _is_ready
from snapshots import Snapshot

SECRET = "sk-of-the-operations-team-0123456789"


@pytest.fixture(scope="module")
def guarded(incident: Incident, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Snapshot, int]]:
    """The snapshot of a live server with a key and a certificate that names no address of it; and its pid."""
    folder, port = tmp_path_factory.mktemp("guarded"), free_port()
    cert, private = self_signed(folder, "gpu01.example")
    flags = ("--ssl-certfile", str(cert), "--ssl-keyfile", str(private), "--api-key", SECRET)
    launch = incident.world.launch(port)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*launch.argv, *flags], cwd=launch.cwd, env=launch.variables, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while not _is_ready(Server(port, secure=True), ["/ready"]):
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        yield read(folder / "new.json", port), server.pid
    finally:
        incident.world.stop(server)


def test_a_launch_with_a_certificate_and_a_key_is_tried_over_tls_with_that_key(
    guarded: tuple[Snapshot, int], host: HostProgram
) -> None:
    snapshot, pid = guarded
    assert (snapshot.server.url or "").startswith("https://127.0.0.1:")
    assert isinstance(snapshot.server.arguments, dict)
    assert SECRET not in snapshot.model_dump_json()
    plan = plan_of(snapshot)
    BRIEF.adopt(plan)
    host.call("prepare", {"pid": pid, "secret_key": KEY})
    answer = host.call("try", BRIEF.trial(plan))
    assert answer["figures"]["sources"]["verify_ms"] == "engine timer"
    assert answer["figures"]["verify_ms"] > 0
    assert "/server_info" not in answer["facts"]
    assert answer["facts"]["/server_info attention_backend"] == "fused"
    assert SECRET not in json.dumps(answer)
    figures = measure(host, snapshot)
    assert figures.source == "engine timer"


class Page(BaseHTTPRequestHandler):
    """Answers each page of `statuses` with its status, any other one with 404."""

    server: Serving

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(self.server.statuses.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Serving(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, statuses: dict[str, int]) -> None:
        self.statuses = statuses
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Page)


@contextmanager
def answering(statuses: dict[str, int]) -> Iterator[Serving]:
    with Serving(statuses) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("ready", "generates", "wanted", "asked"),
    [
        (200, 200, True, 1),  # today's
        (503, 200, False, 1),
        (404, 200, True, 2),  # an older one, without the page
        (404, 503, False, 2),
        (401, 200, True, 2),  # the same, behind its key
        (401, 503, False, 2),
        (401, 401, False, 2),
    ],
)
def test_a_server_is_ready_when_the_first_page_that_it_has_says_so(
    ready: int, generates: int, wanted: bool, asked: int
) -> None:
    with answering({"/ready": ready, "/health_generate": generates}) as server:
        assert _is_ready(Server(server.server_port), list(SGLANG.ready_paths)) == wanted
    assert server.asked == list(SGLANG.ready_paths)[:asked]


def test_a_server_that_does_not_listen_is_not_ready() -> None:
    assert not _is_ready(Server(free_port()), list(SGLANG.ready_paths))


def test_an_older_production_server_with_a_key_is_waited_for_where_it_listens(
    guarded: tuple[Snapshot, int], host: HostProgram
) -> None:
    snapshot, _pid = guarded
    _start_server(host, snapshot, SGLANG)  # over TLS
    with answering({"/ready": 401, "/health_generate": 200}) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        there = snapshot.model_copy(update={"server": snapshot.server.model_copy(update={"url": url})})
        _start_server(host, there, SGLANG)
        nowhere = snapshot.model_copy(
            update={"server": snapshot.server.model_copy(update={"url": url.replace("127.0.0.1", "127.0.0.9")})}
        )
        with pytest.raises(HostProgramError, match="does not answer"):
            _start_server(host, nowhere, replace(SGLANG, ready_s=0.1))


def run(folder: Path, *words: object) -> tuple[int, str]:
    """A command of somebody who has a wrong key, and the one line that it complains with."""
    done = subprocess.run(
        [sys.executable, "-m", "fingerprint", *map(str, words)], capture_output=True, text=True, cwd=folder,
        env={**os.environ, KEY_VARIABLE: "sk-wrong", "FINGERPRINT_HISTORY": str(folder / "history")},
    )  # fmt: skip
    [line] = done.stderr.splitlines()
    return done.returncode, line


def test_what_was_captured_is_kept_when_the_server_cannot_be_measured(
    guarded: tuple[Snapshot, int], tmp_path: Path
) -> None:
    snapshot, _pid = guarded
    port = Address.of(snapshot.server.url or "").port
    status, line = run(tmp_path, "capture", "--port", port, "--measure", "--no-verify", "-q", "-o", "now.json")
    assert status == 2
    assert "answered 401" in line
    assert "now.json is without figures" in line
    kept = snapshots.load(tmp_path / "now.json")
    assert kept.measured is None
    assert kept.server.url == snapshot.server.url
    status, line = run(tmp_path, "record", "--port", port, "-q")
    assert status == 2
    assert "recorded without figures" in line
    assert "--no-measure" in line
    assert len(list((tmp_path / "history").rglob("*.json*"))) > 0
    [recorded] = log(History(tmp_path / "history"), None, 5)
    assert recorded.record.measured is None


def test_an_address_that_is_meant_otherwise_is_told_how(guarded: tuple[Snapshot, int], tmp_path: Path) -> None:
    port = Address.of(guarded[0].server.url or "").port
    status, line = run(tmp_path, "measure", f"http://127.0.0.1:{port}")
    assert status == 2
    assert line.startswith(f"fingerprint: http://127.0.0.1:{port} on local cannot be measured: ")
    assert line.endswith("it speaks TLS, write https://.")
    status, line = run(tmp_path, "measure", f":{free_port()}")
    assert status == 2
    assert "Connection refused; nothing listens there, and a server of this host is on port " in line
    assert str(port) in line
