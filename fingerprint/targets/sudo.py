"""Root on a target, through its sudo. A password travels on sudo's standard input, never on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fingerprint.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fingerprint.targets.base import Channel, Target


class SudoTarget:
    """The same target as root."""

    def __init__(self, target: Target, password: Callable[[], str] | None = None) -> None:
        """`password` is called only when the host's sudo wants one; without it such a host is refused."""
        self.name = target.name
        self._target = target
        self._password = password

    def start(self, argv: list[str]) -> Channel:
        """Start a command as root.

        Raises:
            TargetError: sudo refuses, or wants a password and there is none.
        """
        if self._needs_password():
            if self._password is None:
                raise TargetError(f"{self.name}: sudo wants a password there, and none can be asked for here.")
            channel = self._target.start(["sudo", "-S", "-k", "-p", "", "--", *argv])
            channel.stdin.write(self._password().encode() + b"\n")
            channel.stdin.flush()
            return channel
        return self._target.start(["sudo", "-n", "-k", "--", *argv])

    def _needs_password(self) -> bool:
        # Without this question a password nobody reads would become the program's input.
        probe = self._target.start(["sudo", "-n", "-k", "--", "echo", _YES])
        try:
            return _YES.encode() not in probe.stdout.read()
        finally:
            probe.close()


_YES = "fingerprint-is-root"
