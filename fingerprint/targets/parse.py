"""From what a user types to a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fingerprint.errors import UsageError
from fingerprint.targets.local import LocalTarget

if TYPE_CHECKING:
    from pathlib import Path

    from fingerprint.targets.base import Target

FORMS = (
    "local, HOST, USER@HOST[:PORT], ssh://..., docker:NAME, kubectl:NAMESPACE/POD, srun:OPTIONS or via:'COMMAND PREFIX'"
)


def parse_target(text: str, *, ssh_config: Path | None = None) -> Target:
    """The target that `text` names.

    Args:
        text: one of `FORMS`.
        ssh_config: stands for ~/.ssh/config.

    Raises:
        UsageError: it names none.
    """
    if text in {"local", ""}:
        return LocalTarget()
    kind, colon, rest = text.partition(":")
    if colon and kind in {"docker", "kubectl", "srun", "via"}:
        from fingerprint.targets import prefix

        return {"docker": prefix.docker, "kubectl": prefix.kubectl, "srun": prefix.srun, "via": prefix.via}[kind](rest)
    from fingerprint.targets import ssh

    try:
        address = ssh.parse_url(text) if text.startswith("ssh://") else ssh.parse_address(text)
    except UsageError as error:
        raise UsageError(f"{error} A target is {FORMS}.") from None
    return ssh.SshTarget(address, config=ssh_config, name=text)
