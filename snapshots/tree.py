"""The source trees that the server imports from: commit, and every local difference per file."""

from typing import Literal

from snapshots.base import Part, Read, Section, State, Unread


class LocalFile(Part):
    """One file that is not as the commit has it."""

    change: Literal["modified", "added", "deleted", "untracked", "submodule", "mode"]
    sha256: str | None = None
    """Digest of the file as it is; None for a deleted one."""
    patch: Read[str | None] = None
    """Unified difference against HEAD (for an untracked file: its text), secrets replaced."""
    exact: State[bool] = True
    """Whether `patch` reproduces the file: false when a secret was replaced, or the text cut or undecodable."""
    staged: State[bool] = False
    gates: State[dict[str, list[str]]] = {}
    """Number of a hunk (from 1) -> environment variables on which it depends, as far as the source tells."""


class Tree(Part):
    """One git work tree."""

    commit: Read[str | None] = None
    branch: State[str | None] = None
    describe: State[Read[str | None]] = None
    remotes: State[dict[str, str]] = {}
    shallow: bool = False
    imports: State[list[str]] = []
    """Directories below the root from which the server imports."""
    files: dict[str, LocalFile] = {}
    submodules: dict[str, str] = {}


class Trees(Section):
    """Every git work tree that the server imports from, by root path."""

    trees: dict[str, Tree] = {}
    unreadable: dict[str, Unread] = {}
    """Trees that git could not read, by root path: nothing is known of their differences."""
