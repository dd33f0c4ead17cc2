"""The inside of culprits on a real host: hunks and commits really switched and proven, and the live tree untouched."""

from __future__ import annotations

from typing import Any

import pytest
from incident_host import BRIEF, Incident
from test_trials import attempt, live_folders, unproven

from fingerprint.factors import Evidence, Inside
from fingerprint.factors.base import Factor
from fingerprint.host import HostProgram

TOPK = "tree:python/tinyserve/layers/topk.py"


def inside_of(incident: Incident, factor: Factor) -> Inside:
    inside = factor.inside(Evidence(clones=(incident.world.serving,)))
    assert isinstance(inside, Inside), inside
    return inside


def launched(
    host: HostProgram, incident: Incident, factor: str, inside: Inside, new: set[str], isolation: str | None = None
) -> dict[str, Any]:
    """A launch with all other factors old and these parts of one new."""
    plan = incident.plan_without(factor)
    inside.apply(plan, frozenset(new))
    BRIEF.adopt(plan)
    return attempt(host, plan, isolation=isolation)


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_some_hunks_of_a_file_are_launched_and_proven(
    prepared: HostProgram, incident: Incident, isolation: str
) -> None:
    before = live_folders(incident)
    inside = inside_of(incident, incident.factor(TOPK))
    assert len(inside.parts) == 2
    imports = inside.parts[0].id
    answer = launched(prepared, incident, TOPK, inside, {imports}, isolation)
    assert unproven(answer) == []
    (check,) = [one for one in answer["proof"] if one["what"] == "text"]
    assert check["seen"] == "2 places read as meant"
    assert live_folders(incident) == before


def test_hunks_that_did_not_arrive_are_found_by_the_proof(prepared: HostProgram, incident: Incident) -> None:
    inside = inside_of(incident, incident.factor(TOPK))
    plan = incident.plan_without(TOPK)
    inside.apply(plan, frozenset({inside.parts[0].id}))
    next(iter(plan.trees.values())).wanted.pop(TOPK.partition(":")[2])
    BRIEF.adopt(plan)
    (failed,) = unproven(attempt(prepared, plan))
    assert failed["what"] == "text"
    assert "1 of 2 places read otherwise" in failed["seen"]


def test_a_commit_its_files_and_its_hunks_are_launched_and_proven(prepared: HostProgram, incident: Incident) -> None:
    before = live_folders(incident)
    commits = inside_of(incident, incident.factor("tree:commit"))
    (commit,) = commits.parts
    assert "Simplify the rotary embedding" in commit.title
    files = commits.inside(commit.id)
    assert isinstance(files, Inside)
    hunks = files.inside(files.parts[0].id)
    assert isinstance(hunks, Inside)
    for inside, new in ((commits, {commit.id}), (files, set[str]()), (hunks, {hunks.parts[0].id})):
        assert unproven(launched(prepared, incident, "tree:commit", inside, new)) == []
    assert live_folders(incident) == before
