"""The story on the real SGLang: eight modified files, variables, packages, a startup file, and one slower verify.

Everything goes over a real sshd, as on somebody else's host, and is typed as a user types it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sglang_host import CULPRIT, NOTED, SPRING, TOPK, Host, autumn
from ssh_daemon import key, running

import snapshots
from fingerprint.bisect.journal import Journal
from snapshots import Snapshot, Unread

MEASURED = ("--requests", "2", "--tokens", "12")
FILES = {CULPRIT, TOPK, *NOTED}
VARIABLES = {"NCCL_DEBUG", "NCCL_BUFFSIZE", "NCCL_PROTO", "NCCL_P2P_LEVEL", "NCCL_IB_TIMEOUT"}


@dataclass(frozen=True)
class Operator:
    """Somebody at another machine, with an account on the host."""

    home: Path
    target: str

    def run(self, *words: object, allowed: tuple[int, ...] = (0,)) -> str:
        """A `fingerprint` command; its results."""
        done = subprocess.run(
            [sys.executable, "-m", "fingerprint", *map(str, words)],
            env={**os.environ, "HOME": str(self.home)}, capture_output=True, text=True, timeout=1500,
        )  # fmt: skip
        assert done.returncode in allowed, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    place, home = tmp_path_factory.mktemp("sshd"), tmp_path_factory.mktemp("home")
    with running(place) as sshd:
        (home / ".ssh").mkdir(mode=0o700)
        mine = key(home / ".ssh" / "id_ed25519")
        (place / "authorized").write_text(mine.with_suffix(".pub").read_text())
        (home / ".ssh" / "known_hosts").write_text(sshd.host_key())
        yield Operator(home, f"ssh://{sshd.user}@127.0.0.1:{sshd.port}")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Host:
    host = Host(tmp_path_factory.mktemp("host"), installed)
    host.build()
    return host


@pytest.fixture(scope="module")
def old(host: Host, operator: Operator) -> Path:
    """What was recorded while it was fast."""
    path = host.folder / "old.json"
    host.become(SPRING)
    with host.serving(SPRING) as port:
        capture(operator, port, path, "--keep", "ops-*")
    return path


def capture(operator: Operator, port: int, path: Path, *more: str) -> Snapshot:
    operator.run("capture", operator.target, "--port", port, "--no-verify", "-q", "-o", path, *more)
    return snapshots.load(path)


def bisect(operator: Operator, old: Path, new: Path, case: Path, *more: object) -> dict[str, Any]:
    operator.run("bisect", old, new, "--target", operator.target, "--case", case, *MEASURED, "--quiet", *more,
                 allowed=(0, 1))  # fmt: skip
    verdict: dict[str, Any] = json.loads((case / "verdict.json").read_text())
    return verdict


def test_the_slower_verify_is_named_among_everything_that_changed(host: Host, operator: Operator, old: Path) -> None:
    new, case = host.folder / "new.json", host.folder / "slow"
    release = autumn(slow=True)
    host.become(release)
    with host.serving(release) as port:
        snapshot = capture(operator, port, new)
        _live_reading_is_right(snapshot, host)
        figures = json.loads(
            operator.run("measure", f":{port}", "--target", operator.target, *MEASURED, "--attach", new,
                         "--baseline-tok-s", "82", "--format", "json")
        )  # fmt: skip
        differences = json.loads(operator.run("diff", old, new, "--factors", "--format", "json", allowed=(1,)))
        verdict = bisect(operator, old, new, case)
    factors = {one["id"] for one in differences["factors"]}
    assert {f"tree:{path}" for path in FILES} <= factors
    assert {f"variable:{name}" for name in VARIABLES} <= factors
    assert {"package:ops-metrics", "package:ops-tools", "startup:sitecustomize"} <= factors
    assert "variable:CUDA_DEVICE_MAX_CONNECTIONS" in {one["id"] for one in differences["fixed"]}
    assert figures["source"] == "engine timer"
    assert figures["accept_length"] == 2.0
    assert figures["batches"]["1"]["figures"]["verify_ms"] > 0
    assert snapshots.load(new).id == snapshot.id
    assert verdict["kind"] == "attributed", verdict["sentence"]
    assert [culprit["factors"] for culprit in verdict["culprits"]] == [[f"tree:{CULPRIT}"]]
    inside = next(one for one in verdict["opened"] if one["of"] == f"tree:{CULPRIT}")
    assert len(inside["parts"]) == 2
    blamed = {name for culprit in inside["verdict"]["culprits"] for name in culprit["factors"]}
    [hunk] = [part for part in inside["parts"] if part["id"] in blamed]
    assert "LlamaAttention" in hunk["title"]
    assert verdict["metric"] == "verify_ms"
    assert verdict["source"] == "engine timer"
    assert verdict["host_differences"] == []
    assert verdict["host_before"] == verdict["host_after"]


def _live_reading_is_right(snapshot: Snapshot, host: Host) -> None:
    """The ranks' variables are read, although their titles wiped what the kernel keeps of them."""
    processes = snapshot.server.processes
    rank = processes["rank 0"]
    assert rank.pid is not None
    assert b"NCCL_PROTO" not in Path(f"/proc/{rank.pid}/environ").read_bytes()
    assert isinstance(rank.at_exec, Unread)
    assert isinstance(rank.variables, dict)
    assert {name: rank.variables.get(name) for name in VARIABLES} == {
        name: autumn(slow=True).variables.get(name) for name in VARIABLES
    }
    assert rank.variables["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
    assert snapshot.server.engine == "sglang"
    assert set(snapshot.trees.trees[str(host.served.tree)].files) == FILES


def test_a_speed_that_never_was_is_a_phantom_and_says_what_nobody_could_see(
    host: Host, operator: Operator, old: Path
) -> None:
    new, case = host.folder / "harmless.json", host.folder / "phantom"
    release = autumn(slow=False)
    host.become(release)
    with host.serving(release) as port:
        before = capture(operator, port, host.folder / "before.json")
    with host.serving(release) as port:
        assert capture(operator, port, new).id == before.id  # started again, on another port
        figures = json.loads(
            operator.run("measure", f":{port}", "--target", operator.target, *MEASURED, "--format", "json")
        )
        today = figures["value"]
        verdict = bisect(operator, old, new, case, "--then-old", 0.6 * today, "--then-new", today)
    assert verdict["kind"] == "phantom", verdict["sentence"]
    assert verdict["culprits"] == []
    assert any("what else ran on the machine" in line for line in verdict["unseen"])
    assert any("NVIDIA" in line for line in verdict["unseen"])
    assert "temperature and its clocks" in (case / "report.md").read_text()
    for trial in Journal(case / "journal.jsonl").trials():
        assert trial.facts["graph mode"] == "no decode pass"
        assert trial.facts["/server_info attention_backend"] == "triton"
        assert trial.facts["/server_info version"] == "0.5.23"
        assert trial.figures["ranks"].keys() == {"0"}
