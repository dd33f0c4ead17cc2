"""One setting of a launch, whatever it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots.spellings import CANONICAL, canonical, paired


@pytest.mark.parametrize(
    ("written", "setting"),
    [
        ("--tp", "--tp-size"),
        ("-tp", "--tp-size"),
        ("--tensor_parallel_size", "--tp-size"),
        ("--tp-size", "--tp-size"),
        ("--speculative-algo", "--speculative-algorithm"),
        ("--unheard-of_flag", "--unheard-of-flag"),
    ],
)
def test_a_flag_has_one_canonical_spelling(written: str, setting: str) -> None:
    assert canonical(written) == setting


def test_a_canonical_spelling_is_its_own() -> None:
    assert all(canonical(name) == name for name in CANONICAL.values())


def test_a_setting_that_both_launches_write_differently_is_one_pair() -> None:
    old: dict[str, tuple[str, ...]] = {"--tensor-parallel-size": ("2",), "--page-size": ("1",)}
    new: dict[str, tuple[str, ...]] = {"--tp": ("4",), "--dtype": ("half",)}
    assert paired(old, new) == {
        "--tp": ("--tensor-parallel-size", "--tp"),
        "--page-size": ("--page-size", None),
        "--dtype": (None, "--dtype"),
    }


def test_a_launch_that_writes_a_setting_twice_has_both() -> None:
    pairs = paired({"--tp": ("2",), "--tp-size": ("2",)}, {"--tp": ("4",)})
    assert pairs == {"--tp": ("--tp", "--tp"), "--tp-size": ("--tp-size", None)}


FLAGS = st.dictionaries(st.sampled_from([*list(CANONICAL)[:6], "--tp-size", "--page-size"]), st.just(("1",)))


@given(FLAGS, FLAGS)
def test_every_flag_of_both_launches_is_in_exactly_one_pair(
    old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]
) -> None:
    pairs = paired(old, new).values()
    assert sorted(was for was, _now in pairs if was is not None) == sorted(old)
    assert sorted(now for _was, now in pairs if now is not None) == sorted(new)
