"""Causes: which difference is only the consequence of another.

Each rule sees all differences and names pairs (consequence, cause). A consequence is shown below its cause and keeps
its own rank: torch moved because sglang pins it, and triton because torch does, but it may be triton that is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from packaging.utils import canonicalize_name

from fingerprint.diff.difference import SAME_CHANGE, Difference
from fingerprint.readings import ENGINES, mapped_paths
from fingerprint.ties import ties
from snapshots import Key, Snapshot


@dataclass(frozen=True)
class Scene:
    """All differences, with what the rules look up."""

    differences: Mapping[Key, Difference]
    old: Snapshot
    new: Snapshot

    def package(self, name: str) -> Difference | None:
        """The difference of a distribution, if it has one."""
        return self.differences.get(("packages", "distributions", name))

    def engine(self) -> Difference | None:
        """The engine's own change: the commit of its tree, else its package."""
        commits = [item for key, item in self.differences.items() if key[0] == "trees" and key[-1] == "commit"]
        packages = [item for name in ENGINES if (item := self.package(name)) is not None]
        return next(iter(commits + packages), None)


Rule: TypeAlias = Callable[[Scene], Iterator[tuple[Key, Key]]]

_RULES: list[Rule] = []


def _rule(function: Rule) -> Rule:
    _RULES.append(function)
    return function


def hang(differences: list[Difference], old: Snapshot, new: Snapshot) -> list[Difference]:
    """The differences, each with the key of the one that brought it about. The first rule that knows one decides."""
    scene = Scene({item.key: item for item in differences}, old, new)
    cause: dict[Key, Key] = {}
    for rule in _RULES:
        for effect, origin in rule(scene):
            if effect in cause or effect == origin or not {effect, origin} <= scene.differences.keys():
                continue
            if not _reaches(origin, effect, cause):
                cause[effect] = origin
    return [replace(item, group=cause.get(item.key)) for item in differences]


def _reaches(start: Key, goal: Key, cause: Mapping[Key, Key]) -> bool:
    at: Key | None = start
    while at is not None:
        if at == goal:
            return True
        at = cause.get(at)
    return False


@_rule
def _editable_version_follows_its_commit(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """The version of an editable install is made of the tree's commit."""
    commit = next((key for key in scene.differences if key[0] == "trees" and key[-1] == "commit"), None)
    if commit is None:
        return
    for name, dist in scene.new.packages.distributions.items():
        if dist.editable and scene.package(name) is not None:
            yield ("packages", "distributions", name), commit


@_rule
def _a_local_change_moves_with_its_commit(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """The same local change on another version of a file is the commit's doing."""
    for key, item in scene.differences.items():
        if item.note == SAME_CHANGE:
            yield key, (*key[:3], "commit")


@_rule
def _a_requirement_moves_what_it_names(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """A package that could not have stayed as it was once another one changed."""
    forced = list(ties(scene.old, scene.new))
    exact_first = sorted(forced, key=lambda tie: (not tie.exact, tie.mover != "torch", tie.mover, tie.moved))
    for tie in exact_first:
        yield ("packages", "distributions", tie.moved), ("packages", "distributions", tie.mover)


@_rule
def _conda_s_package_is_the_distribution(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """What conda installed stands in its own list, too, at times under another name."""
    for key in scene.differences:
        if key[:2] == ("packages", "conda"):
            yield key, ("packages", "distributions", {"pytorch": "torch"}.get(key[2], canonicalize_name(key[2])))


@_rule
def _a_library_comes_with_its_package(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """A shared object below site-packages belongs to the distribution that installed it."""
    libraries = [key for key in scene.differences if key[:2] == ("server", "libraries")]
    owners = _owners(scene) if libraries else None
    for key in libraries:
        for path in mapped_paths(scene.new, key[2]) + mapped_paths(scene.old, key[2]):
            owner = owners(path) if owners is not None else None
            if owner is not None:
                yield key, ("packages", "distributions", owner)


def _owners(scene: Scene) -> Callable[[str], str | None]:
    """Who installed a path: by the file lists where they were kept, else by the directory's usual owner."""
    listed: dict[str, str] = {}
    for side in (scene.old, scene.new):
        for name, files in side.packages.files.items():
            listed.update((path, name) for path in files if ".so" in path)
    changed = sorted(key[2] for key in scene.differences if key[:2] == ("packages", "distributions") and len(key) == 3)

    def owner(path: str) -> str | None:
        inside = re.split(r"/(?:site|dist)-packages/", path)[-1]
        if inside in listed:
            return listed[inside]
        if inside == path:
            return None
        return owner_by_directory(inside, changed)

    return owner


def owner_by_directory(inside: str, names: list[str]) -> str | None:
    """The distribution among `names` that a path below site-packages most likely belongs to."""
    top, _, rest = inside.partition("/")
    if top == "nvidia":
        wanted = f"nvidia-{canonicalize_name(rest.partition('/')[0])}"
        return next(
            (name for name in names if name == wanted or re.fullmatch(rf"{re.escape(wanted)}-cu\d+", name)), None
        )
    top = canonicalize_name(top.removesuffix(".libs"))
    usual = {"sgl-kernel": ("sgl-kernel", "sglang-kernel"), "flashinfer": ("flashinfer-python",)}.get(top, (top,))
    return next((name for name in usual if name in names), None)


@_rule
def _parallelism_makes_processes(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """Ranks come and go with the number of ranks asked for."""
    for flag in ("--tp-size", "--tp", "--tensor-parallel-size", "--dp-size", "--dp", "--pp-size"):
        origin = ("server", "flags", flag)
        if origin in scene.differences:
            for key in scene.differences:
                if key[:2] == ("server", "processes") and len(key) == 3:
                    yield key, origin


_ATTENTION = r"log/facts/(draft )?attention backend|server/arguments/.*attention_backend"
"""SGLang takes it by the flag, by the draft's branches on some cards, and by whether FlashInfer is there."""
_ALL_REDUCE = r"log/facts/.*all-reduce.*|log/facts/graph addresses|server/arguments/.*all_?reduce.*"
_BRINGS: tuple[tuple[str, str], ...] = (
    (r"gpu/(nvml|cuda|kernel_module/.*)", r"gpu/driver"),
    (r"gpu/gpus/.*/gsp_firmware", r"gpu/driver"),
    (r"server/libraries/(libcuda|libnvidia-).*", r"gpu/driver"),
    (r"gpu/gpus/.*/power_enforced_w", r"gpu/gpus/.*/power_limit_w"),
    (r"gpu/gpus/.*/pcie_width", r"topology/devices/.*/width"),
    (r"host/kernel_build", r"host/kernel"),
    (r"host/cpu/(isolated|nohz_full|mitigations/.*)", r"host/command_line"),
    (r"topology/devices/.*/iommu", r"host/command_line"),
    (r"limits/cpus", r"limits/cgroup_levels/.*/cpu.*"),
    (r"nccl/(loaded|installed|pinned)/.*|log/facts/nccl", r"packages/distributions/nvidia-nccl-.*"),
    (r"nccl/loaded/.*|log/facts/nccl", r"server/variables/(SGLANG_NCCL_SO_PATH|LD_PRELOAD|LD_LIBRARY_PATH)"),
    (r"log/facts/nccl", r"nccl/loaded/.*"),
    (r"nccl/settings/.*", r"nccl/files/.*"),
    (
        r"log/facts/(graphs|verify graph|draft graph|graph addresses)|server/arguments/.*cuda_graph.*",
        r"server/flags/--(.*cuda-graph.*|enforce-eager)",
    ),
    (r"log/facts/(verify|draft) graph", r"server/flags/--(speculative-num-.*|max-running-requests)"),
    (_ATTENTION, r"server/flags/--.*attention-backend"),
    (_ATTENTION, r"server/flags/--speculative-(eagle-topk|algorithm)"),
    (_ATTENTION, r"packages/distributions/flashinfer-python"),
    (r"log/facts/attention backend", r"server/arguments/attention_backend"),
    (_ALL_REDUCE, r"server/(flags/--.*(all-?reduce|symm|p2p|mscclpp).*|variables/.*ALL_?REDUCE.*)"),
    (_ALL_REDUCE, r"server/flags/--(tp|tp-size|tensor-parallel-size)"),
    (r"log/facts/all-reduce fusion", r"packages/distributions/(flashinfer-python|nvidia-cutlass-dsl|cuda-tile)"),
    (r"log/facts/(moe|kernel) config", r"packages/distributions/triton"),
    (r"log/facts/moe config", r"server/variables/SGLANG_MOE_CONFIG_DIR"),
    (
        r"log/facts/max total tokens",
        r"server/flags/--(mem-fraction-static|max-total-tokens|max-running-requests|kv-cache-dtype|context-length)",
    ),
    (r"models/models/target", r"server/flags/--(model-path|model|revision)"),
    (r"models/models/draft", r"server/flags/--speculative-draft-model.*"),
    (r"models/models/token map", r"server/flags/--speculative-token-map"),
    (r"limits/memory_bytes", r"limits/cgroup_levels/.*/memory.*"),
)
"""Consequence and cause, as patterns of names; the first line that knows a cause decides."""


@_rule
def _a_variable_is_what_nccl_goes_by(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """An NCCL setting that a variable brought."""
    for key in scene.differences:
        if key[:2] == ("nccl", "settings"):
            yield key, ("server", "variables", key[2])


@_rule
def _a_declaration_is_of_a_variable(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """What was declared otherwise arrived: a launch switches the variable, not the unit."""
    for key in scene.differences:
        if key[:3] == ("server", "declared", "variables") and len(key) == 4:
            yield key, ("server", "variables", key[3])


@_rule
def _a_path_follows_the_variable_that_holds_it(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """A cache moved because a variable that names its directory did, or because the engine puts it elsewhere."""
    variables = [item for key, item in scene.differences.items() if key[:2] == ("server", "variables")]
    engine = scene.engine()
    for key, item in scene.differences.items():
        if key[0] == "caches" and key[-1] == "path":
            sides = [(str(path), side) for path, side in ((item.old, "old"), (item.new, "new")) if path]
            for variable in variables:
                named = [str(getattr(variable, side) or "") for _, side in sides]
                if any(
                    len(value) > 1 and path.startswith(value) for value, (path, _) in zip(named, sides, strict=True)
                ):
                    yield key, variable.key
            if engine is not None:
                yield key, engine.key


@_rule
def _what_one_setting_brings(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """Readings that are made of another one."""
    names = {item.name: key for key, item in scene.differences.items()}
    for effects, origins in _BRINGS:
        causes = [key for name, key in names.items() if re.fullmatch(origins, name)]
        if causes:
            for name, key in names.items():
                if re.fullmatch(effects, name):
                    yield key, causes[0]


@_rule
def _a_file_of_settings_resolves_arguments(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """Resolved arguments that a line names which changed in a file that the launch reads."""
    for origin, item in scene.differences.items():
        if origin[:2] == ("server", "files"):
            names = settings_in(item.details)
            for key in scene.differences:
                if key[:2] == ("server", "arguments") and key[2] in names:
                    yield key, origin


def settings_in(lines: Iterable[str]) -> set[str]:
    """What the changed lines of a file of settings set, named as resolved arguments are."""
    found = (re.match(r"""[-+]\s*["']?([A-Za-z][\w-]*)["']?\s*[:=]""", line) for line in lines)
    return {match[1].replace("-", "_").lower() for match in found if match}


@_rule
def _an_engine_moves_its_defaults(scene: Scene) -> Iterator[tuple[Key, Key]]:
    """Resolved arguments and late variables that nothing in the launch changed follow from the engine."""
    engine = scene.engine()
    if engine is None:
        return
    for key, item in scene.differences.items():
        late = key[:2] == ("server", "variables") and item.factor is None
        if key[:2] == ("server", "arguments") or late or key[:2] == ("log", "facts"):
            yield key, engine.key
