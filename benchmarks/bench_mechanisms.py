"""What each change of the embedded server's world costs: python benchmarks/bench_mechanisms.py [ROUNDS [NAME...]].

Every state is launched once a round, in an order of its own each round, and measured as a bisect would: by the mean
verify time of one launch. The table shows the median over the rounds, its spread, and the ratio to the old state.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from fingerprint.reference import changes, world
from fingerprint.reference.world import HARMLESS, INTERACTIONS, MECHANISMS, OLD, PAIRS, State, World
from probes.ports import free_port

_TOKENS = 100


def states() -> dict[str, State]:
    """All states worth a launch, by name."""
    found = {"old": OLD, "harmless": HARMLESS}
    found |= {name: mechanism.alter(HARMLESS) for name, mechanism in MECHANISMS.items()}
    found |= {f"{a}+{b}": MECHANISMS[b].alter(MECHANISMS[a].alter(HARMLESS)) for a, b in PAIRS}
    for name, mechanism in INTERACTIONS.items():
        found[name] = both = mechanism.alter(HARMLESS)
        found[f"{name}, patch alone"] = replace(HARMLESS, patches=both.patches)
        found[f"{name}, setting alone"] = replace(both, patches=changes.NEW_PATCHES)
    return found


def counters(port: int) -> tuple[float, float]:
    """Seconds of verify passes and their number since the server started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    verify = (float(v) for k, v in values.items() if 'category="target_verify"' in k)
    return sum(verify), sum(float(v) for k, v in values.items() if "cuda_graph_passes_total" in k)


def measure(host: World) -> tuple[float, float, float]:
    """One launch: verify_ms, seconds until ready, seconds to stop."""
    port = free_port()
    begin = time.perf_counter()
    server = host.start(port)
    ready = time.perf_counter() - begin
    before = counters(port)
    for prompt in ("The quick brown fox", "hello world"):
        body = {"text": prompt, "sampling_params": {"max_new_tokens": _TOKENS, "ignore_eos": True}}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode())
        with urllib.request.urlopen(request) as reply:
            reply.read()
    after = counters(port)
    begin = time.perf_counter()
    host.stop(server)
    return 1e3 * (after[0] - before[0]) / (after[1] - before[1]), ready, time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    chosen = {name: state for name, state in states().items() if name in (sys.argv[2:] or states())}
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory() as folder:
        host = World(Path(folder) / "host", world.SCENARIOS[0], 0)
        host.build()
        for number in range(rounds):
            for name in random.Random(number).sample(sorted(chosen), len(chosen)):
                host.apply(chosen[name])
                seen[name].append(measure(host))
    base = statistics.median(verify for verify, _, _ in seen[next(iter(seen))])
    print(f"{'state':28} {'verify_ms':>9} {'cv %':>6} {'ratio':>6} {'ready s':>8} {'stop s':>7}")
    for name, launches in seen.items():
        verify, ready, stop = zip(*launches, strict=True)
        middle = statistics.median(verify)
        spread = 100 * statistics.stdev(verify) / statistics.mean(verify) if rounds > 1 else 0.0
        times = f"{statistics.median(ready):8.2f} {statistics.median(stop):7.3f}"
        print(f"{name:28} {middle:9.2f} {spread:6.1f} {middle / base:6.2f} {times}", flush=True)


if __name__ == "__main__":
    main()
