"""Trials: find the difference that does it, and clean up after what was killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fingerprint.commands.base import (
    Pid,
    Port,
    app,
    errors,
    find_snapshot,
    one_of,
    pair,
    read_snapshot,
    say,
)
from fingerprint.errors import UsageError

if TYPE_CHECKING:
    from fingerprint.engines import Engine


@app.command()
def bisect(
    old: Annotated[str, typer.Argument(help="Snapshot of the good time: a file, @TAG, @DATE.")],
    new: Annotated[str, typer.Argument(help="Snapshot of now; the server that it describes is running.")],
    target: Annotated[str, typer.Option(help="The host that both were taken of.")] = "local",
    case: Annotated[Path, typer.Option("--case", help="Folder for everything that comes of it.")] = Path("case"),
    kept: Annotated[list[Path] | None, typer.Option(help="Further folder with a `kept` store in it.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Search only this factor; may be repeated.")] = None,
    then_old: Annotated[float | None, typer.Option(help="The old figure of the past, in ms.")] = None,
    then_new: Annotated[float | None, typer.Option(help="The new figure of the past, in ms.")] = None,
    budget: Annotated[int | None, typer.Option(help="Most launches.")] = None,
    seed: Annotated[int, typer.Option(help="Decides between launches of equal worth.")] = 0,
    pid: Pid = None,
    port: Port = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the case in the folder.")] = False,
    launch: Annotated[
        Path | None, typer.Option(help="File with the launch command and its variables, where NEW's is not to be used.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on although the host is not what NEW says.")] = False,
    copies: Annotated[bool, typer.Option("--copies", help="Use copies instead of a private mount namespace.")] = False,
    allow_host_changes: Annotated[
        bool,
        typer.Option("--allow-host-changes", help="Also switch clocks, sysctls and governors: changed and put back."),
    ] = False,
    stop_command: Annotated[
        str | None, typer.Option(help="Stops the production server on the host before the first launch.")
    ] = None,
    start_command: Annotated[str | None, typer.Option(help="Starts it again at the end, whatever that is.")] = None,
    variables: Annotated[
        list[str] | None, typer.Option("--variable", help="NAME=VALUE for every launch, whatever the live server has.")
    ] = None,
    flags: Annotated[
        list[str] | None, typer.Option("--flag", help="--name=value for every launch, whatever the live server has.")
    ] = None,
    repo: Annotated[
        Path | None, typer.Option(help="A clone of the served tree, in which to look up the commits of a culprit.")
    ] = None,
    wheelhouse: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of wheels, or another environment's site-packages, for packages that were not kept."),
    ] = None,
    from_index: Annotated[
        bool, typer.Option("--from-index", help="Download wheels of packages that were not kept, with pip.")
    ] = False,
    opening: Annotated[
        bool, typer.Option("--open/--no-open", help="Search inside of a culprit: hunks, commits, packages.")
    ] = True,
    engine: Annotated[
        str | None, typer.Option(help="`command`: run a command that prints a number, instead of a server.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="What to run; @LAUNCH@ in it is the launch of NEW, which is also the default.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="A regular expression whose one group is the number.")] = None,
    unit: Annotated[str, typer.Option(help="Of the number: ns, us, ms, s, or /s where higher is better.")] = "ms",
    skip: Annotated[int, typer.Option(min=0, help="Numbers at the start that are not counted.")] = 0,
    run_timeout: Annotated[float | None, typer.Option(min=0.0, help="Longest time of one run, in seconds.")] = None,
    accept_length: Annotated[
        float | None, typer.Option(min=1.0, help="Fix the accept length of every launch, so that only time differs.")
    ] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="Then launch both ends twice without speculation: what plain decoding gives."),
    ] = False,
    figure: Annotated[
        str | None, typer.Option(help="Compare launches by verify_ms (default), gpu_cycle_ms or cycle_ms.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Measured requests of a launch.")] = None,
    tokens: Annotated[int | None, typer.Option(min=2, help="Tokens of each.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=256, help="So many of them at a time.")] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--quiet", " /-q", help="Say how it goes; by default on a terminal only.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Relaunch the server under the differing factors and say which of them made it slower."""
    from fingerprint.bisect.run import Options
    from fingerprint.bisect.run import bisect as run
    from fingerprint.host import HostProgram
    from fingerprint.key import secret_key
    from fingerprint.report import write_reports
    from fingerprint.report.progress import ProgressObserver
    from fingerprint.report.terminal import render_terminal
    from fingerprint.targets import parse_target

    one_of("--format", format, ("text", "json"))
    (before, kept_beside), after = find_snapshot(old), read_snapshot(new)
    options = Options(
        folder=case,
        kept=tuple(kept or ()),
        only=frozenset(only or ()),
        seed=seed,
        launches=budget,
        then_old_ms=then_old,
        then_new_ms=then_new,
        secret_key=secret_key(),
        pid=pid,
        port=port,
        isolation="copies" if copies else None,
        launch=launch,
        anyway=anyway,
        resume=resume,
        allow_host_changes=allow_host_changes,
        stop_command=stop_command,
        start_command=start_command,
        variables=dict(pair("--variable", text) for text in variables or ()),
        flags=dict(pair("--flag", text) for text in flags or ()),
        repo=repo,
        wheelhouses=tuple(wheelhouse or ()),
        from_index=from_index,
        open=opening,
        engine=_command(engine, command, metric, unit, skip, run_timeout),
        requests=requests,
        max_new_tokens=tokens,
        concurrency=concurrency,
        accept_length=accept_length,
        figure=figure,
        control=control,
    )
    with (
        ProgressObserver(errors(), quiet=None if progress is None else not progress) as observer,
        HostProgram(parse_target(target)) as host,
    ):
        finished, outcome = run(host, before, after, kept_beside, options, observer, observer.prepared)
    write_reports(finished)
    if format == "json":
        say(outcome.model_dump_json(indent=1))
    else:
        say(render_terminal(finished, color=sys.stdout.isatty()))
    raise typer.Exit(1 if outcome.culprits else 0)


def _command(
    engine: str | None, command: str | None, metric: str | None, unit: str, skip: int, timeout_s: float | None
) -> Engine | None:
    """The engine that the options name; None: the one that the snapshot names."""
    from fingerprint.engines import command_engine

    if engine is not None:
        one_of("--engine", engine, ("command",))
        return command_engine(command, metric, unit, skip, timeout_s)
    if command is not None or metric is not None:
        raise UsageError("--command and --metric go with --engine command.")
    return None


@app.command()
def restore(target: Annotated[str, typer.Argument(help="Where: `local`, or a host.")] = "local") -> None:
    """Put back and remove whatever a bisect that was killed has left on a host."""
    from fingerprint.host import HostProgram
    from fingerprint.report.words import clean
    from fingerprint.targets import parse_target

    with HostProgram(parse_target(target)) as host:
        answer = host.call("restore", {})
    for path in answer["swept"]:
        say(clean(f"removed {path}" if path.startswith("/") else path, 400))
    if not answer["swept"]:
        say("nothing was left behind")
