"""The verdict on a terminal: the report's first screen and its chain, in plain text of at most 100 columns.

Text from a host was cleaned when the report was built, and is set as text, never as rich's markup.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from fingerprint.report.build import of_case

if TYPE_CHECKING:
    from fingerprint.case import Case
    from fingerprint.report.model import Report

_STYLES = {
    "Attributed": "bold red",
    "Several causes": "bold red",
    "Interaction": "bold red",
    "Phantom": "bold magenta",
    "Healed": "bold green",
}
_WIDEST = 100


def render_terminal(case: Case, *, color: bool = False, width: int = _WIDEST) -> str:
    """The verdict of a case as text for a terminal.

    Args:
        case: the case.
        color: with terminal colours.
        width: columns.
    """
    return render(of_case(case), color=color, width=width)


def render(report: Report, *, color: bool = False, width: int = _WIDEST) -> str:
    """A report as text for a terminal; see `render_terminal`."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=color,
        color_system="standard" if color else None,
        width=min(width, _WIDEST),
        highlight=False,
        legacy_windows=False,
    )

    def say(text: str, style: str = "", indent: int = 0) -> None:
        console.print(Padding(Styled(text, style=style), (0, 0, 0, indent)))

    say(report.question, style="dim")
    console.print()
    label = (report.label.upper(), _STYLES.get(report.label, "bold yellow"))
    console.print(Styled.assemble(label, "  ", (report.answer, "bold")))
    for line in report.more:
        say(line)
    console.print()
    if report.actions or report.advice:
        say("What to do now", style="bold")
        for line in report.actions:
            console.print(Styled(f"  {line}", style="cyan"), soft_wrap=True)
        for line in report.advice:
            say(line, indent=2)
        console.print()
    say(f"How sure: {report.confidence}")
    say(f"Cost: {report.cost}.")
    console.print()
    figures = _table("", "")
    for fact in report.figures:
        figures.add_row(Styled(fact.name), Styled(fact.value))
    if report.figures:
        console.print(figures)
        console.print()
    say("How it was found out", style="bold")
    for step in report.steps:
        numbers = f"  [launch {', '.join(map(str, step.launches[:8]))}]" if step.launches else ""
        mark = "+" if step.settled else "?"
        console.print(
            Padding(Styled.assemble((f"{mark} {step.question} ", ""), step.finding, (numbers, "dim")), (0, 0, 0, 2))
        )
    console.print()
    say(
        f"Not seen by either snapshot: {report.unseen_in_all} things; the first: " + "; ".join(report.unseen[:3]) + ".",
        style="dim",
    )
    for line in report.host_differences[:5]:
        say(f"The host is not as it was before: {line}", style="bold red")
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _table(*headers: str) -> Table:
    table = Table(*headers, show_header=any(headers), box=None, padding=(0, 2, 0, 2), pad_edge=True)
    table.columns[0].no_wrap = True
    return table
