"""What a bisect would switch, and what nothing can: for people, for a ticket, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fingerprint.report.differences import Document, code, md
from fingerprint.report.words import clean, count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fingerprint.factors import Found

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
    if found.fixed:
        parts.append(Text(f"\n{count(len(found.fixed), 'difference')} that no launch can switch", style="bold"))
        parts += [Text(f"  {clean(one.id, 80)}: {clean(one.reason, 300)}") for one in found.fixed]
    return Group(*parts)


def markdown(found: Found) -> str:
    """The same for a ticket."""
    lines = ["| factor | old | new |", "| --- | --- | --- |"]
    lines += [f"| {code(one.id)} | {md(one.old_words)} | {md(one.new_words)} |" for one in found.factors]
    lines += ["", *(f"- not switchable: {code(one.id)}: {md(one.reason)}" for one in found.fixed)]
    return "\n".join(lines) + "\n"


class FactorDocument(Document):
    """One factor, or one difference that is none."""

    id: str
    old: str
    new: str
    reason: str = Field(default="", description="Why no launch can switch it; empty for a factor.")


class FactorsDocument(Document):
    """What `fingerprint diff --factors --format json` prints."""

    schema_number: int = Field(default=1, alias="schema")
    factors: list[FactorDocument]
    fixed: list[FactorDocument]


def as_json(found: Found) -> str:
    """The same as data."""
    document = FactorsDocument(
        factors=[FactorDocument(id=one.id, old=one.old_words, new=one.new_words) for one in found.factors],
        fixed=[
            FactorDocument(id=one.id, old=one.old_words, new=one.new_words, reason=one.reason) for one in found.fixed
        ],
    )
    return document.model_dump_json(indent=1, by_alias=True)
