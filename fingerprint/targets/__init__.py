"""Targets: where the host program runs. Every target gives one thing, two streams to a command on the host."""

from fingerprint.targets.base import Channel, Target
from fingerprint.targets.parse import parse_target

__all__ = ["Channel", "Target", "parse_target"]
