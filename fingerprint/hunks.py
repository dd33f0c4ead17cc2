"""The hunks of a unified difference, known by what they change and not by where.

A hunk that only moved (because something above it grew) is the same hunk. Context lines are left out for the same
reason: a neighbour's change alters them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_START = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@(.*)$")
_SCOPE = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)")


@dataclass(frozen=True)
class Hunk:
    """One place of a change.

    Attributes:
        removed: lines that it takes out.
        added: lines that it puts in.
        within: the function or class line that git prints with it; empty if none.
        start: line of the unchanged file at which it begins, from 1.
        length: lines of the unchanged file that it covers, its context included.
        body: its lines as the patch has them, marks included.
    """

    removed: tuple[str, ...]
    added: tuple[str, ...]
    within: str = ""
    start: int = field(default=0, compare=False)
    length: int = field(default=0, compare=False)
    body: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def content(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What makes two hunks the same."""
        return self.removed, self.added

    @property
    def core(self) -> tuple[str, ...]:
        """Its lines with their marks, without the context around them: the same only when the very same is done."""
        changed = [place for place, line in enumerate(self.body) if line[:1] in {"+", "-"}]
        return self.body[changed[0] : changed[-1] + 1] if changed else ()

    @property
    def before(self) -> tuple[str, ...]:
        """Its lines, context included, as they are without it."""
        return tuple(line[1:] for line in self.body if line[:1] in {" ", "-"})

    @property
    def after(self) -> tuple[str, ...]:
        """Its lines, context included, as they are with it."""
        return tuple(line[1:] for line in self.body if line[:1] in {" ", "+"})

    @property
    def scope(self) -> str:
        """Name of the innermost function or class known to hold its first change; empty if none is in sight."""
        for line in reversed(self.body[: next((i for i, row in enumerate(self.body) if row[:1] in "+-"), 0)]):
            if found := _SCOPE.match(line[1:]):
                return found[1]
        found = _SCOPE.match(self.within)
        return found[1] if found else self.within

    def __str__(self) -> str:
        """One line for a person: how much, where, and the first line that it brings or takes."""
        lines = [*(f"+ {line.strip()}" for line in self.added), *(f"- {line.strip()}" for line in self.removed)]
        first = next((line for line in lines if len(line) > 2), "blank lines")
        within = f" in {self.within}" if self.within else ""
        return f"+{len(self.added)} -{len(self.removed)}{within}: {first}"


def hunks(patch: str) -> list[Hunk]:
    """The hunks of one file's unified difference; a text without any is one hunk that adds all of it."""
    found: list[Hunk] = []
    head: re.Match[str] | None = None
    body: list[str] = []
    for line in patch.split("\n"):  # not splitlines: a form feed is a letter of its line
        start = _START.match(line)
        if start is not None or line.startswith("diff --git "):
            if head is not None:
                found.append(_hunk(head, body))
            head, body = start, []
        elif head is not None and line[:1] in {" ", "+", "-", "\\"}:
            body.append(line)
    if head is not None:
        found.append(_hunk(head, body))
    elif not found and patch.strip() and not patch.startswith("diff --git"):
        found.append(Hunk((), tuple(patch.splitlines())))
    return found


def _hunk(head: re.Match[str], body: list[str]) -> Hunk:
    removed = tuple(line[1:] for line in body if line.startswith("-"))
    added = tuple(line[1:] for line in body if line.startswith("+"))
    length = 1 if head[2] is None else int(head[2])
    return Hunk(removed, added, head[3].strip(), int(head[1]), length, tuple(body))


def patch_of(path: str, chosen: Sequence[Hunk]) -> str:
    """A unified difference of one existing file that makes only these changes, which must not overlap."""
    lines = [f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}"]
    moved = 0
    for hunk in sorted(chosen, key=lambda one: one.start):
        grown = len(hunk.after)
        lines.append(f"@@ -{hunk.start},{hunk.length} +{hunk.start + moved},{grown} @@ {hunk.within}".rstrip())
        lines += hunk.body
        moved += grown - hunk.length
    return "\n".join([*lines, ""])


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
