"""A package brought back from a wheelhouse: at its own place, proven by its RECORD, in either private world."""

from __future__ import annotations

import pytest
from incident_host import BRIEF, Incident
from test_trials import attempt, live_folders, unproven

from fingerprint.bisect.run import send_objects
from fingerprint.errors import HostProgramError
from fingerprint.factors import Evidence
from fingerprint.factors.packages import Package, find
from fingerprint.host import HostProgram
from fingerprint.wheels import Wheels

KERNELS = "package:tiny-kernels"


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_an_old_version_comes_back_from_a_wheelhouse(host: HostProgram, incident: Incident, isolation: str) -> None:
    before = live_folders(incident)
    old = incident.old.model_copy(deep=True)
    old.packages.files.clear()
    evidence = Evidence(wheels=Wheels([incident.world.root / "wheels"]))
    package = next(one for one in find(old, incident.new, evidence) if one.id == KERNELS)
    assert isinstance(package, Package)
    host.call("prepare", {"pid": incident.pid})
    send_objects(host, evidence, package.objects())
    plan = incident.live_plan()
    package.apply(plan, new=False)
    BRIEF.adopt(plan)
    answer = attempt(host, plan, isolation=isolation)
    assert unproven(answer) == []
    (check,) = [one for one in answer["proof"] if one["factor"] == KERNELS]
    assert check["seen"].startswith("1.4.0, RECORD")
    assert live_folders(incident) == before


def test_a_file_that_was_not_sent_is_said_before_the_launch(host: HostProgram, incident: Incident) -> None:
    host.call("prepare", {"pid": incident.pid})
    plan = incident.plan(set())
    with pytest.raises(HostProgramError, match="was not sent to this host") as caught:
        attempt(host, plan)
    assert caught.value.kind == "unlaunchable"
