"""Trials as an ordinary user of a host, over a real sshd: what works without root, and what says that it needs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from incident_host import BRIEF, KEY, Incident
from planner import Nobody
from ssh_daemon import SSHD, key, running
from test_switched_surroundings import before as surrounded
from test_switched_surroundings import limited
from trials_host import contents_of, processes_of, scratch_directories

import snapshots
from fingerprint.bisect.run import Options, bisect, evidence_beside, send_objects
from fingerprint.engines import REFERENCE
from fingerprint.factors import Found, LaunchPlan, find, plan_of
from fingerprint.host import HostProgram
from fingerprint.reference import changes
from fingerprint.targets.ssh import Address, SshTarget

CULPRIT = f"tree:{changes.ATTENTION}"
NUMBER = 54321
"""A user that exists only where the daemon of these tests looks."""
HERE = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or SSHD is None or shutil.which("unshare") is None,
    reason="only root may make a user of its own for a daemon: run as root, with openssh-server and unshare",
)


@dataclass(frozen=True)
class UserHost:
    """A host of that user's."""

    folder: Path
    target: SshTarget
    python: str
    pid: int

    def found(self) -> Found:
        return find(self.snapshot("old"), self.snapshot("new"), evidence_beside(self.folder / "old.json"))

    def snapshot(self, name: str) -> snapshots.Snapshot:
        return snapshots.load(self.folder / f"{name}.json")

    def plan(self, *, new: bool) -> LaunchPlan:
        plan = plan_of(self.snapshot("new"))
        for factor in self.found().factors:
            factor.apply(plan, new=new)
        BRIEF.adopt(plan)
        return plan


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that the user can reach."""
    made = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def an_interpreter() -> tuple[str, dict[str, str]]:
    """One that the user may run, of our version, with what it needs to find our packages."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    paths = os.pathsep.join((str(HERE), str(HERE / "tests" / "trials"), site))
    for name in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}"):
        variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        words = [name, "-c", "import incident_host, venv"]
        try:
            done = subprocess.run(
                words, user=NUMBER, group=NUMBER, extra_groups=[], env=variables, cwd="/", capture_output=True
            )
        except OSError:
            continue
        if done.returncode == 0:
            return name, variables
    pytest.skip("no interpreter of this version may be run by other users: install one below /usr")


@pytest.fixture(scope="module")
def user_host(place: Path, incident: Incident) -> Iterator[UserHost]:
    python, variables = an_interpreter()
    home = place / "home"
    shutil.copytree(incident.world.root / "models", home / "models")
    for path in (home, *home.rglob("*")):
        os.chown(path, NUMBER, NUMBER)
    (place / "passwd").write_text(f"root:*:0:0::/root:/bin/sh\nsshd:*:{NUMBER + 1}:{NUMBER + 1}::/run/sshd:/bin/false\n"
                                  f"trial:*:{NUMBER}:{NUMBER}::{home}:/bin/sh\n")  # fmt: skip
    own = key(place / "own")
    (place / "client").mkdir()
    before = ["unshare", "--mount", "sh", "-c", f'mount --bind {place}/passwd /etc/passwd && exec "$@"', "sshd"]
    (place / "sshd").mkdir(mode=0o755)
    words = [python, str(Path(__file__).with_name("user_host.py")), str(home / "incident"), str(home / "models")]
    with (
        running(place / "sshd", before) as sshd,
        subprocess.Popen(
            words, user=NUMBER, group=NUMBER, extra_groups=[], env={**variables, "HOME": str(home)}, cwd=home,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as server,
    ):  # fmt: skip
        (place / "sshd" / "authorized").write_text(own.with_suffix(".pub").read_text())
        (place / "client" / "known_hosts").write_text(sshd.host_key())
        config = place / "client" / "config"
        config.write_text(f"IdentityFile {own}\nUserKnownHostsFile {place}/client/known_hosts\n")
        assert server.stdout is not None
        told = json.loads(server.stdout.readline() or "null")
        assert told, "the user's host could not be made"
        target = SshTarget(Address("trial", "127.0.0.1", sshd.port), config=config)
        yield UserHost(home / "incident", target, python, told["pid"])
        server.communicate()


@pytest.fixture
def program(user_host: UserHost) -> Iterator[HostProgram]:
    with HostProgram(user_host.target, user_host.python) as host:
        assert host.call("prepare", {"pid": user_host.pid, "secret_key": KEY})["objections"] == []
        digests = {digest for factor in user_host.found().factors for digest in factor.objects()}
        send_objects(host, evidence_beside(user_host.folder / "old.json"), digests)
        yield host


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_every_factor_is_switched_both_ways_without_root(
    user_host: UserHost, program: HostProgram, isolation: str
) -> None:
    root = user_host.folder / "host"
    before = [contents_of(root / name) for name in ("serving", "site", "venv")]
    running_now = processes_of(str(root))
    found = user_host.found()
    assert found.fixed == []
    assert {factor.kind for factor in found.factors} == {"variable", "flag", "tree", "package", "startup"}
    for new in (False, True):
        answer = program.call("try", {**BRIEF.trial(user_host.plan(new=new)), "isolation": isolation})
        assert [check for check in answer["proof"] if not check["ok"]] == []
        assert len(answer["proof"]) >= len(found.factors)
        assert answer["isolation"].startswith(isolation) or "Operation not permitted" in answer["isolation"]
        assert answer["figures"]["verify_ms"] > 0
        assert answer["missing"] == []
    assert [contents_of(root / name) for name in ("serving", "site", "venv")] == before
    assert processes_of(str(root)) == running_now
    assert scratch_directories() == set()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor only")
def test_a_whole_bisect_switches_surroundings_and_says_of_each_factor_what_needs_root(
    user_host: UserHost, tmp_path: Path
) -> None:
    was, new = user_host.snapshot("old"), user_host.snapshot("new")
    assert "launcher" in new.server.processes, new.server.reason
    assert new.server.processes["launcher"].nice == 3
    process = {"affinity": str(max(os.sched_getaffinity(0))), "nice": 0}
    old = surrounded(was, process, **limited(was, {"open files": "600"}, "150000 100000"))
    sysctls = {**was.host.sysctls, "kernel.numa_balancing": "7"}
    old = old.model_copy(update={"host": was.host.model_copy(update={"sysctls": sysctls})})
    snapshots.save(old, tmp_path / "old.json")
    searched = {"process:affinity", "process:nice", "process:limits", CULPRIT}
    running_now = processes_of(str(user_host.folder / "host"))
    options = Options(
        folder=tmp_path / "case",
        engine=replace(REFERENCE, requests=1, max_new_tokens=12, warmup=1),
        secret_key=KEY,
        pid=user_host.pid,
        only=frozenset(searched),
        open=False,
        launches=4,  # both ends and what is between: each takes a second or two
        allow_host_changes=True,
    )
    with HostProgram(user_host.target, user_host.python) as host:
        case, outcome = bisect(host, old, new, tmp_path / "old.json", options, Nobody())
    assert {one.id for one in case.journal.case().factors} == searched
    of_root = {one.id for one in outcome.fixed if "root may" in one.reason}
    assert of_root == {"process:cpu-quota", "host:kernel.numa_balancing"}
    launches = case.journal.trials()
    assert {frozenset(), frozenset(searched)} <= {frozenset(one.new) for one in launches}
    for launch in launches:
        assert launch.status == "measured", launch.reason
        assert {check["factor"] for check in launch.proof if check["ok"]} == searched
    assert [one.factors for one in outcome.culprits] in ([], [{CULPRIT}]), outcome.sentence
    assert outcome.host_differences == []
    assert outcome.host_before == outcome.host_after
    assert processes_of(str(user_host.folder / "host")) == running_now
    assert scratch_directories() == set()
    assert not Path(f"/var/tmp/fingerprint-{NUMBER}").exists()


def test_what_needs_root_says_so_for_each_factor_and_the_rest_can_be_had(program: HostProgram) -> None:
    demands = {
        "process:affinity": [{"surrounding": "affinity", "value": str(min(os.sched_getaffinity(0)))}],
        "process:numa": [{"surrounding": "memory_policy", "value": "bind:0"}],
        "process:class": [{"surrounding": "policy", "value": "batch"}],
        "nicer": [{"surrounding": "nice", "value": 5}],
        "less nice": [{"surrounding": "nice", "value": -5}],
        "fewer files": [{"surrounding": "limits", "value": {"open files": "512"}}],
        "more files": [{"surrounding": "limits", "value": {"open files": str(1 << 30)}}],
        "process:cpu-quota": [{"surrounding": "cpu_quota", "value": "50000 100000"}],
        "process:cwd": [{"directory": "/"}],
        "host:kernel.numa_balancing": [{"settings": {"proc/sys/kernel/numa_balancing": "1"}}],
    }
    refused = program.call("able", {"demands": demands})
    assert refused.keys() == {"less nice", "more files", "process:cpu-quota", "host:kernel.numa_balancing"}
    assert "Permission denied" in refused["less nice"]
    assert "above the hard limit" in refused["more files"]
    assert "root may" in refused["more files"]
    assert "root may" in refused["host:kernel.numa_balancing"]
    assert "cgroup" in refused["process:cpu-quota"]
