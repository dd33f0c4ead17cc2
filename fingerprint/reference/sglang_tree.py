"""An installed SGLang that is served from a git tree, and what an operations team changes about it over the months.

Below one folder:

    serving/    SGLang's installed package as the only commit of a work tree, from which it is imported
    extra/      two small packages of the operations team
    startup/    sitecustomize

The installed package itself is never written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fingerprint.reference.wheel import Wheel, install

SOURCE = "python/sglang/srt"
NOTE = "\n\n# Operations: reviewed for the {} release.\n"
"""A harmless local difference for the end of any file."""


@dataclass(frozen=True)
class Edit:
    """A text of one file replaced by another."""

    path: str
    find: str
    replace: str


@dataclass
class Release:
    """What is started at one time: everything in which two times may differ."""

    variables: dict[str, str | None]
    """None: unset, whatever the environment says."""
    flags: dict[str, str | None]
    """None: not given; empty: given without a word."""
    appended: Mapping[str, str] = field(default_factory=dict)
    """Text added at the end of files of the tree."""
    edits: tuple[Edit, ...] = ()
    startup: str = ""
    packages: tuple[Wheel, ...] = ()

    def words(self) -> list[str]:
        """The flags as a command line has them."""
        given = {flag: value for flag, value in self.flags.items() if value is not None}
        return [word for flag, value in given.items() for word in (flag, value) if word]


def operations_packages(minor: int, build: str) -> tuple[Wheel, ...]:
    """Two small packages: one gets a new version, the other is built anew under the same one."""
    return (
        Wheel("ops-metrics", f"1.{minor}.0", {"ops_metrics/__init__.py": f"RELEASE = {minor}\n"}),
        Wheel("ops-tools", "2.0.0", {"ops_tools/__init__.py": f"BUILD = {build!r}\n"}),
    )


class ServedTree:
    """The part of a host that changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "serving"
        self.extra = folder / "extra"
        self.startup = folder / "startup"

    @property
    def search_path(self) -> str:
        """What belongs first on PYTHONPATH."""
        return os.pathsep.join(map(str, (self.tree / "python", self.startup, self.extra)))

    def build(
        self,
        package: Path,
        *,
        without: tuple[str, ...] = (),
        files: Mapping[str, Path] | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        """Make the git tree of an installed package.

        Args:
            package: where it is installed.
            without: names of folders to leave out.
            files: what is added before it is committed, by the path in the tree.
            edits: what is changed before that.

        Raises:
            ValueError: this version does not have the text of an edit, or several times.
        """
        target = self.tree / "python" / "sglang"
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__", *without))
        (self.tree / ".gitignore").write_text("__pycache__/\n")
        for path, source in (files or {}).items():
            shutil.copy(source, self.tree / path)
        for edit in edits:
            self._apply(edit)
        who = ["-c", "user.name=operations", "-c", "user.email=operations@localhost"]
        for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "-m", "SGLang as installed"]):
            subprocess.run(["git", "-C", str(self.tree), *words], check=True)

    def become(self, release: Release, *, beside: Path | None = None) -> None:
        """Change the host in place.

        Args:
            release: what it becomes.
            beside: a folder whose files lie among the packages too.

        Raises:
            ValueError: as `build` does.
        """
        subprocess.run(["git", "-C", str(self.tree), "checkout", "--quiet", "--", "."], check=True)
        for path, text in release.appended.items():
            with (self.tree / path).open("a") as file:
                file.write(text)
        for edit in release.edits:
            self._apply(edit)
        self.startup.mkdir(exist_ok=True)
        (self.startup / "sitecustomize.py").write_text(release.startup)
        shutil.rmtree(self.extra, ignore_errors=True)
        if beside is None:
            self.extra.mkdir()
        else:
            shutil.copytree(beside, self.extra, ignore=shutil.ignore_patterns("__pycache__"))
        for wheel in release.packages:
            install(wheel.build(self.folder / "wheels"), self.extra)

    def _apply(self, edit: Edit) -> None:
        file = self.tree / edit.path
        source = file.read_text()
        times = source.count(edit.find)
        if times != 1:
            raise ValueError(
                f"{edit.path} of this SGLang has {edit.find!r} {times} times, not once; give the edit another place."
            )
        file.write_text(source.replace(edit.find, edit.replace))


def await_ready(server: subprocess.Popen[bytes], port: int, page: str, most_s: float, log: Path) -> None:
    """Return when the server answers for that page.

    Raises:
        RuntimeError: it ended, or was not ready in so many seconds; the text has the end of its log.
    """
    url = f"http://127.0.0.1:{port}{page}"
    until = time.monotonic() + most_s
    why = f"was not ready within {most_s:g} s"
    while time.monotonic() < until:
        if server.poll() is not None:
            why = f"ended with {server.returncode}"
            break
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=30):
            return
        time.sleep(0.2)
    raise RuntimeError(f"the live server {why}: {log.read_text(errors='replace')[-2000:]}")
