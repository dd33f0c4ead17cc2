"""What a capture costs, beside the tools that people use today, in one run on one machine.

`python -m benchmarks.bench_capture --python VENV/bin/python` names an environment with torch and sglang; what it lacks
is left out of the table. Every row is the whole process from start to end, the median of `--repeat` runs, the rows
taken in turns so that a noisy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fingerprint.capture import capture
from fingerprint.host import HostProgram, payload
from fingerprint.targets import parse_target
from snapshots import load, save

if TYPE_CHECKING:
    from benchmarks import several_hosts


def once(target: str, ask: dict[str, Any], config: Path | None, out: Path) -> None:
    """One capture as a process of its own; prints what the host program needed."""
    if "previous" in ask:
        ask["verified"] = load(Path(ask.pop("previous"))).packages.verified()
    with HostProgram(parse_target(target, ssh_config=config)) as host:
        snapshot = capture(host, ask)
        peak = _peak_mib(host.greeting["pid"])
    save(snapshot, out)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"host_mib": peak, "own_mib": round(own, 1), "seconds": snapshot.seconds}))


def _peak_mib(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def timed(argv: list[str]) -> tuple[float, float, str]:
    """Seconds of a whole process, processor seconds of it and its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)[:200]}: {done.stderr.strip()[-400:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def has(python: str, module: str) -> bool:
    """Whether an environment has a module, without importing it."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an environment with torch and sglang")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--once", nargs=4, metavar=("TARGET", "ASK", "CONFIG", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--targets-only", action="store_true", help="only several hosts at once; needs sshd ($SSHD)")
    arguments = parser.parse_args()
    if arguments.once:
        target, ask, config, out = arguments.once
        once(target, json.loads(ask), Path(config) if config else None, Path(out))
        return
    from benchmarks import several_hosts  # what it needs is no part of a capture's cost

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


def table(python: str, repeat: int, place: Path, daemon: several_hosts.Sshd | None) -> None:
    """Measure all rows in turns, and print them."""
    me = [sys.executable, "-m", "benchmarks.bench_capture"]
    plain = {"python": python, "pid": os.getpid()}
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)

    def local(name: str, **ask: object) -> list[str]:
        return [*me, "--once", "local", json.dumps({**plain, **ask}), "", str(place / f"{name}.json")]

    rows: dict[str, list[str]] = {}
    if has(python, "torch"):
        rows["python -m torch.utils.collect_env"] = [python, "-m", "torch.utils.collect_env"]
    if has(python, "sglang"):
        rows["python -m sglang.check_env"] = [python, "-m", "sglang.check_env"]
    if has(python, "pip"):
        rows["python -m pip inspect"] = [python, "-m", "pip", "inspect"]
    rows["capture, local"] = local("local")
    rows["sha256sum of the environment, two processes"] = [
        "sh", "-c", f"find {prefix.stdout.strip()} -type f -print0 | xargs -0 -P 2 -n 500 sha256sum > /dev/null",
    ]  # fmt: skip
    rows["capture, local, every file verified"] = local("verified", verify=True)
    rows["capture, local, verified with the last snapshot known"] = local(
        "again", verify=True, previous=str(place / "verified.json")
    )
    if daemon is not None:
        config = str(daemon.config)
        rows["capture, ssh on loopback"] = [*me, "--once", "h01", json.dumps(plain), config, str(place / "ssh.json")]
    report(rows, repeat)


def report(rows: dict[str, list[str]], repeat: int) -> None:
    """Run the rows in turns and print medians, ranges and ratios."""
    runs: dict[str, list[tuple[float, float, str]]] = {name: [] for name in rows}
    for _ in range(repeat):
        for name, argv in rows.items():
            runs[name].append(timed(argv))
    base = statistics.median(seconds for seconds, _, _ in runs["capture, local"])
    print(f"{'':56}{'median s':>9}{'range s':>15}{'x local':>9}{'CPU s':>8}{'host MiB':>10}")
    for name, values in runs.items():
        seconds = [value[0] for value in values]
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        used = f"{statistics.median(value[1] for value in values):.2f}"
        told = [json.loads(value[2])["host_mib"] for value in values if value[2].startswith('{"host_mib"')]
        peak = f"{max(told):.0f}" if told and None not in told else ""
        print(f"{name:56}{middle:9.2f}{spread:>15}{middle / base:9.1f}{used:>8}{peak:>10}")
    print("\nCPU s: of the command and its children; over ssh the host's own work is not among them.")
    print(f"What travels to a host: {len(payload()) / 1000:.0f} kB. {os.cpu_count()} processors.\n")


if __name__ == "__main__":
    main()
