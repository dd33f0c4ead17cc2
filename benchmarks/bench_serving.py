"""What a capture costs the server that it looks at: the gaps between a client's tokens, with and without one at work.

`python -m benchmarks.bench_serving --port PORT` takes a live server that speaks SGLang's interface; without a port this
project's own one is started. One client streams greedy requests, one at a time. In turns it is left alone, and a
command is run beside it again and again without a pause, which is far more than anybody does: a capture, a capture that
verifies every installed file, and the tools that people use today. A gap is the time between two chunks of the stream,
one cycle of speculative decoding.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fingerprint.engines.base import PROMPTS
from fingerprint.reference import world
from fingerprint.reference.world import World
from probes.measure import Request, Server, generate
from probes.ports import free_port

ALONE = "nothing beside it"
MAX_NEW_TOKENS = 96


class Window(NamedTuple):
    """Some seconds of serving: the gaps in ms, tokens a second, and how often the command ran."""

    gaps: list[float]
    tokens_per_second: float
    seconds: float
    runs: int


class Beside(threading.Thread):
    """Runs a command again and again until told to stop; the run that has begun then is let end."""

    def __init__(self, argv: list[str], home: Path) -> None:
        super().__init__()
        self.argv, self.variables = argv, {**os.environ, "HOME": str(home)}
        self.runs = 0
        self.enough = threading.Event()

    def run(self) -> None:
        """What the thread does."""
        while self.argv and not self.enough.is_set():
            done = subprocess.run(self.argv, capture_output=True, text=True, check=False, env=self.variables)
            if done.returncode != 0:
                print(f"{' '.join(self.argv)[:120]}: {done.stderr.strip()[-300:]}", file=sys.stderr)
                return
            self.runs += 1


def window(server: Server, argv: list[str], seconds: float, home: Path) -> Window:
    """One row's turn: whole runs of the command, with the client at work from the first to the end of the last."""
    beside = Beside(argv, home)
    done: list[Request] = []
    began = time.monotonic()
    beside.start()
    while beside.is_alive() or time.monotonic() - began < seconds:
        if time.monotonic() - began >= seconds:
            beside.enough.set()
        body = {
            "text": PROMPTS[len(done) % len(PROMPTS)],
            "sampling_params": {"max_new_tokens": MAX_NEW_TOKENS, "temperature": 0, "ignore_eos": True},
        }
        done.append(generate(server, body, 120.0, time.monotonic))
    took = time.monotonic() - began
    spent = sum(one.times[-1] - one.times[0] for one in done)
    tokens = sum(one.tokens[-1] - one.tokens[0] for one in done)
    return Window([gap for one in done for gap in one.gaps], tokens / spent, took, beside.runs)


def report(turns: list[dict[str, Window]]) -> None:
    """Medians over the turns; shares are of the same turn's window with nothing beside it."""
    heads = f"{'runs':>6}{'gap ms':>9}{'p99':>8}{'longest':>9}{'tok/s':>8}{'of alone':>21}{'lost s a run':>14}"
    print(f"{'':40}{heads}")
    for name in turns[0]:
        windows = [turn[name] for turn in turns]
        shares = [turn[name].tokens_per_second / turn[ALONE].tokens_per_second for turn in turns]
        of_each = zip(shares, windows, strict=True)
        lost = [(1 - share) * one.seconds / one.runs for share, one in of_each if one.runs]
        cells = [
            f"{sum(one.runs for one in windows):6}",
            f"{statistics.median(statistics.median(one.gaps) for one in windows):9.3f}",
            f"{statistics.median(statistics.quantiles(one.gaps, n=100)[-1] for one in windows):8.2f}",
            f"{max(max(one.gaps) for one in windows):9.1f}",
            f"{statistics.median(one.tokens_per_second for one in windows):8.1f}",
            f"{f'{statistics.median(shares):.3f} ({min(shares):.3f}-{max(shares):.3f})':>21}",
            f"{statistics.median(lost):14.3f}" if lost else "",
        ]
        print(f"{name:40}{''.join(cells)}")
    print("\nlost s a run: serving that one run of the command costs, in seconds of the undisturbed speed.")
    print(f"{os.cpu_count()} processors; {len(turns)} turns; requests of {MAX_NEW_TOKENS} tokens.")


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[int]:
    """The project's own server."""
    host = World(folder / "host", world.SCENARIOS[0], 0)
    host.build()
    port = free_port()
    server = host.start(port)
    try:
        yield port
    finally:
        host.stop(server)


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="a live server of this host")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a window")
    parser.add_argument("--beside", action="append", default=[], metavar="COMMAND", help="one more command, a row each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        home = Path(place)
        port = asked.port or stack.enter_context(own_server(home))
        capture = [sys.executable, "-m", "fingerprint", "capture", "--port", str(port), "--quiet", "-o"]
        capture.append(str(home / "captured.json"))
        rows: dict[str, list[str]] = {
            ALONE: [],
            "capture": [*capture, "--no-verify"],
            "capture, every file verified": capture,
            **{command: ["sh", "-c", command] for command in asked.beside},
        }
        server = Server(port)
        look = functools.partial(window, server, home=home)
        look([], 2.0)  # warm-up, thrown away
        report([{name: look(argv, asked.seconds) for name, argv in rows.items()} for _ in range(asked.turns)])


if __name__ == "__main__":
    main()
