"""A believable world to build incident pairs from: an SGLang server with two ranks on one host.

A pair starts as two equal hosts; an incident changes what its report says, and decoys change what changes between any
two days on a real host. Versions that a report does not give are synthetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from snapshots import (
    CgroupLevel,
    Cpu,
    Distribution,
    Gpu,
    GpuLink,
    Gpus,
    Host,
    Interpreter,
    KernelModule,
    Library,
    Limits,
    LocalFile,
    Log,
    Measured,
    Model,
    ModelFile,
    Models,
    Nccl,
    NcclFile,
    NumaNode,
    Packages,
    PciDevice,
    Process,
    Running,
    Server,
    Snapshot,
    Startup,
    StartupFile,
    Topology,
    Tree,
    Trees,
)

SITE = "/opt/venv/lib/python3.12/site-packages"
TREE = "/srv/sglang"

_INSTALLED = {
    "sglang": "0.5.10",
    "sglang-kernel": "0.4.1",
    "flashinfer-python": "0.6.7",
    "flashinfer-cubin": "0.6.7",
    "torch": "2.9.1",
    "torchvision": "0.24.1",
    "triton": "3.5.1",
    "nvidia-nccl-cu12": "2.27.5",
    "nvidia-cublas-cu12": "12.8.4.1",
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cuda-nvrtc-cu12": "12.8.93",
    "nvidia-cuda-runtime-cu12": "12.8.90",
    "nvidia-cufft-cu12": "11.3.3.83",
    "nvidia-curand-cu12": "10.3.9.90",
    "nvidia-nvtx-cu12": "12.8.90",
    "transformers": "5.5.4",
    "tokenizers": "0.22.1",
    "huggingface-hub": "1.2.0",
    "safetensors": "0.7.0",
    "xgrammar": "0.1.27",
    "compressed-tensors": "0.14.0",
    "numpy": "2.3.5",
    "msgspec": "0.20.0",
    "pyzmq": "27.1.0",
    "uvloop": "0.22.1",
    "orjson": "3.11.4",
    "setproctitle": "1.3.7",
    "psutil": "7.1.3",
    "fastapi": "0.121.2",
    "starlette": "0.49.3",
    "uvicorn": "0.38.0",
    "pydantic": "2.12.4",
    "prometheus-client": "0.23.1",
    "requests": "2.32.5",
    "aiohttp": "3.13.2",
    "pillow": "12.0.0",
    "pandas": "2.3.3",
    "ipython": "9.7.0",
    "pytest": "9.0.1",
    "wheel": "0.45.1",
}

_REQUIRES = {
    "sglang": [
        "sglang-kernel",
        "flashinfer-python",
        "flashinfer-cubin",
        "torch",
        "torchvision",
        "transformers",
        "xgrammar",
        "compressed-tensors",
        "numpy",
        "msgspec",
        "pyzmq",
        "uvloop",
        "orjson",
        "setproctitle",
        "psutil",
        "fastapi",
        "uvicorn",
        "prometheus-client",
        "requests",
        "aiohttp",
        "pillow",
        "pytest; extra == 'test'",
    ],
    "transformers": ["tokenizers", "huggingface-hub", "safetensors", "numpy"],
    "fastapi": ["starlette", "pydantic"],
}

_TORCH_PINS = ("triton", *(name for name in _INSTALLED if name.startswith("nvidia-")))

_LIBRARIES = {
    "nvidia/nccl/lib/libnccl.so.2": "nccl",
    "nvidia/cublas/lib/libcublasLt.so.12": "cublas",
    "nvidia/cudnn/lib/libcudnn.so.9": "cudnn",
    "torch/lib/libtorch_cuda.so": "torch",
    "sgl_kernel/common_ops.abi3.so": "kernel",
    "triton/_C/libtriton.so": "triton",
    "numpy/_core/_multiarray_umath.so": "numpy",
}

_VARIABLES = {
    "PATH": "/opt/venv/bin:/usr/bin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "NCCL_DEBUG": "WARN",
    "HF_HOME": "/models/hub",
    "SHLVL": "1",
}

_ARGV = [
    "/opt/venv/bin/python",
    "-m",
    "sglang.launch_server",
    *("--model-path", "/models/target", "--tp-size", "2", "--port", "30000"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/draft-eagle3"),
    *("--speculative-num-steps", "3", "--mem-fraction-static", "0.8", "--log-level", "info"),
]


@dataclass
class World:
    """One side of a pair, still to be changed."""

    installed: dict[str, str] = field(default_factory=lambda: dict(_INSTALLED))
    builds: dict[str, str] = field(default_factory=dict)
    """Package -> build mark, for other contents under one version."""
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    altered: dict[str, dict[str, str]] = field(default_factory=dict)
    launch: dict[str, str] = field(default_factory=lambda: dict(_VARIABLES))
    late: dict[str, str] = field(default_factory=dict)
    """Variables that only the ranks have, or have otherwise."""
    flags: list[str] = field(default_factory=lambda: list(_ARGV))
    arguments: dict[str, Any] = field(default_factory=lambda: {"attention_backend": "fa3", "tp_size": 2})
    startup: dict[str, str] = field(default_factory=lambda: {"distutils-precedence.pth": "import os; os.getpid()\n"})
    commit: str = "a" * 40
    patches: dict[str, str] = field(default_factory=dict)
    affinity: str = "0-63"
    accept_length: float | None = None
    gpu: dict[str, Any] = field(default_factory=dict)
    """Values of every GPU that are not the usual ones."""
    driver: str = "580.95.05"
    path: str = "PIX"
    """How the two GPUs reach each other."""
    bridge: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=lambda: {"kernel.numa_balancing": "0", "vm.swappiness": "10"})
    governor: str = "performance"
    cpu_max: str = "max 100000"
    cpu_weight: str = "100"
    cpus: float = 64.0
    shared_memory_bytes: int = 64 * 2**30
    nccl_file: str = ""
    draft: dict[str, str] = field(default_factory=lambda: {"config.json": "a", "model.safetensors": "b"})
    """Files of the draft model and what stands for their contents."""
    log: dict[str, list[str]] = field(default_factory=dict)

    def flag(self, name: str, *words: str) -> None:
        """Set a flag, or give it other words."""
        self.drop(name)
        self.flags += [name, *words]

    def drop(self, name: str) -> None:
        """Take a flag away."""
        if name in self.flags:
            at = self.flags.index(name)
            end = next((n for n in range(at + 1, len(self.flags)) if self.flags[n].startswith("--")), len(self.flags))
            del self.flags[at:end]

    def patch(self, path: str, *added: str) -> None:
        """A local change that adds lines to a file of the tree."""
        body = "".join(f"+{line}\n" for line in added)
        self.patches[path] = (
            f"--- a/{path}\n+++ b/{path}\n@@ -10,2 +10,{2 + len(added)} @@ def forward(self):\n a\n{body} b\n"
        )

    def build(self) -> Snapshot:
        """The snapshot."""
        sections: dict[str, Any] = {
            "packages": self._packages(),
            "server": self._server(),
            "startup": self._startup(),
            "trees": self._trees(),
            "gpu": self._gpus(),
            "topology": self._topology(),
            "host": self._host(),
            "limits": self._limits(),
            "nccl": self._nccl(),
            "models": self._models(),
            "log": Log(status="ok", facts=self.log, running=Running(graph="--disable-cuda-graph" not in self.flags)),
        }
        measured = None
        if self.accept_length is not None:
            measured = Measured(metric="verify_ms", value=20.0, source="timer", accept_length=self.accept_length)
        return Snapshot(
            tool="test",
            taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
            target="host",
            measured=measured,
            **sections,
        )

    def _packages(self) -> Packages:
        dists = {}
        for name, version in self.installed.items():
            requires = list(_REQUIRES.get(name, ()))
            if name == "torch":
                requires = [f"{pin}=={self.installed[pin]}" for pin in _TORCH_PINS if pin in self.installed]
            dists[name] = Distribution(
                version=version,
                location=SITE,
                installer="uv",
                requires=requires,
                record=digest(f"{name} {version} {self.builds.get(name, '')}"),
                contents=digest(f"{name} {version} {self.builds.get(name, '')} {self.altered.get(name, '')}"),
                altered=self.altered.get(name, {}),
                editable=name == "sglang",
            )
        interpreter = Interpreter(
            executable="/opt/venv/bin/python",
            version="3.12.8",
            prefix="/opt/venv",
            base_prefix="/usr",
            path=[SITE],
        )
        return Packages(status="ok", interpreter=interpreter, distributions=dists, files=self.files)

    def _server(self) -> Server:
        def process(role: str, number: int | None, variables: dict[str, str], argv: list[str]) -> Process:
            return Process.model_validate(
                {
                    "role": role,
                    "rank": number,
                    "pid": 100,
                    "parent": 1,
                    "title": role,
                    "argv": argv,
                    "executable": "/opt/venv/bin/python",
                    "cwd": "/srv",
                    "started": 0.0,
                    "at_exec": self.launch if role == "launcher" else {"unread": "a title was written over it"},
                    "variables": variables,
                    "libraries": self._libraries(),
                    "affinity": self.affinity,
                }
            )

        inside = {**self.launch, "CUDA_DEVICE_MAX_CONNECTIONS": "8", **self.late}
        processes = {"launcher": process("launcher", None, self.launch, self.flags)}
        for number in (0, 1):
            title = f"sglang::scheduler_TP{number}"
            processes[f"rank {number}"] = process("rank", number, inside, [title])
        return Server(status="ok", engine="sglang", processes=processes, arguments=self.arguments)

    def _libraries(self) -> dict[str, Library]:
        owners = {"nccl": "nvidia-nccl-cu12", "cublas": "nvidia-cublas-cu12", "cudnn": "nvidia-cudnn-cu12"}
        made = {}
        for path, short in _LIBRARIES.items():
            owner = {"kernel": "sglang-kernel", **owners}.get(short, short)
            if owner in self.installed:
                build = digest(f"{owner} {self.installed[owner]} {self.builds.get(owner, '')}")[:40]
                made[path] = Library(path=f"{SITE}/{path}", build_id=build)
        return made

    def _startup(self) -> Startup:
        files = {
            name: StartupFile(path=f"{SITE}/{name}", sha256=digest(text), text=text, runs_code="import" in text)
            for name, text in self.startup.items()
        }
        return Startup(status="ok", files=files)

    def _trees(self) -> Trees:
        files = {
            path: LocalFile(change="modified", sha256=digest(self.commit + patch), patch=patch)
            for path, patch in self.patches.items()
        }
        return Trees(status="ok", trees={TREE: Tree(commit=self.commit, imports=["python"], files=files)})

    def _gpus(self) -> Gpus:
        usual: dict[str, Any] = {
            "name": "NVIDIA RTX PRO 6000",
            "pci_id": "10de:2bb1",
            "vbios": "98.02.55.00.01",
            "clocks_max_mhz": {"sm": 2430, "memory": 12481},
            "clocks_now_mhz": {"sm": 2430, "memory": 12481},
            "power_limit_w": 600.0,
            "power_enforced_w": 600.0,
            "power_default_w": 600.0,
            "persistence": True,
            "mig": 0,
            "ecc": 1,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_generation_max": 5,
            "temperature_c": 46,
        }
        gpus = {
            address: Gpu.model_validate({"index": number, **usual, **self.gpu}) for number, address in enumerate(_GPUS)
        }
        return Gpus.model_validate(
            {
                "status": "ok",
                "driver": self.driver,
                "cuda": "13.0",
                "kernel_module": KernelModule(version=self.driver, open=True),
                "gpus": gpus,
                "links": {" ".join(_GPUS): GpuLink(path=self.path, p2p={"read": "ok", "write": "ok"})},
            }
        )

    def _topology(self) -> Topology:
        link: dict[str, Any] = {"width": self.gpu.get("pcie_width", 16), "width_max": 16, "speed_max_gts": 32.0}
        devices = {
            address: PciDevice.model_validate({"kind": "gpu", "pci_id": "10de:2bb1", "above": [_BRIDGE], **link})
            for address in _GPUS
        }
        usual: dict[str, Any] = {"kind": "bridge", "pci_id": "1022:1483", "acs": ["SrcValid"], **link}
        devices[_BRIDGE] = PciDevice.model_validate({**usual, "width": 16, **self.bridge})
        return Topology(status="ok", devices=devices, nodes={n: NumaNode(cpus=f"{n}-31") for n in ("0", "1")})

    def _host(self) -> Host:
        usual: dict[str, Any] = {
            "kernel": "6.8.0-85-generic",
            "machine": "x86_64",
            "command_line": "ro quiet iommu=pt",
            "virtualization": "none",
            "clocksource": "tsc",
            "numactl": True,
            "system": {"id": "ubuntu", "version_id": "24.04"},
            "firmware": {"bios_version": "1.4"},
        }
        cpu = Cpu(model="EPYC 9354", microcode="0xa101148", online="0-63", governors=[self.governor])
        return Host.model_validate({"status": "ok", "cpu": cpu, "sysctls": self.sysctls, **usual, **self.machine})

    def _nccl(self) -> Nccl:
        files = {"system": NcclFile(path="/etc/nccl.conf", text=self.nccl_file)} if self.nccl_file else {}
        lines = [line.partition("=") for line in self.nccl_file.splitlines()]
        settings = {name: value for name, _, value in lines}
        origins = dict.fromkeys(settings, "system")
        variables = {name: value for name, value in {**self.launch, **self.late}.items() if name.startswith("NCCL_")}
        version = self.installed["nvidia-nccl-cu12"]
        copies = {f"{SITE}/nvidia/nccl/lib/libnccl.so.2": f"{version}+cuda12.8"}
        return Nccl.model_validate(
            {
                "status": "ok",
                "settings": {**settings, **variables},
                "origins": {**origins, **dict.fromkeys(variables, "variable")},
                "files": files,
                "loaded": dict.fromkeys(("launcher", "rank 0", "rank 1"), copies),
                "installed": {"nvidia-nccl-cu12": version},
            }
        )

    def _models(self) -> Models:
        files = {name: ModelFile(size_bytes=100, sha256=digest(text)) for name, text in self.draft.items()}
        weights = {"model.safetensors": ModelFile(size_bytes=1000, header=digest("target"))}
        return Models.model_validate(
            {
                "status": "ok",
                "models": {
                    "target": Model.model_validate({"name": "/models/target", "files": weights}),
                    "draft": Model.model_validate({"name": "/models/draft-eagle3", "files": files}),
                },
            }
        )

    def _limits(self) -> Limits:
        level = CgroupLevel(path="/server", settings={"cpu.max": self.cpu_max, "cpu.weight": self.cpu_weight})
        return Limits(
            status="ok",
            limits={"open files": "1048576"},
            cgroup_levels={"0": level},
            cpus=self.cpus,
            shared_memory_bytes=self.shared_memory_bytes,
        )


_GPUS = ("0000:41:00.0", "0000:61:00.0")
_BRIDGE = "0000:40:01.1"


def digest(text: str) -> str:
    """64 hexadecimal digits that stand for a text."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


Step = Callable[[World, World], None]


def _bump(name: str, version: str) -> Step:
    def step(_old: World, new: World) -> None:
        new.installed[name] = version

    return step


def _set(name: str, value: str) -> Step:
    def step(_old: World, new: World) -> None:
        new.launch[name] = value

    return step


def _patched(path: str, *added: str) -> Step:
    def step(_old: World, new: World) -> None:
        new.patch(path, *added)

    return step


def _flagged(name: str, *words: str) -> Step:
    def step(_old: World, new: World) -> None:
        new.flag(name, *words)

    return step


def _machine(name: str, value: object) -> Step:
    def step(_old: World, new: World) -> None:
        new.machine[name] = value

    return step


def _sysctl(name: str, value: str) -> Step:
    def step(_old: World, new: World) -> None:
        new.sysctls[name] = value

    return step


def _board(name: str, *, value: object) -> Step:
    def step(_old: World, new: World) -> None:
        new.gpu[name] = value

    return step


COLD: dict[str, Step] = {
    "package:fastapi": _bump("fastapi", "0.122.0"),
    "package:uvicorn": _bump("uvicorn", "0.39.0"),
    "package:aiohttp": _bump("aiohttp", "3.13.3"),
    "package:prometheus-client": _bump("prometheus-client", "0.24.0"),
    "package:pillow": _bump("pillow", "12.1.0"),
    "package:pandas": _bump("pandas", "2.3.4"),
    "package:ipython": _bump("ipython", "9.8.0"),
    "package:pytest": _bump("pytest", "9.0.2"),
    "package:huggingface-hub": _bump("huggingface-hub", "1.3.0"),
    "package:orjson": _bump("orjson", "3.11.5"),
    "package:psutil": _bump("psutil", "7.2.0"),
    "variable:HF_TOKEN": _set("HF_TOKEN", "<secret:00000001:0123456789abcdef>"),
    "variable:TOKENIZERS_PARALLELISM": _set("TOKENIZERS_PARALLELISM", "false"),
    "variable:TRITON_CACHE_DIR": _set("TRITON_CACHE_DIR", "/scratch/triton"),
    "variable:DEPLOY_TAG": _set("DEPLOY_TAG", "tuesday"),
    "flag:--log-level": _flagged("--log-level", "warning"),
    "flag:--served-model-name": _flagged("--served-model-name", "prod"),
    "flag:--enable-metrics": _flagged("--enable-metrics"),
    "tree:docs/serving.md": _patched("docs/serving.md", "Start the server."),
    "tree:python/sglang/srt/entrypoints/openai/protocol.py": _patched(
        "python/sglang/srt/entrypoints/openai/protocol.py", "    user: str | None = None"
    ),
    "tree:test/test_serving.py": _patched("test/test_serving.py", "assert True"),
    "gpu:persistence": _board("persistence", value=False),
    "host:vm.swappiness": _sysctl("vm.swappiness", "60"),
    "host/system/version_id": _machine("system", {"id": "ubuntu", "version_id": "24.10"}),
}
"""What changes between any two days and is seldom looked at."""

WARM: dict[str, Step] = {
    "package:numpy": _bump("numpy", "2.3.6"),
    "package:transformers": _bump("transformers", "5.5.5"),
    "package:compressed-tensors": _bump("compressed-tensors", "0.15.0"),
    "package:xgrammar": _bump("xgrammar", "0.1.28"),
    "package:msgspec": _bump("msgspec", "0.21.0"),
    "package:flashinfer-cubin": _bump("flashinfer-cubin", "0.6.8"),
    "variable:NCCL_DEBUG": _set("NCCL_DEBUG", "INFO"),
    "variable:PYTORCH_CUDA_ALLOC_CONF": _set("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    "variable:OMP_NUM_THREADS": _set("OMP_NUM_THREADS", "8"),
    "variable:NCCL_IB_DISABLE": _set("NCCL_IB_DISABLE", "1"),
    "flag:--mem-fraction-static": _flagged("--mem-fraction-static", "0.85"),
    "flag:--chunked-prefill-size": _flagged("--chunked-prefill-size", "4096"),
    "flag:--max-running-requests": _flagged("--max-running-requests", "64"),
    "tree:python/sglang/srt/managers/scheduler.py": _patched(
        "python/sglang/srt/managers/scheduler.py", "        self.last_idle = now"
    ),
    "tree:python/sglang/srt/models/llama.py": _patched(
        "python/sglang/srt/models/llama.py",
        "        if get_bool_env_var('SGLANG_LLAMA_TRACE'):",
        "            trace(x)",
    ),
    "host/kernel": _machine("kernel", "6.8.0-86-generic"),
    "host/firmware/bios_version": _machine("firmware", {"bios_version": "1.5"}),
}
"""What somebody would suspect."""


def pair(change: Step, reference: str, culprits: frozenset[str], draw: int = 0) -> tuple[Snapshot, Snapshot]:
    """The two snapshots of an incident among nine decoys: six that are cold, three that are warm.

    The choice depends on the reference and the number of the draw alone. A decoy is never the culprit.
    """
    old, new = World(), World()
    chooser = random.Random(f"{reference} {draw}")
    for pool, number in ((COLD, 6), (WARM, 3)):
        usable = [name for name in sorted(pool) if name not in culprits]
        for name in chooser.sample(usable, number):
            pool[name](old, new)
    change(old, new)
    return old.build(), new.build()
