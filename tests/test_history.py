"""The history: nothing is lost, nothing is stored twice, and every reference means one record or says why not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerprint.errors import FingerprintError, HistoryError, SnapshotError, UsageError
from fingerprint.history import History, default_root, log, snapshot_of
from fingerprint.report.logs import log_json, render_log
from snapshots import Measured, Packages, Snapshot, save
from snapshots.packages import Distribution

UTC = timezone.utc
DAY = datetime(2026, 11, 3, 8, 0, tzinfo=UTC)


def capture(
    version: str = "1.0", at: datetime = DAY, figure: float | None = None, target: str = "gpu-17", size: int = 0
) -> Snapshot:
    held = {"numpy": Distribution(version=version, location="/lib")}
    files = {"numpy": {f"f{n}": f"{n:064x}" for n in range(size)}} if size else {}
    measured = None if figure is None else Measured(metric="verify_ms", value=figure, source="engine timer")
    packages = Packages(status="ok", distributions=held, files=files)
    return Snapshot(tool="0.1.0", taken_at=at, target=target, measured=measured, packages=packages)


def clock(start: datetime = DAY) -> Callable[[], datetime]:
    def ticks() -> Iterator[datetime]:
        at = start
        while True:
            at += timedelta(seconds=1)
            yield at

    moments = ticks()
    return lambda: next(moments)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history", clock(), UTC)


def test_what_is_recorded_comes_back_with_its_figure_and_time(history: History) -> None:
    history.record(capture(figure=19.1))
    record = history.resolve("@last")
    snapshot = history.load(record)
    assert snapshot.id == capture().id
    assert snapshot.measured == capture(figure=19.1).measured
    assert snapshot.taken_at == DAY


def test_equal_captures_are_stored_once_with_a_record_each(history: History) -> None:
    for hour in range(5):
        history.record(capture(at=DAY + timedelta(hours=hour), figure=19.0 + hour))
    assert len(list((history.root / "snapshots").glob("*.json"))) == 1
    assert [record.measured.value for record in history.records() if record.measured] == [19, 20, 21, 22, 23]
    second = history.load(history.records()[1])
    assert (second.taken_at, second.measured and second.measured.value) == (DAY + timedelta(hours=1), 20)


def test_references_mean_what_they_say(history: History) -> None:
    first = history.record(capture("1.0", DAY), tag="good")
    noon = history.record(capture("1.1", DAY + timedelta(hours=4)))
    next_day = history.record(capture("1.2", DAY + timedelta(days=1)))
    meant = {
        "@last": next_day, "@first": first, "@good": first, "@2026-11-03": noon, "@2026-11-04": next_day,
        "@2026-11-03T08:00": first, "@2026-11-03T11:59": first, "@2026-11-03T12:00": noon,
        f"@{noon.snapshot[:10]}": noon, "@last@gpu-17": next_day,
    }  # fmt: skip
    assert {name: history.resolve(name).name for name in meant} == {name: one.name for name, one in meant.items()}


@pytest.mark.parametrize("reference", ["@2026-11-05", "@nothing", "@0123456789", "@last@elsewhere", "@", "@2026-02-30"])
def test_a_reference_to_nothing_says_what_there_is(history: History, reference: str) -> None:
    history.record(capture(), tag="good")
    with pytest.raises(HistoryError, match=r"holds nothing|has nothing called"):
        history.resolve(reference)


def test_an_empty_history_says_how_to_fill_it(history: History) -> None:
    with pytest.raises(HistoryError, match="fingerprint record"):
        history.resolve("@last")


def test_last_of_several_hosts_asks_which(history: History) -> None:
    history.record(capture(target="gpu-1"))
    history.record(capture(target="gpu-2"))
    with pytest.raises(HistoryError, match=r"could be one of 2 hosts \(gpu-1, gpu-2\).*@last@gpu-1"):
        history.resolve("@last")
    assert history.resolve("@last@gpu-2").target == "gpu-2"


def test_a_day_is_a_day_where_the_reader_is(tmp_path: Path) -> None:
    history = History(tmp_path, clock(), timezone(timedelta(hours=9)))
    history.record(capture(at=datetime(2026, 11, 2, 16, 0, tzinfo=UTC)))
    assert history.resolve("@2026-11-03").at == datetime(2026, 11, 2, 16, 0, tzinfo=UTC)


def test_a_tag_moves_and_goes(history: History) -> None:
    history.record(capture("1.0"), tag="good")
    history.record(capture("1.1"))
    history.tag("@last", "good")
    assert history.load(history.resolve("@good")).packages.distributions["numpy"].version == "1.1"
    history.untag("good")
    with pytest.raises(HistoryError):
        history.resolve("@good")
    with pytest.raises(HistoryError, match="no tag good"):
        history.untag("good")


@pytest.mark.parametrize("name", ["last", "../x", "", "a/b", "deadbeef", "2026", ".x", "x" * 80, "a\nb"])
def test_what_cannot_be_a_tag_is_refused_and_nothing_is_recorded(history: History, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a tag"):
        history.record(capture(), tag=name)
    assert history.records() == []


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30))
def test_any_reference_is_a_record_or_a_sentence(history: History, text: str) -> None:
    if not history.records():
        history.record(capture(), tag="good")
    said = ""
    try:
        said = history.resolve(f"@{text}").name
    except FingerprintError as error:
        said = str(error)
    assert said.endswith((".", ".json"))


def test_an_argument_is_a_file_or_a_reference(history: History, tmp_path: Path) -> None:
    save(capture("2.0"), tmp_path / "x.json")
    history.record(capture("1.0"))
    assert snapshot_of(str(tmp_path / "x.json"), history)[0].id == capture("2.0").id
    snapshot, path = snapshot_of("@last", history)
    assert snapshot.id == capture("1.0").id
    assert path.parent == history.root / "snapshots"


def test_the_log_says_what_changed_between_neighbours(history: History) -> None:
    history.record(capture("1.0", figure=19.0), tag="good")
    history.record(capture("1.0", DAY + timedelta(hours=1), figure=19.2))
    history.record(capture("1.1", DAY + timedelta(hours=2), figure=29.0))
    history.record(capture("1.1", DAY + timedelta(hours=3), target="gpu-18"))
    entries = log(history)
    assert [(entry.first, bool(entry.changed)) for entry in entries] == [
        (True, False), (False, False), (False, True), (True, False),
    ]  # fmt: skip
    text = render_log(entries, plot=True).splitlines()
    assert "[good]" in text[0]
    assert "unchanged" in text[1]
    assert "numpy" in text[2]
    assert "29.00 ms" in text[2]
    assert text[0].index("●") < text[1].index("●") < text[2].index("●")
    assert "not measured" in text[3]
    assert [row["tags"] for row in json.loads(log_json(entries))] == [["good"], [], [], []]
    assert len(log(history, limit=2)) == 2
    assert [entry.record.target for entry in log(history, "gpu-18")] == ["gpu-18"]


def test_the_log_shows_hostile_text_as_text(history: History) -> None:
    history.record(capture("1.0", target="\x1b[31mred\u202e"))
    hostile = {"\x1b]0;title\x07": Distribution(version="1", location="/lib")}
    packages = Packages(status="ok", distributions=hostile)
    later = capture("1.1", DAY + timedelta(hours=1), target="\x1b[31mred\u202e")
    history.record(later.model_copy(update={"packages": packages}))
    text = render_log(log(history), plot=True)
    assert all(c.isprintable() or c == "\n" for c in text)
    json.loads(log_json(log(history)))


def test_the_log_of_nothing_says_so(history: History) -> None:
    assert "Nothing was recorded yet" in render_log(log(history))


def test_an_edited_snapshot_is_not_believed(history: History) -> None:
    record = history.record(capture("1.0"))
    path = history.path(record.snapshot)
    path.write_text(path.read_text().replace('"1.0"', '"9.9"'))
    with pytest.raises(SnapshotError, match="does not match its own digest"):
        history.load(record)
    path.write_text(capture("3.0").text())
    with pytest.raises(SnapshotError, match="another snapshot"):
        history.load(record)


def test_a_history_outlives_a_version_that_reads_another_identity(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = history.record(capture("1.0"), tag="good")
    monkeypatch.setattr(Snapshot, "id", property(lambda _self: "f" * 64))
    assert history.load(history.resolve("@good")).packages.distributions["numpy"].version == "1.0"
    assert history.resolve(f"@{record.snapshot[:12]}").name == record.name


def test_a_damaged_record_is_named(history: History) -> None:
    record = history.record(capture())
    (history.root / "records" / record.name).write_text("{")
    with pytest.raises(HistoryError, match="is damaged"):
        history.records()


# -- keeping to a size -------------------------------------------------------------------------------------------


def aged(history: History) -> None:
    """Let everything be as old as its name says."""
    for path in history.root.rglob("*"):
        os.utime(path, (DAY.timestamp() - 10, DAY.timestamp() - 10))


def test_pruning_takes_the_oldest_and_leaves_tags_and_the_last_of_each_host(tmp_path: Path) -> None:
    history = History(tmp_path, clock(DAY + timedelta(hours=3)), UTC)
    for number in range(6):
        history.record(
            capture(f"1.{number}", DAY + timedelta(minutes=number), size=300), tag="good" if number == 1 else None
        )
    history.record(capture("7", DAY - timedelta(days=9), target="gpu-2", size=300))
    aged(history)
    whole = history.prune(10**9)
    assert (whole.records, whole.snapshots) == (0, 0)
    pruned = history.prune(whole.bytes_left * 9 // 14)
    assert pruned.bytes_left <= whole.bytes_left * 9 // 14
    left = [history.load(record).packages.distributions["numpy"].version for record in history.records()]
    assert left == ["7", "1.1", "1.4", "1.5"]
    assert history.prune(0).records == 1
    assert [record.target for record in history.records()] == ["gpu-2", "gpu-17", "gpu-17"]


def test_pruning_leaves_what_another_writer_may_just_have_written(tmp_path: Path) -> None:
    history = History(tmp_path, lambda: datetime.now(UTC), UTC)
    for number in range(3):
        history.record(capture(f"1.{number}", DAY + timedelta(minutes=number)))
    (tmp_path / "snapshots" / ".partial-abc").write_text("half")
    assert history.prune(0).records == 0
    assert len(history.records()) == 3
    assert (tmp_path / "snapshots" / ".partial-abc").exists()


def test_pruning_sweeps_partial_files_and_files_that_nothing_refers_to(tmp_path: Path) -> None:
    history = History(tmp_path, clock(DAY + timedelta(hours=3)), UTC)
    history.record(capture("1.0", size=2))
    orphan = capture("9.9")
    save(orphan, history.path(orphan.id))
    (tmp_path / "snapshots" / ".partial-abc").write_text("half")
    for digest in (f"{1:064x}", f"{77:064x}"):
        place = tmp_path / "snapshots" / "kept" / digest[:2] / digest
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
    aged(history)
    assert history.prune().snapshots == 1
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        f"{capture('1.0', size=2).id}.json", history.records()[0].name, f"{1:064x}",
    }  # fmt: skip


# -- what can go wrong -------------------------------------------------------------------------------------------

PATHS = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
WRITER = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_history import capture
from fingerprint.history import History
history = History(Path({root!r}))
print("ready", flush=True)
for number in range({count}):
    history.record(capture(f"{name}.{{number % 5}}", size=50), tag="latest")
    print(number, flush=True)
"""


def writer(root: Path, name: str, count: int) -> subprocess.Popen[str]:
    code = WRITER.format(paths=PATHS, root=str(root), name=name, count=count)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    writers = [writer(tmp_path, name, 40) for name in ("1", "2")]
    for one in writers:
        one.communicate(timeout=120)
        assert one.returncode == 0
    history = History(tmp_path)
    assert len(history.records()) == 80
    assert len({history.load(record).id for record in history.records()}) == 10
    assert history.resolve("@latest") in history.records()


def test_a_writer_that_is_killed_leaves_only_whole_records(tmp_path: Path) -> None:
    history = History(tmp_path)
    said = 0
    for attempt in range(6):
        one = writer(tmp_path, str(attempt), 10_000)
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        for _ in range(attempt):
            one.stdout.readline()
            said += 1
        time.sleep(0.003 * attempt)  # somewhere within the next recording
        one.send_signal(signal.SIGKILL)
        one.wait()
        one.stdout.close()
    records = history.records()
    assert len(records) >= said > 0
    for record in records:
        assert history.load(record).id == record.snapshot
    history.record(capture("after"))
    assert history.load(history.resolve("@last@gpu-17")).id


def private_disk() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.mark.skipif(not private_disk(), reason="no private mount namespace here, so no disk to fill")
def test_a_full_disk_is_said_and_changes_nothing(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
sys.path[:0] = {PATHS!r}
from test_history import capture
from fingerprint.history import History
from fingerprint.errors import HistoryError
history = History(Path({str(tmp_path / "disk")!r}) / "history")
stored = 0
try:
    for number in range(200):
        history.record(capture(str(number), size=60))
        stored += 1
except HistoryError as error:
    assert "No space left" in str(error), error
else:
    raise AssertionError("the disk was not full")
assert stored > 2 and len(history.records()) == stored
assert all(history.load(record) for record in history.records())
assert not list(Path({str(tmp_path / "disk")!r}).rglob(".partial-*"))
"""
    (tmp_path / "disk").mkdir()
    (tmp_path / "fill.py").write_text(code)
    script = f"mount -t tmpfs -o size=200k none {tmp_path / 'disk'} && exec {sys.executable} {tmp_path / 'fill.py'}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be written"):
        History(tmp_path / "file" / "history").record(capture())


def test_the_place_comes_from_the_environment() -> None:
    assert default_root({"FINGERPRINT_HISTORY": "/shared/history"}) == Path("/shared/history")
    assert default_root({"XDG_STATE_HOME": "/state"}) == Path("/state/fingerprint/history")
    assert default_root({"HOME": "/home/a"}) == Path("/home/a/.local/state/fingerprint/history")
