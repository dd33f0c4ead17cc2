"""Speculative decoding with EAGLE3: draft a chain, verify it with one forward pass of the target, extend the draft.

The tokens are those of plain greedy decoding: a drafted token is kept only where the target itself chose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_sampler import accept_greedy

from tinyserve.layers.topk import top1

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array
    from tinyserve.model_runner import ModelRunner
    from tinyserve.models.llama_eagle3 import LlamaForCausalLMEagle3


class EagleWorker:
    """The speculative state of one sequence at a time."""

    def __init__(self, runner: ModelRunner, draft: LlamaForCausalLMEagle3, num_steps: int) -> None:
        self._runner = runner
        self._draft = draft
        self._num_steps = num_steps
        self._features: Array
        self._first_draft = 0

    def prefill(self, ids: list[int]) -> int:
        """Run the prompt through target and draft; the first generated token."""
        with self._runner.timed("extend"):
            captured, logits = self._runner.extend(ids)
            token = top1(logits)[0]
        self._extend_draft([*ids[1:], token], captured, 0, "extend")  # a prompt's, as SGLang counts it
        return token

    def decode(self, last: int, position: int) -> list[int]:
        """One cycle: `last` is the newest token, to stand at `position`; the tokens that follow it, at least one."""
        drafted = [self._first_draft]
        with self._runner.timed("eagle_draft"):
            features = self._features
            for step in range(self._num_steps - 1):
                features, logits = self._draft.forward(drafted[-1:], features, position + step)
                drafted += top1(logits)
        captured, predicted = self._runner.verify([last, *drafted], position)
        tokens = predicted[: accept_greedy(drafted, predicted) + 1]
        self._extend_draft(tokens, captured[: len(tokens)], position)
        return tokens

    def _extend_draft(
        self, following: list[int], captured: Array, start: int, category: str = "eagle_draft_extend"
    ) -> None:
        """Give the draft the target's features of rows from `start` on, each with the token that follows it."""
        with self._runner.timed(category):
            features, logits = self._draft.forward(following, self._draft.fuse(captured), start)
            self._features = features[-1:]
            self._first_draft = top1(logits[-1:])[0]
