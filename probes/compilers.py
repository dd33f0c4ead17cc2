"""What a rank would compile kernels with: each compiler where the rank's own variables lead to it, and its version.

A program is asked for its version as the user who serves. A script in its place is told by its path alone: running it
would run whatever it pleases.
"""

from __future__ import annotations

import os
import shlex
from typing import Collection, Dict, Iterator, List, Optional, Tuple

from probes.processes import status
from probes.reading import Json, attempt, read_bytes, run, unread

_WITHIN_S = 5.0
_USUAL = "/usr/local/bin:/usr/bin:/bin"

Variables = Dict[str, str]


def user_of(pids: Collection[int]) -> Optional[Tuple[int, int]]:
    """Whose processes these are, user and group number; None when they are not all one user's, or gone.

    What one user's variables lead to must not be run as another, who may be root.
    """
    try:
        users = {(int(told["Uid"].split()[0]), int(told["Gid"].split()[0])) for told in map(status, pids)}
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return next(iter(users)) if len(users) == 1 else None


def read(variables: Variables, user: Optional[Tuple[int, int]]) -> Dict[str, Json]:
    """Compiler -> `path` and `version`, for a process of `user` with these variables."""
    found: Dict[str, Json] = {}
    for name, candidates in _candidates(variables).items():
        path = next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)
        if path is not None:
            found[name] = {"path": path, "version": attempt(lambda path=path: _version(path, user))}  # type: ignore[misc]
    return found


def _candidates(variables: Variables) -> Dict[str, List[str]]:
    """Where each is looked for, in order: as torch, Triton and FlashInfer do."""
    homes = [variables[name] for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name)]

    def toolkit(name: str) -> List[str]:
        return [f"{home}/bin/{name}" for home in homes] + [*_on_path(name, variables), f"/usr/local/cuda/bin/{name}"]

    ptxas = [variables["TRITON_PTXAS_PATH"]] if variables.get("TRITON_PTXAS_PATH") else []
    return {
        "nvcc": toolkit("nvcc"),
        "ptxas": [*ptxas, *toolkit("ptxas")],
        "cc": [
            *_chosen("CC", variables),
            *(path for name in ("gcc", "clang", "cc") for path in _on_path(name, variables)),
        ],
        "c++": [*_chosen("CXX", variables), *(path for name in ("c++", "g++") for path in _on_path(name, variables))],
        "ninja": [*_on_path("ninja", variables)],
    }


def _on_path(name: str, variables: Variables) -> Iterator[str]:
    for place in (variables.get("PATH") or _USUAL).split(":"):
        if place.startswith("/"):
            yield os.path.join(place, name)


def _chosen(name: str, variables: Variables) -> List[str]:
    """The program that a variable names, such as `CC=gcc-13 -m64`."""
    try:
        word = shlex.split(variables.get(name, ""))[0]
    except (ValueError, IndexError):
        return []
    return [word] if word.startswith("/") else list(_on_path(word, variables))


def _version(path: str, user: Optional[Tuple[int, int]]) -> Json:
    """The line in which a program tells its version; None for a script.

    Raises:
        OSError: it does not tell one, or cannot be read.
    """
    if read_bytes(path, 4) != b"\x7fELF":
        return None
    if user is None:
        return unread("it is not asked: the server's processes are of several users")
    done = run([path, "--version"], _WITHIN_S, user=user)
    if done.reason is not None:
        raise OSError(done.reason)
    lines = done.text().strip().splitlines() or [""]
    return next((line for line in lines if "release" in line), lines[0])[:200]
