"""What the server's log says it decided."""

from __future__ import annotations

from snapshots.base import Part, Section, State


class Running(Part):
    """The last decode line."""

    graph: bool | None = None
    """Whether CUDA graphs were used: identity, because eager decoding is another server."""
    accept_length: State[float | None] = None
    tokens_per_second: State[float | None] = None


class Log(Section):
    """Decisions by name, each line once."""

    path: State[str | None] = None
    facts: dict[str, list[str]] = {}
    running: Running = Running()
