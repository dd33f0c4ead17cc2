"""Proof that a trial ran what it was meant to run: every factor is read again where it acts, in the live processes.

A check that fails makes the trial void: a measurement of something else is worse than none. Files are read through the
server's own root, so that an overlay is seen as the server sees it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from typing import Dict, List, Optional, Tuple

from probes import lifetimes, packages, processes, server, surroundings
from probes.reading import Json, attempt, is_unread, read_bytes, read_text, run
from probes.settings import SettingError, Settings

LARGEST_CHECKED_BYTES = 1 << 30


def check(checks: List[Json], launcher: int, moved: Dict[str, str], settings: Optional[Settings] = None) -> List[Json]:
    """Run every check against the server whose launcher is `launcher`.

    Args:
        checks: each has `factor`, `what` and what that needs: `variable` (`name`, `value` or None), `file` (`path`,
            `sha256` or None when it must not be there), `commit` (`root`, `value`), `committed` (`root`, `path` is as
            `commit` has it, or the one checked out), `text` (`root`, `path` holds each of `blocks`, lists of lines),
            `difference` (`root`, `path` is not, and has `sha256` where that is known), `package`
            (`name`, `location`, `version`, `record`), `word` (the command line holds one of `values`) or `no word`,
            `surrounding` (`name` and `value` as in `probes.surroundings`, `ranks`: whether they have it, too),
            `directory` (`path`), `cache` (`path`, `cold`), `setting` of the host (`name`, `value`).
        launcher: process id on this host.
        moved: live path -> path in this trial, where the trial has copies.
        settings: of the host.

    Returns:
        Each check with `ok`, and `seen`: what is there, in words.
    """
    began = lifetimes.started(launcher)
    ranks = [pid for pid in lifetimes.descendants(launcher) if server.rank_of(pid) is not None]
    results: List[Json] = []
    for one in checks:
        if one["what"] == "setting":
            ok, seen = _setting(one, settings or Settings())
        else:
            ok, seen = _CHECKS[one["what"]](one, launcher, ranks, moved)
        results.append({**one, "ok": ok, "seen": seen})
    if lifetimes.started(launcher) != began or lifetimes.is_zombie(launcher):  # what was not there proves nothing
        return [{**one, "ok": False, "seen": "the process ended while it was looked at"} for one in checks]
    return results


def _variable(one: Json, launcher: int, ranks: List[int], _moved: Dict[str, str]) -> Tuple[bool, str]:
    """The variable as it is now in the launcher and in every rank."""
    wrong: List[str] = []
    for name, pid in [("the launcher", launcher), *((f"rank {server.rank_of(pid)}", pid) for pid in ranks)]:
        variables = server.current_variables(pid)
        if is_unread(variables):
            return True, f"not readable in {name}: {variables['unread']}"
        present: Optional[str] = variables.get(one["name"])
        if present != one["value"]:
            wrong.append(f"{name} has " + ("none" if present is None else repr(present)))
    if wrong:
        return False, "; ".join(wrong)
    return True, f"in the launcher and {len(ranks)} ranks"


def _file(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    path = _placed(one["path"], moved)
    try:
        digest = hashlib.sha256(read_bytes(f"/proc/{launcher}/root{path}", LARGEST_CHECKED_BYTES)).hexdigest()
    except FileNotFoundError:
        return one["sha256"] is None, "not there"
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    return digest == one["sha256"], f"sha256 {digest[:12]}"


def _commit(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    root = f"/proc/{launcher}/root{_placed(one['root'], moved)}"
    try:
        head = _head(root, f"/proc/{launcher}/root")
    except OSError as error:
        return False, f"HEAD cannot be read: {error.strerror}"
    return head == one["value"], f"HEAD is {head[:12]}"


def _head(tree: str, outside: str) -> str:
    """What is checked out in a work tree, also in a submodule or a linked one, whose `.git` names a directory."""
    place = f"{tree}/.git"
    if os.path.isfile(place):
        named = read_text(place).partition("gitdir:")[2].strip()
        place = outside + named if named.startswith("/") else os.path.normpath(os.path.join(tree, named))
    return read_text(f"{place}/HEAD").strip()


def _word(one: Json, launcher: int, _ranks: List[int], _moved: Dict[str, str]) -> Tuple[bool, str]:
    words = read_text(f"/proc/{launcher}/cmdline", 1 << 20).split("\0")
    there = [value for value in one["values"] if value in words or any(word.startswith(value + "=") for word in words)]
    return bool(there), "on the command line" if there else f"the command line is {json.dumps(words)[:300]}"


def _no_word(one: Json, launcher: int, ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    there, seen = _word(one, launcher, ranks, moved)
    return not there, seen if there else "not on the command line"


def _committed(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    """Whether a file of the tree is byte for byte what the checked-out commit has."""
    place = f"/proc/{launcher}/root{_placed(one['root'], moved)}"
    head = one.get("commit") or _head(place, f"/proc/{launcher}/root")
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


def _text(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    """Whether a file of the tree holds some blocks of lines, each in one piece."""
    path = f"/proc/{launcher}/root{_placed(one['root'], moved)}/{one['path']}"
    try:
        text = "\n" + read_bytes(path, LARGEST_CHECKED_BYTES).decode("utf-8", "replace") + "\n"
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    missing = [block for block in one["blocks"] if "\n" + "\n".join(block) + "\n" not in text]
    if missing:
        return False, f"{len(missing)} of {len(one['blocks'])} places read otherwise, the first near {missing[0][0]!r}"
    return True, f"{len(one['blocks'])} places read as meant"


def _difference(one: Json, launcher: int, ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    """Whether a file of the tree carries its local difference."""
    path = _placed(one["root"], moved) + "/" + one["path"]
    there = os.path.lexists(f"/proc/{launcher}/root{path}")
    if one["change"] == "deleted":
        return not there, "there" if there else "deleted"
    exact, seen = _file({"path": path, "sha256": one["sha256"]}, launcher, ranks, {})
    if exact:
        return True, seen
    committed, how = _committed(one, launcher, ranks, moved)
    return there and not committed, f"{how}, on another commit than its own"


def _package(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    location = f"/proc/{launcher}/root{_placed(one['location'], moved)}"
    found = packages.installed(location, one["name"])
    if found is None:
        return one["version"] is None, "not installed"
    version, record = found
    right = version == one["version"] and (one["record"] is None or is_unread(one["record"]) or record == one["record"])
    return right, f"{version}, RECORD {str(record)[:12]}"


def _surrounding(one: Json, launcher: int, ranks: List[int], _moved: Dict[str, str]) -> Tuple[bool, str]:
    """What the launcher was given, and whether the ranks have it."""
    wrong: List[str] = []
    for name, pid in [("the launcher", launcher), *((f"rank {server.rank_of(pid)}", pid) for pid in ranks)]:
        there = attempt(functools.partial(surroundings.seen, pid, one["name"]))
        if not surroundings.equal(one["name"], one["value"], there):
            if one["name"] == "limits" and not is_unread(there):
                there = {limit: there.get(limit) for limit in one["value"]}
            wrong.append(f"{name} has {there['unread'] if is_unread(there) else there}")
        if not one["ranks"]:
            break
    if wrong:
        return False, "; ".join(wrong)
    return True, f"in the launcher and {len(ranks)} ranks" if one["ranks"] else "in the launcher; ranks get their own"


def _directory(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    try:
        there = os.readlink(f"/proc/{launcher}/cwd")
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    return there == _placed(one["path"], moved), there


def _cache(one: Json, launcher: int, _ranks: List[int], moved: Dict[str, str]) -> Tuple[bool, str]:
    """Whether a cache is not the live one, and, where it was to be cold, holds nothing from before the launch."""
    path = f"/proc/{launcher}/root{_placed(one['path'], moved)}"
    try:
        live, there = os.stat(one["path"]), os.stat(path)
    except OSError as error:
        return False, f"cannot be read: {error.strerror}"
    if (live.st_dev, live.st_ino) == (there.st_dev, there.st_ino):
        return False, "the live cache itself"
    before = processes.started_at(launcher) - 1.0
    count = 0
    for place, _, names in os.walk(path):
        for name in names:
            count += 1
            if one["cold"] and os.lstat(os.path.join(place, name)).st_ctime < before:
                return False, f"holds {name} from before the launch"
    return True, f"{'cold' if one['cold'] else 'a private copy'}, {count} files"


def _setting(one: Json, settings: Settings) -> Tuple[bool, str]:
    """A setting of the host, read again while the server runs."""
    try:
        there = settings.read(list(settings.expanded({one["name"]: one["value"]})))
    except SettingError as error:
        return False, str(error)
    wrong = [f"{name} is {value}" for name, value in there.items() if str(value) != str(one["value"])]
    return not wrong, "; ".join(wrong) or f"is {one['value']}"


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
    "word": _word,
    "no word": _no_word,
    "surrounding": _surrounding,
    "directory": _directory,
    "cache": _cache,
}
