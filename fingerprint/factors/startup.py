"""Startup files: what sitecustomize, usercustomize and `.pth` files hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from fingerprint.factors.base import Evidence, Factor, Fixed, extract_line
from fingerprint.factors.plan import LaunchPlan
from snapshots import Snapshot, StartupFile


@dataclass(frozen=True)
class StartupCode(Factor):
    """One startup file."""

    old: StartupFile | None
    new: StartupFile | None

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        """Leave the live file, put the old text in its place, or mask it."""
        for side in (self.old, self.new):
            if side is not None:
                plan.directory(str(PurePosixPath(side.path).parent))
        if not new and self.new is not None:
            path = PurePosixPath(self.new.path)
            plan.directory(str(path.parent)).remove.append(path.name)
        if not new and self.old is not None:
            path = PurePosixPath(self.old.path)
            plan.directory(str(path.parent)).write[path.name] = {"text": str(self.old.text)}
        wanted = self.new if new else self.old
        for side in (self.old, self.new):
            if side is not None and (wanted is None or side.path == wanted.path):
                plan.check(self.id, "file", path=side.path, sha256=wanted.sha256 if wanted is not None else None)
                break

    def revert(self) -> str:
        """What to do with the file."""
        gone = [f"rm {shlex.quote(self.new.path)}"] if self.new is not None else []
        if self.old is None:
            return gone[0]
        back = f"{extract_line(self.id)} > {shlex.quote(self.old.path)}"
        return " && ".join([*gone, back]) if self.new is not None and self.new.path != self.old.path else back


def find(old: Snapshot, new: Snapshot, _evidence: Evidence) -> Iterator[Factor | Fixed]:
    """Startup files that differ."""
    if old.startup.status in {"failed", "absent"} or new.startup.status in {"failed", "absent"}:
        return
    for name in sorted(old.startup.files.keys() | new.startup.files.keys()):
        was, is_now = old.startup.files.get(name), new.startup.files.get(name)
        if was is not None and is_now is not None and (was.sha256, was.path) == (is_now.sha256, is_now.path):
            continue
        identifier = f"startup:{name.removesuffix('.py')}"
        if was is not None and (not isinstance(was.text, str) or "<secret:" in was.text):
            reason = "its old text is not whole in the snapshot"
            yield Fixed(identifier, _words(was), _words(is_now), reason)
        elif is_now is not None and not isinstance(is_now.sha256, str):
            yield Fixed(identifier, _words(was), _words(is_now), f"it cannot be read now: {is_now.sha256.unread}")
        else:
            yield StartupCode(identifier, _words(was), _words(is_now), was, is_now)


def _words(file: StartupFile | None) -> str:
    if file is None:
        return "absent"
    return f"contents {file.sha256[:8]}" if isinstance(file.sha256, str) else "not read"
