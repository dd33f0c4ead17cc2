"""Text to tokens and back: a token for each byte, one for the end, and words for the rest."""

from __future__ import annotations

from collections.abc import Sequence

EOS = 256


def encode(text: str) -> list[int]:
    """One token for each UTF-8 byte."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    """The text of `ids`; bytes that are no UTF-8 are replaced."""
    return b"".join(
        bytes([token]) if token < EOS else b"" if token == EOS else f" w{token}".encode() for token in ids
    ).decode(errors="replace")
