"""What several parts tell from a snapshot: which engine it is, where a library is mapped, CPU lists and versions."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from packaging.version import InvalidVersion, Version

from snapshots import (
    Leaf,
    Snapshot,
)

ENGINES = ("sglang", "vllm", "tensorrt-llm", "lmdeploy")
"""Distributions that are a serving engine; the first that changed is *the* engine."""


def mapped_paths(side: Snapshot, name: str) -> list[str]:
    """Where the copies of a library lie that any process of the server has mapped."""
    return [
        library.path or key
        for process in side.server.processes.values()
        if isinstance(process.libraries, dict)
        for key, library in process.libraries.items()
        if PurePosixPath(key).name == name
    ]


def cpu_list(text: str) -> frozenset[int] | None:
    """The numbers of a kernel CPU list such as `0,2-8`; None when it is not one."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        found_range = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
        if found_range is None:
            return None
        numbers.update(range(int(found_range[1]), int(found_range[2] or found_range[1]) + 1))
    return frozenset(numbers)


def version(leaf: Leaf | None) -> Version | None:
    """A version by the rules of Python packages, or None."""
    try:
        return Version(leaf) if isinstance(leaf, str) else None
    except InvalidVersion:
        return None
