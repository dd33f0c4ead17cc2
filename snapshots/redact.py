"""A snapshot fit for strangers: host names, user names, addresses and paths become pseudonyms.

A pseudonym is made of the name and a key, so with one key the same name has the same pseudonym in every snapshot, and
comparisons say what they said before. Words that every machine shares (`/usr/lib`, `site-packages`, `127.0.0.1`) stay.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_origin

from snapshots.base import Part
from snapshots.packages import Distribution
from snapshots.tree import LocalFile

if TYPE_CHECKING:
    from snapshots.snapshot import Snapshot

P = TypeVar("P", bound=Part)

_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4})(?![\w.:]*[\w])"
)
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HARDWARE = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|\bGPU-[0-9a-f-]{36}\b", re.IGNORECASE)
_PATH = re.compile(r"(?:(?<=://)|(?<![\w.~$}\])%/-]))/(?:[\w.@+,=~%-]+/)*[\w.@+,=~%-]+")
_URL = re.compile(r"\b([a-z][a-z+.-]{0,30}://)((?:[^/@\s]+@)?)([\w.-]+|\[[0-9a-f:.]+\])((?::\d+)?)(/[^\s\"']*)?")
_ACCOUNT = re.compile(r"(?<![\w.-])([\w.-]{1,64})@(?=[\w.\[-])")

_SHARED = frozenset(
    """
    usr lib lib64 bin sbin etc tmp var opt run home root srv mnt data local share include src site-packages
    dist-packages lib-dynload python python3 venv .venv env envs conda miniconda3 cache .cache .local .config log models
    hub snapshots blobs refs huggingface sglang torch triton flashinfer nvidia nccl cuda x86_64-linux-gnu
    aarch64-linux-gnu workspace app work sgl-workspace target draft
    """.split()  # noqa: SIM905 - words are easier to read than a list of literals
)
"""Parts of paths that say nothing about whose machine it is."""
_SAME_EVERYWHERE = re.compile(r"/(?:proc|sys|dev|bin|sbin|lib|lib64|etc)(?:/|$)|/usr/(?!local/)")
_PUBLIC = frozenset({"github.com", "gitlab.com", "huggingface.co"})
_PLAIN = re.compile(
    r"python3?\.?\d*|cuda-?[\d.]*|\d{1,3}|\d+(\.\d+)+|[\w.+-]*\.so(\.\d+)*|lib[\w+-]+\.so[\d.]*|[0-9a-f]{40,64}"
)
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_COMPARED = re.compile(r"([=!<>~]=\s*\d[\w.*+!-]*)")
"""A version in a requirement. Four numbers (`==9.19.0.56`) look like an address, and NVIDIA's packages have them."""
_AFTER_SHARED = ("site-packages", "dist-packages", "lib-dynload")
_NAME_VARIABLES = {"HOSTNAME", "HOST", "NODENAME", "SLURMD_NODENAME", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}
_USER_VARIABLES = {"USER", "LOGNAME", "SUDO_USER", "USERNAME", "SLURM_JOB_USER"}
_NOT_NAMES = {"local", "localhost", "root", "nobody", ""}


class Redactor:
    """Replaces what names a place or a person, always the same name by the same pseudonym."""

    def __init__(self, key: bytes, hosts: set[str], users: set[str]) -> None:
        """`hosts` and `users` are the names to look for; the rest is told by its form."""
        self._key = key
        names = sorted((name for name in hosts - _NOT_NAMES if len(name) > 2), key=len, reverse=True)
        self._hosts = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-])") if names else None
        self._users = users - _NOT_NAMES

    def pseudonym(self, kind: str, name: str) -> str:
        """What stands for a name."""
        digest = hmac.new(self._key, f"{kind}\0{name}".encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:8]}"

    def text(self, text: str) -> str:
        """Any text with its names replaced."""
        return self.pseudonym("user", text) if text in self._users else self.key(text)

    def key(self, text: str) -> str:
        """A key of a collection: a word there is the collection's own, never somebody's account."""
        text = _URL.sub(self._url, text)
        text = _PATH.sub(lambda found: self._path(found[0]), text)
        text = _ACCOUNT.sub(self._account, text)
        if self._hosts is not None:
            text = self._hosts.sub(lambda found: self.pseudonym("host", found[0]), text)
        text = _HARDWARE.sub(lambda found: self.pseudonym("device", found[0].lower()), text)
        return _ADDRESS.sub(self._address, text)

    def requirement(self, text: str) -> str:
        """What a package requires, its versions as they are."""
        pieces = _COMPARED.split(text)
        return "".join(piece if number % 2 else self.text(piece) for number, piece in enumerate(pieces))

    def _url(self, found: re.Match[str]) -> str:
        scheme, account, host, port, path = found[1], found[2], found[3], found[4], found[5] or ""
        if host in _PUBLIC:
            return found[0]
        if "." in host and not _ADDRESS.fullmatch(host):
            host = self.pseudonym("host", host)
        return scheme + account + host + port + self._path(path)

    def _account(self, found: re.Match[str]) -> str:
        return self.pseudonym("user", found[1]) + "@" if found[1] in self._users else found[0]

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified or text.count(":") == 1 or len(text) < 4:
            return text
        return self.pseudonym("address", text)

    def _path(self, path: str) -> str:
        if _SAME_EVERYWHERE.match(path):
            return path
        parts = path.split("/")
        for number, part in enumerate(parts):
            if part in _AFTER_SHARED:
                break  # what a package has inside is the same everywhere
            if part in _SHARED or _PLAIN.fullmatch(part) or _PCI.fullmatch(part) or not part:
                continue
            stem, dot, ending = part.rpartition(".")
            if stem and ending.isalpha() and len(ending) <= 12:
                parts[number] = self.pseudonym("name", stem) + dot + ending
            elif parts[number - 1] == "home" or part in self._users:
                parts[number] = self.pseudonym("user", part)
            else:
                parts[number] = self.pseudonym("name", part)
        return "/".join(parts)


def redact(snapshot: Snapshot, key: bytes, *, hosts: frozenset[str] = frozenset()) -> Snapshot:
    """The same snapshot with pseudonyms.

    Args:
        snapshot: what was captured.
        key: the case's key; snapshots that are to be compared need the same one.
        hosts: more names to replace, such as those of the case's other hosts.

    A patch that held a name is no longer `exact`.
    """
    own_hosts, users = names_in(snapshot)
    return _part(snapshot, Redactor(key, own_hosts | hosts, users))


def names_in(snapshot: Snapshot) -> tuple[set[str], set[str]]:
    """The names of hosts and of accounts that occur in a snapshot."""
    body = str(snapshot.model_dump(exclude_defaults=True))
    return set(_host_names(snapshot)), set(_user_names(snapshot, body))


def _part(part: P, redactor: Redactor) -> P:
    """One model with its values replaced; the names of its fields and words of a closed list are no names."""
    changes = {
        name: _value(value, redactor)
        for name, value in part.__dict__.items()
        if get_origin(type(part).model_fields[name].annotation) is not Literal
        and not (name == "version" and isinstance(value, str) and _NUMBERS.fullmatch(value))
    }
    if isinstance(part, Distribution):
        changes["requires"] = [redactor.requirement(one) for one in part.requires]
    if isinstance(part, LocalFile) and changes["patch"] != part.patch:
        changes["exact"] = False
    return part.model_copy(update=changes)


def _value(value: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - anything that a model holds
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, Part):
        return _part(value, redactor)
    if isinstance(value, list):
        return [_value(item, redactor) for item in value]
    if isinstance(value, dict):
        return {redactor.key(name): _value(item, redactor) for name, item in value.items()}
    return value


def _host_names(snapshot: Snapshot) -> Iterator[str]:
    """The names by which this host calls itself or was called."""
    if snapshot.host.name:
        yield snapshot.host.name
        yield snapshot.host.name.partition(".")[0]
    called = snapshot.target.rpartition("@")[2].removeprefix("ssh://")
    if ":" not in snapshot.target or snapshot.target.startswith("ssh://") or called.count(":") == 1:
        yield called.partition(":")[0].strip("[]/")
    for process in snapshot.server.processes.values():
        for variables in (process.at_exec, process.variables):
            if isinstance(variables, dict):
                yield from (value for name, value in variables.items() if name in _NAME_VARIABLES)


def _user_names(snapshot: Snapshot, body: str) -> Iterator[str]:
    """The accounts that occur."""
    yield snapshot.target.rpartition("@")[0].removeprefix("ssh://")
    for process in snapshot.server.processes.values():
        for variables in (process.at_exec, process.variables):
            if isinstance(variables, dict):
                yield from (value for name, value in variables.items() if name in _USER_VARIABLES)
    yield from re.findall(r"/(?:home|Users)/([\w.-]+)", body)
