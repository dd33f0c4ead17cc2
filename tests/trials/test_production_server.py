"""The production server is stopped for the trials and started again, whatever ends them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from incident_host import Incident, changed_host
from trials_host import processes_of, scratch_directories

from probes.settings import journal_folder, listens


@pytest.fixture
def stoppable(incident: Incident, tmp_path: Path) -> Iterator[Incident]:
    """A live server of its own that may be stopped."""
    with changed_host(tmp_path / "own", seed=1, models=incident.world.root / "models") as own:
        yield own
        for pid in processes_of(str(own.world.root)):
            if f"--port\0{own.port}".encode() in _words(pid):
                os.kill(pid, signal.SIGTERM)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def command(own: Incident, case: Path) -> list[str]:
    launch = own.world.launch(own.port)
    variables = [f"{name}={value}" for name, value in launch.variables.items()]
    start = shlex.join(["env", "-i", *variables, *launch.argv])
    return [
        sys.executable, "-m", "fingerprint", "bisect", str(own.old_path), str(own.new_path), "--case", str(case),
        "--only", "tree:README.md", "--budget", "2", "--quiet",
        "--stop-command", f"kill {own.pid}", "--start-command", start,
    ]  # fmt: skip


def test_the_production_server_is_down_for_the_trials_and_up_afterwards(stoppable: Incident, tmp_path: Path) -> None:
    bisect = subprocess.Popen(command(stoppable, tmp_path / "case"), stderr=subprocess.PIPE, text=True)
    down = False
    while bisect.poll() is None:
        down = down or not listens(stoppable.port)
        time.sleep(0.02)
    _out, complaint = bisect.communicate()
    assert bisect.returncode in {0, 1}, complaint
    assert down
    assert listens(stoppable.port)
    assert not Path(journal_folder()).exists()
    verdict = json.loads((tmp_path / "case" / "verdict.json").read_text())
    assert verdict["host_differences"] == []


def test_a_killed_bisect_leaves_the_production_server_running(stoppable: Incident, tmp_path: Path) -> None:
    bisect = subprocess.Popen(command(stoppable, tmp_path / "case"), stderr=subprocess.DEVNULL)
    while listens(stoppable.port):
        assert bisect.poll() is None
        time.sleep(0.01)
    bisect.kill()
    bisect.wait()
    until = time.monotonic() + 60
    while not listens(stoppable.port) or scratch_directories() or Path(journal_folder()).exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_half_of_the_two_commands_is_refused(incident: Incident, tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "fingerprint", "bisect", str(incident.old_path), str(incident.new_path),
        "--case", str(tmp_path / "case"), "--stop-command", "true",
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "go together" in done.stderr
    assert not (tmp_path / "case").exists()
