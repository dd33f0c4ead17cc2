"""The one interface of all targets."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class Channel(Protocol):
    """A command that runs on the target: its standard input and output, and how it ended."""

    stdin: BinaryIO
    stdout: BinaryIO

    def close(self) -> None:
        """End the command's input, wait briefly for it, and let go of the connection."""

    def complaint(self) -> str:
        """What the way to the host said on standard error, in one line; empty when nothing."""


class Target(Protocol):
    """A place where a command can be started."""

    name: str
    """What the user called it; shown in messages and kept in snapshots as state."""

    def start(self, argv: list[str]) -> Channel:
        """Start a command.

        Raises:
            TargetError: the target cannot be reached or refuses.
        """
