"""One snapshot for people: what each section read, what it could not, and its values by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fingerprint.errors import UsageError
from fingerprint.report.differences import value
from fingerprint.report.words import clean, count
from snapshots import Key, Section, Snapshot, leaves

if TYPE_CHECKING:
    from rich.console import RenderableType

PARTS_SHOWN = 20
VALUES_SHOWN = 8


def section_of(snapshot: Snapshot, name: str) -> Section:
    """A section by its name.

    Raises:
        UsageError: there is none of that name.
    """
    sections = snapshot.sections()
    if name not in sections:
        raise UsageError(f"A snapshot has no section {clean(name, 60)!r}; it has {', '.join(sections)}.")
    return sections[name]


def terminal(snapshot: Snapshot, name: str | None = None, *, opened: bool = False) -> RenderableType:
    """All sections in a line each, or one with its values."""
    from rich.console import Group
    from rich.text import Text

    if name is not None:
        section = section_of(snapshot, name)
        lines = [Text(line) for line in _section(section, opened=opened)]
        return Group(Text(_head(name, section), style="bold"), *lines)
    measured = snapshot.measured
    figure = f", {measured.metric} {measured.value:g} ms ({clean(measured.source, 100)})" if measured else ""
    taken = f"{snapshot.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    top = Text(f"{clean(snapshot.target, 100)}, {taken}, id {snapshot.id[:16]}{figure}", style="bold")
    return Group(top, *(Text(_head(one, section)) for one, section in snapshot.sections().items()))


def _head(name: str, section: Section) -> str:
    number = sum(1 for _ in leaves(section))
    reason = f": {clean(section.reason, 300)}" if section.reason else ""
    return f"{name:<10} {section.status:<8} {count(number, 'value'):>14} {section.seconds:7.2f} s{reason}"


def _section(section: Section, *, opened: bool) -> Iterator[str]:
    """Values by key, a line for each part; without `opened` only the first few of a large collection."""
    fixed = {key for key, _ in leaves(section)}
    parts: dict[Key, list[str]] = {}
    for key, leaf in leaves(section, state=True):
        if key[0] not in Section.model_fields:  # status, reason and seconds are in the heading
            mark = "" if key in fixed else " (state)"
            parts.setdefault(key[:-1], []).append(f"{clean(key[-1], 80)}={value(leaf)}{mark}")
    shown: dict[Key, int] = {}
    for key, values in parts.items():
        above = key[:-1]
        shown[above] = shown.get(above, 0) + 1
        if opened or shown[above] <= PARTS_SHOWN:
            listed = values if opened else values[:VALUES_SHOWN]
            left = f" and {len(values) - len(listed)} more" if len(values) > len(listed) else ""
            yield f"  {clean('/'.join(key), 200)}: {', '.join(listed)}{left}" if key else f"  {', '.join(listed)}{left}"
    hidden = sum(number - PARTS_SHOWN for number in shown.values() if number > PARTS_SHOWN)
    if hidden and not opened:
        yield f"  … and {hidden} more parts; --all shows them"


def text(snapshot: Snapshot, name: str) -> str:
    """One section as JSON, in ASCII."""
    import json

    section = section_of(snapshot, name)
    return json.dumps(section.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=True)
