"""A rank: takes requests one after the other and decodes them; rank 0 hands the tokens out.

All ranks get the same requests and compute the same tokens, so they take the same decisions without asking.
"""

from __future__ import annotations

import copy
import gc
import logging
import time
from typing import TYPE_CHECKING

from tinyserve.eagle_worker import EagleWorker
from tinyserve.io_struct import Counters, Output, Request
from tinyserve.layers.topk import top1
from tinyserve.model_runner import ModelRunner
from tinyserve.tokenizer import EOS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tinyserve.server_args import ServerArgs

logger = logging.getLogger(__name__)


class Scheduler:
    """The decode loop of one rank."""

    def __init__(self, args: ServerArgs, rank: int, bootstrap: Connection | None, out: Connection | None) -> None:
        self._args = args
        self._out = out
        self._runner = ModelRunner(args, rank, bootstrap)
        draft = self._runner.draft
        self._eagle = EagleWorker(self._runner, draft, args.speculative_num_steps) if draft else None
        self._counters = Counters(seconds=self._runner.seconds)
        # The models stay for good: keep the collector from walking over them again and again.
        gc.collect()
        gc.freeze()

    def run(self, requests: Connection) -> None:
        """Serve until the other end of `requests` is closed."""
        while True:
            try:
                request: Request = requests.recv()
            except EOFError:
                return
            self.serve(request)

    def serve(self, request: Request) -> None:
        """Decode one request; every so many cycles, if it is streamed, and at its end the tokens are sent."""
        begin = time.perf_counter()
        counters = self._counters
        prompt = request.input_ids
        out = Output(request.rid, [], len(prompt), 0, 0, 0, None, counters)
        output = out.output_ids = [self._prefill(prompt)]
        counters.prompt_tokens += len(prompt)
        cycles = 0
        while (reason := _finish_reason(output, request)) is None:
            if request.stream and cycles % self._args.stream_interval == 0:
                self._send(out)
            output += self._decode(out, len(prompt) + len(output) - 1)
            cycles += 1
            counters.passes += 1
            if self._out and counters.passes % self._args.decode_log_interval == 0:
                _log_decode(out, cycles, time.perf_counter() - begin, graph=not self._args.disable_cuda_graph)
        counters.generated_tokens += len(output)
        counters.last_gen_throughput = len(output) / (time.perf_counter() - begin)
        out.finish_reason = reason
        self._send(out)

    def _prefill(self, prompt: list[int]) -> int:
        if self._eagle:
            return self._eagle.prefill(prompt)
        with self._runner.timed("extend"):
            return top1(self._runner.extend(prompt)[1])[0]

    def _decode(self, out: Output, position: int) -> list[int]:
        """The next tokens: those of one speculative cycle, or a single one."""
        last = out.output_ids[-1]
        if not self._eagle:
            with self._runner.timed("decode"):
                return top1(self._runner.target.forward([last], position)[2])
        tokens = self._eagle.decode(last, position)
        out.verify_count += 1
        for totals in (out, self._counters):
            totals.drafts_proposed += self._args.speculative_num_steps
            totals.drafts_correct += len(tokens) - 1
        return tokens

    def _send(self, out: Output) -> None:
        if self._out:
            self._out.send(copy.copy(out))


def _log_decode(out: Output, cycles: int, seconds: float, *, graph: bool) -> None:
    accept = f"accept len: {1 + out.drafts_correct / out.verify_count:.2f}, " if out.verify_count else ""
    logger.info(
        "Decode batch, #running-req: 1, #token: %d, %scuda graph: %s, gen throughput (token/s): %.2f",
        out.prompt_tokens + len(out.output_ids),
        accept,
        graph,
        len(out.output_ids) / seconds,
    )
    logger.debug("cycles of this request: %d", cycles)


def _finish_reason(output: list[int], request: Request) -> dict[str, object] | None:
    """Why `output` is complete, or None; tokens beyond the end are cut off."""
    if not request.ignore_eos and EOS in output[: request.max_new_tokens]:
        del output[output.index(EOS) + 1 :]
        return {"type": "stop", "matched": EOS}
    if len(output) >= request.max_new_tokens:
        del output[request.max_new_tokens :]
        return {"type": "length", "length": request.max_new_tokens}
    return None
