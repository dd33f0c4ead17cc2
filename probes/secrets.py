"""Secrets are replaced on the host, before they travel.

A secret becomes `<secret:KEYID:DIGEST>`: the digest is keyed with a key of the operator's machine, so two snapshots
taken with one key still tell "same" from "changed", and nobody without the key can guess the value from it.

Names decide by whole words, so that TOKENIZERS_PARALLELISM, NCCL_IB_PKEY or SGLANG_MAX_TOKENS stay readable while
HF_TOKEN and S3_SECRET_ACCESS_KEY do not; known token shapes and credentials in URLs are replaced wherever they stand;
and a value that was secret once is replaced everywhere else too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Dict, List, Mapping, Optional, Pattern

LARGEST_TEXT_BYTES = 16 << 10
"""A file of settings that is longer is told by its digest alone."""
_SECRET_ANYWHERE = {"APIKEY", "CREDENTIAL", "CREDENTIALS", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SECRETS"}
_SECRET_AT_END = {"AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "CRED", "PASS", "PAT", "PWD", "TOKEN"}
_KEY_BEFORE = {"API", "ACCESS", "PRIVATE", "ACCOUNT", "SIGNING", "ENCRYPTION", "LICENSE", "DEPLOY", "MASTER", "ADMIN"}
_TEXT_TOKEN_BEFORE = {
    "PER", "MAX", "MIN", "NUM", "NEXT", "LAST", "FIRST", "BOS", "EOS", "EOT", "PAD", "UNK", "SEP", "CLS", "MASK",
    "STOP", "IMAGE", "AUDIO", "VIDEO", "DRAFT",
}  # fmt: skip
"""What a TOKEN behind these words is made of is text."""
_HARMLESS_NAMES = {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# Text comes from the host and may be made to hurt: no pattern here looks further back or ahead than a fixed length from
# a place where it cannot match, and Python's lock is held while one runs.
_SHAPES: List[Pattern[str]] = [
    re.compile(r"\bhf_[A-Za-z0-9]{16,}\b"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}\b"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}\b"),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]+"),
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"),
]
_URL_CREDENTIALS = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)([^/\s@'\"]+)(@)")
_NAMED = re.compile(
    r"""(?<![<\w.])(?<!\w-)(?P<flag>--)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)"""
    r"""(?:["']?\]?\s*[=:]\s*|["'](?P<given>\s*,\s*)(?=["'])|(?(flag)[ ]+|(?!)))""",
)
_SETTER = re.compile(r"""(?:setdefault|putenv|setenv)\(\s{0,8}["']$""")
_VALUE = re.compile(
    r"""(?P<quote>["'])(?P<quoted>(?:(?!(?P=quote))[^\n]){4,4096})|["']?(?P<plain>[^\s"'`,;)}\]]{4,4096})""",
)
_DIGIT = re.compile("[0-9]")


def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or key of this name holds a secret, judged by its whole words."""
    if name.upper() in _HARMLESS_NAMES:
        return False
    words = _words(name)
    if len(words) > 1 and words[-1] == "TOKEN" and words[-2] in _TEXT_TOKEN_BEFORE:
        return False
    return bool(words) and (words[-1] in _SECRET_AT_END or _means_nothing_else(words))


def _words(name: str) -> List[str]:
    return [word.upper() for word in _WORDS.findall(name.replace("-", "_"))]


def _means_nothing_else(words: List[str]) -> bool:
    """Not so of TOKEN and the like, which are most often no secrets where a model is served."""
    if _SECRET_ANYWHERE.intersection(words):
        return True
    return len(words) > 1 and words[-1] in {"KEY", "KEYS"} and words[-2] in _KEY_BEFORE


class Keeper:
    """Replaces secrets, and remembers those it met so that they are replaced wherever else they turn up."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._id = hashlib.sha256(b"fingerprint key id" + key).hexdigest()[:8]
        self._met: List[str] = []
        """Longest first: a secret that begins like another one must not leave its end behind."""

    def _meet(self, secret: str) -> None:
        if secret not in self._met:
            self._met = sorted([*self._met, secret], key=lambda met: (-len(met), met))

    def token(self, secret: str) -> str:
        """What stands in a secret's place."""
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:16]
        return f"<secret:{self._id}:{digest}>"

    def value(self, name: str, value: str) -> str:
        """A variable's value, replaced whole when its name says secret."""
        if value and is_secret_name(name):
            if len(value) >= 8:
                self._meet(value)
            return self.token(value)
        return self.text(value)

    def variables(self, variables: Mapping[str, str]) -> Dict[str, str]:
        """All variables of a process; secrets met in one are replaced in all others."""
        for name, value in variables.items():
            if len(value) >= 8 and is_secret_name(name):
                self._meet(value)
        return {name: self.value(name, value) for name, value in variables.items()}

    def argv(self, argv: List[str]) -> List[str]:
        """A command line: `--api-key X` and `--api-key=X` lose X."""
        clean: List[str] = []
        secret_next = False
        for word in argv:
            flag, mark, value = word.partition("=")
            if secret_next and not word.startswith("--"):
                clean.append(self.value("token", word))
                secret_next = False
            elif word.startswith("-") and mark and is_secret_name(flag.lstrip("-")):
                clean.append(f"{flag}={self.value('token', value)}")
            else:
                secret_next = word.startswith("-") and not mark and is_secret_name(word.lstrip("-"))
                clean.append(self.text(word))
        return clean

    def contents(self, raw: bytes, most: int = LARGEST_TEXT_BYTES) -> Optional[str]:
        """A file's text; None for one of more bytes, of which only the digest is kept."""
        return self.text(raw.decode("utf-8", "replace")) if len(raw) <= most else None

    def text(self, text: str) -> str:
        """Any other text: known shapes, credentials in URLs, assignments to secret names, and secrets met before."""
        for met in self._met:
            if met in text:
                text = text.replace(met, self.token(met))
        text = _URL_CREDENTIALS.sub(lambda found: found[1] + self.token(found[2]) + found[3], text)
        for shape in _SHAPES:
            text = shape.sub(lambda found: self.token(found[0]), text)
        return self._without_assigned(text)

    def _without_assigned(self, text: str) -> str:
        parts: List[str] = []
        at = barren = 0
        for found in _NAMED.finditer(text):
            if found.start() < at or found.end() < barren or not is_secret_name(found["name"]):
                continue
            if found["given"] and not _SETTER.search(text[max(0, found.start() - 20) : found.start()]):
                continue
            value = _VALUE.match(text, found.end())
            kind = value.lastgroup if value is not None else None
            if value is None or kind is None or "<secret:" in value[kind]:
                continue
            if kind == "plain" and not _DIGIT.search(value[kind]):
                barren = value.end()  # nothing in it is a value with a digit either
                continue
            sure = kind == "quoted" and _means_nothing_else(_words(found["name"]))
            if _looks_literal(value[kind]) or (sure and _looks_whole(value[kind])):
                parts += [text[at : value.start(kind)], self.token(value[kind])]
                at = value.end(kind)
        return "".join([*parts, text[at:]])


def _looks_literal(value: str) -> bool:
    """Source code that merely names a variable (`token = get_token(x)`) is not a secret."""
    return bool(_DIGIT.search(value)) and not re.search(r"[(\[.]", value)


def _looks_whole(value: str) -> bool:
    """What stands in quotes behind an unmistakable name is one, unless it is put together of parts."""
    return len(value) >= 8 and not re.search(r"[{}%$]", value)
