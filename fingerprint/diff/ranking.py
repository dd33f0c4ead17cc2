"""Which differences deserve a trial first, with every reason and its source.

The likelihood of a difference is a sum of reasons in log-odds, squeezed into 0 to 1, so that `--explain` can show all
of it. Three sorts of reasons: what is known of the name (`fingerprint.diff.knowledge`), what the snapshots show (is the
library mapped in a rank, has any rank the variable, is the changed code behind a variable that is unset), and what the
change is (only comments, another build under the same version). It orders; nothing is dropped for a low rank.
"Cannot matter" is said where the snapshots show it, and is called evidence: a launcher may act on what no rank has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fingerprint.diff import knowledge
from fingerprint.diff.causes import owner_by_directory, settings_in
from fingerprint.diff.difference import Difference, Reason
from fingerprint.diff.knowledge import JUDGEMENT, Known, first
from fingerprint.hunks import Hunk, apart, hunks
from fingerprint.launch import command_line
from fingerprint.misspelling import misspelling_of
from fingerprint.readings import ENGINES, mapped_paths, version
from fingerprint.ties import place_of, requirement_of
from snapshots import Key, LocalFile, Process, Snapshot, Tree
from snapshots.spellings import canonical

START = -1.0
"""Log-odds of a difference of which nothing is known: one in four."""

HERE = "the two snapshots"


@dataclass(frozen=True)
class Scene:
    """Both snapshots, with what the rules look up in them."""

    old: Snapshot
    new: Snapshot
    differences: dict[Key, Difference]

    @cached_property
    def ranks(self) -> list[Process]:
        """The ranks of the new side, or of the old one where the new has none."""
        for side in (self.new, self.old):
            found = [process for process in side.server.processes.values() if process.role == "rank"]
            if found:
                return found
        return []

    @cached_property
    def several_hosts(self) -> bool:
        """Whether a launch of either side says that other hosts serve with this one: their ranks are not seen here."""
        told: list[object] = []
        for side in (self.old, self.new):
            line = command_line(side.server.processes.get("launcher"))
            told += line.flags.get("--nnodes", ()) if line is not None else ()
            told += [side.server.arguments.get("nnodes")] if isinstance(side.server.arguments, dict) else []
        return any(str(number) not in {"1", "None"} for number in told)

    @cached_property
    def mapped(self) -> frozenset[str] | None:
        """Paths of the libraries mapped in any rank, on either side; None where no rank could be read."""
        readable = [
            process.libraries
            for side in (self.old, self.new)
            for process in side.server.processes.values()
            if process.role == "rank" and isinstance(process.libraries, dict) and process.libraries
        ]
        if not readable:
            return None
        return frozenset(library.path or key for libraries in readable for key, library in libraries.items())

    @cached_property
    def misspelt(self) -> dict[str, str]:
        """The variable that was meant, and the misspelt one that differs."""
        names = (key[2] for key in self.differences if key[:2] == ("server", "variables"))
        return {wanted: name for name in names if (wanted := misspelling_of(name)) is not None}

    @cached_property
    def owners(self) -> dict[str, str]:
        """Distributions that have a library mapped in a rank, with one such path."""
        names = sorted({**self.old.packages.distributions, **self.new.packages.distributions})
        owned = ((owner_by_directory(_inside(path), names), path) for path in sorted(self.mapped or ()))
        return {owner: path for owner, path in owned if owner is not None}

    @cached_property
    def required(self) -> frozenset[str] | None:
        """Distributions that an engine asks for, directly or not; None without an engine."""
        known = {**self.old.packages.distributions, **self.new.packages.distributions}
        pending = [name for name in ENGINES if name in known]
        if not pending:
            return None
        place = place_of(self.new)
        reached: set[str] = set()
        while pending:
            name = pending.pop()
            if name in reached:
                continue
            reached.add(name)
            for text in known[name].requires if name in known else ():
                requirement = requirement_of(text, place)
                if requirement is not None:
                    pending.append(canonicalize_name(requirement.name))
        return frozenset(reached)

    def rank_values(self, name: str) -> list[str | None] | None:
        """A variable's value in every rank of either side; None where no rank could be read."""
        values = [
            process.variables.get(name)
            for side in (self.old, self.new)
            for process in side.server.processes.values()
            if process.role == "rank" and isinstance(process.variables, dict)
        ]
        return values or None

    def launch_values(self, name: str) -> list[str | None]:
        """A variable's value in the launch of either side, as far as it can be read."""
        return [
            variables.get(name)
            for side in (self.old, self.new)
            if (launcher := side.server.processes.get("launcher")) is not None
            for variables in (launcher.at_exec, launcher.variables)
            if isinstance(variables, dict)
        ]

    def local_file(self, difference: Difference) -> tuple[LocalFile | None, LocalFile | None]:
        """Both sides of a locally changed file."""
        _, _, root, _, path = difference.key
        trees = (self.old.trees.trees.get(root), self.new.trees.trees.get(root))
        old, new = (tree.files.get(path) if isinstance(tree, Tree) else None for tree in trees)
        return old, new


Rule: TypeAlias = Callable[[Difference, Scene], Iterator[Reason]]

_RULES: dict[str, list[Rule]] = {}


def _about(*kinds: str) -> Callable[[Rule], Rule]:
    """Register a rule for kinds of differences; `*` is all of them."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES.setdefault(kind, []).append(rule)
        return rule

    return register


def kind_of(key: Key) -> str:
    """What sort of difference stands under a key."""
    match key:
        case ("server", ("variables" | "flags" | "arguments" | "libraries" | "command") as kind, *_):
            return kind
        case ("packages", "distributions", "*", _):
            return "moved"
        case ("packages", "distributions" | "conda", *_):
            return "package"
        case ("trees", "trees", _, "files", _):
            return "file"
        case ("trees", "trees", *_):
            return "tree"
        case ("startup", "files", _):
            return "startup"
        case ("server", *_):
            return "process"
        case _:
            return "elsewhere"


def rank(differences: Iterable[Difference], old: Snapshot, new: Snapshot) -> list[Difference]:
    """The differences with their likelihood and its reasons, likeliest first; equal ones by key."""
    differences = list(differences)
    scene = Scene(old, new, {item.key: item for item in differences})
    judged = [_judge(item, scene) for item in differences]
    return sorted(judged, key=lambda item: (-item.likelihood, item.key))


def _judge(difference: Difference, scene: Scene) -> Difference:
    kind = kind_of(difference.key)
    reasons = [reason for rule in (*_RULES.get(kind, ()), *_RULES["*"]) for reason in rule(difference, scene)]
    score = START + sum(reason.weight for reason in reasons)
    likelihood = round(1 / (1 + math.exp(-score)), 3)
    return replace(
        difference, likelihood=likelihood, reasons=tuple(sorted(reasons, key=lambda reason: -abs(reason.weight)))
    )


def _known(table: tuple[Known, ...], name: str, scene: Scene) -> Iterator[Reason]:
    row = first(table, name)
    if row is None:
        return
    if row.topic in {"all-reduce", "nodes"} and _one_rank(scene) and not scene.several_hosts:
        yield Reason("there is one rank on both sides: nothing is reduced between GPUs", -2.0, HERE)
    elif row.topic == "nodes" and scene.ranks and not scene.several_hosts:
        yield Reason(row.text + "; all ranks are on one host here", row.weight - 1.2, row.source)
    else:
        yield Reason(row.text, row.weight, row.source)


def _one_rank(scene: Scene) -> bool:
    return all(
        sum(process.role == "rank" for process in side.server.processes.values()) == 1
        for side in (scene.old, scene.new)
    )


# --------------------------------------------------------------------------------------------------------------------
# variables and flags


@_about("variables")
def _what_a_variable_steers(difference: Difference, scene: Scene) -> Iterator[Reason]:
    yield from _known(knowledge.VARIABLES, difference.title, scene)


@_about("variables")
def _whether_it_reaches_a_rank(difference: Difference, scene: Scene) -> Iterator[Reason]:
    values = scene.rank_values(difference.title)
    if values is None:
        return
    if len(set(values)) > 1:
        yield Reason("the change shows in the ranks", 0.5, HERE)
    elif values[0] is None:
        yield Reason("no rank has it: evidence that it does nothing there, unless the launcher acts on it", -2.5, HERE)
    else:
        yield Reason(
            "every rank has the same value on both sides: evidence that the change stops before them", -2.5, HERE
        )


@_about("variables")
def _whether_the_engine_reads_it(difference: Difference, scene: Scene) -> Iterator[Reason]:
    for row in knowledge.UNHONOURED:
        if row.name == difference.title and _covers(scene.new, row.engine, row.versions):
            yield Reason(f"this version of {row.engine} does not read it; use {row.instead}", -2.5, row.source)
            return
    setters = [side for side in (scene.old, scene.new) if difference.title in _launched_with(side)]
    if setters and all(difference.title in _unnamed(side) for side in setters):
        yield Reason("no file of the installed engine names it: evidence that nothing reads it", -2.0, HERE)


def _launched_with(side: Snapshot) -> Mapping[str, str]:
    launcher = side.server.processes.get("launcher")
    return launcher.at_exec if launcher is not None and isinstance(launcher.at_exec, dict) else {}


def _unnamed(side: Snapshot) -> Mapping[str, str]:
    return side.packages.unnamed if isinstance(side.packages.unnamed, dict) else {}


@_about("variables")
def _whether_it_is_a_misspelling(difference: Difference, scene: Scene) -> Iterator[Reason]:
    twin = misspelling_of(difference.title)
    if twin is not None:
        yield Reason(f"nothing reads a variable of this name; {twin} is close", -1.0, "podman-hpc#136")
    instead = scene.misspelt.get(difference.title)
    if instead is not None:
        yield Reason(f"{instead} came in its place, and nothing reads that", 1.5, "podman-hpc#136")


@_about("flags")
def _what_a_flag_steers(difference: Difference, scene: Scene) -> Iterator[Reason]:
    yield from _known(knowledge.FLAGS, canonical(difference.title), scene)


@_about("arguments")
def _what_an_argument_steers(difference: Difference, scene: Scene) -> Iterator[Reason]:
    yield from _known(knowledge.FLAGS, canonical("--" + difference.key[2]), scene)


@_about("package", "tree")
def _a_default_that_moved_with_the_engine(difference: Difference, scene: Scene) -> Iterator[Reason]:
    moved = [
        item
        for item in scene.differences.values()
        if item.group == difference.key and item.key[:2] == ("server", "arguments")
    ]
    telling = [
        item for item in moved if (row := first(knowledge.FLAGS, canonical("--" + item.key[2]))) and row.weight > 1
    ]
    if telling:
        names = ", ".join(sorted(item.key[2] for item in telling)[:3])
        yield Reason(f"with it the server resolved another {names}, which no flag asked for", 1.0, HERE)


# --------------------------------------------------------------------------------------------------------------------
# packages and libraries


@_about("package")
def _what_a_package_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    yield from _known(knowledge.PACKAGES, difference.title, scene)


@_about("package")
def _whether_a_rank_has_it_mapped(difference: Difference, scene: Scene) -> Iterator[Reason]:
    if scene.mapped is None:
        return
    name = difference.title
    if name in scene.owners:
        yield Reason(f"{scene.owners[name].rpartition('/')[2]} of it is mapped in a rank", 0.7, HERE)
        return
    files = {**scene.old.packages.files.get(name, {}), **scene.new.packages.files.get(name, {})}
    libraries = [path for path in files if path.endswith(".so") or ".so." in path]
    if libraries:
        yield Reason(
            "it has shared libraries and no rank has one mapped: evidence that its code is not in use", -1.5, HERE
        )


def _inside(path: str) -> str:
    return path.rpartition("/site-packages/")[2].rpartition("/dist-packages/")[2]


@_about("package")
def _whether_the_engine_asks_for_it(difference: Difference, scene: Scene) -> Iterator[Reason]:
    if scene.required is not None and len(scene.required) > 1 and difference.title not in scene.required:
        yield Reason("nothing that the engine requires asks for it", -1.0, HERE)


@_about("package")
def _what_of_a_package_changed(difference: Difference, _scene: Scene) -> Iterator[Reason]:
    if difference.note == "same version, other contents":
        yield Reason(
            "its contents changed under the same version, so nobody chose the change by name", 0.6, "sglang#20023"
        )
    if difference.note == "same version":
        yield Reason("neither its version nor its contents changed", -1.5, HERE)
    files = [change.key[3:] for change in difference.changes if change.key[1] == "files"]
    if files and difference.note == "same version, other contents":
        rows = [row for path in files if (row := first(knowledge.PATHS, "/".join(path)))]
        if all(row.weight < -2 for row in rows):
            yield Reason("only files changed that no process of a server imports", -2.0, HERE)
        elif best := max(rows, key=lambda row: row.weight, default=None):
            yield Reason(f"among the changed files: {best.text}", max(0.0, best.weight - 1.0), best.source)


@_about("package")
def _what_the_new_engine_no_longer_reads(difference: Difference, scene: Scene) -> Iterator[Reason]:
    for row in knowledge.UNHONOURED:
        honoured_before = not _covers(scene.old, row.engine, row.versions)
        dropped = row.engine == difference.title and honoured_before and _covers(scene.new, row.engine, row.versions)
        if dropped and any(scene.launch_values(row.name)):
            yield Reason(f"{row.name} is set and the new version no longer reads it ({row.instead})", 1.5, row.source)


def _covers(side: Snapshot, engine: str, versions: str) -> bool:
    dist = side.packages.distributions.get(engine)
    known = version(dist.version if dist is not None and isinstance(dist.version, str) else None)
    return known is not None and SpecifierSet(versions).contains(known, prereleases=True)


@_about("moved")
def _a_place_is_no_content(_difference: Difference, _scene: Scene) -> Iterator[Reason]:
    yield Reason("the same contents lie in another place", -2.0, HERE)


@_about("libraries")
def _what_a_library_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    paths = mapped_paths(scene.new, difference.key[2]) or mapped_paths(scene.old, difference.key[2])
    name = difference.title.lower()
    guess = next(
        (word for word in ("nccl", "cublas", "cudnn", "triton", "flashinfer", "sgl_kernel", "torch") if word in name),
        "",
    )
    guess = {"cublas": "nvidia-cublas", "cudnn": "nvidia-cudnn", "sgl_kernel": "sgl-kernel"}.get(guess, guess)
    if name.startswith("libcuda.so"):
        yield Reason("the driver's own library", 1.6, "open-gpu-kernel-modules#1001")
    elif guess:
        yield from _known(knowledge.PACKAGES, guess, scene)
    else:
        yield Reason(
            f"a library of the {'serving environment' if any('-packages/' in path for path in paths) else 'system'}",
            -0.6,
            JUDGEMENT,
        )
    if difference.note == "the same build":
        yield Reason("the build is the same on both sides", -2.5, HERE)
    elif difference.group is None:
        yield Reason("no package changed that would have brought it", 0.7, HERE)
    if any(role.startswith("rank") for role in difference.where):
        yield Reason("a rank has it mapped", 0.4, HERE)


# --------------------------------------------------------------------------------------------------------------------
# trees and startup files


@_about("tree")
def _what_a_commit_holds(difference: Difference, _scene: Scene) -> Iterator[Reason]:
    if difference.note == "the same tree at another path":
        yield Reason("what lies in it is compared by itself", -1.5, HERE)
    elif difference.key[-1] == "commit":
        yield Reason("all code of the tree may be another one", 1.8, "sglang#28224")
    else:
        yield Reason("the server imports from this tree", 0.8, HERE)


@_about("file")
def _what_a_file_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    yield from _known(knowledge.PATHS, difference.key[-1], scene)


@_about("file")
def _whether_the_server_imports_it(difference: Difference, scene: Scene) -> Iterator[Reason]:
    tree = scene.new.trees.trees.get(difference.key[2])
    if isinstance(tree, Tree) and tree.imports:
        path = difference.key[-1]
        if not any(
            path.startswith(directory.strip("./") + "/") or directory.strip("./") == "" for directory in tree.imports
        ):
            yield Reason("the server does not import from that directory: evidence that it does not run", -2.0, HERE)


@_about("file")
def _what_its_hunks_do(difference: Difference, scene: Scene) -> Iterator[Reason]:
    old, new = scene.local_file(difference)
    patches = [file.patch if file is not None and isinstance(file.patch, str) else "" for file in (old, new)]
    gone, come, _ = apart(patches[0], patches[1])
    lines = [line for hunk in (*gone, *come) for line in (*hunk.added, *hunk.removed)]
    if not lines:
        return
    if all(_is_comment(line) for line in lines):
        yield Reason("only comments and blank lines changed", -3.0, HERE)
        return
    added = "\n".join(line for hunk in come for line in hunk.added) + "\n".join(
        line for hunk in gone for line in hunk.removed
    )
    if knowledge.WAITS.search(added):
        yield Reason(f"it touches a wait: {_first_line(lines, knowledge.WAITS.search)}", 1.0, "sglang#26171")
    if knowledge.COLLECTIVES.search(added):
        yield Reason(f"it touches a collective: {_first_line(lines, knowledge.COLLECTIVES.search)}", 0.8, JUDGEMENT)
    asked = {name for line in lines for name in _asked_for(line)}
    asked |= _depends_on(new, come) | _depends_on(old, gone)
    yield from _gates(asked, scene)


def _is_comment(line: str) -> bool:
    text = line.strip()
    return not text or text.startswith(("#", "//"))


def _first_line(lines: list[str], search: Callable[[str], object]) -> str:
    return next(line.strip() for line in lines if search(line))[:80] if any(map(search, lines)) else ""


def _asked_for(line: str) -> Iterator[str]:
    """Variables that a line of code reads; one that is on where it is unset is no gate."""
    for found in knowledge.GATES.finditer(line):
        if not knowledge.ON_BY_DEFAULT.match(line[found.end() :]):
            yield found["name"]


def _depends_on(file: LocalFile | None, changed: list[Hunk]) -> set[str]:
    """Variables that the capture found around the changed hunks of a file."""
    if file is None or not isinstance(file.patch, str):
        return set()
    contents = {hunk.content for hunk in changed}
    numbers = [number for number, hunk in enumerate(hunks(file.patch), 1) if hunk.content in contents]
    return {name for number in numbers for name in file.gates.get(str(number), ())}


def _gates(names: set[str], scene: Scene) -> Iterator[Reason]:
    """Variables on which the changed code depends: where they are unset, a branch is probably not taken."""
    unset: list[str] = []
    given: list[str] = []
    for name in sorted(names):
        values = (scene.rank_values(name) or []) + scene.launch_values(name)
        told = sorted({value for value in values if value is not None})
        if told:
            given.append(f"{name}={' or '.join(value[:40] for value in told[:2])}")
        elif values:
            unset.append(name)
    if given:
        yield Reason(f"the changed code depends on {', '.join(given)}, which is set here", 0.5, HERE)
    elif unset:
        yield Reason(
            f"the changed code depends on {', '.join(unset)}, which neither the launch nor any rank has: evidence, not"
            " proof, that it keeps to its default",
            -1.5,
            HERE,
        )


@_about("startup")
def _what_a_startup_file_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    name = difference.title
    files = [side.startup.files.get(name) for side in (scene.old, scene.new)]
    if difference.note == "the same contents in another place":
        yield Reason("its contents are the same", -1.5, HERE)
    if knowledge.BENIGN_STARTUP.fullmatch(name):
        yield Reason("a packaging tool writes it", -1.2, JUDGEMENT)
    elif any(file is not None and file.runs_code for file in files):
        yield Reason("it runs in every Python process before the server's first line", 1.8, "kvcached#328, EXL3#15")
    else:
        yield Reason("it only adds a directory to the import path", 0.2, JUDGEMENT)
    text = "\n".join(file.text for file in files if file is not None and isinstance(file.text, str))
    names = sorted({found["name"] for found in knowledge.GATES.finditer(text)})
    best = max(
        (row for name in names if (row := first(knowledge.VARIABLES, name))), key=lambda row: row.weight, default=None
    )
    if best is not None and best.weight > 0:
        yield Reason(f"it names {', '.join(names[:3])}: {best.text}", 0.5, best.source)


# --------------------------------------------------------------------------------------------------------------------
# processes, and everything else


@_about("process", "command")
def _what_a_process_property_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    match difference.key:
        case (_, "processes", _):
            yield Reason("the server is made of other processes", 1.2, HERE)
        case (_, "command"):
            yield Reason("the server is started by another program", 0.8, HERE)
        case (_, "files", name):
            rows = [first(knowledge.FLAGS, "--" + one.replace("_", "-")) for one in settings_in(difference.details)]
            likeliest = max((row for row in rows if row is not None), key=lambda row: row.weight, default=None)
            if name != "--config" or likeliest is None:
                yield Reason("the launch reads settings from it", 0.8, HERE)
            else:
                yield Reason(
                    f"the launch reads its flags from it: {likeliest.text}", likeliest.weight, likeliest.source
                )
        case (_, "declared", "variables", name) if ("server", "variables", name) in scene.differences:
            yield Reason("what the server has of it is a difference of its own", -1.0, HERE)
        case (_, "declared", "variables", _):
            yield Reason("the server does not go by it: it counts from its next start", -2.0, HERE)
        case (_, "declared") | (_, "declared", "by"):
            yield Reason("who starts the server decides nothing but what it is given", -1.0, HERE)
        case _:
            yield from _known(knowledge.PROCESSES, difference.key[-1], scene)


@_about("elsewhere")
def _what_a_host_property_does(difference: Difference, scene: Scene) -> Iterator[Reason]:
    if difference.note.startswith("the same "):
        yield Reason("it agrees in everything that was read", -2.0, HERE)
    match difference.key:
        case ("nccl", "settings", name) if ("server", "variables", name) in scene.differences:
            yield from _known(knowledge.VARIABLES, name, scene)  # it is the variable, where it acts
        case _:
            yield from _known(knowledge.ELSEWHERE, difference.name, scene)


@_about("*")
def _what_acceptance_says(difference: Difference, scene: Scene) -> Iterator[Reason]:
    """Where the accept length moved, what decides acceptance comes first."""
    lengths = [side.measured.accept_length if side.measured else None for side in (scene.old, scene.new)]
    if lengths[0] is None or lengths[1] is None or abs(lengths[1] - lengths[0]) < 0.05 * lengths[0]:
        return
    if "draft" in difference.name or "speculative" in difference.name or difference.section == "models":
        yield Reason(
            f"the accept length went from {lengths[0]:.2f} to {lengths[1]:.2f}, and this decides it", 1.0, HERE
        )
