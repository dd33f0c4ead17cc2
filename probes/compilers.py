"""What a rank would compile kernels with: each compiler where the rank's own variables lead to it, and its version.

Running a program runs whatever it pleases. So only the system's own is asked for its version, as the user who serves:
an ELF file that root alone can have put there, and no wrapper that keeps books of its own. All others are told by their
path and build-id, and a CUDA toolkit's by the list of versions that lies in it.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Callable, Collection, Dict, Iterator, List, Optional, Tuple

from probes.elf import file_build_id
from probes.processes import status
from probes.reading import Json, attempt, read_bytes, run, unread

_WITHIN_S = 5.0
_ELF = b"\x7fELF"
_USUAL = "/usr/local/bin:/usr/bin:/bin"
_WRAPPERS = ("ccache", "sccache", "distcc", "icecc", "colorgcc")

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


def is_the_system_s(path: str) -> bool:
    """Whether root alone can have put a program there: it and every directory above it are root's, and only root's."""
    at = os.path.realpath(path)
    while True:
        about = os.stat(at)
        if about.st_uid != 0 or about.st_mode & 0o022:
            return False
        if at == "/":
            return True
        at = os.path.dirname(at)


def read(
    variables: Variables, user: Optional[Tuple[int, int]], may_run: Callable[[str], bool] = is_the_system_s
) -> Dict[str, Json]:
    """Compiler -> `path`, `version` and `build_id`, for a process of `user` with these variables."""
    found: Dict[str, Json] = {}
    for name, candidates in _candidates(variables).items():
        path = next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)
        if path is not None:
            found[name] = {
                "path": path,
                "version": attempt(lambda path=path: _version(path, user, may_run)),  # type: ignore[misc]
                "build_id": attempt(lambda path=path: _build_id(path)),  # type: ignore[misc]
            }
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


def _build_id(path: str) -> Optional[str]:
    with open(path, "rb", buffering=0) as stream:
        if stream.read(4) != _ELF:
            return None
        return file_build_id(lambda offset, size: os.pread(stream.fileno(), size, offset))


def _version(path: str, user: Optional[Tuple[int, int]], may_run: Callable[[str], bool]) -> Json:
    """The line in which a program tells its version; None where it is not run and no list of versions tells it.

    Raises:
        OSError: it does not tell one, or cannot be read.
    """
    if read_bytes(path, 4) != _ELF:
        return None
    if not may_run(path) or os.path.basename(os.path.realpath(path)).startswith(_WRAPPERS):
        return _listed(path)
    if user is None:
        return unread("it is not asked: the server's processes are of several users")
    done = run([path, "--version"], _WITHIN_S, user=user)
    if done.reason is not None:
        raise OSError(done.reason)
    lines = done.text().strip().splitlines() or [""]
    return next((line for line in lines if "release" in line), lines[0])[:200]


def _listed(path: str) -> Optional[str]:
    """What a CUDA toolkit's own list says, in the words in which its compilers say it."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    if os.path.basename(path) not in {"nvcc", "ptxas"}:
        return None
    try:
        version = str(json.loads(read_bytes(os.path.join(home, "version.json")))["cuda_nvcc"]["version"])[:50]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return f"Cuda compilation tools, release {'.'.join(version.split('.')[:2])}, V{version}"
