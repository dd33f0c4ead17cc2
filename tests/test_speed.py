"""Speed and break-even are two readings of one relation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.speed import accept_length_for, tokens_per_second

CYCLES = st.floats(0.01, 1e5)


@given(st.floats(1.0, 20.0), CYCLES)
def test_the_accept_length_of_a_speed_is_the_one_that_gives_it(accept_length: float, cycle_ms: float) -> None:
    speed = tokens_per_second(accept_length, cycle_ms)
    assert accept_length_for(speed, cycle_ms) == pytest.approx(accept_length)


def test_a_slower_cycle_needs_a_longer_accept_length() -> None:
    assert tokens_per_second(2.0, 30.0) == pytest.approx(66.67, abs=0.01)
    assert accept_length_for(82.0, 30.0) == pytest.approx(2.46)
    assert accept_length_for(100.0, 30.0) == pytest.approx(3.0)
    assert accept_length_for(82.0, 19.0) < 2.0  # at the old cycle, plain decoding lost
