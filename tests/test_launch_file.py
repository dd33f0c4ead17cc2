"""Launches that stand in a file: read as they are meant, and nothing of them is run by a shell."""

from __future__ import annotations

import contextlib
import shlex
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.errors import UsageError
from fingerprint.launch_file import WrittenLaunch, launched, parse, read
from snapshots import Process, Server, Snapshot

SCRIPT = """#!/bin/bash
set -euo pipefail
# the settings of the operations team
export NCCL_PROTO=Simple OMP_NUM_THREADS="4"
cd '/srv/with space'
CUDA_VISIBLE_DEVICES=0,1 exec_note=x \\
  python3 -m sglang.launch_server --model-path /models/target \\
    --tp 2 --json-model-override-args '{"a": 1}' --port 30000
"""


def test_a_start_script_is_read_as_it_is_meant() -> None:
    launch = parse(SCRIPT, "start.sh")
    assert launch.cwd == "/srv/with space"
    assert launch.variables == {
        "NCCL_PROTO": "Simple",
        "OMP_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "exec_note": "x",
    }
    assert launch.argv[:5] == ["python3", "-m", "sglang.launch_server", "--model-path", "/models/target"]
    assert launch.argv[5:] == ["--tp", "2", "--json-model-override-args", '{"a": 1}', "--port", "30000"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds 0"),
        ("A=1", "holds 0"),
        ("python a.py\npython b.py", "holds 2: python b.py"),
        ("python a.py --tp $TP", "needs a shell for $TP"),
        ("python a.py > log 2>&1", "needs a shell for >"),
        ("python a.py | tee log", "needs a shell for |"),
        ("python `which x`", "needs a shell"),
        ("nohup python a.py &", "needs a shell for &"),
        ("python 'a.py", "cannot be taken apart"),
        ("python a.py --api-key abc", "holds a secret (--api-key)"),
        ("HF_TOKEN=abc python a.py", "holds a secret (HF_TOKEN)"),
    ],
)
def test_what_cannot_be_launched_as_it_stands_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, "start.sh")
    assert words in str(refused.value)
    assert "abc" not in str(refused.value)


plain = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="$`\x85\u2028\u2029"))


@given(st.lists(plain.filter(lambda word: "=" not in word and not word.startswith("-")), min_size=1, max_size=5), plain)
def test_quoted_words_come_back_whatever_they_are_made_of(words: list[str], value: str) -> None:
    argv = ["python3", *words]
    launch = parse(f"A={shlex.quote(value)} {' '.join(shlex.quote(word) for word in argv)}", "x")
    assert launch == WrittenLaunch(argv, {"A": value})


def test_what_looks_like_a_shells_operator_is_a_word_when_it_is_quoted() -> None:
    written = r"""python a.py ')' ";" \& 'a|b' # and not > this"""
    assert parse(written, "x").argv == ["python", "a.py", ")", ";", "&", "a|b"]


@given(st.text(max_size=80))
def test_no_text_ends_in_anything_but_a_launch_or_a_sentence(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse(text, "x").argv


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.sh")


def test_the_launch_stands_in_place_of_the_servers_or_of_none() -> None:
    bare = Snapshot(tool="1", taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc), target="here")
    made = launched(bare, parse(SCRIPT, "start.sh"), "start.sh")
    launcher = made.server.processes["launcher"]
    assert (made.server.engine, launcher.cwd) == ("sglang", "/srv/with space")
    assert isinstance(launcher.at_exec, dict)
    assert launcher.at_exec["NCCL_PROTO"] == "Simple"
    assert launcher.at_exec["PATH"]
    with pytest.raises(UsageError, match="in which directory"):
        launched(bare, WrittenLaunch(["python3"]), "start.sh")
    live = Process(
        role="launcher", pid=7, parent=1, title="", argv=["python3", "-m", "tinyserve.launch_server"],
        executable="/venv/bin/python3", cwd="/srv", started=1.0, at_exec={"A": "1", "B": "1"}, variables={},
    )  # fmt: skip
    serving = bare.model_copy(update={"server": Server(status="ok", engine="tinyserve", processes={"launcher": live})})
    again = launched(serving, WrittenLaunch(["python3", "x.py"], {"B": "2"}), "start.sh").server.processes["launcher"]
    assert (again.pid, again.cwd, again.argv) == (7, "/srv", ["python3", "x.py"])
    assert again.at_exec == {"A": "1", "B": "2"}
