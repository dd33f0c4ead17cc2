"""The everyday commands on real SGLang EAGLE3 on a GPU: a known culprit among decoys, found or not.

    make gpu-acceptance ARGS="--python SGLANG/bin/python --out OUT [--scenario NAME]"

The installed SGLang stays as it is: its package is copied into a git tree below OUT and served from there by its own
Python. Models are written there, too, unless some are named. The host is
captured in its old state, changed in place, captured again and searched, all through `fingerprint` as a user types it.
Everything is kept below OUT: snapshots, journal, verdict, report, `truth.json`, server logs.

- `patch`: one of eight locally modified files runs one needless kernel in every layer.
- `two`: it converts the hidden states to float and back, and another file does so before every RMS norm.
- `interaction`: the first of these conversions behind a variable that is new as well: either alone changes nothing.
- `eager`: CUDA graphs are switched off by a flag.
- `nccl`, `p2p`: two GPUs, NCCL_PROTO=Simple or NCCL_P2P_DISABLE=1 among other NCCL variables.
- `phantom`: only decoys, and an old figure that was never real.
- `noise`: no search; six launches of one setting, and how far their verify times lie apart.

Several cases may share GPUs (`--turns FOLDER`, one folder for all): each of their servers imports its modules, then
waits until no other is on its GPUs, and keeps them until it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import snapshots
from fingerprint.engines import engine_of
from fingerprint.reference.sglang_tree import NOTE, Edit, Release, ServedTree, await_ready, operations_packages
from probes.flags import known, spelled
from probes.ports import free_port
from snapshots.launch import CommandLine
from snapshots.spellings import names_of

REPOSITORY = Path(__file__).parents[1]
READY_S = 600.0
VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*$")
SCENARIOS = ("patch", "two", "interaction", "eager", "nccl", "p2p", "phantom", "noise")
NOISE_LAUNCHES = 6
WHERE = "import importlib.util as u; print(u.find_spec('sglang').submodule_search_locations[0])"
VARIABLE = "OPERATIONS_CHECK_STATES"
SERVED = {"llama", "llama_eagle3"}
"""The models' modules. SGLang imports all 200 at every start unless told which it shall not."""


_ATTENTION = "        # Self Attention\n"
_NEEDLESS = "hidden_states = hidden_states * 1.0\n"
_CONVERT = "hidden_states = (hidden_states.float() + 0.0).to(hidden_states.dtype)\n"
_NORM = """        if x.numel() == 0:
            if residual is not None:
                if post_residual_addition is not None:
"""
MODEL = "python/sglang/srt/models/llama.py"
SLOWER_LAYER = Edit(MODEL, _ATTENTION, f"{_ATTENTION}        {_NEEDLESS}")
SLOW_LAYER = Edit(MODEL, _ATTENTION, f"{_ATTENTION}        {_CONVERT}")
SLOW_LAYER_WHERE_ASKED = Edit(
    MODEL,
    _ATTENTION,
    f"""{_ATTENTION}        if __import__("os").environ.get("{VARIABLE}") == "1":\n            {_CONVERT}""",
)
SLOW_NORM = Edit("python/sglang/srt/layers/layernorm.py", _NORM, f"        x = (x.float() + 0.0).to(x.dtype)\n{_NORM}")
GATED = """

import os as _os

if _os.environ.get("OPERATIONS_TRACE_TOPK") == "1":

    def _trace(*values):
        print("topk", [tuple(value.shape) for value in values], flush=True)

"""
TOUCHED = {
    "python/sglang/srt/entrypoints/engine.py": NOTE,
    "python/sglang/srt/layers/communicator.py": NOTE,
    "python/sglang/srt/layers/moe/topk.py": GATED,
    "python/sglang/srt/managers/scheduler.py": NOTE,
    "python/sglang/srt/layers/attention/flashinfer_backend.py": NOTE,
    "python/sglang/srt/models/llama_eagle3.py": NOTE,
    "python/sglang/srt/layers/logits_processor.py": NOTE,
}
"""Files with a harmless local difference in the new state; with the patched model they are the story's eight."""
TURNS = "ACCEPTANCE_TURNS"
TURNS_FILE = "python/sglang/turns.py"
WAIT_FOR_TURN = Edit(
    "python/sglang/srt/managers/scheduler.py",
    "    # Load plugins so hooks can override Scheduler and its dependencies.\n",
    """    from sglang import turns

    turns.wait(tp_rank)
""",
)


def states(scenario: str) -> tuple[Release, Release, dict[str, object]]:
    """The old launch, the new one, and the truth."""
    old = Release(
        variables={
            "NCCL_DEBUG": "WARN",
            "NCCL_BUFFSIZE": "4194304",
            "OMP_NUM_THREADS": "8",
            "TOKENIZERS_PARALLELISM": None,
        },
        flags={"--decode-log-interval": "40", "--watchdog-timeout": "300", "--schedule-conservativeness": None},
        appended={"python/sglang/srt/managers/scheduler.py": NOTE.format("spring")},
        startup="OPERATIONS = 'spring'\n",
        packages=operations_packages(4, "a"),
    )
    new = Release(
        variables={
            "NCCL_DEBUG": "VERSION",
            "NCCL_BUFFSIZE": None,
            "OMP_NUM_THREADS": "4",
            "TOKENIZERS_PARALLELISM": "false",
            "NCCL_IB_TIMEOUT": "22",
            "NCCL_SOCKET_NTHREADS": "2",
        },
        flags={"--decode-log-interval": "200", "--watchdog-timeout": "600", "--schedule-conservativeness": "0.9"},
        appended={path: text.format("autumn") for path, text in TOUCHED.items()},
        startup="import sys\n\nsys.setswitchinterval(0.005)\n",
        packages=operations_packages(5, "b"),
    )
    layer, norm = f"tree:{SLOW_LAYER.path}", f"tree:{SLOW_NORM.path}"
    kind, culprits = "attributed", [layer]
    match scenario:
        case "patch":
            new.edits = (SLOWER_LAYER,)
        case "two":
            new.edits = (SLOW_LAYER, SLOW_NORM)
            kind, culprits = "several", [norm, layer]
        case "interaction":
            new.edits = (SLOW_LAYER_WHERE_ASKED,)
            new.variables[VARIABLE] = "1"
            kind, culprits = "interaction", [layer, f"variable:{VARIABLE}"]
        case "eager":
            new.flags["--disable-cuda-graph"] = ""
            culprits = ["flag:--disable-cuda-graph"]
        case "nccl":
            new.variables["NCCL_PROTO"] = "Simple"
            culprits = ["variable:NCCL_PROTO"]
        case "p2p":
            new.variables["NCCL_P2P_DISABLE"] = "1"
            culprits = ["variable:NCCL_P2P_DISABLE"]
        case _:
            kind, culprits = "phantom", []
    return old, new, {"kind": kind, "culprits": culprits}


class Host:
    """The serving environment below OUT."""

    def __init__(self, out: Path, python: str, models: Path, tp: int, turns: Path | None) -> None:
        self.out = out
        self.python = python
        self.models = models
        self.tp = tp
        self.turns = turns
        self.served = ServedTree(out)

    def build(self) -> None:
        """The git tree, with the installed SGLang as its only commit."""
        found = subprocess.run([self.python, "-c", WHERE], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            raise SystemExit(f"{self.python} cannot import sglang; name an environment that has it with --python.")
        package = Path(found.stdout.strip())
        if self.turns is None:
            self.served.build(package)
        else:
            turns = Path(__file__).with_name("turns.py")
            self.served.build(package, files={TURNS_FILE: turns}, edits=(WAIT_FOR_TURN,))

    def _as_this_version_takes(self, argv: list[str]) -> list[str]:
        """The command line with the names that this SGLang has for its flags, without those that it does not know."""
        line = CommandLine.of(argv)
        taken = known(str(self.served.tree / "python"), engine_of("sglang").flag_sources)
        flags: dict[str, tuple[str, ...]] = {}
        for flag, words in line.flags.items():
            name = spelled(taken, names_of(flag)) if taken else flag
            if name is None:
                print(f"left out, for this SGLang has no {flag}", flush=True)
            else:
                flags[name] = words
        return CommandLine(line.program, flags).argv()

    @contextlib.contextmanager
    def serving(self, launch: Release, port: int) -> Iterator[None]:
        """The live server; `start` and `stop` below OUT are what the operations team calls for it."""
        argv = [
            self.python, "-m", "sglang.launch_server", "--model-path", str(self.models / "target"),
            "--host", "127.0.0.1", "--port", str(port), "--tp", str(self.tp), "--mem-fraction-static", "0.2",
            # What needs neither a compiler on the host nor FlashAttention's objects:
            "--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none",
            "--disable-piecewise-cuda-graph", "--max-running-requests", "4", "--context-length", "4096",
            "--max-total-tokens", "65536", "--cuda-graph-max-bs", "4", "--enable-metrics",
            "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(self.models / "draft"),
            "--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3",
        ]  # fmt: skip
        if self.tp > 1:
            argv.append("--disable-custom-all-reduce")  # so that every all-reduce is NCCL's
        argv = self._as_this_version_takes(argv + launch.words())
        variables = dict(os.environ)
        variables |= {"SPT_NOENV": "1", "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"}
        if self.turns is not None:
            variables[TURNS] = str(self.turns)
        modules = {path.stem for path in (self.served.tree / "python" / "sglang" / "srt" / "models").glob("*.py")}
        variables["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(sorted(modules - SERVED))
        for name, text in launch.variables.items():
            variables.pop(name, None)
            if text is not None:
                variables[name] = text
        others = os.environ.get("PYTHONPATH", "")
        variables["PYTHONPATH"] = os.pathsep.join([self.served.search_path, others]).rstrip(os.pathsep)
        words = [f"unset {name}" for name in os.environ if name not in variables]
        words += [f"export {name}={shlex.quote(text)}" for name, text in variables.items() if VARIABLE_NAME.match(name)]
        log = self.out / f"server-{port}.log"
        running = self.out / "server.pid"
        words += [
            f"echo $$ >{shlex.quote(str(running))}",
            f"exec {shlex.join(argv)} >>{shlex.quote(str(log))} 2>&1 </dev/null",
        ]
        (self.out / "start").write_text("\n".join(words) + "\n")
        (self.out / "stop").write_text(f"kill -KILL -- -$(cat {shlex.quote(str(running))})\n")
        server = subprocess.Popen(["bash", self.out / "start"], cwd=self.served.tree, start_new_session=True)
        try:
            await_ready(server, port, "/health_generate", READY_S, log)
            yield
        finally:
            for leader in {server.pid, int(running.read_text())}:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, signal.SIGKILL)
            server.wait()


def _fingerprint(*words: object, allowed: tuple[int, ...] = (0,)) -> None:
    print(f"$ fingerprint {' '.join(map(str, words))}", flush=True)
    done = subprocess.run([sys.executable, "-m", "fingerprint", *map(str, words)], check=False)
    if done.returncode not in allowed:
        raise SystemExit(f"fingerprint {words[0]} ended with {done.returncode}")


def _noise(host: Host, launch: Release, out: Path) -> None:
    """Launch one setting again and again, and print how far the figures lie apart."""
    figures: list[float] = []
    for number in range(1, NOISE_LAUNCHES + 1):
        port = free_port()
        file = out / f"launch-{number}.json"
        with host.serving(launch, port):
            _fingerprint("capture", "--port", port, "--no-verify", "--measure", "--quiet", "-o", file)
        measured = snapshots.load(file).measured
        if measured is None:
            raise SystemExit(f"launch {number} was not measured")
        figures.append(measured.value)
        print(f"launch {number}: {measured.metric} {measured.value:.4f}", flush=True)
    spread = statistics.stdev(figures)
    mean = statistics.fmean(figures)
    share = 100 * spread / mean
    print(f"{len(figures)} launches: mean {mean:.4f} ms, standard deviation {spread:.4f} ms = {share:.2f} %")


def main() -> None:
    """Run one scenario and print the outcome beside the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--python", default=sys.executable, help="of an environment with SGLang (this one)")
    parser.add_argument("--models", type=Path, help="folder that benchmarks.gpu_models wrote")
    parser.add_argument("--scenario", choices=SCENARIOS, default="patch")
    parser.add_argument("--budget", type=int, default=14)
    parser.add_argument("--turns", type=Path, help="folder in which cases on the same GPUs agree whose turn it is")
    asked = parser.parse_args()
    out: Path = asked.out.resolve()
    out.mkdir(parents=True)
    old, new, truth = states(asked.scenario)
    (out / "truth.json").write_text(json.dumps(truth) + "\n")
    turns = None if asked.turns is None else asked.turns.resolve()
    models = (asked.models or out / "models").resolve()
    host = Host(out, asked.python, models, tp=2 if asked.scenario in {"nccl", "p2p"} else 1, turns=turns)
    host.build()
    if not models.exists():
        subprocess.run([asked.python, "-m", "benchmarks.gpu_models", models], cwd=REPOSITORY, check=True)
    host.served.become(old)
    if asked.scenario == "noise":
        _noise(host, old, out)
        return
    began = time.monotonic()
    port = free_port()
    capture = ("capture", "--port", port, "--no-verify", "--measure", "--quiet")
    with host.serving(old, port):
        _fingerprint(*capture, "--keep", "ops-*", "-o", out / "old.json")
    host.served.become(new)
    with host.serving(new, port):
        _fingerprint(*capture, "-o", out / "new.json")
        _fingerprint("diff", out / "old.json", out / "new.json", allowed=(0, 1))
        then = ("--then-old", "1.0") if asked.scenario == "phantom" else ()
        # Without graphs 0.5.14 times no verify pass of its own: only the client's cycle time is there on both sides.
        figure = ("--figure", "cycle_ms") if asked.scenario == "eager" else ()
        # The live server makes room for the trials; others in the folder of turns are no reason to refuse.
        room = ("--stop-command", f"bash {out}/stop", "--start-command", f"bash {out}/start")
        anyway = () if turns is None else ("--anyway",)
        words = ("--case", out / "case", "--budget", asked.budget, *then, *figure, *room, *anyway)
        _fingerprint("bisect", out / "old.json", out / "new.json", *words, allowed=(0, 1))
    verdict = json.loads((out / "case" / "verdict.json").read_text())
    named = sorted(name for culprit in verdict["culprits"] for name in culprit["factors"])
    print(f"truth:   {truth['kind']} {truth['culprits']}")
    print(f"verdict: {verdict['kind']} {named}, {verdict['launches']} launches, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
