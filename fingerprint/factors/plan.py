"""A launch plan: what one trial starts, in which private world, and what proves it.

It begins as the live server's own launch (the new side) and every factor then gives it one value or the other. The
planner builds it; the host carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fingerprint.errors import UsageError
from fingerprint.factors.surroundings import outermost, surroundings_of
from snapshots import LocalFile, Snapshot, Unread
from snapshots.spellings import names_of

Json = dict[str, Any]


@dataclass
class TreePlan:
    """One work tree: the commit wanted, and for each locally different file the difference wanted."""

    commit: str
    live_commit: str
    live: dict[str, LocalFile]
    """The local differences that are on the host now."""
    wanted: dict[str, LocalFile] = field(default_factory=dict)
    """The local differences of this launch; files that are in `live` and not here are as committed."""
    changes: list[str] = field(default_factory=list)
    """Patches laid over the commit before the local differences: parts of the next commit."""

    def to_json(self) -> Json:
        """For the host: what to check out, apply, write, keep from the live tree and remove."""
        patches: dict[str, str] = {}
        write: dict[str, Json] = {}
        keep: list[str] = []
        remove: list[str] = []
        for path, file in self.wanted.items():
            if file.change == "submodule":
                continue  # a tree of its own
            here = self.commit == self.live_commit and not self.changes
            if file == self.live.get(path) and (here or not file.exact):
                (remove if file.change == "deleted" else keep).append(path)
            elif file.change == "untracked":
                write[path] = {"text": file.patch if isinstance(file.patch, str) else ""}
            elif isinstance(file.patch, str):
                patches[path] = file.patch
        remove += [path for path, file in self.live.items() if path not in self.wanted and file.change == "untracked"]
        return {
            "commit": self.commit,
            "changes": self.changes,
            "patches": patches,
            "write": write,
            "keep": keep,
            "remove": remove,
        }


@dataclass
class DirectoryPlan:
    """A directory with other contents: files written, removed, and whole distributions taken out."""

    prefix: str | None
    write: dict[str, Json] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    uninstall: list[str] = field(default_factory=list)

    def to_json(self) -> Json:
        """For the host."""
        return {"prefix": self.prefix, "write": self.write, "remove": self.remove, "uninstall": self.uninstall}


@dataclass
class LaunchPlan:
    """Everything that one trial starts from."""

    argv: list[str]
    cwd: str
    variables: dict[str, str]
    prefix: str | None
    """The serving environment's own directory."""
    trees: dict[str, TreePlan] = field(default_factory=dict)
    directories: dict[str, DirectoryPlan] = field(default_factory=dict)
    surroundings: Json = field(default_factory=dict)
    """What the process is given before it starts (`probes.surroundings`)."""
    switched: set[str] = field(default_factory=set)
    """Those surroundings that are factors: without them there is no launch."""
    caches: dict[str, bool] = field(default_factory=dict)
    """Directories, there or not yet, that a launch sees as a private copy; true: as an empty one."""
    settings: Json = field(default_factory=dict)
    """Settings of the host that are really changed for the launch (`probes.settings`)."""
    checks: list[Json] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    """Where the server imports from, in order."""
    flag_sources: tuple[str, ...] = ()
    """Files and folders below one of `imports` in which the engine declares its flags."""
    wanted_flags: tuple[str, ...] = ()
    """Switches to add where the version that is started declares them."""
    needed_flags: list[str] = field(default_factory=list)
    """Flags whose value is a factor's: a version that knows them by no name cannot be launched with it."""

    def directory(self, root: str) -> DirectoryPlan:
        """The plan of one directory, made on first use."""
        return self.directories.setdefault(root, DirectoryPlan(self.prefix))

    def check(self, factor: str, what: str, **details: object) -> None:
        """Add a check that proves a factor in effect."""
        self.checks.append({"factor": factor, "what": what, **details})

    def to_json(self) -> Json:
        """For the host program's `try`."""
        return {
            "argv": self.argv,
            "cwd": self.cwd,
            "variables": self.variables,
            "prefix": self.prefix,
            "trees": {root: tree.to_json() for root, tree in self.trees.items()},
            "directories": {root: directory.to_json() for root, directory in self.directories.items()},
            "surroundings": self.surroundings,
            "switched": sorted(self.switched),
            "caches": self.caches,
            "settings": self.settings,
            "prove": self.checks,
            "flags": {
                "imports": self.imports,
                "sources": list(self.flag_sources),
                "wanted": list(self.wanted_flags),
                "needed": [flag for flag in self.needed_flags if flag in self.argv],
                "names": {flag: names_of(flag) for word in self.argv if (flag := word.partition("=")[0])[:2] == "--"},
            },
        }


def plan_of(live: Snapshot) -> LaunchPlan:
    """The plan that relaunches the live server as it is.

    Raises:
        UsageError: the snapshot holds no server, or not enough of it to start it again.
    """
    launcher = live.server.processes.get("launcher")
    if launcher is None:
        reason = live.server.reason or "no server was running"
        raise UsageError(f"The new snapshot holds no live server ({reason}); capture it while the server runs.")
    for name, value in (("command line", launcher.argv), ("working directory", launcher.cwd)):
        if isinstance(value, Unread):
            raise UsageError(
                f"The live server's {name} was not readable ({value.unread}); capture as its user or as root."
            )
    variables = launcher.at_exec if isinstance(launcher.at_exec, dict) else launcher.variables
    if isinstance(variables, Unread):
        raise UsageError(f"The live server's variables were not readable ({variables.unread}); capture as root.")
    interpreter = live.packages.interpreter
    roots = [str(PurePosixPath(root, below)) for root, tree in live.trees.trees.items() for below in tree.imports]
    named = variables.get("PYTHONPATH", "").split(":")
    path = interpreter.path if interpreter is not None and isinstance(interpreter.path, list) else []
    return LaunchPlan(
        argv=list(launcher.argv) if isinstance(launcher.argv, list) else [],
        cwd=str(launcher.cwd),
        variables=dict(variables),
        imports=[place for place in dict.fromkeys([str(launcher.cwd), *named, *path, *roots]) if place],
        prefix=interpreter.prefix
        if interpreter is not None and interpreter.prefix != interpreter.base_prefix
        else None,
        surroundings=surroundings_of(live),
        caches=dict.fromkeys(
            outermost(one.path for one in live.caches.caches.values() if isinstance(one.exists, bool)), False
        ),
    )
