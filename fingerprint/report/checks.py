"""Findings on one snapshot for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from fingerprint.findings import RULES, Finding
from fingerprint.report.differences import Document, code, md
from fingerprint.report.words import clean, count

if TYPE_CHECKING:
    from rich.console import RenderableType


def terminal(findings: Sequence[Finding], unread: Sequence[str]) -> RenderableType:
    """The findings, with what to do, and what no rule could look at."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    head = count(len(findings), "finding") if findings else f"Nothing found by {len(RULES)} rules"
    parts: list[RenderableType] = [Text(head, style="bold")]
    for finding in findings:
        parts.append(Text.assemble((finding.code, "bold"), "  ", clean(finding.text, 400)))
        parts.append(Padding(Text(f"{finding.advice} [{finding.source}]", style="dim"), (0, 0, 0, 7), expand=False))
    if unread:
        parts.append(Text("Not looked at", style="bold"))
        parts += [Padding(Text(clean(one, 160), style="dim"), (0, 0, 0, 7), expand=False) for one in unread]
    return Group(*parts)


def markdown(findings: Sequence[Finding], unread: Sequence[str]) -> str:
    """The findings for a ticket."""
    out = []
    for one in findings:
        where = f"{md(one.source)}, {code(clean(one.key))}"
        out.append(f"- **{one.code}** {md(clean(one.text, 400))} *{md(one.advice)}* ({where})")
    if not findings:
        out.append(f"Nothing found by {len(RULES)} rules.")
    if unread:
        out += ["", f"Not looked at: {md(clean('; '.join(unread), 1000))}"]
    return "\n".join(out) + "\n"


class FindingDocument(Document):
    """One finding."""

    code: str = Field(description="The rule, as docs/findings.md lists it.")
    rule: str
    text: str
    key: str = Field(description="Where it stands in the snapshot.")
    advice: str
    source: str


class CheckDocument(Document):
    """What `fingerprint check --format json` prints."""

    schema_number: int = Field(default=1, alias="schema")
    snapshot: str = Field(description="Identity of the snapshot.")
    findings: list[FindingDocument]
    unread: list[str] = Field(description="Sections that no rule could look at, with the reason.")


def document(snapshot_id: str, findings: Sequence[Finding], unread: Sequence[str]) -> CheckDocument:
    """The findings as data."""
    return CheckDocument(
        snapshot=snapshot_id,
        findings=[
            FindingDocument(
                code=one.code,
                rule=RULES[one.code].name,
                text=one.text,
                key=one.key,
                advice=one.advice,
                source=one.source,
            )
            for one in findings
        ],
        unread=list(unread),
    )
