"""Engines: what is launched, when it is ready, and how it is measured."""

from fingerprint.engines.base import Engine, Figure, figure_of
from fingerprint.engines.command import CommandEngine, command_engine
from fingerprint.engines.known import REFERENCE, SGLANG, engine_of

__all__ = ["REFERENCE", "SGLANG", "CommandEngine", "Engine", "Figure", "command_engine", "engine_of", "figure_of"]
