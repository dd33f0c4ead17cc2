"""What a capture costs, beside the tools that people use today, in one run on one machine.

`python -m benchmarks.bench_capture --python VENV/bin/python` names an environment with torch and sglang; what it lacks
is left out of the table. Every row is a whole command from start to end, a capture too as people type it, the median of
`--repeat` runs, the rows taken in turns so that a noisy machine disturbs all of them alike. This project's modules are
compiled first, as pip does with what it installs; an editable installation leaves that to whoever imports them.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import fingerprint
import probes
import snapshots
from benchmarks import several_hosts
from fingerprint.capture import capture
from fingerprint.host import HostProgram, payload
from fingerprint.targets import parse_target
from fingerprint.targets.local import PYTHON
from snapshots import load


class Capture(NamedTuple):
    """One way to capture: the command's arguments, and what it asks the host program for."""

    target: str
    arguments: list[str]
    ask: dict[str, Any]
    python: str = PYTHON


def host_mib(way: Capture, config: Path | None) -> float | None:
    """The most memory that the host program of such a capture had; None where that cannot be read here."""
    with HostProgram(parse_target(way.target, ssh_config=config), way.python) as host:
        capture(host, way.ask)
        try:
            lines = Path(f"/proc/{host.greeting['pid']}/status").read_text().splitlines()
        except OSError:
            return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def timed(argv: list[str], home: Path) -> tuple[float, float]:
    """Seconds of a whole process, and processor seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(home)})
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)[:200]}: {done.stderr.strip()[-400:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def has(python: str, module: str) -> bool:
    """Whether an environment has a module, without importing it."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an environment with torch and sglang")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--targets-only", action="store_true", help="only several hosts at once; needs sshd ($SSHD)")
    arguments = parser.parse_args()
    for package in (fingerprint, probes, snapshots):
        compileall.compile_dir(package.__path__[0], quiet=1)
    python, repeat = arguments.python, arguments.repeat
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        daemon: several_hosts.Sshd | None = None
        try:
            daemon = several_hosts.Sshd(Path(place))
            stack.callback(daemon.stop)
        except FileNotFoundError as error:
            print(f"no {error} here: the rows over SSH are left out; SSHD=/path/to/sshd names one", file=sys.stderr)
        if not arguments.targets_only:
            table(python, repeat, Path(place), daemon)
        if daemon is not None:
            several_hosts.table(daemon, ["--no-verify", "--python", python, "--pid", str(os.getpid())], repeat)


def table(python: str, repeat: int, home: Path, daemon: several_hosts.Sshd | None) -> None:
    """Measure all rows in turns, and print them."""
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    known = home / "verified.json"
    plain = {"python": python, "pid": os.getpid(), "verify": False}
    ways = {
        "capture, local": Capture("local", ["--no-verify"], plain),
        "capture, local, every file verified": Capture("local", [], {**plain, "verify": True}),
        "capture, local, verified with the last snapshot known": Capture(
            "local", ["--since", str(known)], {**plain, "verify": True}
        ),
    }
    if daemon is not None:
        ways["capture, ssh on loopback"] = Capture("h01", ["--no-verify"], plain, sys.executable)
    rows: dict[str, list[str]] = {}
    if has(python, "torch"):
        rows["python -m torch.utils.collect_env"] = [python, "-m", "torch.utils.collect_env"]
    if has(python, "sglang"):
        rows["python -m sglang.check_env"] = [python, "-m", "sglang.check_env"]
    if has(python, "pip"):
        rows["python -m pip inspect"] = [python, "-m", "pip", "inspect"]
    rows["sha256sum of the environment, two processes"] = [
        "sh", "-c", f"find {prefix.stdout.strip()} -type f -print0 | xargs -0 -P 2 -n 500 sha256sum > /dev/null",
    ]  # fmt: skip
    command = str(Path(sys.executable).with_name("fingerprint"))
    for name, way in ways.items():
        out = home / "captured.json" if way.arguments else known
        what = ["--python", python, "--pid", str(os.getpid()), "--host-python", way.python, "-o", str(out)]
        rows[name] = [command, "capture", way.target, *way.arguments, *what]
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for _ in range(repeat):
        for name, argv in rows.items():
            runs[name].append(timed(argv, home))
    ways["capture, local, verified with the last snapshot known"].ask["verified"] = load(known).packages.verified()
    peaks = {name: host_mib(way, daemon.config if daemon is not None else None) for name, way in ways.items()}
    report(runs, peaks)


def report(runs: dict[str, list[tuple[float, float]]], peaks: dict[str, float | None]) -> None:
    """Print medians, ranges and ratios."""
    base = statistics.median(seconds for seconds, _ in runs["capture, local"])
    print(f"{'':56}{'median s':>9}{'range s':>15}{'x local':>9}{'CPU s':>8}{'host MiB':>10}")
    for name, values in runs.items():
        seconds = [value[0] for value in values]
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        used = f"{statistics.median(value[1] for value in values):.2f}"
        peak = peaks.get(name)
        told = f"{peak:.0f}" if peak is not None else ""
        print(f"{name:56}{middle:9.2f}{spread:>15}{middle / base:9.1f}{used:>8}{told:>10}")
    print("\nCPU s: of the command and its children; over ssh the host's own work is not among them.")
    print(f"What travels to a host: {len(payload()) / 1000:.0f} kB. {os.cpu_count()} processors.\n")


if __name__ == "__main__":
    main()
