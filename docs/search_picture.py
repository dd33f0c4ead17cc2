"""Draws docs/search.svg from a real run of the search on a simulated incident.

python docs/search_picture.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fingerprint.bisect.search import Unlaunchable
from fingerprint.bisect.simulate import one

LEFT, TOP, CELL, ROW = 150, 46, 54, 17
CURVE = 110
SEED = 4
TITLE = "One incident: 16 factors, a gap of five standard deviations, every launch"


@dataclass(frozen=True)
class Step:
    """One launch: what was new, what it measured, and what was suspected after it."""

    new: frozenset[str]
    value: float
    suspicion: dict[str, float]
    none: str


def run() -> tuple[list[Step], str, str]:
    """Every launch of one incident (16 factors, a gap of five standard deviations), the culprit, and the sentence."""
    incident = one(np.random.default_rng(SEED), 16, 5)
    search, steps = incident.search(SEED), []
    while (new := search.ask()) is not None:
        value = incident.launch(new)
        search.tell(new, value)
        if isinstance(value, Unlaunchable):
            continue
        posterior = search.verdict().posterior
        none = sum(s.probability for s in posterior if s.structure == "none")
        steps.append(Step(new, value, search.suspicion(), f"{100 * none:.0f}" if posterior else ""))
    return steps, min(incident.culprits), search.verdict().sentence


def draw() -> str:
    """The picture, as SVG."""
    steps, culprit, sentence = run()
    names = sorted(f"variable:F{i:03d}" for i in range(16))
    values = [step.value for step in steps]
    low, high = min(values), max(values)
    grid = TOP + CURVE + 34
    width, height = LEFT + CELL * len(steps) + 24, grid + ROW * 18 + 70

    def y(value: float) -> float:
        return TOP + CURVE - (value - low) / (high - low) * CURVE

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<g font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="13" font-weight="bold">{TITLE}</text>',
        f'<text x="12" y="{TOP + 8}" fill="#555">measured, ms</text>',
        f'<text x="{LEFT - 8}" y="{y(high) + 4}" text-anchor="end" fill="#555">{high:.2f}</text>',
        f'<text x="{LEFT - 8}" y="{y(low) + 4}" text-anchor="end" fill="#555">{low:.2f}</text>',
    ]
    for column, step in enumerate(steps):
        x = LEFT + CELL * column + CELL / 2
        out.append(f'<circle cx="{x}" cy="{y(values[column]):.1f}" r="4.5" fill="#1f6fb2"/>')
        out.append(f'<text x="{x}" y="{grid - 8}" text-anchor="middle" fill="#555">{column + 1}</text>')
        for row, name in enumerate(names):
            p = step.suspicion.get(name, 1 / 16)
            top = grid + ROW * row
            shade = f"rgba(200,60,20,{min(1.0, p**0.5):.3f})"
            out.append(f'<rect x="{x - CELL / 2}" y="{top}" width="{CELL - 2}" height="{ROW - 2}" fill="{shade}"/>')
            if name in step.new:
                out.append(f'<circle cx="{x}" cy="{top + ROW / 2 - 1}" r="2.6" fill="#222"/>')
            if p >= 0.1:
                out.append(f'<text x="{x + 22}" y="{top + 11}" text-anchor="end" font-size="9">{100 * p:.0f}</text>')
        top = grid + ROW * 16 + 8
        out.append(f'<text x="{x}" y="{top + 12}" text-anchor="middle" fill="#555">{step.none}</text>')
    for row, name in enumerate(names):
        weight = ' font-weight="bold"' if name == culprit else ""
        top = grid + ROW * row + 11
        out.append(f'<text x="{LEFT - 8}" y="{top}" text-anchor="end"{weight}>{name.split(":")[1]}</text>')
    top = grid + ROW * 16 + 20
    out.append(f'<text x="{LEFT - 8}" y="{top}" text-anchor="end" fill="#555">no gap at all, %</text>')
    out.append(
        f'<text x="12" y="{top + 26}" fill="#555">Dot: at its new value in this launch. Shade and number: probability, '
        "in %, that the factor takes part, after it. Bold: the truth.</text>"
    )
    half = sentence.find(": ") + 1
    out.append(f'<text x="12" y="{top + 44}">{sentence[:half]}</text>')
    out.append(f'<text x="12" y="{top + 59}">{sentence[half:].strip()}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("search.svg").write_text(draw(), encoding="utf-8")
