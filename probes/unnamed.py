"""An engine's variables that its installed source does not name: set once for another version, and read no more.

An engine that drops or renames a variable says nothing, and nothing differs but its version. What its own files do not
name, it cannot well read: that is evidence rather than proof, for a name can be put together of parts.
"""

from __future__ import annotations

import os
from typing import Dict, List

from probes.reading import Json, files_below, read_bytes

PREFIXES = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}
_REGISTRIES = ("srt/environ.py", "envs.py")
"""Where the engines declare most of their variables: looked at first."""
_LARGEST_BYTES = 64 << 20
_TOGETHER_BYTES = 1 << 30


def unnamed(engine: str, directories: List[str], variables: Dict[str, str]) -> Dict[str, str]:
    """Variables of `engine` that none of its files names: name -> the directory that was searched.

    Args:
        engine: the package, such as `sglang`.
        directories: where modules are looked for, in order; the first that holds the engine counts.
        variables: the process's.
    """
    # SGLang reads the older prefix under the newer one.
    left = {
        name: {name.encode(), name.replace("SGL_", "SGLANG_", 1).encode()}
        for name, value in variables.items()
        if name.startswith(PREFIXES.get(engine, ())) and value
    }
    place = next((one for one in directories if os.path.isfile(os.path.join(one, engine, "__init__.py"))), None)
    if place is None or not left:
        return {}
    read = 0
    for path in [f"{engine}/{name}" for name in _REGISTRIES] + [*files_below(place, engine)]:
        if not left or read > _TOGETHER_BYTES:
            break
        if path.endswith((".py", ".so")):
            try:
                data = read_bytes(os.path.join(place, path), _LARGEST_BYTES)
            except OSError:
                continue
            read += len(data)
            left = {name: spellings for name, spellings in left.items() if not any(one in data for one in spellings)}
    return dict.fromkeys(sorted(left), os.path.join(place, engine)) if read <= _TOGETHER_BYTES else {}


def of(context: Dict[str, Json], directories: List[str]) -> Dict[str, str]:
    """Those of the live server's first rank; none without a server."""
    serving = context.get("serving") or {}
    engine = str((context.get("server") or {}).get("engine") or "")
    return unnamed(engine, directories, serving.get("in_rank") or {})
