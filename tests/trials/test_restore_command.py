"""`fingerprint restore` puts back and removes what killed programs have left, and says what it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from incident_host import Incident

import snapshots
from probes.settings import journal_folder

SETTING = Path("/proc/sys/kernel/numa_balancing")
LEAVES_A_CHANGE = """
import os, signal
from probes.settings import Settings
Settings().change({"proc/sys/kernel/numa_balancing": "1"})
os.kill(os.getpid(), signal.SIGKILL)
"""


def restore() -> list[str]:
    done = subprocess.run([sys.executable, "-m", "fingerprint", "restore"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(
    not os.access(SETTING, os.W_OK) or SETTING.read_text().strip() != "0", reason="this setting cannot be switched here"
)
def test_a_setting_that_a_killed_program_left_changed_is_put_back_and_named() -> None:
    subprocess.run([sys.executable, "-c", LEAVES_A_CHANGE])
    assert SETTING.read_text().strip() == "1"
    assert restore() == ["proc/sys/kernel/numa_balancing is 0 again"]
    assert SETTING.read_text().strip() == "0"
    assert not Path(journal_folder()).exists()
    assert restore() == ["nothing was left behind"]


def test_a_scratch_directory_of_a_program_that_is_gone_is_removed_and_a_living_one_s_stays() -> None:
    gone, living = (Path("/tmp") / f"fingerprint-trial-{pid}-1-1" for pid in (4_000_001, 4_000_002))
    holds = f"from probes import keeper; keeper.hold({str(living)!r}); print('held', flush=True); input()"
    for folder in (gone, living):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner").chmod(0)
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert restore() == [f"removed {gone}"]
        assert living.is_dir()
        owner.communicate(b"\n")
    assert restore() == [f"removed {living}"]
    assert not living.exists()


def test_a_setting_of_the_host_is_no_factor_unless_it_may_be_changed(incident: Incident, tmp_path: Path) -> None:
    sysctls = {**incident.old.host.sysctls, "kernel.numa_balancing": "7"}
    host = incident.old.host.model_copy(update={"sysctls": sysctls})
    snapshots.save(incident.old.model_copy(update={"host": host}), tmp_path / "old.json")
    (tmp_path / "kept").symlink_to(incident.old_path.parent / "kept")
    words = [
        sys.executable, "-m", "fingerprint", "bisect", str(tmp_path / "old.json"), str(incident.new_path),
        "--case", str(tmp_path / "case"), "--only", "host:kernel.numa_balancing",
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "host:kernel.numa_balancing cannot be switched: a launch would really change the host" in done.stderr
    assert "--allow-host-changes" in done.stderr
    assert not (tmp_path / "case").exists()
