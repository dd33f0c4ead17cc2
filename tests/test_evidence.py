"""Snapshots of real GPU hosts, as kept under docs/evidence, go through every command that reads snapshots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import snapshots
from fingerprint.case import Case
from fingerprint.diff import compare
from fingerprint.factors import Evidence, find
from fingerprint.findings import check
from fingerprint.report.build import of_case

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
CASE = EVIDENCE / "h200-patch"
TWO_RANKS = EVIDENCE / "h200-nccl"
DIRECT = EVIDENCE / "h200-p2p"
CULPRIT = "tree:python/sglang/srt/models/llama.py"


def test_everything_that_was_read_on_the_gpu_host_is_there() -> None:
    new = snapshots.load(CASE / "new.json")
    assert {name for name, section in new.sections().items() if section.status != "ok"} == set()
    gpu = next(iter(new.gpu.gpus.values()))
    assert not isinstance(gpu, snapshots.Unread)
    assert gpu.name == "NVIDIA H200"
    assert new.packages.distributions["sglang"].version == "0.5.14"


def test_the_patched_file_is_among_the_first_four_of_the_real_differences() -> None:
    comparison = compare(snapshots.load(CASE / "old.json"), snapshots.load(CASE / "new.json"))
    first = [line.difference.factor for line in comparison.lines()[:4]]
    assert CULPRIT in first


@pytest.mark.parametrize(
    ("case", "name", "value", "gpus"), [(TWO_RANKS, "NCCL_PROTO", "Simple", 4), (DIRECT, "NCCL_P2P_DISABLE", "1", 2)]
)
def test_a_variable_of_two_ranks_is_among_the_first_four_and_shows_in_both(
    case: Path, name: str, value: str, gpus: int
) -> None:
    old, new = snapshots.load(case / "old.json"), snapshots.load(case / "new.json")
    lines = compare(old, new).lines()
    assert f"variable:{name}" in [line.difference.factor for line in lines[:4]]
    for rank in ("rank 0", "rank 1"):
        variables = new.server.processes[rank].variables
        assert isinstance(variables, dict)
        assert variables[name] == value
    assert len(new.gpu.gpus) == gpus


def test_what_nccl_does_between_hosts_counts_little_on_one_also_where_nccl_goes_by_it() -> None:
    lines = compare(snapshots.load(DIRECT / "old.json"), snapshots.load(DIRECT / "new.json")).lines()
    places = [line.difference.factor for line in lines]
    assert places.index("variable:NCCL_IB_TIMEOUT") > places.index("variable:OMP_NUM_THREADS")
    assert places.index("variable:NCCL_P2P_DISABLE") < 3


def test_the_factors_are_those_that_were_searched() -> None:
    old, new = snapshots.load(CASE / "old.json"), snapshots.load(CASE / "new.json")
    searched = set(json.loads((CASE / "journal.jsonl").read_text().splitlines()[0])["factors"][0])
    found = find(old, new, Evidence())
    assert {"id", "old", "new"} <= searched
    assert CULPRIT in {factor.id for factor in found.factors}
    assert {one.id for one in found.fixed} == {"package:ops-metrics", "package:ops-tools"}  # their files are not here


def test_the_rules_find_what_is_odd_about_the_environment() -> None:
    said = [finding.text for finding in check(snapshots.load(CASE / "new.json"))]
    assert any("transformers is installed 2 times" in text for text in said)
    assert any("NCCL reads" in text for text in said)


def test_the_report_of_the_case_says_what_the_journal_holds() -> None:
    report = of_case(Case.open(CASE))
    assert report.kind == "attributed"
    assert "models/llama.py" in report.answer
    assert sum(launch.value_ms is not None for launch in report.launches) == 9


@pytest.mark.parametrize("case", [CASE, TWO_RANKS, DIRECT], ids=lambda case: case.name)
@pytest.mark.parametrize("word", ["show", "validate", "check"])
def test_the_commands_read_a_real_snapshot(word: str, case: Path) -> None:
    command = [sys.executable, "-m", "fingerprint", word, str(case / "new.json")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"}, check=False)
    assert done.returncode in {0, 1}
    assert done.stderr == ""
    assert done.stdout


def test_what_a_gap_costs_is_not_what_a_busy_host_cost_in_two_launches() -> None:
    report = of_case(Case.open(DIRECT))
    even, (before, after) = report.break_even, report.speeds
    assert even is not None
    assert before.tokens_per_second > even.tokens_per_second > after.tokens_per_second
    assert even.accept_length == pytest.approx(2.18, abs=0.005)  # 0.534 ms more of 5.89
    assert sum("moves by more than the gap" in line for line in report.more) == 1
