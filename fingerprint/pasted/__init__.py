"""A snapshot made of what somebody pasted into a ticket, for the days before anybody captured.

The good day is often known from a report alone: torch's or vLLM's collect_env, SGLang's check_env, `pip freeze`,
`nvidia-smi -q`, `nvidia-smi topo -m`, NCCL's dumped topology, a list of variables. Such a snapshot holds what the
report says and is marked as imported: in a comparison, whatever the report does not name is unknown and never "absent"
(`fingerprint.diff`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from fingerprint import __version__
from fingerprint.errors import UsageError
from fingerprint.pasted import lists, matrix, nccl, smi
from snapshots import Gpu, Snapshot, Unread

_TEMPLATE = re.compile(r"your output of `?python\s*(-m )?\S*(collect_env|check_env)\S*`? here", re.IGNORECASE)
_PREFIXED = re.compile(r"^(?:[A-Z]+\s+)?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s")
LARGEST_BYTES = 16 << 20
_RECOGNISED = 3
"""Fewer lines than this that mean anything are no report."""

Json = dict[str, Any]


def imported(
    text: str,
    name: str,
    *,
    clean: Callable[[str, str], str] = lambda _name, value: value,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Snapshot:
    """Make a snapshot of a pasted text.

    Args:
        text: one report, or several one after another.
        name: what it is called: the file's name.
        clean: replaces the value of a variable where it is a secret.
        now: the clock.

    Raises:
        UsageError: nothing in it is recognised.
    """
    text = _unprefixed(text)
    found = lists.read(_TEMPLATE.sub("", text))
    parts: Json = {
        "packages": _packages(found),
        "gpu": _gpus(text, found),
        "host": _host(found),
        "server": _server(found, clean),
        "limits": _limits(found),
        "topology": {"devices": devices} if (devices := nccl.devices(text)) else {},
    }
    told = {section: values for section, values in parts.items() if values}
    known = (
        len(found.packages)
        + len(found.conda)
        + len(found.variables)
        + sum(map(len, parts["gpu"].values()))
        + len(devices)
    )
    if not told or (known < 1 and "host" not in told):
        raise UsageError(
            f"{name} holds no report that is understood (collect_env, check_env, pip freeze, nvidia-smi -q or topo -m,"
            " NCCL's topology, a list of variables); paste the report's own text."
        )
    reason = "from a pasted report: what it does not name is unknown"
    for section in told.values():
        section.update(status="partial", reason=section.get("reason") or reason)
    return Snapshot.model_validate(
        {"tool": __version__, "taken_at": now(), "target": name, "method": "imported", **told}
    )


def placed(report: Snapshot, live: Snapshot) -> Snapshot:
    """The report with its GPUs under the addresses that a capture has for their numbers, where both have as many."""
    by_number = {
        f"GPU{one.index}": address for address, one in live.gpu.gpus.items() if isinstance(one, Gpu) and ":" in address
    }
    if not report.gpu.gpus or report.gpu.gpus.keys() != by_number.keys():
        return report
    gpus = {by_number[name]: one for name, one in report.gpu.gpus.items()}
    links = {
        " ".join(sorted(by_number[name] for name in pair.split())): link
        for pair, link in report.gpu.links.items()
        if by_number.keys() >= set(pair.split())
    }
    return report.model_copy(update={"gpu": report.gpu.model_copy(update={"gpus": gpus, "links": links})})


def _unprefixed(text: str) -> str:
    """Without the time stamps of a log in which the report was printed, where every line of it carries one."""
    lines = text.splitlines()
    stamped = [bool(_PREFIXED.match(line)) for line in lines if line.strip()]
    if len(stamped) < _RECOGNISED or not all(stamped):
        return text
    return "\n".join(_PREFIXED.sub("", line) for line in lines)


def _packages(found: lists.Lists) -> Json:
    version = found.fields.get("python version") or found.fields.get("python")
    torch = found.fields.get("pytorch version")
    versions: dict[str, str | None] = dict(found.packages)
    if torch and "torch" not in versions:
        versions["torch"] = torch
    distributions: Json = {
        name: {
            "version": told or {"unread": "the report names no version"},
            "location": "",
            "origin": found.origins.get(name),
            "editable": name in found.editable,
        }
        for name, told in versions.items()
    }
    distributions.update(
        {
            name: {"version": {"unread": f"the report says {' and '.join(told)}"}, "location": ""}
            for name, told in found.conflicts.items()
            if re.fullmatch(r"[a-z0-9-]+", name) and all(re.match(r"\d", one) for one in told)
        }
    )
    made: Json = {}
    if distributions:
        made["distributions"] = distributions
    if found.conda:
        made["conda"] = {
            name: {"version": version, "build": build, "channel": channel or None}
            for name, (version, build, channel) in found.conda.items()
        }
    if version:
        plain = re.match(r"[\d.]+", version)
        made["interpreter"] = {
            "executable": "", "version": plain[0] if plain else version, "prefix": "", "base_prefix": "", "path": [],
        }  # fmt: skip
    return made


def _gpus(text: str, found: lists.Lists) -> Json:
    host, told = smi.sections(text)
    gpus: Json = {where: smi.gpu(values, index) for index, (where, values) in enumerate(told.items())}
    gpus.update(smi.lost(text))
    if not gpus:
        gpus = {f"GPU{index}": {"index": index, "name": name} for index, name in sorted(found.gpus.items())}
    drivers = {value for name, value in found.fields.items() if "driver version" in name and value}
    drivers |= {host[("driver version",)]} if ("driver version",) in host else set()
    listed = re.findall(r"^CUDA Driver Version\s*: (\d[\d.]+)((?:\n\d{3}\.[\d.]+)*)\s*$", text, re.MULTILINE)
    drivers |= {line for first, rest in listed for line in [first, *rest.split()]}
    drivers = {driver for driver in drivers if re.match(r"\d{3}\.", driver)}
    made: Json = {}
    if gpus:
        made["gpus"] = gpus
    if len(drivers) == 1:
        made["driver"] = drivers.pop()
    elif drivers:
        made["driver"] = {"unread": f"the report says {' and '.join(sorted(drivers))}"}
    if ("cuda version",) in host:
        made["cuda"] = host[("cuda version",)]
    mismatch = smi.mismatch(text)
    if mismatch:
        made |= {"driver": {"unread": mismatch}, "reason": mismatch}
    links, why = _links(text, list(gpus))
    if links:
        made["links"] = links
    if why:
        made["reason"] = why
    return made


def _links(text: str, addresses: list[str]) -> tuple[Json, str | None]:
    """The matrix's pairs, by address where the report has one for each GPU in the matrix's order."""
    amd = matrix.rocm(text)
    if amd is not None:
        return {" ".join(pair): {"path": kind} for pair, kind in amd.kinds.items() if pair < pair[::-1]}, None
    read = matrix.topo(text)
    if not isinstance(read, matrix.Matrix):
        return {}, read and f"the topology matrix was refused: {read}"
    same = len(addresses) == len(read.gpus) and all(":" in one for one in addresses)
    name = dict(zip(read.gpus, addresses if same else read.gpus, strict=True))
    pairs = {
        " ".join(sorted((name[one], name[other]))): _link(read.paths[one, other])
        for one in read.gpus
        for other in read.gpus
        if one < other
    }
    alone = read.apart()
    return pairs, f"{alone[0]} has no NVLink and all the others have" if alone else None


def _link(cell: str) -> Json:
    """A pair of GPUs; where NVLink joins them the matrix does not say what they share on the PCI bus."""
    return {"p2p": {"nvlink": "ok"}} if cell.startswith("NV") else {"path": cell}


def _host(found: lists.Lists) -> Json:
    made: Json = {}
    names = {"os": "PRETTY_NAME"}
    system = {key: value for name, key in names.items() if (value := found.fields.get(name))}
    if system:
        made["system"] = system
    model = found.fields.get("model name") or found.variables.get("Name")
    if model:
        made["cpu"] = {"model": model}
    hypervisor = found.fields.get("hypervisor vendor")
    if hypervisor:
        made["virtualization"] = hypervisor.lower()
    platform = re.match(r"Linux-([^-]+-\S+?)-x86_64", found.fields.get("python platform") or "")
    if platform:
        made["kernel"] = platform[1]
    return made


def _server(found: lists.Lists, clean: Callable[[str, str], str]) -> Json:
    variables = {name: clean(name, value) for name, value in found.variables.items() if name.isupper()}
    if not variables:
        return {}
    unread = Unread(unread="a report has no processes").model_dump()
    launcher: Json = dict.fromkeys(("argv", "executable", "cwd", "started", "variables", "libraries"), unread)
    launcher |= {"role": "launcher", "pid": 0, "parent": 0, "title": "", "at_exec": variables}
    reason = "from a pasted report: the variables are those of the shell in which it was made, not surely the server's"
    return {"processes": {"launcher": launcher}, "reason": reason}


def _limits(found: lists.Lists) -> Json:
    files = found.fields.get("ulimit soft")
    return {"limits": {"open files": files}} if files else {}
