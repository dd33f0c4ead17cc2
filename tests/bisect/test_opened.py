"""Culprits opened by the protocol: parts searched with the same engine, in the same journal, and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_session import FACTORS, Scripted, session

from fingerprint.bisect.journal import Journal
from fingerprint.bisect.search import Budget, Search
from fingerprint.bisect.session import Session
from fingerprint.errors import CaseError, HostProgramError
from fingerprint.factors import Evidence, Factor, Inside, LaunchPlan, Part
from fingerprint.factors.variables import Variable

LETTERS = "PQRS"


@dataclass(frozen=True)
class Letters(Inside):
    """Variables that a factor is made of, set one by one."""

    prefix: str = ""

    def apply(self, plan: LaunchPlan, new: frozenset[str]) -> None:
        for part in self.parts:
            plan.variables[part.id] = "2" if part.id in new else "1"

    def inside(self, part: str) -> Inside | str:
        return letters(part) if part == "R" else f"{part} is as small as it gets"


@dataclass(frozen=True)
class Line(Letters):
    """The same in an order."""

    ordered: ClassVar[bool] = True


@dataclass(frozen=True)
class Made(Variable):
    """A variable that can be opened."""

    made_of: type[Letters] = Letters
    names: str = LETTERS

    def apply(self, plan: LaunchPlan, *, new: bool) -> None:
        super().apply(plan, new=new)
        for name in self.names:
            plan.variables[name] = "2" if new else "1"

    def inside(self, _evidence: Evidence) -> Inside | str:
        return self.made_of(tuple(part(name) for name in self.names))


def part(name: str) -> Part:
    return Part(name, f"the part {name}", "1", "2", f"take {name} back")


def letters(of: str) -> Letters:
    return Letters(tuple(part(f"{of}{number}") for number in (1, 2)))


def opened_session(host: Scripted, path: Path, factors: dict[str, Factor], budget: int | None = None) -> Session:
    made = session(host, path)
    made.factors = factors
    made.search = Search(sorted(factors), budget=Budget(launches=budget))
    made.evidence = Evidence()
    return made


def with_b(**changes: Any) -> dict[str, Factor]:  # noqa: ANN401 - fields of Made
    return {**FACTORS, "variable:B": Made("variable:B", "1", "2", "B", "1", "2", **changes)}


def slow_when(*names: str) -> Callable[[dict[str, Any]], float]:
    def answer(plan: dict[str, Any]) -> float:
        held = plan["variables"]
        jitter = 0.01 * (sum(map(ord, str(sorted(held.items())))) % 7)
        return 10.0 + jitter + (5.0 if all(held.get(name) == "2" for name in names) else 0.0)

    return answer


def test_the_guilty_part_is_named_and_other_factors_stay_old(tmp_path: Path) -> None:
    host = Scripted(slow_when("Q"))
    made = opened_session(host, tmp_path, with_b())
    verdict = made.run()
    assert [sorted(one.factors) for one in verdict.culprits] == [["variable:B"]]
    first, second = made.opened
    assert (first.of, [one.id for one in first.culprits]) == ("variable:B", ["Q"])
    assert (second.of, second.reason) == ("Q", "Q is as small as it gets")
    lines = Journal(tmp_path / "journal.jsonl").trials()
    inner = [line for line in lines if line.inside]
    assert {line.inside for line in inner} == {"variable:B"}
    assert [line.number for line in lines] == list(range(1, len(host.plans) + 1))
    for line, plan in zip(lines, host.plans, strict=True):
        if line.inside:
            assert {name for name in LETTERS if plan["variables"][name] == "2"} == set(line.new)
            assert (plan["variables"]["A"], plan["variables"]["C"]) == ("1", "1")
    # Both ends were launched before, and are not launched again without need.
    assert len(inner) < 8
    assert verdict.launches == len(lines) - len(inner)


def test_a_guilty_part_is_opened_in_its_turn(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> float:
        held = plan["variables"]
        return slow_when("R2" if "R2" in held else "R")(plan)

    made = opened_session(Scripted(answer), tmp_path, with_b())
    made.run()
    assert [(one.of, [part.id for part in one.culprits]) for one in made.opened] == [
        ("variable:B", ["R"]),
        ("R", ["R2"]),
        ("R2", []),
    ]


def test_parts_in_order_are_searched_in_order(tmp_path: Path) -> None:
    host = Scripted(slow_when("R"))
    made = opened_session(host, tmp_path, with_b(made_of=Line))
    made.run()
    assert [one.id for one in made.opened[0].culprits] == ["R"]
    for line in Journal(tmp_path / "journal.jsonl").trials():
        if line.inside == "variable:B":
            assert set(line.new) == set(LETTERS[: len(line.new)])


def test_a_single_part_is_named_without_a_launch(tmp_path: Path) -> None:
    host = Scripted(slow_when("B"))
    made = opened_session(host, tmp_path, with_b(names="P"))
    verdict = made.run()
    assert verdict.launches == len(host.plans)
    assert [one.id for one in made.opened[0].culprits] == ["P"]
    assert made.opened[0].verdict is None


def test_a_partner_stays_new_while_the_other_is_opened(tmp_path: Path) -> None:
    host = Scripted(slow_when("A", "Q"))
    made = opened_session(host, tmp_path, with_b())
    verdict = made.run()
    assert verdict.structure == "and"
    assert [one.id for one in made.opened[0].culprits] == ["Q"]
    lines = Journal(tmp_path / "journal.jsonl").trials()
    assert all(plan["variables"]["A"] == "2" for line, plan in zip(lines, host.plans, strict=True) if line.inside)


def test_parts_that_act_only_together_are_opened_with_each_other_new(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> float:
        held = plan["variables"]
        return slow_when("Q", "R2" if "R2" in held else "R")(plan)

    host = Scripted(answer)
    made = opened_session(host, tmp_path, with_b())
    made.run()
    assert [(one.of, [part.id for part in one.culprits]) for one in made.opened[:3]] == [
        ("variable:B", ["Q", "R"]),
        ("Q", []),
        ("R", ["R2"]),
    ]
    lines = Journal(tmp_path / "journal.jsonl").trials()
    deep = [plan["variables"] for line, plan in zip(lines, host.plans, strict=True) if line.inside == "R"]
    assert deep
    assert {(held["Q"], held["P"], held["S"], held["A"], held["C"]) for held in deep} == {("2", "1", "1", "1", "1")}


def apart(plan: dict[str, Any]) -> object:
    """P of B needs A's new value, and A needs P: A and B are launched together or not at all. Q makes it slow."""
    held = plan["variables"]
    if held["A"] != held["P"]:
        return HostProgramError("A and P need each other", kind="launch")
    return slow_when("Q")(plan)


def test_factors_that_no_launch_separates_are_opened_as_one(tmp_path: Path) -> None:
    host = Scripted(apart)
    made = opened_session(host, tmp_path, with_b())
    verdict = made.run()
    (culprit,) = verdict.culprits
    assert culprit.bundle
    assert sorted(culprit.factors) == ["variable:A", "variable:B"]
    together, part = made.opened
    assert together.of == "together:variable:A + variable:B"
    assert {one.id for one in together.parts} == {"variable:A", *LETTERS}
    assert [one.id for one in together.culprits] == ["Q"]
    assert (part.of, part.reason) == ("Q", "Q is as small as it gets")
    resumed = opened_session(Scripted(apart), tmp_path, with_b())
    launches = resumed.replay()
    resumed.run()
    assert resumed.opened == made.opened
    assert resumed.number == launches  # nothing was launched again


def test_factors_that_no_launch_separates_and_that_have_no_parts_stay_one(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> object:
        held = plan["variables"]
        if held["A"] != held["B"]:
            return HostProgramError("A and B need each other", kind="launch")
        return slow_when("A")(plan)

    made = opened_session(Scripted(answer), tmp_path, dict(FACTORS))
    assert made.run().culprits[0].bundle
    assert made.opened == []


def test_one_budget_holds_for_all_of_it(tmp_path: Path) -> None:
    host = Scripted(slow_when("Q"))
    whole = opened_session(host, tmp_path, with_b())
    outer = whole.run().launches
    (tmp_path / "short").mkdir()
    short = opened_session(Scripted(slow_when("Q")), tmp_path / "short", with_b(), budget=outer + 1)
    short.run()
    assert len(Journal(tmp_path / "short" / "journal.jsonl").trials()) == outer + 1
    assert short.opened[0].verdict is not None
    assert short.opened[0].culprits == []


def test_opening_is_left_out_where_it_is_not_wanted(tmp_path: Path) -> None:
    made = opened_session(Scripted(slow_when("Q")), tmp_path, with_b())
    made.evidence = None
    made.run()
    assert made.opened == []
    assert Journal(tmp_path / "journal.jsonl").opened() == []


class StoppedError(Exception):
    pass


def stopped_after(path: Path, launches: int) -> None:
    host = Scripted(slow_when("Q"))

    def answer(plan: dict[str, Any]) -> object:
        if len(host.plans) > launches:
            raise StoppedError
        return slow_when("Q")(plan)

    host.answer = answer
    with pytest.raises(StoppedError):
        opened_session(host, path, with_b()).run()


def test_a_case_that_was_stopped_inside_of_a_culprit_is_resumed_there(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = Scripted(slow_when("Q"))
    expected = opened_session(whole, tmp_path / "whole", with_b())
    outer = expected.run().launches
    stopped_after(tmp_path, outer + 1)
    host = Scripted(slow_when("Q"))
    resumed = opened_session(host, tmp_path, with_b())
    assert resumed.replay() == outer + 1
    resumed.run()
    assert [(one.of, [part.id for part in one.culprits]) for one in resumed.opened] == [
        (one.of, [part.id for part in one.culprits]) for one in expected.opened
    ]
    numbers = [line.number for line in Journal(tmp_path / "journal.jsonl").trials()]
    assert numbers == list(range(1, outer + 2 + len(host.plans)))
    assert len(Journal(tmp_path / "journal.jsonl").opened()) == 1


def test_a_culprit_that_has_other_parts_now_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    outer = opened_session(Scripted(slow_when("Q")), tmp_path / "whole", with_b()).run().launches
    stopped_after(tmp_path, outer + 1)
    resumed = opened_session(Scripted(slow_when("Q")), tmp_path, with_b(names="PQ"))
    resumed.replay()
    with pytest.raises(CaseError, match="other parts"):
        resumed.run()
