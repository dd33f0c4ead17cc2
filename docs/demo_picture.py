"""Draws docs/demo.svg: the end of a real demonstration, as a terminal shows it.

python docs/demo_picture.py [--seed N]
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 124
STYLES = {
    "$ ": "bold cyan",
    "ATTRIBUTED": "bold red",
    "truth:": "bold",
    "verdict:": "bold",
    "The verdict": "bold green",
}


def on_a_terminal(words: list[str]) -> str:
    """What a command shows on a terminal of this width."""
    shown = bytearray()

    def keep(handle: int) -> bytes:
        data = os.read(handle, 65536)
        shown.extend(data)
        return data

    os.environ.update(COLUMNS=str(WIDTH), TERM="xterm")
    pty.spawn(words, keep)
    return shown.decode("utf-8", "replace")


def demonstration(seed: int) -> list[str]:
    """The lines of one run, from the bisect on; the folder's name is left out."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "fingerprint", "demo", "--seed", str(seed), "--out", f"{folder}/demo-out"]
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_a_terminal(words)).replace(f"{folder}/", "")
        # A line that was written over has carriage returns in it; what stands in the end is what counts.
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        lines = [line for line in lines if not re.match(r"[\u2800-\u28ff] ", line) and not line.endswith(" s left")]
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
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # no font is fetched from anywhere
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    Path(__file__).with_name("demo.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
