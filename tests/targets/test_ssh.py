"""SSH against a real daemon."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from fingerprint.capture import capture
from fingerprint.errors import HostKeyError, TargetError, UsageError
from fingerprint.host import HostProgram
from fingerprint.targets import parse_target
from fingerprint.targets.parse import FORMS
from fingerprint.targets.ssh import Address, SshTarget, parse_address, parse_url, read_config

Client = Callable[..., Path]


class Sshd(Protocol):
    """The daemon."""

    place: Path
    port: int
    user: str


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)
    return path


def answer(target: SshTarget, *argv: str) -> bytes:
    channel = target.start(list(argv))
    try:
        return channel.stdout.read()
    finally:
        channel.close()


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("gpu01:2222", None, "gpu01", 2222),
        ("[2001:db8::12]:2222", None, "2001:db8::12", 2222),
        ("2001:db8::12", None, "2001:db8::12", None),
        ("fe80::1%eth0", None, "fe80::1%eth0", None),
        ("u@[2001:db8::12]", "u", "2001:db8::12", None),
        ("ssh://u@gpu01:2222/", "u", "gpu01", 2222),
        ("me@corp@gpu01", "me@corp", "gpu01", None),
        ("gpu01", None, "gpu01", None),
    ],
)
def test_addresses_are_read_as_they_are_meant(text: str, user: str | None, host: str, port: int | None) -> None:
    read = parse_url(text) if text.startswith("ssh://") else parse_address(text)
    assert read == Address(user, host, port)


@pytest.mark.parametrize(
    "text", ["@host", "host:port", "host:70000", "[::1", "-oProxyCommand=x", "a b", "ssh://h/path", "./file"]
)
def test_what_is_no_target_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_target(text)
    assert FORMS in str(refused.value)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_every_kind_of_key_gets_in_and_input_and_output_are_whole(
    sshd: Sshd, client: Client, tmp_path: Path, kind: str
) -> None:
    own = make_key(tmp_path / "own", kind)
    config = client(f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {own}\n", authorized=own)
    channel = SshTarget(parse_address("box"), config=config).start(["cat"])
    blob = bytes(range(256)) * 4096
    channel.stdin.write(blob)
    channel.stdin.flush()
    assert channel.stdout.read(len(blob)) == blob
    channel.close()


def test_words_arrive_as_they_were_given(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n", authorized=own)
    target = SshTarget(Address(None, "127.0.0.1", sshd.port), config=config)
    assert answer(target, "printf", "%s|", "a b", "$HOME", "it's", 'q"', "*") == b"a b|$HOME|it's|q\"|*|"


def test_a_certificate_gets_in_without_an_authorized_key(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    sign = ["ssh-keygen", "-q", "-s", f"{sshd.place}/authority", "-I", "tests", "-n", sshd.user, f"{own}.pub"]
    subprocess.run(sign, check=True)
    config = client(f"IdentityFile {own}\n")
    assert answer(SshTarget(Address(None, "127.0.0.1", sshd.port), config=config), "echo", "in") == b"in\n"


def test_the_agent_opens_what_a_passphrase_locks(
    sshd: Sshd, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="not told")
    config = client(f"IdentityFile {locked}\n", authorized=locked)
    target = SshTarget(Address(None, "127.0.0.1", sshd.port), config=config)
    with pytest.raises(TargetError, match="locked; `ssh-add`"):
        answer(target, "true")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    try:
        while not (tmp_path / "agent").exists():
            assert agent.poll() is None
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        asker = tmp_path / "asker"
        asker.write_text("#!/bin/sh\necho not told\n")
        asker.chmod(0o755)
        ask = {**os.environ, "SSH_ASKPASS": str(asker), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(
            ["ssh-add", "-q", locked], env=ask, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert answer(target, "echo", "in") == b"in\n"
    finally:
        agent.kill()
        agent.wait()


def test_an_unknown_host_is_refused_and_the_command_given_makes_it_known(
    sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n", authorized=own, known=False)
    target = SshTarget(Address(None, "127.0.0.1", sshd.port), config=config)
    with pytest.raises(HostKeyError) as refused:
        answer(target, "true")
    printed = subprocess.run(["ssh-keygen", "-l", "-f", sshd.place / "host.pub"], capture_output=True, text=True)
    assert printed.stdout.split()[1] in str(refused.value)
    command = str(refused.value).partition("add it: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert answer(target, "echo", "in") == b"in\n"


def test_a_changed_host_key_is_refused(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    other = make_key(tmp_path / "other")
    config = client(f"IdentityFile {own}\n", authorized=own)
    kind, blob = other.with_suffix(".pub").read_text().split()[:2]
    (tmp_path / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    with pytest.raises(HostKeyError, match=r"on record in ~/\.ssh/known_hosts"):
        answer(SshTarget(Address(None, "127.0.0.1", sshd.port), config=config), "true")


def test_hashed_known_hosts_are_understood(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n", authorized=own)
    subprocess.run(
        ["ssh-keygen", "-q", "-H", "-f", tmp_path / ".ssh/known_hosts"], check=True, stderr=subprocess.DEVNULL
    )
    assert "127.0.0.1" not in (tmp_path / ".ssh/known_hosts").read_text()
    assert answer(SshTarget(Address(None, "127.0.0.1", sshd.port), config=config), "echo", "in") == b"in\n"


def test_jump_hosts_lead_through_and_none_means_none(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    (tmp_path / ".ssh/more.conf").write_text(f"Host bastion *.lab\n HostName 127.0.0.1\n Port {sshd.port}\n")
    config = client(
        f"Include more.conf\nIdentityFile {own}\n"
        "Host bastion\n ProxyJump none\nHost *.lab !bastion\n ProxyJump bastion\n",
        authorized=own,
    )
    assert (
        answer(SshTarget(parse_address("gpu.lab"), config=config), "sh", "-c", "echo $SSH_CONNECTION").count(
            b"127.0.0.1"
        )
        == 2
    )
    channel = SshTarget(parse_address("gpu.lab"), config=config).start(["true"])
    assert len(channel._route._clients) == 2
    channel.close()
    direct = SshTarget(parse_address("bastion"), config=config).start(["true"])
    assert len(direct._route._clients) == 1
    direct.close()


def test_jumps_in_circles_are_noticed(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    config = client("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(TargetError, match="in circles"):
        answer(SshTarget(parse_address("a"), config=config), "true")


def test_ipv6_is_an_address_like_any_other(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n", authorized=own)
    target = parse_target(f"[::1]:{sshd.port}", ssh_config=config)
    assert isinstance(target, SshTarget)
    assert answer(target, "echo", "in") == b"in\n"


def test_a_refused_key_and_a_closed_port_are_sentences(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n")
    with pytest.raises(TargetError, match=rf"{sshd.user}@127\.0\.0\.1:{sshd.port} does not accept"):
        answer(SshTarget(Address(None, "127.0.0.1", sshd.port), config=config), "true")
    with pytest.raises(TargetError, match="cannot be reached: Connection refused"):
        answer(SshTarget(Address(None, "127.0.0.1", 1), config=config), "true")


def test_a_whole_capture_comes_through_banners_and_leaves_nothing_running(
    sshd: Sshd, client: Client, tmp_path: Path
) -> None:
    own = make_key(tmp_path / "own")
    config = client(f"IdentityFile {own}\n", authorized=own)
    target = SshTarget(Address(None, "127.0.0.1", sshd.port), config=config)
    with HostProgram(target) as host:
        pid = host.greeting["pid"]
        assert Path(f"/proc/{pid}").exists()
        snapshot = capture(
            host, {"sections": ["startup"], "venv": os.environ.get("VIRTUAL_ENV", "/usr"), "pid": os.getpid()}
        )
    assert snapshot.target == sshd.user + "@127.0.0.1" or snapshot.target == "127.0.0.1"
    for _ in range(1000):  # until the daemon has reaped it
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.01)
    else:
        pytest.fail("the program is still there")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh on this machine: install openssh-client")
@pytest.mark.parametrize("name", ["bastion", "gpu.lab", "gpu01", "bastion.lab", "other"])
def test_the_configuration_means_what_ssh_itself_makes_of_it(tmp_path: Path, name: str) -> None:
    import paramiko

    (tmp_path / "inner").write_text(f"Include {tmp_path}/folder/*\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/last").write_text("Host gpu01\n HostName 192.0.2.10\n User included\n")
    config = tmp_path / "config"
    config.write_text(
        f"Include {tmp_path}/inn*\nHost bastion\n    ProxyJump none\nHost *.lab !bastion\n    ProxyJump bastion\n"
        "Host gpu01\n    HostName 192.0.2.11\n    Port = 2200\n    IdentityFile ~/.ssh/gpu_ed25519\n"
        "Host *\n    User everyone\n"
    )
    told = subprocess.run(["ssh", "-G", "-F", config, name], capture_output=True, text=True, check=True).stdout
    theirs = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
    ours = paramiko.SSHConfig.from_text(read_config(config)).lookup(name)
    assert ours["hostname"] == theirs["hostname"]
    assert ours.get("port", "22") == theirs["port"]
    assert ours["user"] == theirs["user"]
    assert ours.get("proxyjump", "none") == theirs.get("proxyjump", "none")


def test_relative_includes_are_below_the_first_file_s_folder(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config").write_text("Include conf.d/*\n")
    (tmp_path / "conf.d/first").write_text("Include conf.d.more\n")
    (tmp_path / "conf.d.more").write_text("Host deep\n Port 2222\n")
    (tmp_path / "circle").write_text("Include circle\n")
    assert "Port 2222" in read_config(tmp_path / "config")
    assert isinstance(read_config(tmp_path / "circle"), str)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_speaks_no_ssh_is_one_sentence_and_no_traceback(said: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_once() -> None:
            connection, _ = listening.accept()
            connection.sendall(said)
            connection.close()

        threading.Thread(target=answer_once, daemon=True).start()
        port = listening.getsockname()[1]
        words = [sys.executable, "-m", "fingerprint", "capture", f"127.0.0.1:{port}", "-o", str(tmp_path / "x.json")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith(f"@127.0.0.1:{port} hung up or does not speak SSH on this port.")
