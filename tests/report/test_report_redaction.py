"""A redacted case: no name is left anywhere, and everything still says what it said."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_cases import MORNING, NOW, A, incident, one, snapshot

from fingerprint.case import Case
from fingerprint.diff import compare
from fingerprint.errors import CaseError
from fingerprint.report import write_reports
from fingerprint.report.bundle import verify_bundle, write_bundle
from fingerprint.report.redaction import case_key, preview, redact_case, redacted

NAMES = ("falcon-17", "annabel", "10.20.30.40", "secretproject")
PLACE = {"HOSTNAME": "falcon-17", "USER": "annabel", "MASTER_ADDR": "10.20.30.40", "HOME": "/home/annabel"}
PATCH = "--- a\n+++ b\n+# annabel: for secretproject\n+slow()\n"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("redaction") / "case"
    logs = {"NCCL_DEBUG_FILE": "/data/secretproject/nccl.log"}
    old = snapshot({**PLACE, "PATH": "/bin"}, at=MORNING, target="annabel@falcon-17", measured=10.0)
    new = snapshot(
        {**PLACE, **logs, "PATH": "/bin", "NCCL_PROTO": "Simple"}, at=NOW, target="annabel@falcon-17", measured=12.0,
        patches={"python/engine.py": PATCH},
    )  # fmt: skip
    made, _ = incident(folder, one(A), old=old, new=new)
    write_reports(made)
    return made


def contents(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_name_is_left_in_any_file(case: Case, tmp_path: Path) -> None:
    assert all(name in contents(case.folder) for name in NAMES)
    redact_case(case, tmp_path / "shared", "texts")
    text = contents(tmp_path / "shared")
    assert [name for name in NAMES if name in text] == []
    assert "slow()" not in text


def test_it_still_says_what_it_said(case: Case, tmp_path: Path) -> None:
    copy = redact_case(case, tmp_path / "shared")
    assert copy.outcome().sentence == case.outcome().sentence
    assert copy.outcome().culprits == case.outcome().culprits
    assert [trial.value_ms for trial in copy.journal.trials()] == [trial.value_ms for trial in case.journal.trials()]
    assert copy.journal.case().old == copy.old.id
    assert "NCCL_PROTO=Simple explains" in (copy.folder / "report.md").read_text()
    before = [(one.title, one.verdict) for one in compare(case.old, case.new).differences]
    after = [(one.title, one.verdict) for one in compare(copy.old, copy.new).differences]
    assert after == before


def test_who_has_the_originals_and_the_key_gets_the_same_snapshots(case: Case, tmp_path: Path) -> None:
    for level in ("names", "texts"):
        copy = redact_case(case, tmp_path / level, level)
        hosts = frozenset({"falcon-17"})
        assert redacted(case.old, case_key(case.folder), level, hosts).id == copy.old.id
        assert redacted(case.old, b"another key", level, hosts).id != copy.old.id


def test_the_key_stays_at_home(case: Case, tmp_path: Path) -> None:
    copy = redact_case(case, tmp_path / "shared")
    key = case_key(case.folder)
    assert (case.folder / "redaction.key").stat().st_mode & 0o077 == 0
    assert key == case_key(case.folder)
    assert key.hex() not in contents(copy.folder)
    write_bundle(copy, tmp_path / "case.zip", redaction="names")
    write_bundle(case, tmp_path / "open.zip")
    for bundle in ("case.zip", "open.zip"):
        assert "redaction.key" not in verify_bundle(tmp_path / bundle).manifest.files
    assert verify_bundle(tmp_path / "case.zip").manifest.redaction == "names"


def test_the_preview_lists_what_would_be_replaced(case: Case, tmp_path: Path) -> None:
    shown = {one.name: one for one in preview(case)}
    assert shown["falcon-17"].kind == "host"
    assert shown["annabel"].kind == "user"
    assert shown["10.20.30.40"].kind == "address"
    assert all(one.times > 0 for one in shown.values())
    text = contents(redact_case(case, tmp_path / "shared").folder)
    assert shown["falcon-17"].pseudonym in text


def test_an_existing_folder_and_a_damaged_key_are_said(case: Case, tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="File exists"):
        redact_case(case, tmp_path)
    (tmp_path / "redaction.key").write_text("not hex")
    with pytest.raises(CaseError, match="is damaged"):
        case_key(tmp_path)
