"""The engines that are known by their command line."""

from __future__ import annotations

from fingerprint.engines.base import Engine
from fingerprint.errors import UsageError

REFERENCE = Engine(
    name="reference",
    ready_paths=("/ready",),
    variables={"SPT_NOENV": "1"},
    flags={"--enable-metrics": ()},
    requests=9,
    max_new_tokens=16,
    enough_s=1.5,
    warmup=1,
    speculation="--speculative-",
    flag_sources=("tinyserve/server_args.py",),
)
"""The embedded EAGLE3 server: its counters are exact as soon as a request has ended."""

SGLANG = Engine(
    name="sglang",
    ready_paths=("/ready", "/health_generate"),
    # The first keeps /proc/PID/environ readable behind process titles, the second times every forward segment.
    variables={"SPT_NOENV": "1", "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"},
    flags={"--enable-metrics": ()},
    wanted_flags=("--enable-metrics-for-all-schedulers",),  # else rank 0's timer alone is exported
    requests=6,
    max_new_tokens=96,
    warmup=2,
    settle_s=1.0,
    ready_s=1800.0,
    stop_s=3.0,
    accept_length="SGLANG_SIMULATE_ACC_LEN",
    speculation="--speculative-",
    flag_sources=("sglang/srt/server_args.py", "sglang/srt/arg_groups"),
)
"""SGLang: timer events complete a moment after the request. It looks at SIGTERM every five seconds only; a server that
served nobody but us is not waited for that long."""

_BY_MODULE = {"sglang": SGLANG, "tinyserve": REFERENCE}


def engine_of(name: str | None) -> Engine:
    """The engine that a snapshot's server section names.

    Raises:
        UsageError: none that is known.
    """
    if name in _BY_MODULE:
        return _BY_MODULE[name]
    raise UsageError(f"The server is of no engine that fingerprint can launch ({name or 'none was recognised'}).")
