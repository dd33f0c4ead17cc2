"""Commits between two states of a tree, from a real repository."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from fingerprint.commits import commits_between, commits_of
from fingerprint.diff import compare
from fingerprint.errors import UsageError
from fingerprint.report.differences import document, markdown
from snapshots import Snapshot, Tree, Trees

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


class Clone:
    """A repository of its own, with no configuration but its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        """What git answers."""
        environment = {
            **WHO,
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(self.root),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        made = subprocess.run(
            ["git", "-C", str(self.root), *words], check=True, capture_output=True, text=True, env=environment
        )
        return made.stdout.strip()

    def commit(self, path: str, text: str, subject: str) -> str:
        """Write a file and commit it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_commits_that_touch_imported_code_come_first_and_by_what_they_touch(clone: Clone) -> None:
    old = clone.commit("python/a.py", "1", "start")
    clone.commit("python/layers/attention/b.py", "1", "attention")
    clone.commit("python/entrypoints/c.py", "1", "a 'quoted' | subject\u202e")
    new = clone.commit("benchmark/attention.py", "1", "benchmark only")
    between = commits_between(clone.root, old, new, ["python"])
    assert [one.subject for one in between.commits] == ["attention", "a 'quoted' | subject\u202e", "benchmark only"]
    assert between.linear
    assert between.commits[0].imported == ("python/layers/attention/b.py",)
    assert between.commits[-1].imported == ()


def test_where_histories_part_both_sides_are_listed(clone: Clone) -> None:
    base = clone.commit("a.py", "1", "start")
    old = clone.commit("a.py", "2", "only old")
    clone.git("checkout", "-q", "-b", "other", base)
    new = clone.commit("a.py", "3", "only new")
    between = commits_between(clone.root, old, new)
    assert {(one.subject, one.side) for one in between.commits} == {("only old", "old"), ("only new", "new")}
    assert not between.linear


def test_a_commit_that_the_clone_lacks_is_one_sentence(clone: Clone) -> None:
    known = clone.commit("a.py", "1", "start")
    for bad in ("f" * 40, "--output=x", "HEAD"):
        with pytest.raises(UsageError, match="is not in"):
            commits_between(clone.root, known, bad)


def test_a_folder_that_is_no_repository_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        commits_between(tmp_path / "nowhere", "a" * 40, "b" * 40)


def test_the_commits_of_a_comparison_are_listed_with_what_they_touch(clone: Clone) -> None:
    old = clone.commit("python/a.py", "1", "start")
    new = clone.commit("python/layers/attention/b.py", "1", "attention \x1b[31m")
    comparison = compare(served(old), served(new))
    between = commits_of(comparison, clone.root)
    text = markdown(comparison, between=between)
    assert "1 commit between" in text
    assert "1 file that the server imports: the attention of the verify step" in text
    assert "\x1b" not in text
    made = document(comparison, between)
    assert [one.sha for one in made.commits or []] == [new]
    assert "--repo CLONE" in markdown(comparison)


def test_without_another_commit_there_is_nothing_to_list(clone: Clone) -> None:
    old = clone.commit("python/a.py", "1", "start")
    assert commits_of(compare(served(old), served(old)), clone.root) is None


def served(commit: str) -> Snapshot:
    trees = Trees(status="ok", trees={"/srv/tree": Tree(commit=commit, imports=["python"])})
    return Snapshot(tool="test", taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc), target="here", trees=trees)
