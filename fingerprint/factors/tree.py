"""The serving tree: its commit, and each file that is locally different."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from fingerprint.factors.base import Evidence, Factor, Fixed, Inside, extract_line
from fingerprint.factors.commits import commits_inside
from fingerprint.factors.hunks import hunks_of
from fingerprint.factors.plan import LaunchPlan, TreePlan
from fingerprint.hunks import hunks
from snapshots import LocalFile, Snapshot, Tree


def _tree_plan(plan: LaunchPlan, root: str, live: Tree) -> TreePlan:
    commit = live.commit if isinstance(live.commit, str) else ""
    return plan.trees.setdefault(root, TreePlan(commit, commit, dict(live.files), dict(live.files)))


@dataclass(frozen=True)
class Commit(Factor):
    """The commit that is checked out."""

    root: str
    old: str
    new: str
    live: Tree

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Check out one commit or the other."""
        commit = self.new if new else self.old
        _tree_plan(plan, self.root, self.live).commit = commit
        plan.check(self.id, "commit", root=self.root, value=commit)

    def revert(self) -> str:
        """The git command."""
        return f"git -C {shlex.quote(self.root)} checkout {self.old}"

    def inside(self, evidence: Evidence) -> Inside | str:
        """The commits between, along the first parents."""
        tree = partial(_tree_plan, root=self.root, live=self.live)
        return commits_inside(self.id, self.root, self.old, self.new, self.live.imports, evidence.clones, tree)


@dataclass(frozen=True)
class ChangedFile(Factor):
    """The local difference of one file."""

    root: str
    path: str
    old: LocalFile | None
    new: LocalFile | None
    live: Tree

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Give the file one side's local difference, or none."""
        tree = _tree_plan(plan, self.root, self.live)
        wanted = self.new if new else self.old
        if wanted is None:
            tree.wanted.pop(self.path, None)
            plan.check(self.id, "committed", root=self.root, path=self.path)
        else:
            tree.wanted[self.path] = wanted
            plan.check(
                self.id, "difference", root=self.root, path=self.path, change=wanted.change, sha256=wanted.sha256
            )

    def revert(self) -> str:
        """The git command, or what to put back."""
        if self.old is None and self.new is not None and self.new.change == "untracked":
            return f"rm {shlex.quote(str(PurePosixPath(self.root, self.path)))}"
        git, path = f"git -C {shlex.quote(self.root)}", shlex.quote(self.path)
        if self.new is not None and self.new.change == "added":
            committed = f"{git} rm --force -- {path}"
        else:
            committed = f"{git} checkout HEAD -- {path}"
        if self.old is None:
            return committed
        if self.old.change == "untracked":
            return f"{extract_line(self.id)} > {shlex.quote(str(PurePosixPath(self.root, self.path)))}"
        if self.old.change == "deleted":
            return f"{git} rm --force -- {path}"
        clean = f"{committed} && " if self.new is not None else ""
        return f"{clean}{extract_line(self.id)} | {git} apply"

    def inside(self, _evidence: Evidence) -> Inside | str:
        """Its hunks."""
        tree = partial(_tree_plan, root=self.root, live=self.live)
        return hunks_of(self.id, self.root, self.path, self.old, self.new, tree)


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Commits and locally different files of trees that both snapshots know, submodules and moved trees among them."""
    came_from = {now: was for was, now in moved_roots(old, new).items()}
    for root, after in new.trees.trees.items():
        before = old.trees.trees.get(came_from.get(root, root))
        if before is None:
            continue
        name = "" if len(new.trees.trees) == 1 else f"{PurePosixPath(root).name}/"
        if before.commit != after.commit:
            yield _commit(f"tree:{name}commit", root, before, after)
        for path in sorted(before.files.keys() | after.files.keys()):
            was, is_now = before.files.get(path), after.files.get(path)
            if _same(was, is_now):
                continue
            identifier = f"tree:{name}{path}"
            if any(side is not None and side.change == "submodule" for side in (was, is_now)):
                if str(PurePosixPath(root, path)) not in new.trees.trees:  # else it is a tree with factors of its own
                    reason = "the submodule is not checked out, or git could not read it"
                    yield Fixed(identifier, _words(was), _words(is_now), reason)
            elif was is not None and (not was.exact or not isinstance(was.patch, str)) and was.change != "deleted":
                reason = (
                    "its old text is not whole in the snapshot (a secret was replaced, or it is binary or too long)"
                )
                yield Fixed(identifier, _words(was), _words(is_now), reason)
            else:
                yield ChangedFile(identifier, _words(was), _words(is_now), root, path, was, is_now, after)


def moved_roots(old: Snapshot, new: Snapshot) -> dict[str, str]:
    """Trees that lie at another path now: old root -> new root. The same repository has a remote or commit in common.

    What such a tree holds is a factor at its new path; the path itself is none, nor what only follows from it.
    """
    left = {root: tree for root, tree in old.trees.trees.items() if root not in new.trees.trees}
    came = {root: tree for root, tree in new.trees.trees.items() if root not in old.trees.trees}
    moved: dict[str, str] = {}
    for root, tree in sorted(left.items()):
        same = [
            now for now, other in sorted(came.items()) if now not in moved.values() and _one_repository(tree, other)
        ]
        named = [now for now in same if PurePosixPath(now).name == PurePosixPath(root).name]
        if len(same) == 1 or named:
            moved[root] = (named or same)[0]
    return moved


def _one_repository(one: Tree, other: Tree) -> bool:
    if set(one.remotes.values()) & set(other.remotes.values()):
        return True
    return isinstance(one.commit, str) and one.commit == other.commit


def in_place_of(moved: dict[str, str], text: str) -> str:
    """A value of the old launch with the paths of moved trees as they are now; only whole paths in it are meant."""
    for was, now in moved.items():
        whole = rf"(?<![^:=,;\s]){re.escape(was)}(?=$|[/:=,;\s])"
        text = now.join(re.split(whole, text))
    return text


def _same(was: LocalFile | None, is_now: LocalFile | None) -> bool:
    if was is None or is_now is None:
        return was is is_now
    return (was.change, was.patch) == (is_now.change, is_now.patch)


def _commit(identifier: str, root: str, before: Tree, after: Tree) -> Factor | Fixed:
    if not isinstance(before.commit, str) or not isinstance(after.commit, str):
        return Fixed(identifier, str(before.commit), str(after.commit), "a commit could not be read")
    return Commit(identifier, before.commit[:12], after.commit[:12], root, before.commit, after.commit, after)


def _words(file: LocalFile | None) -> str:
    if file is None:
        return "as committed"
    if file.change == "modified" and isinstance(file.patch, str):
        changed = hunks(file.patch)
        return f"modified +{sum(len(one.added) for one in changed)} -{sum(len(one.removed) for one in changed)}"
    return file.change
