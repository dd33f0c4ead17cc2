"""This machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from typing import BinaryIO, cast

from fingerprint.errors import TargetError

PYTHON = "python3"
"""The interpreter of a target that nobody named; on this machine it is the one that runs us."""


class ProcessChannel:
    """A command started on this machine; also the way to a host for every command prefix."""

    def __init__(self, argv: list[str], patience_s: float = 20.0) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        self._patience_s = patience_s
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,  # Ctrl-C reaches the planner, which then ends the host program in order
            )
        except OSError as error:
            self._complaints.close()
            raise TargetError(f"{argv[0]} cannot be started: {error.strerror}.") from None
        self.stdin = cast("BinaryIO", self._process.stdin)
        self.stdout = cast("BinaryIO", self._process.stdout)

    @property
    def pid(self) -> int:
        """The command's process id."""
        return self._process.pid

    def close(self) -> None:
        """End its input and wait; what does not end by itself is killed."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()  # nobody reads any more: a command in the middle of an answer must not wait for us
        try:
            self._process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # asleep in the kernel: left alone
                self._process.wait(5)
        self._complaints.close()

    def complaint(self) -> str:
        """The last line of its standard error."""
        self._complaints.seek(0)
        lines = self._complaints.read(65536).decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


class LocalTarget:
    """This machine, with the interpreter that runs us."""

    name = "local"

    def start(self, argv: list[str]) -> ProcessChannel:
        """Start a command here."""
        return ProcessChannel([sys.executable if argv[0] == PYTHON else argv[0], *argv[1:]])
