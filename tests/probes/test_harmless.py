"""A capture beside a running server changes nothing on the host."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

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


PRIORITY = """
import os, sys, threading
from probes import capture
os.nice(int(sys.argv[1]))
if os.geteuid() == 0:
    os.setuid(65534)  # nobody may become less nice
capture.PROBES["own"] = lambda context: {"nice": os.getpriority(os.PRIO_PROCESS, threading.get_native_id())}
print(capture._section("own", {}, 10.0))
"""


@pytest.mark.parametrize(("given", "there"), [(0, 10), (15, 15)])
def test_a_capture_is_nice_and_never_less_nice_than_it_was_started(given: int, there: int) -> None:
    already = os.getpriority(os.PRIO_PROCESS, 0)
    done = subprocess.run([sys.executable, "-c", PRIORITY, str(given)], capture_output=True, text=True)
    assert f"'nice': {min(max(there, already + given), 19)}" in done.stdout, done.stderr
