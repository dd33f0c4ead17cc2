"""The standing record of a host."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fingerprint.commands.base import (
    Pid,
    Port,
    app,
    history_here,
    one_of,
    say,
)
from fingerprint.errors import UsageError


@app.command()
def record(
    target: Annotated[str, typer.Argument(help="Where, as for capture.")] = "local",
    tag: Annotated[str | None, typer.Option(help="A name for it, such as `good`.")] = None,
    pid: Pid = None,
    port: Port = None,
    keep: Annotated[list[str] | None, typer.Option(help="Package (or pattern) whose files are kept.")] = None,
    measure: Annotated[bool, typer.Option(help="Measure the live server, too: a few requests.")] = True,
    keep_bytes: Annotated[int, typer.Option(help="Size that the history keeps to.")] = 2 << 30,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but trouble.")] = False,
) -> None:
    """Capture into the history, so that "before" exists next time."""
    from fingerprint.capture import Store
    from fingerprint.capture import capture as read
    from fingerprint.host import HostProgram
    from fingerprint.key import secret_key
    from fingerprint.measure import key_in, with_figures
    from fingerprint.targets import parse_target

    history = history_here()
    key = key_in(os.environ)
    ask = {"pid": pid, "port": port, "keep": keep or [], "verify": True, "secret_key": secret_key()}
    with HostProgram(parse_target(target)) as host:
        snapshot = read(host, ask, store=Store(history.root / "snapshots" / "kept"))
        if snapshot.server.status == "failed":
            raise UsageError(f"{target}: {snapshot.server.reason}. Nothing was recorded.")
        unmeasured = None
        if measure and snapshot.server.status in {"ok", "partial"}:
            snapshot, unmeasured = with_figures(host, snapshot, key)
    made = history.record(snapshot, tag)
    history.prune(keep_bytes)
    if not quiet:
        say(f"recorded {made.snapshot[:16]}{f' as @{tag}' if tag else ''} in {history.root}")
    if unmeasured is not None:
        raise UsageError(f"{target}: recorded without figures (--no-measure records so at once): {unmeasured}")


@app.command()
def log(
    target: Annotated[str | None, typer.Argument(help="Only this host.")] = None,
    limit: Annotated[int, typer.Option(help="Most recordings, the newest.")] = 50,
    plot: Annotated[bool, typer.Option("--plot", help="The figures as points.")] = False,
    tag: Annotated[str | None, typer.Option(help="Name a recording: REFERENCE=NAME, such as last=good.")] = None,
    untag: Annotated[str | None, typer.Option(help="Forget a name.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",  # noqa: A002
) -> None:
    """List the history: figures, and what changed between neighbours."""
    from fingerprint.history import log as entries_of
    from fingerprint.report.logs import log_json, render_log

    one_of("--format", format, ("text", "json"))
    history = history_here()
    if tag is not None:
        reference, mark, name = tag.partition("=")
        if not mark:
            raise UsageError(f"--tag {tag} names nothing; write REFERENCE=NAME, such as last=good.")
        history.tag(f"@{reference.lstrip('@')}", name)
    if untag is not None:
        history.untag(untag)
    entries = entries_of(history, target, limit)
    say(log_json(entries) if format == "json" else render_log(entries, plot=plot))
