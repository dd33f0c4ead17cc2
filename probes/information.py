"""What a server says of itself at `/server_info`: its arguments as resolved, and how many ranks it has.

Read once, before or after a measurement and never during one: the page asks the schedulers.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Optional

from probes import measure
from probes.reading import Json, unread

_ANSWER_WITHIN_S = 3.0
_LARGEST_ANSWER_BYTES = 8 << 20
_LONGEST_VALUE = 200

# Where it listens, when it started, what it has done since. None of it says how it was configured.
_VOLATILE = re.compile(
    r"(^|_)ports?$|^pid$|^host$|^_|_time$|^start|^status$|^random_seed$|^last_|^avg_|^memory_usage$|^max_total_num_tokens$"
    r"|^step_time_dict$|^internal_states$|^kv_events$|^launch_command$|_ipc_name$|^dist_init_addr$|^load(s)?$|^log_"
)
_DECIDED = re.compile(
    r"backend$|cuda_graph|all_?reduce|symm_mem|nvls|mscclpp|p2p|^(kv_cache_)?dtype$|^quantization$|^disable_overlap_schedule$"
    r"|^page_size$|^max_running_requests$|^chunked_prefill_size$|^speculative_(num|eagle)_|^numa_node$|^version$"
)
"""Arguments that an engine fills in by what it finds: kernels, graphs, collectives, batch limits."""
_NOT_DECODING = re.compile(
    r"^(disaggregation|hicache|lora|grammar|tokenizer|image|remote|encoder|unified|mm|ple|debug)_"
)
EVERY_RANK = "--enable-metrics-for-all-schedulers"
"""Without it SGLang exports the timer of rank 0 alone."""


def ask(at: measure.Server) -> Dict[str, Any]:
    """The page as it is served.

    Raises:
        OSError, HTTPException: it does not answer.
        ValueError: it answered with something else.
    """
    for path in ("/server_info", "/get_server_info"):  # the older name
        status, body = measure.get(at, path, _ANSWER_WITHIN_S, _LARGEST_ANSWER_BYTES)
        if status == 200:
            told = json.loads(body)
            if not isinstance(told, dict):
                raise ValueError("it did not answer with an object")
            return told
        if status != 404:
            raise ValueError(f"HTTP status {status}")
    raise ValueError("HTTP status 404")


def arguments(told: Dict[str, Any]) -> Dict[str, Json]:
    """The configuration as resolved in the first rank, without what moves by itself."""
    states = told.get("internal_states")
    inner = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    return {name: inner.get(name, value) for name, value in told.items() if not _VOLATILE.search(name)}


def decided(told: Dict[str, Any]) -> Dict[str, str]:
    """Those arguments by which an engine says which way it took, in short."""
    return {
        name: str(value)[:_LONGEST_VALUE]
        for name, value in sorted(arguments(told).items())
        if value is not None and _DECIDED.search(name) and not _NOT_DECODING.search(name)
    }


def refuse_waiting(at: measure.Server, together: int) -> None:
    """So many requests at a time must all run; where some wait for others, the figures are of nothing.

    Raises:
        MeasureError: the server says that it runs fewer.
    """
    if together < 2:
        return
    try:
        most = at_once(ask(at))
    except Exception:  # whatever a server answers there: it is measured all the same
        return
    if most is not None and most < together:
        raise measure.MeasureError(
            f"it runs at most {most} requests at a time (--max-running-requests), so of {together} some would wait"
        )


def at_once(told: Dict[str, Any]) -> Optional[int]:
    """How many requests a server runs at a time; None: it does not say."""
    states = told.get("internal_states")
    inner = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    groups = told.get("dp_size")
    each, whole = inner.get("effective_max_running_requests_per_dp"), told.get("max_running_requests")
    if type(each) is int and each > 0:
        return each * (groups if type(groups) is int and groups > 0 else 1)
    return whole if type(whole) is int and whole > 0 else None


_BY_STEPS = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"}
"""Algorithms that draft one token deep a step."""


def most_accepted(told: Dict[str, Any]) -> Optional[int]:
    """How many tokens a cycle can gain at most: those of every draft step and the target's own; None: not known."""
    steps = told.get("speculative_num_steps")
    known = str(told.get("speculative_algorithm")).upper() in _BY_STEPS and not told.get("speculative_adaptive")
    return steps + 1 if known and type(steps) is int and 0 < steps < 1024 else None


def name_ranks(figures: Dict[str, Json], told: Dict[str, Any]) -> None:
    """Say of each rank of a measured server whose timer is not exported that it is not, and what would export it."""
    ranks, count = figures["ranks"], told.get("tp_size")
    if not ranks or not isinstance(count, int):  # nothing is timed, and rank 0 says why
        return
    reason = f"this rank's timer is not exported; {EVERY_RANK} exports it"
    for rank in range(min(count, 1024)):
        ranks.setdefault(str(rank), {name: unread(reason) for name in ranks["0"]} if "0" in ranks else {})
