"""The inside of a locally changed file: its hunks, of which a launch can have any subset that applies.

Changes of both sides at the same place are one part: one of them takes the other's room. A subset that does not apply
to the tree is refused by git on the host, and the search asks around it, as around one that does not start.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from fingerprint.factors.base import Inside, Part, short
from fingerprint.factors.plan import LaunchPlan, TreePlan
from fingerprint.hunks import Hunk, hunks, patch_of
from snapshots import LocalFile


@dataclass(frozen=True)
class Place:
    """One place of a file that both sides have differently."""

    old: tuple[Hunk, ...]
    new: tuple[Hunk, ...]

    @property
    def digest(self) -> str:
        """Names it by what it changes, wherever that stands."""
        text = repr(([one.core for one in self.old], [one.core for one in self.new]))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]

    def blocks(self, *, new: bool) -> list[tuple[str, ...]]:
        """What the file reads here on one side, where that is known."""
        here, there = (self.new, self.old) if new else (self.old, self.new)
        return [hunk.after for hunk in here] or [hunk.before for hunk in there]


@dataclass(frozen=True)
class Hunks(Inside):
    """The hunks of one file.

    Attributes:
        root: the work tree.
        path: the file below it.
        places: the parts' changes, in the order of `parts`.
        common: hunks that both sides have.
        old, new: the file with no part and with all parts new; None: as committed.
        tree: finds the tree's plan in a launch plan.
        committed: the change is a commit's, not a local one: it goes below the local changes.
    """

    root: str
    path: str
    places: tuple[Place, ...]
    common: tuple[Hunk, ...]
    old: LocalFile | None
    new: LocalFile | None
    tree: Callable[[LaunchPlan], TreePlan]
    committed: bool = False

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Give the file these hunks of the new side, and the old side's at all other places."""
        tree = self.tree(plan)
        chosen = list(self.common)
        blocks = [list(hunk.after) for hunk in self.common]
        for part, place in zip(self.parts, self.places, strict=True):
            chosen += place.new if part.id in new else place.old
            blocks += map(list, place.blocks(new=part.id in new))
        whole = self.new if len(new) == len(self.parts) else self.old if not new else _changed(self.path, chosen)
        if self.committed:
            tree.changes += [str(whole.patch)] if whole is not None else []
        elif whole is None:
            tree.wanted.pop(self.path, None)
        else:
            tree.wanted[self.path] = whole
        name = self.parts[0].id.rpartition("#")[0]
        plan.check(name, "text", root=self.root, path=self.path, blocks=[block for block in blocks if block])


def _changed(path: str, chosen: list[Hunk]) -> LocalFile | None:
    return LocalFile(change="modified", patch=patch_of(path, chosen)) if chosen else None


def hunks_of(
    identifier: str,
    root: str,
    path: str,
    old: LocalFile | None,
    new: LocalFile | None,
    tree: Callable[[LaunchPlan], TreePlan],
    *,
    committed: bool = False,
) -> Hunks | str:
    """The inside of a changed file, or why it has none; empty where the change is one piece by its nature.

    Args:
        identifier: of the factor or part that is opened.
        root: the work tree.
        path: the file below it.
        old: its local difference on the old side; None: as committed.
        new: its local difference on the new side; None: as committed.
        tree: finds the tree's plan in a launch plan.
        committed: the change is a commit's; `tree` then gives the tree at the commit before.
    """
    sides = [side for side in (old, new) if side is not None]
    if any(side.change != "modified" for side in sides):
        return ""  # an added, deleted or untracked file is one piece
    if not all(side.exact and isinstance(side.patch, str) for side in sides):
        return "its text is not whole in the snapshot (a secret was replaced, or it is too long)"
    before, after = (str(side.patch) if side is not None else "" for side in (old, new))
    if any(not hunk.body for hunk in (*hunks(before), *hunks(after))) or "GIT binary patch" in before + after:
        return ""
    left = Counter(hunk.core for hunk in hunks(after))
    only_old: list[Hunk] = []
    common: list[Hunk] = []
    for hunk in hunks(before):
        (common if left[hunk.core] > 0 else only_old).append(hunk)
        left[hunk.core] -= 1
    left = Counter(hunk.core for hunk in common)
    only_new: list[Hunk] = []
    for hunk in hunks(after):
        if left[hunk.core] <= 0:
            only_new.append(hunk)
        left[hunk.core] -= 1
    places = places_of(only_old, only_new)
    if not places:
        return ""
    named: dict[str, Place] = {}
    for place in places:
        name, count = f"{identifier}#{place.digest}", 1
        while name in named:
            count += 1
            name = f"{identifier}#{place.digest}-{count}"
        named[name] = place
    parts = tuple(_part(name, root, path, place) for name, place in named.items())
    return Hunks(
        parts=parts,
        root=root,
        path=path,
        places=tuple(places),
        common=tuple(common),
        old=old,
        new=new,
        tree=tree,
        committed=committed,
    )


def places_of(old: Iterable[Hunk], new: Iterable[Hunk]) -> list[Place]:
    """The hunks of both sides, those that overlap in the unchanged file put together."""
    rows = sorted([*((one, False) for one in old), *((one, True) for one in new)], key=lambda row: row[0].start)
    groups: list[list[tuple[Hunk, bool]]] = []
    end = 0
    for row in rows:
        if groups and row[0].start < end:
            groups[-1].append(row)
        else:
            groups.append([row])
        end = max(end, row[0].start + row[0].length)
    return [
        Place(tuple(hunk for hunk, late in group if not late), tuple(hunk for hunk, late in group if late))
        for group in groups
    ]


def _part(name: str, root: str, path: str, place: Place) -> Part:
    first = (place.new or place.old)[0]
    where = f"@@ {first.scope}" if first.scope else f"of line {first.start}"
    return Part(
        id=name,
        title=f"hunk {where} of {path}",
        old_words=_words(place.old),
        new_words=_words(place.new),
        revert=f"# in {shlex.quote(str(PurePosixPath(root, path)))}: take back the hunk {short(where)}",
    )


def _words(held: tuple[Hunk, ...]) -> str:
    return short("; ".join(map(str, held)), 100) if held else "as committed"
