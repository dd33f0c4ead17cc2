"""Targets behind a command, and root through sudo. The commands are the tests' own scripts under those names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fingerprint.capture import capture
from fingerprint.errors import TargetError, UsageError
from fingerprint.host import HostProgram
from fingerprint.targets import parse_target
from fingerprint.targets.sudo import SudoTarget

Script = Callable[[str, str], Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Puts a fake command on the PATH; it notes its words one a line, then does what the text says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done > {tmp_path}/{name}.words\n{text}\n')
        path.chmod(0o755)
        return tmp_path / f"{name}.words"

    return write


@pytest.mark.parametrize(
    ("target", "command", "shift", "words"),
    [
        ("docker:serving-1", "docker", 3, ["exec", "--interactive", "serving-1"]),
        (
            "kubectl:prod/pod-7/engine",
            "kubectl",
            6,
            ["exec", "--stdin", "--namespace=prod", "pod-7", "--container=engine", "--"],
        ),
        ("kubectl:prod/pod-7", "kubectl", 5, ["exec", "--stdin", "--namespace=prod", "pod-7", "--"]),
        ("srun:--jobid=12 -w node3", "srun", 5, ["--ntasks=1", "--unbuffered", "--jobid=12", "-w", "node3"]),
        ("via:wrapper 'a b'", "wrapper", 1, ["a b"]),
    ],
)
def test_a_capture_comes_through_every_prefix(
    script: Script, target: str, command: str, shift: int, words: list[str]
) -> None:
    noted = script(command, f'echo a banner; shift {shift}; exec "$@"')
    with HostProgram(parse_target(target)) as host:
        snapshot = capture(host, {"sections": ["startup"], "pid": os.getpid()})
    assert snapshot.target == target
    assert noted.read_text().splitlines()[: len(words)] == words


def test_words_survive_the_shell_behind_every_ssh(script: Script) -> None:
    # ssh hands its words, joined by blanks, to the login shell of the other side.
    script("ssh", 'shift; exec sh -c "$*"')
    one = parse_target("via:ssh gpu01")
    two = parse_target("via:ssh bastion ssh gpu01")
    for target in (one, two):
        channel = target.start(["printf", "%s|", "a b", "$HOME", "it's", '"'])
        assert channel.stdout.read() == b"a b|$HOME|it's|\"|"
        channel.close()


@pytest.mark.parametrize(
    "text", ["docker:", "docker:-x", "kubectl:pod", "kubectl:a/b/c/d", "via:", "via:'open", "srun:'open"]
)
def test_half_a_target_is_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="write "):
        parse_target(text)


def test_a_missing_command_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match="docker cannot be started: No such file"):
        HostProgram(parse_target("docker:x"))


def test_a_host_without_python_says_so(script: Script) -> None:
    script("docker", 'echo "sh: 1: python3: not found" >&2; exit 127')
    sentence = pytest.raises(TargetError, match=r"docker:x: .*python3: not found\. Name one .* --host-python")
    with sentence, HostProgram(parse_target("docker:x")) as host:
        host.call("capture", {})


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ("/proc/7/exe -> /opt/venv/bin/python3.11\n/proc/8/exe -> /usr/bin/sleep\n", "/opt/venv/bin/python3.11"),
        ("-rwxr-xr-x 1 root root 9 Jan  1  2026 /usr/bin/python3.8\n/x/python3.12\n", None),
        ("lr 1 Jan  1  2026 /opt/c/bin/python3.12 -> real\n-r 1 /usr/bin/python3.10\n", "/opt/c/bin/python3.12"),
        ("lr 1 /proc/7/exe -> /usr/bin/python3.9\n-r 1 /usr/local/bin/python3.13\n", "/usr/bin/python3.9"),
        ("lr 1 /proc/7/exe -> /tmp/\033[31m/python3.12\n", None),
        ("sh: not found", None),
    ],
)  # fmt: skip
def test_a_host_without_python3_is_asked_which_other_one_it_has(script: Script, listed: str, named: str | None) -> None:
    told = f"case \"$*\" in *ls*) printf '{listed}' ;; *) echo 'sh: 1: python3: not found' >&2; exit 127 ;; esac"
    script("docker", told)
    with pytest.raises(TargetError) as caught, HostProgram(parse_target("docker:x")) as host:
        host.call("capture", {})
    said = str(caught.value)
    assert said.endswith(f"with --host-python: {named} is there." if named else "with --host-python.")


def test_the_python_that_serves_is_found_by_what_really_runs(script: Script) -> None:
    script("docker", 'shift 3; [ "$1" = sh ] && exec "$@"; echo \'python3: not found\' >&2; exit 127')
    with pytest.raises(TargetError, match=r"--host-python: /\S+/python3\.\d+ is there\."):
        HostProgram(parse_target("docker:x")).call("capture", {})


def test_an_interpreter_of_the_host_can_be_named(script: Script) -> None:
    noted = script("docker", 'shift 3; [ "$1" = /opt/venv/bin/python ] && shift && exec ' + sys.executable + ' "$@"')
    with HostProgram(parse_target("docker:x"), "/opt/venv/bin/python") as host:
        assert host.greeting["pid"] > 0
    assert "/opt/venv/bin/python" in noted.read_text()


FAKE_SUDO = """
case "$*" in
*-n*) {without} ;;
esac
read -r password
[ "$password" = "the right one" ] || {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
RUN = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'


def test_sudo_without_a_password_asks_for_none(script: Script) -> None:
    script("sudo", FAKE_SUDO.format(without=RUN))

    def never() -> str:
        raise AssertionError("asked")

    channel = SudoTarget(parse_target("local"), never).start(["echo", "in"])
    assert channel.stdout.read() == b"in\n"
    channel.close()


def test_a_sudo_password_goes_to_sudo_s_input_and_nowhere_else(script: Script) -> None:
    noted = script("sudo", FAKE_SUDO.format(without='echo "sudo: a password is required" >&2; exit 1'))
    channel = SudoTarget(parse_target("local"), lambda: "the right one").start(["cat"])
    channel.stdin.write(b"input\n")
    channel.stdin.flush()
    assert channel.stdout.readline() == b"input\n"
    channel.close()
    assert "the right one" not in noted.read_text()


def test_a_wrong_sudo_password_and_a_missing_one_are_sentences(script: Script) -> None:
    script("sudo", FAKE_SUDO.format(without="exit 1"))
    sudo = SudoTarget(parse_target("local"), lambda: "wrong")
    with pytest.raises(TargetError, match="incorrect password"), HostProgram(sudo) as host:
        host.call("capture", {})
    with pytest.raises(TargetError, match="sudo wants a password"):
        HostProgram(SudoTarget(parse_target("local")))
