"""Incidents that are made up, to test a search against a known truth.

The truth of an incident is a function from the factors that are new to a slowdown in standard deviations of a launch;
the noise of its launches may be of several kinds, and neither is known to the search.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from fingerprint.bisect.search import Unlaunchable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from fingerprint.bisect.verdict import Verdict

Scatter = Literal["normal", "student", "bimodal", "drift"]


class Asks(Protocol):
    """Anything that searches."""

    def ask(self) -> frozenset[str] | None:
        """The next launch."""

    def tell(self, subset: frozenset[str], value: float | Unlaunchable) -> None:
        """One launch's figure."""

    def verdict(self) -> Verdict:
        """The answer."""


@dataclass
class Incident:
    """One incident: what is true, and how its launches scatter.

    Attributes:
        slower: slowdown in standard deviations, given the factors that are new.
        rng: where its launches' luck comes from.
        level_ms: the old level.
        sigma: standard deviation of a launch, as a share of the level.
        scatter: normal; student: t with 3 degrees of freedom; bimodal: one launch in ten is slower by five standard
            deviations; drift: slower by one standard deviation an hour, ten minutes a launch.
        starts: whether a launch starts, given the factors that are new.
    """

    slower: Callable[[frozenset[str]], float]
    rng: np.random.Generator
    level_ms: float = 20.0
    sigma: float = 0.01
    scatter: Scatter = "normal"
    starts: Callable[[frozenset[str]], bool] = field(default=lambda _: True)
    launches: int = 0

    def launch(self, new: frozenset[str]) -> float | Unlaunchable:
        """Launch and measure: ms, or why there is no figure."""
        self.launches += 1
        if not self.starts(new):
            return Unlaunchable("it did not start")
        luck = float(self.rng.standard_t(3) if self.scatter == "student" else self.rng.standard_normal())
        if self.scatter == "bimodal" and self.rng.random() < 0.1:
            luck += 5.0
        if self.scatter == "drift":
            luck += self.launches / 6
        return self.level_ms * (1 + self.sigma * (self.slower(new) + luck))


def solve(search: Asks, incident: Incident, most: int = 200) -> Verdict:
    """Run a search to its end."""
    while (new := search.ask()) is not None and incident.launches < most:
        search.tell(new, incident.launch(new))
    return search.verdict()
