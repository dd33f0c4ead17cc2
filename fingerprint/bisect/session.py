"""The protocol of a bisect: ask the search, launch, prove, measure, write it down, tell the search.

Everything that decides is the search's; everything that touches the host is the host program's. What is in between is
here: what counts as a measurement, what is repeated, what is only marked, and that a culprit that has parts is opened
and searched in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fingerprint.bisect import noise
from fingerprint.bisect.journal import ControlLine, FactorLine, FigureLine, Journal, OpenLine, Status, TrialLine
from fingerprint.bisect.search import Search, chain
from fingerprint.bisect.told import tell
from fingerprint.case import Opened
from fingerprint.engines import Engine, Figure, figure_of
from fingerprint.errors import CaseError, HostProgramError, LaunchError
from fingerprint.factors import Every, Evidence, Factor, Inside, LaunchPlan, Together, plan_of

if TYPE_CHECKING:
    from fingerprint.bisect.verdict import Then, Verdict
    from fingerprint.host import HostProgram
    from snapshots import Snapshot

STEAL_SHARE = 0.10
"""A launch during which the hypervisor took more of the processors than this is repeated once, then marked."""

ACCEPTED = 0.02
"""A launch whose accept length differs by more than this share from the first one's is marked: it did other work."""

CONTROLS = 2
"""Launches of each end without speculation: of one alone nobody could say how far off it is."""

_REPEATED = frozenset({"launch", "measure"})


class Observer(Protocol):
    """Who wants to know how it goes; all of it is for display."""

    def launching(self, number: int, new: frozenset[str], search: Search) -> None:
        """A launch begins."""

    def stage(self, number: int, stage: str) -> None:
        """The launch has come to `launching`, `ready`, `measuring` or `ending`."""

    def launched(self, line: TrialLine, search: Search) -> None:
        """A launch is over."""

    def comparing(self, line: FigureLine, search: Search) -> None:
        """Launches are compared by another figure than the engine's best."""

    def opening(self, line: OpenLine) -> None:
        """A culprit is opened; the launches that follow are inside of it."""


@dataclass(frozen=True)
class _Level:
    """One search and how its settings become a launch: the case's own, or the inside of a culprit."""

    apply: Callable[[LaunchPlan, frozenset[str]], None]
    search: Search | None = None
    """Of the inside; None: the session's, which begins anew where the figure turns out to be another."""
    inside: str = ""


def _nothing(_plan: LaunchPlan) -> None:
    """Around the factors themselves there is nothing to give a plan."""


@dataclass(frozen=True)
class _Culprit:
    """What is opened: `whole` of `search`, with `beside` new and `around` giving the plan everything else."""

    of: str
    title: str
    search: Search
    whole: frozenset[str]
    beside: frozenset[str]
    around: Callable[[LaunchPlan], None]


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
        evidence: what culprits are opened with; None: they are not opened.
        opened: what was found inside of culprits.
        then: the figures of the past, by metric.
        now: the clock.
        metric: the metric, and the source, by which launches are compared.
    """

    host: HostProgram
    live: Snapshot
    engine: Engine
    factors: dict[str, Factor]
    search: Search
    journal: Journal
    observer: Observer
    evidence: Evidence | None = None
    opened: list[Opened] = field(default_factory=list)
    isolation: str | None = None
    then: Mapping[str, Then] = field(default_factory=dict)
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    metric: str | None = None
    source: str | None = None
    began: datetime | None = None
    number: int = 0
    unlike: list[str] = field(default_factory=list)
    """What launches here could not have as the live server has it, in words."""
    reference: TrialLine | None = None
    """The first measured launch: what the others generate is compared with what it did."""
    ends: list[tuple[str, dict[str, Any]]] | None = field(default_factory=list)
    """Figures of the launches of both ends, each with how it is called; None once there are others."""

    def replay(self) -> int:
        """Tell the search what the journal already holds. Returns the number of launches."""
        for line in self.journal.trials():
            self._note(line)
            self.number = line.number
            if not line.inside:
                tell(self.search, line)
        return self.number

    def run(self) -> Verdict:
        """Launch until the search has its verdict, then open what it blames.

        Raises:
            LaunchError: neither side of the comparison can be launched or measured at all.
            TargetError: the way to the host broke.
        """
        every = Every.of(self.factors, self.evidence or Evidence())
        verdict = self._search(_Level(every.apply))
        if self.evidence is not None:
            self._open_blamed(verdict, every, self.search, _nothing, "")
        return verdict

    def _search(self, level: _Level) -> Verdict:
        while True:
            search = level.search or self.search
            new = search.ask()
            if new is None:
                return search.verdict()
            self.number += 1
            self.observer.launching(self.number, new, search)
            line = self._trial(level, new)
            search = level.search or self.search
            self.journal.append(line)
            self._note(line)
            tell(search, line)
            self.observer.launched(line, search)
            if not level.inside:
                self._refuse_hopeless(line)

    # -- the inside of culprits --------------------------------------------------------------------------------

    def _open_blamed(
        self, verdict: Verdict, inside: Inside, search: Search, around: Callable[[LaunchPlan], None], of: str
    ) -> None:
        """Open what a search among the parts of `inside` blames, with those new that it acts together with.

        What makes it faster is not opened. Parts that no launch can separate are opened as one.
        """
        names = [part.id for part in inside.parts]
        title = {part.id: part.title for part in inside.parts}
        for blamed in verdict.culprits:
            if blamed.share[1] <= 0 or (inside.ordered and (len(blamed.factors) > 1 or blamed.sufficient is None)):
                continue
            if blamed.bundle:
                beside = self._seen_beside(blamed.factors, of)
                together = Together.of(inside, blamed.factors, beside)
                if together is not None:
                    whole = f"together:{' + '.join(sorted(blamed.factors))}"
                    self._open(_Culprit(whole, "", search, blamed.factors, beside, around), together)
                continue
            for name in sorted(blamed.factors):
                beside = blamed.factors - {name}
                if inside.ordered:
                    beside = frozenset(names[: names.index(name)])
                elif blamed.sufficient is None:  # alone on the old side it cannot be launched
                    beside |= frozenset(names) - blamed.factors

                def with_others(plan: LaunchPlan, name: str = name, beside: frozenset[str] = beside) -> None:
                    around(plan)
                    inside.around(plan, beside, frozenset({name}))

                part = _Culprit(name, title[name], search, frozenset({name}), beside, with_others)
                self._open(part, inside.inside(name))

    def _seen_beside(self, blamed: frozenset[str], of: str) -> frozenset[str]:
        """What was new beside all of `blamed`, in launches with and without them; as little as there is."""
        measured = {
            frozenset(line.new) for line in self.journal.trials() if line.inside == of and line.status == "measured"
        }
        besides = [new for new in measured if not new & blamed and new | blamed in measured]
        return min(besides, key=lambda new: (len(new), sorted(new)), default=frozenset())

    def _open(self, culprit: _Culprit, inside: Inside | str) -> None:
        """Search among the parts of a culprit, and open the guilty one in its turn."""
        if isinstance(inside, str):
            if inside:
                self.opened.append(Opened(of=culprit.of, title=culprit.title, reason=inside))
            return
        parts = [
            FactorLine(id=part.id, title=part.title, old=part.old_words, new=part.new_words, revert=part.revert)
            for part in inside.parts
        ]
        names = [part.id for part in parts]
        if len(parts) == 1:  # it is the culprit itself
            self.opened.append(Opened(of=culprit.of, title=culprit.title, parts=parts))
            self._open(replace(culprit, of=names[0], title=parts[0].title), inside.inside(names[0]))
            return
        conflicts = chain(names) if inside.ordered else ()
        search = culprit.search.opened(culprit.whole, names, conflicts, beside=culprit.beside)
        self._begin(culprit, inside, parts, search)
        for line in self.journal.trials():
            if line.inside == culprit.of:
                tell(search, line)

        def apply(plan: LaunchPlan, new: frozenset[str]) -> None:
            culprit.around(plan)
            inside.apply(plan, new)

        verdict = self._search(_Level(apply, search, culprit.of))
        self.opened.append(Opened(of=culprit.of, title=culprit.title, parts=parts, verdict=verdict))
        self._open_blamed(verdict, inside, search, culprit.around, culprit.of)

    def _begin(self, culprit: _Culprit, inside: Inside, parts: list[FactorLine], search: Search) -> None:
        line = OpenLine(
            at=self.now(),
            of=culprit.of,
            parts=parts,
            beside=sorted(culprit.beside),
            ordered=inside.ordered,
            expected_launches=search.estimate().launches,
        )
        for before in self.journal.opened():
            if before.of == line.of:
                if (before.parts, before.beside) != (line.parts, line.beside):
                    raise CaseError(f"{line.of} was opened into other parts before; the case cannot be continued.")
                break
        else:
            self.journal.append(line)
        self.observer.opening(line)

    # -- without speculation -------------------------------------------------------------------------------------

    def control(self) -> list[ControlLine]:
        """Launch both ends without speculation, `CONTROLS` times each; what is in the journal is not launched again.

        Raises:
            TargetError: the way to the host broke.
        """
        done = self.journal.controls()
        ends: list[tuple[Literal["old", "new"], frozenset[str]]] = [("new", frozenset(self.factors))]
        if self.factors:
            ends.insert(0, ("old", frozenset()))
        for number in range(CONTROLS):
            for side, new in ends:
                if sum(line.side == side for line in done) <= number:
                    done.append(self._control(side, new))
                    self.journal.append(done[-1])
            ends.reverse()  # a host that drifts is no advantage of one side
        return done

    def _control(self, side: Literal["old", "new"], new: frozenset[str]) -> ControlLine:
        at = self.now()
        plan = plan_of(self.live)
        Every.of(self.factors, self.evidence or Evidence()).apply(plan, new)
        self.engine.adopt(plan)
        self.engine.decode_plainly(plan)
        try:
            answer = self._launch(plan)
        except HostProgramError as error:
            if error.kind != "unlaunchable" and error.kind not in _REPEATED:
                raise
            return ControlLine(at=at, side=side, reason=str(error))
        details = {key: answer[key] for key in ("figures", "facts", "proof", "seconds")}
        if missing := [check for check in answer["proof"] if not check["ok"]]:
            reason = f"{missing[0]['factor']} was not in effect: {missing[0]['seen']}"
            return ControlLine(at=at, side=side, reason=reason, **details)
        speed, step = (figure_of(answer["figures"], (name,)) for name in ("tokens_per_second", "cycle_ms"))
        if isinstance(speed, str) or isinstance(step, str):
            return ControlLine(at=at, side=side, reason=f"nothing was measured: {speed}; {step}", **details)
        return ControlLine(at=at, side=side, step_ms=step.value, tokens_per_second=speed.value, **details)

    # -- one launch --------------------------------------------------------------------------------------------

    def _trial(self, level: _Level, new: frozenset[str]) -> TrialLine:
        """One launch; a failed or disturbed one is repeated once."""
        line = self._attempt(level, new)
        if line.status in {"failed", "disturbed"}:
            again = self._attempt(level, new)
            if again.status == "disturbed":
                return again.model_copy(update={"status": "measured", "marks": [*again.marks, "disturbed twice"]})
            if again.status == "failed":
                reason = again.reason if again.reason == line.reason else f"{line.reason}; then {again.reason}"
                return again.model_copy(update={"status": "unlaunchable", "reason": reason})
            return again.model_copy(update={"marks": [*again.marks, f"repeated: {line.reason}"]})
        return line

    def _attempt(self, level: _Level, new: frozenset[str]) -> TrialLine:
        at = self.now()
        self.began = self.began or at

        def line(status: Status, **details: Any) -> TrialLine:  # noqa: ANN401 - the fields of TrialLine
            hours = (at - (self.began or at)).total_seconds() / 3600
            return TrialLine(
                number=self.number, at=at, hours=hours, new=sorted(new), inside=level.inside, status=status, **details
            )

        plan = plan_of(self.live)
        level.apply(plan, new)
        self.engine.adopt(plan)
        try:
            answer = self._launch(plan)
        except HostProgramError as error:
            if error.kind == "unlaunchable":
                return line("unlaunchable", reason=str(error))
            if error.kind in _REPEATED:
                return line("failed", reason=str(error))
            raise
        details = {key: answer[key] for key in ("figures", "facts", "proof", "watch", "isolation", "seconds")}
        if missing := [check for check in answer["proof"] if not check["ok"]]:
            first = missing[0]
            return line("void", reason=f"{first['factor']} was not in effect: {first['seen']}", **details)
        if not level.inside:
            self._agree(new, answer["figures"])
        figure = self._figure(answer["figures"])
        if isinstance(figure, str):
            return line("void", reason=figure, **details)
        details |= {"value_ms": figure.value, "metric": figure.metric, "source": figure.source}
        disturbances = list(answer["watch"].get("disturbances", []))
        steal = answer["watch"].get("steal_share")
        if isinstance(steal, float) and steal > STEAL_SHARE:
            disturbances.append(f"{steal:.0%} of the processors went to other virtual machines")
        if disturbances:
            return line("disturbed", reason="; ".join(disturbances), marks=disturbances, **details)
        self.unlike += [words for words in answer["missing"] if words not in self.unlike]
        return line("measured", **details, marks=self._marks(answer))

    def _launch(self, plan: LaunchPlan) -> dict[str, Any]:
        ask = self.engine.trial(plan)
        if self.isolation is not None:
            ask["isolation"] = self.isolation
        answer: dict[str, Any] = self.host.call(
            "try", ask, lambda _event, value: self.observer.stage(self.number, value["stage"])
        )
        return answer

    def _figure(self, figures: dict[str, Any]) -> Figure | str:
        """A launch's figure, of the same metric and source as the others', or why there is none."""
        if self.reference is not None and not _alike([self.reference.figures, figures]):
            return (
                f"one of this launch and launch {self.reference.number} speculates and the other does not: a step of "
                "plain decoding is no cycle, and their times say nothing of the speed"
            )
        if self.metric is None:
            best = figure_of(figures, self.engine.metrics)
            return f"nothing was measured: {best}" if isinstance(best, str) else best
        figure = figure_of(figures, (self.metric,))
        if isinstance(figure, Figure) and figure.source == self.source:
            return figure
        seen = figure if isinstance(figure, str) else f"it is of the {figure.source}"
        reason = f"it cannot be compared by {self.metric} of the {self.source} ({seen})"
        other = figure_of(figures, self.engine.metrics)
        if isinstance(other, Figure) and other.metric != self.metric:
            reason += f"; --figure {other.metric} compares all launches by that"
        return reason

    def _agree(self, new: frozenset[str], figures: dict[str, Any]) -> None:
        """Before anything is searched: compare by the best figure that both ends have, of one source.

        What is in the journal already is told anew by that figure; it holds them all.
        """
        if self.ends is None or not self._is_end(new):
            return
        ends = [*self.ends, (self._called(new), figures)]
        if not _alike([held for _, held in ends]):
            return
        lacking: list[str] = []
        for metric in self.engine.metrics:
            found = {called: figure_of(held, (metric,)) for called, held in ends}
            sources = {one.source if isinstance(one, Figure) else "" for one in found.values()}
            if len(sources) == 1 and sources != {""}:
                break
            lacking += [
                f"with {called} there is no {one}"
                if isinstance(one, str)
                else f"with {called} it is of the {one.source}"
                for called, one in found.items()
                if isinstance(one, str) or "" not in sources
            ]
        else:
            return
        if metric == (self.metric or self.engine.metrics[0]):
            return
        then = self.then.get(metric)
        self.search = self.search.anew(noise.prior(self.engine.name, metric), then)
        best = self.engine.metrics[0]
        lost = f"; the figures of the past are of {best}" if then is None and best in self.then else ""
        line = FigureLine(
            at=self.now(),
            metric=metric,
            source=sources.pop(),
            reason=lacking[0] + lost,
            then_old_ms=then.old_ms if then else None,
            then_new_ms=then.new_ms if then else None,
            expected_launches=self.search.estimate().launches,
        )
        self.metric, self.source = line.metric, line.source
        self.journal.append(line)
        for trial in self.journal.trials():
            tell(self.search, trial)
        self.observer.comparing(line, self.search)

    def _is_end(self, new: frozenset[str]) -> bool:
        return not new or len(new) == len(self.factors)

    def _called(self, new: frozenset[str]) -> str:
        return "everything new" if new else "everything old"

    def _marks(self, answer: dict[str, Any]) -> list[str]:
        """What was odd about a launch that was measured."""
        marks = [*answer["lingering"], *(words for words in answer["restored"] if "could NOT" in words)]
        if answer["stubborn"]:
            marks.append(f"processes {answer['stubborn']} would not end")
        throttled = answer["watch"].get("throttled_s")
        if isinstance(throttled, float) and throttled > 0:
            marks.append(f"its CPU quota held it up for {throttled:.2f} s")
        if self.reference is not None:
            first, figures = self.reference.figures, answer["figures"]
            invented = self.engine.accept_length in self.engine.variables  # then so are the words
            if first.get("outputs") != figures.get("outputs") and not invented:
                marks.append(f"it generated other tokens than launch {self.reference.number}")
            then, length = first.get("accept_length"), figures.get("accept_length")
            if isinstance(then, float) and isinstance(length, float) and abs(length - then) > ACCEPTED * then:
                marks.append(f"its accept length was {length:.2f}, in launch {self.reference.number} {then:.2f}")
        return marks

    def _note(self, line: TrialLine) -> None:
        if line.status == "measured":
            new = frozenset(line.new)
            if line.inside or not self._is_end(new):
                self.ends = None
            elif self.ends is not None:
                self.ends.append((self._called(new), line.figures))
            self.metric, self.source = self.metric or line.metric, self.source or line.source
            self.reference = self.reference or line

    def _refuse_hopeless(self, line: TrialLine) -> None:
        """The live launch itself must be launchable: without it there is nothing to compare."""
        if line.status == "unlaunchable" and set(line.new) == set(self.factors):
            raise LaunchError(f"The server as it is now could not be launched and measured: {line.reason}")


def _alike(figures: list[dict[str, Any]]) -> bool:
    """Whether launches all speculate or none does, as far as they say: only then is a cycle the same thing."""
    return len({isinstance(one["accept_length"], float) for one in figures if "accept_length" in one}) < 2
