"""The commands, one file a group; each parses, calls and prints, and loads what it needs when it runs."""

# ruff: noqa: I001 - the order is that of `--help`
from fingerprint.commands.base import app
from fingerprint.commands import capture, compare, bisect, case, history, demonstration

__all__ = ["app", "bisect", "capture", "case", "compare", "demonstration", "history"]
