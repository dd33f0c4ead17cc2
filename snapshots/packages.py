"""The Python distributions of the serving interpreter, and whether they are still what their wheels shipped."""

from snapshots.base import Part, Read, Section, State


class Interpreter(Part):
    """The interpreter that serves, read from the live server or named by the caller."""

    executable: str
    version: Read[str]
    prefix: str
    base_prefix: Read[str]
    path: Read[list[str]]
    """Directories that hold its distributions, in import order."""
    build: Read[dict[str, str]] = {}
    """How it was built (`CONFIG_ARGS`, `Py_DEBUG`, `Py_GIL_DISABLED` ...), from its own standard library."""


class Distribution(Part):
    """One installed distribution, under its canonical name."""

    version: Read[str]
    location: str
    """The directory of sys.path in which its metadata lies."""
    installer: str | None = None
    tags: list[str] = []
    """Wheel tags, such as `py3-none-any`."""
    requires: list[str] = []
    origin: str | None = None
    """Where a direct_url.json says it came from, without credentials."""
    editable: bool = False
    record: Read[str | None] = None
    """SHA-256 of its RECORD in a form that does not depend on where it is installed: what the wheel shipped."""
    contents: Read[str | None] = None
    """SHA-256 over the digests of the installed files themselves: what is there today. None when not verified."""
    stat: State[str | None] = None
    """SHA-256 of what the kernel says of all its files; while it stays, `contents` and `altered` do, too."""
    altered: dict[str, str] = {}
    """Files that differ from RECORD: path -> rpm-style marks (`5` digest, `S` size, `missing`, `extra`)."""
    kept: State[bool] = False
    """Whether its files were copied into the store beside the snapshot."""


class CondaPackage(Part):
    """What conda itself installed into the environment, Python or not."""

    version: str
    build: str
    channel: Read[str | None] = None
    """Where from, without credentials."""
    record: Read[str | None] = None
    """SHA-256 over the files that it shipped, by path and digest; None where its list has no digests."""


class Packages(Section):
    """Every distribution on the serving interpreter's path."""

    interpreter: Interpreter | None = None
    distributions: dict[str, Distribution] = {}
    duplicates: dict[str, list[str]] = {}
    """Names found more than once: the versions with their locations, the winning one first."""
    conda: dict[str, CondaPackage] = {}
    """By name, from the environment's conda-meta. A Python distribution of conda's stands in `distributions`, too."""
    leftovers: dict[str, str] = {}
    """Metadata directories that describe nothing: path -> what is wrong."""
    unnamed: State[Read[dict[str, str]]] = {}
    """Variables of the engine that are set and that none of its installed files names -> the directory searched."""
    owners: State[dict[str, str]] = {}
    """CUDA libraries that the server has mapped, by path -> the distribution that they came with, `name version`."""
    files: State[dict[str, dict[str, str]]] = {}
    """Canonical name -> path relative to `location` -> SHA-256 (hex) of the installed file, for kept distributions."""
    unkept: State[dict[str, str]] = {}
    """Distributions that were to be kept and were not, with the reason."""

    def verified(self) -> dict[str, dict[str, object]]:
        """What a later capture of the same host need not read again: name -> `stat`, `contents`, `altered`."""
        return {
            name: {"stat": one.stat, "contents": one.contents, "altered": one.altered}
            for name, one in self.distributions.items()
            if one.stat is not None and isinstance(one.contents, str)
        }
