"""The report as Markdown for a ticket: the first screen open, the rest in collapsed details, always under 60 KB.

Values go into code spans, where Markdown, mentions (`@name`), references (`#12`) and HTML have no effect; sentences
are escaped character by character. Pictures are files beside it. What does not fit is left out, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fingerprint.report.words import count, listing, ms, number

if TYPE_CHECKING:
    from fingerprint.report.charts import Picture
    from fingerprint.report.model import Report

LARGEST_BYTES = 60_000
_ACTIVE = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|#(?=\d)|^(\s*)[-+=#](?=[-+=#\s]|$)")
"""What would mark something up: not every bracket and dash, so that the text can be read as it is, too."""
_CELL = 160
_SENTENCE = 1000


def escape(text: str) -> str:
    """A sentence that means nothing to Markdown, to HTML, or to a tracker's mentions and references."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = _ACTIVE.sub(lambda found: f"{found[1] or ''}\\{found[0].lstrip()}", safe)
    # No mention, no reference, no link made of bare text, no list at the start.
    for word, shown in (("@", "&#64;"), ("://", "&#58;//"), ("www.", "www&#46;"), ("GH-", "GH&#45;")):
        safe = safe.replace(word, shown)
    return re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", safe)


def code(text: str, limit: int = _CELL) -> str:
    """A value as a code span, with a fence longer than any run of backticks in it."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    longest = max((len(run) for run in re.findall(r"`+", cut)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if cut.startswith(("`", " ")) or cut.endswith(("`", " ")) or not cut.strip() else ""
    return f"{fence}{pad}{cut}{pad}{fence}"


def cell(text: str) -> str:
    """A code span for a table: a bar would end the cell even inside of code."""
    return code(text).replace("|", "\\|")


def block(lines: Iterable[str]) -> str:
    """Lines to type, as a fenced block."""
    text = "\n".join(lines)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are escaped already."""
    return [
        f"| {' | '.join(headers)} |",
        f"|{' --- |' * len(headers)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def details(summary: str, body: Sequence[str]) -> str:
    """A part that opens on a click."""
    return "\n".join([f"<details><summary>{summary}</summary>", "", *body, "", "</details>"])


def render_markdown(report: Report, drawn: Sequence[Picture] = ()) -> str:
    """The report as Markdown; pictures are expected in `pictures/` beside it."""
    parts = [_first_screen(report)]
    rest = [
        _chain(report),
        _suspects(report),
        _pictures(drawn),
        _speed(report),
        _changes(report),
        _unseen(report),
        _launches(report),
        _method(report),
    ]
    left_out = 0
    size = len(parts[0].encode())
    for part in filter(None, rest):
        more = len(part.encode()) + 2
        if size + more > LARGEST_BYTES - 200:
            left_out += 1
            continue
        parts.append(part)
        size += more
    if left_out:
        parts.append(f"_{count(left_out, 'part')} did not fit here; `report.html` has everything._")
    return "\n\n".join(parts) + "\n"


def _within(lines: Sequence[str], most: int) -> list[str]:
    """The first whole lines that fit into so many bytes: a line to type is never cut."""
    kept: list[str] = []
    for line in lines:
        most -= len(line.encode()) + 1
        if most < 0:
            break
        kept.append(line)
    return kept


def _first_screen(report: Report) -> str:
    def said(text: str) -> str:
        return escape(text if len(text) <= _SENTENCE else f"{text[: _SENTENCE - 1]}…")

    lines = [
        f"## {said(report.label)}: {said(report.title)}",
        "",
        said(report.question),
        "",
        f"**{said(report.answer)}**",
        *(f"\n{said(line)}" for line in report.more),
        "",
        "**What to do now**",
    ]
    actions = _within(report.actions, 8_000)
    if actions:
        lines += ["", block(actions)]
    if len(actions) < len(report.actions):
        lines += ["", f"{count(len(report.actions) - len(actions), 'more line')} in `report.html`."]
    lines += ["", *(f"- {said(line)}" for line in report.advice)] if report.advice else []
    lines += [
        "",
        f"**How sure:** {said(report.confidence)}",
        "",
        f"**Cost:** {said(report.cost)}.",
    ]
    if report.figures:
        lines += ["", *table(("figure", "value"), ((said(f.name), said(f.value)) for f in report.figures))]
    for line in report.host_differences[:5]:
        lines += ["", f"**The host is not as it was before:** {said(line)}"]
    return "\n".join(lines)


def _launch_words(numbers: Sequence[int]) -> str:
    return listing((str(one) for one in numbers), 6)


def _chain(report: Report) -> str:
    rows = (
        (
            "settled" if step.settled else "**open**",
            escape(step.question),
            escape(step.finding),
            _launch_words(step.launches),
        )
        for step in report.steps
    )
    return "\n".join(["### How it was found out", "", *table(("", "question", "finding", "launches"), rows)])


def _suspects(report: Report) -> str:
    rows = [
        (
            escape(one.standing),
            cell(one.id),
            cell(one.old),
            cell(one.new),
            escape(one.why[:300]),
        )
        for one in report.suspects[:60]
    ]
    if not rows:
        return ""
    body = table(("standing", "difference", "old", "new", "evidence"), rows)
    if len(report.suspects) > 60:
        body.append(f"\n{len(report.suspects) - 60} more in `report.html`.")
    return details(f"Every suspect ({len(report.suspects)})", body)


def _pictures(drawn: Sequence[Picture]) -> str:
    if not drawn:
        return ""
    body: list[str] = []
    for picture in drawn:
        body += [f"![{escape(picture.title)}](pictures/{picture.name}.svg)", "", escape(picture.summary), ""]
    return details("Pictures", body)


def _speed(report: Report) -> str:
    body: list[str] = []
    if report.budget:

        def show(value: float | None) -> str:
            return "not timed" if value is None else ms(value, report.decimals)

        rows = ((escape(row.part), show(row.old_ms), show(row.new_ms)) for row in report.budget)
        body += [*table(("part of the cycle", "everything old", "everything new"), rows), ""]
    even = report.break_even
    if even is not None:
        floor = f"; below {even.floor:.2f} plain decoding is certainly not slower" if even.floor else ""
        body.append(
            f"Break-even: an accept length of {even.accept_length:.2f} gives {even.wanted_tokens_per_second:.1f} tok/s "
            f"with a cycle of {number(even.cycle_ms)} ms{floor} ({escape(even.note)})."
        )
    return details("Where a cycle's time goes", body) if body else ""


def _changes(report: Report) -> str:
    if not report.changes:
        return ""
    rows = (
        (cell(one.title), cell(one.old), cell(one.new), escape(one.note), "yes" if one.switchable else "no")
        for one in report.changes[:40]
    )
    body = table(("difference", "old", "new", "note", "switchable"), rows)
    if report.changes_in_all > 40:
        body.append(f"\n{report.changes_in_all - 40} more.")
    if report.not_comparable:
        body.append(f"\n{count(report.not_comparable, 'value')} could not be compared.")
    return details(f"What differs between the snapshots ({report.changes_in_all})", body)


def _unseen(report: Report) -> str:
    body = [f"- {escape(line)}" for line in report.unseen[:30]]
    if report.unseen_in_all > len(body):
        body.append(f"- and {report.unseen_in_all - len(body)} more")
    return details(f"What neither snapshot could see ({report.unseen_in_all})", body)


def _launches(report: Report) -> str:
    rows = []
    for launch in report.launches[:80]:
        value = "" if launch.value_ms is None else ms(launch.value_ms, report.decimals)
        failed = [check for check in launch.proof if not check.ok]
        proof = f"{len(launch.proof) - len(failed)} of {len(launch.proof)}" if launch.proof else ""
        said = "; ".join([launch.reason, *launch.marks] if launch.reason not in launch.marks else launch.marks)
        rows.append(
            (
                str(launch.number),
                f"{launch.minutes:.1f}",
                escape(launch.setting),
                escape(launch.status),
                value,
                "" if launch.accept_length is None else f"{launch.accept_length:.2f}",
                proof,
                cell(said) if said else "",
            )
        )
    headers = ("launch", "minute", "setting", "status", escape(report.metric), "accept", "proofs", "remarks")
    return details(f"Every launch ({len(report.launches)})", table(headers, rows)) if rows else ""


def _method(report: Report) -> str:
    body = table(("", ""), ((escape(fact.name), escape(fact.value)) for fact in report.method))
    if report.posterior:
        rows = ((escape(fact.name), escape(fact.value)) for fact in report.posterior)
        body += ["", *table(("explanation", "probability"), rows)]
    body += ["", "Do it again:", "", block([report.command])]
    return details("Method, versions, and how to do it again", body)
