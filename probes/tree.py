"""The source trees that the server imports from: the commit, and every difference from it, file by file.

Git is only asked, never told: no lock, no index refresh, no hook, no fsmonitor, no external diff, text conversion or
filter of the repository's own configuration, nobody's global configuration, and `safe.directory` for this call only. A
root that meets another user's tree asks as that user.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import stat as stat_module
import zlib
from typing import Any, Dict, List, Optional, Set, Tuple
from urllib.parse import unquote, urlparse

from probes import gates
from probes.interpreter import Interpreter, deduce
from probes.packages import direct_url
from probes.reading import Finished, Json, is_unread, names_in, read_bytes, run, unread
from probes.secrets import Keeper

GIT_DEADLINE_S = 10.0
_LARGEST_FILE_BYTES = 4 << 20
"""A changed file larger than this is told by its digest alone."""
_LARGEST_PATCH_BYTES = 256 << 10
_MOST_PATCH_BYTES = 4 << 20
"""Of all patches of a tree together."""
_LARGEST_DIGEST_BYTES = 4 << 30
_MOST_FILES = 2000
_POINTER = b"version https://git-lfs.github.com/spec/"

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.untrackedCache": "false",
    "core.quotePath": "true",
    "core.pager": "cat",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "diff.autoRefreshIndex": "false",  # or `git diff` writes the index, whatever is said about locks
    "diff.external": "",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "diff.algorithm": "default",
    "diff.orderFile": "/dev/null",
    "submodule.recurse": "false",
    "safe.directory": "*",
}


class GitError(Exception):
    """Git could not answer; the text says why."""


class Git:
    """One work tree, asked without leaving a trace."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._settings = dict(_SETTINGS)
        self._owner = os.stat(root)
        for line in self.run("config", "--name-only", "--get-regexp", r"^filter\.").out.splitlines():
            name = line.decode("utf-8", "replace").rpartition(".")[0]
            self._settings.update({f"{name}.clean": "", f"{name}.process": "", f"{name}.required": "false"})

    def run(self, *words: str, stdin: Optional[bytes] = None) -> Finished:
        """One git command in the tree."""
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        return run(
            ["git", "--no-optional-locks", "--no-pager", *settings, "-C", self.root, *words],
            GIT_DEADLINE_S,
            variables={
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_OPTIONAL_LOCKS": "0",
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_NO_LAZY_FETCH": "1",
                "GIT_NO_REPLACE_OBJECTS": "1",
            },
            limit=64 << 20,
            stdin=stdin,
            user=(self._owner.st_uid, self._owner.st_gid),
        )

    def ask(self, *words: str, stdin: Optional[bytes] = None) -> bytes:
        """The answer of a command that must succeed.

        Raises:
            GitError: it did not.
        """
        done = self.run(*words, stdin=stdin)
        if done.reason is not None:
            raise GitError(done.reason)
        return done.out

    def line(self, *words: str) -> Optional[str]:
        """The answer's first line, None when git has none."""
        done = self.run(*words)
        return done.text().strip().split("\n")[0] or None if done.code == 0 else None


def read(context: Dict[str, Any]) -> Json:
    """The trees section."""
    interpreter = deduce(context)
    if not isinstance(interpreter, Interpreter):
        return interpreter
    roots: Dict[str, List[str]] = {}
    for place in import_directories(interpreter, context.get("serving") or {}):
        root = work_tree(place)
        if root is not None:
            roots.setdefault(root, []).append(os.path.relpath(place, root))
    trees: Dict[str, Json] = {}
    unreadable: Dict[str, Json] = {}
    for root, places in sorted(roots.items()):
        _add(trees, unreadable, root, places, context["keeper"])
    return {"trees": trees, "unreadable": unreadable}


def import_directories(interpreter: Interpreter, serving: Dict[str, Json]) -> List[str]:
    """Directories outside the environment from which the server can import."""
    places = list(interpreter.named)
    for added in interpreter.added.values():
        places += added
    module = _launched_module(serving.get("argv") or [])
    for place in interpreter.script:
        # Every `python -m` has the working directory on its path; it counts when the server is imported from there.
        if module is None or os.path.exists(os.path.join(place, module)) or os.path.exists(f"{place}/{module}.py"):
            places.append(place)
    for site in interpreter.sites:
        places += _editables(site)
    return list(dict.fromkeys(os.path.realpath(place) for place in places if os.path.isdir(place)))


def _launched_module(argv: List[str]) -> Optional[str]:
    for word, following in zip(argv, argv[1:]):  # noqa: RUF007 - Python 3.9
        if word == "-m":
            return following.partition(".")[0]
    return None


def _editables(site: str) -> List[str]:
    places: List[str] = []
    for name in names_in(site):
        path = os.path.join(site, name)
        if name.endswith(".dist-info"):
            told = direct_url(path)
            if told and isinstance(told.get("dir_info"), dict) and told["dir_info"].get("editable") is True:
                places.append(unquote(urlparse(str(told.get("url", ""))).path))
        elif name.startswith("__editable__") and name.endswith(".py"):
            places += [os.path.dirname(place) for place in _finder_mapping(path)]
    return places


def _finder_mapping(path: str) -> List[str]:
    """The source directories in an editable install's import hook, read as a literal."""
    try:
        module = ast.parse(read_bytes(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    for statement in module.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            try:
                mapping = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
            except ValueError:
                return []
            return [str(place) for place in mapping.values()] if isinstance(mapping, dict) else []
    return []


def work_tree(place: str) -> Optional[str]:
    """The root of the git work tree that a directory belongs to."""
    while True:
        if os.path.exists(os.path.join(place, ".git")):
            return place
        parent = os.path.dirname(place)
        if parent == place:
            return None
        place = parent


def _add(trees: Dict[str, Json], unreadable: Dict[str, Json], root: str, places: List[str], keeper: Keeper) -> None:
    try:
        git = Git(root)
        seen = _seen(git, places)
        if not seen:
            return
        trees[root] = _tree(git, seen, keeper)
    except (GitError, OSError, ValueError) as error:
        unreadable[root] = unread(error if isinstance(error, OSError) else str(error))
        return
    for path in trees[root]["submodules"]:
        below = os.path.join(root, path)
        if os.path.exists(os.path.join(below, ".git")):
            _add(trees, unreadable, below, ["."], keeper)


def _seen(git: Git, places: List[str]) -> List[str]:
    """Those of the directories that the tree keeps: of an ignored one neither its commit nor its differences tell."""
    asked = b"\0".join(os.fsencode(place) for place in places if place != ".")
    ignored = git.run("check-ignore", "-z", "--stdin", stdin=asked).out.split(b"\0") if asked else []
    return [
        place for place in places if os.fsencode(place) not in ignored or git.line("ls-files", "--", place) is not None
    ]


def _tree(git: Git, places: List[str], keeper: Keeper) -> Json:
    commit = git.line("rev-parse", "--verify", "--quiet", "HEAD")
    shallow = git.line("rev-parse", "--is-shallow-repository") == "true"
    files, submodules = _changes(git, commit, keeper)
    remotes: Dict[str, str] = {}
    for row in git.run("config", "--get-regexp", r"^remote\..*\.url$").text().splitlines():
        name, _, url = row.partition(" ")
        remotes[name[len("remote.") : -len(".url")]] = keeper.text(url)
    return {
        "commit": commit,
        "branch": git.line("symbolic-ref", "--quiet", "--short", "HEAD"),
        # Without its history a shallow clone describes itself plausibly and wrongly.
        "describe": None if shallow or commit is None else git.line("describe", "--tags"),
        "remotes": remotes,
        "shallow": shallow,
        "imports": sorted(set(places)),
        "files": files,
        "submodules": submodules,
    }


class _Change:
    """One entry of `git status`."""

    def __init__(self, kind: str, marks: str, mode: str, head_mode: str, submodule: str, path: bytes) -> None:
        self.kind, self.marks, self.mode, self.head_mode = kind, marks, mode, head_mode
        self.submodule, self.path = submodule, path

    @property
    def name(self) -> str:
        return self.path.decode("utf-8", "backslashreplace")


def _status(git: Git) -> List[_Change]:
    raw = git.ask("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames")
    changes: List[_Change] = []
    for record in raw.split(b"\0"):
        if record.startswith(b"1 "):
            _, marks, sub, head_mode, _, mode, _, _, path = record.split(b" ", 8)
            kind = _kind(marks.decode(), head_mode.decode(), mode.decode(), sub.decode())
            changes.append(_Change(kind, marks.decode(), mode.decode(), head_mode.decode(), sub.decode(), path))
        elif record.startswith(b"u "):
            path = record.split(b" ", 10)[10]
            changes.append(_Change("modified", "U.", "", "", "N...", path))
        elif record.startswith(b"? ") and not record.endswith(b".pyc"):
            changes.append(_Change("untracked", "..", "", "", "N...", record[2:]))
    return changes


def _kind(marks: str, head_mode: str, mode: str, submodule: str) -> str:
    if submodule.startswith("S"):
        return "submodule"
    if mode == "000000" or marks == "D.":
        return "deleted"
    if head_mode == "000000":
        return "added"
    return "modified"


def _changes(git: Git, commit: Optional[str], keeper: Keeper) -> Tuple[Dict[str, Json], Dict[str, str]]:
    changes = _status(git)
    if len(changes) > _MOST_FILES:
        raise GitError(f"{len(changes)} files differ from the commit, more than the {_MOST_FILES} that are read")
    submodules: Dict[str, str] = {}
    for row in git.ask("ls-files", "--stage", "-z").split(b"\0"):
        if row.startswith(b"160000 "):
            path = row.partition(b"\t")[2].decode("utf-8", "backslashreplace")
            inside = os.path.join(git.root, path)
            head = Git(inside).line("rev-parse", "HEAD") if os.path.exists(os.path.join(inside, ".git")) else None
            submodules[path] = head or row.split(b" ")[1].decode()
    by_path: Dict[bytes, _Change] = {}
    for change in changes:
        by_path[change.path] = change
    large = {change.path for change in changes if _size(git, change) > _LARGEST_FILE_BYTES}
    patches = _patches(git, commit, large)
    files: Dict[str, Json] = {}
    left = _MOST_PATCH_BYTES
    for change in by_path.values():
        entry = _file(git, change, patches.get(change.path), change.path in large, keeper)
        if entry is None:
            continue
        left -= len(entry["patch"] or "") if isinstance(entry.get("patch"), str) else 0
        if left < 0 and isinstance(entry.get("patch"), str):
            entry.update(patch=unread("the tree's patches are too many: only the digest is kept"), exact=False)
        files[change.name] = entry
    return files, submodules


def _size(git: Git, change: _Change) -> int:
    try:
        return os.lstat(os.path.join(os.fsencode(git.root), change.path)).st_size
    except OSError:
        return 0


def _patches(git: Git, commit: Optional[str], large: Set[bytes]) -> Dict[bytes, bytes]:
    """Path -> its part of the difference against HEAD."""
    if commit is None:
        commit = git.ask("hash-object", "-t", "tree", "/dev/null").decode().strip()  # the empty tree
    left_out = [f":(top,literal,exclude){os.fsdecode(path)}" for path in sorted(large)]
    raw = git.ask(
        "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index", "--no-renames",
        "--ignore-submodules=all", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--inter-hunk-context=0",
        commit, "--", ":/", *left_out,
    )  # fmt: skip
    patches: Dict[bytes, bytes] = {}
    for part in re.split(rb"^(?=diff --git )", raw, flags=re.MULTILINE):
        if part.startswith(b"diff --git "):
            path = _patched_path(part.split(b"\n", 1)[0][len(b"diff --git ") :])
            patches[path] = patches.get(path, b"") + part  # a change of type is two parts
    return patches


def _patched_path(names: bytes) -> bytes:
    """The path in `a/PATH b/PATH`, quoted by git or not; both are the same without renames."""
    one = names[: (len(names) - 1) // 2]
    if one.startswith(b'"'):
        text = one[1:-1]
        text = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), text)
        plain = {
            b"n": b"\n",
            b"t": b"\t",
            b'"': b'"',
            b"\\": b"\\",
            b"a": b"\a",
            b"b": b"\b",
            b"f": b"\f",
            b"r": b"\r",
            b"v": b"\v",
        }
        one = re.sub(rb'\\([ntabfrv"\\])', lambda letter: plain[letter[1]], text)
    return one[2:]


def _file(git: Git, change: _Change, patch: Optional[bytes], large: bool, keeper: Keeper) -> Optional[Json]:  # noqa: FBT001
    path = os.path.join(os.fsencode(git.root), change.path)
    staged = change.marks[0] not in ".U"
    if change.kind == "submodule":
        dirty = [
            word
            for letter, word in (("C", "another commit"), ("M", "changed files"), ("U", "untracked files"))
            if letter in change.submodule
        ]
        return {"change": "submodule", "patch": ", ".join(dirty) or None, "exact": False, "staged": staged}
    digest = None if change.kind == "deleted" else _digest(path)
    if change.kind == "untracked":
        if os.path.isdir(path) and not os.path.islink(path):
            return None  # a repository of its own, not of this tree
        text = _contents(path)
        return {
            "change": "untracked",
            "sha256": digest,
            "staged": False,
            "gates": _gates(path, b""),
            **_readable(text, keeper),
        }
    kind = change.kind
    if large:
        if digest is not None and _is_lfs_file(git, change.path, digest):
            return None
        return {
            "change": kind, "sha256": digest, "exact": False, "staged": staged,
            "patch": unread(f"the file is larger than {_LARGEST_FILE_BYTES >> 20} MiB: only its digest is kept"),
        }  # fmt: skip
    if patch is None:
        return None  # staged and taken back in the work tree: what is there is what the commit has
    if kind == "modified" and b"\n@@ " not in patch and b"\nGIT binary patch" not in patch:
        kind = "mode"
    if kind == "modified" and digest is not None and _POINTER in patch and _is_lfs_file(git, change.path, digest):
        return None
    return {
        "change": kind,
        "sha256": digest,
        "staged": staged,
        "gates": _gates(path, patch),
        **_readable(_as_text(path, patch), keeper),
    }


def _gates(path: bytes, patch: bytes) -> Dict[str, List[str]]:
    """The variables on which a changed Python file's hunks depend."""
    if not path.endswith(b".py") or not os.path.isfile(path):
        return {}
    try:
        source = read_bytes(os.fsdecode(path), _LARGEST_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return gates.gates(source, patch.decode("utf-8", "replace"))


def _readable(raw: Json, keeper: Keeper) -> Json:
    """Text fit to travel, and whether it is still the whole truth."""
    if is_unread(raw):
        return {"patch": raw, "exact": False}
    if len(raw) > _LARGEST_PATCH_BYTES:
        return {
            "patch": unread(f"longer than {_LARGEST_PATCH_BYTES >> 10} KiB: only the digest is kept"),
            "exact": False,
        }
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"patch": keeper.text(raw.decode("utf-8", "backslashreplace")), "exact": False}
    clean = keeper.text(text)
    return {"patch": clean, "exact": clean == text}


def _as_text(path: bytes, patch: bytes) -> bytes:
    """A patch as UTF-8: one that is not is written as a binary patch, which `git apply` takes just the same."""
    try:
        patch.decode("utf-8")
    except UnicodeDecodeError:
        head, found, _ = patch.partition(b"\n--- ")
        if not found:
            return patch
        data = read_bytes(os.fsdecode(path), _LARGEST_FILE_BYTES) if os.path.isfile(path) else b""
        packed = zlib.compress(data)
        lines = [head, b"GIT binary patch", b"literal %d" % len(data)]
        for start in range(0, len(packed), 52):
            piece = packed[start : start + 52]
            length = chr(len(piece) + (64 if len(piece) <= 26 else 70)).encode()
            lines.append(length + base64.b85encode(piece, pad=True))
        return b"\n".join([*lines, b"", b""])
    return patch


def _contents(path: bytes) -> Json:
    try:
        about = os.lstat(path)
        if stat_module.S_ISLNK(about.st_mode):
            return os.fsencode(os.readlink(path))
        if about.st_size > _LARGEST_PATCH_BYTES:
            return unread(f"longer than {_LARGEST_PATCH_BYTES >> 10} KiB: only the digest is kept")
        data = read_bytes(os.fsdecode(path))
    except OSError as error:
        return unread(error)
    return unread("not text: only the digest is kept") if b"\0" in data else data


def _digest(path: bytes) -> Optional[str]:
    """SHA-256 of a file as it lies there; of a link, of what it says."""
    digest = hashlib.sha256()
    try:
        if os.path.islink(path):
            digest.update(os.fsencode(os.readlink(path)))
            return digest.hexdigest()
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat_module.S_ISREG(os.fstat(handle).st_mode):
            return None
        left = _LARGEST_DIGEST_BYTES
        while left > 0:
            chunk = os.read(handle, 1 << 20)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)
            left -= len(chunk)
        return None
    except OSError:
        return None
    finally:
        os.close(handle)


def _is_lfs_file(git: Git, path: bytes, digest: str) -> bool:
    """Whether the commit holds a pointer to exactly this content."""
    done = git.run("cat-file", "blob", f"HEAD:{os.fsdecode(path)}")
    return done.out[:4096].startswith(_POINTER) and f"oid sha256:{digest}".encode() in done.out[:4096]
