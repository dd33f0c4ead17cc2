"""What a trial could leave on this machine, listed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path


def scratch_directories() -> set[str]:
    """Scratch directories of trials; a program that lives still has the files that it was sent, and caches."""
    return {str(path) for path in Path("/tmp").glob("fingerprint-trial-*") if not _is_of_a_living_program(path)}


def _is_of_a_living_program(path: Path) -> bool:
    pid = path.name.split("-")[2]
    return path.name.endswith(("-objects", "-caches")) and Path(f"/proc/{pid}").exists()


def changed(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    """What is no longer as it was, with how."""
    return [f"{name}: {before.get(name)} -> {after.get(name)}" for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)]  # fmt: skip


def processes_of(needle: str) -> set[int]:
    """Processes whose command line, or whose environment at start, mentions `needle`; titles hide the first."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if needle.encode() in text:
            found.add(int(entry.name))
    return found


def contents_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Modes, contents and modification times of everything below a folder, caches of byte code apart."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        status = path.lstat()
        whole = path.is_file() and not path.is_symlink()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if whole else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns if whole else None, digest)
    return found


def named(bisect: Callable[[Path], subprocess.CompletedProcess[str]], folder: Path, culprit: str) -> Path:
    """The first of three cases that names the culprit.

    On a busy machine a case may rightly stay open. None may blame anything else.
    """
    for attempt in range(3):
        case = folder / f"case-{attempt}"
        done = bisect(case)
        assert done.returncode in {0, 1}, done.stderr
        verdict = json.loads((case / "verdict.json").read_text())
        assert [one["factors"] for one in verdict["culprits"]] in ([], [[culprit]]), verdict["sentence"]
        if verdict["culprits"]:
            assert (done.returncode, verdict["kind"]) == (1, "attributed")
            return case
    raise AssertionError(f"three cases stayed open: {verdict['sentence']}")
