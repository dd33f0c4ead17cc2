"""Caches of compiled kernels and of measured choices: where a rank really has them, and what lies there.

Where a cache is comes from the process's own variables (an engine sets them when it is imported), never from defaults
alone. Compiled code comes and goes and is state; measured choices (autotune results, the peer-access table) steer the
next start and are identity.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from probes import compilers
from probes.reading import Json, read_bytes, read_text, unread, without_server
from probes.secrets import Keeper

_MOST_FILES = 200_000
_MOST_CHOICES = 500
_LARGEST_CHOICE_BYTES = 4 << 20
_TEXT_BYTES = 4096
_TEXTS_BYTES = 32 << 10
"""A file of choices up to the one size is kept as text, and of all together up to the other."""

Variables = Dict[str, str]


def read(context: Dict[str, Any]) -> Json:
    """The caches section."""
    missing = without_server(context)
    if missing is not None:
        return missing
    serving = context["serving"]
    if serving.get("blind"):
        return {"status": "failed", "reason": serving["blind"]}
    pid = serving["pid"]
    try:
        owner: Optional[int] = os.stat(f"/proc/{pid}").st_uid
        mounts = mount_points(read_text(f"/proc/{pid}/mountinfo", 4 << 20))
    except OSError:
        owner, mounts = None, []
    places = locations(serving["in_rank"], owner if owner is not None else os.getuid())
    keeper = context["keeper"]
    return {
        "caches": {name: _cache(path, owner, mounts, keeper) for name, path in places.items()},
        "compilers": compilers.read(serving["in_rank"], compilers.user_of(serving["processes"].values())),
    }


def locations(variables: Variables, owner: int) -> Dict[str, str]:
    """Cache -> directory, for a process with these variables that runs as `owner`."""
    home = variables.get("HOME") or _home(owner)
    user = variables.get("USER") or _user(owner)
    sglang = variables.get("SGLANG_CACHE_DIR") or f"{home}/.cache/sglang"
    flashinfer = variables.get("FLASHINFER_WORKSPACE_BASE") or home
    found = {
        "triton": variables.get("TRITON_CACHE_DIR") or f"{variables.get('TRITON_HOME') or home}/.triton/cache",
        "inductor": variables.get("TORCHINDUCTOR_CACHE_DIR")
        or f"{variables.get('TMPDIR') or '/tmp'}/torchinductor_{user}",
        "cuda": variables.get("CUDA_CACHE_PATH") or f"{home}/.nv/ComputeCache",
        "flashinfer": f"{flashinfer}/.cache/flashinfer",
        "flashinfer cubins": variables.get("FLASHINFER_CUBIN_DIR") or f"{flashinfer}/.cache/flashinfer/cubins",
        "deep_gemm": variables.get("DG_JIT_CACHE_DIR") or variables.get("SGLANG_DG_CACHE_DIR") or f"{home}/.deep_gemm",
        "tilelang": variables.get("TILELANG_CACHE_DIR") or f"{home}/.tilelang/cache",
        "sglang": sglang,
        "sglang jit": variables.get("SGLANG_JIT_CACHE_DIR") or f"{sglang}/jit",
        "cute aot": variables.get("SGLANG_CUTE_AOT_CACHE_DIR") or f"{sglang}/cute_aot",
    }
    return {name: os.path.normpath(path) for name, path in found.items()}


def _home(owner: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(owner).pw_dir
    except KeyError:
        return "/root" if owner == 0 else "/"


def _user(owner: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


def _cache(path: str, owner: Optional[int], mounts: List[Tuple[str, str]], keeper: Keeper) -> Dict[str, Json]:
    try:
        about = os.stat(path)
        os.listdir(path)
    except FileNotFoundError:
        return {
            "path": path,
            "exists": False,
            "writable": None if owner is None else _may_make(path, owner),
            "filesystem": file_system(path, mounts),
        }
    except OSError as error:
        return {
            "path": path,
            "exists": unread(error),
            "choices": unread(error),
            "filesystem": file_system(path, mounts),
        }
    found = _walk(path)
    return {
        "path": path,
        "exists": True,
        "writable": None if owner is None else _may_write(about, owner),
        "filesystem": file_system(path, mounts),
        "files": found.files,
        "size_bytes": found.size,
        "newest": found.newest,
        "manifest": found.digest,
        "choices": found.choices,
        "texts": {name: keeper.text(text) for name, text in found.texts.items()},
    }


def _may_make(path: str, owner: int) -> Optional[bool]:
    """Whether a user may make a directory that is not there yet: a cache is the same before and after its first use."""
    above = os.path.dirname(path)
    try:
        return _may_write(os.stat(above), owner)
    except FileNotFoundError:
        return _may_make(above, owner) if above != path else None
    except OSError:
        return None


def _may_write(about: os.stat_result, owner: int) -> bool:
    """Whether a user may write there, by the directory's own bits."""
    if owner == 0:
        return True
    return bool(about.st_mode & (0o200 if about.st_uid == owner else 0o022))


class _Contents(NamedTuple):
    """What lies in a cache."""

    files: int
    size: int
    newest: float
    digest: Optional[str]
    """None where there are too many files to look at all."""
    choices: Dict[str, Json]
    texts: Dict[str, str]


def _walk(root: str) -> _Contents:
    rows: List[str] = []
    choices: Dict[str, Json] = {}
    texts: Dict[str, str] = {}
    size, newest, count, kept = 0, 0.0, 0, 0
    for place, directories, names in os.walk(root):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            count += 1
            if count > _MOST_FILES:
                return _Contents(count, size, round(newest, 1), None, choices, texts)
            size += about.st_size
            newest = max(newest, about.st_mtime)
            relative = os.path.relpath(path, root)
            rows.append(f"{relative} {about.st_size}")
            if _is_choice(relative) and len(choices) < _MOST_CHOICES and about.st_size <= _LARGEST_CHOICE_BYTES:
                try:
                    data = read_bytes(path, _LARGEST_CHOICE_BYTES)
                except OSError as error:
                    choices[relative] = unread(error)
                    continue
                choices[relative] = hashlib.sha256(data).hexdigest()
                if len(data) <= _TEXT_BYTES and kept + len(data) <= _TEXTS_BYTES:
                    kept += len(data)
                    texts[relative] = data.decode("utf-8", "replace")
    digest = hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()
    return _Contents(count, size, round(newest, 1), digest, choices, texts)


def _is_choice(path: str) -> bool:
    """Whether a file holds a measured choice rather than compiled code."""
    name = os.path.basename(path)
    return name.endswith(".json") and (
        "autotune" in path or "gpu_p2p_access_cache" in name or name.endswith(".autotune.json")
    )


def mount_points(text: str) -> List[Tuple[str, str]]:
    """/proc/PID/mountinfo: mount point -> file system, the longest path first."""
    found: List[Tuple[str, str]] = []
    for line in text.splitlines():
        left, mark, right = line.partition(" - ")
        fields = left.split(" ")
        if mark and len(fields) > 4:
            found.append((fields[4].replace("\\040", " "), right.split(" ")[0]))
    return sorted(found, key=lambda pair: -len(pair[0]))


def file_system(path: str, mounts: List[Tuple[str, str]]) -> Optional[str]:
    """The kind of file system that a path is on."""
    for point, kind in mounts:
        if path == point or path.startswith(point.rstrip("/") + "/"):
            return kind
    return None
