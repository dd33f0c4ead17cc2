"""The search against made-up incidents: how often it is right, what it costs, and whom it accuses.

    python -m benchmarks.bench_search [--incidents N] [--processes P] [--only WORD]

Every launch of an incident is counted: endpoints, search, confirmations, launches that did not start. The search does
not know the scatter: it is drawn for each incident between 0.3 % and 6 % of the level. The other methods are given
four endpoint launches and a threshold in their middle, and none of their launches is confirmed or repeated.
"""

from __future__ import annotations

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fingerprint.bisect.simulate import Incident, Outcome, nothing, one, pair, ranked, slowed, solve, tangled

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Row:
    """One line of the table: an incident, the goal, and what counts as right."""

    name: str
    goal: str
    make: Callable[[np.random.Generator], Incident]
    right: Callable[[Incident, Outcome], bool]
    beside: bool = False


@dataclass(frozen=True)
class Result:
    """One incident's end."""

    right: bool
    open: bool
    accused: bool
    gap_found: bool
    launches: int
    share_error: float
    covered: bool


def exact(incident: Incident, outcome: Outcome) -> bool:
    """The culprits are named, all of them and nobody else, and how they act."""
    return outcome.named == incident.culprits and outcome.verdict.structure == incident.structure


def named(incident: Incident, outcome: Outcome) -> bool:
    """The culprits are named, or the smallest bundle that holds them."""
    return outcome.named == incident.culprits


def phantom(_: Incident, outcome: Outcome) -> bool:
    """It is called a phantom."""
    return outcome.verdict.kind == "phantom"


def no_gap(_: Incident, outcome: Outcome) -> bool:
    """No gap was found at any time."""
    return not outcome.gap_found


ROWS = (
    Row("1 of 16, 5 sigma", "99 %, 9.5", lambda r: one(r, 16, 5), exact, beside=True),
    Row("1 of 16, 10 sigma", "99.5 %, 8.5", lambda r: one(r, 16, 10), exact, beside=True),
    Row("1 of 16, 3 sigma", "97 %, 14.5", lambda r: one(r, 16, 3), exact, beside=True),
    Row("1 of 64, 5 sigma", "99 %, 12", lambda r: one(r, 64, 5), exact, beside=True),
    Row("1 of 16, 3 sigma, ranking right", "12", lambda r: ranked(r, 16, 3, right=True), exact),
    Row("1 of 16, 3 sigma, ranking wrong", "+2", lambda r: ranked(r, 16, 3, right=False), exact),
    Row("phantom, then-gap 3.3 sigma", "95 %, 16", lambda r: nothing(r, 16, 3.3), phantom),
    Row("phantom, then-gap 2 sigma", "90 % or open, 16", lambda r: nothing(r, 16, 2), phantom),
    Row("two halves that add, 6 sigma", "95 %", lambda r: pair(r, 16, 6, "adds"), exact),
    Row("both needed (AND), 6 sigma", "90 %", lambda r: pair(r, 16, 6, "and"), exact),
    Row("either does it (OR), 6 sigma", "90 %", lambda r: pair(r, 16, 6, "or"), exact),
    Row("one hides another, 6 sigma", "90 %", lambda r: pair(r, 16, 6, "masked"), exact),
    Row("1 of 16, 5 sigma, Student 3", "accused 1 %", lambda r: one(r, 16, 5, "student"), exact),
    Row("1 of 16, 5 sigma, bimodal", "accused 1 %", lambda r: one(r, 16, 5, "bimodal"), exact),
    Row("1 of 16, 5 sigma, drift", "accused 1 %", lambda r: one(r, 16, 5, "drift"), exact),
    Row("10 times slower, noise in ratio", "99 %", lambda r: slowed(r, 16, 10, "proportional"), exact),
    Row("20 times slower, that side wild", "95 %", lambda r: slowed(r, 16, 20, "wild"), exact),
    Row("24 of 120 pairs conflict, 5 sigma", "95 %", lambda r: tangled(r, 16, 5, 24, known=True), named),
    Row("3 pairs conflict, not known", "95 %", lambda r: tangled(r, 16, 5, 3, known=False), named),
    Row("A/A, normal", "false gap 5 %", lambda r: nothing(r, 16), no_gap),
    Row("A/A, Student 3", "false gap 5 %", lambda r: nothing(r, 16, None, "student"), no_gap),
    Row("A/A, bimodal", "false gap 5 %", lambda r: nothing(r, 16, None, "bimodal"), no_gap),
    Row("A/A, drift", "false gap 5 %", lambda r: nothing(r, 16, None, "drift"), no_gap),
)


def run_one(job: tuple[int, int]) -> Result:
    """Incident number `job[1]` of row `job[0]`."""
    number, seed = job
    row = ROWS[number]
    incident = row.make(np.random.default_rng([number, seed]))
    outcome = solve(incident.search(seed), incident)
    verdict = outcome.verdict
    error, covered = math.nan, False
    if verdict.structure == "adds" and outcome.named == incident.culprits:
        error = abs(verdict.culprits[0].share[1] - 0.5)
        covered = verdict.culprits[0].share[0] <= 0.5 <= verdict.culprits[0].share[2]
    return Result(
        right=row.right(incident, outcome),
        open=verdict.kind in {"undecided", "unstable"},
        accused=bool(outcome.named - incident.culprits),
        gap_found=outcome.gap_found,
        launches=verdict.launches,
        share_error=error,
        covered=covered,
    )


# -- other methods -------------------------------------------------------------------------------------------------


def threshold(incident: Incident) -> Callable[[frozenset[str]], bool]:
    """A test by four endpoint launches: is this launch beyond the middle?"""
    everything = frozenset(incident.factors)
    ends = [float(str(incident.launch(new))) for new in (frozenset[str](), everything, everything, frozenset[str]())]
    middle = sum(ends) / 4
    return lambda new: float(str(incident.launch(new))) > middle


def one_at_a_time(incident: Incident) -> frozenset[str]:
    """Each factor alone on the old side."""
    slow = threshold(incident)
    return frozenset(name for name in incident.factors if slow(frozenset({name})))


def halving(incident: Incident) -> frozenset[str]:
    """Half of what is left, until one is left."""
    slow = threshold(incident)
    left = list(incident.factors)
    while len(left) > 1:
        half = left[: len(left) // 2]
        left = half if slow(frozenset(half)) else left[len(left) // 2 :]
    return frozenset(left)


def ddmin(incident: Incident) -> frozenset[str]:
    """Zeller's minimising delta debugging, results cached."""
    slow = threshold(incident)
    known: dict[frozenset[str], bool] = {}

    def test(new: frozenset[str]) -> bool:
        if new not in known:
            known[new] = slow(new)
        return known[new]

    left, parts = list(incident.factors), 2
    while len(left) >= 2:
        size = math.ceil(len(left) / parts)
        chunks = [left[i : i + size] for i in range(0, len(left), size)]
        for chunk in chunks:
            rest = [name for name in left if name not in chunk]
            if test(frozenset(chunk)):
                left, parts = chunk, 2
                break
            if len(chunks) > 2 and test(frozenset(rest)):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(left):
                break
            parts = min(2 * parts, len(left))
    return frozenset(left)


OTHERS = (("one at a time", one_at_a_time), ("fixed halving", halving), ("ddmin", ddmin))


def beside(number: int, incidents: int) -> list[str]:
    """What other methods reach on the same incidents."""
    out = []
    for name, method in OTHERS:
        right = launches = 0
        for seed in range(incidents):
            incident = ROWS[number].make(np.random.default_rng([number, seed]))
            right += method(incident) == incident.culprits
            launches += incident.launches
        out.append(f"{name} {100 * right / incidents:.0f} % / {launches / incidents:.1f}")
    return out


def asking(count: int) -> float:
    """The longest processor time of one `ask` among that many factors, in seconds."""
    incident = one(np.random.default_rng(1), count, 5)
    search, longest = incident.search(), 0.0
    while True:
        begin = time.process_time()
        new = search.ask()
        longest = max(longest, time.process_time() - begin)
        if new is None:
            return longest
        search.tell(new, incident.launch(new))


def line(row: Row, results: list[Result]) -> str:
    """One line of the table."""
    count = len(results)
    launches = np.array([r.launches for r in results])

    def percent(values: list[bool]) -> str:
        return f"{100 * sum(values) / count:5.1f}"

    text = (
        f"{row.name:34s} {row.goal:17s} {percent([r.right for r in results])} {percent([r.open for r in results])}"
        f" {percent([r.accused for r in results])} {percent([r.gap_found for r in results])}"
        f" {launches.mean():6.2f} {int(np.percentile(launches, 95)):4d} {launches.max():4d}"
    )
    errors = np.array([r.share_error for r in results])
    if np.isfinite(errors).any():
        seen = np.isfinite(errors)
        inside = sum(r.covered for r in results) / seen.sum()
        text += (
            f"  shares: mean error {100 * errors[seen].mean():.1f} points, within 10: "
            f"{100 * (errors[seen] <= 0.1).mean():.0f} %, interval holds it: {100 * inside:.0f} %"
        )
    return text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incidents", type=int, default=1000, help="incidents a row")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="only rows that contain this")
    options = parser.parse_args()
    print(f"{options.incidents} incidents a row; percent of incidents; all launches counted")
    print(f"{'incident':34s} {'goal':17s} right  open wrong   gap launches: mean 95% max")
    with ProcessPoolExecutor(options.processes) as pool:
        # All rows are handed out at once, so that no processor waits for the last incident of a row.
        chosen = [(number, row) for number, row in enumerate(ROWS) if options.only in row.name]
        ends = [
            pool.map(run_one, [(number, seed) for seed in range(options.incidents)], chunksize=5)
            for number, _ in chosen
        ]
        for (number, row), results in zip(chosen, ends, strict=True):
            print(line(row, list(results)), flush=True)
            if row.beside:
                print("    " + "; ".join(beside(number, options.incidents)) + " (right / launches)", flush=True)
    print(f"256 factors: the longest ask took {asking(256):.3f} s of processor time (goal 0.2)")
    print(
        "JAX-Toolbox triage, by running its own code on two-version factors (three seeds): 16 factors at 5 sigma"
        "\n    98 % / 16.0, at 10 sigma 100 % / 14.8, at 3.3 sigma 55 % / 15.9; 64 factors without noise 38.5;"
        "\n    a phantom named at 3.3 sigma 20 %, at 2 sigma 0-3 %; halves that add: stops in 80 %; AND, OR: one of 2."
    )


if __name__ == "__main__":
    main()
