"""Attaching a case: through the tool that is there, without a shell, or by saying what is left to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fingerprint.case import Case
from fingerprint.errors import CaseError, UsageError
from fingerprint.report.attach import attach


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], str]:
    """A program that notes how it was called."""
    program = tmp_path / "tool"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\ncat > {tmp_path}/input\n'
        f'[ -e {tmp_path}/fail ] && {{ echo "not logged in" >&2; exit 4; }}\necho https://example.com/comment\n'
    )
    program.chmod(0o755)
    return lambda _name: str(program)


@pytest.mark.parametrize(
    "to", ["org/repo#7", "https://github.com/org/repo/issues/7", "https://github.com/org/repo/pull/7"]
)
def test_a_github_issue_gets_the_report_as_a_comment(
    cases: dict[str, Case], tool: Callable[[str], str], tmp_path: Path, to: str
) -> None:
    folder = cases["attributed"].folder
    done = attach(folder, to, tmp_path / "case.zip", which=tool)
    assert (tmp_path / "words").read_text().split() == [
        "issue",
        "comment",
        "7",
        "--repo",
        "org/repo",
        "--body-file",
        "-",
    ]
    assert (tmp_path / "input").read_text() == (folder / "report.md").read_text()
    assert done.said == "https://example.com/comment"
    assert done.by_hand[:2] == (tmp_path / "case.zip", folder / "report.html")


def test_a_gitlab_issue_gets_the_report_as_a_note(
    cases: dict[str, Case], tool: Callable[[str], str], tmp_path: Path
) -> None:
    folder = cases["phantom"].folder
    attach(folder, "https://git.example.com/group/sub/project/-/issues/12", which=tool)
    words = (tmp_path / "words").read_text()
    assert words.startswith("issue\nnote\n12\n--repo\nhttps://git.example.com/group/sub/project\n--message\n## Phantom")
    assert words.strip().endswith((folder / "report.md").read_text().strip())


def test_without_the_tool_it_says_what_to_attach(cases: dict[str, Case]) -> None:
    folder = cases["phantom"].folder
    done = attach(folder, "org/repo#7", which=lambda _name: None)
    assert done.said == ""
    assert done.by_hand[:2] == (folder / "report.md", folder / "report.html")
    assert "gh is not installed" in done.reason
    assert "#perf" in attach(folder, "slack:#perf").reason


def test_a_tool_that_refuses_is_quoted(cases: dict[str, Case], tool: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(CaseError, match="not logged in"):
        attach(cases["phantom"].folder, "org/repo#7", which=tool)


@pytest.mark.parametrize(
    "to", ["", "org/repo", "--help", "org/repo#x", "http://x/-/issues/1", "org/repo#7; reboot", "slack:"]
)
def test_an_unknown_place_is_refused(cases: dict[str, Case], to: str) -> None:
    with pytest.raises(UsageError, match="no place that is known"):
        attach(cases["phantom"].folder, to)


def test_a_case_without_a_report_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="fingerprint report"):
        attach(tmp_path, "org/repo#7")
