"""Snapshots in: of hosts, of pasted reports, and figures of a live server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fingerprint.commands.base import (
    Pid,
    Port,
    app,
    one_of,
    read_snapshot,
    show_as,
    tell,
)
from fingerprint.errors import FingerprintError, UsageError

if TYPE_CHECKING:
    from fingerprint.host import HostProgram
    from fingerprint.targets.base import Target
    from snapshots import Snapshot
    from snapshots.server import Choice


@app.command()
def capture(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="local (default), HOST, USER@HOST, ssh://, docker:, kubectl:NS/POD, srun:, via:'command'.",
            metavar="TARGET",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; for several targets, a folder.")] = None,
    pid: Pid = None,
    port: Port = None,
    python: Annotated[
        str | None, typer.Option(help="Interpreter whose packages to read, where no server runs.")
    ] = None,
    venv: Annotated[str | None, typer.Option(help="The same by its environment's folder.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Package (or pattern) whose files are kept beside the snapshot; a bisect brings them back."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure the live server and store the figure.")
    ] = False,
    verify: Annotated[bool, typer.Option(help="Check installed files against RECORD.")] = True,
    since: Annotated[
        Path | None, typer.Option(help="Earlier snapshot: files that did not change are not read again.")
    ] = None,
    sections: Annotated[list[str] | None, typer.Option("--section", help="Only this section; may be repeated.")] = None,
    log: Annotated[
        str | None, typer.Option(help="The server's log on the host, where it is not found by itself.")
    ] = None,
    redact: Annotated[
        str | None, typer.Option(help="hosts: pseudonyms for host names, users, addresses and paths.", metavar="hosts")
    ] = None,
    sudo: Annotated[
        bool, typer.Option("--sudo", help="As root there; a password is asked for here if need be.")
    ] = False,
    host_python: Annotated[str, typer.Option(help="The python3 that runs the host program there.")] = "python3",
    threads: Annotated[int | None, typer.Option(help="Threads that read files (2).")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds for each section (20).")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but trouble.")] = False,
) -> None:
    """Read everything that decides serving speed on a host, without touching it."""
    from fingerprint.key import secret_key
    from fingerprint.targets import parse_target
    from fingerprint.targets.sudo import SudoTarget

    if redact is not None:
        one_of("--redact", redact, ("hosts",))
    names = targets or ["local"]
    reached: list[Target] = [parse_target(name) for name in names]
    if sudo:
        reached = [SudoTarget(target, _password(target.name)) for target in reached]
    wanted: dict[str, Any] = {
        "pid": pid, "port": port, "python": python, "venv": venv, "keep": keep, "verify": verify, "log": log,
        "threads": threads, "deadline_s": deadline, "sections": sections, "secret_key": secret_key(),
        "verified": read_snapshot(since).packages.verified() if since is not None else None,
    }  # fmt: skip
    ask = {name: value for name, value in wanted.items() if value is not None}
    if len(reached) > 1:
        if keep or measure:
            raise UsageError("--keep and --measure go with one target at a time.")
        _capture_fleet(reached, ask, output or Path(), host_python, redact=redact is not None, quiet=quiet)
    name = _capture_names(reached)[0]
    path = output / name if output is not None and output.is_dir() else output or Path(name)
    program = partial(_program, context.obj, reached[0], host_python)
    _capture_one(program, ask, path, measure=measure, redact=redact is not None, quiet=quiet)


def _program(ahead: HostProgram | None, target: Target, python: str) -> HostProgram:
    """The program on a target: the one that was started ahead, if that is the one it takes."""
    from fingerprint.host import HostProgram
    from fingerprint.targets.local import PYTHON, LocalTarget

    if ahead is not None and isinstance(target, LocalTarget) and python == PYTHON:
        return ahead
    return HostProgram(target, python)


def _capture_one(
    program: Callable[[], HostProgram],
    ask: dict[str, Any],
    path: Path,
    *,
    measure: bool,
    redact: bool,
    quiet: bool,
) -> None:
    from fingerprint.capture import capture as read
    from fingerprint.capture import store_beside
    from fingerprint.files import refuse_unwritable, save_snapshot

    refuse_unwritable(path)
    if measure:
        from fingerprint.measure import key_in, with_figures

        key = key_in(os.environ)  # refused before anything is read
    with program() as host:
        snapshot = read(host, ask, store=store_beside(path))
        undecided = len(snapshot.server.choices) > 1 and not {"pid", "port"} & ask.keys()
        if undecided and sys.stdin.isatty() and sys.stderr.isatty():
            ask = {**ask, "pid": _choose(snapshot.server.choices)}
            snapshot = read(host, ask, store=store_beside(path))
        unmeasured: str | None = f"{snapshot.server.reason or 'no server is running'}."
        if measure and snapshot.server.status in {"ok", "partial"}:
            snapshot, unmeasured = with_figures(host, snapshot, key)
    save_snapshot(_redacted(snapshot) if redact else snapshot, path)
    if not quiet and not (snapshot.server.status == "failed" and snapshot.server.choices):
        _say_captured(snapshot, path)
    if snapshot.server.status == "failed":
        raise UsageError(_serverless(host.target, snapshot, path))
    if measure and snapshot.measured is None:
        raise UsageError(
            f"{host.target.name}: nothing was measured: {unmeasured} The snapshot in {path} is without figures."
        )
    if all(section.status in {"failed", "absent"} for section in snapshot.sections().values()):
        raise typer.Exit(2)


def _capture_fleet(
    targets: list[Target], ask: dict[str, Any], folder: Path, python: str, *, redact: bool, quiet: bool
) -> NoReturn:
    from fingerprint.capture import capture_many
    from fingerprint.files import refuse_unwritable, save_snapshot
    from fingerprint.report.words import clean

    paths = [folder / name for name in _capture_names(targets)]
    for path in paths:
        refuse_unwritable(path)

    def write(number: int, snapshot: Snapshot) -> None:
        save_snapshot(_redacted(snapshot) if redact else snapshot, paths[number])

    trouble = False
    outcomes = capture_many(targets, ask, python=python, on_snapshot=write)
    for target, path, outcome in zip(targets, paths, outcomes, strict=True):
        if isinstance(outcome, FingerprintError):
            words = str(outcome)
        elif outcome.server.status == "failed":
            words = _serverless(target, outcome, path)
        else:
            words = ""
            if not quiet:
                tell(f"{path}: id {outcome.id[:16]}, {outcome.seconds:.1f} s")
        if words:
            sys.stderr.write(f"fingerprint: {clean(words, 4000)}\n")
            trouble = True
    raise typer.Exit(2 if trouble else 0)


def _capture_names(targets: list[Target]) -> list[str]:
    """A file name for each target; names that look alike as file names are told apart by numbers."""
    from datetime import datetime, timezone

    now = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    names: list[str] = []
    for target in targets:
        plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in target.name)[:200]
        tries = (f"{plain}{number}-{now}.json" for number in ["", *(f"-{n}" for n in range(2, len(targets) + 1))])
        names.append(next(name for name in tries if name not in names))
    return names


def _redacted(snapshot: Snapshot) -> Snapshot:
    from fingerprint.key import secret_key
    from snapshots.redact import redact

    return redact(snapshot, bytes.fromhex(secret_key()))


def _password(name: str) -> Callable[[], str] | None:
    return (
        (lambda: str(typer.prompt(f"sudo password on {name}", hide_input=True, err=True)))
        if sys.stdin.isatty()
        else None
    )


def _choose(choices: list[Choice]) -> int:
    from fingerprint.report.words import clean

    for one in choices:
        line = f"  {one.pid}  port {one.port}  {' '.join(one.argv)}"
        tell(clean(line, 160))
    return int(typer.prompt("Several servers run here; which pid", err=True))


def _serverless(target: Target, snapshot: Snapshot, path: Path) -> str:
    return f"{target.name}: {snapshot.server.reason}. The snapshot in {path} is without a server."


def _say_captured(snapshot: Snapshot, path: Path) -> None:
    from fingerprint.report.words import clean

    for name, section in snapshot.sections().items():
        words = f": {section.reason}" if section.reason else ""
        line = f"  {name:<10} {section.status:<8} {section.seconds:6.2f} s{words}"
        tell(clean(line, 400))
    if snapshot.measured is not None:
        figure = snapshot.measured
        tell(f"  {figure.metric} {figure.value:.2f} ms ({figure.source})")
    tell(f"{path}: id {snapshot.id[:16]}, {snapshot.seconds:.1f} s")


@app.command(name="import")
def import_(
    reports: Annotated[list[Path], typer.Argument(help="Text files of one host and time; `-` is standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The snapshot.")],
) -> None:
    """Make a snapshot of a pasted report (collect_env, check_env, pip freeze, nvidia-smi -q, topo -m, variables)."""
    from fingerprint.files import save_snapshot
    from fingerprint.key import secret_key
    from fingerprint.pasted import LARGEST_BYTES, imported
    from probes.secrets import Keeper

    def text(path: Path) -> str:
        try:
            with sys.stdin.buffer if str(path) == "-" else path.open("rb") as stream:
                return stream.read(LARGEST_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from None

    keeper = Keeper(bytes.fromhex(secret_key()))
    made = imported("\n".join(map(text, reports)), " and ".join(map(str, reports)), clean=keeper.value)
    save_snapshot(made, output)
    tell(f"{output}: id {made.id[:16]}, from a report")


@app.command()
def measure(
    url: Annotated[str, typer.Argument(help="The server as its own host calls it: http://127.0.0.1:30000, or https.")],
    target: Annotated[str, typer.Option(help="That host, as for capture.")] = "local",
    attach: Annotated[Path | None, typer.Option(help="Write the figures into this snapshot's file.")] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option(min=2, max=256, help="Also so many requests at a time; may be repeated.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Measured requests.")] = None,
    tokens: Annotated[int | None, typer.Option(min=2, help="Tokens of each.")] = None,
    baseline: Annotated[
        float | None, typer.Option("--baseline-tok-s", min=0.0, help="Speed of plain decoding, for the break-even.")
    ] = None,
    wanted: Annotated[
        list[float] | None, typer.Option("--wanted-tok-s", min=0.0, help="A speed to reach; may be repeated.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the break-even into this SVG file.")] = None,
    host_python: Annotated[str, typer.Option(help="The python3 that runs the host program there.")] = "python3",
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Measure a live server from its own host: verify, draft and host time, cycle, accept length, break-even."""
    from fingerprint.files import refuse_unwritable
    from fingerprint.host import HostProgram
    from fingerprint.measure import Address, break_even_of, engine_for, key_in, measure_at, refuse_another
    from fingerprint.measure import attach as write
    from fingerprint.report import measurement as views
    from fingerprint.report.words import clean
    from fingerprint.targets import parse_target
    from snapshots import Unread

    one_of("--format", format, ("text", "json"))
    at, key = Address.of(url), key_in(os.environ)
    speeds = [*([baseline] if baseline else []), *(wanted or [])]
    if plot is not None:
        if not speeds:
            raise UsageError("--plot draws speeds to compare with; name one: --baseline-tok-s or --wanted-tok-s.")
        refuse_unwritable(plot)
    snapshot = read_snapshot(attach) if attach is not None else None
    if snapshot is not None and attach is not None:
        refuse_another(snapshot, attach, at)
    with HostProgram(parse_target(target), host_python) as host:
        figures = measure_at(host, at, engine_for(snapshot, requests, tokens), concurrency or (), key)
    if attach is not None:
        write(attach, at, figures)
    even = break_even_of(figures, speeds)
    show_as(
        format,
        lambda: views.terminal(url, figures, even, asked=bool(speeds)),
        lambda: "",
        lambda: views.as_json(url, figures, even),
    )
    if plot is not None:
        if isinstance(even, Unread):
            raise UsageError(f"{plot} was not written: there is no break-even: {clean(even.unread, 200)}.")
        plot.write_text(views.picture(url, even), encoding="utf-8")
