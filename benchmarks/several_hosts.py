"""What it costs to capture several hosts at once, beside one, over a real sshd on loopback.

Every row is the command itself, `fingerprint capture H01 H02 ... -o FOLDER`, from start to end: interpreter,
connections, answers, one file a host. The hosts are one daemon under so many names, so all of their work falls on this
machine's processors; what the command and what the hosts needed of them is told apart. With processors for all hosts
the ratio is what an operator sees; with fewer, the hosts' work adds up.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from probes.ports import free_port

COUNTS = (1, 2, 4, 8, 16, 32)


def _key(path: Path) -> str:
    """Make a key pair; returns the public half's line."""
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(private)
    line = made.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    path.with_suffix(".pub").write_text(line + "\n")
    return line


class Sshd:
    """A daemon on loopback for the length of the run; `home` has a ~/.ssh that knows it as h01, h02 and so on."""

    def __init__(self, home: Path) -> None:
        """Raises FileNotFoundError where neither $SSHD nor the usual places have one."""
        program = os.environ.get("SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        if program is None or not Path(program).is_file():
            raise FileNotFoundError(program or "sshd")
        self.home = home
        folder = home / ".ssh"
        folder.mkdir()
        host, own = (_key(folder / name) for name in ("host", "id_ed25519"))
        (folder / "authorized").write_text(own + "\n")
        self.port = free_port()
        (folder / "sshd").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
            f"StrictModes no\nPermitRootLogin yes\nAuthorizedKeysFile {folder}/authorized\nMaxStartups 200\n"
        )
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}\n")
        self.config = folder / "config"
        self.config.write_text(
            f"Host h*\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {folder}/id_ed25519\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self._process = subprocess.Popen([program, "-D", "-E", folder / "log", "-f", folder / "sshd"])
        for _ in range(500):
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:  # it is about to listen
                time.sleep(0.01)
        log = folder / "log"
        self.stop()
        sys.exit(f"{program} does not listen: {log.read_text().strip() if log.exists() else 'no log'}")

    def cpu_seconds(self) -> float:
        """Processor seconds of the daemon and of everything that it ran, once all of that has ended."""
        while any(fields[1] == str(self._process.pid) for fields in map(_stat, Path("/proc").glob("[0-9]*")) if fields):
            time.sleep(0.05)
        return sum(map(int, _stat(Path(f"/proc/{self._process.pid}"))[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the daemon."""
        self._process.kill()
        self._process.wait()


def _stat(process: Path) -> list[str]:
    """The fields of a process's stat from its state on; empty when it has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


class Run(NamedTuple):
    """One command: how long it took, and the processor seconds of both sides."""

    seconds: float
    own_s: float
    hosts_s: float


def capture(daemon: Sshd, count: int, options: list[str]) -> Run:
    """Capture `count` hosts with one command."""
    folder = daemon.home / f"{count}-{time.monotonic_ns()}"
    names = [f"h{number:02}" for number in range(1, count + 1)]
    where = folder if count > 1 else folder / "h01.json"
    argv = [sys.executable, "-m", "fingerprint", "capture", *names, "-o", str(where), "--quiet", *options]
    argv += ["--host-python", sys.executable]
    before = daemon.cpu_seconds()
    began = time.perf_counter()
    process = subprocess.Popen(argv, env={**os.environ, "HOME": str(daemon.home)}, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    files = len(list(folder.glob("*.json")))
    if process.returncode != 0 or files != count:
        raise RuntimeError(f"{count} hosts, {files} files, exit code {process.returncode}: {said.strip()[-400:]}")
    shutil.rmtree(folder)
    return Run(seconds, used.ru_utime + used.ru_stime, daemon.cpu_seconds() - before)


def table(daemon: Sshd, options: list[str], repeat: int) -> None:
    """Capture so many hosts at once in turns, and print medians, ranges and ratios."""
    capture(daemon, 1, options)  # files and the key are there from now on
    runs: dict[int, list[Run]] = {count: [] for count in COUNTS}
    for _ in range(repeat):
        for count in COUNTS:
            runs[count].append(capture(daemon, count, options))
    base = statistics.median(run.seconds for run in runs[1])
    print(f"{'hosts at once':>13}{'median s':>10}{'range s':>13}{'x one':>7}{'own CPU s':>11}{'hosts CPU s':>13}")
    for count, values in runs.items():
        seconds = [run.seconds for run in values]
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        middle, own, theirs = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{count:13}{middle:10.2f}{spread:>13}{middle / base:7.2f}{own:11.2f}{theirs:13.2f}")
    print(
        f"\nThe hosts are this machine, under so many names: {len(os.sched_getaffinity(0))} processors do all the work."
    )
