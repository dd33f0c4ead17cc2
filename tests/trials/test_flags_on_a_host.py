"""Flags are spelled as the version of the trial knows them, and an unknown one is refused before anything starts."""

from __future__ import annotations

import pytest
from incident_host import BRIEF, Incident
from test_trials import attempt, unproven

from fingerprint.errors import HostProgramError
from fingerprint.factors.flags import Flag
from fingerprint.host import HostProgram
from snapshots.launch import CommandLine


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_a_name_that_moved_is_translated_for_the_version_at_hand(
    prepared: HostProgram, incident: Incident, isolation: str
) -> None:
    plan = incident.plan()
    line = CommandLine.of(plan.argv)
    plan.argv = line.with_flag("--tp", None).argv()
    tp = ("1",)
    Flag("flag:--tp", "", "", "--tensor-parallel-size", None, tp).apply(plan, new=True)
    plan.wanted_flags = ("--disable-cuda-graph", "--enable-wonders")  # only one is a flag of this version
    answer = attempt(prepared, plan, isolation=isolation)
    assert answer["facts"]["/server_info disable_cuda_graph"] == "True"
    assert answer["facts"]["graph mode"] == "no decode pass"
    assert unproven(answer) == []
    assert [check["ok"] for check in answer["proof"] if check["factor"] == "flag:--tp"] == [True, True]


def test_a_flag_that_the_version_does_not_know_is_refused_before_the_launch(
    prepared: HostProgram, incident: Incident
) -> None:
    plan = incident.plan_without("flag:--watchdog-timeout")
    Flag("flag:--x", "", "", "--enable-wonders", None, ()).apply(plan, new=True)
    BRIEF.adopt(plan)
    stages: list[str] = []
    with pytest.raises(HostProgramError, match="--enable-wonders is no flag of the version") as caught:
        prepared.call("try", BRIEF.trial(plan), lambda _event, value: stages.append(value["stage"]))
    assert caught.value.kind == "unlaunchable"
    assert stages == ["launching", "ending"]
