"""A host that serves with the real SGLang from a git tree, first as it was in spring, then as it became in autumn.

Everything that changes is below one folder, as `fingerprint.reference.sglang_tree` has it; among the packages is also
the platform that lets SGLang run on a processor. The environment with everything else, and the models, are installed
once (`installed`) and never written again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fingerprint.reference.sglang_tree import NOTE, SOURCE, Edit, Release, ServedTree, await_ready, operations_packages
from probes.ports import free_port

HERE = Path(__file__).parent
READY_S = 300.0
CULPRIT = f"{SOURCE}/models/llama.py"
ATTENTION = "        attn_output = self.attn(q, k, v, forward_batch)\n"
SLOW = Edit(
    CULPRIT,
    ATTENTION,
    f"""{ATTENTION}        if forward_batch.forward_mode.is_target_verify():
            for _ in range(2):  # settle the paged cache before its rows are compared
        {ATTENTION}""",
)
"""The culprit: the attention of every verify pass is computed three times, for nothing."""
HARMLESS = Edit(
    CULPRIT,
    "        gate_up, _ = self.gate_up_proj(x)\n",
    "        gate_up = self.gate_up_proj(x)[0]\n",
)
"""Another hunk of the same file."""
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


SPRING = Release(
    variables={"NCCL_DEBUG": "WARN", "NCCL_BUFFSIZE": "4194304", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    flags={"--decode-log-interval": "40", "--watchdog-timeout": "300"},
    appended={f"{SOURCE}/managers/scheduler.py": NOTE.format("spring")},
    startup="OPERATIONS = 'spring'\n",
    packages=operations_packages(4, "a"),
)


def autumn(*, slow: bool) -> Release:
    """The same host half a year later, with the culprit or without."""
    return Release(
        variables={
            "NCCL_DEBUG": "VERSION", "NCCL_PROTO": "Simple", "NCCL_P2P_LEVEL": "PHB", "NCCL_IB_TIMEOUT": "22",
            "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        },
        flags={"--decode-log-interval": "200", "--watchdog-timeout": "600", "--schedule-conservativeness": "0.9"},
        appended={**dict.fromkeys(NOTED, NOTE.format("autumn")), TOPK: GATED},
        edits=(SLOW, HARMLESS) if slow else (HARMLESS,),
        startup="import sys\n\nOPERATIONS = 'autumn'\nsys.setswitchinterval(0.005)\n",
        packages=operations_packages(5, "b"),
    )  # fmt: skip


class Host:
    """The serving host; `installed` is the environment that `make test-sglang` keeps."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder = folder
        self.installed = installed
        self.served = ServedTree(folder)

    @property
    def python(self) -> Path:
        return self.installed / "venv" / "bin" / "python"

    def build(self) -> None:
        """The git tree, with SGLang as it was installed for its only commit."""
        [package] = self.installed.glob("venv/lib/python3.*/site-packages/sglang")
        self.served.build(package, without=("multimodal_gen", "test"))

    def become(self, release: Release) -> None:
        """Change the host in place."""
        self.served.become(release, beside=HERE / "platform")

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
            *release.words(),
        ]  # fmt: skip
        variables = {
            name: os.environ[name] for name in ("PATH", "LANG", "USER", "LOGNAME", "TERM") if name in os.environ
        }
        variables |= {
            "HOME": str(self.folder), "SGLANG_PLATFORM": "interpreted_cpu", "TRITON_INTERPRET": "1",
            "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1",
            "PYTHONPATH": self.served.search_path,
            **{name: text for name, text in release.variables.items() if text is not None},
        }  # fmt: skip
        log = self.folder / f"server-{port}.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                [*map(str, argv)], cwd=self.served.tree, env=variables, stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            await_ready(server, port, "/ready", READY_S, log)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
