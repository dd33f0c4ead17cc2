"""Public incidents as changes between two hosts.

`single` have one culprit that the report confirmed by an A/B; the others are there for what must not be claimed. A
reference is the public thread, with its owner where that is known. Decoys that a report names are part of the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from incident_builder import Step, World, digest


@dataclass(frozen=True)
class Incident:
    """One report.

    Attributes:
        reference: public thread.
        culprits: factor ids or keys, any of which counts as the culprit.
        kind: single, interaction, several, symptom, open, retracted; later for those that came after the tables.
        change: what the report says was different.
    """

    reference: str
    culprits: frozenset[str]
    kind: str
    change: Step


INCIDENTS: list[Incident] = []


def _incident(reference: str, *culprits: str, kind: str = "single") -> Callable[[Step], Step]:
    def register(change: Step) -> Step:
        INCIDENTS.append(Incident(reference, frozenset(culprits), kind, change))
        return change

    return register


# --------------------------------------------------------------------------------------------------------------------
# packages


@_incident("sgl-project/sglang#25315", "package:transformers")
def _kv_cache_sizing(old: World, new: World) -> None:
    old.installed["transformers"], new.installed["transformers"] = "5.5.4", "5.6.0"


@_incident("pytorch/pytorch#127077", "package:nvidia-nccl-cu12")
def _nccl_under_torch(old: World, new: World) -> None:
    old.installed |= {"torch": "2.1.0", "nvidia-nccl-cu12": "2.18.5"}
    new.installed |= {"torch": "2.3.0", "nvidia-nccl-cu12": "2.20.5"}


@_incident("NVIDIA/nccl#837", "package:nvidia-nccl-cu12")
def _nccl_step(old: World, new: World) -> None:
    old.installed["nvidia-nccl-cu12"], new.installed["nvidia-nccl-cu12"] = "2.10.3", "2.11.4"


@_incident("pytorch/pytorch#117748", "package:nvidia-nccl-cu12")
def _nccl_build(old: World, new: World) -> None:
    for host in (old, new):
        host.installed["nvidia-nccl-cu12"] = "2.19.3"
    old.builds["nvidia-nccl-cu12"] = "with the fix"


@_incident("vllm-project/vllm#4509", "package:triton")
def _triton_under_torch(old: World, new: World) -> None:
    old.installed |= {"torch": "2.2.2", "triton": "2.2.0"}
    new.installed |= {"torch": "2.3.0", "triton": "2.3.0"}


@_incident("sgl-project/sglang#20023", "package:triton")
def _triton_build(old: World, new: World) -> None:
    for host in (old, new):
        host.installed["triton"] = "3.4.0"
    new.builds["triton"] = "from the index"


@_incident("intel/torch-xpu-ops#3368", "package:transformers")
def _longer_prompts(old: World, new: World) -> None:
    old.installed["transformers"], new.installed["transformers"] = "4.55.4", "5.9.0"


@_incident("ROCm/aiter#4050", "package:amd-aiter")
def _tuned_rows(old: World, new: World) -> None:
    path = "aiter/configs/model_configs/a8w8_blockscale_tuned_fmoe_ds_v3.csv"
    for host, rows in ((old, "old rows"), (new, "new rows")):
        host.installed["amd-aiter"] = "0.1.10"
        host.builds["amd-aiter"] = rows
        host.files["amd-aiter"] = {path: digest(rows), "aiter/__init__.py": digest("same")}


@_incident("sgl-project/sglang#7339", "package:flashinfer-python")
def _flashinfer_became_jit(old: World, new: World) -> None:
    old.installed |= {"sglang": "0.4.6", "flashinfer-python": "0.2.5"}
    new.installed |= {"sglang": "0.4.7", "flashinfer-python": "0.2.6"}
    new.commit = "b" * 40


@_incident("vllm-project/vllm#44808", "package:flashinfer-python")
def _flashinfer_not_engine(old: World, new: World) -> None:
    old.installed |= {"vllm": "0.21.0", "flashinfer-python": "0.6.8.post1", "flashinfer-cubin": "0.6.8.post1"}
    new.installed |= {"vllm": "0.22.0", "flashinfer-python": "0.6.11", "flashinfer-cubin": "0.6.11"}


@_incident("flashinfer-ai/flashinfer#3935", "package:flashinfer-python")
def _flashinfer_alone(old: World, new: World) -> None:
    for host, version in ((old, "0.6.12"), (new, "0.6.13")):
        host.installed |= {"flashinfer-python": version, "flashinfer-cubin": version}


@_incident("NVIDIA/TensorRT-LLM#16623", "package:nvidia-cublas-cu12")
def _cublas_in_an_image_bump(old: World, new: World) -> None:
    old.installed |= {"nvidia-cublas-cu12": "13.4.0.1", "nvidia-cudnn-cu12": "9.21", "nvidia-nccl-cu12": "2.29.7"}
    new.installed |= {"nvidia-cublas-cu12": "13.4.1.2", "nvidia-cudnn-cu12": "9.22", "nvidia-nccl-cu12": "2.30.4"}


@_incident("sgl-project/sglang#5980", "package:nvidia-nccl-cu12")
def _nccl_forced_by_an_image(old: World, new: World) -> None:
    old.installed["nvidia-nccl-cu12"], new.installed["nvidia-nccl-cu12"] = "2.21.5", "2.26.2"
    old.installed["sglang"], new.installed["sglang"] = "0.4.6", "0.4.6.post1"


@_incident("sgl-project/sglang#7070", "package:triton")
def _no_tuned_configuration(old: World, new: World) -> None:
    old.installed |= {"sglang": "0.4.6", "torch": "2.6.0", "triton": "3.2.0"}
    new.installed |= {"sglang": "0.4.7", "torch": "2.7.1", "triton": "3.3.1"}
    new.log["moe config"] = ["Using default MoE kernel config. Performance might be sub-optimal!"]


@_incident("vllm-project/vllm#39965", "package:vllm")
def _backend_gated_by_a_new_default(old: World, new: World) -> None:
    for host, version, backend in ((old, "0.18.1", "FLASH_ATTN"), (new, "0.18.2", "TRITON_ATTN")):
        host.installed["vllm"] = version
        host.arguments["attention_backend"] = backend


# --------------------------------------------------------------------------------------------------------------------
# flags and variables


@_incident("flagos-ai/vllm-plugin-FL#396", "flag:--enforce-eager")
def _eager_from_a_readme(_old: World, new: World) -> None:
    new.flag("--enforce-eager")


@_incident("sgl-project/sglang#4360", "flag:--enable-flashinfer-mla")
def _no_mla_kernel(old: World, _new: World) -> None:
    old.flag("--enable-flashinfer-mla")


@_incident("sgl-project/sglang#5630", "flag:--attention-backend")
def _attention_backend(old: World, new: World) -> None:
    for host, backend in ((old, "flashinfer"), (new, "fa3")):
        host.flag("--attention-backend", backend)
        host.arguments["attention_backend"] = backend


@_incident("sgl-project/sglang#21272", "flag:--speculative-algorithm")
def _eagle_for_eagle3(old: World, new: World) -> None:
    new.flag("--speculative-algorithm", "EAGLE")
    old.accept_length, new.accept_length = 2.8, 1.0


@_incident("sgl-project/sglang#12411", "variable:SGLANG_ENABLE_SPEC_V2")
def _spec_v2(_old: World, new: World) -> None:
    new.launch["SGLANG_ENABLE_SPEC_V2"] = "1"


@_incident("NERSC/podman-hpc#136", "variable:NCCL_NET_GDR_LEVEL", "variable:CCL_NET_GDR_LEVEL")
def _misspelt(old: World, new: World) -> None:
    old.launch["NCCL_NET_GDR_LEVEL"] = "PHB"
    new.launch["CCL_NET_GDR_LEVEL"] = "PHB"


@_incident("one-click-llms#18", "variable:NCCL_P2P_DISABLE")
def _p2p_off_in_an_image(_old: World, new: World) -> None:
    new.launch["NCCL_P2P_DISABLE"] = "1"


@_incident("tokenspeed#1127", "server/variables/NCCL_CUMEM_ENABLE", "server/variables/NCCL_NVLS_ENABLE")
def _forced_by_the_engine(_old: World, new: World) -> None:
    new.late |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}


@_incident("DSpark#39", "server/variables/NCCL_IB_MERGE_NICS", "variable:NCCL_IB_MERGE_NICS")
def _never_delivered(old: World, _new: World) -> None:
    old.launch["NCCL_IB_MERGE_NICS"] = "1"


@_incident("vllm-project/vllm-ascend#6966", "process:affinity")
def _unbound(old: World, new: World) -> None:
    old.affinity, new.affinity = "0-15", "0-63"


# --------------------------------------------------------------------------------------------------------------------
# source and startup


@_incident("ROCm/vllm#351", "tree:commit")
def _wrapper_change(_old: World, new: World) -> None:
    new.commit = "b" * 40


@_incident("sgl-project/sglang#28224", "tree:commit")
def _source_bisect(_old: World, new: World) -> None:
    new.commit = "c" * 40


@_incident("sgl-project/sglang#32787", "tree:python/sglang/srt/layers/quantization/fp8_utils.py")
def _gemm_backend(_old: World, new: World) -> None:
    new.patch("python/sglang/srt/layers/quantization/fp8_utils.py", '        backend="auto",')
    new.patch("python/sglang/srt/managers/tokenizer_manager.py", "        self.count += 1")


@_incident("sgl-project/sglang#26171", "tree:python/sglang/srt/speculative/eagle_worker.py")
def _a_sync_in_the_draft(_old: World, new: World) -> None:
    new.patch("python/sglang/srt/speculative/eagle_worker.py", "        lens = seq_lens.cpu()")
    new.patch("python/sglang/srt/utils/common.py", "    return value")


@_incident("vllm-project/vllm#49013", "tree:python/vllm/v1/structured_output/utils.py")
def _threads_that_spin(_old: World, new: World) -> None:
    new.patch("python/vllm/v1/structured_output/utils.py", "    mask = torch.from_numpy(bits)")
    for name in ("worker/gpu_model_runner", "worker/gpu_input_batch", "core/sched/scheduler"):
        new.patch(f"python/vllm/v1/{name}.py", "        pinned = True")


@_incident("ovg-project/kvcached#328", "startup:kvcached_autopatch.pth")
def _hook_before_the_script(_old: World, new: World) -> None:
    new.startup["kvcached_autopatch.pth"] = "import kvcached_autopatch\n"


@_incident("EXL3#15", "startup:sitecustomize")
def _patches_at_every_start(_old: World, new: World) -> None:
    new.startup["sitecustomize.py"] = "import os\nif os.environ.get('EXL3_OVERLAY'):\n    import overlay\n"


# --------------------------------------------------------------------------------------------------------------------
# hardware and host


@_incident("noonghunna/club-3090#58", "gpu/gpus/0000:41:00.0/power_limit_w")
def _power_cap(old: World, new: World) -> None:
    for world, watts in ((old, 388.0), (new, 230.0)):
        world.gpu |= {"power_limit_w": watts, "power_enforced_w": watts, "power_default_w": 388.0}


@_incident("rammsguns/llm-rig#100", "gpu/gpus/0000:41:00.0/power_enforced_w")
def _cap_not_as_asked(_old: World, new: World) -> None:
    new.gpu["power_enforced_w"] = 100.0


@_incident("vllm-backport#97", "gpu/driver")
def _driver_and_p2p(old: World, new: World) -> None:
    old.driver, new.driver = "595.84", "595.91.07"


@_incident("NVIDIA/open-gpu-kernel-modules#1001", "gpu/driver")
def _driver(old: World, new: World) -> None:
    old.driver, new.driver = "570.195.03", "580.105.08"
    new.machine["kernel"] = "6.8.0-87-generic"


@_incident("noonghunna/club-3090#873", "topology/devices/0000:41:00.0/width", "gpu/gpus/0000:41:00.0/pcie_width")
def _half_the_lanes(_old: World, new: World) -> None:
    new.gpu["pcie_width"] = 8


@_incident("NVIDIA/nccl#949", "topology/devices/0000:40:01.1/acs")
def _acs(old: World, new: World) -> None:
    old.bridge["acs"], new.bridge["acs"] = ["SrcValid"], ["SrcValid", "ReqRedir", "CmpltRedir"]


@_incident("sgl-project/sglang#1137", "host/virtualization")
def _hypervisor(old: World, new: World) -> None:
    """Bare metal is faster although its link label reads worse: the label's order is no order of speed."""
    old.path, new.path = "SYS", "PHB"
    new.machine["virtualization"] = "kvm"


@_incident("deepseek-ai/DeepEP#624", "host/sysctls/kernel.numa_balancing")
def _numa_balancing(_old: World, new: World) -> None:
    new.sysctls["kernel.numa_balancing"] = "1"


@_incident("tenstorrent/tt-metal#5281", "host/cpu/governors")
def _governor(_old: World, new: World) -> None:
    new.governor = "ondemand"


@_incident("vllm-project/vllm#1125", "limits/shared_memory_bytes")
def _small_shared_memory(_old: World, new: World) -> None:
    new.shared_memory_bytes = 64 * 2**20


@_incident("aicad-nccl-optimization#1", "nccl/files/system", "nccl/settings/NCCL_IB_USE_INLINE")
def _left_in_an_image(_old: World, new: World) -> None:
    new.nccl_file = "NCCL_IB_USE_INLINE=1\n"


@_incident("deep-learning-containers#4756", "nccl/files/system", "nccl/settings/NCCL_SOCKET_IFNAME")
def _the_wrong_interface(_old: World, new: World) -> None:
    new.nccl_file = "NCCL_SOCKET_IFNAME=^docker0\n"


@_incident("NeMo-RL#3960", "models/models/draft")
def _draft_configuration(old: World, new: World) -> None:
    new.draft["config.json"] = "max_position_embeddings 2048"
    old.accept_length, new.accept_length = 3.1, 1.4


@_incident("ollama/ollama#17916", "limits/cgroup_levels/0/settings/cpu.max", "limits/cpus", kind="interaction")
def _quota(_old: World, new: World) -> None:
    new.cpu_max, new.cpus = "400000 100000", 4.0


@_incident("NVIDIA/nccl#1676", "package:nvidia-nccl-cu12", "host/kernel", kind="interaction")
def _peer_memory_module(old: World, new: World) -> None:
    old.installed["nvidia-nccl-cu12"] = "2.23.4"
    new.installed["nvidia-nccl-cu12"] = "2.22.3"
    new.machine["kernel"] = "6.14.0-33-generic"


@_incident("ggml-org/llama.cpp#26024", "tree:commit", kind="symptom")
def _clocks_are_a_symptom(_old: World, new: World) -> None:
    new.commit = "d" * 40
    new.gpu |= {"clocks_now_mhz": {"sm": 1890, "memory": 12481}, "performance_state": 2}


@_incident("vllm-project/vllm#2057", "gpu/driver", kind="open")
def _rollback_does_not_restore(old: World, new: World) -> None:
    old.driver, new.driver = "531.79", "546.01"


# --------------------------------------------------------------------------------------------------------------------
# not one culprit, or none that was confirmed


@_incident("vllm-project/vllm#50292", "package:vllm", kind="interaction")
def _no_longer_read(old: World, new: World) -> None:
    for host, version in ((old, "0.10.2"), (new, "0.26.0")):
        host.installed["vllm"] = version
        host.launch["VLLM_ATTENTION_BACKEND"] = "ROCM_AITER_FA"


@_incident("sgl-project/sglang#5716", "package:triton", "tree:python/sglang/configs/tuned.json", kind="interaction")
def _tuned_file_and_triton(old: World, new: World) -> None:
    old.installed["triton"], new.installed["triton"] = "3.1.0", "3.2.0"
    new.patch("python/sglang/configs/tuned.json", '  "BLOCK_SIZE_M": 64,')


@_incident(
    "vllm-project/vllm#42096",
    "package:flashinfer-python",
    "package:compressed-tensors",
    "variable:VLLM_USE_FLASHINFER_MOE_FP4",
    "variable:VLLM_USE_FLASHINFER_SAMPLER",
    kind="several",
)
def _many_small_shares(old: World, new: World) -> None:
    old.installed |= {"vllm": "0.18.0", "flashinfer-python": "0.6.7", "compressed-tensors": "0.15.0"}
    new.installed |= {"vllm": "0.19.0", "flashinfer-python": "0.6.6", "compressed-tensors": "0.14.0", "torch": "2.11.0"}
    for name in ("VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_SAMPLER"):
        old.launch[name], new.launch[name] = "1", "0"


@_incident("vllm-project/vllm#54677", "variable:VLLM_USE_BREAKABLE_CUDAGRAPH", kind="retracted")
def _set_long_ago(old: World, new: World) -> None:
    old.installed["vllm"], new.installed["vllm"] = "0.26.0", "0.28.0"
    new.launch["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "0"


@_incident("vllm-project/vllm#40838", "package:vllm", kind="open")
def _grows_with_concurrency(old: World, new: World) -> None:
    old.installed["vllm"], new.installed["vllm"] = "0.16.0", "0.17.0"


@_incident("vllm-project/vllm#39940", "package:vllm", kind="open")
def _half_the_gain(old: World, new: World) -> None:
    old.installed["vllm"], new.installed["vllm"] = "0.18.0", "0.19.0"


# --------------------------------------------------------------------------------------------------------------------
# looked up after the ranking's tables were written, and never used to change them


@_incident("vllm-project/vllm#9032", "package:transformers", kind="later")
def _guided_decoding(old: World, new: World) -> None:
    old.installed["transformers"], new.installed["transformers"] = "4.44.2", "4.45.1"


@_incident("sgl-project/sglang#32582", "tree:commit", kind="later")
def _found_by_halving(_old: World, new: World) -> None:
    new.commit = "e" * 40


@_incident("Tanguille/cluster#4879", "limits/cgroup_levels/0/settings/cpu.weight", kind="later")
def _too_small_a_share(_old: World, new: World) -> None:
    new.cpu_weight = "79"


@_incident("vllm-project/vllm#45741", "tree:python/vllm/_custom_ops.py", kind="later")
def _zeros_to_empty(_old: World, new: World) -> None:
    new.patch("python/vllm/_custom_ops.py", "        scale = torch.empty((m, n), dtype=torch.int32)")


@_incident("sgl-project/sglang#4642", "package:flashinfer-python", kind="later")
def _flashinfer_line(old: World, new: World) -> None:
    old.installed["flashinfer-python"], new.installed["flashinfer-python"] = "0.1.6", "0.2.3"


@_incident("intel/ipex-llm#12806", "gpu/driver", kind="later")
def _driver_with_a_variable(old: World, new: World) -> None:
    old.driver, new.driver = "32.0.101.6458", "32.0.101.6559"
    for world in (old, new):
        world.launch["SYCL_PI_LEVEL_ZERO_USE_IMMEDIATE_COMMANDLISTS"] = "1"


@_incident("NVIDIA/nccl-tests#115", "host/command_line", kind="later")
def _iommu(_old: World, new: World) -> None:
    new.machine["command_line"] = "ro quiet amd_iommu=on"


@_incident("tenstorrent/tt-xla#5401", "package:tt-mlir", kind="later")
def _compiler_uplift(old: World, new: World) -> None:
    old.installed["tt-mlir"], new.installed["tt-mlir"] = "0.1.0.dev70", "0.1.0.dev83"


# The ten below were looked up once more afterwards. Versions that a report does not name are made up and marked.


@_incident("vllm-project/vllm#4210", "package:vllm", kind="later")
def _named_change_of_a_release(old: World, new: World) -> None:
    old.installed["vllm"], new.installed["vllm"] = "0.4.0", "0.4.1"


@_incident("vllm-project/vllm#29660", "tree:commit", kind="later")
def _named_change_with_many_variables(old: World, new: World) -> None:
    for world in (old, new):
        world.launch |= {"NCCL_NVLS_ENABLE": "1", "VLLM_USE_NCCL_SYMM_MEM": "1", "VLLM_USE_FLASHINFER_MOE_FP4": "1"}
    new.commit = "f" * 40


@_incident("orcasound/orcahello#371", "variable:MKL_NUM_THREADS", kind="later")
def _threads_of_the_host_in_a_pod(old: World, _new: World) -> None:
    old.launch["MKL_NUM_THREADS"] = "1"


@_incident("vllm-project/vllm#17741", "package:torch", kind="later")
def _torch_itself(old: World, new: World) -> None:
    old.installed |= {"torch": "2.6.0+cu124", "triton": "3.2.0"}
    new.installed |= {"torch": "2.7.0+cu128", "triton": "3.3.0"}


@_incident("SemiAnalysisAI/InferenceX#854", "package:triton", kind="later")
def _triton_behind_torch(old: World, new: World) -> None:
    old.installed |= {"torch": "2.9.0", "triton": "3.5.0"}  # made up
    new.installed |= {"torch": "2.9.1", "triton": "3.5.1"}


@_incident("intel/torch-xpu-ops#4053", "package:triton-xpu", kind="later")
def _triton_of_another_vendor(old: World, new: World) -> None:
    old.installed |= {"torch": "2.12.0", "triton-xpu": "3.7.1"}
    new.installed |= {"torch": "2.13.0", "triton-xpu": "3.7.2"}


@_incident("sgl-project/sglang#24562", "package:triton", kind="later")
def _no_configuration_for_this_triton(old: World, new: World) -> None:
    old.installed |= {"torch": "2.9.1", "triton": "3.5.1"}
    new.installed |= {"torch": "2.11.0", "triton": "3.6.0"}


@_incident("scaleapi/llm-engine#851", "flag:--enforce-eager", kind="later")
def _eager_for_everybody(_old: World, new: World) -> None:
    new.flag("--enforce-eager")


@_incident("NVIDIA/TensorRT-LLM#18117", "process:affinity", kind="later")
def _workers_that_may_run_anywhere(old: World, new: World) -> None:
    old.affinity, new.affinity = "0-71", "0-143"  # made up


@_incident("NVIDIA/nccl#513", "package:nvidia-nccl-cu12", kind="later")
def _since_a_version_of_nccl(old: World, new: World) -> None:
    old.installed["nvidia-nccl-cu12"], new.installed["nvidia-nccl-cu12"] = "2.7.8", "2.8.4"
