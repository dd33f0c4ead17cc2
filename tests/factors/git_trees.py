"""Real git work trees for tests of factors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IDENTITY = {
    "PATH": os.environ.get("PATH", os.defpath),
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "somebody@example.org",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "somebody@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(tree: Path, *words: str, stdin: str | None = None) -> str:
    """What git answers in a tree."""
    done = subprocess.run(["git", *words], cwd=tree, env=IDENTITY, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
    return done.stdout


def new_tree(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit of these files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files, "first")
    return folder


def commit(tree: Path, files: dict[str, str], message: str) -> str:
    """Write files and commit them; the hash."""
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", message)
    return git(tree, "rev-parse", "HEAD").strip()


def patch(tree: Path, path: str, text: str) -> str:
    """The difference that a file with this text would have; the file is as committed afterwards."""
    before = (tree / path).read_text()
    (tree / path).write_text(text)
    difference = git(tree, "diff", "--full-index", "HEAD", "--", path)
    (tree / path).write_text(before)
    return difference
