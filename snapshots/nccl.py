"""NCCL: its settings and their sources, the loaded library and the one that was meant."""

from snapshots.base import Part, Read, Section, State


class NcclFile(Part):
    """A configuration file that NCCL reads."""

    path: State[str]
    text: Read[str]


class NamedFile(Part):
    """A file that a variable names."""

    path: str
    sha256: Read[str]
    text: State[str | None] = None
    """Secrets replaced; None for a long file."""


class Nccl(Section):
    """NCCL as the first rank uses it."""

    settings: dict[str, str] = {}
    """What it goes by: variables first, then the user's file, then the system's."""
    origins: dict[str, str] = {}
    """Where each comes from: `variable`, `user` (~/.nccl.conf or $NCCL_CONF_FILE) or `system` (/etc/nccl.conf)."""
    files: dict[str, NcclFile] = {}
    named_files: dict[str, NamedFile] = {}
    """Topology, graph and tuner files, by the variable that names them."""
    loaded: dict[str, Read[dict[str, Read[str | None]]]] = {}
    """Process -> path of a mapped libnccl -> the version written in it."""
    plugins: dict[str, list[str]] = {}
    """Mapped plugin -> the processes that have it."""
    installed: dict[str, str] = {}
    pinned: dict[str, str] = {}
    """The version that torch's own metadata asks for."""
