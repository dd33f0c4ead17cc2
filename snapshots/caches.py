"""Caches of compiled kernels and measured choices, as a rank has them."""

from snapshots.base import Part, Read, Section, State


class Cache(Part):
    """One cache directory."""

    path: str
    exists: State[Read[bool]] = True
    writable: bool | None = None
    """By the directory's own permission bits, or those of the nearest one above it, for the user that serves."""
    filesystem: str | None = None
    files: State[int] = 0
    size_bytes: State[int] = 0
    newest: State[float | None] = None
    """Change time of the newest file, seconds since the epoch."""
    manifest: State[str | None] = None
    """SHA-256 over the names and sizes of the files: compiled code comes and goes."""
    choices: Read[dict[str, Read[str]]] = {}
    """Files of measured choices that steer the next start -> SHA-256."""
    texts: State[dict[str, str]] = {}
    """The small ones of these files as they are: what was chosen, and between which GPUs there is peer access."""


class Compiler(Part):
    """One program that compiles kernels while the server runs."""

    path: str
    version: Read[str | None] = None
    """The line in which it tells its version; None for one that is not run: a script, or not the system's own."""
    build_id: Read[str | None] = None


class Caches(Section):
    """Cache directories by what is cached, and what fills them."""

    caches: dict[str, Cache] = {}
    compilers: dict[str, Compiler] = {}
    """`nvcc`, `ptxas`, `cc`, `c++`, `ninja`: those that the first rank's variables lead to."""
