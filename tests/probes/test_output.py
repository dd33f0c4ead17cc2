"""Numbers in what a program printed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.engines import command_engine
from fingerprint.errors import UsageError
from probes import output


def ask(pattern: str = r"step (\S+) ms", **changes: object) -> dict[str, Any]:
    return {"pattern": pattern, "ms": 1.0, "rate": False, "skip": 0, **changes}


def test_the_figure_is_the_median_of_the_numbers_after_the_warm_up() -> None:
    text = "hello\nstep 90.0 ms\nstep 11.0 ms\nloss 3\nstep 13.0 ms\nstep 12.0 ms\n"
    assert output.figures(text, ask(skip=1))["time_ms"] == 12.0
    assert [one["time_ms"] for one in output.figures(text, ask())["samples"]] == [90.0, 11.0, 13.0, 12.0]


def test_a_rate_counts_as_the_time_that_one_takes() -> None:
    text = "Output token throughput (tok/s): 1,250.00\n"
    figures = output.figures(text, ask(r"throughput \(tok/s\):\s+(\S+)", ms=1e3, rate=True))
    assert figures["time_ms"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "skip", "words"),
    [
        ("", 0, "nothing that it printed matches"),
        ("step nan ms\nstep -3 ms\nstep soon ms", 0, "no positive number"),
        ("step 1 ms", 1, "it printed 1 numbers"),
    ],
)
def test_a_run_without_a_number_says_why(text: str, skip: int, words: str) -> None:
    assert words in output.figures(text, ask(skip=skip))["time_ms"]["unread"]


@given(st.text(max_size=200), st.integers(0, 3))
def test_no_output_breaks_the_reading(text: str, skip: int) -> None:
    value = output.figures(text, ask(r"(\S+)", skip=skip))["time_ms"]
    assert value > 0 if isinstance(value, float) else value["unread"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pattern": None}, "needs --metric"),
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": "ms"}, "has 0 groups"),
        ({"pattern": "(a)(b)"}, "has 2 groups"),
        ({"unit": "tok"}, "--unit tok is not known"),
        ({"command": "sh -c 'x"}, "cannot be taken apart"),
        ({"command": " "}, "is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        command_engine(**{"command": "bench", "pattern": "(a)", **options})
