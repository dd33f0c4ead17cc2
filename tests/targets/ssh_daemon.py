"""A real sshd on loopback, with keys, certificates and configuration of the tests' own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from probes.ports import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


class Sshd:
    """A running daemon: where it listens and how a client may log in."""

    def __init__(self, place: Path, port: int) -> None:
        self.place = place
        self.port = port
        self.user = getpass.getuser()

    def host_key(self, name: str = "127.0.0.1") -> str:
        """Its line of known_hosts."""
        kind, key = (self.place / "host.pub").read_text().split()[:2]
        return f"[{name}]:{self.port} {kind} {key}\n"

    def log(self) -> str:
        """What it has logged so far."""
        return (self.place / "log").read_text()


def key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path, "-C", "tests"], check=True)
    return path


@contextlib.contextmanager
def running(place: Path, before: Sequence[str] = ()) -> Iterator[Sshd]:
    """One daemon; who may log in is what stands in `place / "authorized"`. The words `before` start it."""
    assert SSHD is not None
    key(place / "host")
    key(place / "authority")
    (place / "authorized").write_text("")
    port = free_port()
    (place / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nListenAddress ::1\nHostKey {place}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"AuthorizedKeysFile {place}/authorized\nTrustedUserCAKeys {place}/authority.pub\nMaxStartups 100\n"
        f"Banner {place}/banner\nLogLevel VERBOSE\n"
    )
    (place / "banner").write_text("Welcome {to} node-x!  Disk quota 91%\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen([*before, SSHD, "-D", "-E", place / "log", "-f", place / "config"])
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.01)
    try:
        yield Sshd(place, port)
    finally:
        daemon.kill()
        daemon.wait()
