"""Snapshots out: what differs, what is odd, what they hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fingerprint.commands.base import (
    SNAPSHOT,
    app,
    find_snapshot,
    one_of,
    read_snapshot,
    results,
    say,
    show_as,
)
from fingerprint.errors import UsageError

if TYPE_CHECKING:
    from snapshots import Snapshot


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
    one_of("--format", format, ("text", "markdown", "json"))
    if len(snapshots) > 2:
        of_two = {"--explain": explain is not None, "--factors": factors, "--state": state, "--repo": repo is not None}
        if asked := [option for option, given in of_two.items() if given]:
            raise UsageError(f"{' and '.join(asked)} is about two snapshots; name OLD and NEW alone.")
        if twice := [name for name in snapshots if snapshots.count(name) > 1]:
            raise UsageError(f"{twice[0]} is named twice; name the snapshot of each host once.")
    loaded = [read_snapshot(path) for path in snapshots]
    if len(loaded) != 2:
        _diff_fleet(snapshots, loaded, format, everything=everything)
    from fingerprint.diff import compare

    old, new = loaded
    if factors:
        from fingerprint.bisect.run import evidence_beside, wheels_in
        from fingerprint.factors import find, with_the_rest
        from fingerprint.report import factors as forms

        wheels = wheels_in(wheelhouse or [], index=None)
        evidence = evidence_beside(find_snapshot(snapshots[0])[1], wheels=wheels)
        found = with_the_rest(find(old, new, evidence), compare(old, new))
        show_as(format, lambda: forms.terminal(found), lambda: forms.markdown(found), lambda: forms.as_json(found))
        raise typer.Exit(1 if found.factors or found.fixed else 0)
    from fingerprint.report import differences as views

    comparison = compare(old, new, state=state)
    if explain is not None:
        found_ones = comparison.find(explain)
        if not found_ones:
            raise UsageError(f"{explain} is not among the differences; `fingerprint diff --all` lists them.")
        for one in found_ones:
            results().print(views.explain(one))
        raise typer.Exit(1)
    most = None if everything else 12
    between = None
    if repo is not None:
        from fingerprint.commits import commits_of

        between = commits_of(comparison, repo)
    show_as(
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
    from fingerprint.diff.fleet import fleet
    from fingerprint.report import fleets as views
    from fingerprint.report.differences import as_json

    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        names = paths
    compared = fleet(dict(zip(names, loaded, strict=True)))
    show_as(
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

    one_of("--format", format, ("text", "markdown", "json"))
    loaded = read_snapshot(snapshot)
    findings, unread = run(loaded), unread_part(loaded)
    show_as(
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

    one_of("--format", format, ("text", "cyclonedx"))
    if format == "cyclonedx":
        say(render_sbom(read_snapshot(snapshot)))
    else:
        results().print(terminal(read_snapshot(snapshot), section, opened=everything))


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

    loaded, path = find_snapshot(snapshot)
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
    say(str(file))


@app.command()
def validate(snapshot: Annotated[str, typer.Argument(help=SNAPSHOT)]) -> None:
    """Say whether a file is a whole snapshot that nobody has altered."""
    loaded = read_snapshot(snapshot)
    say(f"{snapshot} is a whole snapshot, id {loaded.id}")
