"""Lists that people paste: packages (pip, conda), variables, and the `name: value` lines of environment reports.

Reports of torch, vLLM and SGLang share their lines but not their layout, so every line is taken for what it is wherever
it stands: `[pip3] torch==2.8.0`, `GPU 0,1: NVIDIA H100`, `PyTorch version   : 2.8.0`, `NCCL_PROTO=LL`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

NOTHING = frozenset({"could not collect", "n/a", "not available", "module not found", "none", ""})
"""What reports write for a value that they could not get."""

IMPORT_NAMES = {
    "zmq": "pyzmq",
    "multipart": "python-multipart",
    "pil": "pillow",
    "pytorch": "torch",
    "flashinfer": "flashinfer-python",
}
"""Names under which SGLang's check_env lists a distribution: those that it imports."""

_PIN = re.compile(r"(?:\[pip3?\]\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)={2,3}(\S+?)(?:\s*;.*)?$")
_AT = re.compile(r"(?:\[pip3?\]\s+)?([A-Za-z0-9][A-Za-z0-9._-]*) @ (\S+)$")
_EDITABLE = re.compile(r"# Editable install.*\(([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)\)$")
_EGG = re.compile(r"-e\s+\S+@([0-9a-f]{7,40})#egg=([A-Za-z0-9._-]+)")
_CONDA = re.compile(r"\[conda\]\s+(\S+)\s+(\S+)\s+(\S+)(?:\s+(\S+))?\s*$")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9 ()/_.+-]{0,60}?)\s*:\s(.*)$|([A-Za-z][A-Za-z0-9 ()/_.+-]{0,60}?)\s*:$")
_GPU = re.compile(r"GPU (\d+(?:,\s*\d+)*): (.+)$")
_WHEEL = re.compile(r"/([A-Za-z0-9._]+)-([0-9][A-Za-z0-9.!+]*)-[^/]+\.whl(?:#|$)")


@dataclass
class Lists:
    """What was found; a value that two lines tell differently is in `conflicts` and nowhere else."""

    packages: dict[str, str | None] = field(default_factory=dict)
    """Canonical name to version; None where the line names no version."""
    origins: dict[str, str] = field(default_factory=dict)
    editable: set[str] = field(default_factory=set)
    conda: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name to version, build and channel."""
    variables: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str | None] = field(default_factory=dict)
    """Names in lower case; None where the report says that it could not tell."""
    gpus: dict[int, str] = field(default_factory=dict)
    conflicts: dict[str, list[str]] = field(default_factory=dict)


def read(text: str) -> Lists:
    """Take the lists of a text apart."""
    found = Lists()
    for raw in text.splitlines():
        line = raw.strip().strip("`").rstrip()
        if line and not re.fullmatch(r"[=*_#-]{3,}", line):
            _line(line, found)
    for name, told in found.conflicts.items():
        for table in (found.packages, found.variables, found.fields):
            table.pop(name, None)
        told.sort()
    return found


def _line(line: str, found: Lists) -> None:
    if conda := _CONDA.match(line):
        name, version, build, channel = conda[1], conda[2], conda[3], conda[4] or ""
        if channel == "pypi" or build.startswith("pypi_"):
            _tell(found, found.packages, canonicalize_name(name), version)
        else:
            found.conda[name] = (version, build, channel)
    elif editable := _EDITABLE.match(line):
        _package(found, editable[1], editable[2])
        found.editable.add(canonicalize_name(editable[1]))
    elif egg := _EGG.match(line):
        name = canonicalize_name(egg[2])
        found.packages.setdefault(name, None)
        found.editable.add(name)
        found.origins[name] = _without_login(line.removeprefix("-e").strip())
    elif pin := _PIN.match(line):
        _package(found, pin[1], pin[2])
    elif at := _AT.match(line):
        name = canonicalize_name(at[1])
        wheel = _WHEEL.search(at[2])
        found.packages.setdefault(name, wheel[2] if wheel else None)
        if not at[2].startswith("file:///home/conda/") and "feedstock_root" not in at[2]:
            found.origins[name] = _without_login(at[2])
    elif gpus := _GPU.match(line):
        for number in gpus[1].split(","):
            found.gpus[int(number)] = re.sub(r"\s*\(UUID: .*\)$", "", gpus[2]).strip()
    elif variable := _VARIABLE.match(line):
        _tell(found, found.variables, variable[1], variable[2].strip())
    elif pair := _FIELD.match(line):
        name, value = (pair[1] or pair[3]).strip(), (pair[2] or "").strip()
        _field(found, name, None if value.lower() in NOTHING else value)


def _field(found: Lists, name: str, value: str | None) -> None:
    package = IMPORT_NAMES.get(name.lower(), name)
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", package) is not None
    if is_name and value is not None and _is_version(value) and name.lower() not in {"python", "version"}:
        _package(found, package, value)
    elif value is not None or name.lower() not in found.fields:
        _tell(found, found.fields, name.lower(), value)


def _package(found: Lists, name: str, version: str) -> None:
    _tell(found, found.packages, canonicalize_name(name), version)


def _tell(found: Lists, table: dict[str, str | None] | dict[str, str], name: str, value: str | None) -> None:
    before = table.get(name)
    if name in found.conflicts:
        if value is not None and value not in found.conflicts[name]:
            found.conflicts[name].append(value)
    elif before is not None and value is not None and before != value:
        found.conflicts[name] = [before, value]
    elif value is not None or before is None:
        table[name] = value  # type: ignore[assignment]


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def _without_login(url: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]+@", "", url)
