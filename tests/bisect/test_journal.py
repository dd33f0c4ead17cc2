"""The journal: what a resumed case rests on."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.bisect.journal import CaseLine, EndLine, FactorLine, Journal, TrialLine
from fingerprint.errors import CaseError

AT = datetime(2026, 11, 3, 9, 30, tzinfo=timezone.utc)
CASE = CaseLine(
    at=AT, tool="0.1.0", target="local", old="a", new="b", seed=1, engine="reference",
    factors=[FactorLine(id="variable:A", old="1", new="2")], fixed=[], prior={"variable:A": 0.5},
)  # fmt: skip


def trial(number: int) -> TrialLine:
    return TrialLine(number=number, at=AT, hours=0.0, new=["variable:A"], status="measured", value_ms=7.5)


def written(path: Path) -> Journal:
    journal = Journal(path)
    for line in (CASE, trial(1), trial(2), EndLine(at=AT, verdict="phantom", host_before="x", host_after="x")):
        journal.append(line)
    return journal


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    journal = written(tmp_path / "journal.jsonl")
    assert journal.case() == CASE
    assert journal.trials() == [trial(1), trial(2)]
    end = journal.end()
    assert end is not None
    assert end.verdict == "phantom"


def test_a_line_that_was_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = written(path).path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:2]) + whole[2][:40])
    assert Journal(path).trials() == [trial(1)]
    assert Journal(path).end() is None


@given(st.integers(min_value=0))
def test_a_damaged_line_before_the_last_is_refused_not_skipped(place: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        whole = written(path).path.read_text().splitlines(keepends=True)
        at = place % 3
        whole[at] = '{"event": "trial"}\n'
        path.write_text("".join(whole))
        with pytest.raises(CaseError, match=f"line {at + 1}"):
            list(Journal(path).lines())


def test_a_folder_without_a_case_is_said_to_hold_none(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="case folder"):
        Journal(tmp_path / "journal.jsonl").case()
