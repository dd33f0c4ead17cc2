"""What the engine itself decided otherwise with a culprit, told from what merely differs between launches."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fingerprint.bisect.decisions import decisions
from fingerprint.bisect.journal import TrialLine
from fingerprint.bisect.verdict import Culprit

AT = datetime(2026, 11, 3, 9, 0, tzinfo=timezone.utc)
B = Culprit(factors=frozenset({"B"}), share=(0.9, 1.0, 1.1))
SETTINGS: tuple[set[str], ...] = (set(), {"A", "B"}, {"B"}, {"A"})
"""Both ends, the culprit alone, and all but it."""


def launch(number: int, new: set[str], facts: dict[str, Any], **more: Any) -> TrialLine:  # noqa: ANN401 - its fields
    whole: dict[str, Any] = {"number": number, "at": AT, "hours": 0.0, "status": "measured", "value_ms": 1.0}
    return TrialLine(**{**whole, "new": sorted(new), "facts": facts, **more})


def test_what_goes_with_the_culprit_is_told_and_nothing_else() -> None:
    told = [
        launch(
            number,
            new,
            {
                "graph mode": "no decode pass" if "B" in new else "every decode pass",
                "nccl": "2.28.9",
                "attention backend": "fa3" if "A" in new else "triton",
                "verify graph": f"took {number} s",
                **({"moe config": "Using default MoE kernel config"} if "B" in new else {}),
            },
        )
        for number, new in enumerate(SETTINGS, 1)
    ]
    graphs, tuned = decisions([B], told)
    assert (graphs.name, graphs.old, graphs.new) == ("graph mode", "every decode pass", "no decode pass")
    assert (tuned.name, tuned.old, tuned.new) == ("moe config", None, "Using default MoE kernel config")
    assert graphs.factors == ["B"]
    assert graphs.launches == [1, 2, 3, 4]


def test_what_could_not_be_read_in_a_launch_is_no_decision_of_it() -> None:
    told = [
        launch(number, new, {"/server_info dtype": "half" if "B" in new else "float"})
        for number, new in enumerate(SETTINGS, 1)
    ]
    told.append(launch(5, {"B"}, {"/server_info": {"unread": "HTTP status 500"}, "graph mode": {"unread": "no page"}}))
    told.append(launch(6, {"B"}, {}))
    assert [one.name for one in decisions([B], told)] == ["/server_info dtype"]


def test_launches_inside_of_a_culprit_or_without_a_figure_say_nothing() -> None:
    told = [launch(1, set(), {"x": "1"}), launch(2, {"B"}, {"x": "2"})]
    assert len(decisions([B], told)) == 1
    assert decisions([B], [told[0], launch(2, {"B"}, {"x": "2"}, status="void")]) == []
    assert decisions([B], [told[0], launch(2, {"B"}, {"x": "2"}, inside="B")]) == []


def test_silence_of_a_log_that_nobody_can_read_with_confidence_is_no_decision() -> None:
    unread = {"log": {"unread": "0.9.0 may say otherwise"}}
    told = [
        launch(1, set(), {"nccl": "2.28.9", "/server_info attention_backend": "fa3", "graph mode": "every"}),
        launch(2, {"B"}, {**unread, "/server_info attention_backend": "triton", "graph mode": "no"}),
    ]
    assert [one.name for one in decisions([B], told)] == ["graph mode", "/server_info attention_backend"]
    told[1] = launch(2, {"B"}, {**unread, "nccl": "2.29.0", "/server_info attention_backend": "fa3"})
    assert [one.name for one in decisions([B], told)] == ["nccl"]


def test_of_a_pair_only_launches_with_both_or_none_count() -> None:
    pair = Culprit(factors=frozenset({"A", "B"}), share=(0.9, 1.0, 1.1))
    told = [launch(number, new, {"x": str(len(new))}) for number, new in enumerate(SETTINGS, 1)]
    [one] = decisions([pair], told)
    assert (one.old, one.new, one.launches) == ("0", "2", [1, 2])


@given(st.lists(st.dictionaries(st.text(max_size=9), st.text(max_size=300) | st.none() | st.integers()), max_size=5))
def test_whatever_a_host_says_is_kept_short(said: list[dict[str, Any]]) -> None:
    told = [launch(number, {"B"} if number % 2 else set(), facts) for number, facts in enumerate(said)]
    for one in decisions([B], told):
        assert one.old != one.new
        assert all(value is None or len(value) <= 200 for value in (one.old, one.new))
