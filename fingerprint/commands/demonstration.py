"""The demonstration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fingerprint.commands.base import (
    app,
)


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
