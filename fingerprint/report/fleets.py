"""A fleet's comparison for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, JsonValue

from fingerprint.diff.fleet import Fleet, Row, Value
from fingerprint.report.differences import Document, code, md, plain, reason_text, title, value
from fingerprint.report.words import clean, count

if TYPE_CHECKING:
    from rich.console import RenderableType


def _hosts(hosts: tuple[str, ...]) -> str:
    """A few hosts by name, many by number."""
    named = clean(", ".join(hosts[:4]), 200)
    return named if len(hosts) <= 4 else f"{named} and {len(hosts) - 4} more"


def _value(one: Value) -> str:
    return value(one.leaf) + (f" ({clean(one.note)})" if one.note else "")


def summary(fleet: Fleet) -> str:
    """One sentence: how many hosts, how many kinds of them, how many differences."""
    hosts = sum(len(group) for group in fleet.groups)
    if fleet.equal:
        return f"{hosts} hosts, all the same"
    blind = f", {len(fleet.not_comparable)} not comparable" if fleet.not_comparable else ""
    causes = fleet.causes()
    below = len(fleet.rows) - len(causes)
    follow = f" ({below} more follow from them)" if below else ""
    return f"{hosts} hosts of {count(len(fleet.groups), 'kind')}, {count(len(causes), 'difference')}{follow}{blind}"


def terminal(fleet: Fleet, *, most: int | None = 20, opened: bool = False) -> RenderableType:
    """The table: a row a difference. `opened` also shows those that follow from another one."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(summary(fleet), style="bold")]
    parts += [Text(f"  the same: {_hosts(group)}") for group in fleet.groups if len(group) > 1]
    shown = fleet.rows if opened else fleet.causes()
    for heading, rows in (("", shown), ("Cannot be compared", fleet.not_comparable)):
        if not rows:
            continue
        table = Table(box=None, show_header=not heading, title=heading or None, title_justify="left", pad_edge=False)
        for column in ("difference", "odd one out", "values", "likely"):
            table.add_column(column, overflow="fold")
        for row in rows[:most]:
            values = "\n".join(f"{_value(one)}: {_hosts(one.hosts)}" for one in row.values)
            odd = _hosts(row.odd) if row.odd else "no majority"
            cells = (title(row.difference), odd, values, f"{row.difference.likelihood:.2f}")
            table.add_row(*(Text(cell) for cell in cells))
        parts.append(table)
        if most is not None and len(rows) > most:
            parts.append(Text(f"… and {len(rows) - most} less likely; --all shows them", style="dim"))
    return Group(*parts)


def markdown(fleet: Fleet, *, opened: bool = False) -> str:
    """The table for a ticket. `opened` also has the rows that follow from another one."""
    out = [f"**{md(summary(fleet))}**", ""]
    out += [f"- the same: {md(_hosts(group))}" for group in fleet.groups if len(group) > 1]
    shown = fleet.rows if opened else fleet.causes()
    for heading, rows in (("Differences", shown), ("Cannot be compared", fleet.not_comparable)):
        if rows:
            out += ["", f"**{heading}**", "", "| difference | odd one out | values |", "| --- | --- | --- |"]
            for row in rows:
                values = "; ".join(
                    f"{code(value(one.leaf))} {md(clean(one.note))}: {md(_hosts(one.hosts))}" for one in row.values
                )
                out.append(f"| {code(title(row.difference))} | {md(_hosts(row.odd)) or 'no majority'} | {values} |")
    return "\n".join(out) + "\n"


class ValueDocument(Document):
    """One value, and who has it."""

    value: JsonValue
    note: str
    hosts: list[str]


class RowDocument(Document):
    """One difference over the fleet."""

    name: str
    title: str
    factor: str | None
    odd: list[str] = Field(description="Hosts without the value that more than half have; empty: no majority.")
    values: list[ValueDocument] = Field(description="Most hosts first.")
    likelihood: float
    reasons: list[str]


class FleetDocument(Document):
    """What `fingerprint diff A B C --format json` prints."""

    schema_number: int = Field(default=1, alias="schema")
    equal: bool
    reference: str
    groups: list[list[str]] = Field(description="Hosts with equal identities.")
    differences: list[RowDocument]
    not_comparable: list[RowDocument]


def document(fleet: Fleet) -> FleetDocument:
    """The fleet's comparison as data."""
    return FleetDocument(
        equal=fleet.equal,
        reference=fleet.reference,
        groups=[list(group) for group in fleet.groups],
        differences=[_row(row) for row in fleet.rows],
        not_comparable=[_row(row) for row in fleet.not_comparable],
    )


def _row(row: Row) -> RowDocument:
    return RowDocument(
        name=row.difference.name,
        title=row.difference.title,
        factor=row.difference.factor,
        odd=list(row.odd),
        values=[ValueDocument(value=plain(one.leaf), note=one.note, hosts=list(one.hosts)) for one in row.values],
        likelihood=row.difference.likelihood,
        reasons=[reason_text(reason) for reason in row.difference.reasons],
    )
