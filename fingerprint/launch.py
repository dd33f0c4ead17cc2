"""What a process says of its launch."""

from __future__ import annotations

from snapshots import Process
from snapshots.launch import CommandLine, without_a_session


def command_line(process: Process | None) -> CommandLine | None:
    """A launcher's command line taken apart; None when it was not readable."""
    return CommandLine.of(process.argv) if process is not None and isinstance(process.argv, list) else None


def launch_variables(process: Process | None) -> dict[str, str]:
    """The variables that a launcher was started with, or has now where that is not readable; without the inert ones."""
    if process is None:
        return {}
    variables = process.at_exec if isinstance(process.at_exec, dict) else process.variables
    return without_a_session(variables) if isinstance(variables, dict) else {}
