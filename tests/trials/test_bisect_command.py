"""`fingerprint bisect` as a user runs it: a real incident, a real server, and everything that can go wrong."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from incident_host import Incident, changed_host, read, seed_of
from trials_host import contents_of, named, processes_of, scratch_directories

import snapshots
from fingerprint.bisect.journal import Journal

CULPRIT = "variable:TCCL_TRANSPORT"
SEARCHED = (CULPRIT, "flag:--decode-log-interval", "tree:README.md")


@pytest.fixture(scope="module")
def slow(incident: Incident, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """A host with the slower all-reduce, which takes about twice the time."""
    models = incident.world.root / "models"
    with changed_host(tmp_path_factory.mktemp("slow"), seed_of(CULPRIT), models) as slow:
        yield slow


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "fingerprint", *map(str, words)]


def bisect_words(slow: Incident, case: Path, *more: object) -> list[str]:
    only = [word for name in SEARCHED for word in ("--only", name)]
    return command("bisect", slow.old_path, slow.new_path, "--case", case, *only, *more)


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=400)


def test_the_culprit_is_named_and_the_host_is_as_before(slow: Incident, tmp_path: Path) -> None:
    before = contents_of(slow.world.root / "serving")
    processes = processes_of(str(slow.world.root))
    case = named(lambda case: run(bisect_words(slow, case)), tmp_path, CULPRIT)
    verdict = json.loads((case / "verdict.json").read_text())
    assert verdict["host_differences"] == []
    assert verdict["host_before"] == verdict["host_after"]
    assert "TCCL_TRANSPORT" in run(command("report", case)).stdout
    assert all((case / name).is_file() for name in ("old.json", "new.json", "report.md", "report.html"))
    assert len(Journal(case / "journal.jsonl").trials()) == verdict["launches"]
    assert contents_of(slow.world.root / "serving") == before
    assert processes_of(str(slow.world.root)) == processes
    assert scratch_directories() == set()
    again = run(bisect_words(slow, case))
    assert again.returncode == 2
    assert "already holds a case" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_at_any_moment_nothing_is_left_and_the_case_can_be_resumed(
    slow: Incident, tmp_path: Path, number: signal.Signals
) -> None:
    case = tmp_path / "case"
    processes = processes_of(str(slow.world.root))
    planner = subprocess.Popen(bisect_words(slow, case), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(random.Random(number).uniform(1.0, 6.0))
    planner.send_signal(number)
    _out, complaint = planner.communicate(timeout=60)
    if planner.returncode != 1:  # it may have come to its end first
        expected = {signal.SIGINT: 130, signal.SIGTERM: 143}
        assert planner.returncode == expected[number], complaint
        assert "Traceback" not in complaint
    _await_quiet(slow, processes)
    if (case / "journal.jsonl").is_file() and planner.returncode != 1:
        launched = [line.number for line in Journal(case / "journal.jsonl").trials()]
        done = run(bisect_words(slow, case, "--resume"))
        assert done.returncode in {0, 1}, done.stderr  # what it finds is another test's question
        numbers = [line.number for line in Journal(case / "journal.jsonl").trials()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers[: len(launched)] == launched


def _await_quiet(slow: Incident, processes: set[int]) -> None:
    ended = time.monotonic() + 30
    while time.monotonic() < ended and (processes_of(str(slow.world.root)) - processes or scratch_directories()):
        time.sleep(0.1)
    assert processes_of(str(slow.world.root)) == processes
    assert scratch_directories() == set()


def test_a_host_that_is_not_what_the_new_snapshot_says_is_refused(slow: Incident, tmp_path: Path) -> None:
    readme = slow.world.root / "serving" / "README.md"
    before = readme.read_bytes()
    readme.write_bytes(before + b"\nedited since\n")
    try:
        done = run(bisect_words(slow, tmp_path / "case"))
    finally:
        readme.write_bytes(before)
    assert done.returncode == 2
    assert "not what the new snapshot says" in done.stderr
    assert "README.md" in done.stderr
    assert not (tmp_path / "case" / "journal.jsonl").exists()


def test_snapshots_that_are_none_are_refused_in_a_sentence(slow: Incident, tmp_path: Path) -> None:
    text = slow.old_path.read_text()
    newer = text.replace('"schema": 1', '"schema": 99', 1)
    files = {
        "cut.json": (text[: len(text) // 2], "cut off or damaged"),
        "foreign.json": ('{"name": "something else"}', "not a snapshot"),
        "words.json": ("hello", "not a snapshot"),
        "newer.json": (newer, "newer version"),
        "edited.json": (
            text.replace("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTION5"),
            "does not match its own digest",
        ),
    }
    for name, (content, words) in files.items():
        (tmp_path / name).write_text(content)
        done = run(command("bisect", tmp_path / name, slow.new_path, "--case", tmp_path / "case"))
        assert done.returncode == 2, name
        assert words in done.stderr, name
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    missing = run(command("bisect", tmp_path / "missing.json", slow.new_path, "--case", tmp_path / "case"))
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr
    assert not (tmp_path / "case").exists()


def test_a_factor_that_does_not_exist_is_named(slow: Incident, tmp_path: Path) -> None:
    words = command("bisect", slow.old_path, slow.new_path, "--case", tmp_path / "case", "--only", "variable:NOPE")
    done = run(words)
    assert done.returncode == 2
    assert "variable:NOPE" in done.stderr


def test_snapshots_of_two_hosts_are_not_bisected(slow: Incident, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    host = slow.old.host.model_copy(update={"name": "gpu-99"})
    snapshots.save(slow.old.model_copy(update={"host": host}), elsewhere)
    done = run(command("bisect", elsewhere, slow.new_path, "--case", tmp_path / "case"))
    assert done.returncode == 2
    assert "of another host (gpu-99)" in done.stderr
    assert not (tmp_path / "case").exists()


def test_what_the_user_sets_is_in_every_launch_and_no_factor(slow: Incident, tmp_path: Path) -> None:
    words = command(
        "bisect", slow.old_path, slow.new_path, "--case", tmp_path / "case", "--only", "tree:README.md",
        "--budget", "2", "--variable", "TINY_MARK=chosen", "--flag", "--decode-log-interval=7", "--quiet",
    )  # fmt: skip
    planner = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen: set[str] = set()
    while planner.poll() is None:
        for pid in processes_of("TINY_MARK=chosen") - {planner.pid}:
            with contextlib.suppress(OSError):
                seen.add(Path(f"/proc/{pid}/cmdline").read_text())
        time.sleep(0.02)
    _out, complaint = planner.communicate(timeout=60)
    assert planner.returncode in {0, 1}, complaint
    assert complaint == ""
    assert any("--decode-log-interval\x007\x00" in line for line in seen)
    assert len(Journal(tmp_path / "case" / "journal.jsonl").trials()) == 2


def test_a_setting_without_a_value_is_refused(slow: Incident) -> None:
    done = run(command("bisect", slow.old_path, slow.new_path, "--variable", "NOVALUE"))
    assert done.returncode == 2
    assert "NOVALUE gives no value" in done.stderr


def test_a_launch_in_a_file_is_searched_where_no_server_was_captured(slow: Incident, tmp_path: Path) -> None:
    new, start, case = tmp_path / "new.json", tmp_path / "start.sh", tmp_path / "case"
    assert read(new, 1, python=str(slow.world.python)).server.processes == {}  # nothing serves on that port
    launch = slow.world.launch(slow.port)
    settings = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in launch.variables.items())
    start.write_text(f"#!/bin/sh\n{settings}\ncd {launch.cwd}\nexec {shlex.join(launch.argv)}\n")
    words = command("bisect", slow.old_path, new, "--case", case, "--only", CULPRIT, "--budget", "2", "--quiet")
    refused = run(words)
    assert refused.returncode == 2
    assert "holds no live server" in refused.stderr
    done = run([*words, "--launch", str(start)])
    assert done.returncode in {0, 1}, done.stderr
    assert [trial.status for trial in Journal(case / "journal.jsonl").trials()] == ["measured"] * 2
    kept = snapshots.load(case / "new.json").server
    assert kept.processes["launcher"].argv == list(launch.argv)
    assert kept.reason == "launched as start.sh says"
