"""The variables that were declared for the server by what starts it: a systemd unit, or the engine of its container.

Only files are read: the unit that the server's cgroup names, with its drop-ins and environment files as they are now,
and what a container's engine wrote down when it made the container. Against the variables that the server has, they
show what was lost or changed on the way, and what only the next start will bring. Inside a container nothing is seen.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from probes import limits
from probes.reading import Json, names_in, read_text, unread

_SYSTEM = (
    "etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient", "run/systemd/generator.early",
    "etc/systemd/system", "run/systemd/system", "run/systemd/generator", "usr/local/lib/systemd/system",
    "usr/lib/systemd/system", "lib/systemd/system", "run/systemd/generator.late",
)  # fmt: skip
_USER = (
    "{home}/.config/systemd/user.control", "run/user/{uid}/systemd/transient", "{home}/.config/systemd/user",
    "etc/systemd/user", "run/systemd/user", "{home}/.local/share/systemd/user", "usr/local/lib/systemd/user",
    "usr/lib/systemd/user", "lib/systemd/user",
)  # fmt: skip
"""Where units lie, the stronger place first (systemd.unit(5))."""
_PIECE = re.compile(
    r""""(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)'|(?P<plain>(?:\\.|[^\s"'\\])+)|(?P<blank>\s+)""", re.DOTALL
)
_BACKSLASHED = {"double": re.compile(r"""\\(["\\`$])"""), "plain": re.compile(r"\\(.)", re.DOTALL)}
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)
_NAMED_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " "}
_SPECIFIER = re.compile(r"%(.)")


def read(pid: int, root: str = "/") -> Json:
    """Who declares variables for a process, and which; None where nobody is seen to.

    Raises:
        OSError: somebody does, and what they declare may not be read.
    """
    paths = limits.cgroup_paths(read_text(os.path.join(root, f"proc/{pid}/cgroup")))
    container = limits.container_of(paths)
    if container is not None:
        place, told = limits.made_of(root, *container)
        if place is None:
            return None
        named = (entry.partition("=") for entry in _entries(told))
        variables = {name: value for name, mark, value in named if mark}
        return {"by": container[0], "name": container[1], "files": [place], "variables": variables}
    path = paths.get("name=systemd") or paths.get("", "")
    name = unit_of(path)
    if name is None:
        return None
    owner = re.search(r"/user@(\d+)\.service/", path)
    unit = _unit(name, int(owner[1]) if owner else None, root)
    if not unit.files:
        return None
    return {"by": "systemd", "name": name, "files": unit.files, "variables": unit.variables}


def _entries(told: Json) -> List[str]:
    """The variables in what an engine wrote down: Docker's own form, or that of the Open Container Initiative."""
    for part, name in (("Config", "Env"), ("process", "env")):
        found = (told.get(part) or {}).get(name) if isinstance(told, dict) else None
        if isinstance(found, list):
            return [entry for entry in found if isinstance(entry, str)]
    return []


def unit_of(path: str) -> Optional[str]:
    """The service that a cgroup is of; None for a login session and other scopes."""
    for part in reversed(path.split("/")):
        if part.endswith(".service"):
            return part
        if part.endswith((".scope", ".slice")):
            return None
    return None


class _Unit(NamedTuple):
    files: List[str]
    variables: Dict[str, Json]


def _unit(name: str, owner: Optional[int], root: str) -> _Unit:
    """A unit's files, and the variables that they declare in the end."""
    places, specifiers = _places(owner), _specifiers(name, owner)
    environment: Dict[str, Json] = {}
    sources: List[str] = []
    gone: List[str] = []
    files = _fragments(name, [os.path.join(root, place.lstrip("/")) for place in places])
    for path in files:
        for key, text in settings(read_text(path)):
            if key == "Environment":
                environment = environment if text else {}
                for word in words(text):
                    variable, mark, value = word.partition("=")
                    environment.update({variable: _expanded(value, specifiers)} if mark else {})
            elif key == "EnvironmentFile":
                sources = [*sources, text] if text else []
            elif key == "UnsetEnvironment":
                gone = [*gone, *words(text)] if text else []
    for source in sources:
        place = _expanded(source.lstrip("-"), specifiers)
        for path in sorted(glob.glob(os.path.join(root, place.lstrip("/")))) if isinstance(place, str) else []:
            files.append(path)
            environment.update(assignments(read_text(path)))
    for word in gone:
        variable, mark, value = word.partition("=")
        if not mark or environment.get(variable) == value:
            environment.pop(variable, None)
    return _Unit([f"/{os.path.relpath(path, root)}" for path in files], environment)


def _places(owner: Optional[int]) -> List[str]:
    if owner is None:
        return list(_SYSTEM)
    try:
        home = pwd.getpwuid(owner).pw_dir
    except KeyError:
        home = "/nonexistent"
    return [place.format(home=home, uid=owner) for place in _USER]


def _specifiers(name: str, owner: Optional[int]) -> Dict[str, str]:
    """What `%i` and the like stand for, as far as it is known outside systemd."""
    stem = name[: -len(".service")]
    prefix, _, instance = stem.partition("@")
    known = {"%": "%", "n": name, "N": stem, "p": prefix, "i": instance, "I": instance.replace("-", "/")}
    known["H"] = os.uname().nodename
    try:
        user = pwd.getpwuid(owner or 0)
    except KeyError:
        return known
    return {**known, "h": user.pw_dir, "u": user.pw_name, "U": str(user.pw_uid)}


def _expanded(text: str, specifiers: Dict[str, str]) -> Json:
    unknown = [letter for letter in _SPECIFIER.findall(text) if letter not in specifiers]
    if unknown:
        return unread(f"it holds %{unknown[0]}, which only systemd knows")
    return _SPECIFIER.sub(lambda found: specifiers[found[1]], text)


def _fragments(name: str, places: List[str]) -> List[str]:
    """The file of a unit and its drop-ins, in the order in which systemd goes by them."""
    stem, at, _ = name[: -len(".service")].partition("@")
    names = [name, f"{stem}@.service"] if at else [name]
    own = (os.path.join(place, one) for one in names for place in places)
    found = [path for path in own if os.path.isfile(path)][:1]
    parts = stem.split("-")
    wider = ["-".join(parts[:length]) + "-.service" for length in range(len(parts) - 1, 0, -1)]
    drops: Dict[str, str] = {}
    for one in (*names, *wider, "service"):
        for place in places:
            for drop in names_in(os.path.join(place, f"{one}.d")):
                if drop.endswith(".conf"):
                    drops.setdefault(drop, os.path.join(place, f"{one}.d", drop))
    # One that is a link to /dev/null hides those of its name.
    return [*found, *(drops[drop] for drop in sorted(drops) if os.path.isfile(drops[drop]))] if found else []


def settings(text: str) -> Iterator[Tuple[str, str]]:
    """The settings of a unit's service, in order."""
    section = held = ""
    for line in text.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        held += line
        if held.endswith("\\"):
            held = held[:-1] + " "
            continue
        name, mark, value = held.partition("=")
        if held.strip().startswith("["):
            section = held.strip()
        elif mark and section == "[Service]":
            yield name.strip(), value.strip()
        held = ""


def assignments(text: str) -> Dict[str, str]:
    """The variables of an environment file: as in a shell, but for expansion."""
    found: Dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        name, mark, value = line.strip().partition("=")
        if mark and not name.startswith(("#", ";")):
            found[name.strip()] = "".join(
                piece if kind in {"single", "blank"} else _BACKSLASHED[kind].sub(r"\1", piece)
                for kind, piece in _pieces(value.strip())
            )
    return found


def words(text: str) -> List[str]:
    """The words of a setting, without their quotes and escapes."""
    found: List[str] = []
    apart = True
    for kind, piece in _pieces(text):
        if kind != "blank":
            found += [""] if apart else []
            found[-1] += _ESCAPED.sub(_unescaped, piece)
        apart = kind == "blank"
    return found


def _pieces(text: str) -> Iterator[Tuple[str, str]]:
    """Stretches in quotes, plain ones and blanks: `double`, `single`, `plain` or `blank`, and what stands there."""
    for found in _PIECE.finditer(text):
        kind = str(found.lastgroup)
        yield kind, found[kind]


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == 3:
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))
    return _NAMED_ESCAPES.get(code, code)
