"""The demonstration: break a real server among many harmless changes, then find the break with the everyday commands.

One host is built, served from and captured; then it is changed in place, as happens to hosts. What follows is typed as
a user would type it: capture, diff, bisect, report. Which change did it is written to `truth.json` alone.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fingerprint.errors import FingerprintError, UsageError
from fingerprint.reference.world import SCENARIOS, World
from probes.ports import free_port

Say = Callable[[str], None]

STORIES = {
    "single": "one of the changes makes verify slower",
    "two": "two of the changes make verify slower, and their costs add",
    "interaction": "two of the changes are harmless alone and slow together",
    "phantom": "no change matters: the old figure was taken on a quieter machine",
    "none": "no change matters: the new figure was taken while a neighbour was busy",
}


def demo(scenario: str, seed: int, out: Path, say: Say, *, quiet: bool = False) -> bool:
    """Run one scenario.

    Args:
        scenario: one of `SCENARIOS`.
        seed: chooses the culprit, and everything else that is left to chance.
        out: folder for the host, the snapshots, the case and `truth.json`; made, and must be empty.
        say: prints one line.
        quiet: the commands say only their result.

    Returns:
        Whether the verdict is the truth.

    Raises:
        UsageError: no such scenario, or the folder is not empty.
        FingerprintError: one of the commands met trouble.
    """
    if scenario not in SCENARIOS:
        raise UsageError(f"{scenario} is no scenario; use one of {', '.join(SCENARIOS)}.")
    _empty(out)
    began = time.monotonic()
    say(f"Scenario {scenario}, seed {seed}: {STORIES[scenario]}.")
    say(f"Building a host in {out / 'host'}: a git tree, an environment with wheels, a target and its EAGLE3 draft.")
    world = World(out / "host", scenario, seed)
    # Written first: it is also what tells a demonstration's folder from any other.
    (out / "truth.json").write_text(json.dumps(world.truth(), indent=1) + "\n", encoding="utf-8")
    world.build()
    old, new, case = out / "old.json", out / "new.json", out / "case"
    port = free_port()
    flags = ["--quiet"] if quiet else []
    capture = ["capture", "--port", str(port), "--measure", *flags]
    with _serving(world, port):
        _run([*capture, "--keep", "tiny-*", "-o", str(old)], say)
    say("The host is changed in place: patches, a commit, wheels, variables, flags, a startup file.")
    world.change()
    with _serving(world, port):
        with world.neighbour() if scenario == "none" else contextlib.nullcontext():
            _run([*capture, "-o", str(new)], say, neighbour=scenario == "none")
        with world.neighbour() if scenario == "phantom" else contextlib.nullcontext():
            if scenario == "phantom":
                _run([*capture, "-o", str(new)], say)
            _run(["diff", str(old), str(new)], say, allowed=(0, 1))
            words = ["bisect", str(old), str(new), "--case", str(case), "--seed", str(seed), *flags]
            _run(words, say, allowed=(0, 1))
    _run(["report", str(case)], say)
    return _beside(world.truth(), case, time.monotonic() - began, say)


def _empty(out: Path) -> None:
    """An empty folder; one that an earlier demonstration left is emptied, any other is refused."""
    if out.exists() and any(out.iterdir()):
        if not (out / "truth.json").is_file():
            raise UsageError(f"{out} is not empty and no demonstration's; name another folder with --out.")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def _serving(world: World, port: int) -> Iterator[None]:
    server = world.start(port)
    try:
        yield
    finally:
        world.stop(server)


def _run(words: list[str], say: Say, allowed: tuple[int, ...] = (0,), *, neighbour: bool = False) -> None:
    say("")
    say(f"$ fingerprint {shlex.join(words)}" + ("   (while a neighbour is busy)" if neighbour else ""))
    done = subprocess.run([sys.executable, "-m", "fingerprint", *words], check=False)
    if done.returncode not in allowed:
        raise FingerprintError(f"`fingerprint {words[0]}` ended with exit code {done.returncode}; see above.")


def _beside(truth: dict[str, Any], case: Path, seconds: float, say: Say) -> bool:
    verdict = json.loads((case / "verdict.json").read_text(encoding="utf-8"))
    named = sorted(name for culprit in verdict["culprits"] for name in culprit["factors"])
    right = verdict["kind"] == truth["kind"] and named == sorted(truth["culprits"])
    say("")
    say(f"truth:   {truth['kind']}  {' and '.join(truth['culprits']) or '-'}")
    say(f"verdict: {verdict['kind']}  {' and '.join(named) or '-'}  ({verdict['launches']} launches, {seconds:.0f} s)")
    say("The verdict is right." if right else "The verdict is not the truth.")
    return right
