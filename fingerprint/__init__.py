"""When an LLM server gets slower: what changed on the host, and proof of which change did it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fingerprint")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"
