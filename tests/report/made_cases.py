"""Cases for tests: the real protocol, search and journal on a host whose launches are simulated.

`SimulatedHost` stands where the host program does; all that is not the host is what a user runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fingerprint.bisect.journal import FigureLine, OpenLine, TrialLine
from fingerprint.bisect.run import Options, bisect
from fingerprint.bisect.search import Search
from fingerprint.case import Case, Outcome
from fingerprint.errors import HostProgramError
from fingerprint.factors import Evidence, Inside, Part, find
from fingerprint.host import HostProgram
from probes.measure import SOURCES
from snapshots import (
    Distribution,
    Interpreter,
    LocalFile,
    Measured,
    Packages,
    Process,
    Server,
    Snapshot,
    Startup,
    Tree,
    Trees,
    save,
)

MORNING = datetime(2026, 11, 3, 8, 0, tzinfo=timezone.utc)
NOW = datetime(2026, 11, 5, 14, 30, tzinfo=timezone.utc)


def snapshot(
    variables: dict[str, str],
    *,
    at: datetime = NOW,
    flags: tuple[str, ...] = (),
    patches: dict[str, str] | None = None,
    packages: dict[str, str] | None = None,
    files: int = 0,
    driver: str = "a",
    measured: float | None = None,
    target: str = "gpu-17",
) -> Snapshot:
    """A snapshot of a reference server with these variables and so on."""
    argv = ["/venv/bin/python", "-m", "tinyserve.launch_server", "--tp", "2", *flags]

    def process(role: str, rank: int | None = None) -> Process:
        return Process(
            role=cast("Any", role.partition(" ")[0]),
            rank=rank,
            pid=100 + (rank or 0),
            parent=1,
            title=role,
            argv=argv,
            executable="/venv/bin/python",
            cwd="/srv",
            started=1.0,
            at_exec=variables,
            variables=variables,
        )

    local = {
        path: LocalFile(change="modified", sha256=f"{abs(hash(text)) % 16**12:064x}", patch=text)
        for path, text in (patches or {}).items()
    }
    return Snapshot(
        tool="0.1.0",
        taken_at=at,
        target=target,
        measured=None
        if measured is None
        else Measured(
            metric="verify_ms",
            value=measured,
            source="engine timer",
            accept_length=2.9,
            tokens_per_second=1000 * 2.9 / (measured + 9.0),
            requests=6,
        ),
        server=Server(
            status="ok",
            engine="tinyserve",
            url="http://127.0.0.1:30000",
            processes={"launcher": process("launcher"), "rank 0": process("rank 0", 0), "rank 1": process("rank 1", 1)},
        ),
        packages=Packages(
            status="ok",
            interpreter=Interpreter(
                executable="/venv/bin/python",
                version="3.11.9",
                prefix="/venv",
                base_prefix="/usr",
                path=["/venv/lib"],
            ),
            distributions={
                name: Distribution(version=version, location="/venv/lib", record="0" * 64)
                for name, version in (packages or {"numpy": "2.1.0", "tiny-driver": driver}).items()
            },
            files={"numpy": {f"numpy/part{n // 100}/file_{n}.py": f"{n:064x}" for n in range(files)}} if files else {},
        ),
        startup=Startup(status="ok"),
        trees=Trees(status="ok", trees={"/srv/tree": Tree(commit="0" * 40, files=local)}),
    )


@dataclass
class SimulatedHost:
    """Answers as the host program does; a launch is slower by what `slower` says of the factors that are new.

    Attributes:
        live: what a capture shows.
        slower: added verify time in ms, given the factors that are new.
        fails: why a launch with these factors does not start; None when it does.
        scatter: standard deviation over launches, as a share.
        accept_length: of every launch.
        watch: what is said about the machine, given the launch number.
        facts: what the engine says that it decided, given the factors that are new.
    """

    live: Snapshot
    slower: Callable[[frozenset[str]], float]
    rng: np.random.Generator
    level_ms: float = 10.0
    scatter: float = 0.01
    fails: Callable[[frozenset[str]], str | None] = lambda _new: None
    accept_length: float = 2.9
    watch: Callable[[int], dict[str, Any]] = lambda _number: {"steal_share": 0.01, "idle_share": 0.4}
    facts: Callable[[frozenset[str]], dict[str, Any]] = lambda _new: {}
    new: frozenset[str] = frozenset()
    launches: int = 0
    clock: datetime = NOW
    target: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(name="gpu-17"))

    def call(
        self, name: str, args: dict[str, Any], on_event: Callable[[str, Any], None] = lambda _e, _v: None
    ) -> dict[str, Any]:
        """One question to the host."""
        if name == "capture":
            for section, value in self.live.sections().items():
                if section in args["sections"]:
                    on_event("section", {"name": section, "section": value.model_dump(mode="json")})
            return {}
        if name in {"restore", "prepare"}:
            return {"swept": [], "objections": []}
        if name == "able":
            return {}
        assert name == "try"
        self.launches += 1
        self.clock += timedelta(seconds=95)
        if reason := self.fails(self.new):
            raise HostProgramError(reason, kind="unlaunchable")
        for stage in ("launching", "ready", "measuring", "ending"):
            on_event("stage", {"stage": stage})
        verify = (self.level_ms + self.slower(self.new)) * (1 + self.scatter * float(self.rng.standard_normal()))
        samples = [self._sample(verify) for _ in range(args["measure"]["requests"])]
        middle = {key: float(np.median([sample[key] for sample in samples])) for key in samples[0]}
        middle["verify_ms"] = verify
        middle["host_ms"] = middle["cycle_ms"] - verify - middle["draft_ms"] - middle["extend_ms"]
        return {
            "figures": {**middle, "sources": SOURCES, "samples": samples, "outputs": "5f" * 32},
            "facts": self.facts(self.new),
            "proof": [{**check, "ok": True, "seen": "in the launcher and 2 ranks"} for check in args["prove"]],
            "watch": self.watch(self.launches),
            "isolation": "mount namespace",
            "stubborn": [],
            "missing": [],
            "lingering": [],
            "restored": [],
            "seconds": {"prepare": 0.2, "launch": 31.0, "measure": 12.0, "stop": 1.0, "whole": 44.2},
        }

    def _sample(self, verify: float) -> dict[str, float]:
        jitter = self.rng.normal(0, 0.02, 4)
        verify, draft, extend = verify * (1 + jitter[0]), 3.0 * (1 + jitter[1]), 2.0 * (1 + jitter[2])
        cycle = verify + draft + extend + 4.0 * (1 + 5 * abs(jitter[3]))
        return {
            "cycles": 44.0,
            "cycle_ms": cycle,
            "accept_length": self.accept_length,
            "tokens_per_second": 1000 * self.accept_length / cycle,
            "verify_ms": verify,
            "draft_ms": draft,
            "extend_ms": extend,
        }


@dataclass
class _Watcher:
    host: SimulatedHost

    def launching(self, _number: int, new: frozenset[str], _search: Search) -> None:
        self.host.new = new

    def stage(self, number: int, stage: str) -> None:
        pass

    def launched(self, line: TrialLine, search: Search) -> None:
        pass

    def comparing(self, line: FigureLine, search: Search) -> None:
        pass

    def opening(self, line: OpenLine) -> None:
        pass


def run(
    folder: Path, old: Snapshot, host: SimulatedHost, *, seed: int = 0, launches: int | None = None
) -> tuple[Case, Outcome]:
    """Bisect between an old snapshot and the host's live one; the case is in `folder`."""
    path = folder.parent / "old.json"
    save(old, path)
    chosen = Options(folder=folder, now=lambda: host.clock, seed=seed, launches=launches)
    return bisect(cast("HostProgram", host), old, host.live, path, chosen, _Watcher(host))


DECOYS = {f"NCCL_DECOY_{n}": str(n) for n in range(7)}


def incident(
    folder: Path,
    slower: Callable[[frozenset[str]], float],
    *,
    seed: int = 0,
    then: tuple[float, float] | None = (10.0, 12.0),
    variables: dict[str, str] | None = None,
    scatter: float = 0.01,
    fails: Callable[[frozenset[str]], str | None] = lambda _new: None,
    facts: Callable[[frozenset[str]], dict[str, Any]] = lambda _new: {},
    launches: int | None = None,
    old: Snapshot | None = None,
    new: Snapshot | None = None,
) -> tuple[Case, Outcome]:
    """A whole case: eleven changes, of which `slower` says what each launch with some of them costs."""
    before = old or snapshot({"PATH": "/bin"}, at=MORNING, patches={}, measured=then[0] if then else None)
    after = new or snapshot(
        variables or {"PATH": "/bin", "NCCL_PROTO": "Simple", **DECOYS},
        flags=("--stream-interval", "2"),
        patches={"python/engine.py": "--- a\n+++ b\n+slow()\n", "python/io.py": "--- a\n+++ b\n-x\n+y\n"},
        measured=then[1] if then else None,
    )
    host = SimulatedHost(after, slower, np.random.default_rng(seed), scatter=scatter, fails=fails, facts=facts)
    return run(folder, before, host, seed=seed, launches=launches)


def one(name: str, cost: float = 2.0) -> Callable[[frozenset[str]], float]:
    """One factor costs `cost` ms."""
    return lambda new: cost if name in new else 0.0


A, B = "variable:NCCL_PROTO", "tree:python/engine.py"
STORIES: dict[str, dict[str, Any]] = {
    "attributed": {"slower": one(A)},
    "several": {"slower": lambda new: 1.2 * (A in new) + 0.8 * (B in new)},
    "interaction": {"slower": lambda new: 2.0 * (A in new and B in new)},
    "phantom": {"slower": lambda _new: 2.0},
    "healed": {"slower": lambda _new: 0.0},
    "unstable": {"slower": lambda _new: 0.5, "scatter": 0.4, "then": (10.0, 11.0)},
    "undecided": {"slower": one(A), "launches": 4},
}


def story(folder: Path, kind: str, seed: int = 3) -> tuple[Case, Outcome]:
    """The case of one kind of verdict."""
    if kind == "not switchable":
        same = {"PATH": "/bin"}
        old = snapshot(same, at=MORNING, measured=10.0, driver="a")
        new = snapshot(same, measured=12.0, driver="b")
        return incident(folder, lambda _new: 2.0, old=old, new=new, seed=seed)
    return incident(folder, **STORIES[kind], seed=seed)


KINDS = (*STORIES, "not switchable")


PATCH = """diff --git a/python/engine.py b/python/engine.py
--- a/python/engine.py
+++ b/python/engine.py
@@ -10,6 +10,7 @@ class Engine:
 # ---
     def forward(self, x):
         y = x
+        y = y.copy()
         return y
 # ---
     def end(self):
@@ -40,5 +41,5 @@ class Engine:
     def close(self):
-        pass
+        self.end()
 # ---
     def __repr__(self):
         return "engine"
"""


def opened(folder: Path, seed: int = 3) -> tuple[Case, Outcome]:
    """A case whose culprit is a changed file of two hunks, one of which is to blame."""
    after = snapshot({"PATH": "/bin", **DECOYS}, patches={"python/engine.py": PATCH}, measured=12.0)
    (hunk,) = [part.id for part in _hunks(after) if "forward" in part.title]
    return incident(folder, lambda new: 2.0 * bool(new & {B, hunk}), new=after, seed=seed)


def _hunks(after: Snapshot) -> tuple[Part, ...]:
    before = snapshot({"PATH": "/bin"}, at=MORNING)
    (changed,) = [factor for factor in find(before, after, Evidence()).factors if factor.id == B]
    inside = changed.inside(Evidence())
    assert isinstance(inside, Inside)
    return inside.parts
