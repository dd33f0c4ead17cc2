"""A host captured in its old state, changed in place and captured again, and what trials of it start from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import snapshots
from fingerprint.bisect.run import evidence_beside, send_objects
from fingerprint.capture import capture, store_beside
from fingerprint.engines import REFERENCE, Engine
from fingerprint.factors import Evidence, Factor, Found, LaunchPlan, find, plan_of
from fingerprint.host import HostProgram
from fingerprint.reference.world import World
from fingerprint.targets.local import LocalTarget
from probes.ports import free_port
from snapshots import Snapshot

KEY = "5ec4e7"
BRIEF: Engine = replace(REFERENCE, requests=1, max_new_tokens=4, warmup=0)
"""The reference engine, measured just enough to have a figure."""


@dataclass(frozen=True)
class Incident:
    """A live host with the snapshots of before and after."""

    world: World
    old: Snapshot
    new: Snapshot
    old_path: Path
    new_path: Path
    pid: int
    port: int

    @property
    def evidence(self) -> Evidence:
        return evidence_beside(self.old_path)

    def found(self) -> Found:
        return find(self.old, self.new, self.evidence)

    def plan(self, new: set[str] | None = None) -> LaunchPlan:
        """A plan with the factors `new` at their new value (all of them when None), ready to be tried."""
        plan = plan_of(self.new)
        for factor in self.found().factors:
            factor.apply(plan, new=new is None or factor.id in new)
        BRIEF.adopt(plan)
        return plan

    def live_plan(self) -> LaunchPlan:
        """The plan of the live launch itself."""
        return plan_of(self.new)

    def plan_without(self, name: str) -> LaunchPlan:
        """A plan with every factor but one at its old value, and nothing said of that one."""
        plan = plan_of(self.new)
        for factor in self.found().factors:
            if factor.id != name:
                factor.apply(plan, new=False)
        return plan

    def factor(self, identifier: str) -> Factor:
        return next(factor for factor in self.found().factors if factor.id == identifier)


def read(path: Path, port: int, **ask: object) -> Snapshot:
    """Capture this machine's server on a port into a file."""
    with HostProgram(LocalTarget()) as host:
        snapshot = capture(host, {"port": port, "secret_key": KEY, **ask}, store=store_beside(path))
    snapshots.save(snapshot, path)
    return snapshot


def prepare(host: HostProgram, incident: Incident) -> None:
    """Get a host program ready for trials of the incident."""
    host.call("prepare", {"pid": incident.pid, "secret_key": KEY})
    digests = {digest for factor in incident.found().factors for digest in factor.objects()}
    send_objects(host, incident.evidence, digests)


@contextmanager
def changed_host(folder: Path, seed: int, models: Path | None = None) -> Iterator[Incident]:
    """A host captured in its old state, changed in place, captured again, and still serving."""
    world = World(folder / "host", "single", seed, models=models)
    world.build()
    port = free_port()
    server = world.start(port)
    try:
        old = read(folder / "old.json", port, keep=["tiny-*"])
        world.stop(server)
        world.change()
        server = world.start(port)
        new = read(folder / "new.json", port)
        yield Incident(world, old, new, folder / "old.json", folder / "new.json", server.pid, port)
    finally:
        world.stop(server)


def seed_of(culprit: str) -> int:
    """A seed whose single culprit this factor is."""
    for seed in range(100):
        if World(Path("unused"), "single", seed).truth()["culprits"] == [culprit]:
            return seed
    raise AssertionError(f"no seed has {culprit} as its culprit")
