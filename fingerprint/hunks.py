"""The hunks of a unified difference, known by what they change and not by where.

A hunk that only moved (because something above it grew) is the same hunk. Context lines are left out for the same
reason: a neighbour's change alters them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_START = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@(.*)$")


@dataclass(frozen=True)
class Hunk:
    """One place of a change.

    Attributes:
        removed: lines that it takes out.
        added: lines that it puts in.
        within: the function or class line that git prints with it; empty if none.
    """

    removed: tuple[str, ...]
    added: tuple[str, ...]
    within: str = ""

    @property
    def content(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What makes two hunks the same."""
        return self.removed, self.added

    def __str__(self) -> str:
        """One line for a person: how much, where, and the first line that it brings or takes."""
        lines = [*(f"+ {line.strip()}" for line in self.added), *(f"- {line.strip()}" for line in self.removed)]
        first = next((line for line in lines if len(line) > 2), "blank lines")
        within = f" in {self.within}" if self.within else ""
        return f"+{len(self.added)} -{len(self.removed)}{within}: {first}"


def hunks(patch: str) -> list[Hunk]:
    """The hunks of one file's unified difference; a text without any is one hunk that adds all of it."""
    found: list[Hunk] = []
    removed: list[str] = []
    added: list[str] = []
    within: str | None = None
    for line in patch.splitlines():
        start = _START.match(line)
        if start is not None:
            if within is not None:
                found.append(Hunk(tuple(removed), tuple(added), within))
            removed, added, within = [], [], start[1].strip()
        elif within is not None:
            if line.startswith("-"):
                removed.append(line[1:])
            elif line.startswith("+"):
                added.append(line[1:])
    if within is not None:
        found.append(Hunk(tuple(removed), tuple(added), within))
    elif patch.strip() and not patch.startswith("diff --git"):
        found.append(Hunk((), tuple(patch.splitlines())))
    return found


def apart(old: str, new: str) -> tuple[list[Hunk], list[Hunk], list[Hunk]]:
    """The hunks only in old, only in new, and in both, matched by content."""
    before, after = hunks(old), hunks(new)
    left = Counter(hunk.content for hunk in before)
    only_new, both = [], []
    for hunk in after:
        if left[hunk.content] > 0:
            left[hunk.content] -= 1
            both.append(hunk)
        else:
            only_new.append(hunk)
    only_old = []
    for hunk in reversed(before):
        if left[hunk.content] > 0:
            left[hunk.content] -= 1
            only_old.append(hunk)
    return only_old[::-1], only_new, both
