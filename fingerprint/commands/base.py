"""The application, and what all its commands share: how they find snapshots and how they print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fingerprint.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fingerprint.history import History
    from snapshots import Snapshot

app = typer.Typer(
    name="fingerprint",
    help="When an LLM server gets slower: what changed on the host, and proof of which change did it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SNAPSHOT = "A snapshot file, or @last, @TAG, @2026-11-03 of the history."
Pid = Annotated[int | None, typer.Option(help="Process id of the launcher, where the host runs several servers.")]
Port = Annotated[int | None, typer.Option(help="Port of the server, where the host runs several.")]


def errors() -> Console:
    """Where messages go."""
    from rich.console import Console

    return Console(stderr=True)


def tell(line: str) -> None:
    """Print a message of one line."""
    sys.stderr.write(f"{line}\n")


def say(text: str) -> None:
    """Print what was asked for."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def history_here() -> History:
    """The history of this user, or the one that the environment names."""
    import os

    from fingerprint.history import History, default_root

    return History(default_root(os.environ))


def find_snapshot(name: str) -> tuple[Snapshot, Path]:
    """A snapshot file or a reference into the history, and the file beside which kept files lie."""
    if not name.startswith("@"):
        from fingerprint.files import load_snapshot

        return load_snapshot(Path(name)), Path(name)
    from fingerprint.history import snapshot_of

    return snapshot_of(name, history_here())


def read_snapshot(name: str | Path) -> Snapshot:
    """A snapshot by file or reference."""
    return find_snapshot(str(name))[0]


def _version(value: bool) -> None:
    if value:
        from fingerprint import __version__

        say(f"fingerprint {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def results() -> Console:
    """Where what was asked for goes; wide enough for a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def show_as(
    format: str,  # noqa: A002
    terminal: Callable[[], RenderableType],
    markdown: Callable[[], str],
    as_json: Callable[[], str],
) -> None:
    """Print one of three forms, each made only when asked for."""
    if format == "json":
        say(as_json())
    elif format == "markdown":
        say(markdown())
    else:
        results().print(terminal())


def pair(option: str, text: str) -> tuple[str, str]:
    """`NAME=VALUE` of an option taken apart."""
    name, mark, value = text.partition("=")
    if not name or not (mark or name.startswith("--")):
        raise UsageError(
            f"{option} {text} gives no value; write {option}={'--name' if option == '--flag' else 'NAME'}=VALUE."
        )
    return name, value


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that an option does not know."""
    if value not in allowed:
        raise UsageError(f"{option} {value} is not known; use {' or '.join(allowed)}.")
