"""When an LLM server gets slower: what changed on the host, and proof of which change did it."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, looked up where it is asked for: the look costs more than most commands' own start."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fingerprint")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"
