"""The protocol of a bisect: ask the search, launch, prove, measure, write it down, tell the search.

Everything that decides is the search's; everything that touches the host is the host program's. What is in between is
here: what counts as a measurement, what is repeated, and what is only marked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from fingerprint.bisect.journal import Journal, Status, TrialLine
from fingerprint.bisect.search import Search
from fingerprint.bisect.told import tell
from fingerprint.engines import Engine, figure_of
from fingerprint.errors import HostProgramError, LaunchError
from fingerprint.factors import Factor, plan_of

if TYPE_CHECKING:
    from fingerprint.bisect.verdict import Verdict
    from fingerprint.host import HostProgram
    from snapshots import Snapshot

STEAL_SHARE = 0.10
"""A launch during which the hypervisor took more of the processors than this is repeated once, then marked."""

_REPEATED = frozenset({"launch", "measure"})


class Observer(Protocol):
    """Who wants to know how it goes; all of it is for display."""

    def launching(self, number: int, new: frozenset[str], search: Search) -> None:
        """A launch begins."""

    def stage(self, number: int, stage: str) -> None:
        """The launch has come to `launching`, `ready`, `measuring` or `ending`."""

    def launched(self, line: TrialLine, search: Search) -> None:
        """A launch is over."""


@dataclass
class Session:
    """One bisect on one host.

    Attributes:
        host: the program on the host, already prepared.
        live: the new snapshot: what is launched when every factor is new.
        engine: how it is launched and measured.
        factors: what is searched, by id.
        search: decides.
        journal: remembers.
        observer: is told.
        now: the clock.
        metric: the metric and source of the first launch; the others must be of the same.
    """

    host: HostProgram
    live: Snapshot
    engine: Engine
    factors: dict[str, Factor]
    search: Search
    journal: Journal
    observer: Observer
    isolation: str | None = None
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    metric: str | None = None
    source: str | None = None
    began: datetime | None = None
    number: int = 0

    def replay(self) -> int:
        """Tell the search what the journal already holds. Returns the number of launches."""
        for line in self.journal.trials():
            self._tell(line)
            self.number = line.number
        return self.number

    def run(self) -> Verdict:
        """Launch until the search has its verdict.

        Raises:
            LaunchError: neither side of the comparison can be launched or measured at all.
            TargetError: the way to the host broke.
        """
        while True:
            new = self.search.ask()
            if new is None:
                return self.search.verdict()
            self.number += 1
            self.observer.launching(self.number, new, self.search)
            line = self._trial(new)
            self.journal.append(line)
            self._tell(line)
            self.observer.launched(line, self.search)
            self._refuse_hopeless(line)

    def _trial(self, new: frozenset[str]) -> TrialLine:
        """One launch; a failed or disturbed one is repeated once."""
        line = self._attempt(new)
        if line.status in {"failed", "disturbed"}:
            again = self._attempt(new)
            if again.status == "disturbed":
                return again.model_copy(update={"status": "measured", "marks": [*again.marks, "disturbed twice"]})
            if again.status == "failed":
                reason = again.reason if again.reason == line.reason else f"{line.reason}; then {again.reason}"
                return again.model_copy(update={"status": "unlaunchable", "reason": reason})
            return again.model_copy(update={"marks": [*again.marks, f"repeated: {line.reason}"]})
        return line

    def _attempt(self, new: frozenset[str]) -> TrialLine:
        at = self.now()
        self.began = self.began or at

        def line(status: Status, **details: Any) -> TrialLine:  # noqa: ANN401 - the fields of TrialLine
            hours = (at - (self.began or at)).total_seconds() / 3600
            return TrialLine(number=self.number, at=at, hours=hours, new=sorted(new), status=status, **details)

        plan = plan_of(self.live)
        for name in sorted(self.factors):
            self.factors[name].apply(plan, new=name in new)
        self.engine.adopt(plan)
        ask = self.engine.trial(plan)
        if self.isolation is not None:
            ask["isolation"] = self.isolation
        try:
            answer = self.host.call("try", ask, lambda _event, value: self.observer.stage(self.number, value["stage"]))
        except HostProgramError as error:
            if error.kind == "unlaunchable":
                return line("unlaunchable", reason=str(error))
            if error.kind in _REPEATED:
                return line("failed", reason=str(error))
            raise
        details = {key: answer[key] for key in ("figures", "proof", "watch", "isolation", "seconds")}
        if missing := [check for check in answer["proof"] if not check["ok"]]:
            first = missing[0]
            return line("void", reason=f"{first['factor']} was not in effect: {first['seen']}", **details)
        figure = figure_of(answer["figures"], self.engine.metrics)
        if isinstance(figure, str):
            return line("void", reason=f"nothing was measured: {figure}", **details)
        if self.metric is not None and (figure.metric, figure.source) != (self.metric, self.source):
            reason = (
                f"{figure.metric} of the {figure.source} cannot be compared with {self.metric} of the {self.source}"
            )
            return line("void", reason=reason, **details)
        details |= {"value_ms": figure.value, "metric": figure.metric, "source": figure.source}
        disturbances = list(answer["watch"].get("disturbances", []))
        steal = answer["watch"].get("steal_share")
        if isinstance(steal, float) and steal > STEAL_SHARE:
            disturbances.append(f"{steal:.0%} of the processors went to other virtual machines")
        if disturbances:
            return line("disturbed", reason="; ".join(disturbances), marks=disturbances, **details)
        if answer["stubborn"]:
            details["marks"] = [f"processes {answer['stubborn']} would not end"]
        return line("measured", **details)

    def _tell(self, line: TrialLine) -> None:
        if line.status == "measured":
            self.metric, self.source = self.metric or line.metric, self.source or line.source
        tell(self.search, line)

    def _refuse_hopeless(self, line: TrialLine) -> None:
        """The live launch itself must be launchable: without it there is nothing to compare."""
        if line.status == "unlaunchable" and set(line.new) == set(self.factors):
            raise LaunchError(f"The server as it is now could not be launched and measured: {line.reason}")
