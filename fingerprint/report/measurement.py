"""A measurement of a live server, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fingerprint.report.words import clean, number, out_of_reach
from snapshots import Unread

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fingerprint.measure import BreakEven
    from snapshots import Batch, Measured

ROWS = (
    ("verify_ms", "verify", "ms"),
    ("draft_ms", "draft", "ms"),
    ("extend_ms", "draft extend", "ms"),
    ("host_ms", "host", "ms"),
    ("gpu_cycle_ms", "whole cycle on the GPU", "ms"),
    ("cycle_ms", "cycle, median", "ms"),
    ("cycle_mean_ms", "cycle, mean", "ms"),
    ("accept_length", "accept length", ""),
    ("tokens_per_second", "speed", "tok/s"),
)
"""Every figure in the order in which it is read: what a cycle consists of, the cycle, and what it gives."""


def terminal(where: str, measured: Measured, even: BreakEven | Unread, *, asked: bool) -> RenderableType:
    """One table for each number of requests at a time, and the break-even in words; why there is none, if `asked`."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    requests = f"{measured.requests} request{'s' if measured.requests > 1 else ''}"
    parts: list[RenderableType] = [
        Text(f"{clean(where)}: {requests} of {measured.max_new_tokens} tokens", style="bold")
    ]
    for together, batch in measured.batches.items():
        table = Table(title=f"{together} at a time", title_justify="left", box=None, pad_edge=False)
        for heading in ("", "", "from"):
            table.add_column(heading)
        for row in rows(batch):
            table.add_row(*row)
        parts += [Text(), table]
    if not isinstance(even, Unread):
        parts += [Text(), *(Text(line) for line in sentences(even))]
    elif asked:
        parts += [Text(), Text(_no_break_even(measured, even))]
    return Group(*parts)


def rows(batch: Batch) -> list[tuple[str, str, str]]:
    """Name, value and source of each figure; what was not measured says why. Several ranks stand below each.

    Why a rank has none is said once, at the first figure.
    """
    found: list[tuple[str, str, str]] = []
    for key, name, unit in ROWS:
        value = batch.figures.get(key)
        source = clean(batch.sources.get(key, ""), 100)
        found.append((name, _value(value, unit), "" if isinstance(value, Unread) else source))
        for rank, figures in batch.ranks.items():
            of_rank = figures.get(key)
            if len(batch.ranks) > 1 and (isinstance(of_rank, float) or (of_rank is not None and key == ROWS[0][0])):
                found.append((f"  rank {clean(rank, 20)}", _value(of_rank, unit), ""))
    return found


def _value(value: float | Unread | None, unit: str) -> str:
    if isinstance(value, Unread):
        return f"not measured: {clean(value.unread, 200)}"
    return "not measured" if value is None else f"{number(value, 4)} {unit}".rstrip()


def sentences(even: BreakEven) -> list[str]:
    """The break-even in words."""
    cycle, length, speed = number(even.cycle_ms), f"{even.accept_length:.2f}", number(even.tokens_per_second)
    lines = [f"A cycle of {cycle} ms at accept length {length} gives {speed} tok/s."]
    lines += [
        f"For {number(wanted)} tok/s it would need an accept length of {needed:.2f}{out_of_reach(needed, even.most)}."
        for wanted, needed in even.needed.items()
    ]
    return lines


def picture(where: str, even: BreakEven) -> str:
    """The break-even as an SVG file: the speeds asked for, and the accept lengths that would give them."""
    from fingerprint.report.charts import Ray, break_even

    ray = Ray("new", "now", clean(where, 60), even.cycle_ms, even.accept_length, even.tokens_per_second)
    return break_even([ray], list(even.needed.items()), " ".join(sentences(even))).file()


def _no_break_even(measured: Measured, why: Unread) -> str:
    """Why there is none; plain decoding is one side of it, and its speed is known now."""
    line = f"There is no break-even: {clean(why.unread, 200)}."
    speed = measured.tokens_per_second
    if measured.accept_length is None and speed is not None:
        line += f" Its {number(speed)} tok/s are what --baseline-tok-s takes for a server that does."
    return line


def as_json(where: str, measured: Measured, even: BreakEven | Unread) -> str:
    """Everything, as one object."""
    document: dict[str, Any] = {"server": where, **measured.model_dump(mode="json")}
    if not isinstance(even, Unread):
        document["break_even"] = {
            "tokens_per_second": even.tokens_per_second,
            "cycle_ms": even.cycle_ms,
            "most": even.most,
            "needed": [{"tokens_per_second": one, "accept_length": two} for one, two in even.needed.items()],
        }
    return json.dumps(document, indent=1, ensure_ascii=True)
