"""The messages between the processes of one server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Request:
    """A prompt on its way from the HTTP front to every rank."""

    rid: str
    input_ids: list[int]
    max_new_tokens: int
    ignore_eos: bool
    stream: bool


@dataclass
class Counters:
    """What rank 0 has done since it started; `/metrics` shows it."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Forward time by category: extend, decode, target_verify, eagle_draft, eagle_draft_extend."""
    passes: int = 0
    """Decode steps; with speculation a step is one draft, verify, draft-extend cycle."""
    generated_tokens: int = 0
    prompt_tokens: int = 0
    drafts_proposed: int = 0
    drafts_correct: int = 0
    last_gen_throughput: float = 0.0


@dataclass
class Output:
    """Tokens on their way from rank 0 through the detokenizer to the HTTP front."""

    rid: str
    output_ids: list[int]
    prompt_tokens: int
    verify_count: int
    drafts_proposed: int
    drafts_correct: int
    finish_reason: dict[str, object] | None
    counters: Counters
    text: str = ""
