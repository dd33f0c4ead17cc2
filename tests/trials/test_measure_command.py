"""`fingerprint measure` on a live server."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import self_signed
from incident_host import Incident
from rich.console import Console
from ssh_daemon import SSHD, running
from ssh_daemon import key as create_key

import snapshots
from fingerprint.errors import UsageError
from fingerprint.measure import KEY_VARIABLE, Address, break_even, break_even_of, key_in
from fingerprint.report.measurement import picture, sentences, terminal
from probes import processes
from snapshots import Batch, Measured, Unread


def run(*words: object, key: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fingerprint", "measure", *map(str, words)], capture_output=True, text=True, timeout=120,
        env={**os.environ, **({KEY_VARIABLE: key} if key is not None else {}), **variables},
    )  # fmt: skip


def test_a_measurement_is_shown_and_kept_in_the_snapshot_whose_id_stays(incident: Incident, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    shutil.copy(incident.new_path, path)
    where = f"http://127.0.0.1:{incident.port}"
    done = run(where, "--attach", path, "--concurrency", "2", "--requests", "3", "--baseline-tok-s", "82",
               "--wanted-tok-s", "100", "--format", "json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figures = told["batches"]["1"]["figures"]
    assert all(figures[name] > 0 for name in ("verify_ms", "draft_ms", "extend_ms"))
    host = figures[
        "host_ms"
    ]  # next to nothing with this server: the clocks of stream and timer may leave less than that
    assert host > 0 if isinstance(host, float) else "take longer than the cycle" in host["unread"]
    assert told["batches"]["2"]["figures"]["verify_ms"] > 0
    assert told["source"] == "engine timer"
    assert told["batches"]["1"]["ranks"]["0"]["verify_ms"] == figures["verify_ms"]
    other = told["batches"]["1"]["ranks"]["1"]["verify_ms"]["unread"]
    assert other == "this rank's timer is not exported; --enable-metrics-for-all-schedulers exports it"
    assert told["most_accepted"] == told["break_even"]["most"] == 4
    needed = {one["tokens_per_second"]: one["accept_length"] for one in told["break_even"]["needed"]}
    cycle = figures["cycle_mean_ms"]
    assert needed == pytest.approx({82.0: 0.082 * cycle, 100.0: 0.1 * cycle})
    kept = snapshots.load(path)
    assert kept.id == incident.new.id
    assert kept.measured is not None
    assert kept.measured.model_dump(mode="json") == {
        name: value for name, value in told.items() if name not in {"server", "break_even"}
    }
    drawn = tmp_path / "pictures" / "even.svg"
    shown = run(where, "--requests", "1", "--tokens", "8", "--baseline-tok-s", "82", "--plot", drawn)
    assert shown.returncode == 0, shown.stderr
    assert "wanted: 82.0 tok/s" in drawn.read_text()
    assert shown.stdout.count("rank 1") == 1
    for words in (
        "verify",
        "timer is not exported",
        "draft extend",
        "engine timer",
        "accept length",
        "For 82.0 tok/s it would need",
    ):
        assert words in shown.stdout


def test_a_figure_does_not_get_into_the_snapshot_of_another_server(incident: Incident, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    shutil.copy(incident.new_path, path)
    done = run(f"127.0.0.1:{incident.port + 1}", "--attach", path)
    assert done.returncode == 2
    assert "of another server" in done.stderr
    assert path.read_bytes() == incident.new_path.read_bytes()


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    done = run("http://127.0.0.1:9")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Connection refused" in done.stderr


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:30000", ("127.0.0.1", 30000)),
        ("localhost:30000/", ("localhost", 30000)),
        (":30000", ("127.0.0.1", 30000)),
        ("http://[::1]:30000", ("::1", 30000)),
        ("https://gpu01:8443", ("gpu01", 8443)),
        ("https://gpu01", ("gpu01", 443)),
    ],
)
def test_addresses_are_read_as_they_are_meant(url: str, address: tuple[str, int]) -> None:
    at = Address.of(url)
    assert (at.host, at.port, at.secure) == (*address, url.startswith("https"))


@pytest.mark.parametrize("url", ["", "127.0.0.1", "ftp://127.0.0.1:1", "http://127.0.0.1:99999", "http://h:1/v1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        Address.of(url)


KEY = "sk-only-in-a-variable"


class Proxy(ThreadingHTTPServer):
    """Ends TLS in front of a server on this machine, and lets nobody through without the key."""

    daemon_threads = True

    def __init__(self, port: int, certificate: Path, private: Path) -> None:
        self.behind = port
        self.seen: list[str | None] = []
        self.clients: list[list[str]] = []
        """For each request the command lines of who sent it and of all above."""
        super().__init__(("127.0.0.1", 0), Passes)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, private)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust the certificate, or speaks no TLS, is what some tests are about."""


def _process_at(port: int) -> list[str]:
    """The command lines of the process whose end of a connection this port of loopback is, and of its ancestors."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    [socket] = {f"socket:[{row[9]}]" for row in rows if row[1] == f"0100007F:{port:04X}" and row[9] != "0"}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(str(entry.readlink()) == socket for entry in folder.iterdir()):
                return _upwards(int(folder.parent.name))
    return []


def _upwards(pid: int) -> list[str]:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    above = processes.stat(pid).parent
    return [words, *(_upwards(above) if above else [])]


class Passes(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.server.seen.append(self.headers["Authorization"])
        self.server.clients.append(_process_at(self.client_address[1]))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.send_error(401)
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.request(self.command, self.path, body or None)
        with behind.getresponse() as answer:
            self.send_response(answer.status)
            self.end_headers()
            while piece := answer.read1(1 << 16):
                self.wfile.write(piece)
        behind.close()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def proxy(incident: Incident, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    certificate, private = self_signed(tmp_path_factory.mktemp("tls"), "gpu01.example")
    server = Proxy(incident.port, certificate, private)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_server_behind_tls_is_measured_with_the_key_that_a_variable_holds(proxy: Proxy) -> None:
    done = run(
        f"https://127.0.0.1:{proxy.server_port}", "--requests", "1", "--tokens", "8", "--format", "json", key=KEY
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source"] == "engine timer"
    assert KEY not in done.stdout + done.stderr


@pytest.mark.skipif(SSHD is None, reason="needs openssh-server")
def test_the_client_runs_on_the_host_and_not_across_ssh(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "sshd").mkdir()
    (tmp_path / ".ssh").mkdir(mode=0o700)
    with running(tmp_path / "sshd") as sshd:
        mine = create_key(tmp_path / ".ssh" / "id_ed25519")
        (tmp_path / "sshd" / "authorized").write_text(mine.with_suffix(".pub").read_text())
        (tmp_path / ".ssh" / "known_hosts").write_text(sshd.host_key())
        proxy.clients.clear()
        done = run(
            f"https://127.0.0.1:{proxy.server_port}", "--target", f"ssh://{sshd.user}@127.0.0.1:{sshd.port}",
            "--requests", "2", "--tokens", "4", key=KEY, HOME=str(tmp_path),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(proxy.clients) >= 6  # warm-up, requests, counters
    for sender, *above in proxy.clients:
        assert "fingerprint measure" not in sender
        assert any(words.startswith("sshd") or "/sshd" in words for words in above)
        assert not any("fingerprint measure" in words for words in above)


@pytest.mark.parametrize("key", [None, "sk-another"])
def test_a_server_that_wants_another_key_says_how_to_give_it(proxy: Proxy, key: str | None) -> None:
    done = run(f"https://127.0.0.1:{proxy.server_port}", key=key)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "answered 401" in done.stderr
    assert KEY_VARIABLE in done.stderr
    assert "sk-another" not in done.stderr


def test_elsewhere_than_at_our_own_address_a_certificate_must_be_valid_before_anything_is_sent(proxy: Proxy) -> None:
    proxy.seen.clear()
    done = run(f"https://0.0.0.0:{proxy.server_port}", key=KEY)  # reaches this machine, and is no address of it
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "certificate" in done.stderr
    assert proxy.seen == []


def test_a_server_behind_tls_that_is_asked_without_is_one_sentence(proxy: Proxy) -> None:
    done = run(f"http://127.0.0.1:{proxy.server_port}", key=KEY)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["https://user:secret@h:1", "http://secret@127.0.0.1:1"])
def test_a_password_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match=KEY_VARIABLE) as refused:
        Address.of(url)
    assert "secret" not in str(refused.value)


def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="what no key can be") as refused:
        key_in({KEY_VARIABLE: "sk-1\nX-Other: 1"})
    assert "sk-1" not in str(refused.value)
    assert key_in({KEY_VARIABLE: f" {KEY}\n"}) == KEY
    assert key_in({}) is None


def test_the_break_even_of_the_story() -> None:
    even = break_even(30.0, 2.0, (82.0, 100.0))
    assert even.tokens_per_second == pytest.approx(66.67, abs=0.01)
    assert even.needed == pytest.approx({82.0: 2.46, 100.0: 3.0})


def test_the_break_even_of_the_story_as_a_picture() -> None:
    drawn = ET.fromstring(picture("http://<host>:1", break_even(30.0, 2.0, (82.0, 100.0))))
    texts = ["".join(element.itertext()) for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for words in ("wanted: 82.0 tok/s", "wanted: 100 tok/s", "break-even 2.46", "break-even 3.00", "http://<host>:1"):
        assert words in texts
    assert any("30.0 ms a cycle" in text for text in texts)


def test_a_picture_of_no_speed_or_in_no_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    for words, said in (
        (("--plot", tmp_path / "even.svg"), "name one: --baseline-tok-s or --wanted-tok-s"),
        (("--plot", tmp_path, "--wanted-tok-s", "100"), "is a folder"),
    ):
        done = run("http://127.0.0.1:1", *words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert said in done.stderr


def test_an_accept_length_that_no_cycle_can_have_is_said_to_be_out_of_reach() -> None:
    near, far = sentences(break_even(30.0, 2.0, (82.0, 200.0), most=3))[1:]
    assert near == "For 82.0 tok/s it would need an accept length of 2.46."
    assert far.endswith("of 6.00, and a cycle with 2 draft steps gains 3 tokens at most.")
    assert sentences(break_even(30.0, 2.0, (200.0,)))[1].endswith("of 6.00.")


def test_a_server_that_does_not_speculate_says_what_its_speed_is_good_for() -> None:
    said = "the server does not speculate"
    figures = {"cycle_mean_ms": 12.0, "accept_length": Unread(unread=said)}
    measured = Measured(
        metric="cycle_ms", value=12.0, source="stream", tokens_per_second=82.0, requests=1, max_new_tokens=8,
        batches={"1": Batch(figures=figures)},
    )  # fmt: skip
    even = break_even_of(measured, (100.0,))
    assert even == Unread(unread=said)
    shown = Console(width=200)
    with shown.capture() as text:
        shown.print(terminal("here", measured, even, asked=True))
    assert f"There is no break-even: {said}. Its 82.0 tok/s are what --baseline-tok-s takes" in text.get()
    with shown.capture() as text:
        shown.print(terminal("here", measured, even, asked=False))
    assert "break-even" not in text.get()
