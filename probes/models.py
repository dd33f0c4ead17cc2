"""The models that are served: small files whole, weights by their headers, hub files by their blobs' names.

Reading gigabytes of weights would disturb what is measured. A safetensors header says every tensor's type and shape,
and a file that came from the hub is a link whose target's name is the digest of the contents.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from probes.caches import file_system, mount_points
from probes.reading import Json, attempt, read_bytes, read_text, unread, without_server
from probes.secrets import Keeper
from probes.server import option

_LARGEST_SMALL_BYTES = 32 << 20
_LARGEST_HEADER_BYTES = 100 << 20
_MOST_FILES = 2000
_TOLD = {"config.json", "generation_config.json", "hf_quant_config.json", "quantize_config.json", "adapter_config.json"}
"""Files that decide which kernels run and in which shapes: kept as text."""
_SMALL = re.compile(r"\.(json|jinja|txt|model|py|tiktoken|yaml)$")
_NAMED = {
    "target": (("--model-path", "--model"), "model_path"),
    "draft": (("--speculative-draft-model-path", "--speculative-draft-model"), "speculative_draft_model_path"),
    "token map": (("--speculative-token-map",), "speculative_token_map"),
}
"""Role -> flags, and the resolved argument that says the same of a server that was started from a file of settings."""
_ADAPTERS = ("--lora-paths", "--lora-modules")
_MOST_ADAPTERS = 64
_REVISION = {"target": ("--revision",), "draft": ("--speculative-draft-model-revision",)}


def read(context: Dict[str, Any]) -> Json:
    """The models section."""
    missing = without_server(context)
    if missing is not None:
        return missing
    serving = context["serving"]
    models: Dict[str, Json] = {}
    told = (context.get("server") or {}).get("arguments") or {}
    for role, (flags, argument) in _NAMED.items():
        named = _first_option(serving["argv"], flags) or told.get(argument)
        if isinstance(named, str) and named:
            revision = _first_option(serving["argv"], _REVISION.get(role, ()))
            models[role] = attempt(functools.partial(_model, named, revision or "main", serving, context["keeper"]))
    for number, (name, named) in enumerate(adapters(serving["argv"])):
        if number < _MOST_ADAPTERS:
            models[f"adapter {name}"] = attempt(functools.partial(_model, named, "main", serving, context["keeper"]))
    return {"models": models}


def adapters(argv: List[str]) -> Iterator[Tuple[str, str]]:
    """The LoRA adapters that a launch names, `NAME=PATH`, as JSON or as a path alone: name and path."""
    listed = False
    for word in argv:
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            listed = flag in _ADAPTERS
            words = [value] if listed and value else []
        else:
            words = [word] if listed else []
        for one in words:
            if one.startswith("{"):
                told = attempt(functools.partial(json.loads, one))
                name, path = (str(told.get(key) or "") for key in ("lora_name", "lora_path"))
            else:
                name, mark, path = one.partition("=")
                path = path if mark else name
            if path:
                yield name or path, path


def _first_option(argv: List[str], flags: Sequence[str]) -> Optional[str]:
    return next((value for value in (option(argv, flag) for flag in flags) if value), None)


def _model(named: str, wanted: str, serving: Dict[str, Json], keeper: Keeper) -> Json:
    cwd = serving["cwd"] if isinstance(serving["cwd"], str) else "/"
    path = os.path.join(cwd, named)
    revision = None
    if not os.path.exists(path):
        found = _from_hub(named, wanted, serving)
        if found is None:
            return unread(f"{named} is neither a path nor in the hub's cache")
        path, revision = found, os.path.basename(found)
    path = os.path.abspath(path)
    kind = attempt(lambda: file_system(path, mount_points(read_text(f"/proc/{serving['pid']}/mountinfo", 4 << 20))))
    if not os.path.isdir(path):
        return {"name": named, "path": path, "filesystem": kind, "files": {os.path.basename(path): _file(path, keeper)}}
    match = re.search(r"/snapshots/([0-9a-f]{40})(?:/|$)", os.path.realpath(path) + "/")
    names = sorted(name for name in os.listdir(path) if not os.path.isdir(os.path.join(path, name)))[:_MOST_FILES]
    return {
        "name": named,
        "path": path,
        "filesystem": kind,
        "revision": match[1] if match else revision,
        "files": {name: _file(os.path.join(path, name), keeper) for name in names},
    }


def _from_hub(named: str, wanted: str, serving: Dict[str, Json]) -> Optional[str]:
    """The snapshot directory of a hub name, at a branch or commit, in the process's own cache."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", named):
        return None
    variables = serving["in_rank"]
    home = variables.get("HF_HOME") or os.path.join(
        variables.get("XDG_CACHE_HOME") or os.path.join(variables.get("HOME", "/root"), ".cache"), "huggingface"
    )
    hub = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    place = os.path.join(hub, "models--" + named.replace("/", "--"))
    with contextlib.suppress(OSError):  # a commit can be named itself
        wanted = read_bytes(os.path.join(place, "refs", wanted), 4096).decode("ascii", "replace").strip()
    snapshot = os.path.join(place, "snapshots", wanted)
    return snapshot if os.path.isdir(snapshot) else None


def _file(path: str, keeper: Keeper) -> Json:
    """One file: size, and the cheapest digest that tells its contents."""
    try:
        about = os.stat(path)
    except OSError as error:
        return unread(error)  # a link of the hub whose blob is gone, for one
    if not stat.S_ISREG(about.st_mode):
        return unread(f"{path}: not a regular file")
    found: Dict[str, Json] = {"size_bytes": about.st_size, "modified": round(about.st_mtime, 1)}
    blob = _blob(path)
    if blob:
        found["blob"] = blob
    if path.endswith(".safetensors"):
        found["header"] = attempt(lambda: safetensors_header(path))
    elif _SMALL.search(path) and about.st_size <= _LARGEST_SMALL_BYTES:
        raw = attempt(lambda: read_bytes(path, _LARGEST_SMALL_BYTES))
        found["sha256"] = hashlib.sha256(raw).hexdigest() if isinstance(raw, bytes) else raw
        if isinstance(raw, bytes) and os.path.basename(path) in _TOLD:
            found["text"] = keeper.contents(raw)
    return found


def _blob(path: str) -> Optional[str]:
    """The name of the hub's blob that a file is a link to: SHA-256 of large files, git's object name of small ones."""
    if not os.path.islink(path):
        return None
    name = os.path.basename(os.readlink(path))
    return name if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name) else None


def safetensors_header(path: str) -> str:
    """SHA-256 of the header: every tensor's name, type, shape and place.

    Raises:
        ValueError: it is no safetensors file.
        OSError: it cannot be read.
    """
    head = read_bytes(path, 8)
    if len(head) < 8:
        raise ValueError("too short for a safetensors file")
    (size,) = struct.unpack("<Q", head)
    if size > _LARGEST_HEADER_BYTES:
        raise ValueError("not a safetensors file: an implausible header")
    blob = read_bytes(path, 8 + size)
    if len(blob) < 8 + size:
        raise ValueError("cut off within its header")
    return hashlib.sha256(blob[8:]).hexdigest()
