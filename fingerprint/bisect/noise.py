"""What one launch's measurement is worth.

A launch is the unit: requests within it share its luck. Launches of the same settings scatter around one level by a
standard deviation that nobody knows beforehand; an engine and a metric only say about how large it is. Most launches
scatter normally, and a few are simply bad (a neighbour on the host, a slow start), so the density is a normal with a
wide Student tail: no single launch can outweigh a few others. Slow drift is a straight line in time whose slope is
unknown and small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
AnyFloats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Noise:
    """A prior on the scatter of launches, for one engine and metric.

    Attributes:
        relative: the likely standard deviation over launches, as a share of the level (0.015 is 1.5 %).
        spread: how far that guess may be off, as a factor at one standard deviation of its logarithm.
        bad: the share of launches that are expected to be simply wrong, in either direction.
        drift: likely drift from one launch to the next, in standard deviations of a launch.
    """

    relative: float = 0.015
    spread: float = 3.0
    bad: float = 0.06
    drift: float = 0.05

    def __post_init__(self) -> None:
        if not (self.relative > 0 and self.spread > 1 and 0 < self.bad < 1 and self.drift >= 0):
            msg = "noise: relative > 0, spread > 1, 0 < bad < 1 and drift >= 0 are needed"
            raise ValueError(msg)

    def log_density(self, deviation: AnyFloats, sigma: AnyFloats) -> Floats:
        """Log density of a launch that lies `deviation` (ms) from its level, at noise `sigma` (ms)."""
        z2 = (deviation / sigma) ** 2
        core = (1 - self.bad) / math.sqrt(2 * math.pi) * np.exp(-0.5 * z2)
        # Student's t with two degrees of freedom, four times as wide: 1 / (2 sqrt 2) (1 + z^2 / 2)^-3/2.
        base = 1 + z2 * (0.5 / _TAIL_SCALE**2)
        tail = self.bad / (_TAIL_SCALE * 2 * math.sqrt(2)) / (base * np.sqrt(base))
        return np.asarray(np.log((core + tail) / sigma))


_TAIL_SCALE: Final = 4.0

# Launch-to-launch scatter by engine and metric. SGLang's GPU timer repeated to 0.4 % over five launches on one H200, to
# 0.9-1.6 % over 18 on two others, and to 2-4 % with two ranks that meet in all-reduces, while the client's cycle time
# moved by tens of per cent (docs/evidence). The embedded numpy server scatters by 2-5 %, with bad launches.
PRIORS: Final[dict[tuple[str, str], Noise]] = {
    ("sglang", "verify_ms"): Noise(relative=0.012, spread=3.0, bad=0.03),
    ("sglang", "cycle_ms"): Noise(relative=0.15, spread=2.5, bad=0.10),
    ("reference", "verify_ms"): Noise(relative=0.03, spread=2.0, bad=0.08),
    ("reference", "cycle_ms"): Noise(relative=0.04, spread=2.0, bad=0.08),
}


def prior(engine: str, metric: str) -> Noise:
    """The prior for this engine and metric; the wide default where nothing is known."""
    return PRIORS.get((engine, metric), Noise())
