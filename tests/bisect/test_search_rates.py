"""Calibrated rates on made-up incidents, on samples small enough for every run.

A bound is the rate that the full benchmark shows, widened by what a sample of this size may stray. The incidents are
seeded, so a test passes or fails for good: it guards a rate that was measured on larger samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fingerprint.bisect.simulate import Incident, Outcome, Scatter, nothing, one, pair, ranked, slowed, solve, tangled

Results = list[tuple[Incident, Outcome]]
Make = Callable[[np.random.Generator], Incident]


def outcomes(make: Make, count: int, salt: int) -> Results:
    """The ends of that many incidents: the incident and its outcome."""
    out = []
    for seed in range(count):
        incident = make(np.random.default_rng([salt, seed]))
        out.append((incident, solve(incident.search(seed), incident)))
    return out


def right(results: Results) -> int:
    return sum(o.named == i.culprits and o.verdict.structure == i.structure for i, o in results)


def accused(results: Results) -> int:
    return sum(bool(o.named - i.culprits) for i, o in results)


def mean_launches(results: Results) -> float:
    return float(np.mean([o.verdict.launches for _, o in results]))


def test_one_of_sixteen_at_five_sigma_takes_about_ten_launches() -> None:
    results = outcomes(lambda r: one(r, 16, 5), 24, 1)
    assert right(results) >= 22
    assert accused(results) <= 1
    assert mean_launches(results) <= 11.5


def test_one_of_sixteen_at_ten_sigma_takes_less_than_nine_launches() -> None:
    results = outcomes(lambda r: one(r, 16, 10), 12, 2)
    assert right(results) >= 11
    assert mean_launches(results) <= 9


def test_one_of_sixteen_at_three_sigma_is_found() -> None:
    results = outcomes(lambda r: one(r, 16, 3), 14, 3)
    assert right(results) >= 12
    assert accused(results) <= 1
    assert mean_launches(results) <= 17.5


def test_one_of_sixty_four_costs_two_or_three_launches_more() -> None:
    results = outcomes(lambda r: one(r, 64, 5), 6, 4)
    assert right(results) >= 5
    assert mean_launches(results) <= 16


def test_a_right_ranking_saves_launches_and_a_wrong_one_costs_few() -> None:
    plain = outcomes(lambda r: ranked(r, 16, 6, right=True), 8, 5)
    wrong = outcomes(lambda r: ranked(r, 16, 6, right=False), 8, 5)
    assert mean_launches(plain) < mean_launches(wrong) < mean_launches(plain) + 5
    assert right(plain) + right(wrong) >= 14


def test_a_phantom_is_named_and_nobody_accused() -> None:
    results = outcomes(lambda r: nothing(r, 16, 3.3), 24, 6)
    assert sum(o.verdict.kind == "phantom" for _, o in results) >= 20
    assert accused(results) <= 2
    assert mean_launches(results) <= 10


@pytest.mark.parametrize("structure", ["and", "or", "adds", "masked"])
def test_two_culprits_are_found_with_their_structure(structure: str) -> None:
    results = outcomes(lambda r: pair(r, 16, 6, structure), 7, 7)
    assert right(results) >= 5
    assert accused(results) <= 1


def test_shares_of_two_halves_are_within_ten_points_as_a_rule() -> None:
    results = outcomes(lambda r: pair(r, 16, 6, "adds"), 7, 8)
    errors = [abs(c.share[1] - 0.5) for _, o in results if o.verdict.structure == "adds" for c in o.verdict.culprits]
    assert len(errors) >= 10
    assert np.mean(errors) <= 0.1


@pytest.mark.parametrize("scatter", ["student", "bimodal", "drift"])
def test_noise_of_another_kind_accuses_no_innocent(scatter: Scatter) -> None:
    results = outcomes(lambda r: one(r, 16, 5, scatter), 10, 9)
    assert accused(results) <= 1
    assert right(results) >= 7


@pytest.mark.parametrize("scatter", ["normal", "student", "bimodal", "drift"])
def test_two_equal_sides_show_no_gap(scatter: Scatter) -> None:
    results = outcomes(lambda r: nothing(r, 16, None, scatter), 16, 10)
    assert sum(o.gap_found for _, o in results) <= 3
    assert accused(results) <= 1


def test_a_culprit_in_a_tangle_of_conflicts_is_found_or_its_smallest_bundle() -> None:
    results = outcomes(lambda r: tangled(r, 16, 5, 24, known=True), 10, 11)
    assert sum(o.named == i.culprits for i, o in results) >= 9


def test_conflicts_that_nobody_knew_cost_launches_but_not_the_answer() -> None:
    results = outcomes(lambda r: tangled(r, 16, 5, 3, known=False), 6, 12)
    assert sum(o.named == i.culprits for i, o in results) >= 4
    assert accused(results) == 0


@pytest.mark.parametrize(("times", "scatter", "launches"), [(10, "proportional", 9), (20, "wild", 11)])
def test_a_server_slowed_down_many_times_is_as_easy_however_much_that_side_scatters(
    times: float, scatter: Scatter, launches: float
) -> None:
    results = outcomes(lambda r: slowed(r, 16, times, scatter), 12, 13)
    assert right(results) >= 11
    assert accused(results) == 0
    assert mean_launches(results) <= launches
    assert max(o.verdict.launches for _, o in results) <= 24


@pytest.mark.parametrize("seed", [39, 50, 11])
def test_a_host_that_shifts_in_mid_search_does_not_make_it_repeat_one_launch_over_and_over(seed: int) -> None:
    incident = one(np.random.default_rng([4711, seed]), 16, 5)
    search, shift = incident.search(seed), 1 + 4 * incident.sigma
    asked: Counter[frozenset[str]] = Counter()
    while (new := search.ask()) is not None:
        value = incident.launch(new)
        assert isinstance(value, float)
        asked[new] += 1
        search.tell(new, value * shift if asked.total() > 4 + seed % 6 else value)
    between = [times for new, times in asked.items() if 0 < len(new) < 16]
    assert max(between) <= 10
    assert asked.total() <= 30
    assert {name for culprit in search.verdict().culprits for name in culprit.factors} <= incident.culprits
