"""The inside of a commit difference: the commits between along the first parents; of one commit its files; then hunks.

A launch can have the first k commits of the way from the old one to the new one, so the search is an ordered one, and
a commit that does not start is skipped. Where the new commit does not contain the old one, the way leads back to where
they part, and forward from there. Commits that touch nothing that the server imports go along with the one before
them, and a long way is first searched in pieces.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fingerprint.commits import Passed, changes_between, way_between
from fingerprint.errors import UsageError
from fingerprint.factors.base import Inside, Part, short
from fingerprint.factors.hunks import hunks_of
from fingerprint.factors.plan import LaunchPlan, TreePlan
from snapshots import LocalFile

MOST_STEPS = 64
"""A longer way is searched in so many pieces first."""
MOST_FILES = 200

TreeOf = Callable[[LaunchPlan], TreePlan]


@dataclass(frozen=True)
class Step:
    """Some commits passed at once, and the commit that is checked out after them."""

    passed: tuple[Passed, ...]
    to: str


@dataclass(frozen=True)
class Commits(Inside):
    """A way from one commit to another.

    Attributes:
        root: the work tree on the host.
        clone: a repository that has the commits.
        start: the commit with no part new.
        steps: the parts' commits, in order.
        tree: finds the tree's plan in a launch plan.
    """

    ordered: ClassVar[bool] = True
    root: str
    clone: Path
    start: str
    steps: tuple[Step, ...]
    tree: TreeOf

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Check out the commit after the last step that is new."""
        commit = self.start
        for part, step in zip(self.parts, self.steps, strict=True):
            if part.id in new:
                commit = step.to
        self.tree(plan).commit = commit
        plan.check(self.parts[0].id.partition("@")[0], "commit", root=self.root, value=commit)

    def inside(self, part: str) -> Inside | str:
        """The commits of a piece, or the files of one commit."""
        place = next(place for place, one in enumerate(self.parts) if one.id == part)
        before = self.steps[place - 1].to if place else self.start
        step = self.steps[place]
        if sum(one.imported for one in step.passed) > 1:
            return _commits(part.partition("@")[0], self.root, self.clone, before, step.passed, step.to, self.tree)
        try:
            changes = changes_between(self.clone, before, step.to)
        except UsageError as error:
            return str(error)
        if len(changes) > MOST_FILES:
            return f"it touches {len(changes)} files, more than the {MOST_FILES} that are searched"
        title = self.parts[place].title
        parts = tuple(Part(f"{part}/{path}", f"{path} in {title}", "before", "after") for path in changes)
        return Files(parts=parts, root=self.root, before=before, after=step.to, changes=changes, tree=self.tree)


@dataclass(frozen=True)
class Files(Inside):
    """The files of one commit.

    Attributes:
        root: the work tree on the host.
        before, after: the commit without and with all of them.
        changes: the difference of each file, by path, in the order of `parts`.
        tree: finds the tree's plan in a launch plan.
    """

    root: str
    before: str
    after: str
    changes: dict[str, str]
    tree: TreeOf

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        """Check out the commit before, and lay the differences of these files over it."""
        tree = self.tree(plan)
        whole = len(new) == len(self.parts)
        tree.commit = self.after if whole else self.before
        plan.check(self.parts[0].id.partition("@")[0], "commit", root=self.root, value=tree.commit)
        for part, (path, patch) in zip(self.parts, self.changes.items(), strict=True):
            if part.id in new and not whole:
                tree.changes.append(patch)
            if path not in tree.wanted:
                side = self.after if part.id in new else self.before
                plan.check(part.id, "committed", root=self.root, path=path, commit=side)

    def inside(self, part: str) -> Inside | str:
        """The hunks of one file."""
        path, patch = next(
            change for one, change in zip(self.parts, self.changes.items(), strict=True) if one.id == part
        )
        if "\n@@ " not in patch or "\nnew file mode " in patch or "\ndeleted file mode " in patch:
            return ""

        def at_the_commit_before(plan: LaunchPlan) -> TreePlan:
            tree = self.tree(plan)
            tree.commit = self.before
            return tree

        changed = LocalFile(change="modified", patch=patch)
        return hunks_of(part, self.root, path, None, changed, at_the_commit_before, committed=True)


def commits_inside(
    identifier: str, root: str, old: str, new: str, imports: Sequence[str], clones: Sequence[Path], tree: TreeOf
) -> Inside | str:
    """The way between two commits, or why it cannot be walked.

    Args:
        identifier: of the factor that is opened.
        root: the work tree on the host.
        old: the commit of the old side.
        new: the commit of the new side.
        imports: directories below the root from which the server imports.
        clones: repositories that may have the commits.
        tree: finds the tree's plan in a launch plan.
    """
    reason = "its commits are in no repository at hand; name a clone with --repo"
    for clone in clones:
        try:
            passed = way_between(clone, old, new, imports)
        except UsageError as error:  # noqa: PERF203 - each clone for itself
            reason = str(error)
        else:
            if not any(one.imported for one in passed):  # then nothing is known of what matters
                passed = [replace(one, imported=True) for one in passed]
            return _commits(identifier, root, clone, old, passed, new, tree)
    return reason


def _commits(
    identifier: str, root: str, clone: Path, start: str, passed: Sequence[Passed], end: str, tree: TreeOf
) -> Commits:
    """The way in at most `MOST_STEPS` steps; commits that the server does not import from belong to the one before."""
    groups: list[list[Passed]] = []
    for one in passed:
        if not groups or (one.imported and any(held.imported for held in groups[-1])):
            groups.append([])
        groups[-1].append(one)
    size = -(-len(groups) // MOST_STEPS)
    pieces = [[one for group in groups[at : at + size] for one in group] for at in range(0, len(groups), size)]
    steps = tuple(Step(tuple(piece), piece[-1].to) for piece in pieces)
    if steps[-1].to != end:
        raise ValueError(f"the way to {end} ends at {steps[-1].to}")
    parts = tuple(_part(identifier, root, step) for step in steps)
    return Commits(parts=parts, root=root, clone=clone, start=start, steps=steps, tree=tree)


def _part(identifier: str, root: str, step: Step) -> Part:
    real = [one for one in step.passed if one.imported]
    one = real[0]
    verb, word = ("revert", "commit") if one.forward else ("cherry-pick", "the loss of commit")
    title = f"{word} {one.sha[:12]} ({short(one.subject)})"
    if len(real) > 1:
        title = f"{len(real)} commits from {real[0].sha[:12]} to {real[-1].sha[:12]}"
    return Part(
        id=f"{identifier}@{'' if one.forward else '-'}{one.sha[:12]}",
        title=title,
        old_words="before it",
        new_words=short(one.subject),
        revert=f"git -C {shlex.quote(root)} {verb} --no-commit {one.sha[:12]}" if len(real) == 1 else "",
    )
