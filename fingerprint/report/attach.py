"""Put a case where people talk about it, through the tool that is logged in there: `gh` or `glab`.

Neither takes files into an issue, so the report goes in as a comment, and what is left to attach by hand is said. No
token is ever read here, and no shell is involved: a destination is one of the known forms or it is refused.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fingerprint.errors import CaseError, UsageError

_GITHUB = re.compile(r"(?:https://github\.com/)?([\w.-]+/[\w.-]+)(?:#|/issues/|/pull/)(\d+)/?")
_GITLAB = re.compile(r"https://([\w.-]+)/([\w./-]+?)/-/issues/(\d+)/?")
_SLACK = re.compile(r"slack:#?([\w-]+)")
_TOOL_S = 120.0


@dataclass(frozen=True)
class Attached:
    """What was done, and what is left for a person.

    Attributes:
        said: what the tool answered, usually the address of the comment; empty when nothing was sent.
        by_hand: files to attach by hand.
        reason: why they are left, in a sentence.
    """

    said: str
    by_hand: tuple[Path, ...]
    reason: str


def attach(
    folder: Path, to: str, bundle: Path | None = None, which: Callable[[str], str | None] = shutil.which
) -> Attached:
    """Send a case's report to an issue.

    Args:
        folder: the case folder, with its report.
        to: `OWNER/REPO#7`, the address of a GitHub or GitLab issue, or `slack:CHANNEL`.
        bundle: a bundle that belongs to it.
        which: finds a program.

    Raises:
        UsageError: no such destination is known.
        CaseError: there is no report yet, or the tool refused.
    """
    report = folder / "report.md"
    if not report.is_file():
        raise CaseError(f"{report} is not there; `fingerprint report {folder}` writes it.")
    files = (*([bundle] if bundle else []), folder / "report.html", *sorted(folder.glob("pictures/*.svg")))
    body = report.read_text(encoding="utf-8")
    if match := _GITHUB.fullmatch(to):
        words = ["gh", "issue", "comment", match[2], "--repo", match[1], "--body-file", "-"]
        return _run(words, body, report, files, which, "gh cannot attach files to an issue")
    if match := _GITLAB.fullmatch(to):
        words = ["glab", "issue", "note", match[3], "--repo", f"https://{match[1]}/{match[2]}", "--message", body]
        return _run(words, None, report, files, which, "glab cannot attach files to an issue")
    if match := _SLACK.fullmatch(to):
        return Attached("", files, f"Slack has no command-line tool that sends files; attach them in #{match[1]}.")
    raise UsageError(f"{to[:80]!r} is no place that is known; use OWNER/REPO#7, an issue's address, or slack:CHANNEL.")


def _run(
    words: list[str],
    body: str | None,
    report: Path,
    files: tuple[Path, ...],
    which: Callable[[str], str | None],
    why: str,
) -> Attached:
    program = which(words[0])
    if program is None:
        return Attached("", (report, *files), f"{words[0]} is not installed here; attach them by hand.")
    try:
        done = subprocess.run(
            [program, *words[1:]], input=body, capture_output=True, text=True, timeout=_TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CaseError(f"{words[0]} did not send it ({error}); attach the files by hand.") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1][:200].rstrip(".")
        raise CaseError(f"{words[0]} did not send it: {last}. Attach the files by hand, or log in first.")
    return Attached(done.stdout.strip(), files, f"{why}; add them by hand.")
