"""The host program: answers requests on standard input until that ends, then ends everything it started.

Requests and answers are JSON lines. Every answer line begins with the nonce of the conversation, so whatever else the
way to the host prints (a banner, a locale warning) is told apart. One request is worked on at a time; an answer is any
number of `event` lines and then one `result` or `error`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, Callable, Dict, List, Optional

from probes import capture
from probes.reading import Json, end_commands

if TYPE_CHECKING:
    from probes.trial import Trials

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Emit = Callable[[str, Json], None]


class Conversation:
    """One planner on the other end: the nonce, the way out, and what was started for it."""

    def __init__(self, nonce: str, out: BinaryIO) -> None:
        self._nonce = nonce
        self._out = out
        self._lock = threading.Lock()

    def send(self, message: Dict[str, Json]) -> None:
        """Write one answer line."""
        # A file name that is no text must not cost the section it stands in: what cannot be encoded becomes `?`.
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
        line = f"{self._nonce}{text}\n".encode("utf-8", "replace")
        with self._lock, contextlib.suppress(OSError):  # a planner that is gone needs no answer; its input ends too
            self._out.write(line)
            self._out.flush()


class _Late:
    """The trials of a conversation. Their code is loaded with the first one: most conversations only capture."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._made: List[Trials] = []

    def call(self, name: str) -> Callable[[Json, Emit], Json]:
        """What carries out one kind of request."""

        def work(ask: Json, emit: Emit) -> Json:
            if not self._made:
                from probes.trial import Trials

                self._made.append(Trials(self._memory))
                if capture.CANCELLED.is_set():
                    self.cancel()
            return getattr(self._made[0], name)(ask, emit)

        return work

    def cancel(self) -> None:
        """Cut the trial in work off."""
        for trials in self._made:
            trials.cancel()

    def close(self) -> None:
        """End what is left of them."""
        for trials in self._made:
            trials.close()


def _measure(ask: Json, _emit: Emit) -> Json:
    from probes import information, measure, server

    port = int(ask["port"])
    argv = server.on_port(port) or []
    at = measure.Server(port, ask["host"], ask.get("key") or server.key_of(argv), bool(ask.get("secure")))
    about = at._replace(key=ask.get("key") or server.admin_key_of(argv))
    try:
        information.refuse_waiting(about, int(ask.get("together", ask.get("concurrency", 1))))
        figures = measure.measure(at, ask)
    except measure.MeasureError as error:
        raise measure.MeasureError(f"{error}{server.misread(at.host, port, secure=at.secure)}") from error
    with contextlib.suppress(Exception):  # a server that does not say how many ranks it has
        told = information.ask(about)
        information.name_ranks(figures, told)
        figures["most_accepted"] = information.most_accepted(told)
    return figures


def serve(stdin: BinaryIO, stdout: BinaryIO, memory: int) -> None:
    """Answer requests until `stdin` ends; a request in work is then cut off and its server ended.

    `memory` is the descriptor of the memory file that holds this program.
    """
    nonce = stdin.readline().decode("ascii", "replace").strip()
    conversation = Conversation(nonce, stdout)
    trials = _Late(memory)
    calls: Dict[str, Callable[[Json, Emit], Json]] = {
        "capture": capture.capture,
        "measure": _measure,
        "try": trials.call("run"),
        "prepare": trials.call("prepare"),
        "able": trials.call("able"),
        "stop server": trials.call("stop_server"),
        "start server": trials.call("start_server"),
        "keep": trials.call("keep"),
        "restore": trials.call("restore"),
    }
    requests: queue.Queue[Optional[Dict[str, Json]]] = queue.Queue()

    def read_requests() -> None:
        try:
            for line in stdin:
                requests.put(json.loads(line))
        finally:
            capture.CANCELLED.set()
            trials.cancel()
            requests.put(None)

    threading.Thread(target=read_requests, daemon=True).start()
    conversation.send({"event": "hello", "value": {"python": sys.version.split()[0], "pid": os.getpid()}})
    try:
        while True:
            request = requests.get()
            if request is None:
                return
            number = request.get("id")

            def emit(event: str, value: Json, number: Json = number) -> None:
                conversation.send({"id": number, "event": event, "value": value})

            try:
                call = calls[str(request.get("call"))]
                conversation.send({"id": number, "result": call(request.get("args"), emit)})
            except Exception as error:
                answer = {"id": number, "error": str(error), "kind": getattr(error, "kind", None)}
                if answer["kind"] is None:
                    import traceback

                    where = traceback.format_exc(limit=-3)
                    answer.update(error=f"{type(error).__name__}: {error}", kind="fault", where=where)
                conversation.send(answer)
    finally:
        for ending in _ENDING:  # what is being put back is put back whole
            signal.signal(ending, signal.SIG_IGN)
        trials.close()


def _leave(_number: int, _frame: Optional[FrameType]) -> None:
    for number in _ENDING:  # once is enough
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def main(memory: int) -> None:
    """Serve this process's standard streams, and leave without waiting for a probe that hangs."""
    for number in _ENDING:
        signal.signal(number, _leave)  # in order: what was started is ended, what was changed is put back
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a module prints may get between the answers
    try:
        serve(sys.stdin.buffer, out, memory)
    finally:
        end_commands()
        os._exit(0)
