"""Every error that this project raises on purpose.

    FingerprintError              one sentence for a person; exit code 2
    ├── SnapshotError             a file that is not a snapshot, or not a whole one
    ├── TargetError               a host that cannot be reached or refused us
    │   └── HostKeyError          its SSH key is unknown or has changed
    ├── HostProgramError          the program on the host answered with a failure
    ├── LaunchError               a server that did not start, become ready or answer
    ├── CaseError                 a case folder that cannot be used
    ├── BundleError               a bundle that cannot be made, read safely or believed
    ├── HistoryError              a history that cannot be used, or has no such record
    └── UsageError                options that do not go together

A message names the thing, the reason and the next step. Faults of the code itself are ordinary Python errors and are
not caught.
"""

from __future__ import annotations


class FingerprintError(Exception):
    """Base of all expected failures; its text is shown to the user as it stands."""


class SnapshotError(FingerprintError):
    """A file is not a snapshot, is cut off, or was written by a newer version."""


class TargetError(FingerprintError):
    """A target cannot be reached, or refused the command."""


class HostKeyError(TargetError):
    """The SSH host key is unknown or differs from the one on record."""


class HostProgramError(FingerprintError):
    """The program on the host answered with a failure.

    Attributes:
        kind: what failed, in one word (`fault`, `launch`, `void` ...).
        where: the host's traceback, when the fault is ours.
    """

    def __init__(self, message: str, kind: str = "fault", where: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.where = where


class LaunchError(FingerprintError):
    """A server did not start, did not become ready in time, or stopped answering."""


class CaseError(FingerprintError):
    """A case folder is missing, incomplete, or belongs to another run."""


class BundleError(FingerprintError):
    """A bundle cannot be made, cannot be read safely, or is not what it was made as."""


class HistoryError(FingerprintError):
    """A history folder cannot be used, or holds no record of that name or time."""


class UsageError(FingerprintError):
    """Options or arguments that contradict each other or name nothing."""
