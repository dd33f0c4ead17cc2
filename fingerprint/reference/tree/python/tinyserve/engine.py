"""The launcher: starts ranks and detokenizer, passes requests to them, and ends them.

Everything lives and dies with the launcher: a child that ends takes the server down, and the kernel kills the children
of a launcher that was killed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import threading
import time
import uuid
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from tinyserve.io_struct import Counters, Output, Request
from tinyserve.processes import run_detokenizer, run_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.context import SpawnProcess

    from tinyserve.server_args import ServerArgs

logger = logging.getLogger(__name__)


class Engine:
    """The processes of one server and the requests they work on."""

    def __init__(self, args: ServerArgs) -> None:
        self.args = args
        self.counters = Counters()
        self.ready = threading.Event()
        self._children: list[SpawnProcess] = []
        self._requests: list[Connection] = []
        self._waiting: dict[str, queue.SimpleQueue[Output]] = {}
        self._sending = threading.Lock()

    @property
    def running(self) -> int:
        """Requests that are being served or wait."""
        return len(self._waiting)

    def start(self) -> None:
        """Start all processes and wait until the ranks have their models; raises EOFError if one ends instead.

        The first request runs behind the caller's back, so that a child that ends in it is noticed by `watch`.
        """
        os.environ["SGLANG_RUN_ID"] = (
            uuid.uuid4().hex
        )  # as SGLang does: every child has it, and every start another one
        _confine(self.args)
        context = multiprocessing.get_context("spawn")
        parent = os.getpid()
        tokens_in, tokens_out = context.Pipe(duplex=False)
        texts_in, texts_out = context.Pipe(duplex=False)
        bootstraps: list[Connection | None] = [None]
        if self.args.tp_size == 2:
            bootstraps = list(context.Pipe())
        for rank, bootstrap in enumerate(bootstraps):
            here, there = context.Pipe()
            self._requests.append(here)
            out = tokens_out if rank == 0 else None
            self._spawn(context, run_scheduler, (self.args, rank, parent, bootstrap, there, out))
            there.close()
            if bootstrap:
                bootstrap.close()
        self._spawn(context, run_detokenizer, (self.args, parent, tokens_in, texts_out))
        for end in (tokens_in, tokens_out, texts_out):
            end.close()
        threading.Thread(target=self._receive, args=(texts_in,), daemon=True).start()
        for connection in self._requests:
            connection.recv()
        threading.Thread(target=self._warm_up, daemon=True).start()

    def _warm_up(self) -> None:
        if not self.args.skip_server_warmup:
            for _ in self.generate([1, 2, 3, 4], max_new_tokens=8, ignore_eos=True, stream=False):
                pass
        self.ready.set()
        logger.info("The server is fired up and ready to roll!")

    def watch(self) -> str:
        """Block until a child ends, which none should; says which one."""
        ended = wait([child.sentinel for child in self._children])
        child = next(child for child in self._children if child.sentinel in ended)
        child.join()
        return f"{child.name} ended with exit code {child.exitcode}"

    def stop(self) -> None:
        """End all children now; they hold nothing that would outlive them."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.join()

    def generate(
        self, input_ids: list[int], *, max_new_tokens: int, ignore_eos: bool, stream: bool
    ) -> Iterator[dict[str, object]]:
        """Queue a request and yield its answers: the last one alone, or one a cycle if streamed.

        Raises TimeoutError when no token came for `--watchdog-timeout` seconds.
        """
        request = Request(uuid.uuid4().hex, input_ids, max_new_tokens, ignore_eos, stream)
        begin = time.perf_counter()
        answers = self._waiting[request.rid] = queue.SimpleQueue()
        try:
            with self._sending:  # all ranks must get all requests in the same order
                for connection in self._requests:
                    connection.send(request)
            while True:
                output = self._next(answers)
                yield _answer(output, time.perf_counter() - begin)
                if output.finish_reason:
                    return
        finally:
            del self._waiting[request.rid]

    def _next(self, answers: queue.SimpleQueue[Output]) -> Output:
        try:
            return answers.get(timeout=self.args.watchdog_timeout)
        except queue.Empty:
            raise TimeoutError(f"no token for {self.args.watchdog_timeout} s") from None

    def _spawn(
        self, context: multiprocessing.context.SpawnContext, target: object, arguments: tuple[object, ...]
    ) -> None:
        child = context.Process(target=target, args=arguments, name=target.__name__)  # type: ignore[arg-type, attr-defined]
        child.start()
        self._children.append(child)

    def _receive(self, texts: Connection) -> None:
        """Pass answers to whoever waits for them, until the detokenizer ends."""
        while True:
            try:
                output: Output = texts.recv()
            except (EOFError, OSError):
                return
            self.counters = output.counters
            if answers := self._waiting.get(output.rid):
                answers.put(output)


def _confine(args: ServerArgs) -> None:
    """Keep the server on as many CPUs as its ranks have a claim to, as a cpuset would; children inherit it."""
    allowed = sorted(os.sched_getaffinity(0))
    if args.cores_per_rank:
        os.sched_setaffinity(0, allowed[: args.tp_size * args.cores_per_rank])


def _answer(output: Output, latency: float) -> dict[str, object]:
    meta: dict[str, object] = {
        "id": output.rid,
        "finish_reason": output.finish_reason,
        "prompt_tokens": output.prompt_tokens,
        "completion_tokens": len(output.output_ids),
        "cached_tokens": 0,
        "e2e_latency": latency,
    }
    if output.verify_count:
        meta |= {
            "spec_verify_ct": output.verify_count,
            "spec_accept_length": len(output.output_ids) / output.verify_count,
            "spec_accept_rate": output.drafts_correct / output.drafts_proposed,
            "spec_num_correct_drafts": output.drafts_correct,
            "spec_num_proposed_drafts": output.drafts_proposed,
        }
    return {"text": output.text, "output_ids": output.output_ids, "meta_info": meta}
