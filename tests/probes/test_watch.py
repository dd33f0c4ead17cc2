"""What is seen of a host while a trial is measured."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes import gpu, surroundings, watch
from probes.watch import Watch


def seen(ours: set[int], nvml: str | None, seconds: float = 0.0) -> dict[str, object]:
    watched = Watch(ours, nvml)
    time.sleep(seconds)
    answer: dict[str, object] = watched.end()
    return answer


def test_shares_of_processor_time_are_shares() -> None:
    answer = seen(set(), None, 0.2)
    for name in ("steal_share", "idle_share"):
        share = answer[name]
        assert isinstance(share, float)
        assert 0.0 <= share <= 1.0


def test_a_measurement_that_is_over_before_the_look_has_no_gpus(fake: str) -> None:
    assert seen(set(), fake)["gpus"] == {}


def test_clocks_and_power_are_seen_while_it_is_measured(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "")
    monkeypatch.setattr(watch, "AFTER_S", 0.0)
    answer = seen({1}, fake, 0.5)
    gpus = answer["gpus"]
    assert isinstance(gpus, dict)
    assert set(gpus) == {"0000:00:06.0", "0000:00:07.0"}
    assert all(isinstance(one["sm_mhz"], int) and one["power_w"] > 0 for one in gpus.values())


def test_processes_that_are_not_ours_are_a_disturbance(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AFTER_S", 0.0)
    monkeypatch.setenv("FAKE_NVML", "foreign")
    disturbances = seen({os.getpid() + 1}, fake, 0.5)["disturbances"]
    assert isinstance(disturbances, list)
    assert any("is not ours" in words for words in disturbances)


def test_a_gpu_that_ours_do_not_use_is_not_watched(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AFTER_S", 0.0)
    monkeypatch.setenv("FAKE_NVML", "neighbour")
    answer = seen({os.getpid()}, fake, 0.5)
    assert isinstance(answer["gpus"], dict)
    assert set(answer["gpus"]) == {"0000:00:06.0"}
    assert "not ours" not in str(answer["disturbances"])


def test_clocks_that_heat_holds_down_are_a_disturbance(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AFTER_S", 0.0)
    monkeypatch.setenv("FAKE_NVML", "hot")
    assert seen({os.getpid()}, fake, 0.5)["disturbances"] == [
        f"GPU 0000:00:0{number}.0: clocks held down by hw_thermal_slowdown, sw_thermal_slowdown" for number in (6, 7)
    ]


def test_time_that_the_hypervisor_took_is_a_share_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter(["cpu 100 0 50 800 50 0 0 0 0 0\ncpu0 1\n", "cpu 140 0 60 820 50 0 0 30 0 0\ncpu0 1\n"])
    monkeypatch.setattr(watch, "_throttled_s", lambda _pid: {})
    monkeypatch.setattr(watch, "read_text", lambda _path: next(pages))
    answer = seen(set(), None)
    assert (answer["steal_share"], answer["idle_share"]) == (0.3, 0.2)


def test_a_driver_that_hangs_does_not_hold_the_measurement_up(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AFTER_S", 0.0)
    monkeypatch.setattr(gpu, "DEADLINE_S", 0.5)
    monkeypatch.setenv("FAKE_NVML", "hang")
    assert seen({1}, fake, 0.2)["gpus"] == {}
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if fake.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a cgroup")
def test_time_for_which_a_quota_held_the_server_up_is_counted() -> None:
    busy = "import time\nprint('ready', flush=True)\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    folder = surroundings.make_cgroup(f"fingerprint-trial-{os.getpid()}-0-2", "10000 100000")
    words = [sys.executable, "-c", busy]
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        free = Watch({server.pid}, None, server.pid)
        assert free.end()["throttled_s"] in {None, 0.0}
        Path(folder, "cgroup.procs").write_text(str(server.pid))
        watched = Watch({server.pid}, None, server.pid)
        time.sleep(0.5)
        throttled = watched.end()["throttled_s"]
        assert throttled > 0
    finally:
        server.kill()
        server.communicate()
        surroundings.remove_cgroup(folder)
