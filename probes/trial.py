"""Trials on the host: launch in a private world, wait until ready, prove what runs, measure, end everything.

Several rules keep the host as it was. Nothing is written outside one scratch directory, which a keeper process removes.
The end of the planner's connection cancels the trial in work. A host runs one bisect at a time. What a program that was
killed together with its keeper has left is swept by the next one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from probes import care, information, keeper, lifetimes, measure, objects, output, proof, surroundings
from probes import log as server_log
from probes import settings as host_settings
from probes.ports import free_port
from probes.reading import Json, read_text, run_module, unread
from probes.secrets import Keeper as Secrets
from probes.server import admin_key_of, configured, engine_of, is_secure, key_of
from probes.settings import SettingError, Settings
from probes.watch import Watch

GPU_PATIENCE_S = 30.0
"""So long the driver may take to give the memory of ended processes back, before the next trial begins."""

Emit = Callable[[str, Json], None]

LARGEST_OUTPUT_BYTES = 64 << 20
PROOF_PATIENCE_S = 10.0
SERVER_INFO = "/server_info "
"""Before the names of facts that are from there; alone, why there are none."""
_LONGEST_FACT = 600

_KEEPER = (
    "import sys;sys.dont_write_bytecode=True;sys.path[:0]=['/proc/self/fd/%d'];from probes.keeper import main;main()"
)


_FOR_KEEPER = (
    "cwd", "trees", "directories", "flags", "isolation", "stop_s", "surroundings", "switched", "caches",
    "prefix",
)  # fmt: skip


class TrialError(Exception):
    """A trial that gave no measurement.

    Attributes:
        kind: `unlaunchable` (these factors cannot run together), `launch` (it did not become ready), `measure` (it
            failed while measured), `cancelled`, `busy` (another bisect runs here), `stop` and `start` (the production
            server would not).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Trials:
    """All trials of one conversation. One runs at a time.

    Args:
        memory: descriptor of the memory file that holds this program.
        settings: of the host.
        nvml: the library to ask, where it is not the driver's own.
    """

    def __init__(self, memory: int, settings: Optional[Settings] = None, nvml: Optional[str] = None) -> None:
        self._memory = memory
        self._cancelled = threading.Event()
        self._objects = objects.Objects(os.path.join(keeper.temporary_folder(), f"{_scratch_name()}-objects"))
        self._secrets: Dict[str, str] = {}
        self._keeper = Secrets(b"trial")
        self._lock: Optional[socket.socket] = None
        self._live_pid: Optional[int] = None
        self._count = 0
        self._server: Optional[_Kept] = None
        self._settings = settings or Settings()
        self._nvml = nvml
        self._shared = os.path.join(keeper.temporary_folder(), f"{_scratch_name()}-caches")
        lifetimes.prctl(lifetimes.PR_SET_CHILD_SUBREAPER, 1)

    def cancel(self) -> None:
        """Cut the trial in work off, and refuse further ones."""
        self._cancelled.set()
        if self._server is not None:
            self._server.let_go()

    def close(self) -> None:
        """End a trial that was cut off while it ended, and what a killed keeper has left; put back what was changed."""
        if self._server is not None:
            self._server.end()
        lifetimes.end(lifetimes.descendants(os.getpid()), 0.0)
        for folder in surroundings.cgroups_named(_scratch_name()):
            surroundings.remove_cgroup(folder)
        self._objects.close()
        for path, pid, start in keeper.scratch_names():
            if pid == os.getpid() and start == lifetimes.started(pid):
                keeper.remove_tree(path)
        self._settings.put_back(server=True)
        if self._lock is not None:
            self._lock.close()

    def prepare(self, ask: Json, _emit: Emit) -> Json:
        """Get ready for trials: take the host's lock, sweep, and learn the live server's secrets.

        Args:
            ask: `pid` of the live launcher (its variables hold the values that snapshots only have tokens of),
                `secret_key`, and what `probes.care.objections` wants to know.

        Returns:
            `swept`: what killed programs had left and was put back; `objections`, in words.
        """
        if self._lock is None:
            try:
                self._lock = care.take_lock()
            except care.BusyError as error:
                raise TrialError("busy", str(error)) from None
        self._live_pid = ask.get("pid")
        secrets = self._keeper = Secrets(bytes.fromhex(ask.get("secret_key") or "00"))
        for source in (ask.get("pid"), os.getpid()):
            for row in _environ(source):
                _name, mark, value = row.partition("=")
                if mark:
                    self._secrets.setdefault(secrets.token(value), value)
        for word in _cmdline(ask.get("pid")):
            self._secrets.setdefault(secrets.token(word.partition("=")[2] or word), word.partition("=")[2] or word)
        return {"swept": self._recover(), "objections": care.objections(ask, self._live(), self._nvml)}

    def able(self, ask: Json, _emit: Emit) -> Json:
        """Which factors this user cannot switch here.

        Args:
            ask: `demands`, factor -> what its values need: each a `surrounding` with its `value`, a `directory`, a
                `cache`, or `settings` of the host.

        Returns:
            Factor -> the reason, for those that cannot be switched.
        """
        refused: Dict[str, str] = {}
        tried: List[Json] = []
        for factor, demands in ask["demands"].items():
            for demand in demands:
                reason = None
                if "settings" in demand:
                    reason = self._settings.refusal(demand["settings"])
                elif "directory" in demand:
                    reason = None if os.path.isdir(demand["directory"]) else f"{demand['directory']} is not there"
                elif "surrounding" in demand:
                    tried.append({"factor": factor, **demand})
                if reason is not None:
                    refused.setdefault(factor, reason)
        if tried:
            done = run_module("probes.surroundings", 60.0, stdin=json.dumps(tried).encode())
            if done.reason is not None:
                raise TrialError("launch", f"surroundings could not be tried: {done.reason}")
            refused.update(json.loads(done.text()))
        return refused

    def stop_server(self, ask: Json, _emit: Emit) -> Json:
        """Stop the production server for the trials; it is started again at the end, whatever that is.

        Args:
            ask: `stop` and `start` (commands), `cwd` for the latter, `port` on which the server listens.
        """
        how = {"command": ask["start"], "cwd": ask["cwd"], "port": ask.get("port")}
        try:
            self._settings.note(host_settings.SERVER, how)
            host_settings.stop_server(ask["stop"], self._live())
        except SettingError as error:
            raise TrialError("stop", str(error)) from None
        self._live_pid = None
        return {}

    def start_server(self, ask: Json, _emit: Emit) -> Json:
        """Put everything back, the production server included, and wait until that answers.

        Args:
            ask: `host`, `port`, `secure`, `paths` and `timeout_s` of its readiness; `port` None does not wait.
        """
        said = self._settings.put_back(server=True)
        until = time.monotonic() + float(ask["timeout_s"])
        port, paths = ask.get("port"), ask["paths"]
        while port is not None:
            at = measure.Server(port, ask["host"], secure=ask["secure"])
            if _is_ready(at, paths) if paths else host_settings.listens(port):
                break
            if time.monotonic() > until:
                raise TrialError("start", f"the production server was started and does not answer on {port}")
            time.sleep(0.05)
        return {"restored": said}

    def keep(self, ask: Json, _emit: Emit) -> Json:
        """Take in pieces of files that trials put in place.

        Args:
            ask: `pieces` (see `probes.objects.Objects.put`), and `digests` of files that may be here already.

        Returns:
            `missing`: those of `digests` that are not.
        """
        try:
            for piece in ask.get("pieces", []):
                self._objects.put(piece)
        except objects.NoRoomError as error:
            raise TrialError("room", str(error)) from None
        return {"missing": [digest for digest in ask.get("digests", []) if not self._objects.has(digest)]}

    def restore(self, _ask: Json, _emit: Emit) -> Json:
        """Put back and remove what killed programs have left on this host."""
        return {"swept": self._recover()}

    def _recover(self) -> List[str]:
        return [*keeper.sweep(), *self._settings.put_back(server=True, abandoned=True)]

    def run(self, plan: Json, emit: Emit) -> Json:
        """One trial.

        Args:
            plan: `argv` (with `@PORT@` for the port), `cwd`, `variables`, `prefix` of the serving environment (None:
                it is the system's), `trees`, `directories`, `isolation`, `surroundings` and which of them are
                `switched` (see `probes.surroundings`), `caches` (directory -> whether cold), `settings` of the host
                (see `probes.settings`), `prove` (checks, see `probes.proof.check`), `stop_s`; for a server `ready`
                (`paths` to ask in turn, `timeout_s`) and `measure` (see `probes.measure.measure`), for a command that
                ends by itself `run` (`timeout_s`, and see `probes.output.figures`).
            emit: told `stage` events: `launching`, `ready`, `measuring`, `ending`.

        Raises:
            TrialError: there is no measurement; its kind says why.
        """
        if self._cancelled.is_set():
            raise TrialError("cancelled", "cancelled")
        try:
            port = free_port()
        except OSError as error:
            raise TrialError("launch", str(error)) from None
        argv = [self._known(word).replace("@PORT@", str(port)) for word in plan["argv"]]
        variables = {name: self._known(value) for name, value in plan["variables"].items()}
        self._count += 1
        scratch = os.path.join(keeper.temporary_folder(), f"{_scratch_name()}-{self._count}")
        log = os.memfd_create("log")
        wanted = {
            **{name: plan[name] for name in _FOR_KEEPER if name in plan}, "shared": self._shared,
            "argv": argv, "variables": variables, "objects": self._objects.folder, "scratch": scratch,
            "log": f"/proc/self/fd/{log}",
        }  # fmt: skip
        if plan.get("caches") and not os.path.isdir(self._shared):
            os.mkdir(self._shared, 0o700)
            keeper.hold(self._shared)
        began = time.monotonic()
        emit("stage", {"stage": "launching"})
        try:
            self._settings.change(plan.get("settings", {}))
        except SettingError as error:
            os.close(log)
            self._settings.put_back(server=False)
            raise TrialError("unlaunchable", str(error)) from None
        server = self._server = _Kept(wanted, self._memory, log)
        try:
            started = server.await_start(self._cancelled)
            words = configured(argv, int(started["pid"]))
            at_port = measure.Server(port, key=key_of(words), secure=is_secure(words))
            ready_s = self._await_ready(server, at_port, plan["ready"]) if "ready" in plan else 0.0
            emit("stage", {"stage": "ready", "seconds": ready_s})
            proved = self._prove(plan, started)
            emit("stage", {"stage": "measuring"})
            at = time.monotonic()
            watched = Watch({*lifetimes.descendants(os.getpid()), *self._live()}, self._nvml, int(started["pid"]))
            try:
                if "run" in plan:
                    figures = self._run_out(server, plan["run"])
                else:
                    together = int(plan["measure"].get("concurrency", 1))
                    information.refuse_waiting(at_port._replace(key=admin_key_of(words)), together)
                    figures = measure.measure(at_port, plan["measure"])
            except measure.MeasureError as error:
                if self._cancelled.is_set():
                    raise TrialError("cancelled", "cancelled") from error
                raise TrialError("measure", f"while it was measured: {error}{server.last_words()}") from error
            if self._cancelled.is_set():
                raise TrialError("cancelled", "cancelled")
            measure_s = time.monotonic() - at
            watch = watched.end()
            secrets = Secrets(b"log")
            secrets.variables(variables)
            secrets.argv(words)
            asked = None if "run" in plan else at_port._replace(key=admin_key_of(words))
            facts = _decisions(f"/proc/self/fd/{log}", figures, asked, secrets, engine_of(argv))
        finally:
            emit("stage", {"stage": "ending"})
            at = time.monotonic()
            used = lifetimes.descendants(os.getpid())
            stubborn = server.end()
            lingering = care.still_on_gpus(used, self._nvml, GPU_PATIENCE_S)
            self._server = None
            stop_s = time.monotonic() - at
            os.close(log)
            if os.path.exists(scratch):  # the keeper was killed; its children were ended above
                keeper.remove_tree(scratch)
                keeper.remove_tree(keeper.links_of(self._objects.folder, scratch))
            for folder in surroundings.cgroups_named(os.path.basename(scratch)):
                surroundings.remove_cgroup(folder)
            restored = self._settings.put_back(server=False)
        return {
            "figures": figures, "facts": facts, "proof": proved, "watch": watch, "isolation": started["isolation"],
            "stubborn": stubborn, "lingering": lingering, "missing": started["missing"], "restored": restored,
            "seconds": {"prepare": started["prepare_s"], "launch": ready_s, "measure": measure_s, "stop": stop_s,
                        "whole": time.monotonic() - began},
        }  # fmt: skip

    def _live(self) -> List[int]:
        """The live server's processes, which may hold a GPU beside a trial."""
        return [] if self._live_pid is None else [self._live_pid, *lifetimes.descendants(self._live_pid)]

    def _known(self, value: str) -> str:
        """A value with its secrets put back."""
        while "<secret:" in value:
            start = value.index("<secret:")
            token = value[start : value.find(">", start) + 1]
            if token not in self._secrets:
                raise TrialError("unlaunchable", f"the secret {token} is not known here; is the live server running?")
            value = value.replace(token, self._secrets[token])
        return value

    def _await_ready(self, server: _Kept, at: measure.Server, ready: Json) -> float:
        began = time.monotonic()
        timeout_s = float(ready.get("timeout_s", 600.0))
        while True:
            if self._cancelled.is_set():
                raise TrialError("cancelled", "cancelled")
            code = server.exited()
            if code is not None:
                raise TrialError(
                    "launch", f"the server ended with {_how(code)} before it was ready{server.last_words()}"
                )
            if time.monotonic() - began > timeout_s:
                raise TrialError("launch", f"the server was not ready within {timeout_s:g} s{server.last_words()}")
            if _is_ready(at, ready["paths"]):
                return time.monotonic() - began
            time.sleep(0.01)

    def _prove(self, plan: Json, started: Json) -> List[Json]:
        """Read every factor where it acts. A command is never said to be ready: it is looked at until all show."""
        pid = int(started["pid"])
        until = time.monotonic() + PROOF_PATIENCE_S if "run" in plan else 0.0
        written = {
            root: {path: source["object"] for path, source in change.get("write", {}).items() if "object" in source}
            for root, change in plan.get("directories", {}).items()
        }
        while True:
            proved = proof.check(plan.get("prove", []), pid, started["moved"], self._settings, written, self._keeper)
            if all(check["ok"] for check in proved) or lifetimes.is_zombie(pid) or time.monotonic() > until:
                return proved
            time.sleep(0.02)

    def _run_out(self, server: _Kept, ask: Json) -> Json:
        """Wait until a command has ended by itself, and read its numbers.

        Raises:
            MeasureError: it did not end well, or not in time.
        """
        until = time.monotonic() + float(ask["timeout_s"])
        while True:
            code = server.exited(0.1)
            if code == 0:
                return output.figures(server.said(), ask)
            if code is not None:
                raise measure.MeasureError("the command ended with " + _how(code))
            if self._cancelled.is_set():
                raise measure.MeasureError("cancelled")
            if time.monotonic() > until:
                raise measure.MeasureError(f"the command did not end within {ask['timeout_s']:g} s")


def _decisions(
    log: str, figures: Json, at: Optional[measure.Server], secrets: Secrets, engine: Optional[str]
) -> Dict[str, Json]:
    """What the engine decided in this launch: by its log, by `/server_info`, and by the passes that were counted."""
    facts: Dict[str, Json] = {}
    try:
        for name, lines in server_log.decisions(log)[0].items():
            if name != "max total tokens":  # it follows the memory that was free
                facts[name] = secrets.text("; ".join(lines))[:_LONGEST_FACT]
    except OSError as error:
        facts["log"] = unread(error)
    mode = figures.pop("graph_mode", None)
    if mode is not None:
        facts["graph mode"] = mode
    if at is not None:
        told: Dict[str, Json] = {}
        try:
            told = information.ask(at)
            information.name_ranks(figures, told)
            figures["most_accepted"] = information.most_accepted(told)
            facts.update(
                {f"{SERVER_INFO}{name}": secrets.text(value) for name, value in information.decided(told).items()}
            )
        except Exception as error:  # whatever a server answers there
            facts[SERVER_INFO.strip()] = unread(error)
        unfamiliar = server_log.unfamiliar(engine, told.get("version"))
        if unfamiliar is not None:
            facts.setdefault("log", unread(unfamiliar))
    return facts


def _is_ready(server: measure.Server, paths: List[str]) -> bool:
    """Whether a server says so, on the first of the pages that it has.

    An older one has no such page, or keeps what it has not behind its key (SGLang's `/health...` never needs one).
    """
    for path in paths:
        try:
            status, _ = measure.get(server, path, 10.0)
        except (OSError, http.client.HTTPException):
            return False
        if status not in {401, 403, 404}:
            return status == 200
    return False


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _scratch_name() -> str:
    return f"{keeper.SCRATCH_PREFIX}{os.getpid()}-{lifetimes.started(os.getpid())}"


class _Kept:
    """A keeper process and what it says."""

    def __init__(self, plan: Json, memory: int, log: int) -> None:
        self._log = log
        self._rest = b""
        self._code: Optional[int] = None
        self._stubborn: List[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER % memory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(memory, log), start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).write(json.dumps(plan).encode() + b"\n")
            _pipe(self._process.stdin).flush()

    def _hear(self, wait_s: float) -> Optional[Dict[str, Any]]:
        """The keeper's next event, or None when it says nothing within `wait_s`. Its end is an event too."""
        out = _pipe(self._process.stdout).fileno()
        until = time.monotonic() + wait_s
        while b"\n" not in self._rest:
            if not select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            chunk = os.read(out, 1 << 16)
            if not chunk:
                return {"event": "gone"}
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        event: Dict[str, Any] = json.loads(line)
        return event

    def await_start(self, cancelled: threading.Event) -> Dict[str, Any]:
        """Wait until the server's process exists. Raises TrialError when it cannot."""
        while True:
            if cancelled.is_set():
                raise TrialError("cancelled", "cancelled")
            event = self._hear(0.05)
            if event is None:
                continue
            if event["event"] == "started":
                return event
            if event["event"] == "unlaunchable":
                raise TrialError("unlaunchable", event["reason"])
            if event["event"] == "failed":
                raise TrialError("launch", f"the trial could not be prepared: {event['reason']}")
            if event["event"] in {"gone", "ended"}:
                raise TrialError("launch", "the trial's keeper was killed while it prepared the launch")

    def exited(self, wait_s: float = 0.0) -> Optional[int]:
        """The server's exit status (negative: a signal) once it has ended; waits at most so long for that."""
        event = self._hear(wait_s)
        if event is not None and event["event"] == "exit":
            self._code = int(event["code"])
        elif event is not None and event["event"] in {"gone", "ended"}:
            self._code = -9
        return self._code

    def said(self) -> str:
        """Everything that it printed, or the end of that."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, LARGEST_OUTPUT_BYTES, max(0, size - LARGEST_OUTPUT_BYTES)).decode("utf-8", "replace")

    def last_words(self) -> str:
        """The end of the server's log, for a message; secrets replaced."""
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, 4000, max(0, size - 4000)).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ": " + Secrets(b"log").text(" | ".join(lines[-3:]))[-600:] if lines else ""

    def let_go(self) -> None:
        """Ask the keeper to end its server, without waiting for it."""
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).close()

    def end(self) -> List[int]:
        """End the server through its keeper, and by ourselves where that is gone. Returns pids that would not end.

        What a signal has cut off can be begun again.
        """
        if _pipe(self._process.stdout).closed:
            return self._stubborn
        self.let_go()
        until = time.monotonic() + 120.0
        while time.monotonic() < until:
            event = self._hear(until - time.monotonic())
            if event is None or event["event"] == "gone":
                break
            if event["event"] == "ended":
                self._stubborn = event["stubborn"]
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()
        return self._stubborn + lifetimes.end(lifetimes.descendants(os.getpid()), 0.0)


def _pipe(pipe: Any) -> Any:  # noqa: ANN401 - Popen's pipes are Optional in the type only
    """A pipe that was asked for."""
    return pipe


def _environ(pid: Optional[int]) -> List[str]:
    if pid is None:
        return []
    with contextlib.suppress(OSError):
        return read_text(f"/proc/{pid}/environ", 4 << 20).split("\0")
    return []


def _cmdline(pid: Optional[int]) -> List[str]:
    if pid is None:
        return []
    with contextlib.suppress(OSError):
        return read_text(f"/proc/{pid}/cmdline", 1 << 20).split("\0")
    return []
