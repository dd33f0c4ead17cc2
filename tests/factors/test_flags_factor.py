"""A flag as a factor: which name it is launched under on either side."""

from __future__ import annotations

from typing import Any

from fingerprint.factors import LaunchPlan
from fingerprint.factors.flags import Flag
from snapshots.launch import CommandLine


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
