"""`fingerprint record`, `log` and references, on a live server, as the documentation writes them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from incident_host import Incident

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "history.md").read_text()


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "FINGERPRINT_HISTORY": str(folder / "history"), "RELEASE": "7"}
    command = [sys.executable, "-m", "fingerprint", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables, cwd=folder)


def by_itself() -> list[str]:
    """The words after `fingerprint record` in the unit, the cron line and the start script of the documentation."""
    section = DOCUMENTED[DOCUMENTED.index("## Recording by itself") :]
    return re.findall(r"fingerprint record (.*?)(?: \|\| true)?$", section, re.MULTILINE)


def test_the_documentation_shows_a_unit_a_cron_line_and_a_start_script() -> None:
    assert len(by_itself()) == 3


@pytest.mark.parametrize("words", by_itself())
def test_what_the_documentation_starts_by_itself_records(incident: Incident, tmp_path: Path, words: str) -> None:
    done = run(tmp_path, "record", *shlex.split(words.replace("$RELEASE", "7")), "--port", incident.port)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    entries = json.loads(run(tmp_path, "log", "--format", "json").stdout)
    assert len(entries) == 1


def test_a_recording_is_listed_measured_tagged_and_found_again(incident: Incident, tmp_path: Path) -> None:
    first = run(tmp_path, "record", "--tag", "good", "--port", incident.port)
    assert first.returncode == 0, first.stderr
    second = run(tmp_path, "record", "--no-measure", "--port", incident.port)
    assert second.returncode == 0, second.stderr
    listed = run(tmp_path, "log", "--plot")
    assert "good" in listed.stdout
    assert "tok/s" in listed.stdout
    assert "not measured" in listed.stdout
    compared = run(tmp_path, "diff", "@good", "@last")
    assert compared.returncode == 0, compared.stdout
    assert run(tmp_path, "validate", "@good").returncode == 0
    assert run(tmp_path, "log", "--tag", "last=newest").returncode == 0
    assert run(tmp_path, "show", "@newest", "server").returncode == 0
    missing = run(tmp_path, "diff", "@good", "@nope")
    assert missing.returncode == 2
    assert len(missing.stderr.strip().splitlines()) == 1
