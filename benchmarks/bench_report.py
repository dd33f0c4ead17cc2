"""How long a report takes and how large it gets: a case of 30 launches between snapshots of 50 000 files.

Launches are simulated; snapshots, search, journal and formats are the ones that a user has. Every format is written to
disk, and a second line says what comes before: reading the case and replaying its search.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))

import numpy as np
from made_cases import DECOYS, MORNING, NOW, SimulatedHost, run, snapshot

from fingerprint.case import Case
from fingerprint.report import write_reports
from fingerprint.report.build import of_case


def make(folder: Path, launches: int, files: int) -> Case:
    """An incident that stays unsettled for `launches` launches: a small gap in much scatter."""
    old = snapshot({"PATH": "/bin"}, at=MORNING, files=files, measured=10.0)
    new = snapshot({"PATH": "/bin", "NCCL_PROTO": "Simple", **DECOYS}, at=NOW, files=files + 1, measured=10.4)
    host = SimulatedHost(
        new, lambda changed: 0.4 * ("variable:NCCL_PROTO" in changed), np.random.default_rng(1), scatter=0.03
    )
    case, _ = run(folder, old, host, launches=launches)
    return case


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=30)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        case = make(Path(place) / "case", options.launches, options.files)
        made = len(case.journal.trials())
        print(f"{made} launches, {options.files} files a snapshot, best of {options.runs}")
        print(f"{'read and replay':<24}{best(lambda: of_case(case), options.runs):8.2f} s")
        print(f"{'whole, all formats':<24}{best(lambda: write_reports(case), options.runs):8.2f} s")
        for name in ("report.html", "report.md"):
            print(f"{name:<24}{(case.folder / name).stat().st_size / 1000:8.0f} KB")


def best(work: object, runs: int) -> float:
    """Shortest of some runs, in seconds."""
    assert callable(work)
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
