"""Care before the first trial: whose the lock is, and what speaks against trials on this host now."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from probes import care


def test_the_lock_names_its_owner() -> None:
    code = "from probes import care; lock = care.take_lock(); print('held', flush=True); input()"
    variables = {**os.environ, "SSH_CONNECTION": "192.0.2.7 5022 192.0.2.1 22"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(care.BusyError) as refused:
            care.take_lock()
        owner.communicate(b"\n")
    whose = rf"running on this host: process {owner.pid} of user \S+, since 20\d\d-.* UTC, from 192\.0\.2\.7;"
    assert re.search(whose, str(refused.value))
    care.take_lock().close()  # it goes with its owner


def test_a_host_with_room_has_no_objections(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x" * 10_000)
    ask = {"trees": [str(tmp_path / "tree")], "prefixes": [str(tmp_path)], "bytes": 1 << 20, "isolation": "copies"}
    assert care.objections(ask, [os.getpid()]) == []


def test_memory_is_asked_for_as_much_as_the_live_server_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    own = care.resident_bytes([os.getpid()])
    assert own > 1 << 20
    monkeypatch.setattr(care, "_available_bytes", lambda: own // 2)
    (words,) = care.objections({}, [os.getpid()])
    assert "of memory and" in words
    assert "--stop-command" in words
    assert care.objections({"stops": True}, [os.getpid()]) == []
    (words,) = care.objections({"stops": True, "bytes": 4 * own}, [os.getpid()])
    assert "--stop-command" not in words


def test_disk_is_asked_for_only_where_copies_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        f_bavail, f_frsize = 1, 512

    (tmp_path / "file").write_bytes(b"x" * 10_000)
    monkeypatch.setattr("os.statvfs", lambda _place: Full)
    ask = {"trees": [str(tmp_path)]}
    (words,) = care.objections({**ask, "isolation": "copies"}, [])
    assert "copies for a trial need about" in words
    monkeypatch.setattr(care, "can_isolate", lambda: None)
    assert care.objections(ask, []) == []


def test_gpus_that_others_use_are_refused(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "foreign")
    found = care.objections({}, [], fake)
    assert len(found) == 2
    assert all(re.match(r"GPU 0000:00:0[67]\.0 is used by others: process \d+", words) for words in found)
    monkeypatch.setenv("FAKE_NVML", "")
    assert care.objections({}, [], fake) == []


def test_gpus_beside_those_of_the_live_server_may_be_used_by_others(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "neighbour")
    assert not any("used by others" in words for words in care.objections({}, [os.getpid()], fake))


def test_a_gpu_without_room_for_a_second_server_is_refused(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "full")
    live = [os.getpid()]  # the process that the fake tells of is the one that asks
    found = care.objections({}, live, fake)
    assert found == [
        f"GPU 0000:00:0{number}.0 has 10.0 GiB free and another server needs about 129.5 GiB;"
        " --stop-command stops the production server meanwhile"
        for number in (6, 7)
    ]
    assert care.objections({"stops": True}, live, fake) == []  # then that memory is free


def test_gpu_memory_of_ended_processes_is_waited_for(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "foreign")
    us = os.getpid()  # the process that the fake tells of is the one that asks
    assert len(care.still_on_gpus([us], fake, 0.0)) == 2
    assert care.still_on_gpus([us + 1], fake, 0.0) == []
    monkeypatch.setenv("FAKE_NVML", "")
    assert care.still_on_gpus([us], fake, 30.0) == []


def test_a_private_world_is_tried_and_nothing_is_left_of_it() -> None:
    before = set(Path("/tmp").glob("fingerprint-*"))
    assert care.can_isolate() is None or isinstance(care.can_isolate(), str)
    assert set(Path("/tmp").glob("fingerprint-*")) == before
    assert "fingerprint" not in Path("/proc/self/mountinfo").read_text()
