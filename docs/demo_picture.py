"""Draws docs/demo.svg: the end of a real demonstration, as a terminal shows it.

python docs/demo_picture.py [--seed N]
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 108
STYLES = {
    "$ ": "bold cyan",
    "ATTRIBUTED": "bold red",
    "truth:": "bold",
    "verdict:": "bold",
    "The verdict": "bold green",
}


def demonstration(seed: int) -> list[str]:
    """The lines of one run, from the bisect on; the folder's name is left out."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "fingerprint", "demo", "--seed", str(seed), "--out", f"{folder}/demo-out"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        lines = done.stdout.replace(f"{folder}/", "").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("$ fingerprint bisect"))
    again = next(place for place, line in enumerate(lines) if line.startswith("$ fingerprint report"))
    end = next(place for place, line in enumerate(lines) if line.startswith("truth:"))
    return [*lines[start:again], *lines[end:]]


def main() -> None:
    """Run it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    lines = demonstration(parser.parse_args().seed)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        style = next((style for mark, style in STYLES.items() if line.startswith(mark)), "")
        console.print(Text(line[:WIDTH], style=style), soft_wrap=True)
    svg = console.export_svg(title="fingerprint demo")
    kept = [line for line in svg.splitlines() if "@font-face" not in line]  # no font is fetched from anywhere
    Path(__file__).with_name("demo.svg").write_text("\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
