"""One host that serves with the embedded server: first in its old state, then changed in place to its new one.

Everything is below one folder:

    venv/       the environment: numpy of the running interpreter, the wheels of the server's kernels, a .pth file
    serving/    the git checkout the server runs from, with local modifications
    site/       sitecustomize, first on PYTHONPATH so that a distribution's own does not hide it
    models/     target and draft
    wheels/     what was installed, newest last

The two states differ in the same factors whatever the scenario; a scenario only decides which of the changes does harm.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from fingerprint.errors import LaunchError, UsageError
from fingerprint.reference import changes
from fingerprint.reference.changes import Patch
from fingerprint.reference.wheel import Wheel, install

SCENARIOS: tuple[str, ...] = ("single", "two", "interaction", "phantom", "none")

_HERE = Path(__file__).parent
_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "Serving",
    "GIT_AUTHOR_EMAIL": "serving@example.org",
    "GIT_COMMITTER_NAME": "Serving",
    "GIT_COMMITTER_EMAIL": "serving@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
_BURN = """
import os, sys, time
parent, end = os.getppid(), time.monotonic() + float(sys.argv[2])
os.sched_setaffinity(0, {int(sys.argv[1])})
while time.monotonic() < end and os.getppid() == parent:
    sum(range(100_000))
"""


@dataclass(frozen=True)
class LaunchCommand:
    """How the server is started: everything a launch needs to know."""

    argv: tuple[str, ...]
    cwd: Path
    variables: dict[str, str]
    """The complete environment of the process."""


@dataclass(frozen=True)
class State:
    """What can be switched on the host."""

    variables: Mapping[str, str]
    flags: Mapping[str, str]
    patches: Mapping[str, Patch]
    """Local modifications of the checkout by path."""
    commit: Patch
    """What the newest commit did to the rotary embedding; empty: it is not there yet."""
    kernels_version: str
    kernels: Mapping[str, Patch]
    collective: Mapping[str, Patch]
    sitecustomize: str
    pth: Mapping[str, str] = field(default_factory=dict)

    def factors(self) -> dict[str, object]:
        """Every factor that is set, with its value."""
        return (
            {f"variable:{name}": value for name, value in self.variables.items()}
            | {f"flag:{name}": value for name, value in self.flags.items()}
            | {f"tree:{path}": patch for path, patch in self.patches.items()}
            | {f"startup:{name}": text for name, text in self.pth.items()}
            | {
                "tree:commit": self.commit,
                "package:tiny-kernels": (self.kernels_version, self.kernels),
                "package:tiny-collective": self.collective,
                "startup:sitecustomize": self.sitecustomize,
            }
        )


OLD = State(
    variables={"OMP_NUM_THREADS": "1", "NCCL_PROTO": "LL", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    flags={"--decode-log-interval": "40", "--watchdog-timeout": "300"},
    patches=changes.OLD_PATCHES,
    commit=(),
    kernels_version="1.4.0",
    kernels={},
    collective={},
    sitecustomize=changes.SITECUSTOMIZE_OLD,
)
HARMLESS = State(
    variables={"OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "8", "TCCL_TRANSPORT": "shm"},
    flags={"--decode-log-interval": "200", "--watchdog-timeout": "600", "--attention-backend": "fused"},
    patches=changes.NEW_PATCHES,
    commit=changes.COMMIT,
    kernels_version="1.5.0",
    kernels=changes.KERNELS_1_5,
    collective=changes.COLLECTIVE_REBUILT,
    sitecustomize=changes.SITECUSTOMIZE_NEW,
    pth={changes.PTH_NAME: changes.PTH_TEXT},
)
"""The new state in which nothing that changed matters."""


@dataclass(frozen=True)
class Mechanism:
    """A change that does harm: the factors it is made of and what it makes of a new state."""

    factors: tuple[str, ...]
    alter: Callable[[State], State]


def _variable(name: str, value: str) -> Callable[[State], State]:
    return lambda state: replace(state, variables={**state.variables, name: value})


def _flag(name: str, value: str) -> Callable[[State], State]:
    return lambda state: replace(state, flags={**state.flags, name: value})


def _patch(path: str, patch: Patch) -> Callable[[State], State]:
    return lambda state: replace(state, patches={**state.patches, path: patch})


def _set(**values: Any) -> Callable[[State], State]:  # noqa: ANN401 - fields of State
    return lambda state: replace(state, **values)


MECHANISMS: Mapping[str, Mechanism] = {
    "threads": Mechanism(("variable:OMP_NUM_THREADS",), _variable("OMP_NUM_THREADS", "4")),
    "copy": Mechanism((f"tree:{changes.ATTENTION}",), _patch(changes.ATTENTION, changes.SLOW_ATTENTION)),
    "kernel": Mechanism(("package:tiny-kernels",), _set(kernels=changes.SLOW_KERNELS_1_5)),
    "commit": Mechanism(("tree:commit",), _set(commit=changes.SLOW_COMMIT)),
    "transport": Mechanism(("variable:TCCL_TRANSPORT",), _variable("TCCL_TRANSPORT", "tcp")),
    "rebuild": Mechanism(("package:tiny-collective",), _set(collective=changes.SLOW_COLLECTIVE_REBUILT)),
    "backend": Mechanism(("flag:--attention-backend",), _flag("--attention-backend", "native")),
    "hook": Mechanism(("startup:sitecustomize",), _set(sitecustomize=changes.SLOW_SITECUSTOMIZE)),
}
"""Each is slow alone."""

PAIRS: tuple[tuple[str, str], ...] = (
    ("kernel", "rebuild"),
    ("copy", "commit"),
    ("commit", "rebuild"),
    ("copy", "rebuild"),
    ("kernel", "commit"),
    ("backend", "rebuild"),
)
"""Two that work on different parts of a pass, so that what they cost adds up."""

INTERACTIONS: Mapping[str, Mechanism] = {
    "check": Mechanism(
        (f"tree:{changes.COMMUNICATOR}", f"variable:{changes.GATE}"),
        lambda state: _variable(changes.GATE, "1")(_patch(changes.COMMUNICATOR, changes.GATED_COMMUNICATOR)(state)),
    ),
    "debug": Mechanism(
        (f"tree:{changes.TARGET_MODEL}", "flag:--log-level"),
        lambda state: _flag("--log-level", "debug")(_patch(changes.TARGET_MODEL, changes.GATED_MODEL)(state)),
    ),
}
"""A patch that waits for a setting: neither is slow without the other."""

_KINDS = {
    "single": "attributed",
    "two": "several",
    "interaction": "interaction",
    "phantom": "phantom",
    "none": "healed",
}


def culprits(scenario: str, seed: int) -> list[Mechanism]:
    """What does harm in this scenario; consecutive seeds go through all there is."""
    if scenario == "single":
        return [list(MECHANISMS.values())[seed % len(MECHANISMS)]]
    if scenario == "two":
        return [MECHANISMS[name] for name in PAIRS[seed % len(PAIRS)]]
    if scenario == "interaction":
        return [list(INTERACTIONS.values())[seed % len(INTERACTIONS)]]
    if scenario in SCENARIOS:
        return []
    raise UsageError(f"there is no scenario {scenario}: choose one of {', '.join(SCENARIOS)}")


class World:
    """The host of one scenario below `root`.

    `models` may name a folder of models that another world has made, to save the seconds that making them takes.
    """

    def __init__(self, root: Path, scenario: str, seed: int, models: Path | None = None) -> None:
        self.root = root.absolute()
        self.scenario = scenario
        self._culprits = culprits(scenario, seed)
        self.old = OLD
        self.new = HARMLESS
        for mechanism in self._culprits:
            self.new = mechanism.alter(self.new)
        self.state = self.old
        self._models = models
        self.python = self.root / "venv" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = self.root / "venv" / "lib" / version / "site-packages"
        self.serving = self.root / "serving"

    def truth(self) -> dict[str, object]:
        """The verdict that a perfect search would come to, and the factors to blame."""
        factors = sorted(factor for mechanism in self._culprits for factor in mechanism.factors)
        return {"kind": _KINDS[self.scenario], "culprits": factors}

    def differences(self) -> list[str]:
        """Ids of all factors in which the old and the new state differ."""
        old, new = self.old.factors(), self.new.factors()
        return sorted(factor for factor in old.keys() | new.keys() if old.get(factor) != new.get(factor))

    def build(self) -> None:
        """Make the host in its old state; `root` must be missing or empty."""
        if self.root.exists() and any(self.root.iterdir()):
            raise UsageError(f"{self.root} is not empty: name a folder that is, or one that does not exist")
        venv.EnvBuilder(symlinks=True).create(self.root / "venv")
        _share_distribution("numpy", self.site_packages)
        self._commit_history()
        self._install(changes.sampler(_sources("tiny_sampler")))
        self.apply(self.old)
        if self._models:
            shutil.copytree(self._models, self.root / "models", copy_function=_link)
        else:
            variables = self._variables() | {"OMP_NUM_THREADS": "2"}
            self._run(self.python, "-m", "tinyserve.make_model", self.root / "models", variables=variables)

    def change(self) -> None:
        """Bring the host to its new state, in place; a running server keeps what it has loaded."""
        self.apply(self.new)

    def launch(self, port: int = 30000) -> LaunchCommand:
        """The launch line of the present state."""
        models = self.root / "models"
        argv = [str(self.python), "-m", "tinyserve.launch_server"]
        argv += ["--model-path", str(models / "target"), "--tp", "2", "--host", "127.0.0.1", "--port", str(port)]
        argv += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(models / "draft")]
        argv += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--enable-metrics"]
        for name, value in self.state.flags.items():
            argv += [name, value]
        return LaunchCommand(tuple(argv), self.serving, self._variables())

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start a server in a session of its own and wait until it is ready.

        Raises LaunchError, with the end of its log, if it ends or is not ready within a minute.
        """
        command = self.launch(port)
        log = self.root / "server.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env=command.variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            _wait_ready(server, port, log)
        except BaseException:
            self.stop(server)
            raise
        return server

    def stop(self, server: subprocess.Popen[bytes]) -> None:
        """End a server that `start` began; by force if it does not obey."""
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    @contextmanager
    def neighbour(self, limit_s: float = 600.0) -> Iterator[list[int]]:
        """Another tenant on this machine: processes that keep the server's CPUs busy; yields their ids.

        They end with the context, with this process, and after `limit_s` seconds at the latest.
        """
        cpus = sorted(os.sched_getaffinity(0))[:2]  # where a server with two ranks runs
        burners = [subprocess.Popen([sys.executable, "-I", "-S", "-c", _BURN, str(cpu), str(limit_s)]) for cpu in cpus]
        try:
            yield [burner.pid for burner in burners]
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()

    def apply(self, state: State) -> None:
        """Bring the host to any state, in place."""
        before, self.state = self.state, state
        tree = _tree()
        if state.commit != before.commit:
            (self.serving / changes.ROTARY).write_text(changes.apply(state.commit, tree[changes.ROTARY]))
            self._git("commit", "-q", "-m", "Simplify the rotary embedding", "--", changes.ROTARY)
        for path in before.patches.keys() | state.patches.keys():
            (self.serving / path).write_text(changes.apply(state.patches.get(path, ()), tree[path]))
        self._install(changes.kernels(changes.patched(_sources("tiny_kernels"), state.kernels), state.kernels_version))
        self._install(changes.collective(changes.patched(_sources("tiny_collective"), state.collective)))
        for name in before.pth.keys() - state.pth.keys():
            (self.site_packages / name).unlink()
        for name, text in state.pth.items():
            (self.site_packages / name).write_text(text)
        site = self.root / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(state.sitecustomize)

    def _variables(self) -> dict[str, str]:
        search = os.pathsep.join((str(self.serving / "python"), str(self.root / "site")))
        return {
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": search,
            **self.state.variables,
        }

    def _commit_history(self) -> None:
        tree = _tree()
        later = {f"{changes.PACKAGE}/make_model.py": "Add a model maker", changes.README: "Say how to start it"}
        self.serving.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")
        for paths, message in (
            ([path for path in tree if path not in later], "Import tinyserve"),
            *(([path], message) for path, message in later.items()),
        ):
            for path in paths:
                (self.serving / path).parent.mkdir(parents=True, exist_ok=True)
                (self.serving / path).write_text(tree[path])
            self._git("add", "-A")
            self._git("commit", "-q", "-m", message)

    def _install(self, wheel: Wheel) -> None:
        install(wheel.build(self.root / "wheels"), self.site_packages)

    def _git(self, *arguments: str) -> None:
        self._run("git", *arguments, variables={"PATH": os.environ.get("PATH", os.defpath), **_GIT_IDENTITY})

    def _run(self, *argv: str | Path, variables: Mapping[str, str]) -> None:
        done = subprocess.run(argv, cwd=self.serving, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LaunchError(f"{' '.join(map(str, argv))} failed: {done.stderr.strip()[-2000:]}")


def _tree() -> dict[str, str]:
    """The text of every file of the serving tree by its path in the checkout."""
    tree = _HERE / "tree"
    files = {str(path.relative_to(tree)): path.read_text() for path in sorted(tree.rglob("*.py"))}
    return files | {changes.README: changes.README_TEXT, ".gitignore": "__pycache__/\n"}


def _sources(package: str) -> dict[str, str]:
    """The text of every file of a kernel package by its path below site-packages."""
    wheels = _HERE / "wheels"
    return {str(path.relative_to(wheels)): path.read_text() for path in sorted((wheels / package).glob("*.py"))}


def _share_distribution(name: str, site_packages: Path) -> None:
    """Put a distribution of the running interpreter into another environment, its files shared where possible."""
    for entry in metadata.files(name) or ():
        source = Path(str(entry.locate()))
        target = Path(os.path.normpath(site_packages / entry))
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:  # a RECORD may name a file twice
        return
    except OSError:  # another file system
        shutil.copy2(source, target)


def _wait_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise LaunchError(f"the server ended with exit code {server.returncode}: {_tail(log)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.02)
    raise LaunchError(f"the server was not ready within {_READY_SECONDS:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1000:].strip() or "it wrote nothing"
