"""Any command that ends by itself and prints numbers: a benchmark, a training step, a script around another server.

A trial starts the command as it would start a server, in the same private world with the same proofs, and waits until
it ends. Every match of a pattern in what it printed is one number; the launch's figure is their median. What is
compared is always a time: a rate counts as the time that one takes, because times of parts add up and rates do not.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fingerprint.engines.base import Engine
from fingerprint.errors import UsageError
from snapshots.launch import CommandLine

if TYPE_CHECKING:
    from fingerprint.factors.plan import LaunchPlan

UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
"""Times, lower is better: how many milliseconds one is."""
RATE = "/s"
"""So many a second, higher is better."""
LAUNCH = "@LAUNCH@"
"""Stands in a command for the words of the launch that the new snapshot holds."""


@dataclass(frozen=True)
class CommandEngine(Engine):
    """A command to run instead of a server.

    Attributes:
        command: its words; none: the launch that the new snapshot holds.
        pattern: a regular expression with one group, the number.
        unit: of that number, one of `UNITS` or `RATE`.
        skip: so many numbers at the start are not counted: a warm-up.
    """

    metrics: tuple[str, ...] = ("time_ms",)
    command: tuple[str, ...] = ()
    pattern: str = ""
    unit: str = "ms"
    skip: int = 0

    @property
    def takes_flags(self) -> bool:
        """Whether the launch that the snapshot holds is a part of what is run."""
        return not self.command or LAUNCH in self.command

    def adopt(self, plan: LaunchPlan) -> None:
        """Put the command in place of the launch, or around it."""
        line = CommandLine.of(plan.argv)
        for name, words in self.flags.items():
            line = line.with_flag(name, words)
        if "--port" in line.flags:  # the live one has its own
            line = line.with_flag("--port", ("@PORT@",))
        plan.argv = [part for word in self.command or (LAUNCH,) for part in (line.argv() if word == LAUNCH else [word])]
        plan.variables.update(self.variables)

    def trial(self, plan: LaunchPlan) -> dict[str, Any]:
        """What the host program's `try` is asked for."""
        rate = self.unit == RATE
        number = {"pattern": self.pattern, "ms": 1e3 if rate else UNITS[self.unit], "rate": rate, "skip": self.skip}
        return {**plan.to_json(), "run": {**number, "timeout_s": self.ready_s}, "stop_s": self.stop_s}

    def words(self) -> list[str]:
        """The options that `command_engine` made this of."""
        command = ["--command", shlex.join(self.command)] if self.command else []
        skip = ["--skip", str(self.skip)] if self.skip else []
        return ["--engine", self.name, *command, "--metric", self.pattern, "--unit", self.unit, *skip]

    def conditions(self) -> list[str]:
        """What is run and read, in words."""
        shown = shlex.join(self.command) if self.command else "the launch of the new snapshot"
        how = f"the median of /{self.pattern}/ in its output, in {self.unit}"
        rate = ", counted as the time that one takes" if self.unit == RATE else ""
        skipped = f", without the first {self.skip}" if self.skip else ""
        return [f"runs {shown}", f"{how}{rate}{skipped}"]


def command_engine(
    command: str | None, pattern: str | None, unit: str = "ms", skip: int = 0, timeout_s: float | None = None
) -> CommandEngine:
    """The engine for a command as a user types it.

    Raises:
        UsageError: something of it cannot be meant so.
    """
    if pattern is None:
        raise UsageError("A command needs --metric: a regular expression with one group, the number that it prints.")
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UsageError(f"--metric {pattern} is no regular expression: {error}.") from None
    if groups != 1:
        raise UsageError(f"--metric {pattern} has {groups} groups; mark the number, and nothing else, with (...).")
    if unit not in {*UNITS, RATE}:
        raise UsageError(f"--unit {unit} is not known; use {', '.join(UNITS)} or {RATE}.")
    try:
        words = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise UsageError(f"--command {command} cannot be taken apart: {error}.") from None
    if command is not None and not words:
        raise UsageError("--command is empty; leave it out to run the launch of the new snapshot.")
    return CommandEngine(
        name="command",
        ready_paths=(),
        command=words,
        pattern=pattern,
        unit=unit,
        skip=skip,
        ready_s=timeout_s or 3600.0,
    )
