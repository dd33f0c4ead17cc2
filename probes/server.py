"""The live server, read from outside: which processes it is, what each was told, and its own account of itself.

A server is found by the titles its ranks give themselves (`sglang::scheduler_TP0`) and by its command line. Its
launcher is the nearest ancestor of the ranks without such a title. Two servers on a host are never guessed between.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import stat
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from probes import caches, declared, processes
from probes.reading import Json, attempt, files_below, is_unread, read_bytes, read_text, unread
from probes.secrets import LARGEST_TEXT_BYTES, Keeper, is_secret_name

_TITLE = "sglang::"
_PLACE = r"_([A-Z]+(?:_[A-Z]+)*)(\d+)"
_RANK = re.compile(rf"sglang::scheduler((?:{_PLACE})*)$")
"""`sglang::scheduler`, `..._TP1`, `..._DP0_PP1_ATTN_CP0_MOE_DP0_TP3_EP3`: what there is only one of is not named."""
_MODULES = ("sglang.launch_server", "tinyserve.launch_server")
_DEFAULT_PORT = 30000
_LARGEST_CONFIG_BYTES = 1 << 20
_SETTINGS = re.compile(r"\.(ya?ml|json|toml|jinja|ini)$")
_FOLDERS = re.compile(r"_CONFIG_(DIR|FOLDER)$")
"""Variables such as SGLANG_MOE_CONFIG_DIR, which name a folder of tuned kernel configurations."""
_MOST_FILES = 16
_MOST_IN_A_FOLDER = 2000
_LARGEST_FILE_BYTES = 8 << 20
_LARGEST_TEXTS_BYTES = 64 << 10
"""Of one file of settings, and of all their texts together."""


class Process(NamedTuple):
    """What discovery needs to know of a process."""

    stat: processes.Stat
    argv: List[str]

    @property
    def title(self) -> str:
        """The title it gave itself; empty when it has none."""
        return self.argv[0].strip() if self.argv and self.argv[0].startswith(_TITLE) else ""


class Found(NamedTuple):
    """One server: its launcher and the processes below it."""

    launcher: Process
    members: List[Process]
    engine: Optional[str]
    listeners: List[processes.Listener]
    words: List[str]
    """The launcher's command line with what its `--config` file says."""

    @property
    def port(self) -> Optional[int]:
        """The port it serves on, as far as it can be known."""
        named = option(self.words, "--port")
        wanted = int(named) if named and named.isdigit() else _DEFAULT_PORT
        ports = [listener.port for listener in self.listeners]
        if named or wanted in ports:
            return wanted
        return ports[0] if len(set(ports)) == 1 else None


def rank_of(pid: int) -> Optional[str]:
    """How the rank is called that a process's title names; None for any other process."""
    try:
        words = processes.argv(pid)
    except OSError:
        return None
    places = _places(words[0].strip()) if words else None
    return None if places is None else _called(places)


def _places(title: str) -> Optional[Dict[str, str]]:
    """Where a rank stands, by its title: `TP` and what else there is several of; None: it is no rank."""
    named = _RANK.match(title)
    return None if named is None else dict(re.findall(_PLACE, named[1])) or {"TP": "0"}


def _called(places: Dict[str, str]) -> str:
    if set(places) == {"TP"}:
        return f"rank {int(places['TP'])}"
    return "rank " + " ".join(f"{name}{number}" for name, number in places.items())


_COMPILING = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_LIBDEVICE_PATH", "TRITON_PTXAS_PATH")
"""What torch's compiler sets (torch/_inductor/runtime: cache_dir_utils, triton_heuristics, compile_tasks)."""


def current_variables(pid: int) -> Json:
    """The variables that a process has now, or why they cannot be read."""
    return attempt(lambda: processes.variables_now(pid))


def option(argv: List[str], flag: str) -> Optional[str]:
    """The last value of `flag` on a command line."""
    value = None
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            value = argv[number + 1]
        elif word.startswith(flag + "="):
            value = word[len(flag) + 1 :]
    return value


_SET = re.compile(r"""([A-Za-z][\w-]{0,80}):[ \t]+("[^"\n]*"|'[^'\n]*'|[^\s#'"][^\n#]*)""")


def configured(argv: List[str], pid: int) -> List[str]:
    """A command line with what the file at `--config` says, before it: what is typed counts, as SGLang has it.

    The file is looked for where that process sees it. One that cannot be read says nothing, nor does one of another
    container or one that the process's own user may not read: the key in it is sent to that process.
    """
    path = option(argv, "--config")
    if path is None or _elsewhere(pid):
        return argv
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        whole = os.path.join(os.readlink(f"/proc/{pid}/cwd"), path)
        handle = os.open(f"/proc/{pid}/root{whole}", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return argv
    try:
        status = os.fstat(handle)
        if owner not in {0, status.st_uid} and not status.st_mode & stat.S_IROTH:
            return argv
        text = read_text(f"/proc/self/fd/{handle}", _LARGEST_CONFIG_BYTES)
    except OSError:
        return argv
    finally:
        os.close(handle)
    pairs = (_SET.match(line) for line in text.splitlines())
    said = ((one[1].replace("_", "-"), one[2].strip().strip("\"'")) for one in pairs if one is not None)
    return [*(f"--{name}={value}" for name, value in said if value not in {"null", "~"}), *argv]


def engine_of(argv: List[str]) -> Optional[str]:
    """Which engine a command line launches; None when it launches none.

    Wrappers (`timeout 60 python -m ...`, `bash -c ...`) are not launchers: only a Python that runs the module is.
    """
    names = [os.path.basename(word) for word in argv[:2]]
    if len(argv) > 2 and argv[2] == "serve" and names[1] == "sglang" and names[0].startswith("python"):
        return "sglang"
    if names and names[0].startswith("python"):
        for word, following in zip(argv[1:], argv[2:]):  # noqa: RUF007 - Python 3.9
            if word == "-m":
                return following.partition(".")[0] if following in _MODULES else None
            if not word.startswith("-"):
                return None
    return None


def snapshot_of_processes() -> Dict[int, Process]:
    """Every process that can be read, now."""
    table: Dict[int, Process] = {}
    for pid in processes.pids():
        try:
            table[pid] = Process(processes.stat(pid), processes.argv(pid))
        except (OSError, ValueError):  # noqa: PERF203
            continue  # it ended meanwhile
    return {pid: process for pid, process in table.items() if process.stat.state != "Z"}


def find(table: Dict[int, Process]) -> List[Found]:
    """The servers among some processes."""
    named = [process for process in table.values() if engine_of(process.argv)]
    launchers = list(named)
    for process in table.values():
        if process.title:
            above = _launcher_above(process, table)
            # A rank whose server died falls to a supervisor, which is no launcher of the servers that run below it.
            if above not in launchers and not any(_is_below(one, above, table) for one in named):
                launchers.append(above)
    # A launcher below another one belongs to it.
    tops = [one for one in launchers if not any(one != other and _is_below(one, other, table) for other in launchers)]
    return [_found(launcher, table) for launcher in sorted(tops, key=lambda one: one.stat.pid)]


def _found(launcher: Process, table: Dict[int, Process]) -> Found:
    members = [one for one in table.values() if one == launcher or _is_below(one, launcher, table)]
    engine = engine_of(launcher.argv) or ("sglang" if any(one.title for one in members) else None)
    try:
        listening = processes.listeners(launcher.stat.pid)
    except OSError:
        listening = []
    return Found(launcher, members, engine, listening, configured(launcher.argv, launcher.stat.pid))


def _launcher_above(process: Process, table: Dict[int, Process]) -> Process:
    """The nearest ancestor without a title; the topmost titled process when that one is no interpreter."""
    top = process
    for above in _ancestors(process, table):
        if not above.title:
            python = bool(above.argv) and os.path.basename(above.argv[0]).startswith("python")
            return above if python else top
        top = above
    return top


def _ancestors(process: Process, table: Dict[int, Process]) -> List[Process]:
    chain: List[Process] = []
    above = table.get(process.stat.parent)
    while above is not None and above not in chain:
        chain.append(above)
        above = table.get(above.stat.parent)
    return chain


def _is_below(process: Process, ancestor: Process, table: Dict[int, Process]) -> bool:
    return ancestor in _ancestors(process, table)


def choose(ask: Json, table: Dict[int, Process]) -> Union[Found, Json]:
    """The server that `ask` means, or a section that says why there is none."""
    servers = find(table)
    pid, port = ask.get("pid"), ask.get("port")
    if pid is not None:
        named = table.get(int(pid))
        if named is None:
            return {"status": "failed", "reason": f"there is no process {pid}"}
        for server in servers:
            if named in server.members:
                return server
        return _found(named, table)
    if port is not None:
        matching = [one for one in servers if one.port == int(port)]
        if not matching:
            matching = [one for one in servers if int(port) in {listener.port for listener in one.listeners}]
        if len(matching) == 1:
            return matching[0]
        return _undecided(f"no server on port {port}", servers)
    if len(servers) > 1:
        return _undecided(f"{len(servers)} servers run here, choose by port or pid", servers)
    if not servers:
        return {"status": "absent", "reason": "no server runs here (no sglang process, no launch_server command line)"}
    return servers[0]


def _undecided(reason: str, servers: List[Found]) -> Json:
    """A section that names the servers there are, for people and for programs."""
    rows = [f"pid {one.launcher.stat.pid} port {one.port} ({' '.join(one.launcher.argv)[:160]})" for one in servers]
    choices = [{"pid": one.launcher.stat.pid, "port": one.port, "argv": list(one.launcher.argv)} for one in servers]
    return {
        "status": "failed",
        "reason": reason + (": " + "; ".join(rows) if rows else ""),
        "choices": choices,
    }


def is_secure(argv: List[str]) -> bool:
    """Whether a server that was started like this answers over TLS."""
    return option(argv, "--ssl-certfile") is not None


def key_of(argv: List[str]) -> Optional[str]:
    """The key that a server wants to see with a request, as its own command line names it."""
    return option(argv, "--api-key")


def admin_key_of(argv: List[str]) -> Optional[str]:
    """The key for `/server_info`: where there is one for administrators, no other opens that page."""
    return option(argv, "--admin-api-key") or key_of(argv)


def on_port(port: int) -> Optional[List[str]]:
    """The command line of the server on a port, with what its configuration file says."""
    matching = [one for one in find(snapshot_of_processes()) if one.port == port]
    return matching[0].words if len(matching) == 1 else None


def misread(host: str, port: int, *, secure: bool) -> str:
    """What is wrong with an address at which nothing could be had, as the end of a sentence; empty: nothing is seen."""
    servers = find(snapshot_of_processes())
    here = [is_secure(one.words) for one in servers if one.port == port]
    if here and here[0] != secure:
        return "; it speaks TLS, write https://" if here[0] else "; it speaks no TLS, write http://"
    import socket

    try:
        with socket.create_connection((host, port), timeout=3.0):
            return ""
    except OSError:
        ports = sorted({str(one.port) for one in servers if one.port is not None}, key=int)
        others = f"a server of this host is on port {' or '.join(ports)}" if ports else "no server was found here"
        return f"; nothing listens there, and {others}"


def read(context: Dict[str, Any]) -> Json:
    """The server section. Leaves `context["serving"]` for the other probes: the launcher as it really is."""
    ask, keeper = context["ask"], context["keeper"]
    table = snapshot_of_processes()
    server = choose(ask, table)
    if not isinstance(server, Found):
        server["reason"] = keeper.text(server["reason"])
        for one in server.get("choices", []):
            one["argv"] = keeper.argv(one["argv"])
        return server
    roles = _roles(server)
    first = server.launcher.stat.pid
    raw = {key: _raw(process, role, rank, first) for key, (process, role, rank) in roles.items()}
    launcher = raw["launcher"]
    for entry in raw.values():
        entry["compiling"] = _set_when_compiling(entry, launcher)
    ranks = [entry["variables"] for entry in raw.values() if entry["role"] == "rank"]
    seen = [variables for variables in (*ranks, launcher["variables"], launcher["at_exec"]) if not is_unread(variables)]
    context["serving"] = {
        "elsewhere": _elsewhere(server.launcher.stat.pid),
        "pid": server.launcher.stat.pid,
        "engine": server.engine,
        "argv": server.launcher.argv,
        "executable": launcher["executable"],
        "cwd": launcher["cwd"],
        # The launcher's own start is what decided its import path; what it set later did not.
        "variables": launcher["at_exec"] if not is_unread(launcher["at_exec"]) else launcher["variables"],
        # What the code that computes sees: a rank's, as they are now.
        "in_rank": seen[0] if seen else {},
        "blind": None if seen else "no process of the server lets its variables be read",
        "processes": {key: process.stat.pid for key, (process, _role, _rank) in roles.items()},
    }
    for entry in raw.values():  # a secret that one process names is replaced in all of them
        for part in ("at_exec", "variables"):
            if not is_unread(entry[part]):
                keeper.variables(entry[part])
    arguments = _arguments(server, keeper)
    launched = context["serving"]["variables"]
    named = named_files(server.launcher.argv, {} if is_unread(launched) else launched, launcher["cwd"])
    announced = attempt(lambda: declared.read(first))
    if isinstance(announced, dict) and "variables" in announced:
        plain = {name: value for name, value in announced["variables"].items() if isinstance(value, str)}
        announced["variables"].update(keeper.variables(plain))
    context["serving"]["version"] = None if is_unread(arguments) else arguments.get("version")
    return {
        "reason": _whose(server.launcher.stat.pid),
        "engine": server.engine,
        "url": _url(server),
        "processes": {key: _clean(entry, keeper) for key, entry in raw.items()},
        "declared": announced,
        "files": _files(named, context["serving"]["elsewhere"], keeper),
        "arguments": arguments,
    }


def _roles(server: Found) -> Dict[str, Tuple[Process, str, Optional[int]]]:
    """Which process plays which role, under keys that mean the same in every capture."""
    roles: Dict[str, Tuple[Process, str, Optional[int]]] = {"launcher": (server.launcher, "launcher", None)}
    for process in sorted(server.members, key=lambda one: one.stat.started_ticks):
        if process == server.launcher:
            continue
        key, role, rank = _role(process, server)
        if not key:
            continue
        name, number = key, 2
        while name in roles:
            name, number = f"{key} ({number})", number + 1
        roles[name] = (process, role, rank)
    return roles


def _role(process: Process, server: Found) -> Tuple[str, str, Optional[int]]:
    title = process.title
    places = _places(title)
    if places is not None:
        return _called(places), "rank", int(places.get("TP", 0))
    if title.startswith("sglang::detokenizer") and "router" not in title:
        return "detokenizer", "detokenizer", None
    if title:
        return re.sub(r":\d+$", "", title[len(_TITLE) :]), "helper", None
    if any("multiprocessing.resource_tracker" in word for word in process.argv):
        ours = process.stat.parent == server.launcher.stat.pid
        return ("tracker", "tracker", None) if ours else ("", "", None)  # a rank starts one when it first needs it
    # Compilers and pools come and go; without titles to go by, the interpreters below the launcher are the server.
    if server.engine is None and process.argv[:1] == server.launcher.argv[:1]:
        return "helper", "helper", None
    return "", "", None


def _raw(process: Process, role: str, rank: Optional[int], launcher: int) -> Dict[str, Json]:
    pid = process.stat.pid
    words = list(process.argv)
    if role == "tracker":
        words = [re.sub(r"main\(\d+\)", "main(FD)", word) for word in words]
    variables = current_variables(pid)
    libraries, jit = _compiled_apart(attempt(lambda: processes.libraries(pid)), variables, pid)
    threads = attempt(lambda: processes.threads(pid)) if role == "rank" else None
    return {
        "role": role,
        "rank": rank,
        "pid": pid,
        "parent": process.stat.parent,
        "title": re.sub(r":\d+$", "", process.title) or attempt(lambda: read_text(f"/proc/{pid}/comm").strip()) or "",
        "argv": words,
        "executable": attempt(lambda: os.readlink(f"/proc/{pid}/exe")),
        "cwd": attempt(lambda: os.readlink(f"/proc/{pid}/cwd")),
        "started": attempt(lambda: processes.started_at(pid)),
        "at_exec": attempt(lambda: processes.variables_at_exec(pid)),
        "variables": variables,
        "libraries": libraries,
        "jit": jit,
        "affinity": attempt(lambda: processes.status(pid)["Cpus_allowed_list"]),
        **_threads(threads),
        "memory_nodes": attempt(lambda: processes.status(pid)["Mems_allowed_list"]),
        "memory_policy": attempt(lambda: processes.memory_policy(pid)),
        "nice": process.stat.nice,
        "policy": process.stat.policy,
        "cgroup": attempt(lambda: processes.cgroup(pid)),
        "namespaces": attempt(lambda: processes.namespaces(pid)),
        "apart": attempt(lambda: _apart(pid, launcher)),
    }


def _threads(told: Json) -> Dict[str, Json]:
    if not isinstance(told, processes.Threads):
        return {} if told is None else {"threads": told, "thread_affinity": told}
    return {"threads": told.number, "thread_affinity": list(told.elsewhere), "thread_names": told.elsewhere}


def _apart(pid: int, launcher: int) -> List[str]:
    ours, its = processes.namespaces(pid), processes.namespaces(launcher)
    return [kind for kind in sorted(ours) if ours[kind] != its[kind]]


def _set_when_compiling(entry: Dict[str, Json], launcher: Dict[str, Json]) -> List[str]:
    """Take the variables out that torch's compiler sets in its own process when it first compiles; returns their names.

    A server whose kernels lie in a cache never has them: like the kernels they say how far it has come. What was set at
    the start stays, under the same names.
    """
    now = entry["variables"]
    before = next((one for one in (entry["at_exec"], launcher["variables"]) if not is_unread(one)), None)
    if is_unread(now) or before is None:
        return []
    names = sorted(name for name in _COMPILING if name in now and name not in before)
    for name in names:
        del now[name]
    return names


def _compiled_apart(libraries: Json, variables: Json, pid: int) -> Tuple[Json, List[str]]:
    """The libraries, and the paths of mapped objects that were compiled at run time: those in a cache of kernels.

    They appear with the first request that needs them, so they say how far a server has come, not which one it is.
    """
    if is_unread(libraries) or is_unread(variables):
        return libraries, []
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return libraries, []
    # Triton compiles where it was told to until torch's compiler, at its first use, tells it another place.
    ever = (variables, {name: text for name, text in variables.items() if name not in _COMPILING})
    places = tuple(f"{place}/" for one in ever for place in caches.locations(one, owner).values())
    jit = {
        key
        for key, library in libraries.items()
        if library["path"].startswith(places) and "-packages/" not in library["path"]
    }
    kept = {key: library for key, library in libraries.items() if key not in jit}
    return kept, sorted(libraries[key]["path"] for key in jit)


def _whose(pid: int) -> Optional[str]:
    """That the server is somebody else's, which leaves most of it unread."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    if os.geteuid() in {0, owner}:
        return None
    return f"the server belongs to user id {owner}: capture as that user or with sudo to read its variables and files"


def _elsewhere(pid: int) -> Optional[str]:
    """Why the server's paths mean nothing here; None when it sees the same files as we do."""
    here, there = _namespace("self", "mnt"), _namespace(pid, "mnt")
    if not here or not there or here == there:
        return None
    try:
        ours, theirs = os.stat("/"), os.stat(f"/proc/{pid}/root/")
    except OSError:
        return None
    if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino):
        return None
    return (
        f"the server (pid {pid}) has a file system of its own, a container's: capture from inside it with docker:NAME,"
        f" kubectl:NAMESPACE/POD or via:'nsenter --target {pid} --mount'"
    )


def _clean(entry: Dict[str, Json], keeper: Keeper) -> Dict[str, Json]:
    clean = dict(entry)
    clean["argv"] = keeper.argv(entry["argv"])
    if is_unread(clean["title"]):
        clean["title"] = ""
    for part in ("at_exec", "variables"):
        if not is_unread(entry[part]):
            clean[part] = keeper.variables(entry[part])
    return clean


def _url(server: Found) -> Optional[str]:
    if server.port is None:
        return None
    host, scheme = _host(server), "https" if is_secure(server.words) else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port}"


def _host(server: Found) -> str:
    bound = [one.address for one in server.listeners if one.port == server.port]
    if not bound or {"0.0.0.0", "127.0.0.1"} & set(bound):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return "::1" if bound[0] == "::" else bound[0]


def _arguments(server: Found, keeper: Keeper) -> Json:
    """What /server_info says of the configuration, as resolved in the first rank."""
    if server.engine is None or server.port is None:
        return unread("it is not known where this server answers")
    pid = server.launcher.stat.pid
    if _namespace("self", "net") != _namespace(pid, "net"):
        return unread("the server is in another network namespace; capture from inside its container")
    try:
        from probes import information, measure

        argv = server.words
        told = information.ask(measure.Server(server.port, _host(server), admin_key_of(argv), is_secure(argv)))
    except Exception as error:  # an HTTP exception, too; its module is loaded only where a server is asked
        return unread(f"/server_info on port {server.port}: {str(error) or type(error).__name__}")
    resolved = information.arguments(told)
    if option(server.words, "--random-seed") is not None and "random_seed" in told:
        resolved["random_seed"] = told["random_seed"]
    return cleaned(resolved, keeper)


def cleaned(arguments: Dict[str, Json], keeper: Keeper) -> Dict[str, Json]:
    """Those arguments that have a value, secrets replaced."""
    return {name: _cleaned(name, value, keeper) for name, value in sorted(arguments.items()) if value is not None}


def named_files(argv: List[str], variables: Dict[str, str], cwd: Json) -> Iterator[Tuple[str, str]]:
    """The files of settings that a launch names: by which flag or variable, and where each lies.

    They are told by their endings: engines give such flags other names from version to version.
    """
    flag = ""
    for word in argv[1:]:
        value = word
        if word.startswith("--"):
            flag, _, value = word.partition("=")
        if _SETTINGS.search(value) and not is_secret_name(flag.lstrip("-")):
            yield flag or os.path.basename(word), os.path.join(cwd if isinstance(cwd, str) else "/", value.lstrip("@"))
    for name, value in sorted(variables.items()):
        told = _SETTINGS.search(value) or _FOLDERS.search(name)
        if value.startswith("/") and told and not name.startswith("NCCL_") and not is_secret_name(name):
            yield name, value


def _folder(path: str) -> bytes:
    """The files of settings in a folder, each with its digest, as text."""
    names = (name for name in files_below(path, ".") if _SETTINGS.search(name))
    rows = [
        f"{hashlib.sha256(read_bytes(os.path.join(path, name), _LARGEST_FILE_BYTES)).hexdigest()[:16]} {name[2:]}\n"
        for name in itertools.islice(names, _MOST_IN_A_FOLDER)
    ]
    return "".join(sorted(rows, key=lambda row: row[17:])).encode("utf-8", "surrogateescape")


def _files(named: Iterable[Tuple[str, str]], elsewhere: Optional[str], keeper: Keeper) -> Dict[str, Json]:
    """Digest and text of each of these files that is there, within bounds."""
    found: Dict[str, Json] = {}
    left = _LARGEST_TEXTS_BYTES
    for name, path in itertools.islice(named, _MOST_FILES):
        read = _folder if os.path.isdir(path) else functools.partial(read_bytes, limit=_LARGEST_FILE_BYTES + 1)
        if not elsewhere and not os.path.isdir(path) and not os.path.isfile(path):
            continue
        raw = unread(elsewhere) if elsewhere else attempt(functools.partial(read, path))
        if isinstance(raw, bytes) and len(raw) > _LARGEST_FILE_BYTES:
            raw = unread(f"{path} is larger than {_LARGEST_FILE_BYTES >> 20} MiB")
        key, number = name, 2
        while key in found:
            key, number = f"{name} ({number})", number + 1
        found[key] = {"path": path, "sha256": raw, "text": raw}
        if isinstance(raw, bytes):
            text = keeper.contents(raw, min(LARGEST_TEXT_BYTES, left))
            left -= 0 if text is None else len(raw)
            found[key] = {"path": path, "sha256": hashlib.sha256(raw).hexdigest(), "text": text}
    return found


def _cleaned(name: str, value: Json, keeper: Keeper) -> Json:
    if isinstance(value, str):
        return keeper.value(name, value)
    if isinstance(value, list):
        return [_cleaned(name, item, keeper) for item in value]
    if isinstance(value, dict):
        return {str(key): _cleaned(str(key), item, keeper) for key, item in value.items()}
    return value


def _namespace(pid: Union[int, str], kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""
