"""`fingerprint measure` on a live server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from incident_host import Incident

import snapshots
from fingerprint.errors import UsageError
from fingerprint.measure import Address, break_even


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fingerprint", "measure", *map(str, words)], capture_output=True, text=True, timeout=120
    )


def test_a_measurement_is_shown_and_kept_in_the_snapshot_whose_id_stays(incident: Incident, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    shutil.copy(incident.new_path, path)
    where = f"http://127.0.0.1:{incident.port}"
    done = run(where, "--attach", path, "--concurrency", "2", "--requests", "3", "--baseline-tok-s", "82",
               "--wanted-tok-s", "100", "--format", "json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figures = told["batches"]["1"]["figures"]
    parts = [figures[name] for name in ("verify_ms", "draft_ms", "extend_ms", "host_ms")]
    assert all(part > 0 for part in parts)
    assert told["batches"]["2"]["figures"]["verify_ms"] > 0
    assert told["source"] == "engine timer"
    assert told["batches"]["1"]["ranks"]["0"]["verify_ms"] == figures["verify_ms"]
    needed = {one["tokens_per_second"]: one["accept_length"] for one in told["break_even"]["needed"]}
    cycle = figures["cycle_mean_ms"]
    assert needed == pytest.approx({82.0: 0.082 * cycle, 100.0: 0.1 * cycle})
    kept = snapshots.load(path)
    assert kept.id == incident.new.id
    assert kept.measured is not None
    assert kept.measured.model_dump(mode="json") == {
        name: value for name, value in told.items() if name not in {"server", "break_even"}
    }
    shown = run(where, "--requests", "1", "--tokens", "8", "--baseline-tok-s", "82")
    assert shown.returncode == 0, shown.stderr
    for words in ("verify", "draft extend", "engine timer", "accept length", "For 82.0 tok/s it would need"):
        assert words in shown.stdout


def test_a_figure_does_not_get_into_the_snapshot_of_another_server(incident: Incident, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    shutil.copy(incident.new_path, path)
    done = run(f"127.0.0.1:{incident.port + 1}", "--attach", path)
    assert done.returncode == 2
    assert "of another server" in done.stderr
    assert path.read_bytes() == incident.new_path.read_bytes()


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    done = run("http://127.0.0.1:9")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Connection refused" in done.stderr


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:30000", ("127.0.0.1", 30000)),
        ("localhost:30000/", ("localhost", 30000)),
        (":30000", ("127.0.0.1", 30000)),
        ("http://[::1]:30000", ("::1", 30000)),
    ],
)
def test_addresses_are_read_as_they_are_meant(url: str, address: tuple[str, int]) -> None:
    at = Address.of(url)
    assert (at.host, at.port) == address


@pytest.mark.parametrize("url", ["", "127.0.0.1", "https://127.0.0.1:1", "http://127.0.0.1:99999", "http://h:1/v1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        Address.of(url)


def test_the_break_even_of_the_story() -> None:
    even = break_even(30.0, 2.0, (82.0, 100.0))
    assert even.tokens_per_second == pytest.approx(66.67, abs=0.01)
    assert even.needed == pytest.approx({82.0: 2.46, 100.0: 3.0})
