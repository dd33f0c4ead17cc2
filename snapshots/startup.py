"""Code that every Python process of the server runs before its own first line."""

from snapshots.base import Part, Read, Section


class StartupFile(Part):
    """One startup file and its contents."""

    path: str
    sha256: Read[str]
    text: Read[str | None] = None
    runs_code: bool = True


class Startup(Section):
    """sitecustomize, usercustomize and the `.pth` files of the serving interpreter, by file name."""

    files: dict[str, StartupFile] = {}
    shadowed: dict[str, list[str]] = {}
    """Startup modules that exist but never run, because one earlier on the path wins."""
    pyvenv: Read[dict[str, str]] = {}
    plugins: dict[str, str] = {}
    """What installed distributions hook into the engine: `GROUP NAME` -> `module:function (distribution)`."""
    hidden: dict[str, list[str]] = {}
    """Installed modules that one in the working directory or on PYTHONPATH hides: the winner's place first."""
