"""Runs the models of one rank and times every forward pass by its category."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tinyserve.distributed.communicator import Communicator
from tinyserve.layers.attention_backend import AttentionBackend
from tinyserve.layers.topk import top1
from tinyserve.models.config import load
from tinyserve.models.llama import LlamaForCausalLM
from tinyserve.models.llama_eagle3 import LlamaForCausalLMEagle3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from tinyserve.distributed.communicator import Array
    from tinyserve.server_args import ServerArgs


class ModelRunner:
    """The target, the draft if there is one, and the seconds spent in each kind of forward pass."""

    def __init__(self, args: ServerArgs, rank: int, bootstrap: Connection | None) -> None:
        comm = Communicator(rank, args.tp_size, bootstrap)
        backend = AttentionBackend(args.attention_backend)
        config, weights = load(args.model_path)
        self.target = LlamaForCausalLM(config, weights, backend, comm, args.context_length)
        self.draft: LlamaForCausalLMEagle3 | None = None
        if args.speculative_algorithm == "EAGLE3":
            draft_config, weights = load(args.speculative_draft_model_path)
            self.draft = LlamaForCausalLMEagle3(
                draft_config, weights, self.target.embed_tokens, backend, comm, args.context_length
            )
        self.seconds: dict[str, float] = {}
        self._chunk = args.chunked_prefill_size
        self._graph = not args.disable_cuda_graph

    @contextmanager
    def timed(self, category: str) -> Iterator[None]:
        """Add the time spent inside to `category`."""
        begin = time.perf_counter()
        yield
        self.seconds[category] = self.seconds.get(category, 0.0) + time.perf_counter() - begin

    def verify(self, ids: list[int], position: int) -> tuple[Array, list[int]]:
        """Run drafted rows from `position` on: their captured hidden states, and the token that follows each.

        Where SGLang replays one CUDA graph, this is one pass over all rows; without, they are run one after the other
        and counted under `extend`, as SGLang 0.5.14 counts them then.
        """
        if self._graph:
            with self.timed("target_verify"):
                captured, _, logits = self.target.forward(ids, position)
                return captured, top1(logits)
        with self.timed("extend"):
            rows = [self.target.forward([token], position + row) for row, token in enumerate(ids)]
            return np.concatenate([captured for captured, _, _ in rows]), [top1(logits)[0] for _, _, logits in rows]

    def extend(self, ids: list[int]) -> tuple[Array, Array]:
        """Run a prompt from position 0 on, in chunks.

        Returns the captured hidden states of every row (rows, 3 * hidden) and the logits of the last one
        (1, vocabulary).
        """
        captured = []
        logits: Array
        for begin in range(0, len(ids), self._chunk):
            part, _, logits = self.target.forward(ids[begin : begin + self._chunk], begin)
            captured.append(part)
        return np.concatenate(captured), logits[-1:]
