"""A launch that stands in a file: the command as it is typed, with `NAME=VALUE`, `export` and `cd` before it.

It is read and never run by a shell, so whatever only a shell could work out is refused.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fingerprint.errors import UsageError
from probes.secrets import is_secret_name
from probes.server import engine_of
from snapshots import Process, Snapshot, Unread

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_BYTES = 1 << 20
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR = re.compile(r"[|&;<>()]+")


@dataclass(frozen=True)
class WrittenLaunch:
    """What a file says: the command, the variables it sets, and its directory if it names one."""

    argv: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None


def read(path: Path) -> WrittenLaunch:
    """Read a launch file.

    Raises:
        UsageError: it cannot be read, holds no command or several, needs a shell, or holds a secret.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            return parse(stream.read(LARGEST_BYTES), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{path} cannot be read: {reason}.") from None


def parse(text: str, name: str) -> WrittenLaunch:
    """The launch in a file's text; `name` is what messages call it. Raises as `read` does."""
    variables: dict[str, str] = {}
    commands: list[list[str]] = []
    cwd: str | None = None
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = _words(line, name)
        if words[:1] == ["set"] or not words:
            continue
        if words[0] == "cd" and len(words) == 2:
            cwd = words[1]
            continue
        words = words[1:] if words[0] in {"export", "exec"} else words
        while words and (found := _SET.fullmatch(words[0])):
            variables[found[1]] = found[2]
            words = words[1:]
        commands += [words] if words else []
    if len(commands) != 1:
        second = f": {shlex.join(commands[1])[:80]}" if commands else ""
        raise UsageError(f"{name} must hold one command, and holds {len(commands)}{second}.")
    _refuse_secrets(commands[0], variables, name)
    return WrittenLaunch(commands[0], variables, cwd)


def _words(line: str, name: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"{name}: {line.strip()[:80]} cannot be taken apart: {error}.") from None
    operators: list[str] = _OPERATOR.findall(_QUOTED.sub("", line).partition("#")[0])
    for word in operators + [word for word in words if "$" in word or "`" in word]:
        raise UsageError(f"{name} needs a shell for {word[:80]}, and none runs it; write what it comes to.")
    return words


def _refuse_secrets(argv: list[str], variables: dict[str, str], name: str) -> None:
    flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
    for one in (*flags, *variables):
        if is_secret_name(one.lstrip("-")):
            raise UsageError(f"{name} holds a secret ({one}), which a case would keep; leave it out of the file.")


def launched(snapshot: Snapshot, launch: WrittenLaunch, name: str) -> Snapshot:
    """The snapshot with this launch in place of its server's, or of none.

    Raises:
        UsageError: nobody knows the directory to launch it in.
    """
    before = snapshot.server.processes.get("launcher")
    known = before.at_exec if before is not None and isinstance(before.at_exec, dict) else {"PATH": DEFAULT_PATH}
    cwd = launch.cwd or (before.cwd if before is not None and isinstance(before.cwd, str) else None)
    if cwd is None:
        raise UsageError(f"{name} does not say in which directory to launch, and no server was captured; add `cd DIR`.")
    variables = {**known, **launch.variables}
    launcher = Process(
        role="launcher", pid=0, parent=0, title="", argv=launch.argv, executable=launch.argv[0], cwd=cwd,
        started=Unread(unread=f"it is written in {name}"), at_exec=variables, variables=variables,
    )  # fmt: skip
    if before is not None:
        launcher = before.model_copy(update=launcher.model_dump(include={"argv", "cwd", "at_exec", "variables"}))
    server = snapshot.server.model_copy(
        update={
            "status": "partial" if before is None else snapshot.server.status,
            "reason": f"launched as {name} says",
            "engine": engine_of(launch.argv) or snapshot.server.engine,
            "processes": {**snapshot.server.processes, "launcher": launcher},
        }
    )
    return snapshot.model_copy(update={"server": server})
