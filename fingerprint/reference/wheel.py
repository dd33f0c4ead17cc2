"""Wheels from source folders, and site-packages as an installer leaves it, with the standard library alone.

A wheel's contents decide its RECORD, so two wheels of one version with other contents differ in nothing else, as
it happens when somebody rebuilds a package and does not raise the version.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fingerprint.extract import record_of

_EPOCH = (2026, 1, 5, 9, 0, 0)  # the same bytes for the same contents


@dataclass(frozen=True)
class Wheel:
    """One pure-Python distribution with one package of the same name, `-` read as `_`."""

    name: str
    version: str
    files: Mapping[str, str]
    """Text of each file by its path below site-packages."""
    summary: str = ""
    requires: tuple[str, ...] = ()

    @property
    def dist_info(self) -> str:
        """Name of the metadata folder."""
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info"

    def contents(self) -> dict[str, bytes]:
        """All files of the wheel but RECORD."""
        metadata = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        metadata += [f"Summary: {self.summary}"] if self.summary else []
        metadata += [f"Requires-Dist: {requirement}" for requirement in self.requires]
        wheel = ["Wheel-Version: 1.0", "Generator: tinyserve", "Root-Is-Purelib: true", "Tag: py3-none-any"]
        return {path: text.encode() for path, text in sorted(self.files.items())} | {
            f"{self.dist_info}/METADATA": "\n".join([*metadata, ""]).encode(),
            f"{self.dist_info}/WHEEL": "\n".join([*wheel, ""]).encode(),
            f"{self.dist_info}/top_level.txt": f"{self.name.replace('-', '_')}\n".encode(),
        }

    def build(self, folder: Path) -> Path:
        """Write the wheel into `folder`, over an older one of that version; returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"
        contents = self.contents()
        contents[f"{self.dist_info}/RECORD"] = record_of(contents, self.dist_info)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
        return path


def install(wheel: Path, site_packages: Path) -> None:
    """Unpack a wheel that `Wheel.build` wrote, in place of any installed version of it."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    dist_info = next(str(PurePosixPath(name).parent) for name in contents if name.endswith(".dist-info/RECORD"))
    uninstall(dist_info.split("-")[0], site_packages)
    del contents[f"{dist_info}/RECORD"]
    contents |= {f"{dist_info}/INSTALLER": b"tinyserve\n", f"{dist_info}/REQUESTED": b""}
    contents[f"{dist_info}/RECORD"] = record_of(contents, dist_info)
    for name, data in contents.items():
        path = site_packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def uninstall(name: str, site_packages: Path) -> None:
    """Remove what the RECORD of an installed distribution lists, compiled files beside it and emptied folders."""
    for record in site_packages.glob(f"{name}-*.dist-info/RECORD"):
        for entry, _digest, _size in list(csv.reader(io.StringIO(record.read_text()))):
            path = site_packages / entry
            path.unlink()
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()
            for folder in (path.parent / "__pycache__", path.parent):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
