"""What a process is given before it starts, tried on real processes and read back from the kernel."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import surroundings

Sleeper = Callable[..., "subprocess.Popen[bytes]"]

PROCESSORS = sorted(os.sched_getaffinity(0))
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root may do this")


def launched_with(**given: Any) -> dict[str, Any]:  # noqa: ANN401 - any surrounding
    """A real process that was given surroundings before it started, as the kernel shows it."""

    def give() -> None:
        for name in surroundings.ORDER:
            if name in given:
                surroundings.give(name, given[name])

    words = [sys.executable, "-c", "input()"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, preexec_fn=give)  # noqa: PLW1509 - one thread here
    try:
        return {name: surroundings.seen(process.pid, name) for name in surroundings.ORDER}
    finally:
        process.communicate(b"\n")


@pytest.mark.parametrize("processor", PROCESSORS)
def test_processors_are_given_before_the_start(processor: int) -> None:
    assert launched_with(affinity=str(processor))["affinity"] == str(processor)


@pytest.mark.parametrize("policy", ["bind:0", "interleave:0", "prefer:0", "local", "bind=static:0", "default"])
def test_a_memory_policy_is_given_as_the_kernel_writes_it(policy: str) -> None:
    seen = launched_with(memory_policy=policy)["memory_policy"]
    assert surroundings.equal("memory_policy", policy, seen)
    assert seen == policy


def test_niceness_and_class_are_given() -> None:
    seen = launched_with(nice=7, policy="batch")
    assert (seen["nice"], seen["policy"]) == (7, "batch")


def test_limits_are_given_and_the_hard_ones_stay() -> None:
    seen = launched_with(limits={"open files": "777", "core file size": "0"})["limits"]
    assert seen["open files"] == "777"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 777


@needs_root
@pytest.mark.parametrize("quota", ["50000 100000", "20000 50000", "max"])
def test_a_quota_is_given_through_a_cgroup_of_its_own(quota: str) -> None:
    folder = surroundings.make_cgroup(f"fingerprint-trial-{os.getpid()}-0-1", quota)
    try:
        assert surroundings.equal("cpu_quota", quota, launched_with(cpu_quota=[folder])["cpu_quota"])
    finally:
        surroundings.remove_cgroup(folder)
    assert not Path(folder).exists()
    assert surroundings.cgroups_named(f"fingerprint-trial-{os.getpid()}-") == []


def test_a_quota_of_version_two_is_one_line(tmp_path: Path) -> None:
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (tmp_path / name).write_text("cpuset cpu io\n")
    folder = Path(surroundings.make_cgroup("trial", "150000 100000", (str(tmp_path),)))
    assert (folder / "cpu.max").read_text() == "150000 100000"


def test_a_host_that_does_not_hand_the_division_on_says_so(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    with pytest.raises(OSError, match="does not hand the cpu controller on"):
        surroundings.make_cgroup("trial", "max", (str(tmp_path),))
    with pytest.raises(OSError, match="no cgroup file system"):
        surroundings.make_cgroup("trial", "max", (str(tmp_path / "none"),))


def test_what_cannot_be_had_is_refused_with_the_reason_and_changes_nothing() -> None:
    before = {name: surroundings.seen(os.getpid(), name) for name in surroundings.ORDER}
    refused = {
        "affinity": "4095",
        "memory_policy": "bind:63",
        "policy": "fifo",
        "limits": {"open files": str(1 << 40)},
    }
    for name, value in refused.items():
        assert surroundings.refusal(name, value), name
    assert surroundings.refusal("nice", 19) is None
    assert {name: surroundings.seen(os.getpid(), name) for name in surroundings.ORDER} == before


def test_only_what_is_other_here_is_given_and_what_cannot_be_is_said() -> None:
    here = {name: surroundings.seen(os.getpid(), name) for name in surroundings.ORDER}
    assert surroundings.choose(here, [], None) == ({}, [])
    wanted = {**here, "affinity": "4095", "limits": {**here["limits"], "open files": "512"}}
    given_, missing = surroundings.choose(wanted, [], None)
    assert given_ == {"limits": {"open files": "512"}}
    assert len(missing) == 1
    assert "affinity is not 4095" in missing[0]
    with pytest.raises(OSError, match="affinity"):
        surroundings.choose(wanted, ["affinity"], None)


@given(st.sets(st.integers(0, 200)))
def test_lists_of_numbers_are_read_in_any_form(wanted: set[int]) -> None:
    singles = ",".join(map(str, sorted(wanted)))
    ranges = ",".join(f"{one}-{one}" for one in sorted(wanted))
    assert surroundings.numbers(singles) == surroundings.numbers(ranges) == wanted


def test_the_tightest_quota_above_a_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [{"settings": {"cpu.max": "max 100000"}}, {"settings": {"cpu.max": "150000 100000"}}, {"settings": {}}]
    monkeypatch.setattr("probes.limits.levels", lambda *_: levels)
    assert surroundings.quota_of(os.getpid()) == "150000 100000"
