"""The command itself: quick to start, clear when wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fingerprint import cli, commands
from snapshots import load

COMMANDS = (
    "capture",
    "import",
    "measure",
    "diff",
    "check",
    "show",
    "validate",
    "bisect",
    "report",
    "verify",
    "attach",
    "record",
    "log",
    "restore",
    "demo",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fingerprint", *words], capture_output=True, text=True, timeout=60)


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f" {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_what_takes_long_to_import_is_not_imported_for_help() -> None:
    heavy = ("scipy", "numpy", "paramiko", "git", "jinja2", "pydantic")
    code = f"import fingerprint.commands, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("diff", "missing.json", "missing.json"), "missing.json does not exist"),
        (("report", "missing"), "missing holds no case"),
        (("capture", "host with blanks"), "host with blanks"),
        (("capture", "-o", "/dev/null/x.json"), "/dev/null/x.json cannot be written"),
        (("import", "/dev/null", "-o", "/dev"), "/dev/null"),
        (("demo", "--scenario", "nope", "--out", "never-made"), "nope is no scenario"),
        (("diff", "--format", "xml", "a", "b"), "--format xml is not known"),
        (("diff", "a", "b", "c", "--explain", "x"), "--explain is about two snapshots"),
        (("diff", "a", "b", "a"), "a is named twice"),
    ],
)
def test_trouble_is_one_sentence_and_exit_code_2(words: tuple[str, ...], complaint: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_several_targets_make_one_file_each_and_one_that_fails_is_told_at_the_end(tmp_path: Path) -> None:
    targets = ("via:env A=1", "via:env A=2", "via:env A=1", "via:false")  # two look alike as file names, one is dead
    done = run("capture", *targets, "-o", str(tmp_path), "--section", "host")
    assert done.returncode == 2
    (complaint,) = (line for line in done.stderr.splitlines() if line.startswith("fingerprint:"))
    assert complaint.startswith("fingerprint: via:false: the program on the host ended")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert {load(path).target for path in files} == {"via:env A=1", "via:env A=2"}
    assert {load(path).host.status for path in files} <= {"ok", "partial"}
    assert all(str(path) in done.stderr for path in files)


def test_a_folder_that_exists_gets_the_file_under_its_target_s_name(tmp_path: Path) -> None:
    assert run("capture", "-q", "-o", str(tmp_path), "--section", "host").returncode == 0
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("local-")
    assert load(path).target == "local"


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ("capture", True),
        ("capture local -o x", True),
        ("capture -o x", True),
        ("capture -o x --since @last", True),
        ("capture gpu01 -o x", False),
        ("capture -o x root@gpu01", False),
        ("capture -o x docker:server", False),
        ("capture local --sudo", False),
        ("capture --host-python=/usr/bin/python3", False),
        ("capture -h", False),
        ("measure local", False),
        ("", False),
    ],
)
def test_what_plainly_captures_this_machine_begins_before_its_options_are_read(words: str, *, begins: bool) -> None:
    with cli._ahead(words.split()) as program:
        assert (program is not None) == begins


def test_the_program_that_was_started_ahead_is_the_one_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cli._ahead(["capture"]) as program:
        monkeypatch.setattr("fingerprint.host.HostProgram", None)  # no other one can be started
        commands.app(
            ["capture", "-q", "-o", str(tmp_path / "x.json"), "--section", "host"], obj=program, standalone_mode=False
        )
    assert load(tmp_path / "x.json").host.status in {"ok", "partial"}


def test_a_program_that_was_started_ahead_in_vain_does_no_harm(tmp_path: Path) -> None:
    done = run("capture", "-q", "-o", str(tmp_path / "x.json"), "--section", "host", "host with blanks")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fingerprint: host with blanks")
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_was_named_and_is_not_there_is_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = run("capture", "-q", "-o", str(tmp_path / "x.json"), "--no-verify", "--pid", str(gone.pid))
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert f"there is no process {gone.pid}" in sentence
    assert load(tmp_path / "x.json").host.status in {"ok", "partial"}


def test_a_command_that_there_is_none_of_is_told_the_nearest() -> None:
    done = run("dif")
    assert done.returncode == 2
    assert "No such command 'dif'" in done.stderr
    assert "'diff'" in done.stderr
