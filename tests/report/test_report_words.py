"""Text that is safe to show, and numbers as people read them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.report.words import (
    clean,
    count,
    decimals_for,
    duration,
    listing,
    ms,
    ms_interval,
    number,
    percent_interval,
    probability,
)

ANYTHING = st.text(st.characters(codec=None), max_size=80)


@given(ANYTHING, st.integers(1, 60))
def test_clean_text_is_printable_and_short(text: str, limit: int) -> None:
    shown = clean(text, limit)
    assert shown.isprintable()
    shown.encode()
    assert len(shown) <= 11 * limit + 40
    assert not any(
        unicodedata.bidirectional(c) in {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI", "PDF", "PDI"} for c in shown
    )


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=60))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@given(ANYTHING)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_a_megabyte_line_says_how_long_it_was() -> None:
    shown = clean("x" * 2**20)
    assert len(shown) < 700
    assert shown.endswith("… (1048576 characters)")


def test_what_cannot_be_seen_becomes_visible() -> None:
    assert clean("a\x1b[31mb\u202ec\nd") == "a\\x1b[31mb\\u{202e}c\\nd"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.5743, "0.574"), (19.13, "19.1"), (1279.6, "1280"), (0, "0"), (float("nan"), "unknown"), (1e-9, "0.000000")],
)
def test_numbers_have_three_digits_that_count(value: float, words: str) -> None:
    assert number(value) == words


@given(st.floats(-1e6, 1e6), st.integers(0, 4))
def test_milliseconds_round_to_what_they_were(value: float, decimals: int) -> None:
    text = ms(value, decimals)
    assert abs(float(text.removesuffix(" ms")) - value) <= 0.51 * 10**-decimals
    assert not text.startswith("-0 ")


def test_intervals_and_probabilities_read_as_people_say_them() -> None:
    assert ms_interval((0.524, 0.571, 0.61), 2, sign=True) == "+0.57 ms [0.52, 0.61]"
    assert percent_interval((0.91, 0.98, 1.04)) == "98 % [91, 104]"
    assert [probability(p) for p in (1.0, 0.9942, 0.97, 0.004, 0.0)] == [
        "over 99.9 %", "99.4 %", "97 %", "0.4 %", "under 0.1 %",
    ]  # fmt: skip
    assert [duration(s) for s in (48, 34 * 60, 190 * 60)] == ["48 s", "34 min", "3 h 10 min"]
    assert [count(1, "launch"), count(3, "launch"), count(2, "factor")] == ["1 launch", "3 launches", "2 factors"]
    assert listing("abcdefgh", 4) == "a, b, c and 5 more"
    assert listing("abc") == "a, b and c"


@given(st.floats(1e-6, 1e6))
def test_scatter_decides_the_decimals(scatter: float) -> None:
    decimals = decimals_for(scatter)
    assert 0 <= decimals <= 4
    assert decimals == 4 or 10**-decimals <= scatter
