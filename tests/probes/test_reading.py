"""Reading without trust: every failure is a value, every read has a bound."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from probes import reading
from probes.reading import attempt, read_bytes, read_text, run, unread


def test_how_a_command_ended_is_told_apart() -> None:
    assert (run(["sh", "-c", "echo out"], 10).text(), run(["true"], 10).reason) == ("out\n", None)
    assert run(["sh", "-c", "echo first >&2; echo more >&2; exit 3"], 10).reason == "sh: exit status 3: first"
    assert run(["sh", "-c", "kill -9 $$"], 10).reason == "sh: signal 9"
    assert run(["sleep", "600"], 0.2).reason == "sleep did not finish within 0.2 s and was ended"
    assert run(["/nowhere/tool"], 10).reason == "/nowhere/tool: No such file or directory"


def test_a_command_that_cannot_be_ended_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: spared.append(group))
    done = run(["sleep", "600"], 0.2)
    monkeypatch.undo()
    assert done.reason == "sleep did not finish within 0.2 s and could not be ended and was left alone"
    os.killpg(spared[0], signal.SIGKILL)
    os.waitpid(spared[0], 0)


def test_commands_speak_english_and_know_nothing_of_our_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("GIT_DIR", "/somewhere")
    assert run(["sh", "-c", "echo $LC_ALL$GIT_DIR"], 10).text() == "C\n"


def test_output_without_end_is_cut_and_said_to_be() -> None:
    done = run(["sh", "-c", "yes | head -c 100000"], 10, limit=1000)
    assert len(done.out) == 1000
    assert done.reason == "sh: its output was cut at 1000 bytes"


def test_input_arrives_and_children_of_children_are_ended(tmp_path: Path) -> None:
    assert run(["cat"], 10, stdin=b"whole").out == b"whole"
    run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], 0.5)
    pid = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    for _ in range(1000):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
    else:
        pytest.fail("the child of the child is still running")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r"regular file|directory"):
            read_bytes(path)


def test_large_files_are_read_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    assert len(read_bytes(tmp_path / "large", 3_000_000)) == 3_000_000
    (tmp_path / "odd").write_bytes(b"caf\xe9")
    assert read_text(tmp_path / "odd") == "caf\N{REPLACEMENT CHARACTER}"
    assert read_text("/proc/self/stat")


def test_a_failed_read_is_a_value_with_a_reason() -> None:
    assert attempt(lambda: read_text("/nowhere/file")) == {"unread": "/nowhere/file does not exist"}
    assert attempt(lambda: 1 // 0) == {"unread": "ZeroDivisionError: integer division or modulo by zero"}
    assert attempt(lambda: 7) == 7
    assert unread("why") == {"unread": "why"}
    assert reading.is_unread(unread("why"))
    assert not reading.is_unread({"unread": "why", "and": "more"})
