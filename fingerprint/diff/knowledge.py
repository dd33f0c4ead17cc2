"""What is known of names: which part of a verify step each can touch, how strongly, and who says so.

Tables only; `fingerprint.diff.ranking` applies them. A weight is in log-odds: 2 makes a difference about seven times
likelier to be worth a trial, -2 seven times less. The first row of a table that matches a name counts. Weights are
judgement, written down where they can be argued with; sources are public reports, documentation, or measurements (two
H200 with NVLink, SGLang 0.5.14, NCCL 2.28.9, EAGLE3; one launch per row unless said otherwise).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

GRAPHS_OFF = "measured: 16-18 ms instead of 3.6 ms a cycle without CUDA graphs on one H200, SGLang 0.5.14"
NCCL_MOVES_VERIFY = (
    "measured on two H200: NCCL_PROTO=Simple +25 %, NCCL_P2P_DISABLE=1 +9 %, NCCL_PROTO=LL +2 % GPU verify time"
)
COLD_CACHE = "measured: emptied JIT caches made a start 106 s instead of 32 s and moved steady verify time by under 1 %"
CUSTOM_ALL_REDUCE = "measured on two H200: custom all-reduce 11 % less GPU verify time than NCCL"
JUDGEMENT = "general knowledge"


@dataclass(frozen=True)
class Known:
    """One row: names that match `pattern` as a whole, why they matter, how much, and the source.

    Attributes:
        pattern: a regular expression, in which white space and case do not count.
        topic: `all-reduce` marks what only matters with more than one rank; `nodes` what needs more than one node.
    """

    pattern: str
    weight: float
    text: str
    source: str = JUDGEMENT
    topic: str = ""

    @cached_property
    def names(self) -> re.Pattern[str]:
        """The pattern, compiled where it is first asked."""
        return re.compile(self.pattern, re.VERBOSE | re.IGNORECASE | re.DOTALL)


def first(table: tuple[Known, ...], name: str) -> Known | None:
    """The first row whose pattern matches the whole name."""
    return next((row for row in table if row.names.fullmatch(name)), None)


_ALL_REDUCE_PATH = "it decides how the all-reduce that every verify step waits for is carried out"

VARIABLES = (
    Known(r".*(TOKEN|PASSWORD|SECRET|API_?KEY|CREDENTIALS?)", -2.5, "a credential decides no kernel"),
    Known(r"NCCL_(DEBUG.*|RAS_.*|WORK_FIFO.*)", -0.7, "it is about NCCL's logs, not its transport"),
    Known(
        r"NCCL_(IB|NET|SOCKET|CROSS_NIC|OOB|COLLNET)_?.*",
        1.2,
        "it steers NCCL between nodes",
        "nccl#1676, podman-hpc#136",
        "nodes",
    ),
    Known(r"(NCCL|RCCL)_.*", 2.3, _ALL_REDUCE_PATH, NCCL_MOVES_VERIFY, "all-reduce"),
    Known(r"CUDA_LAUNCH_BLOCKING", 3.0, "every kernel launch waits for the one before", "CUDA programming guide"),
    Known(r"TRITON_INTERPRET", 3.0, "kernels run in Python", "Triton documentation"),
    Known(
        r"(OMP|MKL|OPENBLAS|KMP|NUMEXPR|VECLIB)_.*",
        1.6,
        "thread pools compete with the scheduler, worst under a CPU quota",
        "vllm#49013, ollama#17916",
    ),
    Known(r"LD_(PRELOAD|LIBRARY_PATH|AUDIT)", 1.9, "it decides which shared objects are loaded", "vllm#33041"),
    Known(r"(CUDA|NVIDIA|HIP|ROCR)_VISIBLE_DEVICES", 1.4, "other GPUs stand behind other links", "sglang#1137"),
    Known(r"CUDA_DEVICE_(MAX_CONNECTIONS|ORDER)", 1.0, "it changes how launches are queued, or which GPU is which"),
    Known(r"(TORCHDYNAMO_DISABLE|TORCH_COMPILE_DISABLE)", 1.6, "compiled code falls back to eager"),
    Known(
        r"PYTHON(DEVMODE|MALLOC|TRACEMALLOC|PROFILE.*|ASYNCIODEBUG|FAULTHANDLER|NODEBUGRANGES)",
        1.6,
        "it slows every Python step of the host path",
        "Python documentation",
    ),
    Known(r"PYTHON(PATH|HOME|SAFEPATH|NOUSERSITE)", 1.4, "it decides which code is imported", "Hyperloom#968"),
    Known(r"PYTHON.*", -0.8, "it seldom touches the speed of a running server"),
    Known(r"[A-Z]+_?(LOG|LOGGING|METRICS|TRACE|OTEL|STATS)_?.*", -0.4, "logging and metrics cost host time at most"),
    Known(
        r".*(CACHE|WORKSPACE)_?(DIR|BASE|PATH|HOME|ROOT).*|HF_HOME",
        -0.6,
        "it moves a cache: the first requests pay, steady verify time does not",
        COLD_CACHE,
    ),
    Known(
        r"(SGLANG|SGL|VLLM|TLLM|TRTLLM)_.*(ALL_?REDUCE|NCCL|SYMM_?MEM|P2P|PCIE_IPC).*",
        2.3,
        _ALL_REDUCE_PATH,
        CUSTOM_ALL_REDUCE,
        "all-reduce",
    ),
    Known(
        r"(SGLANG|SGL|VLLM)_.*(GRAPH|EAGER).*",
        2.4,
        "it decides whether a step is a recorded graph or separate launches",
        GRAPHS_OFF,
    ),
    Known(
        r"(SGLANG|SGL|VLLM)_.*(ATTN|ATTENTION|FLASHINFER|FA3|SPLITKV|KV_SPLITS|MLA).*",
        2.2,
        "it chooses the attention kernel of the verify step",
        "sglang#5630, vllm#39965",
    ),
    Known(
        r"(SGLANG|SGL|VLLM)_.*(SPEC|VERIFY|DRAFT|EAGLE|ACC_LEN).*",
        2.2,
        "it steers speculative decoding itself",
        "sglang#12411",
    ),
    Known(
        r"(SGLANG|SGL|VLLM)_.*(MOE|FP8|FP4|GEMM|QUANT|MARLIN).*",
        1.8,
        "it chooses the matrix kernels",
        "vllm#42096, sglang#32787",
    ),
    Known(
        r"(SGLANG|SGL|VLLM)_.*(NUMA|AFFINITY|OVERLAP|SCHED|ASYNC|CHECK|SANITY|DEBUG|ASSERT).*",
        1.5,
        "it changes the scheduler's own work in every step",
        "srt-slurm#332",
    ),
    Known(r"(SGLANG|SGL|VLLM|TLLM|TRTLLM|FLASHINFER|DG|CUTE_DSL)_.*", 0.9, "the engine or its kernels read it"),
    Known(r"(TRITON|TORCHINDUCTOR|TORCH|PYTORCH|CUBLAS|CUDNN|CUDA)_.*", 0.9, "the kernel libraries read it"),
    Known(r"(MALLOC_.*|GLIBC_TUNABLES)", 0.5, "it changes the host's allocator"),
    Known(
        r"(HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS|HUB)_.*",
        -1.0,
        "it is about loading models and tokenizers, before any verify step",
    ),
    Known(r"PATH", -0.2, "it decides which programs a JIT compiler finds"),
    Known(
        r"(VIRTUAL_ENV|CONDA|MAMBA|PYENV|UV|PIP|NVM|CARGO|GIT|HOMEBREW)_?.*",
        -1.5,
        "it steers tools that a running server does not use",
    ),
    Known(
        r"(LANG|LANGUAGE|LC_.*|TZ|HOME|USER|LOGNAME|SHELL|TMPDIR|MAIL|SLURM_.*|KUBERNETES_.*|.*_SERVICE_HOST)",
        -2.0,
        "it describes the session, not the server",
    ),
    Known(r"(UCX|NVSHMEM|GLOO|MASTER|DEEPEP)_.*", 0.6, "it steers communication between nodes", JUDGEMENT, "nodes"),
    Known(r".*", -0.7, "no library of the serving path is known to read it"),
)

FLAGS = (
    Known(
        r"--(enforce-eager|(disable|enable)-.*cuda-graph.*|cuda-graph-(backend|config).*)",
        2.6,
        "it decides whether a step is a recorded graph or separate launches",
        GRAPHS_OFF,
    ),
    Known(r"--cuda-graph-.*", 1.8, "batch sizes without a recorded graph are launched kernel by kernel", GRAPHS_OFF),
    Known(
        r"--(disable-custom-all-reduce|.*all-?reduce.*|enable-mscclpp|enable-.*symm-mem|enable-nccl-nvls|enable-p2p-check)",
        2.3,
        _ALL_REDUCE_PATH,
        CUSTOM_ALL_REDUCE,
        "all-reduce",
    ),
    Known(
        r"--(speculative|spec)-.*(path|model|revision|token-map)",
        2.4,
        "another draft accepts other tokens",
        "NeMo-RL#3960",
    ),
    Known(
        r"--(speculative|spec|num-speculative|eagle|enable-multi-layer-eagle).*",
        2.3,
        "it changes the shape of every verify step",
        "sglang#21272",
    ),
    Known(
        r"--.*(attention-backend|attn-backend|flashinfer-mla|attention-mode)",
        2.4,
        "it chooses the attention kernel of the verify step",
        "sglang#5630, sglang#4360",
    ),
    Known(
        r"--(model|model-path|revision|load-format|tokenizer-path)", 1.8, "it names other weights or another tokenizer"
    ),
    Known(
        r"--(tp|tp-size|tensor-parallel-size|pp-size|dp-size|ep-size|nnodes)", 2.4, "every step is split another way"
    ),
    Known(
        r"--(dtype|quantization|kv-cache-dtype|.*gemm.*|.*moe-.*|torchao-config)",
        2.0,
        "it chooses the matrix kernels or the width of their numbers",
        "sglang#32787",
    ),
    Known(r"--(enable|disable)-torch-compile.*|--compilation-config", 1.6, "it decides which kernels are fused"),
    Known(
        r"--(disable-overlap-schedule|num-continuous-decode-steps|async-scheduling|enable-two-batch-overlap|numa-node|gc-threshold|sleep-on-idle|stream-interval|.*-recv-.*)",
        1.6,
        "it changes the scheduler's own work in every step",
        "vllm#24799",
    ),
    Known(
        r"--(page-size|block-size|triton-attention-.*|sampling-backend|enable-deterministic-.*|device)",
        1.4,
        "kernels of the verify step take it as a parameter",
    ),
    Known(
        r"--(context-length|max-model-len|chunked-prefill-size|max-prefill-tokens|enable-mixed-chunk|schedule-policy)",
        0.5,
        "it shapes batches; one verify step alone does not see it",
    ),
    Known(
        r"--(max-running-requests|max-num-seqs|mem-fraction-static|gpu-memory-utilization|max-total-tokens|disable-radix-cache)",
        0.4,
        "it bounds how much runs at once",
    ),
    Known(r"--.*(lora|hicache|offload).*", 1.2, "weights or cache may come from elsewhere during a step"),
    Known(
        r"--.*(log|metric|trace|trust-remote|served-model|chat-template|parser|timeout|api-key|watchdog|warmup|grammar).*",
        -1.2,
        "it works outside the verify step",
    ),
    Known(r".*", 0.3, "the launch asks for something else"),
)

PACKAGES = (
    Known(
        r"sglang|vllm|tensorrt-llm|lmdeploy",
        2.0,
        "it is the engine: scheduler, graphs and kernel choice",
        "sglang#7070, vllm#53241",
    ),
    Known(r"(sgl|sglang)-(kernel|fa4|flash-.*|deep-gemm|router)", 2.0, "the engine's own kernels", "sglang#7070"),
    Known(
        r"flashinfer(-.*)?",
        2.3,
        "attention, sampling and all-reduce kernels of the verify step",
        "vllm#44808, flashinfer#3935",
    ),
    Known(r"(nvidia-)?(nccl|rccl)(-.*)?", 2.2, _ALL_REDUCE_PATH, "nccl#837, pytorch#127077, sglang#5980", "all-reduce"),
    Known(
        r"triton(-.*)?|pytorch-triton(-.*)?",
        2.2,
        "it compiles the kernels, and tuned configurations are looked up by its version",
        "vllm#4509, sglang#7070, sglang#20023",
    ),
    Known(r"torch|pytorch(-cuda)?", 1.8, "dispatch, graphs and the libraries that it pins", "pytorch#127077"),
    Known(r"(nvidia-|lib)cublas(-.*)?", 1.8, "the matrix kernels", "TensorRT-LLM#16623"),
    Known(r"(nvidia-)?cud(nn|nn-frontend)(-.*)?", 1.0, "some attention and normalisation kernels"),
    Known(
        r"nvidia-(nvshmem|nvjitlink|cuda-nvrtc|cuda-runtime|cuda-nvcc)(-.*)?", 0.6, "it compiles or launches kernels"
    ),
    Known(r"nvidia-(cutlass-dsl.*)", 1.6, "matrix and attention kernels are generated with it"),
    Known(r"nvidia-.*", -0.2, "a CUDA library off the verify path"),
    Known(
        r"flash-attn.*|fa3|xformers|(amd-)?aiter.*|kernels|quack-kernels|tilelang|deep-?gemm|deep-?ep|apache-tvm-ffi|mscclpp|cuda-python|cuda-bindings",
        1.7,
        "kernels of the serving path",
        "aiter#4050",
    ),
    Known(
        r"transformers",
        1.0,
        "model configuration and tokenisation: it has changed cache sizing and prompt length before",
        "sglang#25315, torch-xpu-ops#3368",
    ),
    Known(
        r"compressed-tensors|torchao|bitsandbytes|auto-?gptq|llm-?compressor",
        1.0,
        "it decides how quantised weights are run",
        "vllm#42096",
    ),
    Known(
        r"torchvision|torchaudio|torchcodec|pillow|decord.*|soundfile",
        -1.5,
        "it serves images and sound, not text decoding",
    ),
    Known(
        r"xgrammar|llguidance|outlines.*|lm-format-enforcer",
        -0.3,
        "only requests with structured output use it",
        "vllm#49013",
    ),
    Known(
        r"tokenizers|sentencepiece|tiktoken|safetensors|huggingface-hub|hf-.*",
        -0.4,
        "it works before and after a step, not in it",
    ),
    Known(
        r"numpy|numba|msgspec|orjson|pyzmq|uvloop|setproctitle|psutil|ray|cloudpickle|msgpack.*",
        0.0,
        "it is part of the host path between steps",
    ),
    Known(
        r"(pytest|ruff|black|mypy|isort|flake8|pre-commit|ipython|jupyter|notebook|matplotlib|pandas|datasets|pip|setuptools|wheel|uv|build|sphinx|tox|coverage).*",
        -2.2,
        "a tool that a running server does not import",
    ),
    Known(
        r"(fastapi|starlette|uvicorn|httpx?|aiohttp|requests|urllib3|pydantic|prometheus|opentelemetry|openai|anthropic|protobuf|grpcio).*",
        -1.2,
        "it serves HTTP around the steps",
    ),
    Known(r".*", -0.8, "it is not known to be on the verify path"),
)

PATHS = (
    Known(
        r"(.*/)?(docs?|documentation|tests?|test_[^/]*|benchmarks?|examples?|\.github|assets|docker|scripts/ci)(/.*)?|.*\.(md|rst|txt|png|svg|ipynb|yml)|(.*/)?(LICENSE|\.git[a-z]+|\.pre-commit.*)",
        -3.0,
        "no process of a server imports it",
    ),
    Known(r".*(speculative|eagle|spec_|draft|verify).*", 2.4, "speculative decoding itself"),
    Known(r".*(cuda_graph|graph_runner|graph_capture).*", 2.2, "recording and replaying the step's graph", GRAPHS_OFF),
    Known(
        r".*(all_?reduce|pynccl|parallel_state|communicat|/distributed/|nccl|symm_mem).*",
        2.3,
        _ALL_REDUCE_PATH,
        CUSTOM_ALL_REDUCE,
        "all-reduce",
    ),
    Known(
        r".*(attention|flashinfer|flash_attn|/attn|mla|triton_ops).*",
        2.2,
        "the attention of the verify step",
        "sglang#27382",
    ),
    Known(r".*(\.cu|\.cuh|\.cpp|csrc/.*|kernels?/.*)", 1.9, "kernel code"),
    Known(
        r".*configs?/.*\.(json|csv)|.*tuned.*\.(json|csv)",
        1.8,
        "a tuned kernel configuration",
        "aiter#4050, sglang#5716",
    ),
    Known(
        r".*(gemm|moe|quantization|layernorm|linear|rotary|sampler|logits).*",
        1.8,
        "a layer that every verify step runs",
        "sglang#32787",
    ),
    Known(r".*(model_runner|model_executor|worker|/models/|/layers/|forward_batch).*", 1.7, "it runs in every step"),
    Known(r".*(scheduler|schedule_|overlap|batch|mem_cache|memory_pool|radix).*", 1.4, "the host's work between steps"),
    Known(
        r".*(structured_output|grammar|constrained).*", 0.3, "only requests with structured output run it", "vllm#49013"
    ),
    Known(r".*(environ|server_args|arg_groups|config).*\.py", 1.0, "defaults are decided there"),
    Known(
        r".*(entrypoints|openai|http_server|api_server|tokenizer|detokenizer|tool_call|parser|function_call|reasoning).*",
        -0.6,
        "it works around the steps, not in them",
    ),
    Known(r".*\.(py|so|pyx|pyi)", 0.3, "code of the engine"),
    Known(r".*", -0.8, "not code that is known to run"),
)

PROCESSES = (
    Known(r"affinity", 1.6, "which cores the host path may use", "srt-slurm#332"),
    Known(
        r"thread_affinity",
        1.2,
        "which cores single threads of the ranks may use: pools, NCCL's, the driver's",
        "srt-slurm#326",
    ),
    Known(r"nice|policy|priority", 1.2, "whether the host path is preferred or pushed aside"),
    Known(r"executable|version", 0.8, "another Python runs the host path"),
    Known(r"cwd", -0.6, "where relative paths and shadowing modules are looked for"),
    Known(r"argv|title|role", -1.0, "what a process calls itself"),
    Known(r".*", 0.0, "a property of the running processes"),
)

ELSEWHERE = (
    Known(r"startup/plugins/.*", 1.9, "a plugin may replace functions of the engine", "sglang 0.5.23, entry points"),
    Known(r"startup/hidden/.*", 1.9, "another module is imported in the place of the installed one", "Hyperloom#968"),
    Known(r"startup/shadowed/.*", 1.0, "another startup file runs instead"),
    Known(r"startup/pyvenv/.*", -0.5, "how the environment was made"),
    Known(
        r".*/(uuid|serial|part_number|inforom|hostname|name|boot_id)|limits/container/id",
        -2.5,
        "it says which one it is",
    ),
    Known(
        r"gpu/(driver|kernel_module/.*)",
        1.7,
        "the driver launches kernels, moves memory between GPUs and sets clocks",
        "open-gpu-kernel-modules#1001, vllm#2057",
    ),
    Known(r"gpu/(nvml|cuda)", -0.3, "it comes with the driver"),
    Known(r"gpu/parameters/.*|host/module_parameters/nvidia.*", 1.2, "a parameter of the driver's kernel module"),
    Known(
        r"gpu/.*/power_(limit|enforced)_w",
        1.9,
        "a lower limit holds the clocks down under load",
        "club-3090#58, llm-rig#100",
    ),
    Known(r"gpu/.*/power_.*", 0.8, "the board has other power limits"),
    Known(r"gpu/.*/clocks_.*", 1.8, "kernels take longer at lower clocks", "club-3090#58, flashinfer#2899"),
    Known(r"gpu/confidential", 2.0, "what goes to and from the GPU is encrypted, or no more", "vllm#57680"),
    Known(r"gpu/.*/modes/.*", 1.6, "clocks are held, or the board is divided"),
    Known(r"gpu/.*/(mig|compute_mode|ecc)", 1.4, "how much of the GPU one server gets"),
    Known(r"gpu/.*/(vbios|gsp_firmware)", 1.0, "firmware decides clocks and links"),
    Known(
        r"gpu/.*/virtualization|host/virtualization",
        1.6,
        "virtualisation stands between the processes and the devices",
        "sglang#1137",
    ),
    Known(r"gpu/.*/persistence", -0.2, "it only decides how long the first call takes"),
    Known(
        r"gpu/.*/pcie_.*|topology/devices/.*/(width|width_max|speed_max_gts)",
        1.8,
        "launches and reductions between GPUs cross this link",
        "club-3090#873",
    ),
    Known(r"gpu/links/.*|gpu/.*/(nvlinks.*|fabric)", 1.9, "how GPUs reach each other", "nccl-tests#74", "all-reduce"),
    Known(r"gpu/gpus/.*", 1.0, "a property of the board"),
    Known(
        r"topology/devices/.*/(acs|iommu)",
        1.8,
        "traffic between GPUs may take the way through the root complex",
        "nccl#949, nccl#2079",
        "all-reduce",
    ),
    Known(
        r"topology/devices/.*/(above|node)|topology/nodes/.*",
        1.3,
        "what stands between a GPU, its CPU and the other GPUs",
        "srt-slurm#332",
    ),
    Known(
        r"topology/network/.*/mtu",
        1.0,
        "smaller packets between nodes cost more of them, and one side alone with large ones loses them",
        JUDGEMENT,
        "nodes",
    ),
    Known(r"topology/(infiniband|network)/.*", 0.8, "a link between nodes", JUDGEMENT, "nodes"),
    Known(r"topology/.*", 0.3, "a device, or a policy of its link"),
    Known(
        r"limits/(cpus|cgroup_levels/.*/cpu\.(max|cfs_quota_us))",
        2.0,
        "thread pools stop for the rest of the period when the quota is used up",
        "ollama#17916, vllm#49013",
    ),
    Known(r"limits/cgroup_levels/.*/cpu.*", 1.3, "which processors, and which share of them"),
    Known(r"limits/(shared_memory_bytes|limits/.*locked.*)", 1.1, "ranks exchange data through it", "vllm#1125"),
    Known(r"limits/(memory_bytes|cgroup_levels/.*/memory.*)", 0.4, "memory that is too little shows as reclaim"),
    Known(r"limits/privileges/.*", 0.5, "a missing privilege turns binding to processors off without a word"),
    Known(r"limits/container.*", -0.4, "another container is not another speed by itself"),
    Known(r"limits/.*", -0.5, "a limit that is seldom reached"),
    Known(
        r"host/sysctls/kernel\.numa_balancing",
        1.7,
        "pages are unmapped under the scheduler to see who uses them",
        "DeepEP#624",
    ),
    Known(r"host/sysctls/.*", -0.2, "a kernel setting"),
    Known(
        r"host/cpu/(governors|energy_preferences|frequency_driver|boost|no_turbo|max_khz|idle_.*|smt)",
        1.6,
        "launch overhead follows the speed of the cores",
        "tt-metal#5281, koboldcpp#318",
    ),
    Known(r"host/cpu/(isolated|nohz_full|online)", 1.2, "where and how undisturbed the host path runs"),
    Known(r"host/cpu/mitigations/.*", 0.5, "system calls cost more with a mitigation"),
    Known(r"host/cpu/.*", 0.9, "another processor, or its microcode"),
    Known(r"host/command_line", 1.3, "parameters of the kernel: IOMMU, isolation, mitigations", "nccl#2079"),
    Known(r"host/clocksource", 1.4, "a slow clock costs at every time stamp"),
    Known(r"host/preload", 1.9, "every process loads it"),
    Known(r"host/daemons", 0.7, "MPS, a profiler or the fabric manager takes part in what the GPUs do"),
    Known(r"host/library_directories", 0.9, "it decides which shared objects are loaded where no variable does"),
    Known(r"host/tuned_profile", 1.3, "a profile sets governor, sleep states and kernel settings together"),
    Known(r"host/page_merging", 0.6, "the kernel's search for equal pages takes time of a core"),
    Known(r"host/module(s|_versions/.*|_parameters/.*)", 0.4, "how GPUs and network cards reach each other's memory"),
    Known(
        r"host/numactl", 1.3, "an engine that binds ranks to NUMA nodes silently does not without it", "sglang#26983"
    ),
    Known(
        r"host/kernel.*", 0.9, "scheduling, interrupts and the PCI code of the host", "legacy-rocm-build#6358, nccl#837"
    ),
    Known(r"host/firmware/.*", 0.9, "it decides clocks, links and ACS"),
    Known(r"host/huge_pages/.*", 0.4, "memory of the host path"),
    Known(r"host/system/.*", -0.2, "the distribution's own name and number"),
    Known(r"caches/.*/choices/.*", 1.6, "a measured choice that later launches reuse", "vllm#41871"),
    Known(r"caches/.*/(filesystem|writable)", 0.4, "where compiled kernels can be kept"),
    Known(r"caches/compilers/.*", 0.2, "kernels that are compiled from now on come from it, those in a cache do not"),
    Known(r"caches/.*", -0.8, "the first requests pay for a cold cache, steady verify time does not", COLD_CACHE),
    Known(r"models/models/draft.*", 2.4, "another draft accepts other tokens", "NeMo-RL#3960"),
    Known(r"models/models/token\ map.*", 1.8, "the draft's vocabulary"),
    Known(r"models/models/adapter\ .*", 1.2, "only requests that ask for this adapter run it"),
    Known(r"models/.*", 2.0, "other weights, or another shape"),
    Known(r"nccl/(installed|pinned)/.*", -0.3, "what is installed; what is loaded counts"),
    Known(r"nccl/settings/DEBUG.*|nccl/settings/NCCL_DEBUG.*", -0.7, "it is about NCCL's logs, not its transport"),
    Known(
        r"nccl/.*",
        2.1,
        "NCCL goes by it, whatever the launch says",
        "aicad-nccl-optimization#1, deep-learning-containers#4756",
        "all-reduce",
    ),
    Known(
        r"log/facts/(graphs|verify\ graph)",
        2.5,
        "the server says whether a step is a recorded graph",
        GRAPHS_OFF,
    ),
    Known(r"log/facts/attention\ backend", 2.2, "the server says which attention kernel it chose", "sglang#5630"),
    Known(
        r"log/facts/(.*all-reduce.*)", 2.2, "the server says which all-reduce it uses", CUSTOM_ALL_REDUCE, "all-reduce"
    ),
    Known(r"log/facts/moe\ config", 1.8, "the server says that it has no tuned configuration", "sglang#7070"),
    Known(r"log/facts/max\ total\ tokens", -0.8, "it follows the memory that was free at the start"),
    Known(r"log/.*", 0.6, "the server says that it decided otherwise"),
    Known(r".*", -0.3, "nothing is known of it"),
)

BENIGN_STARTUP = re.compile(
    r"(distutils-precedence|__editable__.*|.*-nspkg|_virtualenv|easy-install|protobuf.*|google_.*)\.pth|_virtualenv"
)
"""Startup files that packaging tools write."""

WAITS = re.compile(
    r"\.(item|cpu|tolist|numpy)\(\)|synchronize\(|\bsleep\(|\.wait\(|barrier\(|\bprint\(|empty_cache\(|gc\.collect\("
)
"""Code that makes the host wait for the GPU, or for anything else."""

COLLECTIVES = re.compile(r"all_?reduce|all_?gather|broadcast|reduce_scatter|all_to_all", re.IGNORECASE)

GATES = re.compile(
    r"""(?:os\.environ(?:\.get)?[\[(]|getenv\(|get_(?:bool_|int_)?env_var\(|envs\.)\s*["']?(?P<name>[A-Z][A-Z0-9_]{2,})"""
)
"""Where code asks for a variable."""


ON_BY_DEFAULT = re.compile(r"""["']?\s*,\s*(default\s*=\s*)?["']?(true|1|on|yes)\b""", re.IGNORECASE)
"""What follows a variable's name in code that is on where the variable is unset."""


@dataclass(frozen=True)
class Unhonoured:
    """A variable that an engine stopped reading.

    Attributes:
        engine: distribution.
        name: variable.
        versions: the versions known not to read it.
        instead: what does the same now.
    """

    engine: str
    name: str
    versions: str
    instead: str
    source: str


_WHEELS = "SGLang's released wheels 0.5.5, 0.5.8, 0.5.10, 0.5.14 and 0.5.23: no file of the later ones names it"


def _dropped(name: str, since: str, instead: str) -> Unhonoured:
    """A variable of SGLang's; `since` is the first of the wheels looked at that does not read it."""
    return Unhonoured("sglang", name, f">={since}", instead, _WHEELS)


UNHONOURED = (
    Unhonoured("vllm", "VLLM_ATTENTION_BACKEND", ">=0.21", "--attention-backend", "vllm#50292, Hyperloom#462"),
    _dropped("SGLANG_ENABLE_SPEC_V2", "0.5.23", "--disable-overlap-schedule for the other choice"),
    _dropped("SGLANG_ENABLE_FLASHINFER_FP8_GEMM", "0.5.10", "--fp8-gemm-runner-backend"),
    _dropped("SGLANG_ENABLE_FLASHINFER_GEMM", "0.5.10", "--fp8-gemm-runner-backend"),
    _dropped("SGLANG_SUPPORT_CUTLASS_BLOCK_FP8", "0.5.10", "--fp8-gemm-runner-backend"),
    _dropped("SGLANG_FLASHINFER_FP4_GEMM_BACKEND", "0.5.10", "--fp4-gemm-runner-backend"),
    _dropped("SGLANG_CUTLASS_MOE", "0.5.23", "--moe-runner-backend cutlass"),
    _dropped("SGLANG_USE_JIT_ALL_REDUCE", "0.5.23", "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"),
    _dropped("SGLANG_MSCCLPP_MAX_BYTES", "0.5.14", "nothing that is known"),
    _dropped("SGLANG_NSA_FUSE_TOPK", "0.5.23", "SGLANG_DSA_FUSE_TOPK"),
    _dropped("SGLANG_EXPERIMENTAL_CPP_RADIX_TREE", "0.5.23", "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"),
    _dropped("SGLANG_USE_FUSED_METADATA_COPY", "0.5.23", "nothing that is known"),
    _dropped("SGLANG_USE_CUTEDSL_GDN_DECODE", "0.5.10", "nothing that is known"),
    Unhonoured(
        "sglang",
        "SGLANG_FLASHINFER_MNNVL_CUTEDSL_AR_FUSION",
        ">=0.5.23",
        "--flashinfer-allreduce-fusion-backend cutedsl",
        "sglang 0.5.23, srt/environ.py: listed as removed",
    ),
    Unhonoured(
        "sglang",
        "SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE",
        ">=0.5.23",
        "--enable-prefill-delayer",
        "sglang 0.5.23, srt/environ.py: listed as removed",
    ),
)
"""What is known without the host's own files; a capture also looks into those (`packages.unnamed`)."""
