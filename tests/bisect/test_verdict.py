"""The verdict as a document and as a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from fingerprint.bisect.verdict import Culprit, Interval, Suspicion, Then, Verdict
from fingerprint.bisect.words import ms, next_step, sentence

LEVELS: dict[str, Any] = {
    "launches": 9,
    "measured": 9,
    "old_ms": (19, 20, 21),
    "new_ms": (24, 25, 26),
    "gap_ms": (4, 5, 6),
    "sigma_ms": (0.8, 1, 1.2),
}


def culprit(*factors: str, share: Interval = (0.9, 1.0, 1.1), bundle: bool = False) -> Culprit:
    return Culprit(factors=frozenset(factors), share=share, bundle=bundle)


def test_factors_are_written_in_order_so_that_equal_verdicts_are_equal_files() -> None:
    text = Verdict(kind="attributed", culprits=(culprit("b", "a", "c"),)).model_dump_json()
    assert json.loads(text)["culprits"][0]["factors"] == ["a", "b", "c"]


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError):
        Verdict.model_validate({"kind": "probably"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"kind": "attributed", "structure": "single", "culprits": (culprit("A"),)},
            ["A", "5.00 ms", "20.0 ms", "100 %"],
        ),
        (
            {"kind": "attributed", "structure": "single", "culprits": (culprit("A", "B", bundle=True),)},
            ["A and B", "separate"],
        ),
        ({"kind": "interaction", "structure": "and", "culprits": (culprit("A", "B"),)}, ["A and B", "only together"]),
        (
            {"kind": "several", "structure": "or", "culprits": (culprit("A"), culprit("B"))},
            ["each", "both are reverted"],
        ),
        (
            {
                "kind": "several",
                "structure": "adds",
                "culprits": (culprit("A", share=(0.5, 0.6, 0.7)), culprit("B", share=(0.3, 0.4, 0.5))),
            },
            ["A 60 %", "B 40 %"],
        ),
        (
            {
                "kind": "several",
                "structure": "masked",
                "culprits": (culprit("A", share=(1.2, 1.5, 1.8)), culprit("B", share=(-0.8, -0.5, -0.2))),
            },
            ["150 %", "B hides 50 %"],
        ),
        ({"kind": "phantom", "then": Then(old_ms=15, new_ms=20)}, ["does not come back", "15.0 ms"]),
        ({"kind": "phantom", "then": Then(old_ms=20, new_ms=15)}, ["No gap today", "nor was there one before"]),
        ({"kind": "phantom"}, ["not known"]),
        ({"kind": "healed"}, ["not slow today"]),
        ({"kind": "unstable"}, ["1.00 ms", "9 launches"]),
        ({"kind": "reproduced"}, ["there today", "open"]),
        (
            {
                "kind": "undecided",
                "posterior": (Suspicion(structure="single", factors=frozenset("A"), probability=0.6),),
            },
            ["A 60 %"],
        ),
    ],
)
def test_every_verdict_is_one_sentence_with_its_figures(fields: dict[str, Any], words: list[str]) -> None:
    said = sentence(Verdict(**LEVELS, **fields))
    assert said.endswith(".")
    assert all(word in said for word in words), said


def test_without_launches_it_says_so() -> None:
    assert "1 launch:" in sentence(Verdict(kind="undecided", launches=1))
    assert "old side" in sentence(Verdict(kind="undecided"), ("old",))
    assert "switched" in sentence(Verdict(kind="not switchable"))


def test_what_comes_next_depends_on_what_is_open() -> None:
    half = tuple(Suspicion(structure="single", factors=frozenset(n), probability=0.5) for n in "AB")
    quarter = tuple(Suspicion(structure="single", factors=frozenset(n), probability=0.25) for n in "ABCD")
    few = next_step(Verdict(**LEVELS, kind="undecided", posterior=half), 4)
    many = next_step(Verdict(**LEVELS, kind="undecided", posterior=quarter), 4)
    assert (few, many) == ("About 4 more launches would settle it.", "About 5 more launches would settle it.")
    assert "16 launches" in next_step(Verdict(**LEVELS, kind="unstable", then=Then(old_ms=20, new_ms=21)), 4)
    assert next_step(Verdict(**LEVELS, kind="attributed", culprits=(culprit("A"),)), 4) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(123.4, "123 ms"), (20.04, "20.0 ms"), (1.234, "1.23 ms"), (0.5, "0.500 ms"), (-3.0, "-3.00 ms")],
)
def test_milliseconds_have_three_digits(value: float, text: str) -> None:
    assert ms(value) == text
