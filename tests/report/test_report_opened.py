"""A culprit that was opened, in every format."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_cases import opened

from fingerprint.case import Case
from fingerprint.report.build import of_case
from fingerprint.report.html import render_html
from fingerprint.report.markdown import render_markdown
from fingerprint.report.redaction import redact_case
from fingerprint.report.terminal import render_terminal

HUNK = "hunk @@ forward of python/engine.py"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    made, outcome = opened(tmp_path_factory.mktemp("opened") / "case")
    assert outcome.kind == "attributed"
    (inside,) = outcome.opened
    assert [part.title for part in inside.culprits] == [HUNK]
    assert inside.verdict is not None
    assert inside.verdict.kind == "attributed"
    return made


def test_every_format_names_the_hunk(case: Case) -> None:
    report = of_case(case)
    assert any(HUNK in line and "% [" in line for line in report.more)
    assert any("take back the hunk @@ forward" in line for line in report.advice)
    (step,) = [step for step in report.steps if step.question.startswith("What is it inside")]
    assert step.finding == f"H{HUNK[1:]}."
    for text in (render_terminal(case), render_markdown(report), render_html(report, [])):
        assert "forward of python" in text  # Markdown escapes the marks before it


def test_a_part_that_is_the_whole_is_no_narrower_advice(case: Case, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(case.folder, alone)
    outcome = case.outcome()
    (inside,) = outcome.opened
    whole = inside.model_copy(update={"parts": inside.culprits, "verdict": None})
    Case(alone).write_outcome(outcome.model_copy(update={"opened": [whole]}))
    report = of_case(Case(alone))
    assert any("there is one part alone" in line for line in report.more)
    assert not any("only what is to blame" in line for line in report.advice)


def test_every_culprit_that_was_opened_has_its_narrower_advice(case: Case, tmp_path: Path) -> None:
    both = tmp_path / "both"
    shutil.copytree(case.folder, both)
    outcome = case.outcome()
    (inside,), (culprit,) = outcome.opened, outcome.culprits
    other = inside.model_copy(update={"of": "variable:A"})
    second = culprit.model_copy(update={"factors": frozenset({"variable:A"})})
    Case(both).write_outcome(outcome.model_copy(update={"opened": [inside, other], "culprits": (culprit, second)}))
    assert sum("only what is to blame" in line for line in of_case(Case(both)).advice) == 2


def test_launches_inside_are_told_apart_from_the_others(case: Case) -> None:
    report = of_case(case)
    inner = [launch for launch in report.launches if launch.inside]
    assert inner
    assert all(launch.arm == "mixed" and launch.setting.startswith("inside ") for launch in inner)
    assert any(f"only {HUNK} new" in launch.setting for launch in inner)
    (step,) = [step for step in report.steps if step.question.startswith("What is it inside")]
    assert step.launches == tuple(launch.number for launch in inner)
    # What settles a suspect are the launches of the case's own search.
    assert not {number for one in report.suspects for number in one.launches} & set(step.launches)


def test_a_case_that_was_stopped_inside_still_reads(case: Case, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    for name in ("old.json", "new.json"):
        (stopped / name).write_bytes((case.folder / name).read_bytes())
    lines = (case.folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (stopped / "journal.jsonl").write_text("".join(lines[:-2]))
    report = of_case(Case(stopped))
    assert report.label == "Not finished"
    assert len(report.launches) == len(of_case(case).launches) - 1


def test_a_redacted_case_keeps_its_insides(case: Case, tmp_path: Path) -> None:
    redacted = redact_case(case, tmp_path / "redacted", "names")
    assert len(redacted.outcome().opened) == 1
    assert len(of_case(redacted).launches) == len(of_case(case).launches)


def test_odds_of_any_size_are_no_nonsense(case: Case, tmp_path: Path) -> None:
    certain = tmp_path / "certain"
    shutil.copytree(case.folder, certain)
    outcome = case.outcome()
    (inside,) = outcome.opened
    assert inside.verdict is not None
    verdict = inside.verdict.model_copy(update={"evidence": 8e9})
    sure = {"evidence": 6e10, "opened": [inside.model_copy(update={"verdict": verdict})]}
    Case(certain).write_outcome(outcome.model_copy(update=sure))
    assert of_case(Case(certain)).kind == "attributed"
