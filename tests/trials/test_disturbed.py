"""What is odd about a real measurement: strangers on a GPU, and a server that does other work than the first."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from incident_host import BRIEF, Incident
from planner import Nobody

from fingerprint.bisect.journal import Journal, TrialLine
from fingerprint.bisect.run import Options, _get_ready
from fingerprint.bisect.search import Budget, Search
from fingerprint.bisect.session import Session
from fingerprint.errors import UsageError
from fingerprint.factors import Evidence, Factor
from fingerprint.factors.flags import Flag
from fingerprint.factors.startup import StartupCode
from fingerprint.host import HostProgram
from snapshots import StartupFile

STEPS = Flag("flag:--speculative-num-steps", "1", "3", "--speculative-num-steps", ("1",), ("3",))

TRIAL = """
import json, os, sys
from fingerprint.host import archive
from probes import watch
from probes.settings import Settings
from probes.trial import Trials

watch.AFTER_S = 0.0
memory = os.memfd_create("fingerprint")
os.write(memory, archive())
trials = Trials(memory, Settings(libraries=[sys.argv[1]], folder=sys.argv[2]), nvml=sys.argv[1])
print(json.dumps(trials.run(json.load(sys.stdin), lambda event, value: None)))
trials.close()
"""


class Answers:
    """In a host program's place: the same answer to every launch."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def call(self, _name: str, args: dict[str, Any], _on_event: object = None) -> dict[str, Any]:
        self.asked.append(args)
        return self.answer


def searched(host: object, incident: Incident, folder: Path, factors: list[Factor], launches: int) -> list[TrialLine]:
    """The launches of a search among these factors."""
    journal = Journal(folder / "journal.jsonl")
    Session(
        host=host,  # type: ignore[arg-type]
        live=incident.new,
        engine=replace(BRIEF, max_new_tokens=24),
        factors={factor.id: factor for factor in factors},
        search=Search([factor.id for factor in factors], budget=Budget(launches=launches)),
        journal=journal,
        observer=Nobody(),
    ).run()
    return journal.trials()


CLOCKS = "gpu/0000:00:06.0/clocks"


@pytest.fixture(scope="module")
def answer(incident: Incident, fake: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real launch with its clocks locked, on two GPUs that a stranger uses, too."""
    driver = tmp_path_factory.mktemp("driver")
    plan = incident.live_plan()
    plan.settings[CLOCKS] = "1200-1200"
    plan.check("gpu:clocks", "setting", name=CLOCKS, value="1200-1200")
    plan.check("gpu:clocks too", "setting", name=CLOCKS, value="345-1980")
    BRIEF.adopt(plan)
    words = [sys.executable, "-c", TRIAL, fake, str(driver / "journal")]
    variables = {**os.environ, "FAKE_NVML": "foreign", "FAKE_NVML_STATE": str(driver)}
    ask = json.dumps(BRIEF.trial(plan))
    done = subprocess.run(words, input=ask, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    assert not (driver / "journal").exists()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_real_measurement_that_is_disturbed_is_repeated_and_then_marked(
    answer: dict[str, Any], incident: Incident, tmp_path: Path
) -> None:
    assert answer["figures"]["verify_ms"] > 0
    assert any("is not ours" in one for one in answer["watch"]["disturbances"])
    host = Answers({**answer, "proof": []})
    (line,) = searched(host, incident, tmp_path, [STEPS], 1)
    assert len(host.asked) == 2
    assert (line.status, line.marks[-1]) == ("measured", "disturbed twice")
    assert any("is not ours" in mark for mark in line.marks)


def test_locked_clocks_are_read_again_while_the_server_runs_and_put_back(answer: dict[str, Any]) -> None:
    locked, unlocked = answer["proof"]
    assert (locked["ok"], locked["seen"]) == (True, "is 1200-1200")
    assert (unlocked["ok"], unlocked["seen"]) == (False, f"{CLOCKS} is 1200-1200")
    assert answer["restored"] == [f"{CLOCKS} is 345-1980 again"]


def test_a_real_launch_that_does_other_work_than_the_first_is_marked(
    prepared: HostProgram, incident: Incident, tmp_path: Path
) -> None:
    live = incident.new.startup.files["sitecustomize.py"]
    text = "import tinyserve.tokenizer as t\nencode = t.encode\nt.encode = lambda text: encode(text[::-1])\n"
    old = StartupFile(path=live.path, sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)
    reads = StartupCode("startup:sitecustomize", "", "", old, live)
    first, second = searched(prepared, incident, tmp_path, [STEPS, reads], 2)
    assert (first.status, second.status) == ("measured", "measured"), (first.reason, second.reason)
    assert first.marks == []
    assert "it generated other tokens than launch 1" in second.marks
    assert any(mark.startswith("its accept length was") for mark in second.marks)


def test_no_trial_is_started_against_objections_unless_that_is_asked_for(incident: Incident, tmp_path: Path) -> None:
    host = Answers({"objections": ["GPU 0000:00:06.0 is used by others: process 7"], "swept": []})

    def get_ready(options: Options) -> None:
        _get_ready(host, incident.new, 1, set(), Evidence(), options)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"No trial was started: GPU 0000:00:06\.0 is used by others.*--anyway"):
        get_ready(Options(folder=tmp_path))
    get_ready(Options(folder=tmp_path, anyway=True))
