"""NCCL: every setting with where it comes from, which library is loaded, and which one was meant to be.

NCCL reads its variables once, and after them one configuration file of the user's and one of the system's, neither of
which overrides a variable. A file left in an image acts like a variable that nobody sees.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from probes import packages, processes
from probes.interpreter import Interpreter, deduce
from probes.reading import Json, attempt, canonical, is_unread, read_bytes, read_text, unread, without_server
from probes.secrets import Keeper

_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_FILE")
_PLUGIN = re.compile(r"/(libnccl-(?:net|tuner|profiler|env)[^/]*\.so[^/]*)$")
_LIBRARY = re.compile(r"/libnccl\.so[^/]*$")
_VERSION = re.compile(rb"NCCL version (\d[0-9A-Za-z.+]{2,40})(?![0-9A-Za-z.+]|\Z)")  # whole, not cut by a chunk
_CHUNK = 16 << 20
_LARGEST_LIBRARY_BYTES = 2 << 30


def read(context: Dict[str, Any]) -> Json:
    """The nccl section."""
    missing = without_server(context)
    if missing is not None:
        return missing
    serving = context["serving"]
    if serving.get("blind"):
        return {"status": "failed", "reason": serving["blind"]}
    variables: Dict[str, str] = serving["in_rank"]
    keeper = context["keeper"]
    files = {source: (path, attempt(lambda path=path: read_text(path))) for source, path in sources(variables)}  # type: ignore[misc]
    files = {source: pair for source, pair in files.items() if not _missing(pair[1])}
    texts = {source: text for source, (_path, text) in files.items() if not is_unread(text)}
    settings, origins = effective(variables, texts)
    loaded, plugins = _loaded(serving["processes"])
    interpreter = deduce(context)
    installed, pinned = _packages(interpreter) if isinstance(interpreter, Interpreter) else ({}, {})
    return {
        "settings": {name: keeper.value(name, value) for name, value in settings.items()},
        "origins": origins,
        "files": {
            source: {"path": path, "text": text if is_unread(text) else keeper.text(text)}
            for source, (path, text) in files.items()
        },
        "named_files": {
            name: _named_file(variables[name], context["keeper"]) for name in _FILES if variables.get(name)
        },
        "loaded": loaded,
        "plugins": plugins,
        "installed": installed,
        "pinned": pinned,
    }


def _missing(text: Json) -> bool:
    return is_unread(text) and text["unread"].endswith("does not exist")


def sources(variables: Dict[str, str]) -> List[Tuple[str, str]]:
    """The configuration files that NCCL reads, the stronger one first."""
    own = variables.get("NCCL_CONF_FILE") or os.path.join(variables.get("HOME", "/root"), ".nccl.conf")
    return [("user", own), ("system", "/etc/nccl.conf")]


def effective(variables: Dict[str, str], files: Dict[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """What NCCL goes by: its settings, and where each comes from (`variable`, `user`, `system`)."""
    settings = {name: value for name, value in variables.items() if name.startswith("NCCL_")}
    origins = dict.fromkeys(settings, "variable")
    for source in ("user", "system"):
        for line in files.get(source, "").splitlines():
            name, mark, value = line.strip().partition("=")
            if mark and not name.startswith("#") and name.strip() not in settings:
                settings[name.strip()] = value.strip()
                origins[name.strip()] = source
    return dict(sorted(settings.items())), dict(sorted(origins.items()))


def _loaded(pids: Dict[str, int]) -> Tuple[Dict[str, Json], Dict[str, List[str]]]:
    """NCCL libraries that are mapped (process -> path -> version), and plugins (file name -> processes)."""
    versions: Dict[Tuple[str, int], Json] = {}
    loaded: Dict[str, Json] = {}
    plugins: Dict[str, List[str]] = {}
    for key, pid in pids.items():
        try:
            files = processes.mappings(pid)
        except OSError as error:
            loaded[key] = unread(error)
            continue
        mine: Dict[str, Json] = {}
        for entry in files:
            plugin = _PLUGIN.search(entry.path)
            if plugin:
                plugins.setdefault(plugin[1], []).append(key)
            elif _LIBRARY.search(entry.path):
                same = (entry.path, entry.inode)
                if same not in versions:
                    versions[same] = attempt(lambda pid=pid, path=entry.path: version_in(f"/proc/{pid}/root{path}"))  # type: ignore[misc]
                mine[entry.path] = unread("replaced on disk since it was loaded") if entry.deleted else versions[same]
        if mine:
            loaded[key] = mine
    return loaded, plugins


def version_in(path: str) -> Optional[str]:
    """The version that is written in a NCCL library, such as `2.27.5+cuda12.9`; None when there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = b""
        for _ in range(_LARGEST_LIBRARY_BYTES // _CHUNK):
            chunk = os.read(handle, _CHUNK)
            if not chunk:
                return None
            blob = before + chunk
            at = blob.find(b"NCCL version ")
            while at >= 0:
                found = _VERSION.match(blob, at)
                if found:
                    return found[1].decode()
                at = blob.find(b"NCCL version ", at + 1)
            before = blob[-64:]
        return None
    finally:
        os.close(handle)


def _packages(interpreter: Interpreter) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Which NCCL is installed, and which one torch's metadata asks for."""
    installed: Dict[str, str] = {}
    pinned: Dict[str, str] = {}
    for site in interpreter.path:
        if site in interpreter.library:
            continue
        for found in packages.named(site, re.compile(r"(nvidia[-_.]nccl|torch-|vllm[-_.]nccl)", re.IGNORECASE)):
            if "nccl" in found.name:
                installed.setdefault(found.name, found.version)
            elif found.name == "torch":
                for line in found.requires:
                    wish = re.match(r"([A-Za-z0-9_.-]*nccl[A-Za-z0-9_.-]*?)\s*\(?\s*==\s*([^;,)\s]+)", line[:500])
                    if wish:
                        pinned.setdefault(canonical(wish[1]), wish[2])
    return installed, pinned


def _named_file(path: str, keeper: Keeper) -> Json:
    """Digest, and the text of a file that is not long."""
    raw = attempt(lambda: read_bytes(path, 16 << 20))
    if not isinstance(raw, bytes):
        return {"path": path, "sha256": raw}
    return {"path": path, "sha256": hashlib.sha256(raw).hexdigest(), "text": keeper.contents(raw)}
