"""The demonstration over many seeds: how often the verdict is the truth, and what it costs.

    python -m benchmarks.bench_demo [--scenario NAME ...] [--seeds N] [--first N]

Each line is one whole `fingerprint demo` in a folder of its own: a host built, captured, changed, captured, searched,
and reported. The machine should be quiet: what is measured is a real server's time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fingerprint.reference.world import SCENARIOS

LIMIT_S = 900.0


def run(scenario: str, seed: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None, float]:
    """One demonstration: the truth, the verdict (None when it ended without one) and its seconds."""
    began = time.monotonic()
    words = ["demo", "--scenario", scenario, "--seed", str(seed), "--out", str(folder), "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "fingerprint", *words], check=False, timeout=LIMIT_S, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    truth = json.loads((folder / "truth.json").read_text())
    verdict = folder / "case" / "verdict.json"
    return truth, json.loads(verdict.read_text()) if verdict.is_file() else None, seconds


def named(verdict: dict[str, Any] | None) -> list[str]:
    """The factors that a verdict blames."""
    return sorted(name for culprit in verdict["culprits"] for name in culprit["factors"]) if verdict else []


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", nargs="*", default=["single"], choices=SCENARIOS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    for scenario in asked.scenario:
        right = accused = launches = 0
        print(f"{'scenario':<12} seed  {'truth':<52} {'verdict':<16} launches  seconds", flush=True)
        for seed in range(asked.first, asked.first + asked.seeds):
            with tempfile.TemporaryDirectory() as folder:
                truth, verdict, seconds = run(scenario, seed, Path(folder) / "demo")
            culprits = sorted(truth["culprits"])
            kind = verdict["kind"] if verdict else "no verdict"
            good = kind == truth["kind"] and named(verdict) == culprits
            right += good
            accused += bool(set(named(verdict)) - set(culprits))
            launches += verdict["launches"] if verdict else 0
            shown = " + ".join(name.rpartition("/")[2] for name in culprits) or truth["kind"]
            count = verdict["launches"] if verdict else 0
            mark = "" if good else f"   not the truth: {' + '.join(named(verdict)) or '-'}"
            print(f"{scenario:<12} {seed:4d}  {shown:<52} {kind:<16} {count:8d} {seconds:8.0f}{mark}", flush=True)
        mean = launches / asked.seeds
        print(
            f"{scenario}: right {right} of {asked.seeds}, an innocent named {accused}, {mean:.1f} launches\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
