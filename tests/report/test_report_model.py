"""What a report says: the first screen answers alone, and the chain claims no more than the launches showed."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from made_cases import KINDS, A, incident, one, snapshot, story

from fingerprint.bisect.journal import ControlLine, TrialLine
from fingerprint.bisect.told import search_of
from fingerprint.bisect.verdict import Suspicion, Then
from fingerprint.case import Case
from fingerprint.diff import compare
from fingerprint.errors import CaseError
from fingerprint.report import write_report
from fingerprint.report.build import build, of_case
from fingerprint.report.html import render_html
from fingerprint.report.model import Report
from fingerprint.report.replay import replay
from fingerprint.report.terminal import render

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_screen_says_what_how_sure_and_what_next(reports: dict[str, Report], kind: str) -> None:
    report = reports[kind]
    assert report.kind == kind
    assert report.question.endswith("What changed, and did that change do it?")
    assert report.answer.endswith(".")
    assert report.confidence
    assert "launch" in report.cost
    assert report.actions or report.advice


def test_a_culprit_has_its_number_its_interval_and_the_line_that_reverts_it(reports: dict[str, Report]) -> None:
    report = reports["attributed"]
    pattern = r"NCCL_PROTO=Simple explains \d+ % \[\d+, \d+\] of \+\d\.\d+ ms verify; sufficient and necessary\."
    assert re.fullmatch(pattern, report.answer)
    assert report.actions == ("unset NCCL_PROTO",)
    assert report.confidence.startswith("Almost certain")


def test_what_the_engine_decided_otherwise_with_a_culprit_is_said_with_its_launches(tmp_path: Path) -> None:
    def facts(new: frozenset[str]) -> dict[str, Any]:
        said = {"custom all-reduce": "<b>off</b>\x1b[31m" if A in new else "on", "nccl": "2.28.9"}
        return {**said, "moe config": "untuned"} if A in new else said

    case, outcome = incident(tmp_path / "case", one(A), facts=facts, seed=3)
    report = of_case(case)
    assert [one.name for one in outcome.decisions] == ["custom all-reduce", "moe config"]
    said = "custom all-reduce: on → <b>off</b>\\x1b[31m"
    assert any(line.startswith("With NCCL_PROTO=Simple the engine decided otherwise") for line in report.more)
    [step] = [one for one in report.steps if "the engine itself" in one.question]
    assert step.finding == f"{said}; moe config: nothing said → untuned."
    assert step.launches == tuple(launch.number for launch in report.launches)
    assert "<b>off" not in (render_html(report))


def test_a_phantom_says_then_and_now_and_what_nobody_saw(reports: dict[str, Report]) -> None:
    report = reports["phantom"]
    assert "not the 10.0 ms of then" in report.answer
    assert any("neither snapshot could see" in line for line in report.more)
    assert any("tok/s, at accept length" in line for line in report.more)
    assert report.break_even is not None
    assert report.break_even.accept_length > 2.9
    assert {one.standing for one in report.suspects} == {"ruled out"}
    assert not report.actions


def test_shares_come_largest_first_and_make_up_the_gap(reports: dict[str, Report]) -> None:
    report = reports["several"]
    assert report.answer.index("NCCL_PROTO") < report.answer.index("engine.py")
    assert report.gap_ms is not None
    assert sum(share.part_ms[1] for share in report.shares) == pytest.approx(report.gap_ms[1])


def test_an_interaction_needs_only_one_of_its_lines(reports: dict[str, Report]) -> None:
    assert "only together" in reports["interaction"].answer
    assert "Either of these lines is enough." in reports["interaction"].advice


def test_a_healed_gap_needs_nothing(reports: dict[str, Report]) -> None:
    assert reports["healed"].advice[0] == "Nothing is to be reverted."
    assert {one.standing for one in reports["healed"].suspects} == {"not judged"}


def test_fixed_suspects_stay_suspects(reports: dict[str, Report]) -> None:
    report = reports["not switchable"]
    assert [one.standing for one in report.suspects] == ["cannot be switched"]
    assert report.suspects[0].why


@pytest.mark.parametrize("kind", KINDS)
def test_every_launch_that_is_named_was_launched(reports: dict[str, Report], kind: str) -> None:
    report = reports[kind]
    known = {launch.number for launch in report.launches}
    assert {n for step in report.steps for n in step.launches} <= known
    assert {n for suspect in report.suspects for n in suspect.launches} <= known


@pytest.mark.parametrize("kind", ["attributed", "several", "interaction", "undecided"])
def test_what_is_called_fast_although_new_was_fast_and_had_it_new(reports: dict[str, Report], kind: str) -> None:
    report = reports[kind]
    assert report.old_ms is not None
    assert report.new_ms is not None
    middle = (report.old_ms[1] + report.new_ms[1]) / 2
    launches = {launch.number: launch for launch in report.launches}
    seen = 0
    for suspect in report.suspects:
        for words, new in (("fast although it was new", True), ("slow although it was old", False)):
            found = re.search(rf"{words} \(launch(?:es)? ([^)]+)\)", suspect.why)
            for text in re.findall(r"\d+", found.group(1).partition(" more")[0]) if found else ():
                launch = launches[int(text)]
                assert (suspect.id in launch.new) is new
                assert launch.value_ms is not None
                assert (launch.value_ms < middle) is new
                seen += 1
    assert seen


def test_never_tested_is_not_ruled_out(tmp_path: Path) -> None:
    case, _ = incident(tmp_path / "case", one(A), launches=2)
    report = of_case(case)
    assert {suspect.standing for suspect in report.suspects} == {"not tested"}
    assert "What was never tested?" in {step.question for step in report.steps}
    assert "What was ruled out?" not in {step.question for step in report.steps}


def test_a_launch_that_did_not_start_is_shown_with_its_reason(tmp_path: Path) -> None:
    refused: list[frozenset[str]] = []

    def fails(new: frozenset[str]) -> str | None:
        """The first launch between the two ends does not start, and neither does its repetition."""
        if 0 < len(new) < 11 and (not refused or new in refused):
            refused.append(new)
            return "these need each other"
        return None

    case, _ = incident(tmp_path / "case", one(A), fails=fails)
    report = of_case(case)
    lost = [launch for launch in report.launches if launch.value_ms is None]
    assert all(launch.reason == "these need each other" for launch in lost)
    assert lost
    assert f"{len(lost)} of them without a figure" in report.cost


def test_a_side_that_cannot_be_launched_is_named(tmp_path: Path) -> None:
    case, _ = incident(tmp_path / "case", one(A), fails=lambda new: None if new else "the old kernel is gone")
    report = of_case(case)
    assert "the old side" in report.answer
    assert {suspect.standing for suspect in report.suspects} == {"not tested"}
    assert any(launch.reason == "the old kernel is gone" for launch in report.launches)


def test_a_bisect_that_was_interrupted_has_a_report_too(tmp_path: Path) -> None:
    case, _ = story(tmp_path / "case", "attributed")
    (case.folder / "verdict.json").unlink()
    lines = case.journal.path.read_text().splitlines()
    case.journal.path.write_text("\n".join(lines[:5]) + "\n")
    report = of_case(case)
    assert report.label == "Not finished"
    assert report.answer.startswith("No verdict yet: 4 launches so far; likeliest:")
    assert "--resume" in report.advice[0]
    assert "No verdict yet" in render(report)


def test_the_replay_comes_to_the_verdict_of_the_case(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    replayed = replay(case.journal.case(), case.journal.trials())
    outcome = case.outcome()
    assert replayed.verdict.kind == outcome.kind
    assert replayed.verdict.culprits == outcome.culprits
    assert search_of(case.journal.case()).factors == tuple(sorted(factor.id for factor in case.journal.case().factors))
    last = replayed.moments[-1][1]
    assert last["NCCL_PROTO alone"] == pytest.approx(outcome.posterior[0].probability)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value_ms": 1e300}, "no launch can have"),
        ({"value_ms": -5.0}, "of another search"),
        ({"new": ["variable:NEVER_HEARD_OF"]}, "of another search"),
    ],
)
def test_a_journal_that_somebody_made_up_is_refused(
    cases: dict[str, Case], tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    case = cases["attributed"]
    copy = Case.create(tmp_path / "case", case.old, case.new)
    for line in case.journal.lines():
        third = isinstance(line, TrialLine) and line.number == 3
        copy.journal.append(line.model_copy(update=change) if third else line)
    copy.write_outcome(case.outcome())
    with pytest.raises(CaseError, match=words):
        of_case(copy)


def test_a_verdict_that_somebody_made_up_is_refused(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    outcome = case.outcome().model_copy(update={"gap_ms": (0.0, float("nan"), 1.0)})
    old, new = case.old, case.new
    with pytest.raises(CaseError, match=r"verdict\.json holds a figure"):
        build(outcome, case.journal.case(), case.journal.trials(), None, old, new, compare(old, new))


def test_each_format_can_be_written_by_itself(cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases["phantom"]
    write_report(case, tmp_path / "a" / "x.json", "json")
    write_report(case, tmp_path / "b" / "x.md", "markdown")
    write_report(case, tmp_path / "c" / "x.html", "html")
    assert Report.model_validate_json((tmp_path / "a" / "x.json").read_text()) == of_case(case)
    pictures = re.findall(r"\]\((pictures/[a-z-]+\.svg)\)", (tmp_path / "b" / "x.md").read_text())
    assert pictures
    assert all((tmp_path / "b" / name).is_file() for name in pictures)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["x.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(CaseError, match="cannot be written"):
        write_report(case, tmp_path / "file" / "x.md", "html")


def test_a_report_is_made_without_files(cases: dict[str, Case]) -> None:
    case = cases["several"]
    old, new = case.old, case.new
    report = build(
        case.outcome(),
        case.journal.case(),
        case.journal.trials(),
        case.journal.end(),
        old,
        new,
        compare(old, new),
    )
    assert report.answer == of_case(case).answer
    assert report.moments == ()


def test_other_output_is_said_and_not_called_settled(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    trials = case.journal.trials()
    trials[2] = trials[2].model_copy(update={"figures": {**trials[2].figures, "outputs": "aa" * 32}})
    old, new = case.old, case.new
    report = build(case.outcome(), case.journal.case(), trials, None, old, new, compare(old, new))
    step = next(step for step in report.steps if "same work" in step.question)
    assert not step.settled
    assert step.launches == (3,)


def test_a_host_that_was_not_put_back_is_on_the_first_screen(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    outcome = case.outcome().model_copy(update={"host_differences": ["sysctl vm.swappiness: changed"]})
    old, new = case.old, case.new
    end = case.journal.end()
    report = build(outcome, case.journal.case(), case.journal.trials(), end, old, new, compare(old, new))
    assert "The host is not as it was before: sysctl vm.swappiness: changed" in render(report)


def test_the_speed_of_each_side_is_accept_length_over_cycle(reports: dict[str, Report]) -> None:
    report = reports["attributed"]
    old, _ = report.speeds
    assert old.tokens_per_second == pytest.approx(1000 * old.accept_length / old.cycle_ms)
    assert report.break_even is not None
    even = report.break_even
    assert 1000 * even.accept_length / even.cycle_ms == pytest.approx(old.tokens_per_second)
    assert 1000 * even.at_accept_length / even.cycle_ms == pytest.approx(even.tokens_per_second)


def test_a_break_even_that_no_cycle_can_reach_is_said_to_be_out_of_reach(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    old, new = case.old, case.new
    for most, reached in ((2, False), (9, True)):
        trials = [
            trial.model_copy(update={"figures": {**trial.figures, "most_accepted": most}})
            for trial in case.journal.trials()
        ]
        report = build(case.outcome(), case.journal.case(), trials, None, old, new, compare(old, new))
        assert report.break_even is not None
        assert 2 < report.break_even.accept_length < 9
        [line] = [line for line in report.more if "would make up for it" in line]
        assert ("a cycle with 1 draft step gains 2 tokens at most" in line) != reached


def test_a_host_that_moves_by_more_than_the_gap_is_said_to_hide_it(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    old, new = case.old, case.new
    for busy_ms, hidden in ((2.0, False), (20.0, True)):
        trials = [
            trial.model_copy(update={"figures": {**trial.figures, "host_ms": busy_ms if number == 1 else 1.0}})
            for number, trial in enumerate(case.journal.trials())
        ]
        report = build(case.outcome(), case.journal.case(), trials, None, old, new, compare(old, new))
        assert any("moves by more than the gap" in line for line in report.more) == hidden


def test_plain_decoding_is_a_range_of_launches_and_what_they_cannot_tell_is_said(cases: dict[str, Case]) -> None:
    case = cases["attributed"]
    old, new = case.old, case.new

    def said(*plain: float | None) -> str:
        lines = [
            ControlLine(at=NOON, side="new", step_ms=None if one is None else 1000 / one, tokens_per_second=one,
                        reason="" if one else "no GPU is free")
            for one in plain
        ]  # fmt: skip
        outcome = case.outcome().model_copy(update={"controls": lines})
        report = build(outcome, case.journal.case(), case.journal.trials(), None, old, new, compare(old, new))
        assert sum(fact.name == "plain decoding, everything new, today" for fact in report.figures) == any(plain)
        return next(line for line in report.more if line.startswith("Plain decoding"))

    speed = of_case(case).speeds[1]
    has, near = speed.accept_length, speed.tokens_per_second
    far = said(1.50 * near, 1.52 * near)
    assert "(2 launches) with everything new: speculation breaks even at an accept length of " in far
    assert far.endswith(f"{1.50 * has:.2f} to {1.52 * has:.2f}, and has {has:.2f}.")
    assert "too far apart to tell which is faster" in said(1.05 * near, 1.15 * near)
    assert "too far apart to tell which is faster" in said(0.8 * near, 1.15 * near)
    assert f"an accept length of {1.5 * has:.2f}, and has {has:.2f}." in said(None, 1.5 * near)
    assert said(None, None) == "Plain decoding was not measured with everything new: no GPU is free."


def test_a_server_that_does_not_speculate_has_no_break_even(tmp_path: Path) -> None:
    case, _ = story(tmp_path / "case", "attributed")
    trials = [
        trial.model_copy(update={"figures": {"verify_ms": trial.value_ms, "accept_length": {"unread": "no"}}})
        for trial in case.journal.trials()
    ]
    old, new = snapshot({"PATH": "/bin"}), case.new
    report = build(case.outcome(), case.journal.case(), trials, None, old, new, compare(old, new))
    assert report.break_even is None
    assert report.speeds == ()
    assert [row.part for row in report.budget if row.old_ms is not None] == ["verify"]


def test_little_probability_rules_nothing_out_while_the_gap_itself_is_open(cases: dict[str, Case]) -> None:
    case = cases["undecided"]
    outcome = case.outcome()
    factor = case.journal.case().factors[0].id
    for none, standing in ((0.0, "ruled out"), (0.3, "open"), (0.6, "open")):
        changed = outcome.model_copy(
            update={
                "posterior": (
                    Suspicion(structure="none", factors=frozenset(), probability=none),
                    Suspicion(structure="single", factors=frozenset({A}), probability=1 - none),
                ),
                "eliminated": {factor: 0.03},
            }
        )
        old, new = case.old, case.new
        report = build(changed, case.journal.case(), case.journal.trials(), None, old, new, compare(old, new))
        [said] = [one for one in report.suspects if one.id == factor]
        assert said.standing == standing
        assert ("is left for explanations that need none of them" in said.why) == (none == 0.3)


def test_an_unsettled_gap_has_no_break_even_and_says_what_to_make_steadier(cases: dict[str, Case]) -> None:
    case = cases["undecided"]
    noisy = {"evidence": 3.0, "sigma_ms": (1.0, 2.0, 3.0)}
    old, new = case.old, case.new
    report = build(
        case.outcome().model_copy(update=noisy), case.journal.case(), case.journal.trials(), None, old, new,
        compare(old, new),
    )  # fmt: skip
    assert report.break_even is None
    assert any("make them steadier" in line for line in report.advice)


def test_a_phantom_whose_new_side_is_even_faster_shows_both_levels(cases: dict[str, Case]) -> None:
    case = cases["phantom"]
    posterior = (
        Suspicion(structure="faster", factors=frozenset(), probability=0.6),
        Suspicion(structure="none", factors=frozenset(), probability=0.38),
    )
    faster = {"posterior": posterior, "old_ms": (12.0, 12.5, 13.0), "new_ms": (11.0, 11.2, 11.4)}
    outcome = case.outcome().model_copy(update=faster)
    old, new = case.old, case.new
    report = build(outcome, case.journal.case(), case.journal.trials(), None, old, new, compare(old, new))
    assert report.confidence.startswith("Very likely that the new side is not slower today (98 %)")
    names = [fact.name for fact in report.figures]
    assert "everything old, today" in names
    assert "everything new, today" in names
    assert "today, old and new alike" not in names


def test_a_phantom_that_was_not_slower_in_the_past_either_claims_no_lost_speed(cases: dict[str, Case]) -> None:
    case = cases["phantom"]
    outcome = case.outcome().model_copy(update={"then": Then(old_ms=13.0, new_ms=12.5)})
    old, new = case.old, case.new
    report = build(outcome, case.journal.case(), case.journal.trials(), None, old, new, compare(old, new))
    assert report.answer.startswith("The new side is not slower today, and was not in the past (13.0 ms, then 12.5 ms)")
    assert "does not come back" not in report.answer


def test_a_fixed_accept_length_is_said_and_no_speed_is_made_of_it(tmp_path: Path) -> None:
    case, _ = story(tmp_path / "case", "attributed")
    lines = case.journal.path.read_text().splitlines(keepends=True)
    first = case.journal.case().model_copy(update={"accept_length": 2.5, "conditions": ["accept length fixed"]})
    case.journal.path.write_text(first.model_dump_json() + "\n" + "".join(lines[1:]))
    report = of_case(case)
    assert any("fixed at 2.5" in line for line in report.more)
    assert report.speeds == ()
    assert report.break_even is None
    (step,) = [step for step in report.steps if step.question.startswith("Did every launch do the same work")]
    assert "it was fixed" in step.finding
    assert ("every launch", "accept length fixed") in {(fact.name, fact.value) for fact in report.method}
