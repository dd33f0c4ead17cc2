"""When an LLM server gets slower: what changed on the host, and proof of which change did it."""

__version__ = "0.1.0"
