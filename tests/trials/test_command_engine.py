"""A program that is no language model: which of the changes around it made its steps slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from incident_host import read
from trials_host import named, scratch_directories

from fingerprint.bisect.journal import Journal

KERNEL = """
def step(rows):
    return sum(value * value for row in rows for value in row)
"""
SLOWER = """
def step(rows):
    for _ in range(2):
        total = sum(value * value for row in rows for value in row)
    return total
"""
TRAIN = """
import sys, time
from kernel import step
import report

rows = [[float(value) for value in range(300)] for _ in range(100)]
if "--wait" in sys.argv:  # between two epochs
    print("waiting", flush=True)
    sys.stdin.read()
for number in range(200):
    began = time.process_time()
    step(rows)
    print(f"step {number}: {1e3 * (time.process_time() - began):.4f} ms", flush=True)
"""
FILES = {"train.py": TRAIN, "kernel.py": KERNEL, "report.py": "WIDTH = 80\n", "README.md": "A training run.\n"}
CHANGED = {"kernel.py": SLOWER, "report.py": "WIDTH = 100\n", "README.md": "A training run of autumn.\n"}
KERNEL_FACTOR = "tree:training/kernel.py"
METRIC = r"^step \d+: (\S+) ms"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The program's work tree, as committed."""
    tree = tmp_path / "training"
    tree.mkdir()
    for name, text in FILES.items():
        (tree / name).write_text(text)
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", "-C", str(tree), *words], check=True)
    return tree


@contextmanager
def training(tree: Path, **variables: str) -> Iterator[int]:
    """The program while it waits; gives its pid."""
    process = subprocess.Popen(
        [sys.executable, "train.py", "--wait"], cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"waiting\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def bisect(tmp_path: Path, *more: object, case: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = ["bisect", tmp_path / "old.json", tmp_path / "new.json", "--case", case or tmp_path / "case",
             "--engine", "command", *more]  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "fingerprint", *map(str, words)], capture_output=True, text=True, timeout=300
    )


def test_the_slower_step_of_a_program_is_named(tree: Path, tmp_path: Path) -> None:
    with training(tree, TRAIN_MODE="a", OMP_NUM_THREADS="1") as pid:
        read(tmp_path / "old.json", 0, pid=pid, verify=False)
    for name, text in CHANGED.items():
        (tree / name).write_text(text)
    with training(tree, TRAIN_MODE="b", OMP_NUM_THREADS="2", TRAIN_LOG="1") as pid:
        read(tmp_path / "new.json", 0, pid=pid, verify=False)
        command = f"{sys.executable} train.py"
        how = ("--command", command, "--metric", METRIC, "--skip", 5, "--quiet")
        case = named(lambda case: bisect(tmp_path, *how, case=case), tmp_path, KERNEL_FACTOR)
        refused = bisect(tmp_path, "--command", command, "--metric", "step")
    verdict = json.loads((case / "verdict.json").read_text())
    assert verdict["metric"] == "time_ms"
    assert verdict["source"] == "the command's output"
    assert verdict["host_differences"] == []
    assert any("without the first 5" in line for line in verdict["conditions"])
    launches = Journal(case / "journal.jsonl").trials()
    assert {line.status for line in launches} == {"measured"}
    assert all(len(line.figures["samples"]) == 195 for line in launches)
    assert {check["factor"] for line in launches for check in line.proof} >= {KERNEL_FACTOR, "variable:TRAIN_MODE"}
    assert "train.py" in (case / "report.md").read_text()
    assert scratch_directories() == set()
    assert refused.returncode == 2
    assert "has 0 groups" in refused.stderr


FILLED = "".join(f"\nWEIGHT_{number} = {number}\n" for number in range(8))
STEP = "def step(rows):\n    return sum(value * value for row in rows for value in row)\n"


def test_a_commit_is_opened_to_its_files_and_the_guilty_file_to_its_hunks(tree: Path, tmp_path: Path) -> None:
    def commit(message: str, **files: str) -> str:
        for name, text in files.items():
            (tree / f"{name}.py").write_text(text)
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", "-C", str(tree), *who, "commit", "--quiet", "--all", "-m", message], check=True)
        return subprocess.check_output(["git", "-C", str(tree), "rev-parse", "--short=12", "HEAD"], text=True).strip()

    commit("Weights", kernel=STEP + FILLED + "\nNAME = 'a'\n", train=TRAIN.replace("range(200)", "range(60)"))
    with training(tree) as pid:
        read(tmp_path / "old.json", 0, pid=pid, verify=False)
    slower = STEP.replace("    return", "    sum(value for _ in range(2) for row in rows for value in row)\n    return")
    guilty = commit("Check the sum", kernel=slower + FILLED + "\nNAME = 'b'\n", report="WIDTH = 100\n")
    commit("Wider", report="WIDTH = 120\n")
    with training(tree) as pid:
        read(tmp_path / "new.json", 0, pid=pid, verify=False)
        how = ("--command", f"{sys.executable} train.py", "--metric", METRIC, "--skip", 5, "--quiet")
        case = named(lambda case: bisect(tmp_path, *how, case=case), tmp_path, "tree:training/commit")
    opened = {one["of"]: one for one in json.loads((case / "verdict.json").read_text())["opened"]}
    whole = "tree:training/commit"
    path = [whole, f"{whole}@{guilty}", f"{whole}@{guilty}/kernel.py"]
    assert list(opened) == path[: len(opened)]  # on a busy machine a step may stay open: then what is in it is not told
    for place, name in enumerate(opened):
        assert len(opened[name]["parts"]) == 2
        blamed = [part for culprit in opened[name]["verdict"]["culprits"] for part in culprit["factors"]]
        assert place == len(opened) - 1 or blamed == [path[place + 1]]
    if len(opened) == 3 and blamed:
        (part,) = [part for part in opened[path[2]]["parts"] if part["id"] in blamed]
        assert part["title"] == "hunk @@ step of kernel.py"
        assert "Check the sum" in (case / "report.md").read_text()
    launches = Journal(case / "journal.jsonl").trials()
    assert {line.status for line in launches} == {"measured"}
    assert {line.inside for line in launches} == {"", *opened}
    assert scratch_directories() == set()


def test_a_command_that_fails_is_no_figure_and_its_last_words_are_told(tree: Path, tmp_path: Path) -> None:
    with training(tree) as pid:
        read(tmp_path / "old.json", 0, pid=pid, verify=False)
    (tree / "kernel.py").write_text(SLOWER)
    with training(tree) as pid:
        read(tmp_path / "new.json", 0, pid=pid, verify=False)
    script = "import time; time.sleep(1); raise SystemExit('out of memory on GPU 3')"
    words = ("--command", f'{sys.executable} -c "{script}"', "--metric", METRIC)
    ended = bisect(tmp_path, *words)
    assert ended.returncode == 2
    assert "use --anyway to launch what the snapshot holds" in ended.stderr
    done = bisect(tmp_path, *words, "--anyway")
    assert done.returncode == 0, done.stderr
    verdict = json.loads((tmp_path / "case" / "verdict.json").read_text())
    assert verdict["kind"] == "undecided"
    assert "exit status 1: out of memory on GPU 3" in (tmp_path / "case" / "report.md").read_text()


def test_the_options_of_a_command_go_with_the_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fingerprint", "bisect", "a", "b", "--command", "x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
