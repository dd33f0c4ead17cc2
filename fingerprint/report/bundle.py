"""A bundle: one zip that proves a case, and the checks of one that comes from a stranger.

Everything in it is listed with its size and SHA-256 in `manifest.json`, and a signature signs the manifest, so it
covers all of it. The signature is OpenSSH's own (`ssh-keygen -Y sign`): no new keys, and anyone can check it by hand.

A stranger's bundle is hostile: before anything is read the directory at its end must be small and plain, names must be
simple relative ones, and every file is read in pieces and never past the size that the manifest gives.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fingerprint import __version__
from fingerprint.errors import BundleError, UsageError
from fingerprint.report.words import clean

if TYPE_CHECKING:
    from fingerprint.case import Case

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"
NAMESPACE = "fingerprint-bundle"
"""What a signature is for; the same key's signature of anything else does not count here."""
LARGEST_FILE_BYTES = 256 << 20
LARGEST_BUNDLE_BYTES = 1 << 30
LARGEST_MANIFEST_BYTES = 1 << 20
LARGEST_DIRECTORY_BYTES = 1 << 20
MOST_FILES = 1000
_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99}/){0,4}[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PIECE = 1 << 20
_SSH_KEYGEN_S = 60.0


class Entry(BaseModel):
    """One file of a bundle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0, le=LARGEST_FILE_BYTES)


class Manifest(BaseModel):
    """What a bundle holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_number: Literal[1] = Field(default=1, alias="schema")
    tool: str
    made_at: datetime
    redaction: str = "none"
    files: dict[str, Entry]


class Verified(BaseModel):
    """What a check of a bundle found.

    Attributes:
        manifest: what it claims to hold.
        altered: files that are not what the manifest says.
        missing: files that are listed and not there.
        extra: files that are there and not listed.
        signature: what is known of the signature.
        signer: who signed it, as the allowed signers file calls them; the key's own print where there was none.
    """

    model_config = ConfigDict(frozen=True)

    manifest: Manifest
    altered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    signature: Literal["none", "good", "unknown signer", "bad"] = "none"
    signer: str = ""

    @property
    def whole(self) -> bool:
        """Every file is what the manifest says, and no signature contradicts it."""
        return not (self.altered or self.missing or self.extra) and self.signature != "bad"


def findings(verified: Verified) -> list[str]:
    """What a check found, in sentences; the signature last."""
    manifest = verified.manifest
    said = [
        f"{len(manifest.files)} files, made {manifest.made_at:%Y-%m-%d %H:%M %Z} by fingerprint {clean(manifest.tool)}"
    ]
    if manifest.redaction != "none":
        said.append(f"redacted: {clean(manifest.redaction)}")
    for words, names in (("altered", verified.altered), ("missing", verified.missing), ("added", verified.extra)):
        said += [f"{words}: {clean(name)}" for name in names]
    said.append(
        {
            "none": "not signed: this shows that nothing was damaged, not who made it",
            "good": f"signed by {clean(verified.signer)}",
            "unknown signer": f"signed with {clean(verified.signer)}, which no allowed signer has",
            "bad": "the signature does not fit: the manifest was altered after it was signed",
        }[verified.signature]
    )
    return said


def case_files(folder: Path) -> dict[str, Path]:
    """The files of a case that belong into a bundle, by the name that they get there."""
    names = ["old.json", "new.json", "journal.jsonl", "verdict.json", "report.md", "report.html"]
    found = {name: folder / name for name in names if (folder / name).is_file()}
    pictures = sorted((folder / "pictures").glob("*.svg")) if (folder / "pictures").is_dir() else []
    return found | {f"pictures/{path.name}": path for path in pictures}


def write_bundle(
    case: Case,
    path: Path,
    *,
    sign: Path | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    redaction: str = "none",
) -> Manifest:
    """Write the bundle of a case, whole or not at all.

    Args:
        case: the case; its report is expected to be there.
        path: the zip to write.
        sign: a private SSH key (or the public half of one that the agent holds) to sign with.
        now: the clock.
        redaction: what was replaced in the files of the case folder.

    Raises:
        BundleError: it cannot be written or signed.
    """
    files = case_files(case.folder)
    entries: dict[str, Entry] = {}
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent if path.parent.is_dir() else None)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, file in files.items():
                data = file.read_bytes()
                entries[inside] = Entry(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
                archive.writestr(_plain(inside), data)
            manifest = Manifest(tool=__version__, made_at=now(), redaction=redaction, files=entries)
            text = json.dumps(manifest.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"
            archive.writestr(_plain(MANIFEST), text)
            if sign is not None:
                archive.writestr(_plain(SIGNATURE), _signature(text.encode(), sign))
        shutil.move(partial, path)
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _plain(name: str) -> zipfile.ZipInfo:
    """An entry without the time and the rights of a file, so that equal cases give equal bundles."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def verify_bundle(path: Path, allowed_signers: Path | None = None) -> Verified:
    """Check every file of a bundle, and its signature.

    Args:
        path: the bundle.
        allowed_signers: OpenSSH's file of who may sign (`name key` lines).

    Raises:
        BundleError: it is no bundle, or one that cannot be read safely.
    """
    if allowed_signers is not None and not allowed_signers.is_file():
        raise UsageError(f"{allowed_signers} does not exist; it holds lines of a name and a public key.")
    with _opened(path) as archive:
        manifest, text = _manifest(archive, path)
        there = set(archive.namelist()) - {MANIFEST, SIGNATURE}
        altered = []
        for name, entry in manifest.files.items():
            if name in there:
                digest = hashlib.sha256()
                size = 0
                for piece in _pieces(archive, name, entry.bytes):
                    digest.update(piece)
                    size += len(piece)
                if size != entry.bytes or digest.hexdigest() != entry.sha256:
                    altered.append(name)
        verdict: Literal["none", "good", "unknown signer", "bad"] = "none"
        signer = ""
        if SIGNATURE in archive.namelist():
            signature = b"".join(_pieces(archive, SIGNATURE, LARGEST_MANIFEST_BYTES))
            verdict, signer = _signed_by(text, signature, allowed_signers)
        return Verified(
            manifest=manifest,
            altered=tuple(altered),
            missing=tuple(sorted(manifest.files.keys() - there)),
            extra=tuple(sorted(there - manifest.files.keys())),
            signature=verdict,
            signer=signer,
        )


def unpack_bundle(path: Path, folder: Path) -> Verified:
    """Take a bundle apart into a new folder; only what it lists, and only if all of it is whole.

    Raises:
        BundleError: it is not whole, or cannot be read safely; or the folder exists.
    """
    verified = verify_bundle(path)
    if not verified.whole:
        wrong = (*verified.altered, *verified.missing, *verified.extra) or ("its signature",)
        raise BundleError(f"{path} is not what it was made as: {', '.join(wrong[:5])}; ask for it again.")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise BundleError(f"{folder} exists already; name a folder that does not.") from None
    with _opened(path) as archive:
        for name, entry in verified.manifest.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as stream:
                for piece in _pieces(archive, name, entry.bytes):
                    stream.write(piece)
    return verified


# -- reading what may be hostile ---------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, after its directory was found to be small and its names simple."""
    try:
        with path.open("rb") as stream:
            _check_end(stream, path)
            with zipfile.ZipFile(stream) as archive:
                _check_names(archive, path)
                yield archive
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BundleError(f"{path} is no bundle, or a damaged one ({error}).") from None


def _check_end(stream: IO[bytes], path: Path) -> None:
    """Refuse a directory that would fill the memory before any of its entries could be looked at."""
    size = stream.seek(0, os.SEEK_END)
    if size > LARGEST_BUNDLE_BYTES:
        raise BundleError(f"{path} is larger than {LARGEST_BUNDLE_BYTES >> 20} MiB: not a bundle of ours.")
    start = max(0, size - (22 + 65535 + 20))
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise BundleError(f"{path} is not a zip file.")
    _, _, _, _, entries, directory, offset, _ = struct.unpack("<4sHHHHIIH", tail[at : at + 22])
    zip64 = at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07"
    if zip64 or entries > MOST_FILES + 2 or directory > LARGEST_DIRECTORY_BYTES or offset > size:
        raise BundleError(f"{path} holds more files than any bundle does; it was not opened.")
    stream.seek(0)


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    seen: set[str] = set()
    for entry in archive.infolist():
        folded = entry.filename.casefold()
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not _NAME.fullmatch(entry.filename) or ".." in entry.filename:
            raise BundleError(f"{path} holds a file with an unsafe name ({entry.filename[:60]!r}); it was not opened.")
        plain = entry.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} and not entry.flag_bits & 1
        if folded in seen or kind not in {0, stat.S_IFREG} or not plain:
            raise BundleError(f"{path}: {entry.filename} is no plain file, or there twice; it was not opened.")
        seen.add(folded)


def _manifest(archive: zipfile.ZipFile, path: Path) -> tuple[Manifest, bytes]:
    if MANIFEST not in archive.namelist():
        raise BundleError(f"{path} has no {MANIFEST}: not a bundle.")
    text = b"".join(_pieces(archive, MANIFEST, LARGEST_MANIFEST_BYTES))
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(f"{path}: {MANIFEST} is damaged ({error.errors()[0]['msg']}).") from None
    if any(not _NAME.fullmatch(name) or ".." in name for name in manifest.files):
        raise BundleError(f"{path}: {MANIFEST} names a file that no bundle holds.")
    if sum(entry.bytes for entry in manifest.files.values()) > LARGEST_BUNDLE_BYTES:
        raise BundleError(f"{path} claims to hold more than {LARGEST_BUNDLE_BYTES >> 20} MiB; it was not opened.")
    return manifest, text


def _pieces(archive: zipfile.ZipFile, name: str, most: int) -> Iterator[bytes]:
    """A file's bytes in pieces; stops one byte past `most`, which no honest file reaches."""
    left = most + 1
    try:
        with archive.open(name) as stream:
            while left > 0 and (piece := stream.read(min(_PIECE, left))):
                left -= len(piece)
                yield piece
    except (zipfile.BadZipFile, zlib.error):
        yield b"damaged"  # one piece too many: altered, whatever it holds


# -- signatures --------------------------------------------------------------------------------------------------


def _ssh_keygen(words: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words], input=data, capture_output=True, timeout=_SSH_KEYGEN_S, check=False
        )
    except FileNotFoundError:
        raise BundleError("Signatures need ssh-keygen (OpenSSH 8.2 or later) on this machine.") from None
    except subprocess.TimeoutExpired:
        raise BundleError("ssh-keygen did not answer; does the key's agent wait for a touch or a passphrase?") from None


def _signature(text: bytes, key: Path) -> bytes:
    if not key.is_file():
        raise UsageError(f"{key} does not exist; name an SSH key, such as ~/.ssh/id_ed25519.")
    done = _ssh_keygen(["sign", "-q", "-n", NAMESPACE, "-f", str(key)], text)
    if done.returncode != 0:
        raise BundleError(f"The bundle could not be signed with {key}: {_last(done.stderr)}.")
    return done.stdout


def _signed_by(
    text: bytes, signature: bytes, allowed: Path | None
) -> tuple[Literal["good", "unknown signer", "bad"], str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "signature")
        file.write_bytes(signature)
        plain = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", str(file)], text)
        if plain.returncode != 0:
            return "bad", ""
        found = re.search(rb"(SHA256:[A-Za-z0-9+/]+)", plain.stdout + plain.stderr)
        key = found.group(1).decode() if found else "a key"
        if allowed is None:
            return "unknown signer", key
        names = _ssh_keygen(["find-principals", "-s", str(file), "-f", str(allowed)], b"")
        for name in names.stdout.decode("utf-8", "replace").splitlines():
            words = ["verify", "-q", "-n", NAMESPACE, "-s", str(file), "-f", str(allowed), "-I", name]
            if name and not name.startswith("-") and _ssh_keygen(words, text).returncode == 0:
                return "good", name
        return "unknown signer", key


def _last(output: bytes) -> str:
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:200].rstrip(".") if lines else "no reason was given"
