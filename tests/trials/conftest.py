"""One incident for the whole session, still live while the trials run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from incident_host import KEY, Incident, free_port, objects_of, read

from fingerprint.host import HostProgram
from fingerprint.reference.world import World
from fingerprint.targets.local import LocalTarget


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    folder = tmp_path_factory.mktemp("incident")
    world = World(folder / "host", "single", 1)
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


@pytest.fixture
def host() -> Iterator[HostProgram]:
    with HostProgram(LocalTarget()) as program:
        yield program


@pytest.fixture
def prepared(host: HostProgram, incident: Incident) -> HostProgram:
    """A host program that is ready for trials of the incident."""
    host.call("prepare", {"pid": incident.pid, "secret_key": KEY, "objects": objects_of(incident)})
    return host
