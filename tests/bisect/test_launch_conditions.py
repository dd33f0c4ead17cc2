"""What every launch has, whatever its factors: an accept length, requests, variables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from fingerprint.bisect.run import Options, _then, asked, engine_with, past
from fingerprint.bisect.verdict import Then
from fingerprint.case import unseen
from fingerprint.engines import SGLANG, Engine, command_engine
from fingerprint.errors import UsageError
from fingerprint.factors import LaunchPlan
from snapshots import Measured, Server, Snapshot


def live(engine: str) -> Snapshot:
    taken = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Snapshot(tool="1", taken_at=taken, target="here", server=Server(status="ok", engine=engine))


def launch(served: str, **options: object) -> tuple[LaunchPlan, dict[str, Any], list[str]]:
    chosen, conditions = engine_with(live(served), Options(folder=Path("case"), **options))  # type: ignore[arg-type]
    plan = LaunchPlan(
        ["python", "-m", "sglang.launch_server", "--tp", "2", "--port", "30000"], "/srv", {"A": "1"}, None
    )
    chosen.adopt(plan)
    return plan, chosen.trial(plan), conditions


def test_the_accept_length_is_fixed_for_every_launch_and_said() -> None:
    plan, _ask, conditions = launch("sglang", accept_length=2.5)
    assert plan.variables["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    assert any("accept length fixed at 2.5 by SGLANG_SIMULATE_ACC_LEN" in line for line in conditions)
    assert "SGLANG_SIMULATE_ACC_LEN" not in launch("sglang")[0].variables


def test_an_engine_that_cannot_fix_its_accept_length_is_refused() -> None:
    with pytest.raises(UsageError, match="accept length of reference cannot be fixed"):
        launch("tinyserve", accept_length=2.5)


def test_requests_and_their_tokens_are_the_users_where_he_says_so() -> None:
    _plan, ask, conditions = launch("sglang", requests=2, max_new_tokens=12)
    assert ask["measure"]["requests"] == 2
    assert ask["measure"]["max_new_tokens"] == 12
    given = (
        "given SGLANG_ENABLE_METRICS_DEVICE_TIMER=1, SPT_NOENV=1, --enable-metrics,"
        " --enable-metrics-for-all-schedulers where it is known"
    )
    assert conditions == [given, "2 requests of 12 tokens a launch, one at a time"]
    _plan, ask, conditions = launch("sglang", concurrency=4)
    assert ask["measure"]["concurrency"] == 4
    assert "4 at a time" in conditions[1]


def test_what_the_user_sets_wins_over_the_engine_and_is_named() -> None:
    plan, _ask, conditions = launch("sglang", variables={"SGLANG_ENABLE_METRICS_DEVICE_TIMER": "0"}, flags={"--x": ""})
    assert plan.variables["SGLANG_ENABLE_METRICS_DEVICE_TIMER"] == "0"
    assert plan.argv[-1] == "--x"
    assert conditions[:2] == ["SGLANG_ENABLE_METRICS_DEVICE_TIMER set for every launch", "--x set for every launch"]


def test_a_command_stands_around_the_launch_or_in_its_place() -> None:
    around = command_engine("bench.sh --port @PORT@ -- @LAUNCH@", r"(\d+)", "/s", 3, 60.0)
    plan, ask, conditions = launch("vllm", engine=around, flags={"--tp": "4"})
    server = ["python", "-m", "sglang.launch_server", "--tp", "4", "--port", "@PORT@"]
    assert plan.argv == ["bench.sh", "--port", "@PORT@", "--", *server]
    assert ask["run"] == {"pattern": r"(\d+)", "ms": 1e3, "rate": True, "skip": 3, "timeout_s": 60.0}
    assert around.takes_flags
    assert any("counted as the time that one takes" in line for line in conditions)
    alone = command_engine("bench.sh", r"(\d+)")
    assert launch("vllm", engine=alone)[0].argv == ["bench.sh"]
    assert not alone.takes_flags
    captured = launch("vllm", engine=command_engine(None, r"(\d+)"))[0].argv
    assert captured == ["python", "-m", "sglang.launch_server", "--tp", "2", "--port", "@PORT@"]


def test_a_figure_of_the_past_counts_only_where_it_was_taken_in_the_same_way() -> None:
    def then(metric: str = "verify_ms", engine: Engine = SGLANG, **details: object) -> float | None:
        taken = {"metric": "verify_ms", "value": 19.0, "source": "engine timer", **details}
        figure = past(Measured.model_validate(taken), engine, metric)
        return None if figure is None else figure.value

    assert then(max_new_tokens=SGLANG.max_new_tokens) == 19.0
    assert then() == 19.0  # a file of an earlier version, which always asked for as many
    assert then(max_new_tokens=8) is None
    assert then(engine=replace(SGLANG, concurrency=4)) is None
    assert then("cycle_ms") is None
    assert then("cycle_ms", batches={"1": {"figures": {"cycle_ms": 30.0}}}) == 30.0
    assert past(None, SGLANG, "verify_ms") is None


def test_figures_of_the_past_are_a_pair_only_where_they_are_of_one_source() -> None:
    def taken(value: float, source: str) -> Snapshot:
        measured = {"metric": "verify_ms", "value": value, "source": source}
        return live("sglang").model_copy(update={"measured": Measured.model_validate(measured)})

    def then(old: str, new: str, **given: float) -> Then | None:
        options = Options(folder=Path("case"), **given)  # type: ignore[arg-type]
        return _then(taken(19.0, old), taken(26.0, new), SGLANG, "verify_ms", options)

    least = "engine timer, least of 2 ranks"
    assert then(least, least) == Then(old_ms=19.0, new_ms=26.0)
    assert then("engine timer", least) is None
    said = f"how the two measured figures compare: the old one is of the engine timer, the new of the {least}"
    assert said in unseen(taken(19.0, "engine timer"), taken(26.0, least))
    assert said not in unseen(taken(19.0, least), taken(26.0, least))
    assert then("engine timer", least, then_old_ms=20.0) == Then(old_ms=20.0, new_ms=26.0)


def test_launches_are_compared_by_the_figure_that_is_asked_for() -> None:
    chosen, conditions = engine_with(live("sglang"), Options(folder=Path("case"), figure="cycle_ms"))
    assert chosen.metrics == ("cycle_ms",)
    assert "compared by cycle_ms" in conditions
    with pytest.raises(UsageError, match="not compared by draft_ms; choose from verify_ms, gpu_cycle_ms, cycle_ms"):
        launch("sglang", figure="draft_ms")


def test_what_was_asked_for_can_be_typed_again() -> None:
    engine = command_engine("bench.sh 'a b'", r"(\d+) ms", skip=2)
    options = Options(folder=Path("case"), engine=engine, requests=3, figure="time_ms")
    words = asked(options)
    assert words == ["--engine", "command", "--command", "bench.sh 'a b'", "--metric", r"(\d+) ms", "--unit", "ms",
                     "--skip", "2", "--requests", "3", "--figure", "time_ms"]  # fmt: skip


def test_a_control_needs_a_launch_that_speculates() -> None:
    assert SGLANG.speculates(["python", "-m", "sglang.launch_server", "--speculative-algorithm=EAGLE3"])
    assert not SGLANG.speculates(["python", "-m", "sglang.launch_server", "--tp", "2"])
    assert not command_engine("bench.sh", r"(\d+)").speculates(["bench.sh", "--speculative-algorithm", "EAGLE3"])
