"""The distributions of the serving interpreter, from their metadata, and whether their files are as installed.

Two digests tell two stories: `record` is what the wheel shipped (its RECORD, without what differs from place to place),
`contents` is what lies there now. A distribution without a RECORD is not verifiable, which is no accusation.
"""

from __future__ import annotations

import base64
import csv
import fnmatch
import functools
import hashlib
import io
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Pattern, Tuple

from probes import digests, unnamed
from probes.interpreter import Interpreter, build, deduce
from probes.reading import (
    Json,
    attempt,
    canonical,
    files_below,
    is_unread,
    names_in,
    read_bytes,
    read_text,
    unread,
)
from probes.secrets import Keeper

_LARGEST_METADATA_BYTES = 4 << 20
_LARGEST_RECORD_BYTES = 64 << 20
_KEPT_BYTES = 256 << 20
"""A distribution larger than this is not copied."""
_THREADS = 2
_DIGEST_BYTES = {"sha256": 32, "sha384": 48, "sha512": 64}

# Written by the installer, not shipped in the wheel.
_INSTALLER_FILES = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json"}


class Row(NamedTuple):
    """One line of RECORD; its digest is decoded where it is asked for."""

    path: str
    hash: str
    length: str

    @property
    def verifiable(self) -> Optional[Tuple[str, str]]:
        """The algorithm and the digest in hexadecimal; None where the line has none that can be checked."""
        return _digest(self.hash)

    @property
    def size(self) -> Optional[int]:
        """In bytes."""
        return int(self.length) if self.length.isdigit() else None


class Found:
    """One metadata directory that describes a distribution."""

    def __init__(
        self, name: str, version: str, site: str, directory: str, requires: List[str], record: Optional[str]
    ) -> None:
        """`directory` is the metadata directory's name below `site`, `record` the text of its RECORD."""
        self.name, self.version = name, version
        self.site, self.directory = site, directory
        self.requires, self.record = requires, record

    @functools.cached_property
    def rows(self) -> List[Row]:
        """The lines of its RECORD, none without one."""
        return list(record_rows(self.record or ""))


def read(context: Dict[str, Any]) -> Json:
    """The packages section."""
    ask, keeper = context["ask"], context["keeper"]
    interpreter = deduce(context)
    if not isinstance(interpreter, Interpreter):
        return interpreter
    leftovers: Dict[str, str] = {}
    candidates: Dict[str, List[Found]] = {}
    for site in interpreter.path:
        if site in interpreter.library:
            continue
        for found in _scan(site, leftovers):
            candidates.setdefault(found.name, []).append(found)
    chosen = {name: _winner(several) for name, several in candidates.items()}
    patterns = [word if any(mark in word for mark in "*?[") else canonical(word) for word in ask.get("keep") or []]
    extra = _extra_files(list(chosen.values())) if ask.get("verify") or patterns else {}
    checks: Dict[str, Dict[str, Json]] = {}
    if ask.get("verify"):
        checks = _verify(list(chosen.values()), extra, ask.get("verified") or {}, int(ask.get("threads") or _THREADS))
    distributions: Dict[str, Json] = {}
    files: Dict[str, Dict[str, str]] = {}
    unkept: Dict[str, str] = {}
    for name, found in sorted(chosen.items()):
        entry = _describe(found, keeper)
        entry.update(checks.get(name, {}))
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            try:
                files[name] = _keep(found, extra.get(name, []), context["emit"])
                entry["kept"] = True
            except (OSError, ValueError) as error:
                unkept[name] = unread(error)["unread"]
        distributions[name] = entry
    return {
        "interpreter": {
            "executable": interpreter.executable,
            "version": interpreter.version,
            "prefix": interpreter.prefix,
            "base_prefix": interpreter.base_prefix,
            "path": interpreter.path,
            "build": attempt(lambda: build(interpreter)),
        },
        "distributions": distributions,
        "duplicates": {
            name: [f"{one.version} in {os.path.join(one.site, one.directory)}" for one in _first(chosen[name], several)]
            for name, several in sorted(candidates.items())
            if len(several) > 1
        },
        "conda": _conda(interpreter.prefix, keeper, digests_too=bool(ask.get("verify"))),
        "leftovers": leftovers,
        "unnamed": attempt(lambda: unnamed.of(context, interpreter.path)),
        "owners": _owners(context.get("server") or {}, list(chosen.values())),
        "files": files,
        "unkept": unkept,
    }


def _owners(server: Json, founds: List[Found]) -> Dict[str, str]:
    """The CUDA libraries that the server has mapped, by path, and the distribution whose RECORD names each.

    Those of wheels are named by their major version alone and have none inside, so their wheel's is the one there is.
    """
    tables = [one["libraries"] for one in (server.get("processes") or {}).values() if not is_unread(one["libraries"])]
    paths = {str(library["path"]) for table in tables for library in table.values()}
    wanted = [path for path in sorted(paths) if os.path.basename(path).startswith(("libcu", "libnv", "libnccl"))]
    owners: Dict[str, str] = {}
    for found in founds:
        site = os.path.realpath(found.site) + "/" if wanted and found.record else None
        for path in wanted:
            if site and path.startswith(site) and f"\n{path[len(site) :]}," in f"\n{found.record}":
                owners[path] = f"{found.name} {found.version}"
    return owners


def _conda(prefix: str, keeper: Keeper, *, digests_too: bool) -> Dict[str, Json]:
    """What conda installed below `prefix`: name -> version, build, channel and, where asked for, a digest of its files.

    A file of conda-meta is named by its package, so that without digests none has to be opened.
    """
    found: Dict[str, Json] = {}
    directory = os.path.join(prefix, "conda-meta")
    for name in names_in(directory):
        parts = name[: -len(".json")].rsplit("-", 2)
        if not name.endswith(".json") or len(parts) != 3:
            continue
        found[parts[0]] = {"version": parts[1], "build": parts[2]}
        if digests_too:
            found[parts[0]].update(_conda_record(os.path.join(directory, name), keeper))
    return found


def _conda_record(path: str, keeper: Keeper) -> Dict[str, Json]:
    try:
        told = json.loads(read_text(path, _LARGEST_RECORD_BYTES))
        files = (told.get("paths_data") or {}).get("paths") or []
        lines = [f"{one['_path']} {one['sha256']}" for one in files if one.get("sha256")]
        channel = told.get("channel")
        return {
            "channel": keeper.text(channel) if isinstance(channel, str) else None,
            "record": hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "replace")).hexdigest()
            if lines
            else None,
        }
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return {"channel": unread(error), "record": unread(error)}


def _first(winner: Found, several: List[Found]) -> List[Found]:
    return [winner, *(one for one in several if one is not winner)]


def _scan(site: str, leftovers: Dict[str, str]) -> Iterator[Found]:
    """The distributions whose metadata lies in one directory of the path."""
    for directory in names_in(site):
        path = os.path.join(site, directory)
        if directory.startswith("~"):
            leftovers[path] = "left by an interrupted uninstall"
            continue
        if not directory.endswith((".dist-info", ".egg-info")):
            continue
        try:
            found = _metadata(site, directory)
        except FileNotFoundError:
            leftovers[path] = "has no METADATA"
        except (OSError, ValueError) as error:
            leftovers[path] = unread(error)["unread"]
        else:
            yield found


def named(site: str, pattern: Pattern[str]) -> List[Found]:
    """The distributions in one directory whose metadata directories match, without reading the others."""
    found: List[Found] = []
    for directory in names_in(site):
        if directory.endswith(".dist-info") and pattern.match(directory):
            try:
                found.append(_metadata(site, directory))
            except (OSError, ValueError):
                continue
    return found


def _metadata(site: str, directory: str) -> Found:
    path = os.path.join(site, directory)
    if directory.endswith(".dist-info"):
        text = read_text(os.path.join(path, "METADATA"), _LARGEST_METADATA_BYTES)
    else:
        text = read_text(os.path.join(path, "PKG-INFO") if os.path.isdir(path) else path, _LARGEST_METADATA_BYTES)
    fields: Dict[str, List[str]] = {}
    for line in text.partition("\n\n")[0].splitlines():
        if not line:
            break  # what follows is the description
        name, mark, value = line.partition(":")
        if mark and not line[0].isspace():
            fields.setdefault(name.lower(), []).append(value.strip())
    names, versions = fields.get("name"), fields.get("version")
    if not names or not names[0] or not versions or not versions[0]:
        raise ValueError("its METADATA names no project and version")
    record = None
    if directory.endswith(".dist-info"):
        try:
            record = read_text(os.path.join(path, "RECORD"), _LARGEST_RECORD_BYTES)
        except OSError:
            record = None
    return Found(canonical(names[0]), versions[0], site, directory, fields.get("requires-dist", []), record)


def record_rows(text: str) -> Iterator[Row]:
    """The lines of a RECORD; no line can spoil the others."""
    for line in text.splitlines():
        cells = line.rsplit(",", 2)  # a comma in a path that was not quoted stays in the path
        if '"' in line:
            try:
                cells = next(csv.reader(io.StringIO(line)))
            except (csv.Error, StopIteration):
                continue
            if len(cells) > 3:
                cells = [",".join(cells[:-2]), *cells[-2:]]
        if len(cells) < 3:
            cells = [*line.split(","), "", ""][:3]
        if cells[0]:
            yield Row(*cells)


def _digest(text: str) -> Optional[Tuple[str, str]]:
    algorithm, mark, value = text.partition("=")
    length = _DIGEST_BYTES.get(algorithm, 0)
    if not mark or not length:
        return None
    if len(value) == 2 * length and re.fullmatch("[0-9a-fA-F]+", value):
        return algorithm, value.lower()
    try:
        raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return None
    return (algorithm, raw.hex()) if len(raw) == length else None


def _place_independent(path: str) -> Optional[str]:
    """A RECORD path as it is wherever the wheel is installed; None for what the installer made."""
    if path.endswith(".pyc") or "__pycache__/" in path:
        return None
    if ".dist-info/" in path and path.rsplit("/", 1)[1] in _INSTALLER_FILES:
        return None
    if path.startswith("../"):
        below = re.sub(r"^(\.\./)+", "", path)
        return None if below.startswith(("bin/", "Scripts/")) else f"data/{below}"
    return path


def record_digest(found: Found) -> Optional[str]:
    """SHA-256 of what the wheel shipped, the same wherever it is installed; None without a RECORD."""
    if found.record is None:
        return None
    lines: List[str] = []
    for line in found.record.splitlines():
        path, _, digest = line.rpartition(",")[0].rpartition(",")
        if not digest or ".pyc," in line:
            continue
        if path.startswith('"'):
            path = path[1:-1].replace('""', '"')
        place = _place_independent(path)
        if place is not None:
            lines.append(f"{place} {digest}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def installed(site: str, name: str) -> Optional[Tuple[str, Optional[str]]]:
    """Version and record digest of the distribution of this name in one directory; None when it is not there."""
    several = [found for found in _scan(site, {}) if found.name == canonical(name)]
    return (_winner(several).version, record_digest(_winner(several))) if several else None


def _describe(found: Found, keeper: Keeper) -> Dict[str, Json]:
    path = os.path.join(found.site, found.directory)
    origin, editable = _origin(path)
    return {
        "version": found.version,
        "location": found.site,
        "installer": _line(os.path.join(path, "INSTALLER")),
        "tags": _tags(path),
        "requires": found.requires,
        "origin": keeper.text(origin) if origin else None,
        "editable": editable,
        "record": record_digest(found),
    }


def _line(path: str) -> Optional[str]:
    try:
        return read_text(path, 4096).strip() or None
    except OSError:
        return None


def _tags(path: str) -> List[str]:
    try:
        lines = read_text(os.path.join(path, "WHEEL")).splitlines()
    except OSError:
        return []
    return [line[4:].strip() for line in lines if line.startswith("Tag:")]


def _origin(path: str) -> Tuple[Optional[str], bool]:
    """Where direct_url.json says that a distribution came from, and whether it is editable."""
    told = direct_url(path)
    if told is None:
        return None, False
    url = str(told.get("url", ""))
    vcs = told.get("vcs_info")
    if isinstance(vcs, dict):
        url = f"{vcs.get('vcs', 'vcs')}+{url}@{vcs.get('commit_id', '')}"
    archive = told.get("archive_info")
    if isinstance(archive, dict) and isinstance(archive.get("hash"), str):
        url += "#" + archive["hash"]
    directory = told.get("dir_info")
    return url or None, isinstance(directory, dict) and directory.get("editable") is True


def direct_url(path: str) -> Optional[Dict[str, Json]]:
    """The direct_url.json of a metadata directory."""
    try:
        told = json.loads(read_text(os.path.join(path, "direct_url.json")))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _winner(several: List[Found]) -> Found:
    """The one that import finds: first on the path, and of two in one directory the one whose files lie there."""
    rivals = [one for one in several if one.site == several[0].site]
    return max(rivals, key=_matching_files) if len(rivals) > 1 else rivals[0]


def _matching_files(found: Found) -> int:
    matching = 0
    for row in [row for row in found.rows if row.path.endswith(".py")][:50]:
        told = row.verifiable
        if told is None:
            continue
        try:
            matching += digests.of_file(os.path.join(found.site, row.path), told[0])[0] == told[1]
        except OSError:
            continue
    return matching


class _Files(NamedTuple):
    """The files of one distribution that verification looks at."""

    rows: List[Row]
    extra: List[str]
    stat: str
    """SHA-256 of what the kernel says of all of them without reading one: as long as it is the same, so are they."""
    sizes: Dict[str, int]


def _verify(
    founds: List[Found], extra: Dict[str, List[str]], known: Dict[str, Json], threads: int
) -> Dict[str, Dict[str, Json]]:
    """Name -> `contents`, `altered` and `stat`; what is `known` for the same `stat` is not read again."""
    looked = {one.name: _look(one, extra.get(one.name, [])) for one in founds if one.record is not None}
    fresh = [one for one in founds if one.name in looked and not _is_known(known.get(one.name), looked[one.name].stat)]
    jobs: List[digests.Job] = []
    for one in fresh:
        files = looked[one.name]
        for path, told in [(row.path, row.hash) for row in files.rows] + [(path, "") for path in files.extra]:
            algorithm = told.partition("=")[0]
            known_one = algorithm if algorithm in _DIGEST_BYTES else "sha256"
            jobs.append(digests.Job(files.sizes.get(path, 0), os.path.join(one.site, path), known_one))
    answers = digests.of_files(jobs, threads)
    checks: Dict[str, Dict[str, Json]] = {}
    for one in founds:
        if one.name not in looked:
            checks[one.name] = {"contents": unread("it has no RECORD")}
        elif one in fresh:
            checks[one.name] = {**_compare(one, looked[one.name], answers), "stat": looked[one.name].stat}
        else:
            checks[one.name] = {name: known[one.name][name] for name in ("contents", "altered", "stat")}
    return checks


def _is_known(known: Json, stat: str) -> bool:
    return isinstance(known, dict) and known.get("stat") == stat and isinstance(known.get("contents"), str)


def _look(found: Found, extra: List[str]) -> _Files:
    rows = [row for row in found.rows if not row.path.endswith(".pyc")]
    lines: List[str] = []
    sizes: Dict[str, int] = {}
    for path in [row.path for row in rows] + extra:
        try:
            about = os.stat(os.path.join(found.site, path))
        except OSError:  # noqa: PERF203 - each file for itself
            lines.append(f"{path} missing")
        else:
            sizes[path] = about.st_size
            lines.append(f"{path} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}")
    digest = hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
    return _Files([row for row in rows if _place_independent(row.path) is not None], extra, digest, sizes)


def _compare(found: Found, files: _Files, answers: Dict[str, digests.Answer]) -> Dict[str, Json]:
    """What was read against what RECORD says."""
    lines: List[str] = []
    altered: Dict[str, str] = {}
    for row in found.rows:
        # Of scripts only the presence counts: their first line names the environment.
        script = row.hash and not row.path.endswith(".pyc") and _place_independent(row.path) is None
        if script and not os.path.lexists(os.path.join(found.site, row.path)):
            altered[row.path] = "missing"
    for row in files.rows:
        answer = answers[os.path.join(found.site, row.path)]
        if isinstance(answer, FileNotFoundError):
            altered[row.path] = "missing"
        elif isinstance(answer, OSError):
            altered[row.path] = unread(answer)["unread"]
        else:
            lines.append(f"{_place_independent(row.path)} {answer[0]}")
            told = row.verifiable
            if told is not None and answer[0] != told[1]:
                altered[row.path] = "S5" if row.size is not None and answer[1] != row.size else "5"
    for path in files.extra:
        altered[path] = "extra"
        answer = answers[os.path.join(found.site, path)]
        if not isinstance(answer, OSError):
            lines.append(f"{path} {answer[0]}")
    contents = hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
    return {"contents": contents, "altered": altered}


def _extra_files(founds: List[Found]) -> Dict[str, List[str]]:
    """Files below a distribution's own directories that no RECORD names. Caches and compiled files are not meant."""
    extra: Dict[str, List[str]] = {}
    for site in {one.site for one in founds}:
        here = [one for one in founds if one.site == site and one.record is not None]
        known = set()
        owner: Dict[str, str] = {}
        for one in here:
            for row in one.rows:
                known.add(row.path)
                directory = row.path.rpartition("/")[0]
                if directory and not row.path.startswith(("/", "..")):
                    owner.setdefault(directory, one.name)
        for top in {directory.partition("/")[0] for directory in owner}:
            if top.endswith(".dist-info") or top == "__pycache__":
                continue
            for path in files_below(site, top):
                if path not in known:
                    directory = path.rpartition("/")[0]
                    while directory and directory not in owner:
                        directory = directory.rpartition("/")[0]
                    if directory:
                        extra.setdefault(owner[directory], []).append(path)
    return extra


def _keep(found: Found, extra: List[str], emit: Callable[[str, Json], None]) -> Dict[str, str]:
    """Emit the bytes of a distribution's files; path below `location` -> digest."""
    paths = {row.path for row in found.rows if not row.path.startswith(("/", ".."))} | set(extra)
    paths.update(files_below(found.site, found.directory))
    paths = {path for path in paths if not path.endswith(".pyc") and os.path.isfile(os.path.join(found.site, path))}
    total = sum(os.stat(os.path.join(found.site, path)).st_size for path in paths)
    if total > _KEPT_BYTES:
        raise ValueError(f"its {total >> 20} MiB are more than the {_KEPT_BYTES >> 20} MiB that are copied at most")
    kept: Dict[str, str] = {}
    for path in sorted(paths):
        data = read_bytes(os.path.join(found.site, path), _KEPT_BYTES)
        kept[path] = hashlib.sha256(data).hexdigest()
        emit("object", {"sha256": kept[path], "data": base64.b64encode(data).decode("ascii")})
    return kept
