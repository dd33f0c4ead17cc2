"""How a bisect tells a person where it is: which trial of about how many, what is launched, time left, what is likely.

On a terminal one line changes in place and each finished launch leaves one behind; elsewhere it is quiet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from fingerprint.report.words import clean

if TYPE_CHECKING:
    from typing_extensions import Self

    from fingerprint.bisect.journal import FigureLine, OpenLine, TrialLine
    from fingerprint.bisect.run import Prepared
    from fingerprint.bisect.search import Search

_STAGES = {
    "launching": "launching",
    "ready": "checking what runs",
    "measuring": "measuring",
    "ending": "ending the server",
}


class ProgressObserver:
    """Writes to standard error, so that results on standard output stay alone.

    Args:
        console: where to.
        quiet: say nothing; None: on anything that is not a terminal.
    """

    def __init__(self, console: Console, *, quiet: bool | None = None) -> None:
        self._console = console
        self._quiet = not console.is_terminal if quiet is None else quiet
        self._status: Status | None = None
        self._began = time.monotonic()
        self._expected = 0.0
        self._number = 0
        self._what = ""
        self._unit = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._status = self._console.status("reading the host")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def prepared(self, prepared: Prepared) -> None:
        """Say what will be searched, and what it is likely to cost."""
        for words in prepared.restored:  # what a killed bisect had left is trouble: said in any case
            text = f"left by a bisect that was killed: {words}"
            self._console.print(escape(clean(text, 400)), highlight=False, soft_wrap=True)
        estimate = prepared.search.estimate()
        self._expected = estimate.launches
        self._say(
            f"{len(prepared.factors)} factors, {len(prepared.found.fixed)} differences that no launch can switch; "
            f"about {estimate.launches:.0f} launches, at most {estimate.worst}."
        )
        for fixed in prepared.found.fixed:
            self._say(f"  not switchable: {fixed.id}: {fixed.reason}")

    def launching(self, number: int, new: frozenset[str], search: Search) -> None:
        """A launch begins."""
        self._number = number
        total = len(search.factors)
        if not new:
            self._what = "everything old"
        elif len(new) == total:
            self._what = "everything new"
        elif len(new) == 1:
            self._what = f"only {next(iter(new))} new"
        elif len(new) == total - 1:
            self._what = f"only {next(iter(set(search.factors) - new))} old"
        else:
            self._what = f"{len(new)} of {total} new"
        self.stage(number, "launching")

    def stage(self, number: int, stage: str) -> None:
        """The launch has come to another stage."""
        if self._status is not None:
            words = f"trial {number} of about {max(self._expected, number):.0f}: {self._what}: {_STAGES[stage]}"
            self._status.update(escape(clean(words + self._left(), 200)))

    def launched(self, line: TrialLine, search: Search) -> None:
        """A launch is over: one line that stays."""
        measured = f"{line.value_ms:8.2f} ms" if line.value_ms is not None else f"{line.status}: {line.reason[:160]}"
        best = search.verdict()
        hope = ""
        if best.posterior and best.posterior[0].factors:
            top = best.posterior[0]
            hope = f"{' + '.join(sorted(top.factors))} {top.probability:.0%}"
        elif best.posterior:
            hope = f"{best.posterior[0].structure} {best.posterior[0].probability:.0%}"
        marks = f"  ({'; '.join(line.marks)})" if line.marks else ""
        self._say(f"{line.number:3d}  {self._what:<44.44}  {measured}{marks}  {hope}")

    def comparing(self, line: FigureLine, search: Search) -> None:
        """Launches are compared by another figure than was expected."""
        self._expected = search.estimate().launches
        self._say(f"launches are compared by {line.metric} ({line.source}): {line.reason}.")

    def opening(self, line: OpenLine) -> None:
        """A culprit is opened."""
        self._expected = self._number + line.expected_launches
        self._say(
            f"inside of {line.of}: {len(line.parts)} {'steps' if line.ordered else 'parts'}; "
            f"about {line.expected_launches:.0f} launches more."
        )

    def _left(self) -> str:
        done = self._number - 1
        if done < 1:
            return ""
        each = (time.monotonic() - self._began) / done
        left = max(self._expected - done, 1.0) * each
        return f", about {left:.0f} s left" if left < 120 else f", about {left / 60:.0f} min left"

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(escape(clean(text, 400)), highlight=False, soft_wrap=True)
