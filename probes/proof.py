"""Proof that a trial ran what it was meant to run: every factor is read again where it acts, in the live processes.

A check that fails makes the trial void: a measurement of something else is worse than none. Files are read through the
server's own root, so that an overlay is seen as the server sees it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from probes import (
    digests,
    information,
    interpreter,
    keeper,
    lifetimes,
    measure,
    packages,
    processes,
    server,
    surroundings,
    tree,
)
from probes.reading import Json, attempt, is_unread, read_bytes, read_text, run, unread
from probes.secrets import Keeper
from probes.settings import SettingError, Settings

LARGEST_CHECKED_BYTES = 1 << 30
SMALL_BYTES = 1 << 20
"""Files of a package up to this size are digested as installed; larger ones where a process has them mapped."""


class Trial(NamedTuple):
    """What is looked at.

    Attributes:
        launcher: process id on this host.
        ranks: those of its ranks.
        moved: live path -> path in this trial, where the trial has copies.
        settings: of the host.
        written: directory -> path below it -> SHA-256 of what the trial has put there.
        secrets: replaces those that would be told.
        told: the arguments as the server says that it resolved them, or why it does not.
        imports: directories outside the environment from which the server imports, in order, where trees were copied.
    """

    launcher: int
    ranks: List[int]
    moved: Dict[str, str]
    settings: Settings
    written: Dict[str, Dict[str, str]]
    secrets: Keeper
    told: Json
    imports: List[str]


def check(
    checks: List[Json],
    launcher: int,
    moved: Dict[str, str],
    settings: Optional[Settings] = None,
    written: Optional[Dict[str, Dict[str, str]]] = None,
    secrets: Optional[Keeper] = None,
) -> List[Json]:
    """Run every check against the server whose launcher is `launcher`.

    Args:
        checks: each has `factor`, `what` and what that needs: `variable` (`name`, `value` or None), `file` (`path`,
            `sha256` or None when it must not be there), `commit` (`root`, `value`), `committed` (`root`, `path` is as
            `commit` has it, or the one checked out), `text` (`root`, `path` holds each of `blocks`, lists of lines),
            `difference` (`root`, `path` is not, and has `sha256` where that is known), `package`
            (`name`, `location`, `version`, `record`), `word` (the command line holds one of `values`) or `no word`,
            `argument` (the server says that one of `names` is `words`, or one of `values`), `surrounding` (`name` and
            `value` as in `probes.surroundings`, `ranks`: whether they have it, too), `directory` (`path`), `cache`
            (`path`, `cold`), `setting` of the host (`name`, `value`).
        launcher: process id on this host.
        moved: live path -> path in this trial, where the trial has copies.
        settings: of the host.
        written: directory -> path below it -> SHA-256 of what the trial has put there.
        secrets: replaces secrets as the snapshots have them, in what is compared with them and in all that is told.

    Returns:
        Each check with `ok`, and `seen`: what is there, in words.
    """
    began = lifetimes.started(launcher)
    secrets = secrets or Keeper(b"proof")
    trial = Trial(
        launcher,
        [pid for pid in lifetimes.descendants(launcher) if server.rank_of(pid) is not None],
        moved,
        settings or Settings(),
        written or {},
        secrets,
        attempt(lambda: _told(launcher, secrets)) if any(one["what"] == "argument" for one in checks) else {},
        _imports(launcher) if moved else [],
    )
    results: List[Json] = []
    for one in checks:
        ok, seen = _CHECKS[one["what"]](one, trial)
        results.append({**one, "ok": ok, "seen": seen})
    if lifetimes.started(launcher) != began or lifetimes.is_zombie(launcher):  # what was not there proves nothing
        return [{**one, "ok": False, "seen": "the process ended while it was looked at"} for one in checks]
    return results


def _told(launcher: int, secrets: Keeper) -> Json:
    """The arguments of a server on loopback, as it resolved them."""
    argv = processes.argv(launcher)
    port = server.option(argv, "--port") or ""
    if not port.isdigit():
        return unread("no port")
    words = server.configured(argv, launcher)
    at = measure.Server(int(port), key=server.admin_key_of(words), secure=server.is_secure(words))
    return server.cleaned(information.arguments(information.ask(at)), secrets)


def _imports(launcher: int) -> List[str]:
    """Where a server that shares our file system imports from, outside of its environment."""
    try:
        argv, cwd = processes.argv(launcher), os.readlink(f"/proc/{launcher}/cwd")
        serving = {
            "argv": argv, "cwd": cwd, "variables": processes.variables_at_exec(launcher),
            "executable": os.readlink(f"/proc/{launcher}/exe"),
        }  # fmt: skip
        found = interpreter.deduce({"ask": {}, "serving": serving})
    except OSError:
        return []
    return tree.import_directories(found, serving) if isinstance(found, interpreter.Interpreter) else []


def _processes(trial: Trial) -> List[Tuple[str, int]]:
    """The launcher and each rank, as they are called."""
    return [("the launcher", trial.launcher), *((server.rank_of(pid) or f"pid {pid}", pid) for pid in trial.ranks)]


def _variable(one: Json, trial: Trial) -> Tuple[bool, str]:
    """The variable as it is now in the launcher and in every rank; where that is closed to us, as it was at the start.

    A rank writes its title over what it was started with; one that cannot be read at all is said, and the launcher
    decides.
    """
    wanted = None if one["value"] is None else _in_place(one["value"], trial)
    wrong: List[str] = []
    closed: List[str] = []
    for name, pid in _processes(trial):
        variables = server.current_variables(pid)
        if is_unread(variables):
            closed.append(f"not readable in {name}: {variables['unread']}")
            variables = attempt(functools.partial(processes.variables_at_exec, pid))
            if is_unread(variables) and pid == trial.launcher:
                wrong.append(closed.pop())
            if is_unread(variables):
                continue
        present: Optional[str] = variables.get(one["name"])
        shown = None if present is None else trial.secrets.value(one["name"], present)
        if one["value"] not in {present, shown} and present != wanted:
            wrong.append(f"{name} has " + ("none" if shown is None else repr(shown)))
    if wrong and len(wrong) == len(trial.ranks) and wrong[0].startswith("rank"):
        return False, f"it is right in the launcher and in no rank, where something replaced it: {'; '.join(wrong)}"
    if wrong:
        return False, "; ".join(wrong)
    return True, "; ".join([f"in the launcher and {len(trial.ranks)} ranks", *closed])


def _file(one: Json, trial: Trial) -> Tuple[bool, str]:
    path = _placed(one["path"], trial.moved)
    try:
        digest = hashlib.sha256(read_bytes(f"/proc/{trial.launcher}/root{path}", LARGEST_CHECKED_BYTES)).hexdigest()
    except FileNotFoundError:
        return one["sha256"] is None, "not there"
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    return digest == one["sha256"], f"sha256 {digest[:12]}"


def _commit(one: Json, trial: Trial) -> Tuple[bool, str]:
    root = f"/proc/{trial.launcher}/root{_placed(one['root'], trial.moved)}"
    try:
        head = _head(root, f"/proc/{trial.launcher}/root")
    except OSError as error:
        return False, f"HEAD cannot be read: {error.strerror}"
    live = _imported_live(one["root"], trial)
    return head == one["value"] and live is None, live or f"HEAD is {head[:12]}"


def _imported_live(root: str, trial: Trial) -> Optional[str]:
    """That the server imports from the live tree rather than from its copy, in words; None where it does not."""
    for place in trial.imports:
        moved = _placed(place, {root: trial.moved[root]}) if root in trial.moved else place
        if moved != place and moved not in trial.imports[: trial.imports.index(place)]:
            return f"it is imported from {place}, not from the copy"
    return None


def _head(tree: str, outside: str) -> str:
    """What is checked out in a work tree, also in a submodule or a linked one, whose `.git` names a directory."""
    place = f"{tree}/.git"
    if os.path.isfile(place):
        named = read_text(place).partition("gitdir:")[2].strip()
        place = outside + named if named.startswith("/") else os.path.normpath(os.path.join(tree, named))
    return read_text(f"{place}/HEAD").strip()


def _word(one: Json, trial: Trial) -> Tuple[bool, str]:
    words = read_text(f"/proc/{trial.launcher}/cmdline", 1 << 20).split("\0")
    shown = trial.secrets.argv(words)
    wanted = {*one["values"], *(_in_place(value, trial) for value in one["values"])}
    there = any(word in wanted or word.startswith(tuple(f"{value}=" for value in wanted)) for word in (*words, *shown))
    return there, "on the command line" if there else f"the command line is {json.dumps(shown)[:300]}"


def _no_word(one: Json, trial: Trial) -> Tuple[bool, str]:
    there, seen = _word(one, trial)
    return not there, seen if there else "not on the command line"


def _committed(one: Json, trial: Trial) -> Tuple[bool, str]:
    """Whether a file of the tree is byte for byte what the checked-out commit has."""
    live = _imported_live(one["root"], trial)
    if live is not None:
        return False, live
    place = f"/proc/{trial.launcher}/root{_placed(one['root'], trial.moved)}"
    head = one.get("commit") or _head(place, f"/proc/{trial.launcher}/root")
    wanted = run(["git", "-c", "safe.directory=*", "-C", one["root"], "rev-parse", f"{head}:{one['path']}"], 20.0)
    try:
        data = read_bytes(f"{place}/{one['path']}", LARGEST_CHECKED_BYTES)
    except OSError:
        return wanted.reason is not None, "not there"
    if wanted.reason is not None:
        return False, "there, though the commit does not have it"
    expected = wanted.text().strip()
    algorithm = hashlib.sha256 if len(expected) == 64 else hashlib.sha1
    same = algorithm(b"blob %d\0" % len(data) + data).hexdigest() == expected
    return same, "as committed" if same else "other than committed"


def _text(one: Json, trial: Trial) -> Tuple[bool, str]:
    """Whether a file of the tree holds some blocks of lines, each in one piece."""
    live = _imported_live(one["root"], trial)
    if live is not None:
        return False, live
    path = f"/proc/{trial.launcher}/root{_placed(one['root'], trial.moved)}/{one['path']}"
    try:
        text = "\n" + read_bytes(path, LARGEST_CHECKED_BYTES).decode("utf-8", "replace") + "\n"
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    missing = [block for block in one["blocks"] if "\n" + "\n".join(block) + "\n" not in text]
    if missing:
        return False, f"{len(missing)} of {len(one['blocks'])} places read otherwise, the first near {missing[0][0]!r}"
    return True, f"{len(one['blocks'])} places read as meant"


def _difference(one: Json, trial: Trial) -> Tuple[bool, str]:
    """Whether a file of the tree carries its local difference."""
    live = _imported_live(one["root"], trial)
    if live is not None:
        return False, live
    path = _placed(one["root"], trial.moved) + "/" + one["path"]
    there = os.path.lexists(f"/proc/{trial.launcher}/root{path}")
    if one["change"] == "deleted":
        return not there, "there" if there else "deleted"
    exact, seen = _file({"path": path, "sha256": one["sha256"]}, trial._replace(moved={}))
    if exact:
        return True, seen
    committed, how = _committed(one, trial)
    return there and not committed, f"{how}, on another commit than its own"


def _argument(one: Json, trial: Trial) -> Tuple[bool, str]:
    """What the engine made of a flag, as far as it says."""
    if is_unread(trial.told):
        return True, f"the server does not say what it made of it: {trial.told['unread']}"
    name = next((name for name in one["names"] if name in trial.told), None)
    if name is None:
        return True, "not among the arguments that the server tells of"
    there = trial.told[name]
    if there in one["values"] or _means([_in_place(word, trial) for word in one["words"]], there):
        return True, f"resolved as {json.dumps(there)[:100]}"
    return False, f"it is on the command line, and the engine made {name} {json.dumps(there)[:100]} of it"


def _means(words: List[str], there: Json) -> bool:
    """Whether the words after a flag say this value."""
    if not words:
        return there not in (None, False)
    if isinstance(there, list):
        return words in ([str(one) for one in there], [",".join(map(str, there))])
    text = " ".join(words)
    for read in (float, json.loads, str.lower):
        with contextlib.suppress(ValueError, TypeError):
            if read(text) == (read(there) if isinstance(there, str) else there):
                return True
    return text.lower() == str(there).lower()


def _package(one: Json, trial: Trial) -> Tuple[bool, str]:
    """Whether it is installed as wanted, its files are those that were sent, and its libraries are the ones in use."""
    location = f"/proc/{trial.launcher}/root{_placed(one['location'], trial.moved)}"
    found = packages.installed(location, one["name"])
    if found is None:
        return one["version"] is None, "not installed"
    version, record = found
    right = version == one["version"] and (one["record"] is None or is_unread(one["record"]) or record == one["record"])
    if not right:
        return False, f"{version}, RECORD {str(record)[:12]}"
    files = [path[len(location) + 1 :] for path in keeper.installed_files(location, one["name"])]
    mapped, elsewhere = _mapped(one["location"], files, trial)
    if elsewhere:
        return False, elsewhere
    sent = {path: sha256 for path, sha256 in trial.written.get(one["location"], {}).items() if path in files}
    read = 0
    for path, sha256 in sorted(sent.items()):
        place = f"{location}/{path}"
        try:
            if path not in mapped and os.stat(place).st_size > SMALL_BYTES:
                continue
            same = digests.of_file(place)[0] == sha256
        except OSError as error:
            return False, f"{path} cannot be read: {error.strerror or error}"
        if not same:
            return False, f"{path} is not the file that was sent"
        read += 1
    words = [f"{version}, RECORD {str(record)[:12]}"]
    words += [f"{read} of {len(sent)} files read again"] if sent else []
    words += [f"{len(mapped)} of its libraries mapped"] if mapped else []
    return True, ", ".join(words)


def _mapped(live: str, files: List[str], trial: Trial) -> Tuple[Set[str], str]:
    """Files of a package that a process has mapped, and the library that one has from elsewhere in place of its own."""
    location = _placed(live, trial.moved)
    libraries = {os.path.basename(path) for path in files if ".so" in os.path.basename(path)}
    known, mapped = set(files), set()
    for name, pid in _processes(trial) if libraries else []:
        try:
            entries = processes.mappings(pid)
        except OSError:
            continue
        own = {one.path[len(location) + 1 :]: one for one in entries if one.path.startswith(f"{location}/")}
        mapped |= known & own.keys()
        gone = next((path for path in sorted(known & own.keys()) if own[path].deleted), None)
        if gone is not None:
            return mapped, f"{name} has another {gone} mapped than the one that lies there"
        loaded = {os.path.basename(path) for path in known & own.keys()}
        for entry in entries:
            library = os.path.basename(entry.path)
            of_live = location != live and entry.path.startswith(f"{live}/")  # by a path that was built in
            if library in libraries - loaded and (of_live or "-packages/" not in entry.path):
                return mapped, f"{name} has {library} of {os.path.dirname(entry.path)} mapped, not the package's own"
    return mapped, ""


def _surrounding(one: Json, trial: Trial) -> Tuple[bool, str]:
    """What the launcher was given, and whether the ranks have it."""
    wrong: List[str] = []
    for name, pid in _processes(trial):
        there = attempt(functools.partial(surroundings.seen, pid, one["name"]))
        if not surroundings.equal(one["name"], one["value"], there):
            if one["name"] == "limits" and not is_unread(there):
                there = {limit: there.get(limit) for limit in one["value"]}
            wrong.append(f"{name} has {there['unread'] if is_unread(there) else there}")
        if not one["ranks"]:
            break
    if wrong:
        return False, "; ".join(wrong)
    return True, f"in the launcher and {len(trial.ranks)} ranks" if one[
        "ranks"
    ] else "in the launcher; ranks get their own"


def _directory(one: Json, trial: Trial) -> Tuple[bool, str]:
    try:
        there = os.readlink(f"/proc/{trial.launcher}/cwd")
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    return there == _placed(one["path"], trial.moved), there


def _cache(one: Json, trial: Trial) -> Tuple[bool, str]:
    """Whether a cache is not the live one, and, where it was to be cold, holds nothing from before the launch."""
    path = f"/proc/{trial.launcher}/root{_placed(one['path'], trial.moved)}"
    try:
        live, there = os.stat(one["path"]), os.stat(path)
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    if (live.st_dev, live.st_ino) == (there.st_dev, there.st_ino):
        return False, "the live cache itself"
    before = processes.started_at(trial.launcher) - 1.0
    count = 0
    for place, _, names in os.walk(path):
        for name in names:
            count += 1
            if one["cold"] and os.lstat(os.path.join(place, name)).st_ctime < before:
                return False, f"holds {name} from before the launch"
    return True, f"{'cold' if one['cold'] else 'a private copy'}, {count} files"


def _setting(one: Json, trial: Trial) -> Tuple[bool, str]:
    """A setting of the host, read again while the server runs."""
    try:
        there = trial.settings.read(list(trial.settings.expanded({one["name"]: one["value"]})))
    except SettingError as error:
        return False, str(error)
    wrong = [f"{name} is {value}" for name, value in there.items() if str(value) != str(one["value"])]
    return not wrong, "; ".join(wrong) or f"is {one['value']}"


def _in_place(text: str, trial: Trial) -> str:
    """A value of the launch, as it is where paths were moved."""
    for live, place in trial.moved.items():
        text = keeper.in_place(text, live, place)
    return text


def _placed(path: str, moved: Dict[str, str]) -> str:
    for live, place in moved.items():
        if path == live or path.startswith(live + "/"):
            return place + path[len(live) :]
    return path


_CHECKS = {
    "variable": _variable,
    "file": _file,
    "commit": _commit,
    "committed": _committed,
    "text": _text,
    "difference": _difference,
    "package": _package,
    "argument": _argument,
    "word": _word,
    "no word": _no_word,
    "surrounding": _surrounding,
    "directory": _directory,
    "cache": _cache,
    "setting": _setting,
}
