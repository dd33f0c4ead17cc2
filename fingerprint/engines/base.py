"""What a search has to know of an engine, and how its answers become one figure.

An engine is data, not code: the pages that say "ready", the switches that make a trial readable and timed, the fixed
requests of a measurement. The host carries it out (`probes.trial`, `probes.measure`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snapshots.launch import CommandLine

if TYPE_CHECKING:
    from fingerprint.factors.plan import LaunchPlan

Json = dict[str, Any]

PROMPTS = (
    "The all-reduce between two ranks takes longer than the layer it follows, so the first thing to look at is",
    "A verify pass checks every drafted token with one forward of the target model. When it gets slower,",
    "Write down what the host looked like before anything was changed: packages, patches, variables, clocks.",
)
"""Fixed greedy prompts: two launches are compared on the same work or not at all."""


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        name: how noise priors and reports call it.
        ready_paths: pages that answer 200 once the server is ready, the best first; none of them runs a request.
        variables: set in the launch of every trial, of either arm.
        flags: given to every trial, of either arm.
        wanted_flags: switches given to every trial whose version declares them.
        metrics: figures that can be compared, the best first.
        requests: measured requests of a launch; more of them narrow the figure of one launch, not of the launches.
        max_new_tokens: tokens of each.
        concurrency: so many requests run at once.
        enough_s: a slow server is measured with fewer requests once this many seconds have passed.
        warmup: requests that are run first and thrown away.
        settle_s: wait for the engine's counters after a request, in seconds.
        ready_s: longest time to become ready, in seconds.
        stop_s: time to end by itself after SIGTERM, in seconds.
        accept_length: the variable that fixes the accept length of every cycle, where the engine has one.
        speculation: how the names of the flags that make it speculate begin; empty: it cannot be told not to.
        flag_sources: files and folders, below a directory of the import path, in which it declares its flags.
    """

    name: str
    ready_paths: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wanted_flags: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("verify_ms", "gpu_cycle_ms", "cycle_ms")
    requests: int = 6
    max_new_tokens: int = 48
    concurrency: int = 1
    enough_s: float = 60.0
    warmup: int = 2
    settle_s: float = 0.0
    ready_s: float = 60.0
    stop_s: float = 10.0
    accept_length: str | None = None
    speculation: str = ""
    flag_sources: tuple[str, ...] = ()

    @property
    def takes_flags(self) -> bool:
        """Whether the launch that a snapshot holds is a part of what is started."""
        return True

    def words(self) -> list[str]:
        """What a person types to have it; nothing where the snapshot names it."""
        return []

    def conditions(self) -> list[str]:
        """What every launch is given and how it is measured, in words."""
        given = [*(f"{name}={value}" for name, value in sorted(self.variables.items())), *self.flags]
        wanted = [f"{name} where it is known" for name in self.wanted_flags]
        together = f"{self.concurrency} at a time" if self.concurrency > 1 else "one at a time"
        return [
            f"given {', '.join([*given, *wanted])}",
            f"{self.requests} requests of {self.max_new_tokens} tokens a launch, {together}",
        ]

    def adopt(self, plan: LaunchPlan) -> None:
        """Make a live server's launch the launch of a trial: its own port, loopback, timers on, titles readable."""
        line = CommandLine.of(plan.argv)
        for name in ("--nccl-port", "--dist-init-addr"):
            line = line.with_flag(name, None)
        line = line.with_flag("--host", ("127.0.0.1",)).with_flag("--port", ("@PORT@",))
        for name, words in self.flags.items():
            line = line.with_flag(name, words)
        plan.argv = line.argv()
        plan.variables.update(self.variables)
        plan.flag_sources = self.flag_sources
        plan.wanted_flags = self.wanted_flags

    def speculates(self, argv: list[str]) -> bool:
        """Whether a launch asks for speculation by a flag that can be left out."""
        return bool(self.speculation) and any(name.startswith(self.speculation) for name in CommandLine.of(argv).flags)

    def decode_plainly(self, plan: LaunchPlan) -> None:
        """Take speculation out of a launch, and what would have proved its flags."""
        line = CommandLine.of(plan.argv)
        for name in [name for name in line.flags if name.startswith(self.speculation)]:
            line = line.with_flag(name, None)
        plan.argv = line.argv()
        plan.checks = [one for one in plan.checks if not one["factor"].startswith(f"flag:{self.speculation}")]

    def measurement(self) -> Json:
        """What `probes.measure.measure` is asked for."""
        return {
            "prompts": list(PROMPTS),
            "max_new_tokens": self.max_new_tokens,
            "warmup": self.warmup,
            "requests": self.requests,
            "concurrency": self.concurrency,
            "settle_s": self.settle_s,
            "enough_s": self.enough_s,
        }

    def trial(self, plan: LaunchPlan) -> Json:
        """What the host program's `try` is asked for."""
        return {
            **plan.to_json(),
            "ready": {"paths": list(self.ready_paths), "timeout_s": self.ready_s},
            "measure": self.measurement(),
            "stop_s": self.stop_s,
        }


@dataclass(frozen=True)
class Figure:
    """One launch's measurement, as a number that can be compared with others of the same metric and source."""

    metric: str
    value: float
    source: str


def figure_of(figures: Json, metrics: tuple[str, ...]) -> Figure | str:
    """The first of `metrics` that was measured, or why none was."""
    reasons: list[str] = []
    for metric in metrics:
        value = figures.get(metric)
        if isinstance(value, (int, float)) and value > 0:
            return Figure(metric, float(value), figures["sources"][metric])
        reasons.append(f"{metric}: {value.get('unread') if isinstance(value, dict) else value}")
    return "; ".join(reasons)
