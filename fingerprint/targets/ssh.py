"""SSH through paramiko, as the user's own ssh would go: ~/.ssh/config, jump hosts, agent, keys, certificates.

One connection, one command, one round trip after connecting. A host key is checked and never learned here: an unknown
one is refused with the command that would add it.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import logging
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from fingerprint.errors import HostKeyError, TargetError, UsageError

if TYPE_CHECKING:
    import paramiko
    from paramiko.config import SSHConfigDict

CONNECT_WITHIN_S = 15.0
_PATIENCE_S = 20.0
_DEEPEST_INCLUDE = 16


class Address(NamedTuple):
    """What a user typed: `[user@]host[:port]`, the parts that were not given are None."""

    user: str | None
    host: str
    port: int | None


def parse_address(text: str) -> Address:
    """Take `[user@]host[:port]` apart; two or more colons without brackets are an IPv6 address without a port.

    Raises:
        UsageError: it is no such thing.
    """
    user, at, rest = text.rpartition("@")
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        port = tail[1:] if tail.startswith(":") else ""
        if not bracket or (tail and not tail.startswith(":")):
            raise UsageError(f"{text}: an address in brackets is written [ADDRESS] or [ADDRESS]:PORT.")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host, port = rest, ""
    if (
        not host
        or host.startswith("-")
        or (at and not user)
        or any(letter.isspace() or letter in "/'\"" for letter in host)
    ):
        raise UsageError(f"{text or 'an empty text'} names no host; write host, user@host, user@host:port or ssh://...")
    if port and (not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536):
        raise UsageError(f"{text}: {port} is not a port.")
    return Address(user or None, host, int(port) if port else None)


def parse_url(text: str) -> Address:
    """Take `ssh://[user@]host[:port][/]` apart. Raises UsageError as `parse_address` does."""
    rest = text.removeprefix("ssh://").rstrip("/")
    if "/" in rest:
        raise UsageError(f"{text}: a target has no path; write ssh://user@host:port.")
    return parse_address(rest)


def read_config(path: Path, base: Path | None = None, depth: int = 0) -> str:
    """An ssh configuration with its `Include`s in place, relative ones below `base` (the folder of the first file).

    What cannot be read is left out, as ssh does.
    """
    base = base or path.parent
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    out: list[str] = []
    block = ""
    for line in lines:
        words = line.replace("=", " ", 1).split(None, 1)
        keyword = words[0].lower() if words else ""
        if keyword in {"host", "match"}:
            block = line
        if keyword != "include" or depth >= _DEEPEST_INCLUDE:
            out.append(line)
            continue
        for pattern in shlex.split(words[1]) if len(words) > 1 else []:
            wanted = base / Path(pattern).expanduser()
            found = sorted(Path(wanted.anchor).glob(str(wanted.relative_to(wanted.anchor))))
            out.extend(read_config(name, base, depth + 1) for name in found)
        out.append(block or "Host *")  # a Host line in an included file ends with it
    return "\n".join(out) + "\n"


class Channel:
    """A command on the other side; also keeps the connections that lead there."""

    def __init__(self, channel: paramiko.Channel, route: _Route) -> None:
        self._channel = channel
        self._route = route
        self.stdin = cast("BinaryIO", channel.makefile_stdin("wb", 1 << 16))
        self.stdout = cast("BinaryIO", channel.makefile("rb", 1 << 16))

    def close(self) -> None:
        """End the command's input, wait briefly for it, and let go of the connections."""
        with contextlib.suppress(OSError):
            self._channel.shutdown_write()
            self._channel.settimeout(_PATIENCE_S)
            while self._channel.recv(1 << 16):
                pass
        self._route.close()

    def complaint(self) -> str:
        """The last line of its standard error."""
        text = b""
        while self._channel.recv_stderr_ready() and len(text) < 65536:
            text += self._channel.recv_stderr(65536)
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


class SshTarget:
    """A host reached through SSH."""

    def __init__(self, address: Address, *, config: Path | None = None, name: str | None = None) -> None:
        """`config` stands for ~/.ssh/config; `name` is what the user typed."""
        self.name = name or (f"{address.user}@{address.host}" if address.user else address.host)
        self._address = address
        self._config = config or Path("~/.ssh/config").expanduser()

    def start(self, argv: list[str]) -> Channel:
        """Connect and start a command.

        Raises:
            HostKeyError: a host's key is unknown or not the one on record.
            TargetError: a host cannot be reached, or lets nobody in.
        """
        import paramiko

        route = _Route(self._config)
        try:
            transport = route.connect(self._address)
            channel = transport.open_session(timeout=CONNECT_WITHIN_S)
            channel.exec_command(shlex.join(argv))
        except paramiko.SSHException as error:
            route.close()
            raise TargetError(f"{self.name}: {error}.") from None
        except BaseException:
            route.close()
            raise
        return Channel(channel, route)


class _Route:
    """The connections that lead to a host: its jump hosts' and its own."""

    def __init__(self, config: Path) -> None:
        import paramiko

        # A connection that breaks is our own sentence; without a handler its traceback would go to standard error.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        text = read_config(config) + "Host *\n" + read_config(Path("/etc/ssh/ssh_config"))
        self._config = paramiko.SSHConfig.from_text(text)
        self._clients: list[paramiko.SSHClient] = []
        self._on_the_way: list[str] = []

    def close(self) -> None:
        """Let go of all connections, the last one first."""
        for client in reversed(self._clients):
            client.close()

    def connect(self, address: Address, through: paramiko.Transport | None = None) -> paramiko.Transport:
        """Connect to one host, `through` another where given, else as its configuration says."""
        import paramiko

        if address.host in self._on_the_way:
            raise TargetError(f"{address.host}: its ProxyJump leads round in circles.")
        options = self._config.lookup(address.host)
        host = options.get("hostname", address.host)
        port = address.port or int(options.get("port", 22))
        user = address.user or options.get("user") or getpass.getuser()
        where = f"{user}@{host}" if port == 22 else f"{user}@{f'[{host}]' if ':' in host else host}:{port}"
        way = self._way(address.host, options, host, port, where, through)
        alias = options.get("hostkeyalias")
        client = paramiko.SSHClient()
        known = _load_known_hosts(client, options)
        client.set_missing_host_key_policy(_refusal(host, port, alias, known))
        keys = [str(Path(name).expanduser()) for name in options.get("identityfile", [])]
        present = [name for name in keys if Path(name).is_file()]
        self._clients.append(client)
        try:
            client.connect(
                alias or host,
                port=22 if alias else port,
                username=user,
                key_filename=present or None,  # type: ignore[arg-type]  # a list is welcome, too
                allow_agent=options.get("identitiesonly", "no").lower() != "yes",
                look_for_keys=not keys,
                timeout=CONNECT_WITHIN_S,
                banner_timeout=CONNECT_WITHIN_S,
                auth_timeout=CONNECT_WITHIN_S,
                sock=way,
            )
        except paramiko.BadHostKeyException as error:
            raise HostKeyError(
                f"{where}: its {error.key.get_name()} key is {fingerprint_of(error.key)}, not the"
                f" {fingerprint_of(error.expected_key)} on record in {known}. Only if the host was really set up anew,"
                f" forget the old key: ssh-keygen -f {known} -R {shlex.quote(alias or _known_name(host, port))}"
            ) from None
        except paramiko.PasswordRequiredException:
            raise TargetError(f"{where}: its private key is locked; `ssh-add` hands it to the agent.") from None
        except paramiko.AuthenticationException as error:
            by_hand = f"ssh -v {'' if port == 22 else f'-p {port} '}{user}@{address.host}"
            tried = ", ".join(keys) if keys else "the agent's keys and those in ~/.ssh"
            raise TargetError(f"{where} does not accept {tried} ({_words(error)}); `{by_hand}` shows more.") from None
        except paramiko.SSHException as error:
            if str(error).startswith("No authentication methods"):
                raise TargetError(f"{where}: there is no key to offer, neither in the agent nor in ~/.ssh.") from None
            if "banner" in str(error):
                raise TargetError(f"{where} hung up or does not speak SSH on this port.") from None
            raise TargetError(f"{where}: {_words(error)}.") from None
        except (OSError, EOFError) as error:
            raise TargetError(f"{where} cannot be reached: {_words(error)}.") from None
        transport = client.get_transport()
        if transport is None:
            raise TargetError(f"{where} closed the connection again.")
        transport.set_keepalive(15)
        return transport

    def _way(
        self,
        name: str,
        options: SSHConfigDict,
        host: str,
        port: int,
        where: str,
        through: paramiko.Transport | None,
    ) -> paramiko.Channel | paramiko.ProxyCommand | socket.socket:
        """The stream on which SSH is spoken with a host."""
        import paramiko

        jumps = options.get("proxyjump", "none")
        command = options.get("proxycommand", "none")
        if through is None and jumps.lower() != "none":
            self._on_the_way.append(name)
            for jump in jumps.split(","):
                through = self.connect(parse_url(jump.strip()), through)
            self._on_the_way.pop()
        if through is not None:
            try:
                return through.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=CONNECT_WITHIN_S)
            except paramiko.SSHException as error:
                raise TargetError(f"{where} cannot be reached from its jump host: {_words(error)}.") from None
        if command.lower() != "none":
            return paramiko.ProxyCommand(command)
        try:
            return socket.create_connection((host, port), timeout=CONNECT_WITHIN_S)
        except OSError as error:
            raise TargetError(f"{where} cannot be reached: {_words(error)}.") from None


def _load_known_hosts(client: paramiko.SSHClient, options: SSHConfigDict) -> str:
    """Load the files of known hosts; returns the first one's name, where a new key would go."""
    files = shlex.split(options.get("userknownhostsfile", "~/.ssh/known_hosts"))
    for name in [*files, *shlex.split(options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts"))]:
        with contextlib.suppress(OSError):
            client.load_system_host_keys(str(Path(name).expanduser()))
    return files[0]


def _refusal(host: str, port: int, alias: str | None, known: str) -> paramiko.MissingHostKeyPolicy:
    import paramiko

    class Refusal(paramiko.MissingHostKeyPolicy):
        """Refuses an unknown host, with the command that would make it known."""

        def missing_host_key(self, _client: paramiko.SSHClient, _name: str, key: paramiko.PKey) -> None:
            line = f"{alias or _known_name(host, port)} {key.get_name()} {key.get_base64()}"
            raise HostKeyError(
                f"{host} shows a {key.get_name()} key that {known} does not have: {fingerprint_of(key)}."
                f" If that is the host's own, add it: echo {shlex.quote(line)} >> {known}"
            )

    return Refusal()


def _known_name(host: str, port: int) -> str:
    return host if port == 22 else f"[{host}]:{port}"


def fingerprint_of(key: paramiko.PKey) -> str:
    """A key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_WITHIN_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") or type(error).__name__
