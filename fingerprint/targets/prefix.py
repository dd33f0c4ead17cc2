"""Targets behind a command: a container, a pod, a Slurm step, the system's ssh, or any prefix the user types."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from fingerprint.errors import UsageError
from fingerprint.targets.local import ProcessChannel


class PrefixTarget:
    """Runs `PREFIX COMMAND` on this machine."""

    def __init__(self, name: str, prefix: list[str]) -> None:
        self.name = name
        self._prefix = prefix

    def start(self, argv: list[str]) -> ProcessChannel:
        """Start a command behind the prefix. Raises TargetError when the prefix cannot be started."""
        words = list(argv)
        # Every ssh hands its words to a shell on the other side, which splits them again.
        for word in self._prefix:
            if PurePath(word).name == "ssh":
                words = [shlex.quote(part) for part in words]
        return ProcessChannel([*self._prefix, *words])


def docker(name: str) -> PrefixTarget:
    """A running container."""
    return PrefixTarget(f"docker:{name}", ["docker", "exec", "--interactive", _plain(name, "docker:NAME")])


def kubectl(place: str) -> PrefixTarget:
    """A running pod: `NAMESPACE/POD` or `NAMESPACE/POD/CONTAINER`."""
    parts = place.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise UsageError(
            f"kubectl:{place} is not a pod; write kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER."
        )
    namespace, pod, *container = (_plain(part, "kubectl:NAMESPACE/POD") for part in parts)
    chosen = [f"--container={container[0]}"] if container else []
    return PrefixTarget(
        f"kubectl:{place}", ["kubectl", "exec", "--stdin", f"--namespace={namespace}", pod, *chosen, "--"]
    )


def srun(options: str) -> PrefixTarget:
    """One task of a Slurm step: the options say which job and node."""
    return PrefixTarget(f"srun:{options}", ["srun", "--ntasks=1", "--unbuffered", *split(options, "srun:OPTIONS")])


def via(prefix: str) -> PrefixTarget:
    """Any prefix, such as `ssh -p 2222 gpu01` or `machinectl shell box`."""
    words = split(prefix, "via:'COMMAND PREFIX'")
    if not words:
        raise UsageError("via: names no command; write via:'ssh gpu01'.")
    return PrefixTarget(f"via:{prefix}", words)


def split(text: str, form: str) -> list[str]:
    """The words of a command line. Raises UsageError for an open quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text}: {error}; write {form}.") from None


def _plain(name: str, form: str) -> str:
    if not name or name.startswith("-") or any(letter.isspace() for letter in name):
        raise UsageError(f"{name or 'an empty name'} cannot be used; write {form}.")
    return name
