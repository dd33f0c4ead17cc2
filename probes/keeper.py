"""Keeps one trial's server: makes its private world, starts it, and ends all of it when its own input ends.

The keeper is a small process between the host program and the server. It is the reaper of everything the server
leaves behind, so nothing that the server starts can escape it; when the host program dies, the keeper's input ends and
the keeper ends the server; when the keeper is killed, its children go to the host program, which ends them.

The private world is a mount namespace: over each directory that a factor changes lies an overlay whose upper layer is
a memory file system of that namespace. The server finds its files where it always does, the live files are never
written, and everything vanishes with the last process. Where the host allows no namespace, the same changes are made
in copies: a clone of the repository that borrows the live one's objects, and a hard-linked copy of the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from probes import flags, lifetimes, reading, surroundings
from probes.packages import record_rows

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

SCRATCH_PREFIX = "fingerprint-trial-"
GIT_DEADLINE_S = 120.0
LARGEST_KEPT_BYTES = 64 << 20

CACHE_VARIABLES = {
    "TRITON_CACHE_DIR": ("/.triton/cache", ""),
    "CUDA_CACHE_PATH": ("/.nv/ComputeCache", ""),
    "DG_JIT_CACHE_DIR": ("/.deep_gemm", ""),
    "TILELANG_CACHE_DIR": ("/.tilelang/cache", ""),
    "SGLANG_CACHE_DIR": ("/.cache/sglang", ""),
    "FLASHINFER_WORKSPACE_BASE": ("/.cache/flashinfer", "/.cache/flashinfer"),
}
"""Variables that say where a cache is -> how the path ends where they are not set, and what they leave out of it."""

_libc = ctypes.CDLL(None, use_errno=True)


class UnlaunchableError(Exception):
    """These factors cannot be launched together; the text says why."""


def hold(directory: str) -> int:
    """Say that a directory is in use for as long as this process lives: also to programs that do not see it."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _is_held(directory: str) -> bool:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


# --- the private world -----------------------------------------------------------------------------------------------


def new_namespace() -> Optional[str]:
    """Move this process into a mount namespace of its own. Returns why it could not, or None."""
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWNS) != 0:
        if uid == 0 or _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            return os.strerror(ctypes.get_errno())
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as error:
            return str(error.strerror)
    if _libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None) != 0:
        return os.strerror(ctypes.get_errno())
    return None


def _mount(kind: str, where: str, options: str) -> None:
    data = options.encode()
    if _libc.mount(kind.encode(), os.fsencode(where), kind.encode(), ctypes.c_ulong(0), data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {kind} failed: {os.strerror(number)}", where)


def can_overlay(scratch: str) -> Optional[str]:
    """Try a memory file system and an overlay in this (private) namespace. Returns why they fail, or None."""
    try:
        _mount("tmpfs", scratch, "mode=0700")
        probe = os.path.join(scratch, "probe")
        for part in ("lower", "upper", "work", "at"):
            os.makedirs(os.path.join(probe, part))
        Path(probe, "lower", "file").write_text("old")
        _overlay(os.path.join(probe, "lower"), os.path.join(probe, "at"), probe)
        Path(probe, "at", "file").unlink()
    except OSError as error:
        return str(error.strerror or error)
    return None


def leave(scratch: str) -> None:
    """Take the memory file system away, so that the empty directory under it can be removed from in here."""
    with contextlib.suppress(OSError):
        os.chdir("/")
    _libc.umount2(os.fsencode(scratch), MNT_DETACH)


def _overlay(lower: str, where: str, layers: str, over: Optional[str] = None) -> None:
    """Lay a private layer over `lower` at `where`; what is in `over` comes between them."""
    if any(letter in lower + layers + (over or "") for letter in ",:\\"):
        raise OSError(22, "an overlay cannot be laid over a path with a comma, colon or backslash", lower)
    below = f"{over}:{lower}" if over else lower
    options = f"lowerdir={below},upperdir={layers}/upper,workdir={layers}/work"
    try:
        _mount("overlay", where, options + ",userxattr" if os.getuid() != 0 else options)
    except OSError:
        _mount("overlay", where, options)


def _private_shared_memory() -> None:
    """A /dev/shm of this namespace, as large as the host's: what a killed server leaves there vanishes with it."""
    with contextlib.suppress(OSError):
        size = os.statvfs("/dev/shm")
        _mount("tmpfs", "/dev/shm", f"mode=1777,size={size.f_blocks * size.f_frsize}")


def links_of(objects: str, scratch: str) -> str:
    """Where a trial's links to objects lie: beside them, because a link cannot leave its file system."""
    return os.path.join(objects, os.path.basename(scratch))


class World:
    """The places that a trial changes, each with the path where the server of this trial finds it.

    `named` are the directories that the launch names: with copies in place of overlays, only these can be moved.
    """

    def __init__(self, scratch: str, objects: str, named: List[str], *, private: bool) -> None:
        self._scratch = scratch
        self._objects = objects
        self._named = named
        self._private = private
        self._count = 0
        self._covered: List[str] = []
        self.moved: Dict[str, str] = {}
        """Live path -> path in this trial; empty where an overlay keeps the paths."""

    def _layer(self, name: str) -> str:
        self._count += 1
        path = os.path.join(self._scratch, f"{self._count:02d}-{name}")
        os.makedirs(path)
        return path

    def directory(self, root: str, change: Dict[str, Any], prefix: Optional[str]) -> None:
        """Give a directory other contents: `write` (path -> object or text) and `remove` (paths).

        `prefix` is the environment that it belongs to, which is copied as a whole where there is no overlay.
        """
        kept = {name: source["object"] for name, source in change.get("write", {}).items() if "object" in source}
        linked = self._private and not self._is_covered(root)
        if linked:
            self._cover(root, "directory", self._linked(kept))
            place = root
        elif self._private:
            place = root
        elif prefix is not None and root.startswith(prefix + "/"):
            place = self._copied(root, prefix)
        elif root in self._named:
            place = self._copied(root, root)
        else:
            raise UnlaunchableError(f"{root} is not named by the launch, and this host allows no mount namespace")
        for name in change.get("uninstall", []):
            _uninstall(place, [path for path in installed_files(place, name) if path[len(place) + 1 :] not in kept])
        for name in change.get("remove", []):
            _remove(_inside(place, name))
        for name, source in change.get("write", {}).items():
            if "text" in source:
                _replace(_inside(place, name), source["text"].encode("utf-8", "surrogateescape"))
            elif not linked:
                path = _inside(place, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                _remove(path)
                shutil.copy(self._object(source["object"]), path)

    def _object(self, sha256: str) -> str:
        path = os.path.join(self._objects, sha256)
        if not os.path.exists(path):
            raise UnlaunchableError(f"the file {sha256} was not sent to this host")
        return path

    def _linked(self, kept: Dict[str, str]) -> Optional[str]:
        """A directory with these objects at their places, to lie over another one: links, however large they are."""
        if not kept:
            return None
        self._count += 1
        layer = os.path.join(links_of(self._objects, self._scratch), str(self._count))
        os.makedirs(layer)
        made: Set[str] = set()
        for name, sha256 in kept.items():
            path = _inside(layer, name)
            folder = os.path.dirname(path)
            if folder not in made:
                os.makedirs(folder, exist_ok=True)
                made.add(folder)
            os.link(self._object(sha256), path)
        return layer

    def _is_covered(self, root: str) -> bool:
        """Whether a private layer lies over a directory already, its own or that of one above it."""
        return any(root == place or root.startswith(place + "/") for place in self._covered)

    def _cover(self, root: str, name: str, over: Optional[str] = None) -> None:
        if self._is_covered(root):
            return
        self._covered.append(root)
        layers = self._layer(name)
        for part in ("upper", "work"):
            os.makedirs(os.path.join(layers, part))
        _overlay(root, root, layers, over)

    def _repository_outside(self, root: str) -> List[str]:
        """The repository of a linked work tree or a submodule, which lies elsewhere and must not be written either."""
        if os.path.isdir(os.path.join(root, ".git")):
            return []
        common = self._git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
        return [] if common.startswith(root + "/") else [common]

    def _copied(self, root: str, prefix: str) -> str:
        if prefix not in self.moved:
            copy = os.path.join(self._layer("environment"), os.path.basename(prefix))
            _copy_linked(prefix, copy)
            self.moved[prefix] = copy
        return self.moved[prefix] + root[len(prefix) :]

    def _cloned(self, root: str) -> str:
        """A clone that borrows the live repository's objects, with everything that lies in the live tree beside them.

        A submodule is cloned into the clone of the tree above it.
        """
        above = next((live for live in self.moved if root.startswith(live + "/")), None)
        if above is not None:
            place = self.moved[above] + root[len(above) :]
            _remove(place)
        else:
            place = os.path.join(self._layer("tree"), os.path.basename(root))
            self.moved[root] = place
        self._git(None, "clone", "--quiet", "--shared", "--no-checkout", root, place)
        _copy_linked(root, place, leave_out=".git")
        return place

    def redirect(self, prefix: Optional[str]) -> None:
        """Where trees were copied: let the environment's own files that lead to them lead to the copies.

        Those are `.pth` files and the import hooks of editable installs; they are changed in a copy of the environment.
        """
        if prefix is None or self._private:
            return
        copies = {live: place for live, place in self.moved.items() if live != prefix}
        now = self.moved.get(prefix, prefix)
        for path in sorted(_leading_files(now)):
            text = reading.read_text(path, LARGEST_KEPT_BYTES)
            led = text
            for live, place in copies.items():
                led = place.join(re.split(rf"(?<![\w./-]){re.escape(live)}(?![\w.-])", led))
            if led != text:
                _replace(self._copied(prefix + path[len(now) :], prefix), led.encode("utf-8", "surrogateescape"))

    def cache(self, path: str, variables: Dict[str, str], shared: str, *, cold: bool) -> Optional[str]:
        """Let the launch see a private copy of a cache, or an empty one. Returns why it sees the live one, or None.

        What a launch adds to its copy stays in `shared` for the next one, so that nothing is compiled twice.
        """
        own = os.path.join(shared, path.strip("/").replace("/", "-"))
        there = os.path.isdir(path)
        if self._private and there and cold:
            _mount("tmpfs", path, f"mode={stat.S_IMODE(os.stat(path).st_mode):o}")
        elif self._private and there:
            for part in ("upper", "work"):
                os.makedirs(os.path.join(own, part), exist_ok=True)
            try:
                _overlay(path, path, own)
            except OSError:  # the temporary folder is itself an overlay
                try:
                    self._cover(path, "cache")
                except OSError as error:  # or the cache is, and as many deep as the kernel allows
                    return f"no private layer can be laid over {path}: {error.strerror}"
        else:
            named = [(name, "") for name, value in variables.items() if os.path.normpath(value) == path]
            known = [
                (name, left_out)
                for name, (ending, left_out) in CACHE_VARIABLES.items()
                if path.endswith(ending) and name not in variables
            ]
            based = [
                (name, left_out)
                for name, (_, left_out) in CACHE_VARIABLES.items()
                if left_out and os.path.normpath(variables.get(name, "") + left_out) == path
            ]
            if not named + known + based:
                # What is not there yet is in nobody's way.
                return (
                    f"this host allows no mount namespace, and no variable is known that moves {path}"
                    if there
                    else None
                )
            name, left_out = (named + based + known)[0]
            copy = self._layer("cache") if there or cold else own
            os.makedirs(copy + left_out, exist_ok=True)
            if there and not cold:
                shutil.copytree(path, copy + left_out, symlinks=True, dirs_exist_ok=True)
            variables[name] = copy
            self.moved[path] = copy + left_out
        return None

    def tree(self, root: str, change: Dict[str, Any]) -> None:
        """Put a git work tree at `commit` with exactly the local differences wanted.

        The live repository is only read: in an overlay git writes to the private layer, elsewhere to a clone.

        Raises:
            UnlaunchableError: the commit is not there, or a difference does not apply to it.
        """
        place = root
        if self._private:
            for part in (root, *self._repository_outside(root)):
                self._cover(part, "tree")
        else:
            place = self._cloned(root)
        with contextlib.suppress(OSError):
            _remove(os.path.join(place, self._git(place, "rev-parse", "--git-path", "index.lock").strip()))
        kept = {name: reading.read_bytes(_inside(root, name), LARGEST_KEPT_BYTES) for name in change.get("keep", [])}
        self._git(place, "checkout", "--quiet", "--force", "--detach", change["commit"])
        for patch in change.get("changes", []):
            self._git(place, "apply", "--whitespace=nowarn", "-", stdin=patch, what="a part of the next commit")
        for name in change.get("remove", []):
            _remove(_inside(place, name))
        for name, patch in change.get("patches", {}).items():
            self._git(place, "apply", "--whitespace=nowarn", "-", stdin=patch, what=f"the local difference of {name}")
        for name, source in change.get("write", {}).items():
            _replace(_inside(place, name), source["text"].encode("utf-8", "surrogateescape"))
        for name, data in kept.items():
            _replace(_inside(place, name), data)

    def _git(self, place: Optional[str], *words: str, stdin: str = "", what: str = "") -> str:
        argv = ["git", "--no-optional-locks"]
        for setting in ("safe.directory=*", "core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0",
                        "advice.detachedHead=false", "protocol.file.allow=always"):  # fmt: skip
            argv += ["-c", setting]
        if place is not None:
            argv += ["-C", place]
        done = reading.run(
            [*argv, *words], GIT_DEADLINE_S, stdin=stdin.encode("utf-8", "surrogateescape"),
            variables={"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"},
        )  # fmt: skip
        if done.reason:
            raise UnlaunchableError(
                f"{what} does not apply: {done.reason}" if what else f"git {words[0]} failed: {done.reason}"
            )
        return done.text()


def _leading_files(prefix: str) -> Iterator[str]:
    """The files of an environment that lead out of it."""
    for site in glob.glob(os.path.join(glob.escape(prefix), "lib*", "python*", "site-packages")):
        for name in os.listdir(site):
            if name.endswith((".pth", ".egg-link")) or (name.startswith("__editable__") and name.endswith(".py")):
                yield os.path.join(site, name)


def _copy_linked(source: str, copy: str, leave_out: str = "") -> None:
    """A copy of a directory whose files are links to the live ones, or copies on another file system."""

    def place(live: str, to: str) -> None:
        try:
            os.link(live, to)
        except OSError:
            shutil.copy2(live, to)

    def left_out(folder: str, names: List[str]) -> Set[str]:
        return {leave_out} & set(names) if folder == source else set()

    shutil.copytree(source, copy, symlinks=True, copy_function=place, ignore=left_out, dirs_exist_ok=True)


def installed_files(location: str, name: str) -> List[str]:
    """The files of an installed distribution below `location`, its metadata included; none when it is not there."""
    wanted = reading.canonical(name)
    for entry in os.listdir(location):
        if entry.endswith(".dist-info") and reading.canonical(entry[: -len(".dist-info")].rpartition("-")[0]) == wanted:
            record = reading.read_text(os.path.join(location, entry, "RECORD"), LARGEST_KEPT_BYTES)
            paths = [os.path.normpath(os.path.join(location, row.path)) for row in record_rows(record)]
            return [path for path in paths if path.startswith(location.rstrip("/") + "/")]
    return []


def _uninstall(location: str, paths: List[str]) -> None:
    """Remove files, and the directories that nothing but compiled code is left in: they could still be imported."""
    folders: Set[str] = set()
    for path in paths:
        _remove(path)
        folder = os.path.dirname(path)
        while len(folder) > len(location) and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):
            if set(os.listdir(folder)) <= {"__pycache__"}:
                shutil.rmtree(folder)


def _inside(root: str, name: str) -> str:
    path = os.path.normpath(os.path.join(root, name))
    if not path.startswith(root.rstrip("/") + "/"):
        raise UnlaunchableError(f"{name} lies outside {root}")
    return path


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _replace(path: str, data: bytes) -> None:
    """A new file in place of the old one: a hard link to the live file is never written through."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = 0o644
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode & 0o777
    _remove(path)
    with open(path, "wb") as stream:
        stream.write(data)
    os.chmod(path, mode)


# --- the process -----------------------------------------------------------------------------------------------------


class Line:
    """The line to the host program: plan and end on standard input, events on standard output."""

    def __init__(self) -> None:
        self._rest = b""

    def plan(self) -> Dict[str, Any]:
        """The first line: what to start."""
        while b"\n" not in self._rest:
            chunk = os.read(0, 1 << 20)
            if not chunk:
                raise SystemExit(0)
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        plan: Dict[str, Any] = json.loads(line)
        return plan

    def ended(self, wait_s: float) -> bool:
        """Whether the other side has let go, or asked for the end; waits at most `wait_s`."""
        return bool(select.select([0], [], [], wait_s)[0])

    def say(self, **event: object) -> None:
        """Tell the host program something; it may be gone."""
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(event).encode() + b"\n")


def main() -> None:
    """Keep one server, from the plan on standard input until that input ends."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # only the end of input ends a keeper, so that it always cleans up
    lifetimes.prctl(lifetimes.PR_SET_CHILD_SUBREAPER, 1)
    line = Line()
    plan = line.plan()
    scratch = str(plan["scratch"])
    server: Optional[subprocess.Popen[bytes]] = None
    try:
        os.mkdir(scratch, 0o700)
        hold(scratch)
        server = _start(plan, scratch, line)
        if server is not None:
            while server.poll() is None and not line.ended(0.05):
                pass
            if server.poll() is not None:
                line.say(event="exit", code=server.returncode)
                line.ended(3600.0)
    except UnlaunchableError as error:
        line.say(event="unlaunchable", reason=str(error))
    except Exception as error:
        line.say(event="failed", reason=reading.unread(error)["unread"])
    finally:
        below = lifetimes.descendants(os.getpid())
        if server is not None and server.pid in below:
            below.remove(server.pid)
            below.insert(0, server.pid)
        stubborn = lifetimes.end(below, float(plan.get("stop_s", 10.0)))
        stubborn += lifetimes.end(lifetimes.descendants(os.getpid()), 0.0)
        leave(scratch)
        remove_tree(scratch)
        for folder in surroundings.cgroups_named(os.path.basename(scratch)):
            surroundings.remove_cgroup(folder)
        orphaned = str(os.getppid()) != os.path.basename(scratch)[len(SCRATCH_PREFIX) :].partition("-")[0]
        remove_tree(plan["objects"] if orphaned else links_of(plan["objects"], scratch))
        if orphaned:
            remove_tree(plan["shared"])
            from probes.settings import Settings

            Settings().put_back(server=True, abandoned=True)
        line.say(event="ended", stubborn=stubborn)
        os._exit(0)


def _start(plan: Dict[str, Any], scratch: str, line: Line) -> subprocess.Popen[bytes]:
    began = time.monotonic()
    why_not: Optional[str] = "not wanted"
    if plan.get("isolation") != "copies":
        why_not = new_namespace() or can_overlay(scratch)
    if why_not is None:
        _private_shared_memory()
    folder = _quota(plan, os.path.basename(scratch))
    given, missing = _surroundings(plan, folder)
    named = plan["variables"].get("PYTHONPATH", "").split(os.pathsep)
    world = World(scratch, plan["objects"], named, private=why_not is None)
    for root, change in sorted(plan.get("trees", {}).items()):
        world.tree(root, change)
    for root, change in sorted(plan.get("directories", {}).items()):
        world.directory(root, change, change.get("prefix"))
    world.redirect(plan.get("prefix"))
    temporary = os.path.join(scratch, "tmp")
    os.mkdir(temporary)
    variables = {"TMPDIR": temporary, **plan["variables"]}
    for path, cold in sorted(plan.get("caches", {}).items()):
        words = world.cache(path, variables, plan["shared"], cold=cold)
        if words is not None and "caches" in plan.get("switched", []):
            raise UnlaunchableError(words)
        missing += [words] if words is not None else []
    argv, cwd = list(plan["argv"]), plan["cwd"]
    for live, moved in world.moved.items():
        argv = [in_place(word, live, moved) for word in argv]
        variables = {name: in_place(value, live, moved) for name, value in variables.items()}
        cwd = in_place(cwd, live, moved)
    argv = _understood(argv, plan.get("flags", {}), world.moved)
    if not os.path.isdir(cwd):
        raise UnlaunchableError(f"its directory {cwd} is not there")

    def die_with_keeper() -> None:
        lifetimes.prctl(lifetimes.PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for name in surroundings.ORDER:
            if name in given:
                surroundings.give(name, given[name])

    with open(plan["log"], "wb") as log:
        server = subprocess.Popen(
            argv, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=die_with_keeper,  # noqa: PLW1509 - a keeper has one thread
        )  # fmt: skip
    line.say(
        event="started", pid=server.pid, prepare_s=time.monotonic() - began, moved=world.moved,
        isolation="overlay" if why_not is None else f"copies ({why_not})", missing=missing,
    )  # fmt: skip
    return server


def _understood(argv: List[str], ask: Dict[str, Any], moved: Dict[str, str]) -> List[str]:
    """The command line in the words of the version that this trial starts.

    Raises:
        UnlaunchableError: a flag that is needed has no name that this version knows.
    """
    sources = ask.get("sources", [])
    for directory in ask.get("imports", []) if sources else []:
        place = str(directory)
        for live, to in moved.items():
            place = in_place(place, live, to)
        if not os.path.exists(os.path.join(place, sources[0])):
            continue
        known = flags.known(place, sources)
        for flag in ask.get("needed", []):
            if known and flags.spelled(known, ask["names"][flag]) is None:
                raise UnlaunchableError(f"{flag} is no flag of the version in {os.path.join(place, sources[0])}")
        added = [flag for flag in ask.get("wanted", []) if flag in known and flag not in argv]
        return [*flags.translated(argv, known, ask["names"]), *added] if known else argv
    return argv


def _quota(plan: Dict[str, Any], name: str) -> Optional[str]:
    """The cgroup of this trial, where its quota wants one. A quota that only the live server has is not insisted on."""
    quota = plan.get("surroundings", {}).get("cpu_quota")
    switched = "cpu_quota" in plan.get("switched", [])
    if quota is None or (not switched and quota == surroundings.quota_of(os.getpid())):
        return None
    try:
        return surroundings.make_cgroup(name, quota)
    except OSError as error:
        if switched:
            raise UnlaunchableError(str(error.strerror)) from None
        return None


def _surroundings(plan: Dict[str, Any], folder: Optional[str]) -> Tuple[Dict[str, Any], List[str]]:
    wanted, switched = plan.get("surroundings", {}), plan.get("switched", [])
    try:
        given, missing = surroundings.choose(wanted, switched, folder)
    except OSError as error:
        raise UnlaunchableError(str(error.strerror)) from None
    if folder is None and "cpu_quota" in wanted and wanted["cpu_quota"] != surroundings.quota_of(os.getpid()):
        missing.append(f"unlike the live server's, its CPU quota is not {wanted['cpu_quota']}")
    return given, missing


def in_place(text: str, live: str, moved: str) -> str:
    """`text` with the path `live` replaced by `moved`, where it stands as a whole path or a leading part of one."""
    parts = text.split(":")
    for place, part in enumerate(parts):
        flag, mark, value = part.partition("=")
        if mark and (value == live or value.startswith(live + "/")):
            parts[place] = flag + mark + moved + value[len(live) :]
        elif part == live or part.startswith(live + "/"):
            parts[place] = moved + part[len(live) :]
    return ":".join(parts)


def scratch_names() -> Iterator[Tuple[str, int, str]]:
    """Scratch directories in the temporary folder: path, and the pid and start time of the program that owns each."""
    folder = temporary_folder()
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(SCRATCH_PREFIX):
                yield os.path.join(folder, name), *_owner(name)


def _owner(name: str) -> Tuple[int, str]:
    """Pid and start time of the program that made something of this name."""
    pid, _, rest = name[len(SCRATCH_PREFIX) :].partition("-")
    return int(pid) if pid.isdigit() else 0, rest.partition("-")[0]


def temporary_folder() -> str:
    """Where scratch directories lie: not TMPDIR, so that the next program looks in the same place."""
    return "/tmp" if os.access("/tmp", os.W_OK) else os.getcwd()


def sweep() -> List[str]:
    """End and remove what a program that was killed together with its keeper has left. Returns what it was."""
    swept: List[str] = []
    abandoned = [path for path, pid, start in scratch_names() if not lifetimes.lives(pid, start) and not _is_held(path)]
    for pid in _inside_any(abandoned) if abandoned else []:
        lifetimes.end([pid], 0.0)
        swept.append(f"process {pid}")
    for folder in surroundings.cgroups_named(SCRATCH_PREFIX):
        pid, start = _owner(os.path.basename(folder))
        if not lifetimes.lives(pid, start):
            surroundings.remove_cgroup(folder)
            if not os.path.exists(folder):
                swept.append(folder)
    for path in abandoned:
        remove_tree(path)
        if not os.path.exists(path):
            swept.append(path)
    return swept


def _inside_any(paths: List[str]) -> List[int]:
    """Processes whose private world, or whose folder for temporary files, is one of these scratch directories."""
    marks = [os.fsencode(path) for path in paths]
    found: List[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            told = reading.read_bytes(f"/proc/{name}/mountinfo", 4 << 20)
            told += reading.read_bytes(f"/proc/{name}/environ", 4 << 20)
            if any(mark + b" " in told or b"=" + mark + b"/" in told for mark in marks):
                found.append(int(name))
    return found


def remove_tree(path: str) -> None:
    """Remove a directory with all in it, also what an overlay's own folder keeps its owner from reading."""
    for place, names, _files in os.walk(path):
        for name in names:
            inner = os.path.join(place, name)
            if not os.path.islink(inner) and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                with contextlib.suppress(OSError):
                    os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
