"""The counters of rank 0 in Prometheus' text format, under SGLang's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyserve.io_struct import Counters
    from tinyserve.server_args import ServerArgs


def render(counters: Counters, args: ServerArgs, running: int) -> str:
    """All metrics as one page."""
    common = f'engine_type="unified",model_name="{args.served_model_name}",tp_rank="0"'
    lines: list[str] = []

    def metric(name: str, kind: str, about: str, values: dict[str, float]) -> None:
        lines.append(f"# HELP sglang:{name} {about}")
        lines.append(f"# TYPE sglang:{name} {kind}")
        lines.extend(f"sglang:{name}{{{labels}{common}}} {value!r}" for labels, value in values.items())

    metric(
        "forward_execution_seconds_total",
        "counter",
        "Time of forward passes by category.",
        {f'category="{category}",': seconds for category, seconds in sorted(counters.seconds.items())},
    )
    metric(
        "cuda_graph_passes_total",
        "counter",
        "Decode passes by how they were run.",
        {f'mode="decode_{"none" if args.disable_cuda_graph else "cuda_graph"}",': float(counters.passes)},
    )
    metric("prompt_tokens_total", "counter", "Prompt tokens.", {"": float(counters.prompt_tokens)})
    metric("generation_tokens_total", "counter", "Generated tokens.", {"": float(counters.generated_tokens)})
    metric("num_running_reqs", "gauge", "Requests being served.", {"": float(running)})
    metric("gen_throughput", "gauge", "Tokens per second of the last request.", {"": counters.last_gen_throughput})
    metric("spec_accept_length", "gauge", "Tokens per verify.", {"": accept_length(counters)})
    metric("spec_accept_rate", "gauge", "Share of drafted tokens accepted.", {"": accept_rate(counters)})
    return "\n".join(lines) + "\n"


def accept_length(counters: Counters) -> float:
    """Mean number of tokens that a decode pass gained, the target's own included; 0 before the first pass."""
    return (counters.drafts_correct + counters.passes) / counters.passes if counters.passes else 0.0


def accept_rate(counters: Counters) -> float:
    """Share of the drafted tokens that were accepted; 0 before the first draft."""
    return counters.drafts_correct / counters.drafts_proposed if counters.drafts_proposed else 0.0
