"""Views: how the changed leaves of a section become what a person calls a difference.

One function a section, registered under its name; a section without one gets `general`, which needs no knowledge: an
entry that is wholly on one side is one difference, and the same field that moved alike in several entries (every rank,
every GPU) is one difference that says where. A view must hand on every change it is given, in exactly one difference.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeAlias, TypeVar

from fingerprint.diff.difference import SAME_CHANGE, Change, Difference, Pair, Verdict, found, judge, same_leaf
from fingerprint.hunks import apart, hunks
from fingerprint.launch import command_line
from fingerprint.readings import cpu_list, version
from snapshots import (
    Declared,
    Distribution,
    Key,
    Leaf,
    Library,
    LocalFile,
    Model,
    ModelFile,
    NamedFile,
    Nccl,
    Packages,
    Section,
    Server,
    SettingsFile,
    Startup,
    StartupFile,
    Tree,
    Trees,
    Unread,
)
from snapshots.launch import CommandLine, is_inert_flag
from snapshots.spellings import canonical, paired

_Text: TypeAlias = StartupFile | SettingsFile | ModelFile | NamedFile

View: TypeAlias = Callable[[Pair, list[Change]], Iterator[Difference]]

_VIEWS: dict[str, View] = {}


def _shows(section: str) -> Callable[[View], View]:
    def register(function: View) -> View:
        _VIEWS[section] = function
        return function

    return register


def view(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    """The differences of one section."""
    for difference in _VIEWS.get(pair.name, general)(pair, changes):
        yield difference if difference.factor else replace(difference, factor=switched_by(difference.key))


def switched_by(key: Key) -> str | None:
    """The factor that switches a plain value, by where it stands in the snapshot."""
    match key:
        case ("server", "processes", _, "affinity" | "nice" | "cwd" as field):
            return f"process:{field}"
        case ("server", "processes", _, "memory_policy" | "memory_nodes"):
            return "process:numa"
        case ("server", "processes", _, "policy"):
            return "process:class"
        case ("limits", "limits", *_):
            return "process:limits"
        case ("limits", "cgroup_levels", _, "settings", "cpu.max" | "cpu.cfs_quota_us" | "cpu.cfs_period_us"):
            return "process:cpu-quota"
        case ("caches", "caches", _, "choices", *_):
            return "process:caches"
        case ("host", "sysctls", name):
            from fingerprint.factors.host_settings import SYSCTLS

            return f"host:{name}" if name in SYSCTLS else None
        case ("host", "huge_pages", name):
            return f"host:transparent_hugepage/{name}"
        case ("host", "cpu", "governors"):
            return "host:governor"
        case ("gpu", "gpus", _, "power_limit_w"):
            return "gpu:power-limit"
        case ("gpu", "gpus", _, "persistence"):
            return "gpu:persistence"
    return None


def general(pair: Pair, changes: Iterable[Change]) -> Iterator[Difference]:
    """Gather changes without knowing what they mean."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    entries: dict[Key, list[Change]] = {}
    for change in changes:
        if _equivalent(change):
            continue
        root = _missing_root(pair, change)
        if root != change.key:
            entries.setdefault(root, []).append(change)
        else:
            shape = _shape(pair, change.key)
            alike.setdefault((shape, repr(change.old), repr(change.new)), []).append(change)
    for root, members, twin in _renamed(entries):
        if twin is not None:
            yield Difference(
                key=root,
                verdict="changed",
                old=root[-1],
                new=twin[-1],
                title=" ".join(root[-2:]),
                note="the same under another name",
                changes=tuple(members),
            )
            continue
        gone = members[0].new is None
        value = _entry_value(members)
        yield Difference(
            key=root,
            verdict="only in old" if gone else "only in new",
            old=value if gone else None,
            new=None if gone else value,
            title=" ".join(root[-2:]) if len(root) > 2 else root[-1],
            changes=tuple(members),
        )
    for members in alike.values():
        yield _alike(pair, members)


def _renamed(entries: Mapping[Key, list[Change]]) -> Iterator[tuple[Key, list[Change], Key | None]]:
    """Entries that one side lacks; one that the other side has under another name comes once, with that name.

    A GPU in another slot is the same GPU: the two entries agree in every identity value.
    """
    gone: dict[object, list[Key]] = {}
    for root, members in entries.items():
        if members[0].new is None:
            gone.setdefault(_contents(root, members), []).append(root)
    pairs: dict[Key, Key] = {}
    for root, members in entries.items():
        if members[0].new is not None:
            same = gone.get(_contents(root, members))
            if same:
                pairs[same.pop(0)] = root
    for root, members in entries.items():
        if root in pairs:
            yield root, [*members, *entries[pairs[root]]], pairs[root]
        elif root not in pairs.values():
            yield root, members, None


def _contents(root: Key, members: list[Change]) -> object:
    values = ((change.key[len(root) :], repr(change.new if change.old is None else change.old)) for change in members)
    return root[:-1], tuple(values)


def _alike(pair: Pair, members: list[Change]) -> Difference:
    first = members[0]
    where = tuple(_entry(pair, change.key) for change in members)
    return Difference(
        key=first.key,
        verdict=judge(first.old, first.new),
        old=first.old,
        new=first.new,
        title=_title(pair, first.key),
        note=direction(first.key[-1], first.old, first.new),
        where=tuple(place for place in where if place),
        changes=tuple(members),
    )


def _entry_value(members: list[Change]) -> Leaf:
    """What stands for a whole entry: its only leaf, or how much there is."""
    leaf = members[0].old if members[0].new is None else members[0].new
    return leaf if len(members) == 1 and leaf is not None else f"{len(members)} values"


def _missing_root(pair: Pair, change: Change) -> Key:
    """The shortest key below the section's collections that the side without the leaf lacks as a whole."""
    if change.old is not None and change.new is not None:
        return change.key
    side = pair.new if change.new is None else pair.old
    for length in range(3, len(change.key)):
        if found(side, change.key[1:length]) in (None, {}):
            return change.key[:length]
    return change.key


def _shape(pair: Pair, key: Key) -> Key:
    """The key with its entries' names (not its fields') replaced: equal shapes are the same field of two entries."""
    return tuple("*" if is_name else step for step, is_name in _steps(pair, key))


def _steps(pair: Pair, key: Key) -> Iterator[tuple[str, bool]]:
    """Each step of a key, and whether it names an entry in which a field stands."""
    for index, step in enumerate(key):
        inner = 0 < index < len(key) - 1
        holder = next((got for side in (pair.old, pair.new) if (got := found(side, key[1:index])) is not None), None)
        yield step, inner and isinstance(holder, Mapping)


def _entry(pair: Pair, key: Key) -> str:
    return "/".join(step for step, is_name in _steps(pair, key) if is_name)


def _title(pair: Pair, key: Key) -> str:
    fields = [step for step, is_name in _steps(pair, key) if not is_name]
    return " ".join(fields[-2:] if len(fields) > 2 else fields[1:] or fields)


CPU_LISTS = re.compile(r"affinity|cpus|cpuset|mems|isolated|nohz|online")


def _equivalent(change: Change) -> bool:
    """Whether both sides mean the same in two spellings."""
    if not (isinstance(change.old, str) and isinstance(change.new, str) and CPU_LISTS.search(change.key[-1])):
        return False
    old, new = cpu_list(change.old), cpu_list(change.new)
    return old is not None and old == new


def direction(name: str, old: Leaf | None, new: Leaf | None) -> str:
    """`newer`, `older`, or nothing where the values are no versions."""
    if "version" not in name and "driver" not in name:
        return ""
    before, after = version(old), version(new)
    if before is None or after is None or before == after:
        return ""
    return "newer" if after > before else "older"


# --------------------------------------------------------------------------------------------------------------------
# packages


@_shows("packages")
def _packages(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    old, new = _sides(pair, Packages)
    of: dict[str, list[Change]] = {}
    rest: list[Change] = []
    for change in changes:
        if change.key[1] in {"distributions", "files"}:
            of.setdefault(change.key[2], []).append(change)
        else:
            rest.append(change)
    moved: list[Change] = []
    unverified: list[Change] = []
    conda: list[Change] = []
    for change in (change for change in rest if change.key[1] == "conda"):
        told = [side.conda[change.key[2]].record is not None for side in (old, new) if change.key[2] in side.conda]
        once = change.key[3:] in {("record",), ("channel",)} and sorted(told) == [False, True]
        (unverified if once else conda).append(change)
    yield from _conda(old, new, conda)
    rest = [change for change in rest if change.key[1] != "conda"]
    for name, all_members in of.items():
        was, now = old.distributions.get(name), new.distributions.get(name)
        members = all_members
        if was and now and (was.contents is None) != (now.contents is None):  # one side never looked into the files
            members = [change for change in all_members if change.key[3] not in {"contents", "altered"}]
            unverified += [change for change in all_members if change.key[3] in {"contents", "altered"}]
            if not members:
                continue
        if was and now and {change.key[3] for change in members} <= {"location", "installer"}:
            moved += members
        else:
            yield _package(name, was, now, members)
    if moved:
        yield Difference(
            key=("packages", "distributions", "*", "location"),
            verdict="changed",
            old=_most(change.old for change in moved),
            new=_most(change.new for change in moved),
            title="where packages are installed, or by what",
            where=tuple(sorted({change.key[2] for change in moved})),
            changes=tuple(moved),
        )
    if unverified:
        blind = "old" if all(change.old is None for change in unverified) else "new"
        looked: dict[str, Leaf] = {
            "old": "was read",
            "new": "was read",
            blind: Unread(unread="the files were not verified"),
        }
        yield Difference(
            key=("packages", "distributions", "*", "contents"),
            verdict="not comparable",
            old=looked["old"],
            new=looked["new"],
            title="contents of installed files",
            where=tuple(sorted({change.key[2] for change in unverified})),
            changes=tuple(unverified),
        )
    yield from general(pair, rest)


def _conda(old: Packages, new: Packages, changes: list[Change]) -> Iterator[Difference]:
    """One difference for each package of conda's own; `changes` may be of the list as a whole."""
    of: dict[str, list[Change]] = {}
    for change in changes:
        of.setdefault(change.key[2], []).append(change)
    for name, members in of.items():
        was, now = old.conda.get(name), new.conda.get(name)
        same = was is not None and now is not None and (was.version, was.build) == (now.version, now.build)
        yield Difference(
            key=("packages", "conda", name),
            verdict=_presence(was, now),
            old=f"{was.version} ({was.build})" if was else None,
            new=f"{now.version} ({now.build})" if now else None,
            title=name,
            note="same version and build, other contents" if same else "installed by conda",
            changes=tuple(members),
        )


def _most(values: Iterable[Leaf | None]) -> Leaf | None:
    return Counter(values).most_common(1)[0][0]


_PACKAGE_FIELDS = {
    "record": "its wheel shipped other files: another build under the same version",
    "contents": "its installed files are not the same",
    "origin": "it was installed from another place",
    "editable": "it is editable on one side only",
    "tags": "its wheel has other tags",
    "requires": "it requires other packages",
}


def _package(name: str, was: Distribution | None, now: Distribution | None, members: list[Change]) -> Difference:
    before, after = (_known(side.version) if side else None for side in (was, now))
    fields = {change.key[3] for change in members if change.key[1] == "distributions"}
    files = [change for change in members if change.key[1] == "files"]
    note = direction("version", before, after)
    details: list[str] = []
    if was and now and same_leaf(before, after):
        other = files or fields & {"record", "contents", "altered"}
        note = "same version, other contents" if other else "same version"
        details += [words for field, words in _PACKAGE_FIELDS.items() if field in fields]
    for side, dist in (("old", was), ("new", now)):
        for path, marks in (dist.altered if dist and "altered" in fields else {}).items():
            details.append(f"{path} is not what its wheel shipped on the {side} side ({marks})")
    details += [f"{'/'.join(change.key[3:])} {_presence(change.old, change.new)}" for change in files]
    return Difference(
        key=("packages", "distributions", name),
        verdict=_presence(was, now) if was or now else "changed",
        old=before,
        new=after,
        title=name,
        note=note,
        details=tuple(details),
        changes=tuple(members),
        factor=f"package:{name}",
    )


def _known(leaf: str | Unread | None) -> str | None:
    return None if isinstance(leaf, Unread) else leaf


def _presence(old: object, new: object) -> Verdict:
    if old is None:
        return "only in new"
    return "only in old" if new is None else "changed"


# --------------------------------------------------------------------------------------------------------------------
# server


@_shows("server")
def _server(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    old, new = _sides(pair, Server)
    variables: dict[str, list[Change]] = {}
    libraries: dict[str, list[Change]] = {}
    arguments: dict[str, list[Change]] = {}
    command: Change | None = None
    started: list[Change] = []
    files: dict[str, list[Change]] = {}
    rest: list[Change] = []
    for change in changes:
        match change.key:
            case (_, "files", name, *_):
                files.setdefault(name, []).append(change)
            case (_, "declared", *_) if old.declared is None or new.declared is None:
                started.append(change)
            case (_, "processes", role, *_) if role not in old.processes or role not in new.processes:
                rest.append(change)
            case (_, "processes", _, "at_exec" | "variables", name):
                variables.setdefault(name, []).append(change)
            case (_, "processes", _, "libraries", path, *_):
                libraries.setdefault(PurePosixPath(path).name, []).append(change)
            case (_, "processes", "launcher", "argv"):
                command = change
            case (_, "arguments", name, *_):
                arguments.setdefault(name, []).append(change)
            case _:
                rest.append(change)
    for name, members in variables.items():
        yield _variable(name, old, new, members)
    yield from _command(old, new, command, arguments)
    for name, members in libraries.items():
        yield _library(name, old, new, members)
    for name, members in files.items():
        yield _settings(name, old.files.get(name), new.files.get(name), members)
    if started:
        yield Difference(
            key=("server", "declared"),
            verdict=_presence(old.declared, new.declared),
            old=_declarer(old),
            new=_declarer(new),
            title="what starts the server",
            details=_declarers(old, new),
            changes=tuple(started),
        )
    for difference in general(pair, rest):
        match difference.key:
            case (_, "processes", role, "thread_affinity"):
                yield replace(difference, title="processors of single threads", details=_threads(role, old, new))
            case (_, "declared", "variables", name):
                yield replace(difference, title=f"{name} as it is declared", details=_declarers(old, new))
            case (_, "declared", "by"):
                yield replace(difference, title="what starts the server", details=_declarers(old, new))
            case _:
                yield difference


def _threads(role: str, old: Server, new: Server) -> tuple[str, ...]:
    """Which threads are bound to other processors than their process."""
    return tuple(
        f"{role} {word}: {', '.join(f'{count} {name}' for name, count in names.items())} on {cpus}"
        for word, side in (("before", old), ("now", new))
        for cpus, names in side.processes[role].thread_names.items()
    )


def _settings(name: str, was: SettingsFile | None, now: SettingsFile | None, members: list[Change]) -> Difference:
    """A file of settings that the launch names, line by line."""
    lines = _changed_lines(was, now)
    texts = [isinstance(side.text, str) for side in (was, now) if side is not None]
    note = "" if lines or not all(texts) or was is None or now is None else "only secrets in it differ"
    return Difference(
        key=("server", "files", name),
        verdict=_presence(was, now),
        old=_kept_text(was),
        new=_kept_text(now),
        title=f"file of {name}",
        note=note,
        details=tuple(lines),
        changes=tuple(members),
    )


def _declarer(side: Server) -> str | None:
    if not isinstance(side.declared, Declared):
        return None
    return f"{side.declared.by}, {len(side.declared.variables)} variables"


def _declarers(old: Server, new: Server) -> tuple[str, ...]:
    """Who declares variables on either side, and in which files."""
    return tuple(
        f"{word}: {side.declared.by} {side.declared.name} ({', '.join(side.declared.files)})"
        for word, side in (("before", old), ("now", new))
        if isinstance(side.declared, Declared)
    )


_PLACES = {"at_exec": "{} at its start", "variables": "{}"}


def _place(role: str, view: str) -> str:
    return "launch" if (role, view) == ("launcher", "at_exec") else _PLACES[view].format(role)


def _variable(name: str, old: Server, new: Server, members: list[Change]) -> Difference:
    """One variable, however many processes show it."""
    first = min(members, key=lambda change: (change.key[2] != "launcher", change.key[3] != "at_exec", change.key))
    moved = {(change.key[2], change.key[3]) for change in members}
    details = [
        f"{_place(change.key[2], change.key[3])}: {_shown(change.old)} \u2192 {_shown(change.new)}"
        for change in members
        if (change.old, change.new) != (first.old, first.new)
    ]
    for role in sorted(old.processes.keys() & new.processes.keys()):
        before, after = old.processes[role].variables, new.processes[role].variables
        if isinstance(before, dict) and isinstance(after, dict) and (role, "variables") not in moved:
            details.append(f"{role}: unchanged ({_shown(after.get(name))})")
    launch = [found(side, ("processes", "launcher", "at_exec")) for side in (old, new)]
    later = ("launcher", "at_exec") not in moved and all(isinstance(side, Mapping) for side in launch)
    return Difference(
        key=("server", "variables", name),
        verdict=judge(first.old, first.new),
        old=first.old,
        new=first.new,
        title=name,
        note="the same at launch: something set it later" if later else "",
        where=tuple(_place(role, view) for role, view in sorted(moved, key=lambda at: (at[0] != "launcher", at))),
        details=tuple(details),
        changes=tuple(members),
        factor=None if later else f"variable:{name}",
    )


def _shown(leaf: Leaf | None) -> str:
    return "unset" if leaf is None else "empty" if leaf == "" else str(leaf)


def _command(
    old: Server, new: Server, command: Change | None, arguments: dict[str, list[Change]]
) -> Iterator[Difference]:
    """The launcher's flags one by one, each with the resolved arguments that follow from it."""
    pending = dict(arguments)
    if command is not None:
        before, after = _launched(old), _launched(new)
        if before.program != after.program:
            yield Difference(
                key=("server", "command"),
                verdict="changed",
                old=" ".join(before.program),
                new=" ".join(after.program),
                title="launch command",
                changes=(command,),
            )
        for name, sides in _moved_flags(before, after):
            if is_inert_flag(name):
                continue
            follows = [
                change
                for key in list(pending)
                if canonical("--" + key) == canonical(name)
                for change in pending.pop(key)
            ]
            yield _flag(name, sides, before, after, follows=follows, changes=(command, *follows))
    for name, members in pending.items():
        first = members[0]
        yield Difference(
            key=("server", "arguments", name),
            verdict=judge(first.old, first.new),
            old=first.old,
            new=first.new,
            title=f"resolved argument {'.'.join(first.key[2:])}",
            note="no flag of the launch changed it",
            details=tuple(map(_moved, members[1:])),
            changes=tuple(members),
        )


def of_the_session(pair: Pair, changes: Iterable[Change]) -> Iterator[Difference]:
    """What launches differ in without being different: the session, where they listen, how they are written.

    Args:
        pair: the server sections.
        changes: the variables that are state.
    """
    old, new = _sides(pair, Server)
    variables: dict[str, list[Change]] = {}
    for change in changes:
        variables.setdefault(change.key[-1], []).append(change)
    for name, members in variables.items():
        yield _variable(name, old, new, members)
    before, after = _launched(old), _launched(new)
    moved = list(_moved_flags(before, after))
    for name, sides in moved:
        if is_inert_flag(name):
            yield _flag(name, sides, before, after)
    was, now = (found(side, ("processes", "launcher", "argv")) for side in (old, new))
    if not moved and before.program == after.program and isinstance(was, list) and isinstance(now, list) and was != now:
        yield Difference(
            key=("server", "command"),
            verdict="changed",
            old=" ".join(was),
            new=" ".join(now),
            title="launch command",
            note="the same flags in another order or spelling",
        )


def _launched(side: Server) -> CommandLine:
    return command_line(side.processes.get("launcher")) or CommandLine((), {})


_Written: TypeAlias = tuple[str | None, str | None]
"""What either launch calls a setting."""


def _moved_flags(before: CommandLine, after: CommandLine) -> Iterator[tuple[str, _Written]]:
    for name, sides in paired(before.flags, after.flags).items():
        was, now = _values(sides, before, after)
        if was != now:
            yield name, sides


def _flag(
    name: str,
    sides: _Written,
    before: CommandLine,
    after: CommandLine,
    *,
    follows: Iterable[Change] = (),
    changes: tuple[Change, ...] = (),
) -> Difference:
    was, now = (None if words is None else " ".join(words) for words in _values(sides, before, after))
    return Difference(
        key=("server", "flags", name),
        verdict=judge(was, now),
        old=None if was is None else was or "on",
        new=None if now is None else now or "on",
        title=name,
        note=f"written {sides[0]} before" if None not in sides and sides[0] != sides[1] else "",
        details=tuple(f"resolved {_moved(change)}" for change in follows),
        changes=changes,
        factor=f"flag:{name}",
    )


def _values(
    sides: _Written, before: CommandLine, after: CommandLine
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The words of a setting in either launch, by what each calls it."""
    old, new = sides
    return before.flags.get(old or ""), after.flags.get(new or "")


def _moved(change: Change) -> str:
    return f"{'.'.join(change.key[2:])}: {_shown(change.old)} \u2192 {_shown(change.new)}"


def _library(name: str, old: Server, new: Server, members: list[Change]) -> Difference:
    """One shared object by its file name, wherever it lies and in whichever process it is mapped."""
    roles = sorted({change.key[2] for change in members})
    before, after = ([_mapped(side, role, name) for role in roles] for side in (old, new))
    was, now = ("; ".join(sorted({text for text in side if text})) or None for side in (before, after))
    builds = [{build for role in roles for build in _builds(side, role, name)} for side in (old, new)]
    replaced = any(change.key[-1] == "deleted" and change.new is True for change in members)
    note = "the file was replaced on disk after it was loaded" if replaced else ""
    if was is not None and now is not None and builds[0] == builds[1] and None not in builds[0] and not replaced:
        note = "the same build"
    return Difference(
        key=("server", "libraries", name),
        verdict=_presence(was, now) if was or now else "changed",
        old=was,
        new=now,
        title=name,
        note=note,
        where=tuple(roles),
        changes=tuple(members),
    )


def _libraries(side: Server, role: str, name: str) -> dict[str, Library]:
    """The mapped copies of a library: path, or name where the path is not known, to what is known of it."""
    process = side.processes.get(role)
    if process is None or not isinstance(process.libraries, dict):
        return {}
    named = ((key, library) for key, library in process.libraries.items() if PurePosixPath(key).name == name)
    return {library.path or key: library for key, library in named}


def _mapped(side: Server, role: str, name: str) -> str:
    texts = []
    for path, library in _libraries(side, role, name).items():
        told = [library.version] if isinstance(library.version, str) else []
        told += [f"build {library.build_id[:12]}"] if isinstance(library.build_id, str) else []
        texts.append(f"{path} ({', '.join(told)})" if told else path)
    return "; ".join(texts)


def _builds(side: Server, role: str, name: str) -> set[str | None]:
    builds = {library.build_id for library in _libraries(side, role, name).values()}
    return {_known(build) for build in builds}


# --------------------------------------------------------------------------------------------------------------------
# trees


@_shows("trees")
def _trees(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    old, new = _sides(pair, Trees)
    twins = _moved_roots(old, new)
    places = {**dict.fromkeys(twins), **{after: before for before, after in twins.items()}}
    files: dict[tuple[str, str], list[Change]] = {}
    elsewhere: list[Change] = []
    rest: list[Change] = []
    for change in changes:
        match change.key:
            case (_, "trees", root, *_) if root in places:
                elsewhere.append(change)
            case (_, "trees", root, "files", path, *_) if root in old.trees and root in new.trees:
                files.setdefault((root, path), []).append(change)
            case _:
                rest.append(change)
    alone = len(new.trees) == 1
    for difference in general(pair, rest):
        yield _commit(difference, alone=alone)
    modes: dict[str, list[tuple[str, list[Change]]]] = {}
    for (root, path), members in files.items():
        sides = [file for side in (old, new) if (file := _file_of(side.trees[root], path)) is not None]
        if all(file.change == "mode" for file in sides):
            modes.setdefault(root, []).append((path, members))
    for root, found_ones in modes.items():
        if len(found_ones) >= MODES_TOGETHER:
            yield _modes(root, found_ones)
            files = {
                key: members for key, members in files.items() if key not in {(root, path) for path, _ in found_ones}
            }
    for (root, path), members in files.items():
        was, now = (_file_of(side.trees[root], path) for side in (old, new))
        difference = _local_file(root, path, was, now, members)
        moved_base = difference.note == SAME_CHANGE
        yield replace(difference, factor=None if moved_base else f"tree:{_prefix(root, alone=alone)}{path}")
    yield from _moved_trees(old, new, twins, elsewhere)


MODES_TOGETHER = 3
"""From this many files on that differ in nothing but their permission bits, they are one difference."""


def _modes(root: str, found_ones: list[tuple[str, list[Change]]]) -> Difference:
    """Files of which only the permission bits changed: what a file system without such bits shows for all of them."""
    counts = [
        sum(any(getattr(change, side) is not None for change in members) for _, members in found_ones)
        for side in ("old", "new")
    ]
    was, now = (f"{number} files with other permission bits" if number else None for number in counts)
    return Difference(
        key=("trees", "trees", root, "modes"),
        verdict=_presence(was, now),
        old=was,
        new=now,
        title=f"permission bits in {PurePosixPath(root).name}",
        note="no contents differ; a mount without permission bits shows this, and git can be told so (core.fileMode)",
        details=tuple(path for path, _ in found_ones),
        changes=tuple(change for _, members in found_ones for change in members),
    )


def _moved_roots(old: Trees, new: Trees) -> dict[str, str]:
    """Old root to new root of trees that lie at another path: those of one name, or the only one that is left."""
    gone = [root for root in old.trees if root not in new.trees]
    come = [root for root in new.trees if root not in old.trees]
    twins: dict[str, str] = {}
    for root in gone:
        named = [other for other in come if PurePosixPath(other).name == PurePosixPath(root).name]
        if len(named) == 1 and named[0] not in twins.values():
            twins[root] = named[0]
    left = [root for root in gone if root not in twins], [root for root in come if root not in twins.values()]
    if len(left[0]) == len(left[1]) == 1:
        twins[left[0][0]] = left[1][0]
    return twins


def _moved_trees(old: Trees, new: Trees, twins: Mapping[str, str], changes: list[Change]) -> Iterator[Difference]:
    """Trees at another path, compared with each other. No launch can switch what lies in another place."""
    for before, after in twins.items():
        by_step: dict[Key, list[Change]] = {}
        for change in changes:
            if change.key[2] in {before, after}:
                by_step.setdefault(change.key[3:], []).append(change)
        same = [sides for sides in by_step.values() if len(sides) == 2 and same_leaf(*_both(sides))]
        yield Difference(
            key=("trees", "trees", after),
            verdict="changed",
            old=before,
            new=after,
            title=f"place of {PurePosixPath(after).name}",
            note="the same tree at another path",
            changes=tuple(change for sides in same for change in sides),
        )
        files: dict[str, list[Change]] = {}
        for step, sides in by_step.items():
            if sides in same:
                continue
            if step[0] == "files":
                files.setdefault(step[1], []).extend(sides)
            else:
                was, now = _both(sides)
                key = ("trees", "trees", after, *step)
                plain = Difference(key, judge(was, now), was, now, title=" ".join(step), changes=tuple(sides))
                yield replace(_commit(plain, alone=True), factor=None)
        for path, sides in files.items():
            yield _local_file(after, path, _file_of(old.trees[before], path), _file_of(new.trees[after], path), sides)


def _both(sides: list[Change]) -> tuple[Leaf | None, Leaf | None]:
    was = next((change.old for change in sides if change.old is not None), None)
    return was, next((change.new for change in sides if change.new is not None), None)


def _file_of(tree: Tree | Unread, path: str) -> LocalFile | None:
    return tree.files.get(path) if isinstance(tree, Tree) else None


def _commit(difference: Difference, *, alone: bool) -> Difference:
    match difference.key:
        case (_, "trees", root, "commit"):
            factor = f"tree:{_prefix(root, alone=alone)}commit"
            return replace(difference, factor=factor, title=f"commit of {PurePosixPath(root).name}")
    return difference


def _prefix(root: str, *, alone: bool) -> str:
    """What sets factors of several trees apart."""
    return "" if alone else f"{PurePosixPath(root).name}/"


def _local_file(
    root: str, path: str, was: LocalFile | None, now: LocalFile | None, members: list[Change]
) -> Difference:
    gone, come, both = apart(_patch(was), _patch(now))
    details = [f"old only {hunk}" for hunk in gone] + [f"new only {hunk}" for hunk in come]
    note = ""
    if was and now and not gone and not come and both:
        note = SAME_CHANGE
    elif both:
        note = f"{len(both)} hunk{'s' * (len(both) > 1)} on both sides"
    return Difference(
        key=("trees", "trees", root, "files", path),
        verdict=_presence(was, now),
        old=_local(was),
        new=_local(now),
        title=path,
        note=note,
        details=tuple(details),
        changes=tuple(members),
    )


def _patch(file: LocalFile | None) -> str:
    return file.patch if file is not None and isinstance(file.patch, str) else ""


def _local(file: LocalFile | None) -> str | None:
    if file is None:
        return None
    count = len(hunks(_patch(file)))
    return f"{file.change}, {count} hunk{'s' * (count != 1)}" if count else file.change


# --------------------------------------------------------------------------------------------------------------------
# startup


@_shows("startup")
def _startup(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    old, new = _sides(pair, Startup)
    files: dict[str, list[Change]] = {}
    rest: list[Change] = []
    for change in changes:
        if change.key[1] == "files":
            files.setdefault(change.key[2], []).append(change)
        else:
            rest.append(change)
    for name, members in files.items():
        was, now = old.files.get(name), new.files.get(name)
        yield Difference(
            key=("startup", "files", name),
            verdict=_presence(was, now),
            old=_kept_text(was),
            new=_kept_text(now),
            title=name,
            note=_startup_note(was, now),
            details=tuple(_changed_lines(was, now)),
            changes=tuple(members),
            factor=f"startup:{name.removesuffix('.py')}",
        )
    yield from general(pair, rest)


def _kept_text(file: StartupFile | SettingsFile | None) -> str | None:
    if file is None:
        return None
    return f"{file.path} ({file.sha256[:12] if isinstance(file.sha256, str) else 'not read'})"


def _startup_note(was: StartupFile | None, now: StartupFile | None) -> str:
    if was and now and was.sha256 == now.sha256:
        return "the same contents in another place"
    runs = any(file is not None and file.runs_code for file in (was, now))
    return "runs code in every Python process" if runs else "only adds directories to the path"


MOST_LINES = 60
"""Lines of one changed file that are told."""


def _changed_lines(was: _Text | None, now: _Text | None) -> list[str]:
    """The lines in which two texts differ; of many the first ones, and how many more there are."""
    before, after = (_lines(file) for file in (was, now))
    marked = islice(difflib.unified_diff(before, after, lineterm="", n=0), 2, None)  # without the two names of files
    lines = [line for line in marked if not line.startswith("@@")]
    hidden = len(lines) - MOST_LINES
    return lines if hidden <= 0 else [*lines[:MOST_LINES], f"and {hidden} more lines"]


def _lines(file: _Text | None) -> list[str]:
    return file.text.splitlines() if file is not None and isinstance(file.text, str) else []


S = TypeVar("S", bound=Section)


def _sides(pair: Pair, model: type[S]) -> tuple[S, S]:
    """Both sides as the model that the section's name promises."""
    if not isinstance(pair.old, model) or not isinstance(pair.new, model):
        raise TypeError(f"section {pair.name} is not a {model.__name__}")
    return pair.old, pair.new


# --------------------------------------------------------------------------------------------------------------------
# host


@_shows("host")
def _host(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    for difference in general(pair, changes):
        if difference.key == ("host", "command_line"):
            before, after = (str(side or "").split() for side in (difference.old, difference.new))
            words = [f"old only {word}" for word in before if word not in after]
            words += [f"new only {word}" for word in after if word not in before]
            yield replace(difference, title="kernel command line", details=tuple(words))
        else:
            yield difference


# --------------------------------------------------------------------------------------------------------------------
# NCCL and models


@_shows("nccl")
def _nccl(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    """A setting and where it comes from are one difference."""
    old, new = _sides(pair, Nccl)
    settings: dict[str, list[Change]] = {}
    rest: list[Change] = []
    for change in changes:
        if change.key[1] in {"settings", "origins"}:
            settings.setdefault(change.key[2], []).append(change)
        else:
            rest.append(change)
    for name, members in settings.items():
        was, now = old.settings.get(name), new.settings.get(name)
        origins = [side.origins.get(name) for side in (old, new)]
        moved = origins[0] != origins[1] and None not in origins
        yield Difference(
            key=("nccl", "settings", name),
            verdict=judge(was, now) if was != now else "changed",
            old=was,
            new=now,
            title=f"NCCL goes by {name}",
            note=f"from {origins[0]}, then from {origins[1]}" if moved else f"from {origins[1] or origins[0]}",
            changes=tuple(members),
        )
    for difference in general(pair, rest):
        match difference.key:
            case (_, "named_files", name, "sha256"):
                files = old.named_files.get(name), new.named_files.get(name)
                yield replace(difference, title=f"file of {name}", details=tuple(_changed_lines(*files)))
            case _:
                yield difference


@_shows("models")
def _models(pair: Pair, changes: list[Change]) -> Iterator[Difference]:
    """One difference for each model, with the files that differ."""
    of: dict[str, list[Change]] = {}
    rest: list[Change] = []
    for change in changes:
        if change.key[1] == "models":
            of.setdefault(change.key[2], []).append(change)
        else:
            rest.append(change)
    for role, members in of.items():
        sides = [found(side, ("models", role)) for side in (pair.old, pair.new)]
        files = sorted({change.key[4] for change in members if change.key[3:4] == ("files",)})
        others = [change for change in members if change.key[3:4] != ("files",)]
        yield Difference(
            key=("models", "models", role),
            verdict=_presence(*sides),
            old=_model_words(sides[0]),
            new=_model_words(sides[1]),
            title=f"{role} model",
            note=_model_note(sides, files, others),
            details=(
                *(f"{'.'.join(change.key[3:])}: {_shown(change.old)} \u2192 {_shown(change.new)}" for change in others),
                *(line for name in files for line in _model_lines(name, sides)),
            ),
            changes=tuple(members),
        )
    yield from general(pair, rest)


def _model_lines(name: str, sides: list[object]) -> Iterator[str]:
    """The name of a file that differs, and its lines where both sides tell them."""
    yield name
    was, now = (side.files.get(name) if isinstance(side, Model) else None for side in sides)
    if isinstance(was, ModelFile) and isinstance(now, ModelFile) and was.text and now.text:
        yield from (f"{name}: {line}" for line in _changed_lines(was, now))


def _model_note(sides: list[object], files: list[str], others: list[Change]) -> str:
    if None in sides:
        return ""
    if not files and {change.key[-1] for change in others} == {"name"}:
        return "the same files under another name"
    return f"{len(files)} files differ" if files else ""


def _model_words(model: object) -> str | None:
    if not isinstance(model, Model):
        return None
    return f"{model.name} ({model.revision[:12]})" if model.revision else model.name
