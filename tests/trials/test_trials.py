"""Trials of the embedded server: switched, proven, measured, ended, and nothing left."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from incident_host import BRIEF, Incident
from trials_host import contents_of, processes_of, scratch_directories

from fingerprint.errors import HostProgramError, TargetError
from fingerprint.factors import LaunchPlan
from fingerprint.host import HostProgram
from fingerprint.targets.local import LocalTarget


def attempt(host: HostProgram, plan: LaunchPlan, **changes: object) -> dict[str, Any]:
    answer: dict[str, Any] = host.call("try", {**BRIEF.trial(plan), **changes})
    return answer


def unproven(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for check in answer["proof"] if not check["ok"]]


def live_folders(incident: Incident) -> list[dict[str, tuple[object, ...]]]:
    return [contents_of(incident.world.root / name) for name in ("serving", "venv", "site")]


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_both_ends_are_launched_proven_and_measured_and_the_live_files_stay(
    prepared: HostProgram, incident: Incident, isolation: str
) -> None:
    before = live_folders(incident)
    processes = processes_of(str(incident.world.root))
    ends: tuple[set[str] | None, ...] = (set(), None)
    for new in ends:
        answer = attempt(prepared, incident.plan(new), isolation=isolation)
        assert unproven(answer) == []
        assert len(answer["proof"]) >= len(incident.found().factors)
        assert answer["figures"]["verify_ms"] > 0
        assert answer["figures"]["sources"]["verify_ms"] == "engine timer"
        assert answer["isolation"].startswith(isolation)
    assert live_folders(incident) == before
    assert processes_of(str(incident.world.root)) == processes
    assert scratch_directories() == set()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_program_that_is_ended_while_a_trial_ends_leaves_nothing(incident: Incident, number: signal.Signals) -> None:
    processes = processes_of(str(incident.world.root))
    with HostProgram(LocalTarget()) as host:

        def hear(_event: str, value: dict[str, str]) -> None:
            if value["stage"] == "ending":
                os.kill(host.greeting["pid"], number)

        with pytest.raises(TargetError):
            host.call("try", BRIEF.trial(incident.plan(set())), hear)
    assert scratch_directories() == set()
    assert processes_of(str(incident.world.root)) == processes


def test_every_factor_can_be_switched_alone_on_either_side(prepared: HostProgram, incident: Incident) -> None:
    factors = {factor.id for factor in incident.found().factors}
    assert incident.found().fixed == []
    assert factors == set(incident.world.differences())
    kinds: dict[str, str] = {}
    for name in sorted(factors):  # one of each kind: a launch takes a second
        kinds.setdefault(name.partition(":")[0], name)
    kinds["commit"] = "tree:commit"
    for name in kinds.values():
        for new in ({name}, factors - {name}):
            assert unproven(attempt(prepared, incident.plan(new))) == [], name


def test_old_and_new_generate_the_same_tokens(prepared: HostProgram, incident: Incident) -> None:
    old, new = (attempt(prepared, plan)["figures"]["outputs"] for plan in (incident.plan(set()), incident.plan(None)))
    assert old == new


def test_a_factor_that_does_not_arrive_is_found_by_the_proof(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(None)
    plan.check("variable:NEVER_SET", "variable", name="NEVER_SET", value="1")
    failed = unproven(attempt(prepared, plan))
    assert [check["factor"] for check in failed] == ["variable:NEVER_SET"]
    assert "the launcher has none" in failed[0]["seen"]
    assert "rank 0 has none" in failed[0]["seen"]


def test_a_difference_that_does_not_apply_is_unlaunchable(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(set())
    tree = next(iter(plan.trees.values()))
    path, file = next(item for item in tree.wanted.items() if item[1].change == "modified")
    tree.wanted[path] = file.model_copy(update={"patch": str(file.patch).replace("\n ", "\n another context ")})
    with pytest.raises(HostProgramError, match="does not apply") as caught:
        attempt(prepared, plan)
    assert caught.value.kind == "unlaunchable"
    assert scratch_directories() == set()


def test_a_path_outside_its_directory_is_refused(prepared: HostProgram, incident: Incident, tmp_path: Path) -> None:
    plan = incident.plan(set())
    root = next(iter(plan.directories))
    target = tmp_path / "escaped"
    plan.directory(root).write[os.path.relpath(target, root)] = {"text": "x"}
    with pytest.raises(HostProgramError, match="lies outside") as caught:
        attempt(prepared, plan)
    assert caught.value.kind == "unlaunchable"
    assert not target.exists()


def test_a_server_that_ends_before_it_is_ready_says_its_last_words(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(None)
    plan.argv.append("--no-such-flag")
    with pytest.raises(HostProgramError, match="no-such-flag") as caught:
        attempt(prepared, plan)
    assert caught.value.kind == "launch"
    assert "before it was ready" in str(caught.value)


def test_a_server_that_is_never_ready_is_given_up_and_ended(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(None)
    plan.argv[:] = [plan.argv[0], "-c", "import time; time.sleep(600)", str(incident.world.root), "never-ready"]
    with pytest.raises(HostProgramError, match="was not ready within 1 s"):
        attempt(prepared, plan, ready={"paths": ["/ready"], "timeout_s": 1.0})
    assert processes_of("never-ready") == set()


def test_what_a_server_started_and_forgot_is_ended_with_it(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(None)
    escape = (
        "import subprocess,sys,time;"
        "subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)','escaped-child'],start_new_session=True);"
        "sys.exit(3)"
    )
    plan.argv[:] = [plan.argv[0], "-c", escape]
    with pytest.raises(HostProgramError, match="exit status 3"):
        attempt(prepared, plan)
    assert processes_of("escaped-child") == set()


def test_a_server_that_dies_while_it_is_measured_is_a_result(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan(None)
    plan.variables["TRIAL_NAME"] = "dies-while-measured"

    def kill(event: str, value: dict[str, str]) -> None:
        if event == "stage" and value["stage"] == "measuring":
            for pid in processes_of("dies-while-measured"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    ask = BRIEF.trial(plan)
    ask["measure"] = {**ask["measure"], "requests": 50, "max_new_tokens": 64}
    with pytest.raises(HostProgramError, match="while it was measured") as caught:
        prepared.call("try", ask, kill)
    assert caught.value.kind == "measure"
    assert scratch_directories() == set()


def test_a_server_that_hangs_while_it_is_measured_is_a_result_and_ended(
    prepared: HostProgram, incident: Incident
) -> None:
    plan = incident.plan(None)
    plan.variables["TRIAL_NAME"] = "hangs-while-measured"

    def stop(event: str, value: dict[str, str]) -> None:
        if event == "stage" and value["stage"] == "measuring":
            for pid in processes_of("hangs-while-measured"):
                os.kill(pid, signal.SIGSTOP)

    ask = {**BRIEF.trial(plan), "stop_s": 0.5}
    ask["measure"] = {**ask["measure"], "requests": 50, "max_new_tokens": 64, "timeout_s": 1.0}
    with pytest.raises(HostProgramError, match=r"while it was measured: .*timed out") as caught:
        prepared.call("try", ask, stop)
    assert caught.value.kind == "measure"
    assert processes_of("hangs-while-measured") == set()  # stopped, they do not hear SIGTERM
    assert scratch_directories() == set()


def test_a_second_bisect_on_the_host_is_refused(prepared: HostProgram) -> None:
    with HostProgram(LocalTarget()) as second:
        with pytest.raises(HostProgramError, match="another bisect is running") as caught:
            second.call("prepare", {})
        assert caught.value.kind == "busy"


def test_secrets_of_the_live_server_reach_the_trial_without_travelling(
    prepared: HostProgram, incident: Incident
) -> None:
    plan = incident.plan(None)
    plan.variables["HF_TOKEN"] = "<secret:00000000:0123456789abcdef>"
    with pytest.raises(HostProgramError, match="is not known here") as caught:
        attempt(prepared, plan)
    assert caught.value.kind == "unlaunchable"
