"""The files of a package version that is not installed any more: from a folder of wheels, or of an older environment.

What a snapshot knows of a distribution is its RECORD in a form that does not depend on the place (see
`probes.packages.record_digest`). A wheel or an installed copy is the right one when its own RECORD has that digest:
the name of a file proves nothing. Contents are read, and compared with RECORD, when they are sent to the host.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from packaging.tags import parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from fingerprint.errors import UsageError
from snapshots import Distribution, Interpreter

_OF_THE_INSTALLATION = frozenset(
    {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json"}
)
_LARGEST_RECORD_BYTES = 64 << 20
_DOWNLOAD_S = 1800.0
Row = tuple[str, str]
"""Path and SHA-256 (hexadecimal)."""


class Wheels:
    """Folders in which the files of packages can be found; each holds wheels, or is an environment's site-packages.

    Args:
        folders: where to look.
        index: a folder into which wheels that are in none of them are downloaded; None: they are not.
        only: names of the packages that may be downloaded; empty: all.
    """

    def __init__(
        self, folders: Iterable[Path] = (), index: Path | None = None, only: frozenset[str] = frozenset()
    ) -> None:
        self._folders = list(folders)
        self._index = index
        self._only = only
        self._held: dict[str, tuple[Path, str]] = {}
        self._archives: dict[Path, zipfile.ZipFile] = {}
        self._made: dict[str, bytes] = {}
        for folder in self._folders:
            if not folder.is_dir():
                raise UsageError(
                    f"{folder} is no folder; --wheelhouse names one with wheels or installed packages in it."
                )

    def has(self, digest: str) -> bool:
        """Whether a package that was found has this file."""
        return digest in self._held or digest in self._made

    def open(self, digest: str) -> tuple[int, BinaryIO]:
        """Size of a file of a package that was found, and the file opened."""
        if digest in self._made:
            return len(self._made[digest]), io.BytesIO(self._made[digest])
        container, name = self._held[digest]
        if container.is_dir():
            path = container / name
            return path.stat().st_size, path.open("rb")
        if container not in self._archives:  # its directory may be long: it is read once
            self._archives[container] = zipfile.ZipFile(container)
        archive = self._archives[container]
        return archive.getinfo(name).file_size, cast("BinaryIO", archive.open(name))

    def files(self, name: str, wanted: Distribution, interpreter: Interpreter | None) -> tuple[Row, ...] | str:
        """The files of a distribution below its location, its RECORD among them, or why there are none.

        Args:
            name: canonical name.
            wanted: what the old snapshot says of it.
            interpreter: that serves, for a download.
        """
        others = 0
        for folder in self._folders:
            for found in (*self._wheels(folder, name, wanted), *self._installed(folder, name, wanted)):
                if found is not None:
                    return found
                others += 1
        if self._index is not None and (not self._only or name in self._only):
            reason = _download(self._index, name, wanted, interpreter)
            if reason:
                return reason
            for found in self._wheels(self._index, name, wanted):
                if found is not None:
                    return found
                others += 1
        if others:
            return f"{name} {wanted.version} was found, but as another build than the old side had"
        return f"no wheel of {name} {wanted.version} was found"

    def _wheels(self, folder: Path, name: str, wanted: Distribution) -> Iterator[tuple[Row, ...] | None]:
        """The files of each wheel of this name and version; None for one that is another build."""
        for path in sorted(folder.glob("*.whl")):
            try:
                project, version, _build, tags = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            if project != name or str(version) != _version(wanted):
                continue
            if wanted.tags and tags.isdisjoint({tag for text in wanted.tags for tag in parse_tag(text)}):
                yield None
                continue
            try:
                with zipfile.ZipFile(path) as archive:
                    record = next(one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", one))
                    text = archive.read(record).decode("utf-8")
            except (OSError, StopIteration, zipfile.BadZipFile, UnicodeDecodeError):
                yield None
                continue
            yield self._taken(path, record, text, wanted)

    def _installed(self, folder: Path, name: str, wanted: Distribution) -> Iterator[tuple[Row, ...] | None]:
        """The same of an installed copy."""
        for place in sorted(folder.glob("*.dist-info")):
            project, _, version = place.name.removesuffix(".dist-info").rpartition("-")
            record = place / "RECORD"
            if canonicalize_name(project) == name and version == wanted.version and record.is_file():
                if record.stat().st_size > _LARGEST_RECORD_BYTES:
                    continue
                files = self._taken(folder, f"{place.name}/RECORD", record.read_text("utf-8"), wanted)
                yield files if files is not None and _is_whole(folder, files[:-1]) else None

    def _taken(self, container: Path, record: str, text: str, wanted: Distribution) -> tuple[Row, ...] | None:
        """The files that this RECORD lists, remembered, if it is the one that is wanted."""
        rows = [(row, place, digest) for row, digest in _rows(text) if (place := _placed(row)) is not None]
        lines = sorted(f"{place} sha256={_urlsafe(digest)}" for _row, place, digest in rows)
        found = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
        if isinstance(wanted.record, str) and wanted.record != found:
            return None
        files: list[Row] = []
        for row, place, digest in rows:
            if not place.startswith(("data/", "../", "/")):
                self._held[digest] = (container, row)
                files.append((place, digest))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows((place, f"sha256={_urlsafe(digest)}", "") for _row, place, digest in rows)
        writer.writerow((record, "", ""))
        made = out.getvalue().encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(made).hexdigest()
        self._made[digest] = made
        return (*sorted(files), (record, digest))


def _is_whole(folder: Path, files: Iterable[Row]) -> bool:
    """Whether installed files are still what their RECORD says."""
    for name, digest in files:
        try:
            found = hashlib.sha256()
            with (folder / name).open("rb") as stream:
                while piece := stream.read(1 << 20):
                    found.update(piece)
        except OSError:
            return False
        if found.hexdigest() != digest:
            return False
    return True


def _rows(text: str) -> Iterator[Row]:
    """The lines of a RECORD that a wheel ships, with SHA-256 in hexadecimal."""
    for cells in csv.reader(text.splitlines()):
        if len(cells) < 2 or cells[0].endswith(".pyc"):
            continue
        algorithm, _, digest = cells[1].partition("=")
        if algorithm == "sha256":
            yield cells[0], base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()


def _urlsafe(digest: str) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()


def _placed(row: str) -> str | None:
    """A path of a wheel or of an installed RECORD as snapshots compare it; None for what an installer makes."""
    if ".dist-info/" in row and row.rsplit("/", 1)[1] in _OF_THE_INSTALLATION:
        return None
    if "__pycache__/" in row:
        return None
    inside = re.fullmatch(r"[^/]+\.data/(purelib|platlib|data|headers|scripts)/(.*)", row)
    if inside is not None:
        scheme, rest = inside[1], inside[2]
        if scheme in {"purelib", "platlib"}:
            return rest
        return None if scheme == "scripts" or rest.startswith(("bin/", "Scripts/")) else f"data/{rest}"
    if row.startswith("../"):
        below = re.sub(r"^(\.\./)+", "", row)
        return None if below.startswith(("bin/", "Scripts/")) else f"data/{below}"
    return row


def _version(wanted: Distribution) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(str(wanted.version)))
    except InvalidVersion:
        return str(wanted.version)


def _download(folder: Path, name: str, wanted: Distribution, interpreter: Interpreter | None) -> str:
    """Ask pip for the wheel that the serving interpreter would get; empty, or why there is none."""
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    argv += ["--disable-pip-version-check", "--no-input", "--quiet"]
    tags = {tag for text in wanted.tags for tag in parse_tag(text)}
    for option, values in (
        ("--platform", {tag.platform for tag in tags} - {"any"}),
        ("--abi", {tag.abi for tag in tags} - {"none"}),
    ):
        argv += [word for value in sorted(values) for word in (option, value)]
    if interpreter is not None and isinstance(interpreter.version, str):
        argv += ["--python-version", ".".join(interpreter.version.split(".")[:2])]
    try:
        done = subprocess.run(
            [*argv, f"{name}=={wanted.version}"], capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the download of {name} {wanted.version} took longer than {_DOWNLOAD_S / 60:.0f} minutes"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"{name} {wanted.version} could not be downloaded: {last}"
    return ""
