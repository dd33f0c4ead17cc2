"""The `fingerprint` command: parse, call, print.

Results go to standard output, messages to standard error. Exit codes: 0 same or done, 1 differences or a regression
attributed, 2 trouble; 130 and 143 after Ctrl-C and SIGTERM, with everything put back.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fingerprint.errors import FingerprintError, UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fingerprint.case import Case
    from fingerprint.engines import Engine
    from fingerprint.history import History
    from fingerprint.targets.base import Target
    from snapshots import Snapshot
    from snapshots.server import Choice

app = typer.Typer(
    name="fingerprint",
    help="When an LLM server gets slower: what changed on the host, and proof of which change did it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Format = Annotated[str, typer.Option("--format", help="text, json or markdown.")]
SNAPSHOT = "A snapshot file, or @last, @TAG, @2026-11-03 of the history."
Pid = Annotated[int | None, typer.Option(help="Process id of the launcher, where the host runs several servers.")]
Port = Annotated[int | None, typer.Option(help="Port of the server, where the host runs several.")]


def _err() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _print(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _history() -> History:
    import os

    from fingerprint.history import History, default_root

    return History(default_root(os.environ))


def _find(name: str) -> tuple[Snapshot, Path]:
    """A snapshot file or a reference into the history, and the file beside which kept files lie."""
    if not name.startswith("@"):
        from fingerprint.files import load_snapshot

        return load_snapshot(Path(name)), Path(name)
    from fingerprint.history import snapshot_of

    return snapshot_of(name, _history())


def _load(name: str | Path) -> Snapshot:
    return _find(str(name))[0]


def _version(value: bool) -> None:
    if value:
        from fingerprint import __version__

        _print(f"fingerprint {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def capture(
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
        _one_of("--redact", redact, ("hosts",))
    names = targets or ["local"]
    reached: list[Target] = [parse_target(name) for name in names]
    if sudo:
        reached = [SudoTarget(target, _password(target.name)) for target in reached]
    wanted: dict[str, Any] = {
        "pid": pid, "port": port, "python": python, "venv": venv, "keep": keep, "verify": verify, "log": log,
        "threads": threads, "deadline_s": deadline, "sections": sections, "secret_key": secret_key(),
        "verified": _load(since).packages.verified() if since is not None else None,
    }  # fmt: skip
    ask = {name: value for name, value in wanted.items() if value is not None}
    if len(reached) > 1:
        if keep or measure:
            raise UsageError("--keep and --measure go with one target at a time.")
        _capture_fleet(reached, ask, output or Path(), host_python, redact=redact is not None, quiet=quiet)
    path = output or _capture_name(reached[0].name)
    _capture_one(reached[0], ask, path, host_python, measure=measure, redact=redact is not None, quiet=quiet)


def _capture_one(
    target: Target, ask: dict[str, Any], path: Path, python: str, *, measure: bool, redact: bool, quiet: bool
) -> None:
    import snapshots
    from fingerprint.capture import capture as read
    from fingerprint.capture import store_beside
    from fingerprint.host import HostProgram
    from fingerprint.measure import measure as measure_live

    with HostProgram(target, python) as host:
        snapshot = read(host, ask, store=store_beside(path))
        if _several(snapshot) and sys.stdin.isatty() and sys.stderr.isatty():
            ask = {**ask, "pid": _choose(snapshot.server.choices)}
            snapshot = read(host, ask, store=store_beside(path))
        if measure and snapshot.server.status in {"ok", "partial"}:
            snapshot = snapshot.model_copy(update={"measured": measure_live(host, snapshot)})
    snapshots.save(_redacted(snapshot) if redact else snapshot, path)
    if not quiet and not _several(snapshot):
        _say_captured(snapshot, path)
    if _several(snapshot):
        raise UsageError(f"{target.name}: {snapshot.server.reason}. The snapshot in {path} is without a server.")
    if measure and snapshot.measured is None:
        raise UsageError(f"{target.name}: nothing was measured: {snapshot.server.reason or 'no server is running'}.")
    if all(section.status in {"failed", "absent"} for section in snapshot.sections().values()):
        raise typer.Exit(2)


def _capture_fleet(
    targets: list[Target], ask: dict[str, Any], folder: Path, python: str, *, redact: bool, quiet: bool
) -> NoReturn:
    import snapshots
    from fingerprint.capture import capture_many
    from fingerprint.report.words import clean

    trouble = False
    for target, outcome in zip(targets, capture_many(targets, ask, python=python), strict=True):
        if isinstance(outcome, FingerprintError):
            sys.stderr.write(f"fingerprint: {clean(str(outcome), 4000)}\n")
            trouble = True
            continue
        path = folder / _capture_name(target.name)
        snapshots.save(_redacted(outcome) if redact else outcome, path)
        if not quiet:
            _err().print(
                f"{path}: id {outcome.id[:16]}, {outcome.seconds:.1f} s", markup=False, highlight=False, soft_wrap=True
            )
    raise typer.Exit(2 if trouble else 0)


def _capture_name(target: str) -> Path:
    from datetime import datetime, timezone

    plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in target)
    return Path(f"{plain}-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}.json")


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
        _err().print(clean(line, 160), markup=False, highlight=False, soft_wrap=True)
    return int(typer.prompt("Several servers run here; which pid", err=True))


def _several(snapshot: Snapshot) -> bool:
    return snapshot.server.status == "failed" and len(snapshot.server.choices) > 1


def _say_captured(snapshot: Snapshot, path: Path) -> None:
    from fingerprint.report.words import clean

    console = _err()
    for name, section in snapshot.sections().items():
        words = f": {section.reason}" if section.reason else ""
        line = f"  {name:<10} {section.status:<8} {section.seconds:6.2f} s{words}"
        console.print(clean(line, 400), markup=False, highlight=False, soft_wrap=True)
    if snapshot.measured is not None:
        figure = snapshot.measured
        line = f"  {figure.metric} {figure.value:.2f} ms ({figure.source})"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    line = f"{path}: id {snapshot.id[:16]}, {snapshot.seconds:.1f} s"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def diff(
    snapshots: Annotated[
        list[str], typer.Argument(help="OLD and NEW, or one of each host: files, @last, @TAG, @DATE.")
    ],
    explain: Annotated[str | None, typer.Option(help="Everything about one difference, by name or key.")] = None,
    factors: Annotated[bool, typer.Option("--factors", help="What a bisect would switch, and what not.")] = False,
    wheelhouse: Annotated[
        list[Path] | None, typer.Option(help="With --factors: folder of wheels for packages that were not kept.")
    ] = None,
    state: Annotated[bool, typer.Option("--state", help="Also readings that move on their own.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every difference, opened.")] = False,
    repo: Annotated[Path | None, typer.Option(help="A clone in which to look up the commits between.")] = None,
    format: Annotated[str, typer.Option("--format", help="text, markdown or json.")] = "text",  # noqa: A002
) -> None:
    """Say what changed, what did not, what cannot be known, and which changes deserve a trial first."""
    _one_of("--format", format, ("text", "markdown", "json"))
    loaded = [_load(path) for path in snapshots]
    if len(loaded) != 2:
        _diff_fleet(snapshots, loaded, format, everything=everything)
    from fingerprint.diff import compare

    old, new = loaded
    if factors:
        from fingerprint.bisect.run import evidence_beside, wheels_in
        from fingerprint.factors import find
        from fingerprint.report import factors as forms

        wheels = wheels_in(wheelhouse or [], index=None)
        found = find(old, new, evidence_beside(_find(snapshots[0])[1], wheels=wheels))
        _show(format, lambda: forms.terminal(found), lambda: forms.markdown(found), lambda: forms.as_json(found))
        raise typer.Exit(1 if found.factors or found.fixed else 0)
    from fingerprint.report import differences as views

    comparison = compare(old, new, state=state)
    if explain is not None:
        found_ones = comparison.find(explain)
        if not found_ones:
            raise UsageError(f"{explain} is not among the differences; `fingerprint diff --all` lists them.")
        for one in found_ones:
            _out().print(views.explain(one))
        raise typer.Exit(1)
    most = None if everything else 12
    between = None
    if repo is not None:
        from fingerprint.commits import commits_of

        between = commits_of(comparison, repo)
    _show(
        format,
        lambda: views.terminal(comparison, most=most, opened=everything, between=between),
        lambda: views.markdown(comparison, most=most, opened=everything, between=between),
        lambda: views.as_json(views.document(comparison, between=between)),
    )
    raise typer.Exit(0 if comparison.equal else 1)


def _diff_fleet(
    paths: list[str],
    loaded: list[Snapshot],
    format: str,  # noqa: A002
    *,
    everything: bool,
) -> NoReturn:
    from fingerprint.fleet import fleet
    from fingerprint.report import fleets as views
    from fingerprint.report.differences import as_json

    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        names = paths
    compared = fleet(dict(zip(names, loaded, strict=True)))
    _show(
        format,
        lambda: views.terminal(compared, most=None if everything else 20),
        lambda: views.markdown(compared),
        lambda: as_json(views.document(compared)),
    )
    raise typer.Exit(0 if compared.equal else 1)


@app.command()
def check(
    snapshot: Annotated[str, typer.Argument(help=SNAPSHOT)],
    format: Annotated[str, typer.Option("--format", help="text, markdown or json.")] = "text",  # noqa: A002
) -> None:
    """Run the named rules on one snapshot: variables lost on the way to a rank, altered wheels, misspelt names."""
    from fingerprint.findings import check as run
    from fingerprint.findings import unread_part
    from fingerprint.report import checks as views
    from fingerprint.report.differences import as_json

    _one_of("--format", format, ("text", "markdown", "json"))
    loaded = _load(snapshot)
    findings, unread = run(loaded), unread_part(loaded)
    _show(
        format,
        lambda: views.terminal(findings, unread),
        lambda: views.markdown(findings, unread),
        lambda: as_json(views.document(loaded.id, findings, unread)),
    )
    raise typer.Exit(1 if findings else 0)


@app.command()
def show(
    snapshot: Annotated[str, typer.Argument(help=SNAPSHOT)],
    section: Annotated[str | None, typer.Argument(help="One section; all in a line each when absent.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every value.")] = False,
    format: Annotated[str, typer.Option("--format", help="text, or cyclonedx for the packages as an SBOM.")] = "text",  # noqa: A002
) -> None:
    """Show a snapshot to a person."""
    from fingerprint.report.contents import terminal
    from fingerprint.report.sbom import render_sbom

    _one_of("--format", format, ("text", "cyclonedx"))
    if format == "cyclonedx":
        _print(render_sbom(_load(snapshot)))
    else:
        _out().print(terminal(_load(snapshot), section, opened=everything))


@app.command()
def extract(
    snapshot: Annotated[str, typer.Argument(help=SNAPSHOT)],
    factor: Annotated[str, typer.Argument(help="startup:NAME, tree:PATH or package:NAME, as a bisect names it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file, or a folder for its own name; then its path is said.")
    ] = None,
    kept: Annotated[list[Path] | None, typer.Option(help="Further folders with kept files.")] = None,
) -> None:
    """Give back what a snapshot holds of one factor: a startup file, a patch, or a package as a wheel."""
    from fingerprint.bisect.run import evidence_beside
    from fingerprint.extract import extract as take

    loaded, path = _find(snapshot)
    taken = take(loaded, factor, evidence_beside(path, kept or ()))
    if output is None:
        if sys.stdout.isatty() and taken.name.endswith(".whl"):
            raise UsageError(f"{taken.name} is no text; name a file or a folder with -o.")
        sys.stdout.buffer.write(taken.data)
        return
    file = output / taken.name if output.is_dir() else output
    try:
        file.write_bytes(taken.data)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    _print(str(file))


@app.command(name="import")
def import_(
    reports: Annotated[list[Path], typer.Argument(help="Text files of one host and time; `-` is standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The snapshot.")],
) -> None:
    """Make a snapshot of a pasted report (collect_env, check_env, pip freeze, nvidia-smi -q, topo -m, variables)."""
    import snapshots
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
    snapshots.save(made, output)
    _err().print(f"{output}: id {made.id[:16]}, from a report", markup=False, highlight=False, soft_wrap=True)


@app.command()
def validate(snapshot: Annotated[str, typer.Argument(help=SNAPSHOT)]) -> None:
    """Say whether a file is a whole snapshot that nobody has altered."""
    loaded = _load(snapshot)
    _print(f"{snapshot} is a whole snapshot, id {loaded.id}")


@app.command()
def report(
    case: Annotated[Path, typer.Argument(help="A case folder.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="One file in the format asked for.")] = None,
    format: Annotated[str, typer.Option("--format", help="html, markdown or json; with -o.")] = "html",  # noqa: A002
    bundle: Annotated[Path | None, typer.Option(help="Also a zip with everything and its digests.")] = None,
    sign: Annotated[Path | None, typer.Option(help="SSH key that signs the bundle.")] = None,
    redact: Annotated[
        str | None, typer.Option(help="Redact the bundle: names, or texts (which includes names).")
    ] = None,
    preview: Annotated[bool, typer.Option("--redact-preview", help="Show what a redaction replaces, by what.")] = False,
) -> None:
    """Write report.md and report.html of a case, and say the verdict."""
    from fingerprint.case import Case
    from fingerprint.report import write_report, write_reports
    from fingerprint.report.terminal import render_terminal

    opened = Case.open(case)
    if preview:
        from fingerprint.report.redaction import preview as replaced
        from fingerprint.report.words import clean

        for row in replaced(opened):
            _print(f"{row.times:6d}  {row.kind:<10} {clean(row.name, 80)} -> {row.pseudonym}")
        return
    match format:
        case "html" | "markdown" | "json" if output is not None:
            write_report(opened, output, format)
        case "html" | "markdown" | "json":
            write_reports(opened)
        case _:
            _one_of("--format", format, ("html", "markdown", "json"))
    if bundle is not None:
        _write_bundle(opened, bundle, sign, redact)
    _print(render_terminal(opened, color=sys.stdout.isatty()))
    written = [output] if output is not None else [case / "report.html", case / "report.md"]
    _print("\n".join(str(path) for path in [*written, *([bundle] if bundle is not None else [])]))


def _write_bundle(case: Case, bundle: Path, sign: Path | None, redact: str | None) -> None:
    import tempfile

    from fingerprint.report.bundle import write_bundle
    from fingerprint.report.redaction import redact_case

    match redact:
        case None:
            write_bundle(case, bundle, sign=sign)
        case "names" | "texts":
            with tempfile.TemporaryDirectory() as folder:
                write_bundle(redact_case(case, Path(folder) / "case", redact), bundle, sign=sign, redaction=redact)
        case _:
            _one_of("--redact", redact, ("names", "texts"))


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle that `fingerprint report --bundle` wrote.")],
    allowed_signers: Annotated[Path | None, typer.Option(help="Who may have signed, as ssh-keygen reads it.")] = None,
    unpack: Annotated[Path | None, typer.Option(help="Also unpack it into this new folder.")] = None,
) -> None:
    """Check a bundle: that nothing in it was altered, and who signed it."""
    from fingerprint.report.bundle import findings, unpack_bundle, verify_bundle

    checked = verify_bundle(bundle, allowed_signers)
    _print("\n".join(findings(checked)))
    if unpack is not None:
        unpack_bundle(bundle, unpack)
    raise typer.Exit(0 if checked.whole else 1)


@app.command()
def attach(
    case: Annotated[Path, typer.Argument(help="A case folder with its report.")],
    to: Annotated[str, typer.Option(help="OWNER/REPO#7, an issue's address, or slack:CHANNEL.")],
    bundle: Annotated[Path | None, typer.Option(help="A bundle that goes with it.")] = None,
) -> None:
    """Send a report to an issue through gh or glab; what they cannot send is named."""
    from fingerprint.report.attach import attach as send

    done = send(case, to, bundle)
    if done.said:
        _print(done.said)
    if done.by_hand:
        _print(done.reason)
        _print("\n".join(f"  {path}" for path in done.by_hand))


@app.command()
def measure(
    url: Annotated[str, typer.Argument(help="The server as its own host calls it: http://127.0.0.1:30000.")],
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
    host_python: Annotated[str, typer.Option(help="The python3 that runs the host program there.")] = "python3",
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Measure a live server from its own host: verify, draft and host time, cycle, accept length, break-even."""
    from fingerprint.host import HostProgram
    from fingerprint.measure import Address, break_even_of, engine_for, measure_at, refuse_another
    from fingerprint.measure import attach as write
    from fingerprint.report import measurement as views
    from fingerprint.targets import parse_target

    _one_of("--format", format, ("text", "json"))
    at = Address.of(url)
    snapshot = _load(attach) if attach is not None else None
    if snapshot is not None and attach is not None:
        refuse_another(snapshot, attach, at)
    with HostProgram(parse_target(target), host_python) as host:
        figures = measure_at(host, at, engine_for(snapshot, requests, tokens), concurrency or ())
    if attach is not None:
        write(attach, at, figures)
    even = break_even_of(figures, [*([baseline] if baseline else []), *(wanted or [])])
    _show(
        format,
        lambda: views.terminal(url, figures, even),
        lambda: "",
        lambda: views.as_json(url, figures, even),
    )


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
    from fingerprint.measure import measure as measure_live
    from fingerprint.targets import parse_target

    history = _history()
    ask = {"pid": pid, "port": port, "keep": keep or [], "verify": True, "secret_key": secret_key()}
    with HostProgram(parse_target(target)) as host:
        snapshot = read(host, ask, store=Store(history.root / "snapshots" / "kept"))
        if snapshot.server.choices and snapshot.server.status == "failed":
            raise UsageError(f"{target}: {snapshot.server.reason}. Nothing was recorded.")
        if measure and snapshot.server.status in {"ok", "partial"}:
            snapshot = snapshot.model_copy(update={"measured": measure_live(host, snapshot)})
    made = history.record(snapshot, tag)
    history.prune(keep_bytes)
    if not quiet:
        _print(f"recorded {made.snapshot[:16]}{f' as @{tag}' if tag else ''} in {history.root}")


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

    _one_of("--format", format, ("text", "json"))
    history = _history()
    if tag is not None:
        reference, mark, name = tag.partition("=")
        if not mark:
            raise UsageError(f"--tag {tag} names nothing; write REFERENCE=NAME, such as last=good.")
        history.tag(f"@{reference.lstrip('@')}", name)
    if untag is not None:
        history.untag(untag)
    entries = entries_of(history, target, limit)
    _print(log_json(entries) if format == "json" else render_log(entries, plot=plot))


def _out() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def _show(
    format: str,  # noqa: A002
    terminal: Callable[[], RenderableType],
    markdown: Callable[[], str],
    as_json: Callable[[], str],
) -> None:
    if format == "json":
        _print(as_json())
    elif format == "markdown":
        _print(markdown())
    else:
        _out().print(terminal())


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

    _one_of("--format", format, ("text", "json"))
    (before, kept_beside), after = _find(old), _load(new)
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
        anyway=anyway,
        resume=resume,
        allow_host_changes=allow_host_changes,
        stop_command=stop_command,
        start_command=start_command,
        variables=dict(_pair("--variable", text) for text in variables or ()),
        flags=dict(_pair("--flag", text) for text in flags or ()),
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
    )
    with (
        ProgressObserver(_err(), quiet=None if progress is None else not progress) as observer,
        HostProgram(parse_target(target)) as host,
    ):
        finished, outcome = run(host, before, after, kept_beside, options, observer, observer.prepared)
    write_reports(finished)
    if format == "json":
        _print(outcome.model_dump_json(indent=1))
    else:
        _print(render_terminal(finished, color=sys.stdout.isatty()))
    raise typer.Exit(1 if outcome.culprits else 0)


def _command(
    engine: str | None, command: str | None, metric: str | None, unit: str, skip: int, timeout_s: float | None
) -> Engine | None:
    """The engine that the options name; None: the one that the snapshot names."""
    from fingerprint.engines import command_engine

    if engine is not None:
        _one_of("--engine", engine, ("command",))
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
        _print(clean(f"removed {path}" if path.startswith("/") else path, 400))
    if not answer["swept"]:
        _print("nothing was left behind")


@app.command()
def demo(
    scenario: Annotated[str, typer.Option(help="single, two, interaction, phantom or none.")] = "single",
    seed: Annotated[int, typer.Option(help="Chooses the culprit.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for everything that it makes.")] = Path("demo-out"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the results of each command.")] = False,
) -> None:
    """Break a real EAGLE3 server among many harmless changes, and watch the break being found."""
    from fingerprint.reference.demo import demo as run

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    raise typer.Exit(0 if run(scenario, seed, out, say, quiet=quiet) else 1)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not name or not (mark or name.startswith("--")):
        raise UsageError(
            f"{option} {text} gives no value; write {option}={'--name' if option == '--flag' else 'NAME'}=VALUE."
        )
    return name, value


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option} {value} is not known; use {' or '.join(allowed)}.")


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def main() -> None:
    """Run the command; expected failures become one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
    gc.set_threshold(200_000, 20, 50)  # snapshots are large trees without cycles: looking for some costs a tenth
    try:
        app()
    except FingerprintError as error:
        from fingerprint.report.words import clean

        sys.stderr.write(f"fingerprint: {clean(str(error), 4000)}\n")  # some of it was said by a host
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("fingerprint: interrupted; everything was put back\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
