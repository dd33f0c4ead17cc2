"""The commits between two states of a source tree, those first that touch what the server imports.

Needs a clone that has both commits; the measured host's tree is never asked. Histories are not always one line: where
the new commit does not contain the old one, the commits that only the old side had are listed as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from fingerprint.diff.knowledge import PATHS, first
from fingerprint.errors import UsageError
from snapshots import Tree

if TYPE_CHECKING:
    from git import Repo

    from fingerprint.diff.difference import Comparison

MOST = 2000
"""Commits that are looked at, on each side."""
MOST_PATCH_BYTES = 16 << 20
_SHA = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Commit:
    """One commit between.

    Attributes:
        sha: full hash.
        subject: first line of its message.
        at: commit time, UTC.
        paths: files that it touches.
        imported: those of them that the server imports from.
        weight: the strongest topic of those files, as `fingerprint.diff.knowledge` weighs paths.
        why: that topic in words; empty where none is known.
        side: `new` where the new side gained it, `old` where it lost it.
    """

    sha: str
    subject: str
    at: datetime
    paths: tuple[str, ...]
    imported: tuple[str, ...]
    weight: float
    why: str
    side: str


@dataclass(frozen=True)
class Between:
    """What lies between two commits.

    Attributes:
        commits: those that touch imported code first, by the strength of what they touch, then newest first.
        linear: whether the new commit contains the old one.
        cut: whether there were more than `MOST`.
    """

    commits: tuple[Commit, ...]
    linear: bool
    cut: bool


@dataclass(frozen=True)
class Passed:
    """One commit on the way between two others.

    Attributes:
        sha: full hash.
        subject: first line of its message.
        imported: whether it touches what the server imports.
        forward: whether the way gains it; else it leads back over it.
        to: the commit at which one is after passing it.
    """

    sha: str
    subject: str
    imported: bool
    forward: bool
    to: str


def way_between(clone: Path, old: str, new: str, imports: Sequence[str] = ()) -> list[Passed]:
    """The way from one commit to another along first parents: back to where they part, then forward.

    A commit whose branch does not contain that point is not on the way; the merge that brought it is.

    Args:
        clone: a git repository that has both commits.
        old: commit of the old side.
        new: commit of the new side.
        imports: directories below the root from which the server imports; empty: all.

    Raises:
        UsageError: not a repository, one of the commits is not in it, they have nothing in common, or too many lie
            between them.
    """
    with _opened(clone, old, new) as repo:
        base = _asked(repo, clone, "merge_base", old, new).split("\n")[0]
        back = _line_of(repo, clone, base, old, imports)
        there = _line_of(repo, clone, base, new, imports)
    places = [base, *(sha for sha, _, _ in back)]
    return [
        *(
            Passed(sha, subject, imported, forward=False, to=places[at])
            for at, (sha, subject, imported) in reversed(list(enumerate(back)))
        ),
        *(Passed(sha, subject, imported, forward=True, to=sha) for sha, subject, imported in there),
    ]


def _line_of(repo: Repo, clone: Path, base: str, tip: str, imports: Sequence[str]) -> list[tuple[str, str, bool]]:
    """The first parents from `base` (left out) to `tip` that contain `base`, oldest first, with what they touch."""
    span = f"{base}..{tip}"
    containing = set(_asked(repo, clone, "rev_list", "--ancestry-path", span).split())
    # Of a merge, what it brought to its first parent.
    text = _asked(
        repo, clone, "log", "--first-parent", "-m", "--no-renames", "--name-only", "-z", f"--max-count={MOST + 1}",
        "--format=%x01%H%x00%s", span,
    )  # fmt: skip
    found: list[tuple[str, str, bool]] = []
    for record in text.split("\x01")[1:]:
        sha, subject, *paths = record.split("\x00")
        touched = [path.strip("\n") for path in paths if path.strip("\n")]
        if sha in containing:
            found.append((sha, subject.strip("\n"), any(_below(path, imports) for path in touched)))
    if len(found) > MOST:
        raise UsageError(f"More than {MOST} commits lie between {base[:12]} and {tip[:12]}.")
    return found[::-1]


def changes_between(clone: Path, before: str, after: str) -> dict[str, str]:
    """Path -> its difference from one commit to another, as `git apply` takes it.

    Raises:
        UsageError: not a repository, the commits are not in it, or the difference is too large or not text.
    """
    with _opened(clone, before, after) as repo:
        names = _asked(repo, clone, "diff", "--name-only", "--no-renames", "-z", before, after)
        changes = {}
        for path in filter(None, names.split("\0")):
            changes[path] = _asked(
                repo, clone, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index",
                "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", before, after, "--", f":(top,literal){path}",
            ) + "\n"  # fmt: skip
    if sum(map(len, changes.values())) > MOST_PATCH_BYTES:
        raise UsageError(f"The commit {after[:12]} changes more than {MOST_PATCH_BYTES >> 20} MiB.")
    if any("\udc80" <= letter <= "\udcff" for patch in changes.values() for letter in patch):
        raise UsageError(f"The commit {after[:12]} changes a file that is not UTF-8 text.")
    return changes


@contextmanager
def _opened(clone: Path, *commits: str) -> Iterator[Repo]:
    """A repository that has these commits; closed at the end.

    Raises:
        UsageError: it is none, or has not all of them.
    """
    from git import InvalidGitRepositoryError, NoSuchPathError, Repo

    try:
        repo = Repo(clone)
    except (InvalidGitRepositoryError, NoSuchPathError):
        raise UsageError(f"{clone} is not a git repository; give --repo a clone of the served tree.") from None
    with repo:
        for sha in commits:
            if not _SHA.fullmatch(sha) or not _has(repo, sha):
                raise UsageError(f"Commit {sha[:40]!r} is not in {clone}; fetch it there, or name another clone.")
        yield repo


def _asked(repo: Repo, clone: Path, command: str, *words: str) -> str:
    from git import GitCommandError

    try:
        return str(getattr(repo.git, command)(*words))
    except GitCommandError as error:
        reason = error.stderr.strip() or "it has no answer"
        raise UsageError(f"git {command.replace('_', '-')} failed in {clone}: {reason}") from None


def commits_between(clone: Path, old: str, new: str, imports: Sequence[str] = ()) -> Between:
    """List the commits between two states.

    Args:
        clone: a git repository that has both commits.
        old: commit of the old side.
        new: commit of the new side.
        imports: directories below the root from which the server imports; empty: all.

    Raises:
        UsageError: not a repository, or one of the commits is not in it.
    """
    from git import GitCommandError

    with _opened(clone, old, new) as repo:
        try:
            gained, more = _listed(repo, f"{old}..{new}", "new", imports)
            lost, more_lost = _listed(repo, f"{new}..{old}", "old", imports)
        except GitCommandError as error:
            raise UsageError(f"git could not list commits in {clone}: {error.stderr.strip()}") from None
    commits = sorted((*gained, *lost), key=lambda one: (not one.imported, -one.weight, -one.at.timestamp(), one.sha))
    return Between(tuple(commits), linear=not lost, cut=more or more_lost)


def commits_of(comparison: Comparison, clone: Path) -> Between | None:
    """The commits behind the tree whose commit differs; None when no tree's does.

    Where several trees differ, the first one that the clone knows is meant.

    Raises:
        UsageError: not a repository, or it has the commits of none of the trees.
    """
    moved = [one for one in comparison.differences if one.key[0] == "trees" and one.key[-1] == "commit"]
    trouble: UsageError | None = None
    for one in moved:
        tree = comparison.new.trees.trees.get(one.key[2])
        imports = tree.imports if isinstance(tree, Tree) else []
        try:
            return commits_between(clone, str(one.old), str(one.new), imports)
        except UsageError as error:
            trouble = error
    if trouble is not None:
        raise trouble
    return None


def _has(repo: Repo, sha: str) -> bool:
    from git import GitCommandError

    try:
        repo.git.cat_file("-e", f"{sha}^{{commit}}")
    except GitCommandError:
        return False
    return True


def _listed(repo: Repo, span: str, side: str, imports: Sequence[str]) -> tuple[list[Commit], bool]:
    """One git call for all of it: hashes, times, subjects and paths, separated by NULs."""
    text = repo.git.log(
        span,
        f"--max-count={MOST + 1}",
        "--no-renames",
        "--no-merges",
        "--name-only",
        "-z",
        "--format=%x01%H%x00%ct%x00%s",
    )
    commits = []
    for record in text.split("\x01")[1:]:
        sha, at, subject, *paths = record.split("\x00")
        touched = tuple(path.strip("\n") for path in paths if path.strip("\n"))
        commits.append(_commit(sha, subject, int(at), touched, side, imports))
    return commits[:MOST], len(commits) > MOST


def _commit(sha: str, subject: str, at: int, paths: tuple[str, ...], side: str, imports: Sequence[str]) -> Commit:
    imported = tuple(path for path in paths if _below(path, imports))
    rows = [row for path in imported if (row := first(PATHS, path)) is not None]
    best = max(rows, key=lambda row: row.weight, default=None)
    weight, why = (best.weight, best.text) if best is not None else (0.0, "")
    when = datetime.fromtimestamp(at, tz=timezone.utc)
    return Commit(sha, subject, when, paths, imported, weight, why, side)


def _below(path: str, imports: Sequence[str]) -> bool:
    directories = [directory.strip("/") for directory in imports]
    return not directories or any(
        directory in {"", "."} or path.startswith(f"{directory}/") for directory in directories
    )
