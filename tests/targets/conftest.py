"""A real sshd on loopback and clients of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_daemon import SSHD, Sshd, running


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One daemon for all tests; its authorized_keys are rewritten by `client`."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    with running(tmp_path_factory.mktemp("sshd")) as daemon:
        yield daemon


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
