"""From what a user types to a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fingerprint.targets.local import LocalTarget

if TYPE_CHECKING:
    from fingerprint.targets.base import Target


def parse_target(text: str) -> Target:
    """The target that `text` names.

    Raises:
        UsageError: it names none.
    """
    if text in {"local", ""}:
        return LocalTarget()
    from fingerprint.errors import UsageError

    raise UsageError(f"{text} is not a target; use `local`.")
