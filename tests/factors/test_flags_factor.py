"""Command lines taken apart and put together again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fingerprint.factors import LaunchPlan
from fingerprint.factors.flags import Flag
from snapshots.launch import CommandLine

NAMES = st.from_regex(r"--[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9/._:]{1,12}", fullmatch=True)
FLAGS = st.dictionaries(NAMES, st.lists(VALUES, max_size=3).map(tuple), max_size=6)


def words_of(flags: dict[str, tuple[str, ...]]) -> list[str]:
    return [word for name, values in flags.items() for word in (name, *values)]


@given(FLAGS)
def test_a_command_line_is_the_same_after_it_was_taken_apart(flags: dict[str, tuple[str, ...]]) -> None:
    argv = ["/venv/bin/python", "-m", "sglang.launch_server", *words_of(flags)]
    line = CommandLine.of(argv)
    assert line.program == ("/venv/bin/python", "-m", "sglang.launch_server")
    assert line.flags == flags
    assert line.argv() == argv


@given(FLAGS, NAMES, st.lists(VALUES, max_size=2).map(tuple))
def test_setting_a_flag_changes_that_flag_alone(
    flags: dict[str, tuple[str, ...]], name: str, values: tuple[str, ...]
) -> None:
    line = CommandLine.of(["python", *words_of(flags)]).with_flag(name, values)
    assert line.flags == {**flags, name: values}
    assert line.with_flag(name, None).flags == {flag: words for flag, words in flags.items() if flag != name}


def test_equals_signs_negative_numbers_and_switches_are_understood() -> None:
    line = CommandLine.of(["python", "-m", "x", "--tp=2", "--bias", "-0.5", "--eager", "--bs", "1", "2", "4"])
    assert line.flags == {"--tp": ("2",), "--bias": ("-0.5",), "--eager": (), "--bs": ("1", "2", "4")}


def flag(**changes: Any) -> Flag:  # noqa: ANN401 - fields of Flag
    values = {"id": "flag:--tp-size", "old_words": "", "new_words": "", "name": "--tp-size", "old": ("1",)}
    return Flag(**{**values, "new": ("2",), "old_name": "--tp", **changes})


def planned(factor: Flag, *, new: bool) -> LaunchPlan:
    plan = LaunchPlan(
        argv=["python", "-m", "x", "--tp-size", "2", "--dtype", "half"], cwd="/", variables={}, prefix=None
    )
    factor.apply(plan, new=new)
    return plan


def test_each_side_is_launched_under_its_own_name_and_never_under_both() -> None:
    assert CommandLine.of(planned(flag(), new=True).argv).flags == {"--tp-size": ("2",), "--dtype": ("half",)}
    old = planned(flag(), new=False)
    assert CommandLine.of(old.argv).flags == {"--tp": ("1",), "--dtype": ("half",)}
    assert old.needed_flags == ["--tp"]
    assert old.to_json()["flags"]["names"]["--tp"][:2] == ["--tp", "--tp-size"]


def test_a_flag_that_one_side_lacks_is_taken_away() -> None:
    plan = planned(flag(old=None, old_name=""), new=False)
    assert CommandLine.of(plan.argv).flags == {"--dtype": ("half",)}
    assert plan.needed_flags == []
