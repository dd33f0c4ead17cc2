"""A capture beside a running server changes nothing on the host."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

from fingerprint.capture import capture
from fingerprint.host import HostProgram
from fingerprint.targets.local import LocalTarget


class Running(Protocol):
    """The launcher of a server that the tests started."""

    pid: int
    port: int
    root: Path


def files(*roots: Path) -> dict[str, tuple[int, int, int, int]]:
    """Every file below: size, owner, time of its contents, time of its inode."""
    found = {}
    for root in roots:
        for place, directories, names in os.walk(root):
            for name in [".", *directories, *names]:
                path = Path(place) / name
                about = path.lstat()
                found[str(path)] = (about.st_size, about.st_uid, about.st_mtime_ns, about.st_ctime_ns)
    return found


def server_processes(pid: int) -> dict[int, tuple[str, ...]]:
    """The server's processes: what stopping, tracing, or writing to one would change."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[3]) != pid:  # its session
                continue
            status = (entry / "status").read_text()
            maps = (entry / "maps").read_bytes()
        except OSError:
            continue
        kept = [
            line for line in status.splitlines() if line.startswith(("TracerPid", "Threads", "Cpus_allowed", "SigQ"))
        ]
        descriptors = ",".join(sorted(each.name for each in (entry / "fd").iterdir()))
        found[int(entry.name)] = (stat[16], *kept, hashlib.sha256(maps).hexdigest(), descriptors)
    return found


def test_a_capture_changes_no_file_and_no_process(running: Running, environment: Path) -> None:
    home = Path(os.environ.get("HOME", "/root"))
    watched = [running.root, environment.parent, *(home / name for name in (".cache", ".gitconfig", ".config"))]
    with HostProgram(LocalTarget()) as host:
        before = files(*watched), server_processes(running.pid)
        assert len(before[1]) >= 5
        snapshot = capture(host, {"pid": running.pid, "verify": True})
        after = files(*watched), server_processes(running.pid)
    assert after == before
    assert snapshot.server.status in {"ok", "partial"}
    assert {name for name, section in snapshot.sections().items() if section.status == "failed"} == set()


def test_a_capture_imports_nothing_of_the_stack(running: Running) -> None:
    """A package that would tell if it were imported."""
    trap = running.root / "tree/python/torch"
    trap.mkdir()
    (trap / "__init__.py").write_text(f"open({str(running.root / 'imported')!r}, 'w')\n")
    (running.root / "tree/python/sitecustomize.py").write_text(f"open({str(running.root / 'imported')!r}, 'w')\n")
    with HostProgram(LocalTarget()) as host:
        snapshot = capture(host, {"pid": running.pid})
    assert not (running.root / "imported").exists()
    assert "sitecustomize.py" in snapshot.startup.files
