"""What becomes of a case: its report, its bundle, a comment on a ticket."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fingerprint.commands.base import (
    app,
    one_of,
    say,
)

if TYPE_CHECKING:
    from fingerprint.case import Case


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
            say(f"{row.times:6d}  {row.kind:<10} {clean(row.name, 80)} -> {row.pseudonym}")
        return
    match format:
        case "html" | "markdown" | "json" if output is not None:
            write_report(opened, output, format)
        case "html" | "markdown" | "json":
            write_reports(opened)
        case _:
            one_of("--format", format, ("html", "markdown", "json"))
    if bundle is not None:
        _write_bundle(opened, bundle, sign, redact)
    say(render_terminal(opened, color=sys.stdout.isatty()))
    written = [output] if output is not None else [case / "report.html", case / "report.md"]
    say("\n".join(str(path) for path in [*written, *([bundle] if bundle is not None else [])]))


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
            one_of("--redact", redact, ("names", "texts"))


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle that `fingerprint report --bundle` wrote.")],
    allowed_signers: Annotated[Path | None, typer.Option(help="Who may have signed, as ssh-keygen reads it.")] = None,
    unpack: Annotated[Path | None, typer.Option(help="Also unpack it into this new folder.")] = None,
) -> None:
    """Check a bundle: that nothing in it was altered, and who signed it."""
    from fingerprint.report.bundle import findings, unpack_bundle, verify_bundle

    checked = verify_bundle(bundle, allowed_signers)
    say("\n".join(findings(checked)))
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
        say(done.said)
    if done.by_hand:
        say(done.reason)
        say("\n".join(f"  {path}" for path in done.by_hand))
