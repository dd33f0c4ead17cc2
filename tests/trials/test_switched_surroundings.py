"""Surroundings of the launched server, switched both ways in real trials and read back from its own processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from incident_host import BRIEF, Incident
from trials_host import processes_of, scratch_directories

from fingerprint.errors import HostProgramError
from fingerprint.factors import Evidence, Fixed, LaunchPlan, find, plan_of
from fingerprint.factors.variables import Variable
from fingerprint.host import HostProgram
from snapshots import Cache, Caches, CgroupLevel, Snapshot

PROCESSORS = sorted(os.sched_getaffinity(0))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a cgroup")


def before(new: Snapshot, process: Mapping[str, object] | None = None, **sections: object) -> Snapshot:
    """The old snapshot of an incident in which only the surroundings were other: of the launcher and all below it."""
    processes = {
        name: one.model_copy(update=dict(process or {})) if one.role in {"launcher", "rank"} else one
        for name, one in new.server.processes.items()
    }
    server = new.server.model_copy(update={"processes": processes})
    return new.model_copy(update={"server": server, **sections})


def limited(new: Snapshot, limits: dict[str, str], quota: str) -> dict[str, Any]:
    levels = {**new.limits.cgroup_levels, "0": CgroupLevel(path="/", settings={"cpu.max": quota})}
    merged = {**(new.limits.limits if isinstance(new.limits.limits, dict) else {}), **limits}
    return {"limits": new.limits.model_copy(update={"limits": merged, "cgroup_levels": levels})}


def plan(incident: Incident, old: Snapshot, *, new: bool) -> LaunchPlan:
    made = plan_of(incident.new)
    for factor in find(old, incident.new, Evidence()).factors:
        factor.apply(made, new=new)
    BRIEF.adopt(made)
    return made


def launched(
    host: HostProgram, made: LaunchPlan, look: Callable[[int], object], **changes: object
) -> tuple[dict[str, Any], list[Any]]:
    """A trial's answer, and what `look` saw of its launcher and ranks while they ran."""
    seen: list[Any] = []
    made.variables["TRIAL_NAME"] = "looked-at"

    def hear(event: str, value: dict[str, str]) -> None:
        if event == "stage" and value["stage"] == "measuring":
            seen.extend(look(pid) for pid in processes_of("looked-at"))

    answer = host.call("try", {**BRIEF.trial(made), **changes}, hear)
    assert [check for check in answer["proof"] if not check["ok"]] == []
    assert len(seen) >= 3  # a launcher and two ranks
    return answer, seen


def status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def limit(pid: int, name: str) -> str:
    line = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith(name))
    return line.removeprefix(name).split()[0]


def test_processors_niceness_class_memory_and_limits_are_switched_both_ways(
    prepared: HostProgram, incident: Incident
) -> None:
    one = str(PROCESSORS[0])
    process = {"affinity": one, "nice": 3, "policy": "batch", "memory_policy": "bind:0"}
    old = before(incident.new, process, **limited(incident.new, {"open files": "4321"}, "max 100000"))
    found = find(old, incident.new, Evidence())
    names = {"process:affinity", "process:nice", "process:class", "process:numa", "process:limits"}
    assert {factor.id for factor in found.factors} == names
    assert found.fixed == []

    def look(pid: int) -> tuple[str, str, str, str]:
        policy = Path(f"/proc/{pid}/numa_maps").read_text().split()[1]
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return status(pid, "Cpus_allowed_list"), policy, stat[16], limit(pid, "Max open files")

    _answer, seen = launched(prepared, plan(incident, old, new=False), look)
    assert set(seen) == {(one, "bind:0", "3", "4321")}
    answer, seen = launched(prepared, plan(incident, old, new=True), look)
    launcher = incident.new.server.processes["launcher"]
    live = str(launcher.affinity), "default", str(launcher.nice)
    assert {one[:3] for one in seen} == {live}
    assert all(one[3] != "4321" for one in seen)
    assert answer["missing"] == []
    assert scratch_directories() == set()


@needs_root
def test_a_quota_of_processor_time_is_switched_both_ways(prepared: HostProgram, incident: Incident) -> None:
    old = before(incident.new, **limited(incident.new, {}, "150000 100000"))
    assert [factor.id for factor in find(old, incident.new, Evidence()).factors] == ["process:cpu-quota"]
    quotas = set()
    for new in (False, True):
        answer, seen = launched(prepared, plan(incident, old, new=new), cgroup)
        assert len(set(seen)) == 1
        assert "fingerprint-trial-" in seen[0]
        quotas.add(seen[0])
        assert isinstance(answer["watch"]["throttled_s"], float)
    assert len(quotas) == 2
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "fingerprint" in line]
    assert not list(Path("/sys/fs/cgroup").glob("**/fingerprint-trial-*"))


def cgroup(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next((line for line in lines if "fingerprint-trial-" in line), "")


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_the_directory_is_switched_both_ways(prepared: HostProgram, incident: Incident, isolation: str) -> None:
    old = before(incident.new, {"cwd": str(incident.world.root / "models")})
    assert [factor.id for factor in find(old, incident.new, Evidence()).factors] == ["process:cwd"]
    for new, folder in ((False, "models"), (True, "serving")):
        made = plan(incident, old, new=new)
        _answer, seen = launched(prepared, made, lambda pid: Path(f"/proc/{pid}/cwd").readlink(), isolation=isolation)
        assert {Path(path).name for path in seen} == {folder}


def test_a_directory_that_is_gone_cannot_be_launched_in(prepared: HostProgram, incident: Incident) -> None:
    old = before(incident.new, {"cwd": str(incident.world.root / "gone")})
    with pytest.raises(HostProgramError, match="gone is not there") as caught:
        prepared.call("try", BRIEF.trial(plan(incident, old, new=False)))
    assert caught.value.kind == "unlaunchable"
    answer = prepared.call(
        "able", {"demands": {"process:cwd": find(old, incident.new, Evidence()).factors[0].demands()}}
    )
    assert "gone is not there" in answer["process:cwd"]


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_caches_are_a_private_copy_or_cold_and_the_live_one_stays(
    prepared: HostProgram, incident: Incident, tmp_path: Path, isolation: str
) -> None:
    live = tmp_path / ".triton" / "cache"
    (live / "kernel").mkdir(parents=True)
    (live / "kernel" / "compiled.cubin").write_bytes(b"x" * 64)
    now = Caches(status="ok", caches={"triton": Cache(path=str(live), exists=True, files=1)})
    then = Caches(status="ok", caches={"triton": Cache(path=str(live), exists=False)})
    changed = Incident(**{**vars(incident), "new": incident.new.model_copy(update={"caches": now})})
    old = changed.new.model_copy(update={"caches": then})
    assert [factor.id for factor in find(old, changed.new, Evidence()).factors] == ["process:caches"]

    def look(pid: int) -> tuple[str, ...]:
        place = Path(f"/proc/{pid}/root{live}")
        if isolation == "copies":
            variables = dict(row.partition("=")[::2] for row in Path(f"/proc/{pid}/environ").read_text().split("\0"))
            place = Path(variables["TRITON_CACHE_DIR"])
        there = tuple(sorted(path.name for path in place.rglob("*") if not path.name.startswith("added")))
        (place / f"added-{pid}").write_text("by the trial")
        return there

    for new, expected in ((False, ()), (True, ("compiled.cubin", "kernel"))):
        _answer, seen = launched(prepared, plan(changed, old, new=new), look, isolation=isolation)
        assert set(seen) == {expected}
    assert sorted(path.name for path in live.rglob("*")) == ["compiled.cubin", "kernel"]


COMPILES = """
import os, sys, time
home = os.environ["HOME"]
places = [
    os.environ.get("TRITON_CACHE_DIR") or f"{home}/.triton/cache",
    os.environ.get("FLASHINFER_WORKSPACE_BASE", home) + "/.cache/flashinfer",
    os.environ.get("SGLANG_CACHE_DIR") or f"{home}/.cache/sglang",
]
held = []
for place in places:
    os.makedirs(place, exist_ok=True)
    held.append(len(os.listdir(place)))
    open(f"{place}/compiled-{os.getpid()}", "w").close()
print(1 + sum(held), "ms", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
"""


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_what_launches_compile_is_kept_for_the_next_and_never_in_the_live_caches(
    host: HostProgram, tmp_path: Path, isolation: str
) -> None:
    home, proven = tmp_path / "home", tmp_path / "proven"
    (home / ".triton" / "cache").mkdir(parents=True)  # one that is there and empty; the others are not there yet
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "compiled").touch()
    host.call("prepare", {"pid": None})
    before = sorted(home.rglob("*"))
    places = [f"{home}/.triton/cache", f"{home}/.cache/flashinfer", f"{home}/.cache/sglang"]
    values: list[float] = []
    for value in (None, None, f"{home}/elsewhere"):
        made = LaunchPlan([sys.executable, "-c", COMPILES, str(proven)], "/", {"HOME": str(home)}, None)
        made.caches = dict.fromkeys(places, False)
        Variable("variable:SGLANG_CACHE_DIR", "", "", "SGLANG_CACHE_DIR", value, None).apply(made, new=False)
        made.checks *= value is not None
        run = {"pattern": r"^(\d+) ms$", "ms": 1.0, "rate": False, "skip": 0, "timeout_s": 60.0}
        answer = host.call(
            "try", {**made.to_json(), "run": run, "stop_s": 1.0, "isolation": isolation},
            lambda _event, value: proven.touch() if value["stage"] == "measuring" else None,
        )  # fmt: skip
        assert [check for check in answer["proof"] if not check["ok"]] == []
        values += [sample["time_ms"] for sample in answer["figures"]["samples"]]
        proven.unlink()
    # In copies each launch has its own of what is there.
    assert values == ([1, 4, 6] if isolation == "overlay" else [1, 3, 4])
    assert sorted(home.rglob("*")) == before


def test_a_surrounding_that_is_not_in_effect_is_found_by_the_proof(prepared: HostProgram, incident: Incident) -> None:
    made = plan(incident, incident.new, new=True)
    made.check("process:affinity", "surrounding", name="affinity", value="4095", ranks=True)
    made.check("process:limits", "surrounding", name="limits", value={"open files": "11"}, ranks=True)
    made.check("process:cwd", "directory", path="/elsewhere")
    answer = prepared.call("try", BRIEF.trial(made))
    failed = {check["factor"]: check["seen"] for check in answer["proof"] if not check["ok"]}
    assert failed.keys() == {"process:affinity", "process:limits", "process:cwd"}
    assert "the launcher has" in failed["process:affinity"]
    assert "rank 0 has" in failed["process:limits"]


def test_what_the_host_refuses_is_unlaunchable_with_the_reason(prepared: HostProgram, incident: Incident) -> None:
    made = plan(incident, before(incident.new, {"affinity": "4095"}), new=False)
    with pytest.raises(HostProgramError, match="affinity") as caught:
        prepared.call("try", BRIEF.trial(made))
    assert caught.value.kind == "unlaunchable"


def test_what_only_the_ranks_have_otherwise_is_named_and_not_switched(incident: Incident) -> None:
    processes = {
        name: one.model_copy(update={"memory_policy": "bind:0"}) if one.role == "rank" else one
        for name, one in incident.new.server.processes.items()
    }
    server = incident.new.server.model_copy(update={"processes": processes})
    found = find(incident.new.model_copy(update={"server": server}), incident.new, Evidence())
    assert found.factors == []
    fixed = found.fixed[0]
    assert isinstance(fixed, Fixed)
    assert fixed.id == "process:numa of rank 0"
    assert "after the launch" in fixed.reason
