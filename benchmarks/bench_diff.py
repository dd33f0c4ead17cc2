"""What a comparison costs: python -m benchmarks.bench_diff [SITE_PACKAGES].

Two snapshots of a real Python environment with the digests of all its files, grown to 51 000 leaves where it is
smaller. The second one has 30 packages at another version with a tenth of their files changed, and a few variables.
Timed: the comparison, DeepDiff on the same data as dictionaries (where it is importable), and whole commands, in turns
within one run. Commands run with their modules compiled, as an installation has them, in a folder of their own.
"""

from __future__ import annotations

import base64
import binascii
import importlib.metadata
import os
import random
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from fingerprint.diff import compare, join
from snapshots import Distribution, Packages, Process, Server, Snapshot, leaves, save

LEAVES = 51_000
ROUNDS = 5
OURS = "compare: walks, join, views, causes, ranking"
EVERYTHING = "compare, state as well: all leaves"
THEIRS = "DeepDiff, the same data as dictionaries"


def packages(site: Path) -> Packages:
    """An environment's distributions, with the digest of each file as RECORD has it."""
    dists: dict[str, Distribution] = {}
    files: dict[str, dict[str, str]] = {}
    for found in importlib.metadata.distributions(path=[str(site)]):
        name = canonicalize_name(found.metadata["Name"])
        record = found.read_text("RECORD") or ""
        dists[name] = Distribution(version=found.version, location=str(site), requires=found.requires or [])
        files[name] = {
            path.strip('"'): _hex(digest)
            for line in record.splitlines()
            for path, digest, _ in [line.rsplit(",", 2)]
            if digest
        }
    return Packages(status="ok", distributions=dists, files=files)


def _hex(digest: str) -> str:
    coded = digest.partition("=")[2]
    return binascii.hexlify(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))).decode()


def grown(real: Packages, wanted: int) -> Packages:
    """The same with as many leaves as wanted: file lists repeated below other directories."""
    files = {name: dict(listed) for name, listed in real.files.items()}
    number = sum(1 for _ in leaves(real, state=True))
    copy = 0
    while number < wanted:
        for name, listed in real.files.items():
            more = {f"copy{copy}/{path}": digest for path, digest in list(listed.items())[: wanted - number]}
            files[name] |= more
            number += len(more)
        copy += 1
    return real.model_copy(update={"files": files})


def later(real: Packages, chooser: random.Random) -> Packages:
    """Another day: 30 packages at another version, a tenth of their files changed."""
    dists, files = dict(real.distributions), {name: dict(listed) for name, listed in real.files.items()}
    for name in chooser.sample(sorted(dists), min(30, len(dists))):
        dists[name] = dists[name].model_copy(update={"version": f"{dists[name].version}.post1"})
        for path in list(files[name])[::10]:
            files[name][path] = files[name][path][::-1]
    return real.model_copy(update={"distributions": dists, "files": files})


def snapshot(installed: Packages, **variables: str) -> Snapshot:
    """A host with that environment and a launcher."""
    launcher = Process(
        role="launcher",
        pid=1,
        parent=0,
        title="launcher",
        argv=["python", "-m", "sglang.launch_server"],
        executable="/usr/bin/python3",
        cwd="/",
        started=0.0,
        at_exec=variables,
        variables=variables,
    )
    return Snapshot(
        tool="bench",
        taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        target="bench",
        packages=installed,
        server=Server(status="ok", processes={"launcher": launcher}),
    )


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """How long it takes once: by the clock, and of the processor, this process and its children together."""
    began, spent = time.perf_counter(), processor()
    work()
    return time.perf_counter() - began, processor() - spent


def processor() -> float:
    """Seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Print the table."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("purelib"))
    real = packages(site)
    before = grown(real, LEAVES)
    old = snapshot(before, NCCL_PROTO="LL")
    new = snapshot(later(before, random.Random(0)), NCCL_PROTO="Simple", OMP_NUM_THREADS="8")
    identity, every = (sum(1 for _ in leaves(old.packages, state=state)) for state in (False, True))
    comparison = compare(old, new)
    work: dict[str, Callable[[], object]] = {
        OURS: lambda: compare(old, new),
        EVERYTHING: lambda: compare(old, new, state=True),
        "walks and join of all leaves, no judgement": lambda: join(
            *(dict(leaves(one.packages, state=True)) for one in (old, new))
        ),
        "the two ids": lambda: (old.id, new.id),
    }
    try:
        from deepdiff import DeepDiff  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        missing = "DeepDiff is not importable here: pip install deepdiff for its row"
    else:
        missing = ""
        plain = [one.model_dump(mode="json") for one in (old, new)]
        work[THEIRS] = lambda: DeepDiff(plain[0], plain[1])
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("old.json", "new.json")]
        for path, one in zip(paths, (old, new), strict=True):
            save(one, path)
        here = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        here["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))

        def whole(words: list[str], expected: int) -> None:
            command = [sys.executable, "-m", "fingerprint.cli", *words]
            ended = subprocess.run(command, check=False, capture_output=True, text=True, env=here)
            if ended.returncode != expected:
                raise SystemExit(f"`{' '.join(command)}` ended with {ended.returncode}: {ended.stderr[-300:]}")

        commands: dict[str, tuple[list[str], int]] = {
            "`fingerprint diff OLD NEW`": (["diff", *map(str, paths)], 1),
            "`fingerprint show NEW`": (["show", str(paths[1])], 0),
            "`fingerprint --help`": (["--help"], 0),
        }
        for name, (words, expected) in commands.items():
            work[f"{name}, whole command"] = partial(whole, words, expected)
            work[f"{name}, whole command"]()  # which compiles what it imports
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, one_work in work.items():
                times[name].append(seconds(one_work))
        megabytes = sum(path.stat().st_size for path in paths) / 2e6
    shape = f"{len(real.distributions)} distributions, {sum(map(len, real.files.values()))} files"
    print(f"{site.name} with {shape}; {every} leaves a side ({identity} identity), {megabytes:.1f} MB a file")
    print(f"{len(comparison.changes)} values differ: {len(comparison.lines())} lines; medians of {ROUNDS} turns in ms")
    print(f"  {'':<46} {'clock':>8} {'(least to most)':>20} {'processor':>10}")
    for name, found in times.items():
        clock = [1000 * wall for wall, _ in found]
        spread = f"({min(clock):.1f} to {max(clock):.1f})"
        spent = 1000 * statistics.median(cpu for _, cpu in found)
        print(f"  {name:<46} {statistics.median(clock):8.1f} {spread:>20} {spent:10.0f}")
    if missing:
        print(missing)
    else:
        for name in (OURS, EVERYTHING):
            turns = zip(times[THEIRS], times[name], strict=True)
            ratio = statistics.median(theirs[0] / ours[0] for theirs, ours in turns)
            print(f"  DeepDiff / {name}, within one turn: {ratio:.1f}")


if __name__ == "__main__":
    main()
