"""A culprit that takes the better figure away: without graphs, verify is not timed apart, as in SGLang 0.5.14."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from incident_host import Incident
from trials_host import named

import snapshots
from fingerprint.bisect.journal import FigureLine, Journal
from snapshots import Snapshot

CULPRIT = "flag:--disable-cuda-graph"


def launched_with(snapshot: Snapshot, path: Path, *flags: str) -> Path:
    """The same host with a launcher that was given further flags."""
    processes = snapshot.server.processes
    launcher = processes["launcher"]
    assert isinstance(launcher.argv, list)
    given = launcher.model_copy(update={"argv": [*launcher.argv, *flags]})
    server = snapshot.server.model_copy(update={"processes": {**processes, "launcher": given}})
    snapshots.save(snapshot.model_copy(update={"server": server}), path)
    return path


def test_graphs_switched_off_are_named_with_no_further_option_and_in_the_engines_own_words(
    incident: Incident, tmp_path: Path
) -> None:
    old = launched_with(incident.new, tmp_path / "old.json")
    new = launched_with(incident.new, tmp_path / "new.json", "--stream-interval", "1", "--disable-cuda-graph")

    def bisect(case: Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "fingerprint", "bisect", old, new, "--anyway", "--control", "--case", case]
        return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=400)

    case = named(bisect, tmp_path, CULPRIT)
    verdict = json.loads((case / "verdict.json").read_text())
    assert (verdict["metric"], verdict["source"]) == ("cycle_ms", "stream")
    assert verdict["compared"] == (
        "with everything new there is no verify_ms: it is counted under `extend`, together with prompts"
    )
    said = {one["name"]: (one["old"], one["new"]) for one in verdict["decisions"]}
    assert said == {
        "graph mode": ("every decode pass", "no decode pass"),
        "/server_info disable_cuda_graph": ("False", "True"),
    }
    plain = verdict["controls"]
    assert [one["side"] for one in plain] == ["old", "new", "new", "old"]
    for one in plain:
        assert one["tokens_per_second"] > 0, one["reason"]
        assert "does not speculate" in one["figures"]["accept_length"]["unread"]
        assert one["figures"]["outputs"] == plain[0]["figures"]["outputs"]
    journal = Journal(case / "journal.jsonl")
    assert sum(isinstance(line, FigureLine) for line in journal.lines()) == 1
    trials = journal.trials()
    assert {(trial.status, trial.metric) for trial in trials} == {("measured", "cycle_ms")}
    assert {isinstance(trial.figures["verify_ms"], float) for trial in trials if CULPRIT not in trial.new} == {True}
    report = (case / "report.md").read_text()
    assert "the engine decided otherwise: graph mode" in report
    assert "graph mode: every decode pass → no decode pass and /server" in report
    assert "Launches are compared by cycle" in report
    assert "with everything new: speculation breaks even at an accept length of" in report
