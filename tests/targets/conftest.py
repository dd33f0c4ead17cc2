"""A real sshd on loopback, with keys, certificates and configuration of the tests' own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One daemon for all tests; its authorized_keys are rewritten by `client`."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    place = tmp_path_factory.mktemp("sshd")
    key(place / "host")
    key(place / "authority")
    (place / "authorized").write_text("")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (place / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nListenAddress ::1\nHostKey {place}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"AuthorizedKeysFile {place}/authorized\nTrustedUserCAKeys {place}/authority.pub\nMaxStartups 100\n"
        f"Banner {place}/banner\nLogLevel VERBOSE\n"
    )
    (place / "banner").write_text("Welcome {to} node-x!  Disk quota 91%\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen([SSHD, "-D", "-E", place / "log", "-f", place / "config"])
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.01)
    yield Sshd(place, port)
    daemon.kill()
    daemon.wait()


@pytest.fixture
def client(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a client's configuration; returns its path. The home directory is the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    folder = tmp_path / ".ssh"
    folder.mkdir(mode=0o700)

    def write(text: str = "", *, known: bool = True, authorized: Path | None = None) -> Path:
        (sshd.place / "authorized").write_text(authorized.with_suffix(".pub").read_text() if authorized else "")
        (folder / "known_hosts").write_text(sshd.host_key() + sshd.host_key("::1") if known else "")
        (folder / "config").write_text(text)
        return folder / "config"

    return write
