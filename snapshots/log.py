"""What the server's log says it decided."""

from snapshots.base import Part, Section, State


class Running(Part):
    """The last decode line."""

    graph: State[bool | None] = None
    """Whether CUDA graphs were used: a server that has not decoded yet says nothing, and a batch larger than any
    recorded graph is decoded without one, so it moves with the load."""
    accept_length: State[float | None] = None
    tokens_per_second: State[float | None] = None


class Log(Section):
    """Decisions by name, each line once."""

    path: State[str | None] = None
    facts: dict[str, list[str]] = {}
    running: Running = Running.model_construct()
