"""Launches that were measured on real GPU hosts (docs/evidence), told to the search as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerprint.bisect.journal import CaseLine, Journal, TrialLine
from fingerprint.bisect.told import search_of, tell
from fingerprint.bisect.verdict import Verdict

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
LLAMA = "tree:python/sglang/srt/models/llama.py"
NORM = "tree:python/sglang/srt/layers/layernorm.py"
TRUTH = {
    "h200-patch": {LLAMA},
    "h200-patch-10-percent": {LLAMA},
    "h200-two": {LLAMA, NORM},
    "h200-nccl": {"variable:NCCL_PROTO"},
    "h200-nccl-again": {"variable:NCCL_PROTO"},
    "h200-p2p": {"variable:NCCL_P2P_DISABLE"},
    "h200-interaction": {LLAMA, "variable:OPERATIONS_CHECK_STATES"},
    "h200-interaction-again": {LLAMA, "variable:OPERATIONS_CHECK_STATES"},
    "h200-eager": {"flag:--disable-cuda-graph"},
    "h200-phantom": set(),
}


def launches(name: str) -> tuple[CaseLine, list[TrialLine]]:
    journal = Journal(EVIDENCE / name / "journal.jsonl")
    head = next(line for line in journal.lines() if isinstance(line, CaseLine))
    return head, journal.trials()


def least_of_ranks(trial: TrialLine) -> TrialLine:
    value_ms = min(figures["verify_ms"] for figures in trial.figures["ranks"].values())
    return trial.model_copy(update={"value_ms": value_ms})


def verdict(head: CaseLine, trials: list[TrialLine]) -> Verdict:
    search = search_of(head)
    for trial in trials:
        tell(search, trial)
    return search.verdict()


@pytest.mark.parametrize("name", TRUTH)
def test_no_innocent_is_accused_by_launches_of_a_real_gpu(name: str) -> None:
    head, trials = launches(name)
    for count in range(2, len(trials) + 1):
        found = verdict(head, trials[:count])
        assert {factor for culprit in found.culprits for factor in culprit.factors} <= TRUTH[name]


@pytest.mark.parametrize("name", ["h200-patch", "h200-patch-10-percent", "h200-nccl-again", "h200-p2p", "h200-eager"])
def test_a_single_culprit_is_named_by_its_launches(name: str) -> None:
    found = verdict(*launches(name))
    assert found.kind == "attributed"
    assert [set(culprit.factors) for culprit in found.culprits] == [TRUTH[name]]


def test_two_culprits_that_add_up_are_both_named_by_their_launches() -> None:
    found = verdict(*launches("h200-two"))
    assert found.kind == "several"
    assert {factor for culprit in found.culprits for factor in culprit.factors} == TRUTH["h200-two"]


def test_two_that_act_only_together_are_named_by_their_launches() -> None:
    found = verdict(*launches("h200-interaction-again"))
    assert found.kind == "interaction"
    assert [set(culprit.factors) for culprit in found.culprits] == [TRUTH["h200-interaction-again"]]


def test_a_speed_that_never_was_is_a_phantom_by_its_launches() -> None:
    assert verdict(*launches("h200-phantom")).kind == "phantom"


def test_of_two_ranks_the_one_that_waited_least_names_the_culprit_alone() -> None:
    head, trials = launches("h200-nccl")
    found = verdict(head, [least_of_ranks(trial) for trial in trials[:10]])
    assert found.kind == "attributed"
    assert [set(culprit.factors) for culprit in found.culprits] == [TRUTH["h200-nccl"]]
