"""Rules on one snapshot: what is known to go wrong and can be seen without a second side.

A rule is a function under a code (`FP101`); it yields findings and never guesses about what was not read. A finding is
a fact about the snapshot with what it may mean: no rule says that it made anything slow, for that is what a trial is
for. `docs/findings.md` has an entry for every rule, with the public incident that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fingerprint.diff import knowledge
from fingerprint.diff.knowledge import first
from fingerprint.launch import command_line
from fingerprint.misspelling import misspelling_of
from fingerprint.readings import ENGINES, cpu_list, mapped_paths, version
from fingerprint.ties import meets, place_of, requirement_of
from snapshots import Declared, Gpu, NvLinks, Process, Snapshot
from snapshots.launch import is_inert


@dataclass(frozen=True)
class Finding:
    """One fact that a person should know.

    Attributes:
        code: the rule, as `docs/findings.md` lists it.
        text: the fact and what it may mean, one or two sentences.
        key: where it stands in the snapshot, joined with `/`.
        advice: what to do, or how to see whether it matters.
        source: the public incident behind the rule.
    """

    code: str
    text: str
    key: str
    advice: str
    source: str


@dataclass(frozen=True)
class Rule:
    """A named rule.

    Attributes:
        code: `FP101`.
        name: what it looks for, in a few words.
        source: the public incident that it comes from.
        advice: what to do about its findings.
        look: yields (key, text) for each.
    """

    code: str
    name: str
    source: str
    advice: str
    look: Look


Look: TypeAlias = Callable[[Snapshot], Iterator[tuple[str, str]]]

RULES: dict[str, Rule] = {}

BUSY_PERCENT = 20
"""A GPU that works this much has its link at full speed where it can."""
SMALL_SHARED_MEMORY_BYTES = 64 * 2**20
"""What container engines give by default."""


def _rule(code: str, name: str, *, source: str, advice: str) -> Callable[[Look], Look]:
    def register(look: Look) -> Look:
        RULES[code] = Rule(code, name, source, advice, look)
        return look

    return register


def check(snapshot: Snapshot, codes: Collection[str] = RULES.keys()) -> list[Finding]:
    """What the rules find, in the order of their codes; `codes` are those that are asked."""
    return [
        Finding(code, text, key, RULES[code].advice, RULES[code].source)
        for code in sorted(codes)
        for key, text in RULES[code].look(snapshot)
    ]


def arrived(old: Snapshot, new: Snapshot) -> list[tuple[Finding, bool]]:
    """What the rules find on the new side and not on the old one; True where the old side was read there at all."""
    found = check(new)
    before = {(one.code, one.key) for one in check(old, {one.code for one in found})}
    unread = {name for name, section in old.sections().items() if section.status in {"failed", "absent"}}
    if old.measured is None:
        unread.add("measured")
    if old.method == "imported":
        unread.update(old.sections())
    return [(one, one.key.partition("/")[0] not in unread) for one in found if (one.code, one.key) not in before]


# --------------------------------------------------------------------------------------------------------------------
# What the launch says and what arrives: FP101 and following

_PER_RANK = re.compile(r"(LOCAL_|GROUP_|WORLD_)?RANK|.*VISIBLE_DEVICES|SGLANG_.*RANK.*|.*_(PORT|PID)|KMP_.*|.*GPU_ID.*")


def _ranks(snapshot: Snapshot) -> Iterator[tuple[str, Process, Mapping[str, str]]]:
    """Ranks whose variables could be read."""
    for role, process in snapshot.server.processes.items():
        if process.role == "rank" and isinstance(process.variables, dict):
            yield role, process, process.variables


def _launch(snapshot: Snapshot) -> Mapping[str, str]:
    """The launch's variables, as far as they can be read."""
    launcher = snapshot.server.processes.get("launcher")
    if launcher is None:
        return {}
    for variables in (launcher.at_exec, launcher.variables):
        if isinstance(variables, dict):
            return variables
    return {}


def _matters(name: str) -> bool:
    row = first(knowledge.VARIABLES, name)
    return not is_inert(name) and row is not None and row.weight > 0


@_rule(
    "FP101",
    "a variable of the launch that a rank lacks",
    source="vllm#15525, NeMo-RL#601",
    advice="set it where the ranks start, or find what removes it",
)
def _lost_variable(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    launch = _launch(snapshot)
    for role, _, variables in _ranks(snapshot):
        for name in sorted(launch.keys() - variables.keys()):
            if _matters(name):
                yield f"server/processes/{role}/variables/{name}", f"{role} lacks {name}, which the launch has."


@_rule(
    "FP102",
    "a variable that a rank has with another value than the launch",
    source="tokenspeed#1127",
    advice="the value in the rank is the one in effect; look for code or a startup file that sets it",
)
def _overwritten_variable(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    launch = _launch(snapshot)
    for role, _, variables in _ranks(snapshot):
        for name in sorted(launch.keys() & variables.keys()):
            if launch[name] != variables[name] and _matters(name) and not _PER_RANK.fullmatch(name):
                text = f"{role} has {name}={variables[name]} where the launch has {launch[name] or 'nothing'}."
                yield f"server/processes/{role}/variables/{name}", text


@_rule(
    "FP103",
    "ranks that disagree on a variable",
    source="vllm#15525, NeMo-RL#601",
    advice="start all ranks from one environment",
)
def _ranks_disagree(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    ranks = {role: variables for role, _, variables in _ranks(snapshot)}
    for name in sorted({name for variables in ranks.values() for name in variables}):
        values = {role: variables.get(name) for role, variables in ranks.items()}
        if len(set(values.values())) > 1 and not is_inert(name) and not _PER_RANK.fullmatch(name):
            shown = ", ".join(f"{role}: {'unset' if value is None else value}" for role, value in values.items())
            yield f"server/variables/{name}", f"{name} is not the same in all ranks ({shown})."


@_rule(
    "FP104",
    "a variable whose name is a letter away from one that is read",
    source="podman-hpc#136",
    advice="correct the name; nothing reads this one",
)
def _misspelt_variable(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name in sorted(_launch(snapshot)):
        wanted = misspelling_of(name)
        if wanted is not None:
            yield f"server/variables/{name}", f"{name} is set, and {wanted} is what its library reads."


@_rule(
    "FP105",
    "a variable that this version of the engine does not read",
    source="vllm#50292, Hyperloom#462",
    advice="use what replaces it",
)
def _unhonoured_variable(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    launch = _launch(snapshot)
    known_rows = {row.name for row in knowledge.UNHONOURED}
    unnamed = snapshot.packages.unnamed if isinstance(snapshot.packages.unnamed, dict) else {}
    for name, place in unnamed.items():
        if name not in known_rows:
            text = f"{name} is set, and no file below {place} names it: evidence that nothing reads it."
            yield f"server/variables/{name}", text
    for row in knowledge.UNHONOURED:
        dist = snapshot.packages.distributions.get(row.engine)
        known = version(dist.version if dist is not None and isinstance(dist.version, str) else None)
        if launch.get(row.name) and known is not None and SpecifierSet(row.versions).contains(known, prereleases=True):
            text = f"{row.name} is set, and {row.engine} {known} does not read it: {row.instead}."
            yield f"server/variables/{row.name}", text


_LEFT_ON = {
    "CUDA_LAUNCH_BLOCKING": "every kernel launch waits for the one before",
    "TRITON_INTERPRET": "Triton kernels run in Python",
    "TORCH_USE_CUDA_DSA": "kernels carry device-side assertions",
    "PYTHONDEVMODE": "Python checks itself at every step",
    "PYTHONTRACEMALLOC": "Python records every allocation",
    "PYTHONASYNCIODEBUG": "the event loop times every callback",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "launches are checked for exceptions",
    "NCCL_P2P_DISABLE": "NCCL may not let GPUs reach each other directly",
    "NCCL_SHM_DISABLE": "NCCL may not use shared memory between ranks",
}


@_rule(
    "FP106",
    "a variable for debugging, or for avoiding a crash, that was left on",
    source="one-click-llms#18, club-3090#291",
    advice="unset it unless the reason is known; `bisect` shows what it costs",
)
def _left_on(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    seen = [_launch(snapshot), *(variables for _, _, variables in _ranks(snapshot))]
    for name, meaning in _LEFT_ON.items():
        value = next((variables[name] for variables in seen if name in variables), "")
        if value not in {"", "0", "false", "False"}:
            yield f"server/variables/{name}", f"{name}={value} is set: {meaning}."


@_rule(
    "FP107",
    "a configuration file that NCCL reads",
    source="aicad-nccl-optimization#1, deep-learning-containers#4756",
    advice="read it as part of the launch; images bring such files along",
)
def _hidden_nccl_file(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for source, file in snapshot.nccl.files.items():
        text = file.text if isinstance(file.text, str) else ""
        names = [
            line.partition("=")[0].strip() for line in text.splitlines() if "=" in line and not line.startswith("#")
        ]
        if names:
            yield f"nccl/files/{source}", f"NCCL reads {file.path}, which sets {', '.join(names)}."


@_rule(
    "FP108",
    "a variable that what starts the server declares, and that the server has not",
    source="no single incident",
    advice="restart the service where it was edited since; else look at what its start command does with it",
)
def _lost_declaration(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    declared, launch = snapshot.server.declared, _launch(snapshot)
    if not isinstance(declared, Declared) or not launch:
        return
    for name, value in declared.variables.items():
        if isinstance(value, str) and launch.get(name) != value and _matters(name):
            has = f"has {name}={launch[name]}" if name in launch else f"lacks {name}"
            text = f"The launch {has}, and {declared.by} ({declared.name[:40]}) declares {value or 'it empty'}."
            yield f"server/declared/variables/{name}", text


# --------------------------------------------------------------------------------------------------------------------
# Packages and libraries: FP201 and following

_COMPANIONS = (("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"),)


@_rule(
    "FP201",
    "companion packages of different versions",
    source="flashinfer#2093",
    advice="install the same version of each; kernels of the wrong one are ignored and compiled again",
)
def _companions(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    dists = snapshot.packages.distributions
    for family in _COMPANIONS:
        found = {
            name: known for name in family if name in dists and (known := version(str(dists[name].version))) is not None
        }
        if len({known.public for known in found.values()}) > 1:
            shown = ", ".join(f"{name} {known}" for name, known in found.items())
            yield f"packages/distributions/{next(iter(found))}", f"Companions disagree: {shown}."


@_rule(
    "FP202",
    "a requirement of the engine that is not met",
    source="sglang#5980",
    advice="install what the engine asks for, or know why not",
)
def _unmet_requirement(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    dists, place = snapshot.packages.distributions, place_of(snapshot)
    for name in (*ENGINES, "torch", "flashinfer-python"):
        for text in dists[name].requires if name in dists else ():
            requirement = requirement_of(text, place)
            if requirement is None:
                continue
            wanted = canonicalize_name(requirement.name)
            if wanted in dists and not meets(dists[wanted], requirement):
                yield (
                    f"packages/distributions/{wanted}",
                    f"{name} requires {requirement.name}{requirement.specifier}; {dists[wanted].version} is installed.",
                )


@_rule(
    "FP203",
    "a file that is not what its wheel shipped",
    source="pip#1463",
    advice="compare it with the wheel, or reinstall the package",
)
def _altered(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, dist in snapshot.packages.distributions.items():
        if dist.altered and not dist.editable:
            paths = sorted(dist.altered)
            shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            yield (
                f"packages/distributions/{name}/altered",
                f"{name} {dist.version} is not what its wheel shipped: {shown}.",
            )


@_rule(
    "FP204",
    "a distribution that is installed twice",
    source="vllm#53241",
    advice="remove the copy that is not meant; the first on the path wins",
)
def _duplicates(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, places in snapshot.packages.duplicates.items():
        yield (
            f"packages/duplicates/{name}",
            f"{name} is installed {len(places)} times, the winner first: {', '.join(places)}.",
        )


@_rule(
    "FP205",
    "one library from two packages",
    source="vllm#53241",
    advice="look at which one the ranks have mapped, and remove the other",
)
def _two_flavours(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    flavours: dict[str, list[str]] = {}
    for name in snapshot.packages.distributions:
        flavour = re.fullmatch(r"(nvidia-.+)-cu\d+", name)
        if flavour is not None:
            flavours.setdefault(flavour[1], []).append(name)
    for stem, names in flavours.items():
        if len(names) > 1:
            shown = ", ".join(f"{name} {snapshot.packages.distributions[name].version}" for name in names)
            yield f"packages/distributions/{names[0]}", f"{stem} is installed for several CUDA versions: {shown}."


@_rule(
    "FP206",
    "an NCCL in use that is not the installed one",
    source="pytorch#78489, vllm#3974",
    advice="LD_PRELOAD, LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH brings another one in",
)
def _other_nccl(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    installed = [name for name in snapshot.packages.distributions if re.fullmatch(r"nvidia-nccl-cu\d+", name)]
    paths = sorted({path for path in mapped_paths(snapshot, "libnccl.so.2") if path})
    foreign = [path for path in paths if "nvidia/nccl/" not in path]
    if installed and foreign:
        yield "server/libraries/libnccl.so.2", f"The server has {foreign[0]} mapped, not the one of {installed[0]}."
    versions = {version.partition("+")[0] for copies in _loaded_nccl(snapshot) for version in copies}
    known = {name: text for name, text in snapshot.nccl.installed.items() if text not in versions}
    if versions and known and len(known) == len(snapshot.nccl.installed):
        shown = ", ".join(f"{name} {text}" for name, text in known.items())
        yield "nccl/loaded", f"The server runs NCCL {', '.join(sorted(versions))}; installed is {shown}."
    if len(paths) > 1:
        yield "server/libraries/libnccl.so.2", f"The server has {len(paths)} copies of NCCL mapped: {', '.join(paths)}."


def _loaded_nccl(snapshot: Snapshot) -> Iterator[list[str]]:
    """The versions of NCCL that each process has mapped, as far as they could be read."""
    for copies in snapshot.nccl.loaded.values():
        if isinstance(copies, dict):
            yield [text for text in copies.values() if isinstance(text, str)]


@_rule(
    "FP207",
    "a library that was replaced on disk after it was loaded",
    source="flashinfer#4490",
    advice="restart the server: it runs the old file, and a relaunch will run the new one",
)
def _replaced(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    gone: dict[str, list[str]] = {}
    for role, process in snapshot.server.processes.items():
        for key, library in process.libraries.items() if isinstance(process.libraries, dict) else ():
            if library.deleted:
                gone.setdefault(key, []).append(role)
    for key, roles in gone.items():
        yield (
            f"server/libraries/{PurePosixPath(key).name}",
            f"{key} was replaced after {', '.join(roles)} had loaded it.",
        )


_TUNED = re.compile(r".*/configs/triton_(\d+)_(\d+)_(\d+)/.+\.json")


@_rule(
    "FP208",
    "no tuned kernel configurations for this Triton",
    source="sglang#7070",
    advice="tune for it, or use the Triton that the engine was tuned with",
)
def _untuned(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    told = [(name, said) for name in ("moe config", "kernel config") if (said := snapshot.log.facts.get(name))]
    if told:
        for name, said in told:
            yield f"log/facts/{name}", f"The server's log says: {said[0]}"
        return
    dist = snapshot.packages.distributions.get("triton")
    running = version(str(dist.version)) if dist is not None else None
    if running is None:
        return
    files = [path for engine in ENGINES for path in snapshot.packages.files.get(engine, ())]
    tuned = {tuple(map(int, match.groups())) for path in files if (match := _TUNED.fullmatch(path))}
    if tuned and running.release[:3] not in tuned:
        shown = ", ".join(".".join(map(str, one)) for one in sorted(tuned))
        text = f"The engine has tuned configurations for Triton {shown}; {running} is installed."
        yield "packages/distributions/triton", text


@_rule(
    "FP209",
    "code that every Python process runs first",
    source="EXL3#15, kvcached#328",
    advice="read it: it can change anything before the server's first line",
)
def _startup_code(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, file in snapshot.startup.files.items():
        if file.runs_code and not knowledge.BENIGN_STARTUP.fullmatch(name):
            yield f"startup/files/{name}", f"{file.path} runs in every Python process of the server."


@_rule(
    "FP210",
    "an installed module that another one hides",
    source="Hyperloom#968",
    advice="start elsewhere, or take the directory off PYTHONPATH, unless the other module is meant",
)
def _hidden_modules(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, places in snapshot.startup.hidden.items():
        yield (
            f"startup/hidden/{name}",
            f"{name} is imported from {places[0] if places else 'elsewhere'}, not as installed.",
        )


@_rule(
    "FP211",
    "code that hooks into the engine",
    source="no single incident",
    advice="know what it replaces: it is loaded in the launcher and in every rank",
)
def _plugins(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, target in snapshot.startup.plugins.items():
        if not name.startswith("torch.backends "):  # those that torch brings itself
            yield f"startup/plugins/{name}", f"{name} runs {target} in the server."


_FAMILIES = (
    ("libcublas.so", "libcublasLt.so"),
    ("libcudnn.so", "libcudnn_graph.so"),
    ("libcudnn.so", "libcudnn_ops.so"),
)


@_rule(
    "FP212",
    "parts of one CUDA library from different places",
    source="pytorch#174320, vllm#1726, vllm#17650",
    advice="see LD_LIBRARY_PATH and what conda and pip each installed; let one of them provide all parts",
)
def _split_family(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for role, process in snapshot.server.processes.items():
        paths = {
            PurePosixPath(library.path or key).name.partition(".so")[0] + ".so": PurePosixPath(
                library.path or key
            ).parent
            for key, library in (process.libraries.items() if isinstance(process.libraries, dict) else ())
        }
        for one, other in _FAMILIES:
            if one in paths and other in paths and paths[one] != paths[other]:
                text = f"{role} has {one} from {paths[one]} and {other} from {paths[other]}."
                yield f"server/processes/{role}/libraries/{one}", text
    for name, package in snapshot.packages.conda.items():
        stem = name.removeprefix("lib")
        for dist, found in snapshot.packages.distributions.items():
            if re.fullmatch(rf"nvidia-{re.escape(stem)}-cu\d+", dist) and found.version != package.version:
                text = f"conda has {name} {package.version} and pip has {dist} {found.version} in one environment."
                yield f"packages/conda/{name}", text


# --------------------------------------------------------------------------------------------------------------------
# The launch: FP301 and following


def _argument(snapshot: Snapshot, *names: str) -> object:
    """The first resolved argument of these names, else the launch's flag (a switch is True); None without either."""
    arguments = snapshot.server.arguments
    if isinstance(arguments, dict):
        for name in names:
            if arguments.get(name) is not None:
                return arguments[name]
    line = command_line(snapshot.server.processes.get("launcher"))
    for name in names:
        words = line.flags.get("--" + name.replace("_", "-")) if line is not None else None
        if words is not None:
            return " ".join(words) or True
    return None


@_rule(
    "FP301",
    "CUDA graphs off",
    source="vllm-plugin-FL#396, vllm#54677",
    advice="remove the flag unless memory forces it; every kernel is launched by the host in turn",
)
def _graphs_off(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name in ("disable_cuda_graph", "disable_decode_cuda_graph", "enforce_eager"):
        if _argument(snapshot, name) is True:
            yield f"server/arguments/{name}", f"The server runs without CUDA graphs ({name})."
            return
    if snapshot.log.running.graph is False:
        yield "log/running/graph", "The last decode line of the log says that CUDA graphs are not used."
        return
    for name, value in sorted(_launch(snapshot).items()):
        if re.fullmatch(r"VLLM_USE_BREAKABLE_CUDAGRAPH|SGLANG_USE_BREAKABLE_CUDA_GRAPH", name) and value == "0":
            yield f"server/variables/{name}", f"{name}=0 turns CUDA graphs off or changes their kind."


@_rule(
    "FP302",
    "an EAGLE3 draft run as EAGLE",
    source="sglang#21272",
    advice="launch with --speculative-algorithm EAGLE3; the accept length is 1.0 otherwise, without an error",
)
def _eagle_for_eagle3(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    algorithm = _argument(snapshot, "speculative_algorithm")
    draft = _argument(snapshot, "speculative_draft_model_path", "speculative_draft_model")
    if algorithm == "EAGLE" and isinstance(draft, str) and re.search(r"eagle-?_?3", draft, re.IGNORECASE):
        text = f"The draft {draft} is an EAGLE3 one by its name, and the algorithm is EAGLE."
        yield "server/arguments/speculative_algorithm", text


@_rule(
    "FP303",
    "a draft that is never accepted",
    source="sglang#21272, sglang#24795",
    advice="check the algorithm, the draft's own configuration and its weights before anything else",
)
def _nothing_accepted(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    measured = snapshot.measured
    if measured is None or measured.accept_length is None or not _argument(snapshot, "speculative_algorithm"):
        return
    if measured.accept_length <= 1.01:
        text = f"The measured accept length is {measured.accept_length:.2f}: no draft token is ever accepted."
        yield "measured/accept_length", text


@_rule(
    "FP304",
    "custom all-reduce off between several ranks",
    source="club-3090#291, vllm#2971",
    advice="NCCL carries small reductions instead; `bisect` shows what that costs here",
)
def _custom_all_reduce_off(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    ranks = sum(process.role == "rank" for process in snapshot.server.processes.values())
    if ranks > 1 and _argument(snapshot, "disable_custom_all_reduce") is True:
        text = f"Custom all-reduce is disabled, and there are {ranks} ranks."
        yield "server/arguments/disable_custom_all_reduce", text


# --------------------------------------------------------------------------------------------------------------------
# The host and its devices: FP401 and following


def _gpus(snapshot: Snapshot) -> Iterator[tuple[str, Gpu]]:
    """GPUs that could be read, by PCI address."""
    for address, gpu in snapshot.gpu.gpus.items():
        if isinstance(gpu, Gpu):
            yield address, gpu


def _number(reading: object) -> float | None:
    return float(reading) if isinstance(reading, (int, float)) and not isinstance(reading, bool) else None


@_rule(
    "FP401",
    "a PCI link narrower than it could be",
    source="club-3090#873",
    advice="reseat the card or its riser, or look for lanes that the slot shares",
)
def _narrow_link(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        width, most = _number(gpu.pcie_width), _number(gpu.pcie_width_max)
        if width and most and width < most:
            yield f"gpu/gpus/{address}/pcie_width", f"The link of GPU {address} has {width:.0f} of {most:.0f} lanes."


@_rule(
    "FP402",
    "a PCI link at a lower generation while the GPU works",
    source="club-3090#873, PowerInfer#237",
    advice="an idle link slows down on purpose, a busy one should not: look at the slot, the riser and the firmware",
)
def _slow_link(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        now, most = _number(gpu.pcie_generation_now), _number(gpu.pcie_generation_max)
        busy = (_number(gpu.utilization) or 0) >= BUSY_PERCENT
        if busy and now and most and now < most:
            pace = f"generation {now:.0f} of {most:.0f}, with the GPU {gpu.utilization} % busy"
            text = f"The link of GPU {address} runs at {pace}."
            yield f"gpu/gpus/{address}/pcie_generation_now", text


@_rule(
    "FP403",
    "a bridge slower than the card below it",
    source="rtx6kpro#25",
    advice="move the card to a slot whose whole way to the processor is as fast as itself",
)
def _slow_bridge(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    topology = snapshot.topology
    for address, device in topology.devices.items():
        if device.kind != "gpu":
            continue
        limit = topology.limit(address)
        own = topology.model_copy(update={"devices": {address: device.model_copy(update={"above": []})}}).limit(address)
        if limit is not None and own is not None and limit.gigabytes_per_s < own.gigabytes_per_s:
            text = (
                f"GPU {address} could take {own.gigabytes_per_s} GB/s; the link of {limit.at} above it carries"
                f" {limit.gigabytes_per_s} GB/s."
            )
            yield f"topology/devices/{limit.at}", text


@_rule(
    "FP404",
    "a power limit below the board's default",
    source="club-3090#58, llm-rig#100",
    advice="`nvidia-smi -pl` sets it back; what is enforced can be lower than what was asked for",
)
def _power_limit(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        usual = _number(gpu.power_default_w)
        for field, words in (("power_enforced_w", "enforces"), ("power_limit_w", "is limited to")):
            limit = _number(getattr(gpu, field))
            if usual and limit is not None and limit < usual - 0.5:
                yield f"gpu/gpus/{address}/{field}", f"GPU {address} {words} {limit:g} W; its default is {usual:g} W."
                break


@_rule(
    "FP405",
    "clocks held down at the time of the snapshot",
    source="flashinfer#2899, ninfer-3090#72",
    advice="look at power, cooling and the power supply; measure again once the reason is gone",
)
def _held_clocks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        reasons = gpu.event_reasons if isinstance(gpu.event_reasons, list) else []
        holding = [reason for reason in reasons if re.search(r"thermal|brake|slowdown|power_cap", reason)]
        if holding:
            yield f"gpu/gpus/{address}/event_reasons", f"GPU {address} holds its clocks down: {', '.join(holding)}."


@_rule(
    "FP406",
    "another program on a GPU of the server",
    source="no single incident",
    advice="measure without it",
)
def _neighbours(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        others = [one for one in gpu.processes if one.foreign] if isinstance(gpu.processes, list) else []
        if others:
            shown = ", ".join(f"{one.name or 'an unseen process'} ({one.pid})" for one in others[:3])
            yield f"gpu/gpus/{address}/processes", f"GPU {address} is also used by {shown}."


@_rule(
    "FP407",
    "GPU traffic sent through the root complex",
    source="nccl#949, nccl#2079",
    advice="switch ACS redirection off on the bridges, where isolation does not need it",
)
def _redirected(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    devices = snapshot.topology.devices
    gpus = [device for device in devices.values() if device.kind == "gpu"]
    for address in sorted({bridge for gpu in gpus for bridge in gpu.above}) if len(gpus) > 1 else ():
        bridge = devices.get(address)
        if bridge is not None and bridge.redirects and not bridge.virtual:
            text = (
                f"Bridge {address} above a GPU redirects peer traffic (ACS): it does not go straight from GPU to GPU."
            )
            yield f"topology/devices/{address}/acs", text


@_rule(
    "FP408",
    "a GPU without the NVLinks that its neighbours have",
    source="vllm#16336",
    advice="look at `nvidia-smi nvlink -s` and the fabric manager; the all-reduce goes at the pace of that GPU",
)
def _off_nvlink(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    links = {address: gpu.nvlinks.active for address, gpu in _gpus(snapshot) if isinstance(gpu.nvlinks, NvLinks)}
    links.update({address: 0 for address, gpu in _gpus(snapshot) if gpu.nvlinks is None})
    most = max(links.values(), default=0)
    for address, active in links.items():
        if active < most and sum(other == most for other in links.values()) > len(links) / 2:
            yield f"gpu/gpus/{address}/nvlinks", f"GPU {address} has {active} active NVLinks; most have {most}."


@_rule(
    "FP409",
    "a power reading that cannot be",
    source="secureblue#2416",
    advice="do not go by this board's power figures: look at kernel, driver and firmware first",
)
def _impossible(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        drawn, limit = _number(gpu.power_now_w), _number(gpu.power_enforced_w) or _number(gpu.power_limit_w)
        if drawn is not None and limit is not None and drawn > 5 * limit > 0:
            text = f"GPU {address} is said to draw {drawn:g} W under a limit of {limit:g} W."
            yield f"gpu/gpus/{address}/power_now_w", text


@_rule(
    "FP411",
    "fewer processors allowed than threads started",
    source="ollama#17916, vllm#49013, sglang#32084",
    advice="set OMP_NUM_THREADS to what the quota allows, or raise the quota",
)
def _quota(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    allowed = snapshot.limits.cpus
    if allowed is None:
        return
    launch = _launch(snapshot)
    wanted = launch.get("OMP_NUM_THREADS", "")
    online = cpu_list(snapshot.host.cpu.online or "")
    if wanted.isdigit() and int(wanted) > allowed:
        yield "limits/cpus", f"OMP_NUM_THREADS is {wanted}, and {allowed:g} processors may be used at once."
    elif not wanted and launch and online and len(online) > allowed:
        seen = f"{allowed:g} processors may be used at once of {len(online)} that programs see"
        text = f"{seen}, and OMP_NUM_THREADS is unset."
        yield "limits/cpus", text


@_rule(
    "FP412",
    "a CPU quota that stops the server",
    source="ollama#17916",
    advice="raise the quota, or start fewer threads",
)
def _throttled(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    counts = snapshot.limits.throttling
    if isinstance(counts, dict):
        stopped, periods = counts.get("nr_throttled", 0), counts.get("nr_periods", 0)
        if periods and stopped / periods > 0.01:
            text = f"The CPU quota stopped the server in {stopped} of {periods} periods."
            yield "limits/throttling", text


@_rule(
    "FP413",
    "a governor that saves power",
    source="tt-metal#5281",
    advice="set the performance governor; with intel_pstate or amd-pstate look at the energy preference instead",
)
def _powersave(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    cpu = snapshot.host.cpu
    chosen_by_hardware = any(driver.startswith(("intel_pstate", "amd-pstate")) for driver in cpu.frequency_driver)
    saving = [governor for governor in cpu.governors if governor in {"powersave", "conservative", "ondemand"}]
    if saving and not chosen_by_hardware:
        yield "host/cpu/governors", f"Processors are under the governor {', '.join(saving)}."
    elif frugal := [word for word in cpu.energy_preferences if word in {"power", "balance_power"}]:
        yield "host/cpu/energy_preferences", f"Processors prefer saving energy ({', '.join(frugal)})."


@_rule(
    "FP414",
    "a small /dev/shm between several ranks",
    source="vllm#1125",
    advice="start the container with --ipc=host or a larger --shm-size",
)
def _small_shared_memory(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    size = _number(snapshot.limits.shared_memory_bytes)
    ranks = sum(process.role == "rank" for process in snapshot.server.processes.values())
    if ranks > 1 and size is not None and size <= SMALL_SHARED_MEMORY_BYTES:
        yield "limits/shared_memory_bytes", f"Shared memory has {size / 2**20:.0f} MiB for {ranks} ranks."


@_rule(
    "FP415",
    "automatic NUMA balancing",
    source="DeepEP#624",
    advice="`sysctl kernel.numa_balancing=0`",
)
def _numa_balancing(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    value = snapshot.host.sysctls.get("kernel.numa_balancing", "0")
    if value != "0" and len(snapshot.topology.nodes) > 1:
        text = f"kernel.numa_balancing is {value} on {len(snapshot.topology.nodes)} NUMA nodes."
        yield "host/sysctls/kernel.numa_balancing", text


@_rule(
    "FP416",
    "no numactl on a host with several NUMA nodes",
    source="sglang#26983",
    advice="install numactl: without it, binding ranks to nodes is skipped without an error",
)
def _no_numactl(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    if snapshot.host.numactl is False and len(snapshot.topology.nodes) > 1:
        yield "host/numactl", f"numactl is not installed, and there are {len(snapshot.topology.nodes)} NUMA nodes."


@_rule(
    "FP417",
    "a rank that may not run on the processors next to its GPU",
    source="srt-slurm#332",
    advice="bind it to the node of its GPU (`--numa-node`, numactl), or give the container processors of that node",
)
def _far_from_its_gpu(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    ranks = {one.pid: (role, one) for role, one in snapshot.server.processes.items() if one.role == "rank"}
    for address, gpu in _gpus(snapshot):
        device = snapshot.topology.devices.get(address)
        near = cpu_list(device.cpus or "") if device is not None else None
        for user in gpu.processes if isinstance(gpu.processes, list) else ():
            role, process = ranks.get(user.pid, ("", None))
            allowed = cpu_list(process.affinity) if process is not None and isinstance(process.affinity, str) else None
            if near and allowed and not near & allowed and device is not None and process is not None:
                text = (
                    f"{role} may run on processors {process.affinity}, and its GPU {address} is next to {device.cpus}."
                )
                yield f"server/processes/{role}/affinity", text


@_rule(
    "FP420",
    "threads of a bound rank that are not bound with it",
    source="srt-slurm#326",
    advice="bind the rank before it starts (numactl, taskset): binding it later moves its first thread alone",
)
def _threads_left_behind(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for role, process in snapshot.server.processes.items():
        own = cpu_list(process.affinity) if isinstance(process.affinity, str) else None
        for cpus in process.thread_affinity if isinstance(process.thread_affinity, list) else ():
            wider = cpu_list(cpus)
            if own and wider and wider > own:
                count = sum(process.thread_names.get(cpus, {}).values())
                text = (
                    f"{role} is bound to processors {process.affinity}, and {count} of its threads may run on {cpus}."
                )
                yield f"server/processes/{role}/thread_affinity", text


@_rule(
    "FP418",
    "a port between nodes that is slower than the others",
    source="no single incident",
    advice="look at its cable, its switch port and the MTU of its interface; collectives go at the pace of the slowest",
)
def _unlike_ports(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    topology = snapshot.topology
    network = topology.network if isinstance(topology.network, dict) else {}
    active = {name: port for name, port in topology.infiniband.items() if "ACTIVE" in (port.state or "")}
    of: dict[str | None, list[str]] = {}
    for name, port in active.items():
        of.setdefault(port.link_layer, []).append(name)
    for names in of.values():
        rates = {name: _leading_number(active[name].rate) for name in names}
        mtus = {
            name: min((network[one].mtu for one in active[name].interfaces if one in network), default=None)
            for name in names
        }
        for what, values, unit in (("a rate", rates, " Gb/s"), ("an MTU", mtus, "")):
            most = max((value for value in values.values() if value is not None), default=0)
            for name, value in values.items():
                if value is not None and value < most and sum(one == most for one in values.values()) > len(values) / 2:
                    text = f"{name} has {what} of {value:g}{unit}; most ports have {most:g}{unit}."
                    yield f"topology/infiniband/{name}", text


def _leading_number(text: str | None) -> float | None:
    match = re.match(r"[\d.]+", text or "")
    return float(match[0]) if match else None


@_rule(
    "FP419",
    "memory that is taken back at a limit",
    source="no single incident",
    advice="raise memory.high or memory.max of that cgroup, or look for what fills it (page cache counts)",
)
def _reclaimed(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for number, level in snapshot.limits.cgroup_levels.items():
        counts = {name: level.memory_events.get(name, 0) for name in ("high", "max", "oom_kill")}
        if any(counts.values()):
            shown = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
            text = f"The server's cgroup {level.path or '/'} was at its memory limit: {shown} times since it was made."
            yield f"limits/cgroup_levels/{number}/memory_events", text


@_rule(
    "FP421",
    "a GPU that is not wholly part of the NVSwitch fabric",
    source="no single incident",
    advice="look at the fabric manager's log; until it is, NCCL does without NVLink SHARP, or CUDA does not start",
)
def _off_fabric(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for address, gpu in _gpus(snapshot):
        if gpu.fabric and gpu.fabric != ["completed"]:
            yield f"gpu/gpus/{address}/fabric", f"The fabric says of GPU {address}: {', '.join(gpu.fabric)}."


def unread_part(snapshot: Snapshot) -> list[str]:
    """Sections that no rule could look at, with the reason: silence about them is no good sign."""
    return [
        f"{name}: {section.reason or section.status}"
        for name, section in snapshot.sections().items()
        if section.status in {"failed", "absent"}
    ]
