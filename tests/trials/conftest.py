"""One incident for the whole session, still live while the trials run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from incident_host import Incident, changed_host, prepare

from fingerprint.host import HostProgram
from fingerprint.targets.local import LocalTarget


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    with changed_host(tmp_path_factory.mktemp("incident"), seed=1) as incident:
        yield incident


@pytest.fixture
def host() -> Iterator[HostProgram]:
    with HostProgram(LocalTarget()) as program:
        yield program


@pytest.fixture
def prepared(host: HostProgram, incident: Incident) -> HostProgram:
    """A host program that is ready for trials of the incident."""
    prepare(host, incident)
    return host
