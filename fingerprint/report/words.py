"""Text that is safe to show, and numbers as people read them.

What a host, a journal or a stranger's bundle holds may be made of HTML, terminal escapes, marks that turn the reading
direction, or a megabyte on one line. `clean` makes each of these visible and short, once, where a report is built; the
formats then only have to escape for their own syntax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

_TEXT_LIMIT = 600
_LINE_LIMIT = 4000


def clean(text: str, limit: int = _TEXT_LIMIT) -> str:
    """One line of printable text: every other character as its escape, at most about `limit` characters.

    Controls, direction marks, zero-width and odd spaces, lone surrogates and unassigned code points are what
    `str.isprintable` rejects. Letters of right-to-left scripts stay.
    """
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else _escape(c) for c in cut)
    return cut if len(text) <= limit else f"{cut}… ({len(text)} characters)"


def _escape(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(
        character, f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{{{ord(character):x}}}"
    )


Text = Annotated[str, AfterValidator(clean)]
"""Text in a report: always clean."""

CommandLine = Annotated[str, AfterValidator(lambda text: clean(text, _LINE_LIMIT))]
"""A line to type: clean, and cut only where nobody would type it anyway."""


def number(value: float, digits: int = 3) -> str:
    """A number with three significant digits, never in exponent form: `0.574`, `19.1`, `1280`."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


def decimals_for(scatter: float) -> int:
    """How many decimals a figure deserves that is known to about `scatter`."""
    if not (math.isfinite(scatter) and scatter > 0):
        return 2
    return min(4, max(0, 1 - math.floor(math.log10(3 * scatter))))


def ms(value: float, decimals: int | None = None, *, sign: bool = False) -> str:
    """Milliseconds: `19.13 ms`."""
    text = number(abs(value)) if decimals is None else f"{abs(value):.{decimals}f}"
    minus = value < 0 and float(text) != 0 if text != "unknown" else False
    return f"{'-' if minus else '+' if sign else ''}{text} ms"


def ms_interval(interval: tuple[float, float, float], decimals: int, *, sign: bool = False) -> str:
    """`+0.57 ms [0.52, 0.61]`."""
    low, mid, high = interval
    return f"{ms(mid, decimals, sign=sign)} [{low:.{decimals}f}, {high:.{decimals}f}]"


def percent(value: float) -> str:
    """A share: `98 %`."""
    return f"{100 * value:.0f} %"


def percent_interval(interval: tuple[float, float, float]) -> str:
    """`98 % [91, 104]`."""
    low, mid, high = interval
    return f"{100 * mid:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def probability(value: float) -> str:
    """A probability that never pretends to be certain: `97 %`, `over 99.9 %`, `under 0.1 %`."""
    if value > 0.999:
        return "over 99.9 %"
    if value < 0.001:
        return "under 0.1 %"
    if value > 0.99 or value < 0.01:
        return f"{100 * value:.1f} %"
    return f"{100 * value:.0f} %"


def how_sure(value: float) -> str:
    """A probability in words."""
    for least, words in ((0.99, "almost certain"), (0.95, "very likely"), (0.8, "likely"), (0.6, "rather likely")):
        if value >= least:
            return words
    return "open"


def duration(seconds: float) -> str:
    """`48 s`, `34 min`, `3 h 10 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number_of: int, noun: str) -> str:
    """`1 launch`, `12 launches`, `3 differences`."""
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{number_of} {noun if number_of == 1 else plural}"


def out_of_reach(needed: float, most: int | None) -> str:
    """That no accept length is that great, as the end of a sentence; empty where one may be."""
    if most is None or needed <= most:
        return ""
    return f", and a cycle with {count(most - 1, 'draft step')} gains {count(most, 'token')} at most"


def listing(items: Iterable[str], limit: int = 6) -> str:
    """`a, b and c`; the rest as a number."""
    names = list(items)
    if len(names) > limit:
        return f"{', '.join(names[: limit - 1])} and {len(names) - limit + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)
