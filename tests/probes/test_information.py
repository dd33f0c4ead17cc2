"""What a server says of itself: its decisions apart from everything else, and ranks that say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import information, measure

# Of what SGLang 0.5.14 answered on an H200.
TOLD: dict[str, Any] = {
    "attention_backend": "triton", "decode_attention_backend": None, "cuda_graph_backend_decode": "full",
    "cuda_graph_bs_decode": [1, 2, 3, 4], "disable_custom_all_reduce": True,
    "enable_flashinfer_allreduce_fusion": False, "api_key": "sk-1",
    "model_path": "/models/target", "nccl_port": 28123, "random_seed": 7, "tp_size": 2,
    "max_running_requests": 4, "hicache_io_backend": "kernel", "version": "0.5.14",
    "internal_states": [{"attention_backend": "fa3", "last_gen_throughput": 346.3, "memory_usage": {"graph": 0.04}}],
}  # fmt: skip


def test_decisions_are_told_apart_as_the_first_rank_has_them() -> None:
    assert information.decided(TOLD) == {
        "attention_backend": "fa3",
        "cuda_graph_backend_decode": "full",
        "cuda_graph_bs_decode": "[1, 2, 3, 4]",
        "disable_custom_all_reduce": "True",
        "enable_flashinfer_allreduce_fusion": "False",
        "max_running_requests": "4",
        "version": "0.5.14",
    }


def test_a_rank_without_a_timer_says_what_would_export_it() -> None:
    figures: dict[str, Any] = {"ranks": {"0": {"verify_ms": 2.0, "draft_ms": 0.2}}}
    information.name_ranks(figures, TOLD)
    assert figures["ranks"]["0"] == {"verify_ms": 2.0, "draft_ms": 0.2}
    assert figures["ranks"]["1"].keys() == {"verify_ms", "draft_ms"}
    assert information.EVERY_RANK in figures["ranks"]["1"]["verify_ms"]["unread"]
    both: dict[str, Any] = {"ranks": {"0": {"verify_ms": 2.0}, "1": {"verify_ms": 1.9}}}
    information.name_ranks(both, TOLD)
    assert both["ranks"]["1"] == {"verify_ms": 1.9}


def test_without_any_timer_only_rank_0_gives_the_reason() -> None:
    figures: dict[str, Any] = {"ranks": {}}
    information.name_ranks(figures, TOLD)
    assert figures == {"ranks": {}}


@pytest.mark.parametrize(
    ("told", "most"),
    [
        ({"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3}, 4),
        ({"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_adaptive": True}, None),
        ({"speculative_algorithm": "NGRAM", "speculative_num_steps": 3}, None),
        ({"speculative_algorithm": None, "speculative_num_steps": 3}, None),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": "3"}, None),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": True}, None),
        ({}, None),
    ],
)
def test_a_cycle_gains_a_token_a_step_and_the_targets_own(told: dict[str, Any], most: int | None) -> None:
    assert information.most_accepted(told) == most


@pytest.mark.parametrize(
    ("told", "most"),
    [
        ({"max_running_requests": 48}, 48),
        ({"max_running_requests": None, "internal_states": [{"effective_max_running_requests_per_dp": 24}]}, 24),
        ({"max_running_requests": 48, "internal_states": [{"effective_max_running_requests_per_dp": 24}],
          "dp_size": 2}, 48),
        ({"max_running_requests": "48", "internal_states": "none"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_how_many_requests_run_at_a_time_is_what_was_resolved(told: dict[str, Any], most: int | None) -> None:
    assert information.at_once(told) == most


def test_requests_that_would_wait_for_each_other_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    at = measure.Server(1)
    monkeypatch.setattr(information, "ask", lambda _at: {"max_running_requests": 2})
    information.refuse_waiting(at, 2)
    with pytest.raises(measure.MeasureError, match=r"at most 2 requests at a time .* of 3 some would wait"):
        information.refuse_waiting(at, 3)
    monkeypatch.setattr(information, "ask", lambda _at: 1 / 0)
    information.refuse_waiting(at, 3)


values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
names = st.sampled_from(["attention_backend", "internal_states", "tp_size", "cuda_graph_x", "dtype"]) | st.text()


@given(st.dictionaries(names, values))
def test_whatever_is_answered_decisions_are_short_and_ranks_are_bounded(told: dict[str, Any]) -> None:
    for value in information.decided(told).values():
        assert isinstance(value, str)
        assert len(value) <= 200
    figures: dict[str, Any] = {"ranks": {"0": {"verify_ms": 1.0}}}
    information.name_ranks(figures, told)
    assert 1 <= len(figures["ranks"]) <= 1024
