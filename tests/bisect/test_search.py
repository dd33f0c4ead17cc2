"""The contract of the search: what it asks, what it takes in, what it says, and that it depends on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.bisect.noise import Noise
from fingerprint.bisect.search import (
    Budget,
    OrderedSearch,
    Search,
    Then,
    Unlaunchable,
    Void,
    chain,
    old,
)
from fingerprint.bisect.verdict import Verdict

NAMES = [f"variable:F{i:02d}" for i in range(8)]
Slower = Callable[[frozenset[str]], float]
Starts = Callable[[frozenset[str]], bool]
quick = settings(max_examples=12, deadline=None)


def run(
    search: Search, slower: Slower, *, sigma: float = 0.01, seed: int = 0, starts: Starts = lambda _: True
) -> list[frozenset[str]]:
    """Answer a search from a made-up truth; returns the settings that it asked for."""
    rng = np.random.default_rng(seed)
    asked: list[frozenset[str]] = []
    while (new := search.ask()) is not None:
        assert len(asked) < 80, "it does not end"
        asked.append(new)
        value = 20.0 * (1 + slower(new) + sigma * rng.standard_normal())
        search.tell(new, value if starts(new) else Unlaunchable("did not start"))
    return asked


def test_the_first_two_launches_are_the_two_ends() -> None:
    search = Search(NAMES)
    assert search.ask() == frozenset()
    search.tell(frozenset(), 20.0)
    assert search.ask() == frozenset(NAMES)


def test_one_culprit_is_named_and_was_launched_alone_and_reverted_alone() -> None:
    search = Search(NAMES)
    asked = run(search, lambda new: 0.2 * (NAMES[3] in new))
    verdict = search.verdict()
    assert verdict.kind == "attributed"
    (culprit,) = verdict.culprits
    assert culprit.factors == {NAMES[3]}
    assert frozenset({NAMES[3]}) in asked
    assert frozenset(NAMES) - {NAMES[3]} in asked
    assert culprit.sufficient is not None
    assert culprit.necessary is not None
    assert culprit.sufficient.measured_ms > 23 > culprit.necessary.measured_ms
    assert culprit.share[0] < 1 < culprit.share[2]
    assert verdict.launches == len(asked)
    assert NAMES[3] in verdict.sentence
    assert NAMES[3] not in verdict.eliminated


@pytest.mark.parametrize(
    ("structure", "slower"),
    [
        ("and", lambda new: 0.2 * (NAMES[1] in new and NAMES[6] in new)),
        ("or", lambda new: 0.2 * (NAMES[1] in new or NAMES[6] in new)),
        ("adds", lambda new: 0.1 * (NAMES[1] in new) + 0.1 * (NAMES[6] in new)),
        ("masked", lambda new: 0.3 * (NAMES[1] in new) - 0.1 * (NAMES[6] in new)),
    ],
)
def test_two_culprits_are_named_with_how_they_act(structure: str, slower: Slower) -> None:
    search = Search(NAMES, seed=2)
    run(search, slower)
    verdict = search.verdict()
    assert verdict.structure == structure
    assert frozenset[str]().union(*(c.factors for c in verdict.culprits)) == {NAMES[1], NAMES[6]}
    assert verdict.kind == ("interaction" if structure == "and" else "several")
    assert all(name in verdict.sentence for name in (NAMES[1], NAMES[6]))


def test_no_gap_today_is_a_phantom_when_slow_and_healed_when_fast() -> None:
    for level, kind in ((1.0, "phantom"), (0.8, "healed")):
        search = Search(NAMES, then=Then(old_ms=16.0, new_ms=20.0))
        rng = np.random.default_rng(1)
        while (new := search.ask()) is not None:
            search.tell(new, 20.0 * level * (1 + 0.01 * rng.standard_normal()))
        assert search.verdict().kind == kind
        assert search.verdict().culprits == ()
        assert search.verdict().launches <= 10


def test_what_was_not_slower_in_the_past_is_not_healed() -> None:
    for level in (16.0, 20.0):
        search = Search(NAMES, then=Then(old_ms=20.0, new_ms=16.0))
        rng = np.random.default_rng(1)
        while (new := search.ask()) is not None:
            search.tell(new, level * (1 + 0.01 * rng.standard_normal()))
        assert search.verdict().kind == "phantom"


def test_a_part_of_the_gap_that_no_factor_alone_explains_is_a_remainder() -> None:
    weight = {NAMES[2]: 0.16, **dict.fromkeys([n for n in NAMES if n != NAMES[2]], 0.04 / 7)}
    search = Search(NAMES)
    run(search, lambda new: sum(weight[n] for n in new))
    verdict = search.verdict()
    assert verdict.kind == "attributed"
    assert verdict.culprits[0].factors == {NAMES[2]}
    assert verdict.culprits[0].share[0] < 0.8 < verdict.culprits[0].share[2]
    assert verdict.remainder_ms is not None
    assert verdict.remainder_ms[0] < 0.8 < verdict.remainder_ms[2]


def test_a_side_that_is_a_hundred_times_noisier_costs_no_more_launches() -> None:
    search = Search(NAMES)
    slow = iter([75.0, 280.0, 151.0, 103.0, 220.0, 90.0, 260.0, 130.0] * 3)
    fast = iter([7.5, 7.3, 7.6, 7.7, 7.4, 7.5, 7.2, 7.6] * 3)
    while (new := search.ask()) is not None:
        search.tell(new, next(slow if NAMES[3] in new else fast))
    verdict = search.verdict()
    assert verdict.culprits[0].factors == {NAMES[3]}
    assert verdict.launches <= 12
    assert verdict.old_ms is not None
    assert verdict.old_ms[1] == pytest.approx(7.5, abs=1)
    assert Search.from_json(search.to_json()).verdict() == verdict


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [2, 8])
def test_launches_that_scatter_by_half_their_level_are_borne_without_a_warning(seed: int) -> None:
    noise = Noise(relative=0.03, spread=2.0, bad=0.08)
    search = Search(NAMES[:6], noise=noise, seed=seed, then=Then(old_ms=10, new_ms=11))
    rng = np.random.default_rng(seed)
    while (new := search.ask()) is not None:
        search.tell(new, max(0.5, 10.5 * (1 + 0.4 * rng.standard_normal())))
    assert search.verdict().culprits == ()


def test_nothing_to_switch_is_an_answer() -> None:
    search = Search([])
    assert search.ask() is None
    assert search.verdict().kind == "not switchable"
    assert search.estimate().launches == 0


def test_a_single_factor_is_confirmed_by_the_ends_alone() -> None:
    search = Search(["tree:commit"])
    asked = run(search, lambda new: 0.2 * bool(new))
    assert set(asked) == {frozenset(), frozenset({"tree:commit"})}
    assert search.verdict().culprits[0].factors == {"tree:commit"}


def test_an_end_that_cannot_be_launched_ends_the_search_in_words() -> None:
    search = Search(NAMES)
    asked = run(search, lambda new: 0.0, starts=bool)
    assert asked == [frozenset(), frozenset()]
    verdict = search.verdict()
    assert verdict.kind == "undecided"
    assert "old side" in verdict.sentence
    assert verdict.reasons == ("did not start", "did not start")


def test_ends_that_a_known_conflict_forbids_are_never_asked() -> None:
    search = Search(NAMES, [frozenset(NAMES[:2])])
    assert search.ask() is None
    assert "new side" in search.verdict().sentence


def test_a_void_launch_is_counted_tells_nothing_and_is_asked_again() -> None:
    search = Search(NAMES)
    search.tell(frozenset(), Void("a clock was throttled"))
    assert search.ask() == frozenset()
    assert search.verdict().launches == 1
    assert search.verdict().measured == 0
    assert search.verdict().reasons == ("a clock was throttled",)


def test_launches_that_are_always_void_end_the_search() -> None:
    search = Search(NAMES)
    count = 0
    while (new := search.ask()) is not None:
        count += 1
        search.tell(new, Void("the factor did not arrive"))
    assert count == 4
    assert search.verdict().kind == "undecided"


def test_factors_that_need_each_other_are_one_bundle_and_named_as_one() -> None:
    a, b = NAMES[1], NAMES[4]
    search = Search(NAMES, [frozenset({a, old(b)}), frozenset({b, old(a)})])
    asked = run(search, lambda new: 0.2 * (a in new))
    assert all((a in new) == (b in new) for new in asked)
    (culprit,) = search.verdict().culprits
    assert culprit.factors == {a, b}
    assert culprit.bundle
    assert "no launch can separate" in search.verdict().sentence


def test_a_launch_that_did_not_start_is_not_asked_again_and_the_culprit_is_still_found() -> None:
    needs = {NAMES[5]: NAMES[0], NAMES[2]: NAMES[7]}

    def starts(new: frozenset[str]) -> bool:
        return not any(a in new and b not in new for a, b in needs.items())

    search = Search(NAMES, seed=3)
    asked = run(search, lambda new: 0.2 * (NAMES[5] in new), starts=starts)
    failed = [new for new in asked if not starts(new)]
    assert len(failed) == len(set(failed))
    assert search.verdict().culprits[0].factors == {NAMES[5]}


def test_a_step_of_a_line_is_found_between_its_neighbours() -> None:
    steps = [f"commit{i:02d}" for i in range(30)]
    search = OrderedSearch(steps)
    asked = run(search, lambda new: 0.2 * (steps[17] in new))
    assert all(new == frozenset(steps[: len(new)]) for new in asked)
    assert {frozenset(steps[:17]), frozenset(steps[:18])} <= set(asked)
    assert search.verdict().culprits[0].factors == {steps[17]}
    assert len(asked) <= 16


def test_steps_that_only_an_unbuildable_one_would_separate_are_named_together() -> None:
    steps = [f"commit{i}" for i in range(8)]
    search = OrderedSearch(steps)
    run(search, lambda new: 0.2 * (steps[4] in new), starts=lambda new: len(new) != 4)
    verdict = search.verdict()
    assert verdict.kind == "attributed"
    assert verdict.culprits[0].factors == {steps[3], steps[4]}
    assert verdict.culprits[0].bundle


def test_a_culprit_is_opened_without_repeating_its_launches() -> None:
    search = Search(NAMES)
    run(search, lambda new: 0.2 * (NAMES[3] in new))
    hunks = [f"hunk{i}" for i in range(4)]
    inner = search.opened({NAMES[3]}, hunks)
    told = inner.verdict().launches
    assert told >= 2
    assert inner.ask() not in {frozenset(), frozenset(hunks)}
    run(inner, lambda new: 0.2 * (hunks[2] in new))
    assert inner.verdict().culprits[0].factors == {hunks[2]}
    ordered = search.opened({NAMES[3]}, hunks, chain(hunks))
    assert all(new == frozenset(hunks[: len(new)]) for new in run(ordered, lambda new: 0.2 * (hunks[2] in new)))


def test_a_spent_budget_gives_probabilities_and_never_a_guess() -> None:
    search = Search(NAMES, budget=Budget(launches=5))
    asked = run(search, lambda new: 0.05 * (NAMES[3] in new), sigma=0.02)
    assert len(asked) == 5
    verdict = search.verdict()
    assert verdict.kind == "undecided"
    assert verdict.culprits == ()
    assert "%" in verdict.sentence
    assert "more launches" in verdict.next
    assert Budget(minutes=60, minutes_per_launch=20).limit(40) == 3


def test_several_servers_get_different_questions_that_tell_different_things() -> None:
    search = Search(NAMES)
    assert search.ask(2) == [frozenset(), frozenset(NAMES)]
    for new in search.ask(2):
        search.tell(new, 20.0 + len(new) / 2)
    three = search.ask(3)
    assert len(set(three)) == 3
    assert search.ask(1) == three[:1]
    assert search.ask(2, pending=three[:1]) == three[1:]
    # Together they put (nearly) every factor into a class of its own.
    assert len({tuple(name in new for new in three) for name in NAMES}) >= 6


def test_launches_that_were_never_asked_for_inform_it_too() -> None:
    search = Search(NAMES)
    for name in NAMES:
        search.tell({name}, 24.0 if name == NAMES[6] else 20.0 + 0.01 * len(name))
    search.tell(set(), 20.1)
    search.tell(set(NAMES), 24.1)
    run(search, lambda new: 0.2 * (NAMES[6] in new))
    assert search.verdict().launches <= 14
    assert search.verdict().culprits[0].factors == {NAMES[6]}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_figure_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        Search(NAMES).tell(set(), value)


def test_an_unknown_factor_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="package:nobody"):
        Search(NAMES).tell({"package:nobody"}, 20.0)


def test_the_estimate_grows_with_the_factors_and_shrinks_with_a_ranking() -> None:
    few, many = Search(NAMES[:2]).estimate(), Search(NAMES).estimate()
    assert few.launches < many.launches < many.worst
    assert Search(NAMES, prior={NAMES[0]: 50.0}).estimate().launches < many.launches
    assert many.minutes == pytest.approx(10 * many.launches)


def test_the_verdict_survives_json_and_a_model() -> None:
    search = Search(NAMES)
    run(search, lambda new: 0.2 * (NAMES[3] in new))
    verdict = search.verdict()
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_importing_the_search_does_not_import_scipy() -> None:
    code = "import sys, fingerprint.bisect.search; print('scipy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@quick
@given(order=st.permutations(NAMES), seed=st.integers(0, 1000), culprit=st.integers(0, 7))
def test_neither_the_order_of_factors_nor_a_detour_over_json_changes_a_question(
    order: list[str], seed: int, culprit: int
) -> None:
    first, second = Search(NAMES, seed=seed), Search(order, seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(6):
        new = first.ask()
        assert new == second.ask() == Search.from_json(first.to_json()).ask()
        if new is None:
            break
        value = 20.0 * (1 + 0.1 * (NAMES[culprit] in new) + 0.01 * rng.standard_normal())
        first.tell(new, value)
        second.tell(new, value)
    assert first.verdict() == second.verdict() == Search.from_json(first.to_json()).verdict()


@quick
@given(data=st.data())
def test_a_setting_in_conflict_is_never_asked(data: st.DataObject) -> None:
    pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda p: p[0] != p[1])
    needs = data.draw(st.lists(pairs, max_size=8))
    seed = data.draw(st.integers(0, 100))
    rules = [frozenset({a, old(b)}) for a, b in needs]
    rules.append(frozenset({NAMES[0], NAMES[1], old(NAMES[2])}))
    search = Search(NAMES, rules, seed=seed)

    def starts(new: frozenset[str]) -> bool:
        forbidden = any(a in new and b not in new for a, b in needs)
        return not (forbidden or (NAMES[0] in new and NAMES[1] in new and NAMES[2] not in new))

    asked = run(search, lambda new: 0.2 * (NAMES[seed % 8] in new), seed=seed)
    assert all(starts(new) for new in asked)
    named = frozenset[str]().union(*(c.factors for c in search.verdict().culprits))
    assert not named or NAMES[seed % 8] in named


@quick
@given(
    told=st.lists(
        st.tuples(
            st.frozensets(st.sampled_from(NAMES)),
            st.one_of(st.floats(0.001, 1e6), st.just(Unlaunchable("no")), st.just(Void("no"))),
        ),
        max_size=12,
    )
)
def test_whatever_is_told_there_is_a_verdict_and_its_probabilities_hold_together(
    told: list[tuple[frozenset[str], Any]],
) -> None:
    search = Search(NAMES)
    for new, value in told:
        search.tell(new, value)
    verdict = search.verdict()
    assert verdict.launches == len(told)
    assert verdict.sentence
    assert sum(s.probability for s in verdict.posterior) <= 1 + 1e-6
    assert all(0 <= s.probability <= 1 + 1e-9 for s in verdict.posterior)
    for interval in (verdict.old_ms, verdict.new_ms, verdict.sigma_ms):
        assert interval is None or interval[0] <= interval[1] <= interval[2]
