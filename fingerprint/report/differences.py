"""A comparison for people and for programs: terminal, Markdown, JSON.

One list of rows, two dressings. A row is a line of the short list with what hangs below it; families that moved
together (`nvidia-*` with torch) are one row unless opened. What came from a host is cleaned here, once: it cannot
colour, move or turn a terminal, and no Markdown or markup of its own survives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fingerprint.diff import SECRET, Comparison, Difference, Line, Reason
from fingerprint.report.words import clean, count
from snapshots import Leaf, Unread

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fingerprint.commits import Between, Commit
    from fingerprint.findings import Finding


SCHEMA = 1
VALUE_LIMIT = 80
FAMILY = 3
"""From this many packages of one family on, they are one row."""
COMMITS_SHOWN = 10
STATES_SHOWN = 40
STRONG_AGAINST = -1.0
WORTH_A_LINE = 0.4
"""A package of this likelihood is never folded into its family."""


# --------------------------------------------------------------------------------------------------------------------
# rows


@dataclass(frozen=True)
class Row:
    """One line of the short list.

    Attributes:
        depth: 0 for a line, more for what hangs below it.
        title: what differs, with its kind.
        old: old value in words.
        new: new value in words.
        note: what the values do not say.
        where: where it shows.
        likelihood: 0 to 1; None for a family.
        why: the strongest reasons with their sources.
        details: further facts.
    """

    depth: int
    title: str
    old: str
    new: str
    note: str = ""
    where: str = ""
    likelihood: float | None = None
    why: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


def value(leaf: Leaf | None, absent: str = "absent", limit: int = VALUE_LIMIT) -> str:
    """A value in words, clean and short; secrets stay unseen."""
    if leaf is None:
        return absent
    if isinstance(leaf, Unread):
        return f"not read: {clean(leaf.unread, limit)}"
    if isinstance(leaf, bool):
        return "yes" if leaf else "no"
    if isinstance(leaf, tuple):
        return clean(", ".join(value(item, absent, limit) for item in leaf) or "empty", limit)
    text = SECRET.sub("(secret)", str(leaf))
    return clean(text, limit) if text else "empty"


def title(difference: Difference) -> str:
    """What differs: by its factor where it has one, since that is the name that other commands take."""
    return clean(difference.factor or difference.title)


def rows(comparison: Comparison, *, most: int | None = None, opened: bool = False) -> Iterator[Row]:
    """The rows of the first `most` lines. `opened` shows every member of a family and every detail."""
    for line in comparison.lines()[:most]:
        yield from _rows(line, 0, opened=opened)


def _rows(line: Line, depth: int, *, opened: bool) -> Iterator[Row]:
    yield _row(line.difference, depth, opened=opened)
    families: dict[str, list[Line]] = {}
    for child in line.below:
        families.setdefault(_family(child), []).append(child)
    for family, members in families.items():
        if opened or not family or len(members) < FAMILY:
            for child in members:
                yield from _rows(child, depth + 1, opened=opened)
        else:
            yield _family_row(family, members, depth + 1)


def _family(line: Line) -> str:
    difference = line.difference
    if line.below or difference.key[:2] != ("packages", "distributions") or difference.likelihood >= WORTH_A_LINE:
        return ""
    head, dash, _ = difference.title.partition("-")
    return f"{head}-*" if dash else ""


def _family_row(family: str, members: list[Line], depth: int) -> Row:
    differences = [line.difference for line in members]
    notes = sorted({difference.note or difference.verdict for difference in differences})
    names = ", ".join(difference.title for difference in differences)
    return Row(
        depth,
        f"{len(members)} {clean(family)} packages",
        old="",
        new="",
        note=" and ".join(clean(note) for note in notes),
        details=(clean(names, 400),),
    )


def _row(difference: Difference, depth: int, *, opened: bool) -> Row:
    absent = "unset" if difference.key[:2] == ("server", "variables") else "absent"
    return Row(
        depth,
        title(difference),
        value(difference.old, absent),
        value(difference.new, absent),
        note=clean(difference.note),
        where=clean(", ".join(difference.where), 120 if not opened else 2000),
        likelihood=difference.likelihood,
        why=tuple(reason_text(reason) for reason in (difference.reasons if opened else _telling(difference.reasons))),
        details=_details(difference.details, None if opened else 3),
    )


def _telling(reasons: Sequence[Reason]) -> Sequence[Reason]:
    """The strongest reason; where it speaks for a trial, also the strongest against it, if that is a strong one."""
    against = [one for one in reasons if one.weight <= STRONG_AGAINST][:1]
    return reasons[:1] if not reasons or reasons[0].weight < 0 else [reasons[0], *against]


def reason_text(reason: Reason) -> str:
    """A reason with its source."""
    return f"{clean(reason.text, 300)} [{clean(reason.source, 200)}]"


def _details(details: Sequence[str], most: int | None) -> tuple[str, ...]:
    shown = tuple(clean(detail, 300) for detail in details[:most])
    left = len(details) - len(shown)
    return (*shown, f"… and {left} more") if left else shown


def blind_words(difference: Difference) -> str:
    """What cannot be compared, on which side, and why."""
    where = f" in {clean(', '.join(difference.where), 200)}" if any(difference.where) else ""
    sides = [
        f"{side}: {clean(leaf.unread, 200)}"
        for side, leaf in (("old", difference.old), ("new", difference.new))
        if isinstance(leaf, Unread)
    ]
    why = "; ".join(sides) or "the two sides replaced a secret under different keys"
    name = difference.title if len(difference.key) == 1 else f"{difference.section} {difference.title}"
    return f"{clean(name)}{where}: {why}"


def summary(comparison: Comparison) -> str:
    """One sentence: how much differs, how much does not, and how much is not known."""
    lines = comparison.lines()
    same = sum(comparison.same.values())
    head = f"{count(len(lines), 'difference')}" if lines else "No differences"
    below = len(comparison.differences) - len(lines)
    follow = f" ({below} more follow from them)" if below else ""
    blind = f", {len(comparison.not_comparable)} not comparable" if comparison.not_comparable else ""
    unseen = f", {count(len(comparison.unseen), 'section')} in neither snapshot" if comparison.unseen else ""
    return f"{head}{follow}, {same} values the same{blind}{unseen}"


def same_words(comparison: Comparison) -> str:
    """What certainly did not change, by section: all of one, or as many values where some moved or are not known."""
    part = {difference.section for difference in (*comparison.differences, *comparison.not_comparable)}
    for side in (comparison.old, comparison.new):
        sections = side.sections().items()
        part |= {name for name, one in sections if one.status == "partial" or side.method == "imported"}
    whole = [name for name, number in comparison.same.items() if number and name not in part]
    rest = [f"{name} {number}" for name, number in comparison.same.items() if number and name in part]
    parts = []
    if whole:
        parts.append(f"all of {', '.join(whole)}")
    if rest:
        parts.append(f"values of {', '.join(rest)}")
    return "; ".join(parts)


# --------------------------------------------------------------------------------------------------------------------
# terminal


def terminal(
    comparison: Comparison, *, most: int | None = 12, opened: bool = False, between: Between | None = None
) -> RenderableType:
    """The short list as a rich renderable; `most` lines, all with None. `between` are the commits of a clone."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(summary(comparison), style="bold")]
    number = 0
    for row in rows(comparison, most=most, opened=opened):
        if row.depth == 0:
            number += 1
        head = Text()
        head.append(f"{number:>3}  " if row.depth == 0 else "     " + "  " * (row.depth - 1) + "└ ", style="dim")
        head.append(row.title, style="bold" if row.depth == 0 else "")
        if row.old or row.new:
            head.append(f"  {row.old} → {row.new}")
        if row.note:
            head.append(f"  ({row.note})", style="italic")
        if row.likelihood is not None:
            head.append(f"  {row.likelihood:.2f}", style=_colour(row.likelihood))
        parts.append(head)
        indent = 5 + 2 * row.depth
        for style, lines in (
            ("", row.why),
            ("dim", ([f"shows in {row.where}"] if row.where else [])),
            ("dim", row.details),
        ):
            parts += [Padding(Text(line, style=style), (0, 0, 0, indent), expand=False) for line in lines]
    left = 0 if most is None else max(0, len(comparison.lines()) - most)
    if left:
        parts.append(Text(f"     … and {left} less likely; --all shows them", style="dim"))
    for heading, lines in _appendix(comparison, between, opened=opened):
        parts.append(Text(heading, style="bold"))
        parts += [Padding(Text(line), (0, 0, 0, 5), expand=False) for line in lines]
    return Group(*parts)


def _commits_heading(between: Between) -> str:
    number = f"{'over ' if between.cut else ''}{count(len(between.commits), 'commit')} between"
    return number if between.linear else f"{number}; the histories part, so both sides' are listed"


def _commit_lines(between: Between, most: int | None) -> list[str]:
    """Those that touch imported code first, with what they touch."""
    lines = []
    for one in between.commits[:most]:
        touched = f"{count(len(one.imported), 'file')} that the server imports" if one.imported else "nothing imported"
        why = f": {one.why}" if one.imported and one.why else ""
        side = "" if between.linear else f" ({one.side} side only)"
        lines.append(f"{one.sha[:10]} {one.at:%Y-%m-%d}{side} {clean(one.subject, 100)} [{touched}{why}]")
    left = len(between.commits) - len(lines)
    return [*lines, f"… and {left} more"] if left else lines


def _colour(likelihood: float) -> str:
    return "red" if likelihood >= 0.6 else "yellow" if likelihood >= 0.3 else "dim"


def _appendix(comparison: Comparison, between: Between | None, *, opened: bool) -> Iterator[tuple[str, list[str]]]:
    if between is not None:
        yield _commits_heading(between), _commit_lines(between, None if opened else COMMITS_SHOWN)
    elif any(one.key[0] == "trees" and one.key[-1] == "commit" for one in comparison.differences):
        yield "Commits between", ["not listed: that needs a clone of the tree (--repo CLONE)"]
    from fingerprint.findings import arrived

    if new_faults := arrived(comparison.old, comparison.new):
        lines = [_finding_words(one, before=before) for one, before in new_faults]
        yield "Known faults that the new side has and the old one has not", lines
    if comparison.not_comparable:
        yield "Cannot be compared", [blind_words(item) for item in comparison.not_comparable]
    if comparison.unseen:
        yield "In neither snapshot", [f"{name}: {clean(why)}" for name, why in comparison.unseen.items()]
    if comparison.state:
        most = None if opened else STATES_SHOWN
        lines = [f"{clean(item.title)}  {value(item.old)} → {value(item.new)}" for item in comparison.state[:most]]
        left = len(comparison.state) - len(lines)
        yield "State", [*lines, f"… and {left} more; --all shows them"] if left else lines
    if same := same_words(comparison):
        yield "Certainly the same", [same]


def _finding_words(finding: Finding, *, before: bool) -> str:
    unsure = "" if before else " (the old side was not read there)"
    return f"{finding.code} {clean(finding.text, 300)}{unsure} [{clean(finding.source, 200)}]"


def explain(difference: Difference) -> RenderableType:
    """Everything that is known of one difference."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(f"{title(difference)}", style="bold"), *(Text(line) for line in explanation(difference))]
    return Group(*lines)


def explanation(difference: Difference) -> Iterator[str]:
    """Everything that is known of one difference, line by line."""
    yield f"  {difference.verdict}: {value(difference.old, limit=2000)} → {value(difference.new, limit=2000)}"
    if difference.note:
        yield f"  {clean(difference.note)}"
    if difference.where:
        yield f"  shows in {clean(', '.join(difference.where), 2000)}"
    yield f"  factor: {clean(difference.factor)}" if difference.factor else "  no launch can switch it by itself"
    if difference.group:
        yield f"  follows from {clean('/'.join(difference.group))}"
    if difference.verdict != "not comparable":
        yield f"  likelihood {difference.likelihood:.2f}, of these reasons (in log-odds, from {_start():+.1f}):"
        for reason in difference.reasons:
            yield f"    {reason.weight:+.1f}  {reason_text(reason)}"
    if difference.details:
        yield "  in detail:"
        yield from (f"    {detail}" for detail in _details(difference.details, 200))
    yield "  values behind it:"
    for change in difference.changes[:200]:
        yield f"    {clean('/'.join(change.key), 300)}: {value(change.old)} → {value(change.new)}"
    if len(difference.changes) > 200:
        yield f"    … and {len(difference.changes) - 200} more"


def _start() -> float:
    from fingerprint.diff.ranking import START

    return START


# --------------------------------------------------------------------------------------------------------------------
# Markdown


def markdown(
    comparison: Comparison, *, most: int | None = None, opened: bool = False, between: Between | None = None
) -> str:
    """The short list for a ticket."""
    out = [
        f"**{md(comparison.old_id[:12])} → {md(comparison.new_id[:12])}**: {summary(comparison)}.",
        "",
    ]
    table = list(rows(comparison, most=most, opened=opened))
    if table:
        out += ["| difference | old | new | likelihood | why |", "| --- | --- | --- | --- | --- |"]
        for row in table:
            name = "&nbsp;" * 4 * row.depth + code(row.title) + (f" ({md(row.note)})" if row.note else "")
            where = f" shows in {md(row.where)}" if row.where else ""
            why = "; ".join(md(line) for line in (*row.why, *(row.details if opened or not row.why else ())))
            likelihood = "" if row.likelihood is None else f"{row.likelihood:.2f}"
            cells = (name, code(row.old), code(row.new), likelihood, why + where)
            out.append(f"| {' | '.join(cells)} |")
    left = 0 if most is None else max(0, len(comparison.lines()) - most)
    if left:
        out.append(f"\n… and {left} less likely.")
    for heading, lines in _appendix(comparison, between, opened=opened):
        out += ["", f"**{heading}**", "", *(f"- {md(line)}" for line in lines)]
    return "\n".join(out) + "\n"


_MARKS = re.compile(r"([\\`*_\[\]<>|#!~&@]|:(?=//))")


def md(text: str) -> str:
    """Text in which Markdown finds nothing to do: no link, no mention, no HTML."""
    return _MARKS.sub(lambda found: f"&#{ord(found[1])};" if found[1] in "<>|&@:`" else f"\\{found[1]}", text)


def code(text: str) -> str:
    """Text as code in a table cell."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text.replace('|', '&#124;') if '|' in text else text}{pad}{fence}".replace("&#124;", "\\|")


# --------------------------------------------------------------------------------------------------------------------
# JSON


class Document(BaseModel):
    """Base of these: what makes one is built when the first is made, for most commands print none."""

    model_config = ConfigDict(defer_build=True)


class ReasonDocument(Document):
    """Why a difference is likely, or not."""

    text: str
    weight: float = Field(description="What it adds to the log-odds.")
    source: str


class ChangeDocument(Document):
    """One value behind a difference."""

    key: list[str]
    old: JsonValue
    new: JsonValue


class DifferenceDocument(Document):
    """One difference."""

    name: str = Field(description="The key, joined with '/'.")
    section: str
    title: str
    verdict: str = Field(description="changed, only in old, only in new, or not comparable.")
    old: JsonValue = Field(description="null: not there; {'unread': reason}: could not be read.")
    new: JsonValue
    note: str
    where: list[str]
    details: list[str]
    factor: str | None = Field(description="Identifier of the factor that switches it; null: no launch can.")
    follows: str | None = Field(description="Name of the difference that brought it about.")
    likelihood: float = Field(ge=0, le=1, description="How much it deserves a trial; an order, not a calibration.")
    reasons: list[ReasonDocument]
    changes: list[ChangeDocument]


class ArrivedDocument(Document):
    """A finding of a rule on the new side that the old side does not have."""

    code: str = Field(description="The rule, as docs/findings.md lists it.")
    text: str
    key: str
    advice: str
    source: str
    read_before: bool = Field(description="false: the old side was not read there, so it may have had it, too.")


class CommitDocument(Document):
    """One commit between the two sides."""

    sha: str
    subject: str
    at: datetime
    paths: list[str]
    imported: list[str] = Field(description="Those of the paths that the server imports from.")
    why: str = Field(description="The strongest topic of those paths.")
    side: str = Field(description="new: gained; old: lost.")


class ComparisonDocument(Document):
    """What `fingerprint diff --format json` prints."""

    schema_number: int = Field(default=SCHEMA, alias="schema")
    old: str = Field(description="Identity of the old snapshot.")
    new: str
    equal: bool
    differences: list[DifferenceDocument] = Field(description="Likeliest first.")
    not_comparable: list[DifferenceDocument]
    state: list[DifferenceDocument]
    same: dict[str, int] = Field(description="Number of equal values by section.")
    unseen: dict[str, str] = Field(description="Sections that neither snapshot has, with the reason.")
    arrived: list[ArrivedDocument] = Field(description="Known faults that the new side has and the old one has not.")
    commits: list[CommitDocument] | None = Field(description="null: no clone was given, or no commit differs.")


def document(comparison: Comparison, between: Between | None = None) -> ComparisonDocument:
    """The comparison as data."""
    from fingerprint.findings import arrived

    return ComparisonDocument(
        old=comparison.old_id,
        new=comparison.new_id,
        equal=comparison.equal,
        differences=[_difference(item) for item in comparison.differences],
        not_comparable=[_difference(item) for item in comparison.not_comparable],
        state=[_difference(item) for item in comparison.state],
        same=comparison.same,
        unseen=comparison.unseen,
        arrived=[
            ArrivedDocument(
                code=one.code, text=one.text, key=one.key, advice=one.advice, source=one.source, read_before=before
            )
            for one, before in arrived(comparison.old, comparison.new)
        ],
        commits=None if between is None else [_commit(one) for one in between.commits],
    )


def _commit(one: Commit) -> CommitDocument:
    return CommitDocument(
        sha=one.sha,
        subject=one.subject,
        at=one.at,
        paths=list(one.paths),
        imported=list(one.imported),
        why=one.why,
        side=one.side,
    )


def as_json(made: BaseModel) -> str:
    """A document as text, in ASCII: also as JSON it cannot colour or move a terminal."""
    return json.dumps(made.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=True)


def _difference(item: Difference) -> DifferenceDocument:
    return DifferenceDocument(
        name=item.name,
        section=item.section,
        title=item.title,
        verdict=item.verdict,
        old=plain(item.old),
        new=plain(item.new),
        note=item.note,
        where=list(item.where),
        details=list(item.details),
        factor=item.factor,
        follows="/".join(item.group) if item.group else None,
        likelihood=item.likelihood,
        reasons=[ReasonDocument(text=one.text, weight=one.weight, source=one.source) for one in item.reasons],
        changes=[ChangeDocument(key=list(one.key), old=plain(one.old), new=plain(one.new)) for one in item.changes],
    )


def plain(leaf: Leaf | None) -> JsonValue:
    """A leaf as JSON has it."""
    if isinstance(leaf, Unread):
        return {"unread": leaf.unread}
    if isinstance(leaf, tuple):
        return [plain(item) for item in leaf]
    return leaf
