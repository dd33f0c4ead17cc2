"""Numbers in what a program printed."""

from __future__ import annotations

import math
import re
import statistics
from typing import List

from probes.reading import Json, unread

MOST_NUMBERS = 100_000
SOURCE = "the command's output"


def figures(text: str, ask: Json) -> Json:
    """The figure of a run that printed `text`.

    Args:
        text: everything that it printed.
        ask: `pattern` with one group, `ms` that one unit is, `rate`: it is so many in that unit, `skip`: so many
            numbers at the start are not counted.

    Returns:
        `time_ms`, the median in ms, or why there is none; `samples` and `sources`.
    """
    numbers: List[float] = []
    odd = 0
    for match in re.finditer(ask["pattern"], text, re.MULTILINE):
        try:
            number = float((match[1] or "").replace(",", ""))
        except ValueError:
            odd += 1
            continue
        if math.isfinite(number) and number > 0 and len(numbers) < MOST_NUMBERS:
            numbers.append(number)
        else:
            odd += 1
    times = [ask["ms"] / number if ask["rate"] else ask["ms"] * number for number in numbers[ask["skip"] :]]
    if times:
        value: Json = statistics.median(times)
    elif numbers:
        value = unread(f"it printed {len(numbers)} numbers, of which the first {ask['skip']} are not counted")
    elif odd:
        value = unread(f"what matches {ask['pattern']} is no positive number")
    else:
        value = unread(f"nothing that it printed matches {ask['pattern']}")
    return {"time_ms": value, "samples": [{"time_ms": time} for time in times[:1000]], "sources": {"time_ms": SOURCE}}
