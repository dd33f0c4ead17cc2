"""Settings of a host: changed only after the value before is on disk, and put back from there by value."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from probes import settings as host_settings
from probes.ports import free_port
from probes.settings import SettingError, Settings

NUMA = "proc/sys/kernel/numa_balancing"
HUGE = "sys/kernel/mm/transparent_hugepage/enabled"
GPUS = ("0000:00:06.0", "0000:00:07.0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the files of a host; the two kinds of the kernel's own are there."""
    place = tmp_path / "root"
    files = {
        NUMA: "0\n",
        HUGE: "always [madvise] never\n",
        **{f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(3)},
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


@pytest.fixture
def settings(root: Path, tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("FAKE_NVML", "")
    monkeypatch.setenv("FAKE_NVML_STATE", str(tmp_path / "driver"))
    (tmp_path / "driver").mkdir()
    return Settings(str(root), [fake], str(tmp_path / "journal"))


def text(root: Path, name: str) -> str:
    return (root / name).read_text().strip()


def test_files_are_changed_and_put_back_by_value(settings: Settings, root: Path, tmp_path: Path) -> None:
    changed = settings.change({NUMA: "1", "governor": "powersave"})
    assert len(changed) == 4
    assert text(root, NUMA) == "1"
    governors = [path.read_text() for path in root.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")]
    assert governors == ["powersave"] * 3
    said = settings.put_back(server=True)
    assert f"{NUMA} is 0 again" in said
    assert len(said) == 4
    assert text(root, NUMA) == "0"
    assert not (tmp_path / "journal").exists()
    assert settings.put_back(server=True) == []


def test_the_value_before_is_on_disk_before_the_change(
    settings: Settings, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, write = os.fsync, Settings._write

    def noted(handle: int) -> None:
        order.append("on disk")
        sync(handle)

    def written(self: Settings, name: str, value: object) -> None:
        line = json.loads((tmp_path / "journal" / "before.jsonl").read_text().splitlines()[-1])
        assert (line["name"], line["before"], text(root, name)) == (NUMA, "0", "0")
        order.append("changed")
        write(self, name, value)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Settings, "_write", written)
    settings.change({NUMA: "1"})
    assert order == ["on disk", "on disk", "changed"]  # the file, its folder, and only then the setting


def test_what_has_the_value_already_is_not_touched(settings: Settings, tmp_path: Path) -> None:
    assert settings.change({NUMA: "0", HUGE: "madvise"}) == []
    assert not (tmp_path / "journal").exists()


def test_a_host_whose_journal_cannot_be_written_is_not_changed(settings: Settings, root: Path, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(SettingError, match="is not changed"):
        settings.change({NUMA: "1"})
    assert text(root, NUMA) == "0"


def test_a_journal_that_others_may_write_is_not_followed(settings: Settings, root: Path, tmp_path: Path) -> None:
    line = {"name": NUMA, "before": "7", "boot": host_settings._boot()}
    (tmp_path / "journal").mkdir(mode=0o777)
    (tmp_path / "journal").chmod(0o777)
    (tmp_path / "journal" / "before.jsonl").write_text(json.dumps(line) + "\n")
    assert settings.put_back(server=True, abandoned=True) == []
    assert text(root, NUMA) == "0"


def test_what_cannot_be_put_back_is_said_and_stays_in_the_journal(settings: Settings, root: Path) -> None:
    settings.change({NUMA: "1"})
    (root / NUMA).unlink()
    (root / NUMA).mkdir()
    said = settings.put_back(server=True)
    assert len(said) == 1
    assert "could NOT be put back to 0" in said[0]
    assert [line["name"] for line in settings.noted()] == [NUMA]
    (root / NUMA).rmdir()
    (root / NUMA).write_text("1\n")
    assert settings.put_back(server=True) == [f"{NUMA} is 0 again"]


def test_after_a_restart_of_the_machine_its_settings_are_its_own(
    settings: Settings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.change({NUMA: "1"})
    monkeypatch.setattr(host_settings, "_boot", lambda: "another boot")
    said = settings.put_back(server=True)
    assert said == [f"{NUMA}: the machine was started again since; left as it is"]
    assert text(root, NUMA) == "1"


def test_changed_twice_the_first_value_comes_back(settings: Settings, root: Path) -> None:
    settings.change({NUMA: "1"})
    settings.change({NUMA: "2"})
    settings.put_back(server=True)
    assert text(root, NUMA) == "0"


def test_what_is_no_setting_is_refused(settings: Settings, root: Path) -> None:
    for name in ("etc/passwd", "proc/sys/kernel/../../etc/x", "gpu/nonsense/power_limit_w", "proc/sysrq-trigger"):
        assert "is no setting" in (settings.refusal({name: "1"}) or "")
        with pytest.raises(SettingError, match="is no setting"):
            settings.change({name: "1"})
    assert settings.refusal({NUMA: "1", HUGE: "never"}) is None
    (root / NUMA).unlink()
    assert "cannot be read" in (settings.refusal({NUMA: "1"}) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="NVML lets only root set them")
def test_clocks_power_and_persistence_of_gpus_are_set_and_put_back(settings: Settings, tmp_path: Path) -> None:
    names = [f"gpu/{bus}/{what}" for bus in GPUS for what in ("power_limit_w", "persistence", "clocks")]
    before = settings.read(names)
    assert before == dict(zip(names, (700.0, True, "345-1980") * 2, strict=True))
    wanted = dict(zip(names, (500.0, False, "1200-1200") * 2, strict=True))
    assert settings.refusal(wanted) is None
    assert sorted(settings.change(wanted)) == sorted(names)
    assert settings.read(names) == wanted
    said = settings.put_back(server=True)
    assert len(said) == 6
    assert settings.read(names) == before
    assert not (tmp_path / "journal").exists()


def test_a_driver_that_refuses_leaves_everything_as_it_was(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gpu/{GPUS[0]}/power_limit_w"
    with pytest.raises(SettingError, match="cannot be set: Invalid Argument"):
        settings.change({name: 50.0})
    monkeypatch.setenv("FAKE_NVML", "refuses")
    with pytest.raises(SettingError, match="Insufficient Permissions"):
        settings.change({name: 500.0})
    assert settings.put_back(server=True) == [f"{name} is 700.0 as before"]


def test_clocks_that_could_not_be_put_back_are_not_changed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "old")
    name = f"gpu/{GPUS[0]}/clocks"
    with pytest.raises(SettingError, match="cannot be read"):
        settings.change({name: "1200-1200"})
    assert "cannot be read" in (settings.refusal({name: "1200-1200"}) or "")


CHANGE = """
import sys
from probes.settings import Settings
Settings(sys.argv[1], None, sys.argv[2]).change({sys.argv[3]: "1"})
print("changed", flush=True)
input()
"""


@pytest.fixture
def changer(root: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program that has changed a setting and waits."""
    words = [sys.executable, "-c", CHANGE, str(root), str(tmp_path / "journal"), NUMA]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "changed\n"
        yield process
        process.kill()


def test_only_what_a_program_that_is_gone_has_left_is_put_back(
    settings: Settings, root: Path, changer: subprocess.Popen[str]
) -> None:
    assert settings.put_back(server=True, abandoned=True) == []
    assert settings.put_back(server=True) == []
    assert text(root, NUMA) == "1"
    with pytest.raises(SettingError, match="another program changes settings"):
        settings.change({HUGE: "never"})
    assert text(root, HUGE) == "always [madvise] never"
    changer.send_signal(signal.SIGKILL)
    changer.wait()
    assert settings.put_back(server=True, abandoned=True) == [f"{NUMA} is 0 again"]
    assert text(root, NUMA) == "0"


def test_a_line_that_was_cut_off_is_left_out(settings: Settings, root: Path, tmp_path: Path) -> None:
    settings.change({NUMA: "1"})
    with (tmp_path / "journal" / "before.jsonl").open("a") as stream:
        stream.write('{"name": "proc/sys/vm/swap')
    assert settings.put_back(server=True) == [f"{NUMA} is 0 again"]
    assert text(root, NUMA) == "0"


def gone(settings: Settings, changes: dict[str, object]) -> None:
    """Change settings as a program does that then is no more: its lock goes with it."""
    settings.change(changes)
    assert settings._held is not None
    os.close(settings._held)


@settings_of_hypothesis(max_examples=30)
@given(cut=st.integers(0, 400), torn=st.binary(max_size=40))
def test_whatever_a_power_loss_leaves_of_the_journal_the_whole_lines_count(
    tmp_path_factory: pytest.TempPathFactory, cut: int, torn: bytes
) -> None:
    place = tmp_path_factory.mktemp("host")
    names = [NUMA, "proc/sys/vm/swappiness", HUGE]
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("0\n")
    journal = place / "journal" / "before.jsonl"
    gone(Settings(str(place), None, str(journal.parent)), dict.fromkeys(names, "1"))
    whole = journal.read_bytes()
    journal.write_bytes(whole[:cut] + torn)
    kept = [name for name in names if json.dumps(name).encode() + b", " in whole[: whole[:cut].rfind(b"\n") + 1]]
    Settings(str(place), None, str(journal.parent)).put_back(server=True, abandoned=True)
    assert [text(place, name) for name in names] == ["0" if name in kept else "1" for name in names]


def test_a_line_after_one_that_was_cut_off_is_read(settings: Settings, root: Path, tmp_path: Path) -> None:
    settings.change({HUGE: "never"})
    with (tmp_path / "journal" / "before.jsonl").open("a") as stream:
        stream.write('{"name": "proc/sys/vm/swap')
    settings.change({NUMA: "1"})
    assert settings.put_back(server=True) == [f"{NUMA} is 0 again", f"{HUGE} is madvise again"]


def test_after_a_power_loss_the_next_command_starts_the_server_and_leaves_the_rest_as_the_machine_has_it(
    settings: Settings, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"command": "systemctl start engine", "cwd": "/srv", "port": 30000}
    settings.note(host_settings.SERVER, how)
    gone(settings, {NUMA: "1", HUGE: "never"})
    journal = tmp_path / "journal" / "before.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"name": "proc/sys/vm/sw\0\0\0\0')
    (root / NUMA).write_text("0\n")  # the machine's own again
    (root / HUGE).write_text("[always] madvise never\n")  # what its administrator meanwhile decided
    monkeypatch.setattr(host_settings, "_boot", lambda: "another boot")
    monkeypatch.setattr(host_settings, "start_server", lambda how: f"started: {how['command']}")
    after = Settings(str(root), None, str(tmp_path / "journal"))
    assert after.put_back(server=True, abandoned=True) == [
        f"{HUGE}: the machine was started again since; left as it is",
        f"{NUMA}: the machine was started again since; left as it is",
        "started: systemctl start engine",
    ]
    assert (text(root, NUMA), text(root, HUGE)) == ("0", "[always] madvise never")
    assert not (tmp_path / "journal").exists()


SERVER = "import socket,sys,time; s=socket.create_server(('127.0.0.1',int(sys.argv[1]))); time.sleep(600)"


def test_a_production_server_is_stopped_and_started_again_out_of_reach(settings: Settings, tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-c", SERVER, str(port)]
    first = subprocess.Popen(words)
    while not host_settings.listens(port):
        assert first.poll() is None
        time.sleep(0.01)
    start = f"{sys.executable} -c '{SERVER.replace(chr(39), chr(34))}' {port}"
    settings.note(host_settings.SERVER, {"command": start, "cwd": str(tmp_path), "port": port})
    host_settings.stop_server(f"kill {first.pid}", [first.pid])
    assert first.wait() == -signal.SIGTERM
    assert settings.put_back(server=False) == []
    assert not host_settings.listens(port)
    said = settings.put_back(server=True)
    assert said == [f"the production server was started again: {start}"]
    while not host_settings.listens(port):
        time.sleep(0.01)
    (second,) = [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if str(port).encode() in _words(path)
    ]
    try:
        assert os.getsid(second) == second  # in a session of its own
        assert settings.put_back(server=True) == []
    finally:
        os.kill(second, signal.SIGKILL)


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_stop_command_that_fails_is_said(settings: Settings) -> None:
    with pytest.raises(SettingError, match="the stop command failed: false: exit status 1"):
        host_settings.stop_server("false", [])
