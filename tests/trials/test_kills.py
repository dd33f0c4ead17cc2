"""Sixty kills at random instants of real bisects over SSH: whoever is killed, nothing is left, the host is as before.

The bisects are of the embedded server and really change a setting of the host where this machine lets them. A kill of
the keeper or of the server costs a launch and the bisect goes on; any other ends it, and the next one resumes its case.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from incident_host import KEY, Incident
from ssh_daemon import SSHD, Sshd, key, running
from trials_host import changed, contents_of, scratch_directories

import snapshots
from fingerprint.bisect.journal import Journal
from fingerprint.bisect.run import CHECKED
from fingerprint.capture import capture
from fingerprint.host import BOOT, HostProgram
from fingerprint.targets.local import LocalTarget
from probes.settings import journal_folder

HUP, TERM, KILL = signal.SIGHUP, signal.SIGTERM, signal.SIGKILL
KILLS = (
    [("planner", one) for one in (HUP, TERM, KILL) for _ in range(4)]
    + [("connection", KILL)] * 10
    + [("host program", one) for one in (HUP, TERM, KILL, KILL) for _ in range(3)]
    + [("keeper", one) for one in (HUP, TERM, KILL, KILL, KILL) for _ in range(2)]
    + [("server", one) for one in (HUP, TERM, KILL, KILL, KILL) for _ in range(2)]
    + [("host program and keeper", KILL)] * 6
)
GOES_ON = ("keeper", "server")
SETTING = Path("/proc/sys/kernel/numa_balancing")
SEARCHED = ("variable:TCCL_TRANSPORT", "flag:--decode-log-interval", "tree:README.md", "package:tiny-kernels")
PATIENCE_S = 40.0


@dataclass(frozen=True)
class Alive:
    """One process; its start tells it from a later one of the same number."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Alive | None:
        fields = stat(pid)
        return cls(pid, fields[19]) if fields and fields[0] != "Z" else None

    def is_there(self) -> bool:
        return Alive.of(self.pid) == self


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def below(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *below(int(child))]
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


@dataclass
class Parties:
    """Who takes part in the bisect that runs now."""

    program: int | None = None
    connection: int | None = None
    keeper: int | None = None
    server: list[int] = field(default_factory=list)

    @classmethod
    def now(cls, session: int) -> Parties:
        """Those below the daemon `session` that serves connections."""
        found = cls()
        for pid in below(session):
            words = command(pid)
            if BOOT in words and not words.startswith(("sh ", "bash ", "/bin/")):
                found.program = pid
            elif "probes.keeper" in words:
                found.keeper = pid
        if found.program is not None:
            above = int(stat(found.program)[1] or 0) if stat(found.program) else 0
            found.connection = above or None
        if found.keeper is not None:
            found.server = below(found.keeper)
        return found


class Planners:
    """Bisects, one at a time, that are started again with --resume when they were killed."""

    def __init__(self, process: subprocess.Popen[str], ask: dict[str, Any], folder: Path) -> None:
        self._process = process
        self._ask = ask
        self.folder = folder
        self.cases = 0
        self.changed = 0
        self.pid: int | None = None
        self._resume = False

    def running(self) -> bool:
        if self.pid is not None and self._hears(0.0):
            self._ended()
            self._resume = False  # it came to its end by itself
        return self.pid is not None

    def start(self) -> None:
        if not self._resume:
            self.cases += 1
        case = self.folder / f"case-{self.cases}"
        resume = (case / "journal.jsonl").is_file() and '"event":"case"' in (case / "journal.jsonl").read_text()
        if not resume and case.exists():
            self.cases += 1
            case = self.folder / f"case-{self.cases}"
        self._say({**self._ask, "case": str(case), "resume": resume})
        self.pid = int(self._line()["pid"])

    def finished(self) -> dict[str, list[str]]:
        """The launches that each case has finished, as its journal has them."""
        found: dict[str, list[str]] = {}
        for journal in sorted(self.folder.glob("case-*/journal.jsonl")):
            whole = journal.read_text().split("\n")[:-1]  # the last one may be cut off
            found[journal.parent.name] = [line for line in whole if '"event":"trial"' in line]
        return found

    def await_end(self) -> None:
        """After a kill: the planner ends, and its case is to be resumed."""
        assert self.pid is not None
        assert self._hears(PATIENCE_S), "the planner did not end"
        self._ended()
        self._resume = True

    def _hears(self, wait_s: float) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], wait_s)[0])

    def _ended(self) -> None:
        assert "ended" in self._line()
        self.pid = None

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(self._process.stdout.readline())
        return line

    def _say(self, ask: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(ask) + "\n")
        self._process.stdin.flush()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as daemon:
        yield daemon


@pytest.fixture
def planners(incident: Incident, sshd: Sshd, tmp_path: Path) -> Iterator[Planners]:
    own = key(tmp_path / "own")
    (sshd.place / "authorized").write_text(own.with_suffix(".pub").read_text())
    home = tmp_path / ".ssh"
    home.mkdir(mode=0o700)
    (home / "known_hosts").write_text(sshd.host_key())
    (home / "config").write_text(f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {own}\n")
    old = tmp_path / "old.json"
    sysctls = {**incident.old.host.sysctls, "kernel.numa_balancing": "1"}
    changed = incident.old.host.model_copy(update={"sysctls": sysctls})
    snapshots.save(incident.old.model_copy(update={"host": changed}) if switches() else incident.old, old)
    (tmp_path / "kept").symlink_to(incident.old_path.parent / "kept")
    only = [*SEARCHED, *(["host:kernel.numa_balancing"] if switches() else [])]
    names = {factor.id for factor in incident.found().factors}
    ask = {
        "old": str(old), "new": str(incident.new_path), "target": "box",
        "only": [name for name in only if name in names or name.startswith("host:")],
    }  # fmt: skip
    words = [sys.executable, str(Path(__file__).with_name("planner.py"))]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path), "SSH_AUTH_SOCK": ""},
    ) as process:  # fmt: skip
        made = Planners(process, ask, tmp_path)
        yield made
        if made.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.pid, KILL)
        process.kill()


def switches() -> bool:
    """Whether this machine lets the tests switch the setting."""
    return os.access(SETTING, os.W_OK) and set_to() == "0"


def set_to() -> str:
    try:
        return SETTING.read_text().strip()
    except OSError:  # a kernel without NUMA
        return ""


def identity(host: HostProgram, incident: Incident, sections: list[str]) -> str:
    snapshot = capture(host, {"port": incident.port, "secret_key": KEY, "sections": sections, "verify": False})
    assert snapshot.server.status in {"ok", "partial"}, snapshot.server.reason
    return snapshot.id


def test_whoever_is_killed_whenever_nothing_is_left(planners: Planners, incident: Incident, sshd: Sshd) -> None:
    rng = random.Random(60)
    kills = list(KILLS)
    rng.shuffle(kills)
    assert len(kills) == 60
    daemon = next(pid for pid in below(os.getpid()) if f"-f {sshd.place}/config" in command(pid))
    shared = set(Path("/dev/shm").iterdir())
    at_first, switchable = set_to(), switches()
    folders = {name: contents_of(incident.world.root / name) for name in ("serving", "site")}
    with HostProgram(LocalTarget()) as host:
        quiet = [name for name in CHECKED if name != "packages"]  # hundreds of files: looked at once, at the end
        before, whole = identity(host, incident, quiet), identity(host, incident, list(CHECKED))
        during = identity(host, incident, ["server", "startup", "trees"])
        in_trial = 0
        finished: dict[str, list[str]] = {}
        went_on = 0
        for party, number in kills:
            gone = kill(party, number, planners, daemon, rng)
            in_trial += len(gone) > 1
            await_gone(gone, f"processes after {party} {number}")
            now = planners.finished()
            for case, launches in finished.items():  # resumed, a case goes on behind what it has
                assert now[case][: len(launches)] == launches, f"a launch of {case} was lost after {party} {number}"
                went_on += now[case] != launches
            finished = now
            if party in GOES_ON:
                assert identity(host, incident, ["server", "startup", "trees"]) == during
                continue
            if party == "host program and keeper" or (party == "host program" and len(gone) == 1):
                # Nobody is left who could clean up: the next command does.
                said = host.call("restore", {})["swept"]
                assert not gone or said is not None
            await_that(lambda: not scratch_directories(), f"scratch directories after {party} {number}")
            await_that(lambda: not Path(journal_folder()).exists(), f"a setting is not put back after {party} {number}")
            assert set_to() == at_first
            assert "fingerprint-trial" not in Path("/proc/self/mountinfo").read_text()
            assert not list(Path("/sys/fs/cgroup").glob("*/fingerprint-trial-*"))
            assert set(Path("/dev/shm").iterdir()) == shared
            assert not Parties.now(daemon).program
            assert identity(host, incident, quiet) == before
        assert identity(host, incident, list(CHECKED)) == whole
    assert in_trial > 20  # the others fell between two launches, or while the host was read
    assert not switchable or planners.changed > 5
    assert went_on > 3
    for journal in planners.folder.glob("case-*/journal.jsonl"):
        numbers = [line.number for line in Journal(journal).trials()]
        assert numbers == list(range(1, len(numbers) + 1))
    for name, was in folders.items():
        assert changed(was, contents_of(incident.world.root / name)) == []


def kill(party: str, number: int, planners: Planners, daemon: int, rng: random.Random) -> list[Alive]:
    """Kill a party at a random instant. Returns who has to be gone soon after, and waits for the planner's end."""
    if not planners.running():
        planners.start()
    at = time.monotonic() + rng.uniform(0.0, 1.6)
    until = time.monotonic() + PATIENCE_S
    while True:
        if not planners.running():
            planners.start()
        parties = Parties.now(daemon)
        named: dict[str, list[int | None]] = {
            "planner": [planners.pid],
            "connection": [parties.connection],
            "host program": [parties.program],
            "keeper": [parties.keeper],
            "server": [*(parties.server[:1] if number != KILL else parties.server[-1:])],
            "host program and keeper": [parties.program, parties.keeper],
        }
        victims = named[party]
        if time.monotonic() >= at and victims and None not in victims:
            break
        assert time.monotonic() < until, f"no {party} appeared"
        time.sleep(0.01)
    trial = [parties.keeper, *parties.server] if parties.keeper is not None else []
    everything = [*trial, *([parties.program] if parties.program is not None else [])]
    watched = [Alive.of(pid) for pid in (trial if party in GOES_ON else everything)]
    planners.changed += set_to() == "1"
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim or 0, number)
    if party not in GOES_ON:
        planners.await_end()
    return [one for one in watched if one is not None]


def await_gone(processes: list[Alive], what: str) -> None:
    await_that(lambda: not any(one.is_there() for one in processes), what)


def await_that(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.01)
