"""What a bisect would switch, and what nothing can: for people, for a ticket, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fingerprint.report.differences import Document, code, md
from fingerprint.report.differences import as_json as in_ascii
from fingerprint.report.words import clean, count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fingerprint.factors import Found, Need

COSTS = {
    "variable": "a relaunch",
    "flag": "a relaunch",
    "process": "a relaunch",
    "host": "a relaunch, and a change of the host that is put back",
    "gpu": "a relaunch, and a change of the host that is put back",
    "startup": "a relaunch, with a private layer over its directory",
    "tree": "a relaunch, with a private layer over the tree",
    "package": "a relaunch, with a private layer over the environment",
    "bundle": "a relaunch, with a private layer over the environment: packages that only move together",
}


def terminal(found: Found) -> RenderableType:
    """A table of the factors, and the fixed differences with their reasons."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("factor", "old", "new", "what a switch costs", box=None, pad_edge=False)
    for one in found.factors:
        table.add_row(
            Text(clean(one.id, 80)), Text(clean(one.old_words, 60)), Text(clean(one.new_words, 60)), COSTS[one.kind]
        )
    parts: list[RenderableType] = [
        Text(f"{count(len(found.factors), 'factor')} that a launch can switch", style="bold")
    ]
    if found.factors:
        parts.append(table)
    if found.needs:
        parts.append(Text("\nWhat does not go without another, by what packages require", style="bold"))
        parts += [Text(f"  {clean(need_words(one), 300)}") for one in found.needs]
    if found.fixed:
        parts.append(Text(f"\n{count(len(found.fixed), 'difference')} that no launch can switch", style="bold"))
        parts += [Text(f"  {clean(one.id, 80)}: {clean(one.reason, 300)}") for one in found.fixed]
    return Group(*parts)


def need_words(need: Need) -> str:
    """A need in words."""
    return f"{need.id} at its {need.side} value needs {need.other} at its {need.side} value: {need.requirement}"


def markdown(found: Found) -> str:
    """The same for a ticket."""
    lines = ["| factor | old | new | what a switch costs |", "| --- | --- | --- | --- |"]
    for one in found.factors:
        cells = (code(clean(one.id)), md(clean(one.old_words)), md(clean(one.new_words)), COSTS[one.kind])
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {md(clean(need_words(one), 300))}" for one in found.needs)]
    lines += ["", *(f"- not switchable: {code(clean(one.id))}: {md(clean(one.reason, 300))}" for one in found.fixed)]
    return "\n".join(lines) + "\n"


class FactorDocument(Document):
    """One factor, or one difference that is none."""

    id: str
    old: str
    new: str
    cost: str = Field(default="", description="What a switch costs; empty for what is no factor.")
    reason: str = Field(default="", description="Why no launch can switch it; empty for a factor.")


class NeedDocument(Document):
    """A value of one factor with which another has to have the same, by what their packages require."""

    id: str
    side: str = Field(description="old or new: the value of both.")
    other: str = Field(description="May be among `fixed`, which are always new.")
    requirement: str


class FactorsDocument(Document):
    """What `fingerprint diff --factors --format json` prints."""

    schema_number: int = Field(default=1, alias="schema")
    factors: list[FactorDocument]
    fixed: list[FactorDocument]
    needs: list[NeedDocument]


def as_json(found: Found) -> str:
    """The same as data."""
    document = FactorsDocument(
        factors=[
            FactorDocument(id=one.id, old=one.old_words, new=one.new_words, cost=COSTS[one.kind])
            for one in found.factors
        ],
        fixed=[
            FactorDocument(id=one.id, old=one.old_words, new=one.new_words, reason=one.reason) for one in found.fixed
        ],
        needs=[
            NeedDocument(id=one.id, side=one.side, other=one.other, requirement=one.requirement) for one in found.needs
        ],
    )
    return in_ascii(document)
