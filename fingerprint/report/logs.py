"""The log of a history as text and JSON: what was recorded when, how fast it was, and what changed in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fingerprint.report.words import clean, listing

if TYPE_CHECKING:
    from fingerprint.history import Entry

_PLOT = 30


def render_log(entries: Sequence[Entry], *, plot: bool = False) -> str:
    """One line for each recording, oldest first; times are UTC.

    Args:
        entries: of `fingerprint.history.log`.
        plot: with the figure drawn as a point between the smallest and the largest of its metric and source.
    """
    if not entries:
        return "Nothing was recorded yet; `fingerprint record` does."
    several = len({entry.record.target for entry in entries}) > 1
    spans = _spans(entries)
    lines = []
    for entry in entries:
        record, figure = entry.record, entry.record.measured
        words = [f"{record.at:%Y-%m-%d %H:%M}", record.snapshot[:8]]
        if several:
            words.append(f"{clean(record.target, 24):<24}")
        if figure is None:
            words.append(f"{'not measured':>12}")
        else:
            words.append(f"{figure.value:9.2f} ms")
        if plot:
            words.append(_point(entry, spans))
        if figure is not None and figure.tokens_per_second is not None:
            words.append(f"{figure.tokens_per_second:6.1f} tok/s")
        words.append(_changes(entry))
        words += [f"[{tag}]" for tag in entry.tags]
        lines.append("  ".join(words).rstrip())
    return "\n".join(lines)


def _changes(entry: Entry) -> str:
    if entry.first:
        return "first"
    if not entry.changed:
        return "unchanged"
    more = f" and {entry.more} more" if entry.more else ""
    return f"changed: {listing((clean(title, 60) for title in entry.changed), 10)}{more}"


Spans = dict[tuple[str, str], tuple[float, float]]


def _spans(entries: Sequence[Entry]) -> Spans:
    """Smallest and largest figure for each metric and source: only those may be drawn on one scale."""
    spans: Spans = {}
    for entry in entries:
        figure = entry.record.measured
        if figure is not None:
            low, high = spans.get((figure.metric, figure.source), (figure.value, figure.value))
            spans[figure.metric, figure.source] = min(low, figure.value), max(high, figure.value)
    return spans


def _point(entry: Entry, spans: Spans) -> str:
    figure = entry.record.measured
    if figure is None:
        return " " * (_PLOT + 2)
    low, high = spans[figure.metric, figure.source]
    place = round((figure.value - low) / (high - low) * (_PLOT - 1)) if high > low else 0
    return f"|{'·' * place}●{' ' * (_PLOT - 1 - place)}|"


def log_json(entries: Sequence[Entry]) -> str:
    """The same as JSON."""
    rows = [
        {
            **entry.record.model_dump(mode="json", exclude={"schema_number"}),
            "tags": list(entry.tags),
            "changed": list(entry.changed),
            "more": entry.more,
        }
        for entry in entries
    ]
    return json.dumps(rows, indent=1)
