"""Startup files of the system's own interpreter: swapped and masked in a trial, and the system's stay."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from test_trees_on_a_host import NUMBER
from test_trials import unproven

from fingerprint.factors import LaunchPlan
from fingerprint.factors.startup import StartupCode
from fingerprint.host import HostProgram
from probes import care
from snapshots import StartupFile

PYTHON = Path("/usr/bin/python3")
SAYS = """
import os, sys, time
try:
    import sitecustomize
    print(getattr(sitecustomize, "MS", 5), "ms", flush=True)
except ImportError:
    print("7 ms", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
"""


@pytest.fixture
def library() -> Path:
    """Where the system's sitecustomize lies."""
    if not PYTHON.exists():
        pytest.skip("no /usr/bin/python3 on this machine")
    if care.can_isolate() is not None:
        pytest.skip("without a mount namespace the system's own files stay: run as root")
    code = "import os; print(os.path.dirname(os.__file__))"
    return Path(subprocess.check_output([PYTHON, "-I", "-S", "-c", code], text=True).strip())


def test_the_system_s_sitecustomize_is_swapped_and_masked(host: HostProgram, library: Path, tmp_path: Path) -> None:
    path = library / "sitecustomize.py"
    before = path.read_bytes() if path.exists() else None
    text = "MS = 30\n"
    there = StartupFile(path=str(path), sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)
    now = StartupFile(path=str(path), sha256=hashlib.sha256(before or b"").hexdigest(), text="")
    live = now if before is not None else None
    host.call("prepare", {"pid": None})
    proven = tmp_path / "proven"
    for old, ms in ((there, 30), (None, 7)):
        plan = LaunchPlan([str(PYTHON), "-c", SAYS, str(proven)], "/", {"PATH": "/bin"}, None)
        StartupCode("startup:sitecustomize", "", "", old, live or there).apply(plan, new=False)
        ask = {**plan.to_json(), "run": NUMBER, "stop_s": 1.0}
        answer = host.call("try", ask, lambda _event, value: proven.touch() if value["stage"] == "measuring" else None)
        proven.unlink()
        assert unproven(answer) == []
        assert [one["time_ms"] for one in answer["figures"]["samples"]] == [ms]
    assert (path.read_bytes() if path.exists() else None) == before
