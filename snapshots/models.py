"""The model, the draft model and the token map that are served."""

from snapshots.base import Part, Read, Section, State


class ModelFile(Part):
    """One file of a model, by the cheapest digest that tells its contents."""

    size_bytes: int
    modified: State[float | None] = None
    blob: str | None = None
    """The hub's name of the contents: SHA-256 of large files, git's object name of small ones."""
    header: Read[str | None] = None
    """SHA-256 of a safetensors header: every tensor's name, type, shape and place, not the weights."""
    sha256: Read[str | None] = None
    """Of the whole file, for small ones."""
    text: State[str | None] = None
    """What stands in a configuration file that decides kernels and shapes, such as `config.json`."""


class Model(Part):
    """One model."""

    name: str
    """As the command line has it."""
    path: State[str] = ""
    filesystem: State[Read[str | None]] = None
    """The kind of file system that it lies on."""
    revision: str | None = None
    """The hub's commit."""
    files: dict[str, Read[ModelFile]] = {}


class Models(Section):
    """Models by role: `target`, `draft`, `token map`, and each LoRA adapter as `adapter NAME`."""

    models: dict[str, Read[Model]] = {}
