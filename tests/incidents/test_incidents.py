"""Public incidents as pairs of snapshots: where the culprit stands in the ranking, and what is not claimed."""

from __future__ import annotations

import io

import pytest
from incident_builder import COLD, WARM, World, pair
from incident_pairs import INCIDENTS, Incident
from rich.console import Console

from fingerprint.diff import Comparison, Difference, compare
from fingerprint.report.differences import markdown, terminal

SINGLE = [incident for incident in INCIDENTS if incident.kind == "single"]


DRAWS = 5


def compared(incident: Incident, draw: int = 0) -> Comparison:
    return compare(*pair(incident.change, incident.reference, incident.culprits, draw))


def is_culprit(difference: Difference, incident: Incident) -> bool:
    return difference.factor in incident.culprits or difference.name in incident.culprits


def place(comparison: Comparison, incident: Incident) -> int | None:
    """The culprit's place among all differences, each on its own: 1 is first."""
    places = [n for n, one in enumerate(comparison.differences, 1) if is_culprit(one, incident)]
    return min(places, default=None)


def line(comparison: Comparison, incident: Incident) -> int | None:
    """The line of the short list on which the culprit stands, itself or among what follows from the line's head."""
    lines = comparison.lines()
    return next((n for n, one in enumerate(lines, 1) if any(is_culprit(m, incident) for m in one.members())), None)


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.reference)
def test_the_culprit_is_listed_with_a_reason_and_nothing_is_claimed(incident: Incident) -> None:
    comparison = compared(incident)
    found = [one for one in comparison.differences if is_culprit(one, incident)]
    assert found
    assert all(one.reasons for one in comparison.differences)
    assert all(0 < one.likelihood < 0.99 for one in comparison.differences)
    stream = io.StringIO()
    Console(file=stream, width=200).print(terminal(comparison, most=None, opened=True))
    for text in (stream.getvalue(), markdown(comparison)):
        for claim in ("culprit", "caused", "causes the", "proves", "guilty", "root cause", "is to blame"):
            assert claim not in text.lower()


def places(incidents: list[Incident], title: str) -> tuple[int, int]:
    """Print where the culprits stand, draw by draw; how many of all pairs have theirs in the top three."""
    alone = listed = 0
    print(f"\n\n  {title}: place of the culprit in {DRAWS} draws of nine decoys, each difference on its own")
    for incident in incidents:
        drawn = [compared(incident, draw) for draw in range(DRAWS)]
        own = [place(comparison, incident) or 999 for comparison in drawn]
        alone += sum(at <= 3 for at in own)
        listed += sum((line(comparison, incident) or 999) <= 3 for comparison in drawn)
        shown = " ".join(f"{at:>2}" for at in own)
        mark = " " if max(own) <= 3 else "*"
        print(f"  {mark} {incident.reference:<36} {shown}  of {len(drawn[0].differences):<3} {min(incident.culprits)}")
    pairs = len(incidents) * DRAWS
    print(f"  {len(incidents)} incidents, {pairs} pairs: in the top three {alone} on their own, {listed} by line")
    return alone, pairs


def test_confirmed_culprits_stand_in_the_top_three(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        alone, pairs = places(SINGLE, "Known when the tables were written")
        places([incident for incident in INCIDENTS if incident.kind == "later"], "Looked up afterwards")
    assert alone >= 0.8 * pairs


def test_a_retracted_regression_shows_both_that_changed_together() -> None:
    """The version was blamed first; the variable had been set long before. Both must be seen, neither blamed."""
    (incident,) = [one for one in INCIDENTS if one.kind == "retracted"]
    top = [one.factor for one in compared(incident).differences[:4]]
    assert "variable:VLLM_USE_BREAKABLE_CUDAGRAPH" in top
    assert "package:vllm" in top


def test_a_variable_that_stays_and_stops_being_read_is_said_at_the_version_that_changed() -> None:
    (incident,) = [one for one in INCIDENTS if one.reference.endswith("#50292")]
    comparison = compared(incident)
    assert not comparison.find("variable:VLLM_ATTENTION_BACKEND")
    (engine,) = comparison.find("package:vllm")
    assert any(
        "VLLM_ATTENTION_BACKEND is set and the new version no longer reads it" in one.text for one in engine.reasons
    )


def test_decoys_alone_never_look_certain() -> None:
    for name, decoy in {**COLD, **WARM}.items():
        old, new = World(), World()
        decoy(old, new)
        comparison = compare(old.build(), new.build())
        assert [one.difference.factor or one.difference.name for one in comparison.lines()] == [name]
        assert all(one.likelihood < 0.8 for one in comparison.differences)
        if name in COLD:
            assert all(one.likelihood < 0.4 for one in comparison.differences), name


def test_a_state_is_evidence_and_never_a_difference() -> None:
    (incident,) = [one for one in INCIDENTS if one.kind == "symptom"]
    old, new = pair(incident.change, incident.reference, incident.culprits)
    comparison = compare(old, new, state=True)
    assert not any("clocks_now" in one.name for one in comparison.differences)
    assert any("clocks_now" in one.name for one in comparison.state)
    assert not compare(old, new).state
