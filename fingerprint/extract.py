"""What an old snapshot holds of one factor, as a file that puts it back: a text, a patch or a wheel.

The lines that revert a culprit need the old contents. Startup files and local differences are whole in the snapshot;
a package's files are in the store beside it, and become a wheel again that pip installs like the one it was.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fingerprint.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from fingerprint.factors import Evidence
    from snapshots import Snapshot

_OF_THE_INSTALLATION = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"})
"""Files of a dist-info directory that the installer writes, not the wheel."""


@dataclass(frozen=True)
class Extracted:
    """A file that brings an old value back."""

    name: str
    """File name, without a directory."""
    data: bytes


def extract(snapshot: Snapshot, factor: str, evidence: Evidence) -> Extracted:
    """The old contents behind a factor.

    Args:
        snapshot: the side whose contents are wanted.
        factor: `startup:NAME`, `tree:PATH` or `package:NAME`.
        evidence: the stores that kept files lie in.

    Raises:
        UsageError: the snapshot holds nothing of that name, or not the whole of it.
    """
    kind, _, name = factor.partition(":")
    match kind:
        case "startup":
            return _startup(snapshot, name)
        case "tree":
            return _local_difference(snapshot, name)
        case "package":
            return _package(snapshot, name, evidence)
    raise UsageError(f"{factor} has no contents to extract: name a startup:…, tree:… or package:… factor.")


def _startup(snapshot: Snapshot, name: str) -> Extracted:
    for file_name, file in snapshot.startup.files.items():
        if name in {file_name, file_name.removesuffix(".py")}:
            if not isinstance(file.text, str) or "<secret:" in file.text:
                raise UsageError(f"startup:{name} is not whole in the snapshot: too long, or a secret was replaced.")
            return Extracted(PurePosixPath(file.path).name, file.text.encode())
    raise UsageError(f"The snapshot has no startup file {name}; `fingerprint show` lists what it has.")


def _local_difference(snapshot: Snapshot, name: str) -> Extracted:
    for root, tree in snapshot.trees.trees.items():
        for path, file in tree.files.items():
            if name in {path, f"{PurePosixPath(root).name}/{path}"}:
                if not file.exact or not isinstance(file.patch, str):
                    raise UsageError(
                        f"tree:{name} is not whole in the snapshot: binary, too long, or a secret was replaced."
                    )
                leaf = PurePosixPath(path).name
                return Extracted(leaf if file.change == "untracked" else f"{leaf}.patch", file.patch.encode())
    raise UsageError(f"The snapshot has no local difference of {name}; `fingerprint show` lists those it has.")


def _package(snapshot: Snapshot, name: str, evidence: Evidence) -> Extracted:
    digests = snapshot.packages.files.get(name)
    if not digests:
        raise UsageError(f"The files of {name} were not kept; capture with `--keep {name}` to have them next time.")
    if evidence.missing(digests.values()):
        raise UsageError(
            f"The kept files of {name} are not beside the snapshot; name the folder that has them with --kept."
        )
    return wheel({path: evidence.get(digest) for path, digest in digests.items()})


def wheel(installed: Mapping[str, bytes]) -> Extracted:
    """The wheel that these installed files came from, with a RECORD of what they hold now.

    Args:
        installed: path below site-packages -> contents. Scripts above it (`../../../bin/x`) go back among the
            wheel's scripts; compiled files and what the installer wrote are left out.

    Raises:
        SnapshotError: they are not a wheel's files.
    """
    described = {PurePosixPath(path).parts[0] for path in installed if path.endswith(".dist-info/WHEEL")}
    if len(described) != 1:
        raise SnapshotError(
            "The kept files are not those of one wheel: there is no single .dist-info/WHEEL among them."
        )
    info = described.pop()
    stem = info.removesuffix(".dist-info")
    members: dict[str, bytes] = {}
    for path, data in installed.items():
        parts = PurePosixPath(path).parts
        if parts[0] == info and len(parts) == 2 and parts[1] in _OF_THE_INSTALLATION:
            continue
        if "__pycache__" in parts:
            continue
        if ".." in parts or path.startswith("/"):
            if parts[-2:-1] != ("bin",):
                raise SnapshotError(f"{path} lies outside the site directory; no wheel can put it there.")
            members[f"{stem}.data/scripts/{parts[-1]}"] = data
        else:
            members[path] = data
    members[f"{info}/RECORD"] = record_of(members, info)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return Extracted(f"{stem}-{_tag(members[f'{info}/WHEEL'])}.whl", stream.getvalue())


def record_of(members: Mapping[str, bytes], dist_info: str) -> bytes:
    """RECORD as the wheel format defines it: path, URL-safe SHA-256 without padding, size."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, data in sorted(members.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([f"{dist_info}/RECORD", "", ""])
    return text.getvalue().encode()


def _tag(described: bytes) -> str:
    """The compressed tag set of a WHEEL file: `cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64`."""
    tags = [
        line.partition(":")[2].strip().split("-")
        for line in described.decode("utf-8", "replace").splitlines()
        if line.startswith("Tag:")
    ]
    columns = [dict.fromkeys(column) for column in zip(*(tag for tag in tags if len(tag) == 3), strict=True)]
    return "-".join(".".join(column) for column in columns) if columns else "py3-none-any"
