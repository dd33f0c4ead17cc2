"""NCCL, caches, models and the log of a server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import caches, compilers, log, models, nccl, server
from probes.secrets import Keeper
from snapshots import Caches, Log, Model, Models, Nccl, Unread, identity_digest

Context = Callable[..., dict[str, Any]]


def serving(context: Context, *argv: str, cwd: Path | str = "/", pid: int = 0, **variables: str) -> dict[str, Any]:
    request = context()
    request["serving"] = {
        "pid": pid or os.getpid(), "argv": ["python3", "-m", "sglang.launch_server", *argv], "cwd": str(cwd),
        "in_rank": variables, "variables": variables, "processes": {"rank 0": pid or os.getpid()},
        "executable": sys.executable, "engine": "sglang", "version": "0.5.23",
    }  # fmt: skip
    return request


def test_a_file_acts_like_a_variable_and_no_file_overrides_one(context: Context, tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("NCCL_PROTO=LL\nNCCL_ALGO=Tree\n# NCCL_DEBUG=INFO\n\n")
    found = Nccl.model_validate(nccl.read(serving(context, HOME=str(tmp_path), NCCL_PROTO="Simple")))
    assert found.settings == {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
    assert found.origins == {"NCCL_ALGO": "user", "NCCL_PROTO": "variable"}
    assert found.files["user"].path == str(tmp_path / ".nccl.conf")


def test_the_user_s_file_is_stronger_than_the_system_s() -> None:
    files = {"user": "NCCL_A=user\n", "system": "NCCL_A=system\nNCCL_B=system\n"}
    assert nccl.effective({}, files) == (
        {"NCCL_A": "user", "NCCL_B": "system"}, {"NCCL_A": "user", "NCCL_B": "system"},
    )  # fmt: skip


@given(st.text())
def test_no_file_of_settings_breaks_the_reading(text: str) -> None:
    settings, origins = nccl.effective({"NCCL_A": "1"}, {"user": text})
    assert settings["NCCL_A"] == "1"
    assert settings.keys() == origins.keys()


def test_the_loaded_library_and_its_plugins_are_told_from_the_installed_one(
    context: Context, tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]], environment: Path
) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine: install gcc")
    place = tmp_path / "venv"
    shutil.copytree(environment, place, symlinks=True)
    site = next(place.glob("lib/python3.*/site-packages"))
    for name, requires in (
        ("nvidia_nccl_cu12-2.28.9", ""),
        ("torch-2.9.1", "Requires-Dist: nvidia-nccl-cu12 (==2.27.5)\n"),
    ):
        project, version = name.split("-")
        (site / f"{name}.dist-info").mkdir()
        (site / f"{name}.dist-info/METADATA").write_text(f"Name: {project}\nVersion: {version}\n{requires}\n")
    source = tmp_path / "nccl.c"
    source.write_text('const char version[] = "NCCL version 2.28.9+cuda13.0";\n')
    for name in ("libnccl.so.2", "libnccl-net.so"):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    libraries = [str(tmp_path / "libnccl.so.2"), str(tmp_path / "libnccl-net.so")]
    child = sleeper(f"import ctypes\nkeep = [ctypes.CDLL(path) for path in {libraries!r}]")
    request = serving(context, pid=child.pid, HOME=str(tmp_path))
    request["serving"]["argv"][0] = str(place / "bin/python")
    found = Nccl.model_validate(nccl.read(request))
    assert found.loaded == {"rank 0": {libraries[0]: "2.28.9+cuda13.0"}}
    assert found.plugins == {"libnccl-net.so": ["rank 0"]}
    assert found.installed == {"nvidia-nccl-cu12": "2.28.9"}
    assert found.pinned == {"nvidia-nccl-cu12": "2.27.5"}


def test_a_version_on_the_edge_of_a_chunk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_CHUNK", 64)
    for offset in range(40, 70):
        (tmp_path / "lib").write_bytes(b"x" * offset + b"NCCL version 2.27.5+cuda12.9\0" + b"y" * 100)
        assert nccl.version_in(str(tmp_path / "lib")) == "2.27.5+cuda12.9"
    (tmp_path / "lib").write_bytes(b"NCCL version of nothing" * 10)
    assert nccl.version_in(str(tmp_path / "lib")) is None


def test_caches_are_where_the_process_s_variables_say(tmp_path: Path) -> None:
    plain = caches.locations({"HOME": "/home/u", "USER": "u"}, 0)
    assert plain["triton"] == "/home/u/.triton/cache"
    assert plain["inductor"] == "/tmp/torchinductor_u"
    moved = caches.locations({"HOME": "/home/u", "SGLANG_CACHE_DIR": "/c", "TRITON_CACHE_DIR": "/c/triton"}, 0)
    assert (moved["triton"], moved["sglang"], moved["sglang jit"]) == ("/c/triton", "/c", "/c/jit")


def test_files_that_nccl_s_variables_name_are_told_by_digest_and_text(context: Context, tmp_path: Path) -> None:
    topology = tmp_path / "topo.xml"
    topology.write_text('<system version="1"/>\n')
    request = serving(
        context, NCCL_TOPO_FILE=str(topology), NCCL_GRAPH_FILE=str(tmp_path / "none.xml"), HOME=str(tmp_path)
    )
    found = Nccl.model_validate(nccl.read(request)).named_files
    assert found["NCCL_TOPO_FILE"].sha256 == hashlib.sha256(topology.read_bytes()).hexdigest()
    assert found["NCCL_TOPO_FILE"].text == '<system version="1"/>\n'
    assert isinstance(found["NCCL_GRAPH_FILE"].sha256, Unread)
    topology.write_text(" " * 20_000)
    assert Nccl.model_validate(nccl.read(request)).named_files["NCCL_TOPO_FILE"].text is None


def test_measured_choices_are_identity_and_compiled_code_is_state(context: Context, tmp_path: Path) -> None:
    place = tmp_path / ".cache/sglang"
    (place / "flashinfer/autotune").mkdir(parents=True)
    request = serving(context, HOME=str(tmp_path))
    digests = []
    for path, text in (
        ("kernel.so", "code"), ("other.so", "more code"), ("flashinfer/autotune/rank0.json", '{"tactic": 1}'),
        ("gpu_p2p_access_cache_for_0,1.json", '{"0->1": true}'),
    ):  # fmt: skip
        (place / path).write_text(text)
        found = Caches.model_validate(caches.read(request))
        digests.append(identity_digest(found))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    cache = found.caches["sglang"]
    assert isinstance(cache.choices, dict)
    assert set(cache.choices) == {"flashinfer/autotune/rank0.json", "gpu_p2p_access_cache_for_0,1.json"}
    assert cache.texts["flashinfer/autotune/rank0.json"] == '{"tactic": 1}'
    assert (cache.files, cache.writable) == (4, True)
    assert found.caches["triton"].exists is False


def test_a_cache_that_is_used_for_the_first_time_is_the_same_cache(context: Context, tmp_path: Path) -> None:
    request = serving(context, HOME=str(tmp_path))
    before = Caches.model_validate(caches.read(request))
    (tmp_path / ".triton/cache/abc").mkdir(parents=True)
    (tmp_path / ".triton/cache/abc/kernel.so").write_bytes(b"code")
    after = Caches.model_validate(caches.read(request))
    assert (before.caches["triton"].exists, after.caches["triton"].exists) == (False, True)
    assert identity_digest(before) == identity_digest(after)


def test_compilers_are_those_that_the_rank_s_variables_lead_to_and_scripts_are_not_run(tmp_path: Path) -> None:
    def program(name: str, code: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = tmp_path / "source.c"
        source.write_text(f"#include <stdio.h>\nint main(void) {{ {code} }}")
        subprocess.run(["gcc", "-o", path, source], check=True)
        return path

    nvcc = program("cuda/bin/nvcc", 'puts("nvcc: NVIDIA\\nCuda compilation tools, release 13.0, V13.0.88\\nBuild x");')
    program("bin/nvcc", 'puts("another");')
    broken = program("bin/clang-99", "return 3;")
    ninja = tmp_path / "bin/ninja"
    ninja.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    ninja.chmod(0o755)
    variables = {"CUDA_HOME": str(tmp_path / "cuda"), "PATH": f".:{tmp_path}/bin", "CC": "clang-99 -O2", "CXX": "'"}
    user = compilers.user_of([os.getpid()])
    assert user == (os.getuid(), os.getgid())
    found = compilers.read(variables, user, lambda _path: True)
    assert found["nvcc"]["path"] == str(nvcc)
    assert found["nvcc"]["version"] == "Cuda compilation tools, release 13.0, V13.0.88"
    assert found["cc"]["path"] == str(broken)
    assert "exit status 3" in found["cc"]["version"]["unread"]
    assert found["ninja"] == {"path": str(ninja), "version": None, "build_id": None}
    assert "c++" not in found
    assert not (tmp_path / "was-run").exists()
    unasked = compilers.read(variables, None, lambda _path: True)
    assert "several users" in unasked["nvcc"]["version"]["unread"]


def test_only_what_root_alone_can_have_put_there_is_run(tmp_path: Path) -> None:
    """A program that would leave a trace, in a place that others may write to; the system's own beside it."""
    source = tmp_path / "source.c"
    source.write_text(f'#include <stdio.h>\nint main(void) {{ fclose(fopen("{tmp_path}/was-run", "w")); puts("9"); }}')
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    home.chmod(0o777)
    for name in ("nvcc", "ccache"):
        subprocess.run(["gcc", "-Wl,--build-id", "-o", home / "bin" / name, source], check=True)
    (home / "bin/cc").symlink_to("ccache")
    (home / "version.json").write_text('{"cuda_nvcc": {"name": "CUDA NVCC", "version": "12.4.131"}}')
    user = compilers.user_of([os.getpid()])
    variables = {"CUDA_HOME": str(home), "CC": str(home / "bin/cc"), "PATH": "/usr/bin"}
    found = compilers.read(variables, user)
    assert found["nvcc"]["version"] == "Cuda compilation tools, release 12.4, V12.4.131"
    assert re.fullmatch("[0-9a-f]{40}", found["nvcc"]["build_id"])
    assert found["cc"]["version"] is None
    assert compilers.is_the_system_s("/usr/bin/gcc")
    assert "(" in found["c++"]["version"]  # `c++ (Debian 12.2.0-14) 12.2.0`
    assert compilers.read(variables, user, lambda path: path.endswith("/cc"))["cc"]["version"] is None  # keeps books
    assert not (tmp_path / "was-run").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_what_one_user_s_variables_lead_to_is_not_run_as_another(
    sleeper: Callable[..., subprocess.Popen[bytes]],
) -> None:
    child = sleeper("import os, ctypes; os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)")
    assert compilers.user_of([child.pid]) == (65534, 65534)
    assert compilers.user_of([child.pid, os.getpid()]) is None
    assert compilers.user_of([child.pid, 0]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not look")
def test_a_cache_that_may_not_be_looked_into_is_unread_and_not_empty(context: Context, tmp_path: Path) -> None:
    place = tmp_path / ".cache/sglang"
    place.mkdir(parents=True)
    (place / "gpu_p2p_access_cache_for_0,1.json").write_text("{}")
    place.chmod(0o700)
    request = serving(context, HOME=str(tmp_path))
    for above in tmp_path.parents:
        if above.stat().st_mode & 0o005 != 0o005 and above.is_relative_to("/tmp"):
            above.chmod(0o755)
    os.seteuid(65534)
    try:
        cache = Caches.model_validate(caches.read(request)).caches["sglang"]
    finally:
        os.seteuid(0)
    assert isinstance(cache.exists, Unread)
    assert isinstance(cache.choices, Unread)
    assert "Permission denied" in cache.choices.unread


def test_file_systems_are_told_by_the_longest_mount() -> None:
    text = (
        "21 1 0:5 / / rw - overlay overlay rw\n22 21 0:6 / /data rw shared:1 - nfs4 server:/x rw\n"
        "23 22 0:7 / /data/a\\040b rw - tmpfs tmpfs rw\n"
    )
    mounts = caches.mount_points(text)
    assert caches.file_system("/data/x", mounts) == "nfs4"
    assert caches.file_system("/data/a b/c", mounts) == "tmpfs"
    assert caches.file_system("/database", mounts) == "overlay"


def safetensors(path: Path, names: list[str]) -> None:
    header = json.dumps({name: {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]} for name in names}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0")


def test_models_are_told_by_configuration_headers_and_blobs(context: Context, tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    for place in (target, draft):
        place.mkdir()
        (place / "config.json").write_text('{"max_position_embeddings": 2048}')
        safetensors(place / "model.safetensors", [place.name])
    request = serving(
        context, "--model-path", "target", f"--speculative-draft-model-path={draft}", "--speculative-token-map",
        "none.pt", cwd=tmp_path,
    )  # fmt: skip
    found = Models.model_validate(models.read(request)).models
    one, other = found["target"], found["draft"]
    assert isinstance(one, Model)
    assert isinstance(other, Model)
    assert isinstance(found["token map"], Unread)
    first, second = one.files["model.safetensors"], other.files["model.safetensors"]
    assert not isinstance(first, Unread)
    assert not isinstance(second, Unread)
    assert first.header != second.header
    config = one.files["config.json"]
    assert not isinstance(config, Unread)
    assert config.sha256 == hashlib.sha256((target / "config.json").read_bytes()).hexdigest()
    assert config.text == '{"max_position_embeddings": 2048}'
    assert one.filesystem == other.filesystem
    assert one.filesystem
    (target / "config.json").write_text("[" + "1," * 10_000 + "1]")
    long = Models.model_validate(models.read(request)).models["target"]
    assert isinstance(long, Model)
    config = long.files["config.json"]
    assert not isinstance(config, Unread)
    assert (config.text, len(str(config.sha256))) == (None, 64)


def test_adapters_are_models_too(context: Context, tmp_path: Path) -> None:
    for name in ("sql", "law"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(f'{{"r": {len(name)}, "for": "{name}"}}')
    more = json.dumps({"lora_name": "law", "lora_path": str(tmp_path / "law")})
    request = serving(context, "--lora-paths", "sql=sql", more, "--port", "1", "--lora-paths=gone", cwd=tmp_path)
    found = Models.model_validate(models.read(request)).models
    assert list(found) == ["adapter sql", "adapter law", "adapter gone"]
    sql, law = found["adapter sql"], found["adapter law"]
    assert isinstance(sql, Model)
    assert isinstance(law, Model)
    assert isinstance(found["adapter gone"], Unread)
    config = law.files["adapter_config.json"]
    assert not isinstance(config, Unread)
    assert config.text == '{"r": 3, "for": "law"}'
    assert list(models.adapters(["--lora-paths", "{", "x", "-v", "y"])) == [("x", "x")]


@given(st.lists(st.text(max_size=20), max_size=6))
def test_no_command_line_breaks_the_list_of_adapters(words: list[str]) -> None:
    assert all(path for _, path in models.adapters(["--lora-paths", *words]))


def test_a_hub_name_is_found_in_the_process_s_own_cache(context: Context, tmp_path: Path) -> None:
    commit, blob = "a" * 40, "b" * 64
    place = tmp_path / "hub/models--org--name"
    (place / "refs").mkdir(parents=True)
    (place / "refs/main").write_text(commit)
    (place / "blobs").mkdir()
    safetensors(place / "blobs" / blob, ["w"])
    (place / "snapshots" / commit).mkdir(parents=True)
    (place / "snapshots" / commit / "model.safetensors").symlink_to(f"../../blobs/{blob}")
    request = serving(context, "--model-path", "org/name", HF_HUB_CACHE=str(tmp_path / "hub"))
    model = Models.model_validate(models.read(request)).models["target"]
    assert isinstance(model, Model)
    assert model.revision == commit
    file = model.files["model.safetensors"]
    assert not isinstance(file, Unread)
    assert file.blob == blob


def test_the_draft_has_a_revision_of_its_own_and_settings_files_are_heard(context: Context, tmp_path: Path) -> None:
    for commit, branch in (("a" * 40, "main"), ("c" * 40, "tuned")):
        place = tmp_path / "hub/models--org--name"
        (place / "snapshots" / commit).mkdir(parents=True)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / branch).write_text(commit)
    request = serving(
        context, "--config", "server.yaml", "--revision", "tuned", "--speculative-draft-model-path", "org/name",
        HF_HUB_CACHE=str(tmp_path / "hub"),
    )  # fmt: skip
    request["server"] = {"arguments": {"model_path": "org/name", "speculative_token_map": None}}
    found = Models.model_validate(models.read(request)).models
    revisions = {role: one.revision for role, one in found.items() if isinstance(one, Model)}
    assert revisions == {"target": "c" * 40, "draft": "a" * 40}


def test_a_file_of_a_model_that_is_gone_or_is_none_is_a_reason(context: Context, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../../blobs/" + "b" * 64)
    os.mkfifo(tmp_path / "config.json")
    (model,) = Models.model_validate(models.read(serving(context, "--model", str(tmp_path)))).models.values()
    assert isinstance(model, Model)
    reasons = {name: one.unread for name, one in model.files.items() if isinstance(one, Unread)}
    assert reasons["model.safetensors"].endswith("does not exist")
    assert reasons["config.json"].endswith("not a regular file")


@pytest.mark.parametrize("contents", [b"", b"\xff" * 8, struct.pack("<Q", 100) + b"short"])
def test_what_is_no_safetensors_file_is_a_reason(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(contents)
    found = models._file(str(tmp_path / "model.safetensors"), Keeper(b"k"))
    assert "safetensors" in found["header"]["unread"] or "cut off" in found["header"]["unread"]


LOG = """\
\x1b[1;33mwarning\x1b[0m
[2031-01-01 00:00:00] Attention backend not specified. Use fa3 backend by default.
[2031-01-01 00:00:01 TP0] sglang is using nccl==2.28.9
[2031-01-01 00:00:01 TP0] Custom allreduce is disabled because your platform lacks GPU P2P capability.
[2031-01-01 00:00:02 TP0] Capture target verify CUDA graph begin. backend=full, bs=[1, 2], avail mem=9 GB
[2031-01-01 00:00:03 TP0] Decode batch, #running-req: 1, accept len: 2.0, cuda graph: False, throughput (token/s): 12.33
[2031-01-01 00:00:04 TP0] Decode batch, #running-req: 1, accept len: 2.10, cuda graph: True, throughput (token/s): 94.00
"""


def test_the_log_tells_what_the_server_decided() -> None:
    facts, running = log.parse(LOG, "")
    assert facts["attention backend"] == ["fa3"]
    assert facts["nccl"] == ["2.28.9"]
    assert facts["custom all-reduce"] == [
        "Custom allreduce is disabled because your platform lacks GPU P2P capability."
    ]
    assert facts["verify graph"] == ["backend=full, bs=[1, 2]"]
    assert running == {"accept_length": 2.1, "graph": True, "tokens_per_second": 94.0}


@pytest.mark.parametrize(
    ("line", "name", "said"),
    [
        # 0.5.5
        ("Attention backend not explicitly specified. Use fa3 backend by default.", "attention backend", "fa3"),
        ("Use trtllm_mla as attention backend on sm100 for DeepseekV3ForCausalLM", "attention backend", "trtllm_mla"),
        ("Capture cuda graph bs [1, 2, 4]", "verify graph", "bs [1, 2, 4]"),
        ("Capture draft cuda graph begin. This can take up to several minutes. avail mem=1 GB", "draft graph", None),
        ("Enable FlashInfer AllReduce Fusion on sm100 for GptOssForCausalLM", "all-reduce fusion", None),
        ("Registering 130 cuda graph addresses", "graph addresses", "130"),
        ("Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal!", "kernel config", None),
        # 0.5.10
        ("Custom allreduce v2 initialized successfully", "custom all-reduce", None),
        ("CustomAllreduce is disabled because it's not supported on more than two", "custom all-reduce", None),
        ("User lacks permission to set NUMA affinity, skipping NUMA node configuration", "numa", None),
        # 0.5.14
        ("CustomAllReduceV2 is disabled because your platform lacks GPU P2P capability", "custom all-reduce", None),
        ("Registered 130 cuda graph addresses via FABRIC handles (3 unique) in 7 ms", "graph addresses", "130"),
        ("flashinfer.comm allreduce_fusion API is not available (No module), falling back", "all-reduce fusion", None),
        (
            "Capture draft extend CUDA graph begin. backend=full, num_tokens_per_bs=3, bs=[1], avail mem=9 GB",
            "draft graph",
            "extend CUDA graph begin. backend=full, num_tokens_per_bs=3, bs=[1]",
        ),
        # 0.5.23
        ("Auto-select fa3 attention backend for Step3p7 on Hopper.", "attention backend", "fa3"),
        ("Use triton as default attention backend for EmbeddingGemma2Model", "attention backend", "triton"),
        ("Overriding draft attention backend to fa3.", "draft attention backend", "fa3"),
        (
            "All Reduce config: symmetric_memory = 8.00 MB, local_buffer = 1.00 MB, multicast = True, pull = True",
            "custom all-reduce",
            "symmetric_memory = 8.00 MB, local_buffer = 1.00 MB, multicast = True, pull = True",
        ),
        ("[AR] All-reduce call path: NCCL (custom AR disabled)", "custom all-reduce", None),
        (
            "FlashInfer PCIe-IPC all-reduce serves bf16 only; torch.float16 reductions stay on NCCL.",
            "pcie all-reduce",
            None,
        ),
        ("Setup FlashInfer PCIe-IPC allreduce failed with no peer.", "pcie all-reduce", None),
        ("TorchSymmMemCommunicator: World size 3 not supported", "symmetric memory all-reduce", None),
        ("FlashInfer AllReduce fusion disabled: the 2 ranks of this group are not", "all-reduce fusion", None),
        ("Cuda graph is disabled because of using torch native attention backend", "graphs", None),
        ("Disable prefill CUDA graph for EAGLE target on tc_piecewise to avoid", "graphs", None),
        ("Disable target prefill CUDA graph because the target model does not", "graphs", None),
        ("Breakable CUDA graph is incompatible with --enable-x; disabling prefill", "graphs", None),
        ("numactl rejected memory binding (--membind=0); falling back to CPU-only binding", "numa", None),
        ("Config file not found at /c/E=8.json. Fallback to triton version 3.4.0 and use", "moe config", None),
    ],
)
def test_what_each_version_says_of_a_decision_is_known(line: str, name: str, said: str | None) -> None:
    facts, _running = log.parse(f"[2031-01-01 00:00:01 TP0] {line}\n", "")
    assert list(facts) == [name]
    [fact] = facts[name]
    assert fact == said if said is not None else fact in line


def test_numbers_and_ranks_that_change_from_launch_to_launch_do_not_change_a_fact() -> None:
    rows = [
        f"FlashInfer AllReduce Fusion enabled and workspace initialized: backend=trtllm, rank={rank}, world_size=2\n"
        f"Disable DFLASH draft cuda graph because only {3 + rank}.20 GB GPU memory is available\n"
        f"[AR] Using path {rank}\n"
        for rank in (0, 1)
    ]
    facts, _running = log.parse("".join(rows), "")
    assert facts == log.parse("".join(reversed(rows)), "")[0]
    assert [len(facts[name]) for name in ("all-reduce fusion", "graphs", "custom all-reduce")] == [1, 1, 2]


@pytest.mark.parametrize("version", ["0.5.5", "0.5.14", "0.5.10.post2", "0.5.23"])
def test_versions_whose_lines_were_looked_up_are_familiar(version: str) -> None:
    assert log.unfamiliar("sglang", version) is None


@pytest.mark.parametrize(
    "version", ["0.5.4.post1", "0.5.24.dev7+g0123", "1.0.0", "main", "", None, 5, {"unread": "no"}]
)
def test_another_version_says_that_its_log_may_say_otherwise(version: Any) -> None:  # noqa: ANN401 - what a server told
    said = log.unfamiliar("sglang", version)
    assert said is not None
    assert "known of SGLang 0.5.5 to 0.5.23" in said
    assert log.unfamiliar("tinyserve", version) is None


def test_the_log_is_found_behind_the_server_s_output(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    with path.open("a") as stream:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=stream, stderr=stream)
    try:
        found = Log.model_validate(log.read(serving(context, pid=child.pid)))
    finally:
        child.kill()
        child.communicate()
    assert found.path == str(path)
    assert found.running.graph is True
    assert found.reason is None
    assert "\x1b" not in repr(found)


def test_without_a_server_these_sections_are_absent(context: Context) -> None:
    for probe in (nccl, caches, models, log):
        assert probe.read(context())["status"] == "absent"


def test_a_live_server_s_rank_decides_for_all_of_them(running: Any, context: Context) -> None:  # noqa: ANN401
    request = context(pid=running.pid)
    server.read(request)
    found = Nccl.model_validate(nccl.read(request))
    assert found.settings["NCCL_CUMEM_ENABLE"] == "0"  # set by the launcher after its start, so only ranks show it
    assert found.settings["NCCL_PROTO"] == "Simple"
