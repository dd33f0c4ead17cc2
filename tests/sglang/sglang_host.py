"""A host that serves with the real SGLang from a git tree, first as it was in spring, then as it became in autumn.

Everything that changes is below one folder:

    serving/    SGLang's installed package as the only commit of a work tree, from which it is imported
    extra/      two small packages of the operations team, and the platform that lets SGLang run on a processor
    startup/    sitecustomize, first on PYTHONPATH

The environment with everything else, and the models, are installed once (`installed`) and never written again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fingerprint.reference.wheel import Wheel, install
from probes.ports import free_port

HERE = Path(__file__).parent
READY_S = 300.0
SOURCE = "python/sglang/srt"
CULPRIT = f"{SOURCE}/models/llama.py"
ATTENTION = "        attn_output = self.attn(q, k, v, forward_batch)\n"
SLOW = (
    ATTENTION,
    f"""{ATTENTION}        if forward_batch.forward_mode.is_target_verify():
            for _ in range(2):  # settle the paged cache before its rows are compared
        {ATTENTION}""",
)
"""The culprit: the attention of every verify pass is computed three times, for nothing."""
HARMLESS = (
    "        gate_up, _ = self.gate_up_proj(x)\n",
    "        gate_up = self.gate_up_proj(x)[0]\n",
)
"""Another hunk of the same file."""
NOTE = "\n\n# Operations: reviewed for the {} release.\n"
GATED = """

if __import__("os").environ.get("OPERATIONS_TRACE_TOPK") == "1":
    import logging

    logging.getLogger(__name__).warning("top-k is traced")
"""
NOTED = (
    f"{SOURCE}/entrypoints/engine.py",
    f"{SOURCE}/distributed/device_communicators/pynccl.py",
    f"{SOURCE}/managers/scheduler.py",
    f"{SOURCE}/layers/attention/flashinfer_backend.py",
    f"{SOURCE}/models/llama_eagle3.py",
    f"{SOURCE}/layers/logits_processor.py",
)
TOPK = f"{SOURCE}/layers/moe/topk.py"


@dataclass(frozen=True)
class Release:
    """What the operations team starts: everything that differs between the two times."""

    name: str
    variables: Mapping[str, str]
    flags: Mapping[str, str]
    appended: Mapping[str, str] = field(default_factory=dict)
    """Text added to files of the tree."""
    edited: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Texts of files of the tree and what stands in their place."""
    startup: str = ""
    packages: tuple[Wheel, ...] = ()


def wheels(minor: int, build: str) -> tuple[Wheel, ...]:
    """Two small packages: one gets a new version, the other is built anew under the same one."""
    return (
        Wheel("ops-metrics", f"1.{minor}.0", {"ops_metrics/__init__.py": f"RELEASE = {minor}\n"}),
        Wheel("ops-tools", "2.0.0", {"ops_tools/__init__.py": f"BUILD = {build!r}\n"}),
    )


SPRING = Release(
    name="spring",
    variables={"NCCL_DEBUG": "WARN", "NCCL_BUFFSIZE": "4194304", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    flags={"--decode-log-interval": "40", "--watchdog-timeout": "300"},
    appended={f"{SOURCE}/managers/scheduler.py": NOTE.format("spring")},
    startup="OPERATIONS = 'spring'\n",
    packages=wheels(4, "a"),
)


def autumn(*, slow: bool) -> Release:
    """The same host half a year later, with the culprit or without."""
    return Release(
        name="autumn",
        variables={
            "NCCL_DEBUG": "VERSION", "NCCL_PROTO": "Simple", "NCCL_P2P_LEVEL": "PHB", "NCCL_IB_TIMEOUT": "22",
            "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        },
        flags={"--decode-log-interval": "200", "--watchdog-timeout": "600", "--schedule-conservativeness": "0.9"},
        appended={**dict.fromkeys(NOTED, NOTE.format("autumn")), TOPK: GATED},
        edited={CULPRIT: (SLOW, HARMLESS) if slow else (HARMLESS,)},
        startup="import sys\n\nOPERATIONS = 'autumn'\nsys.setswitchinterval(0.005)\n",
        packages=wheels(5, "b"),
    )  # fmt: skip


class Host:
    """The serving host; `installed` is the environment that `make test-sglang` keeps."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder = folder
        self.installed = installed
        self.tree = folder / "serving"
        self.extra = folder / "extra"
        self.startup = folder / "startup"

    @property
    def python(self) -> Path:
        return self.installed / "venv" / "bin" / "python"

    def build(self) -> None:
        """The git tree, with SGLang as it was installed for its only commit."""
        [package] = self.installed.glob("venv/lib/python3.*/site-packages/sglang")
        target = self.tree / "python" / "sglang"
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__", "multimodal_gen", "test"))
        (self.tree / ".gitignore").write_text("__pycache__/\n")
        who = ["-c", "user.name=operations", "-c", "user.email=operations@localhost"]
        for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "-m", "SGLang as installed"]):
            subprocess.run(["git", "-C", str(self.tree), *words], check=True)

    def become(self, release: Release) -> None:
        """Change the host in place."""
        subprocess.run(["git", "-C", str(self.tree), "checkout", "--quiet", "--", "."], check=True)
        for path, text in release.appended.items():
            with (self.tree / path).open("a") as file:
                file.write(text)
        for path, edits in release.edited.items():
            source = (self.tree / path).read_text()
            for find, replace in edits:
                if source.count(find) != 1:
                    raise ValueError(f"{path} of this SGLang has {find!r} {source.count(find)} times, not once")
                source = source.replace(find, replace)
            (self.tree / path).write_text(source)
        self.startup.mkdir(exist_ok=True)
        (self.startup / "sitecustomize.py").write_text(release.startup)
        shutil.rmtree(self.extra, ignore_errors=True)
        shutil.copytree(HERE / "platform", self.extra, ignore=shutil.ignore_patterns("__pycache__"))
        for wheel in release.packages:
            install(wheel.build(self.folder / "wheels"), self.extra)

    @contextlib.contextmanager
    def serving(self, release: Release) -> Iterator[int]:
        """The live server; gives its port. Nothing in its launch helps whoever reads it: titles wipe its ranks."""
        port = free_port()
        models = self.installed / "models"
        argv = [
            self.python, "-m", "sglang.launch_server", "--model-path", models / "target", "--host", "127.0.0.1",
            "--port", port, "--device", "cpu", "--dtype", "float32", "--attention-backend", "triton",
            "--grammar-backend", "none", "--max-total-tokens", "2048", "--max-running-requests", "2",
            "--skip-server-warmup", "--enable-metrics",
            "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", models / "draft",
            "--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3",
            *(word for flag in release.flags.items() for word in flag),
        ]  # fmt: skip
        variables = {
            name: os.environ[name] for name in ("PATH", "LANG", "USER", "LOGNAME", "TERM") if name in os.environ
        }
        variables |= {
            "HOME": str(self.folder), "SGLANG_PLATFORM": "interpreted_cpu", "TRITON_INTERPRET": "1",
            "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (self.startup, self.tree / "python", self.extra))),
            **release.variables,
        }  # fmt: skip
        log = self.folder / f"server-{release.name}-{port}.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                [*map(str, argv)], cwd=self.tree, env=variables, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        try:
            _await_ready(server, port, log)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _await_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ended = time.monotonic() + READY_S
    while time.monotonic() < ended:
        if server.poll() is not None:
            raise RuntimeError(f"the live server ended with {server.returncode}: {log.read_text()[-2000:]}")
        url = f"http://127.0.0.1:{port}/ready"
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"the live server was not ready within {READY_S:g} s: {log.read_text()[-2000:]}")
