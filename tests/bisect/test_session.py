"""The protocol between search and host, with a host that answers from a script: what counts, what is repeated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fingerprint.bisect import noise
from fingerprint.bisect.journal import FigureLine, Journal, OpenLine, TrialLine
from fingerprint.bisect.search import Search
from fingerprint.bisect.session import Session
from fingerprint.bisect.verdict import Then
from fingerprint.engines import REFERENCE
from fingerprint.errors import HostProgramError, LaunchError
from fingerprint.factors import Factor
from fingerprint.factors.variables import Variable
from snapshots import Process, Server, Snapshot

START = datetime(2026, 11, 3, 9, 0, tzinfo=timezone.utc)
FACTORS: dict[str, Factor] = {
    f"variable:{name}": Variable(f"variable:{name}", "1", "2", name, "1", "2") for name in ("A", "B", "C")
}


def live() -> Snapshot:
    launcher = Process(
        role="launcher", pid=1, parent=0, title="", argv=["python", "-m", "tinyserve.launch_server"],
        executable="/venv/bin/python", cwd="/srv", started=0.0, at_exec={"A": "2", "B": "2", "C": "2"}, variables={},
    )  # fmt: skip
    return Snapshot(
        tool="0",
        taken_at=START,
        target="local",
        server=Server(status="ok", engine="tinyserve", processes={"launcher": launcher}),
    )


class Scripted:
    """In a host program's place: each launch is answered by `answer(plan)`, a figure in ms or an error to raise."""

    def __init__(self, answer: Callable[[dict[str, Any]], object]) -> None:
        self.answer = answer
        self.plans: list[dict[str, Any]] = []

    def call(self, name: str, args: dict[str, Any], _on_event: object = None) -> dict[str, Any]:
        assert name == "try"
        self.plans.append(args)
        given = self.answer(args)
        if isinstance(given, Exception):
            raise given
        if isinstance(given, dict):
            return given
        return answer_of(given)


def answer_of(verify_ms: object, **changes: object) -> dict[str, Any]:
    figures = {"verify_ms": verify_ms, "cycle_ms": 9.0, "sources": {"verify_ms": "engine timer", "cycle_ms": "stream"}}
    whole = {
        "figures": figures,
        "facts": {},
        "proof": [],
        "watch": {"steal_share": 0.0},
        "isolation": "overlay",
        "seconds": {},
        "stubborn": [],
        "missing": [],
        "lingering": [],
        "restored": [],
    }
    return {**whole, **changes}


class Nobody:
    def launching(self, number: int, new: frozenset[str], search: Search) -> None: ...
    def stage(self, number: int, stage: str) -> None: ...
    def launched(self, line: TrialLine, search: Search) -> None: ...
    def comparing(self, line: FigureLine, search: Search) -> None: ...
    def opening(self, line: OpenLine) -> None: ...


def session(host: Scripted, path: Path) -> Session:
    clock = iter(START + timedelta(minutes=minute) for minute in range(10_000))
    return Session(
        host=host,  # type: ignore[arg-type]
        live=live(),
        engine=REFERENCE,
        factors=FACTORS,
        search=Search(sorted(FACTORS)),
        journal=Journal(path / "journal.jsonl"),
        observer=Nobody(),
        now=lambda: next(clock),
    )


def by_b(plan: dict[str, Any]) -> float:
    jitter = 0.01 * (sum(map(ord, str(sorted(plan["variables"].items())))) % 7)
    return (15.0 if plan["variables"]["B"] == "2" else 10.0) + jitter


def test_the_factor_that_the_host_answers_to_is_named_and_every_launch_is_in_the_journal(tmp_path: Path) -> None:
    host = Scripted(by_b)
    verdict = session(host, tmp_path).run()
    assert verdict.kind == "attributed"
    assert [sorted(one.factors) for one in verdict.culprits] == [["variable:B"]]
    lines = Journal(tmp_path / "journal.jsonl").trials()
    assert [line.number for line in lines] == list(range(1, len(host.plans) + 1))
    assert all(line.status == "measured" and line.metric == "verify_ms" for line in lines)
    for line, plan in zip(lines, host.plans, strict=True):
        assert {name for name in FACTORS if plan["variables"][name[-1]] == "2"} == set(line.new)
        assert plan["argv"][-5:] == ["--host", "127.0.0.1", "--port", "@PORT@", "--enable-metrics"]


def test_a_resumed_session_repeats_no_launch_and_comes_to_the_same_end(tmp_path: Path) -> None:
    whole = Scripted(by_b)
    (tmp_path / "whole").mkdir()
    expected = session(whole, tmp_path / "whole").run()
    first = Scripted(by_b)

    class StoppedError(Exception):
        pass

    def three_launches(plan: dict[str, Any]) -> object:
        if len(first.plans) > 3:
            raise StoppedError
        return by_b(plan)

    first.answer = three_launches
    with pytest.raises(StoppedError):
        session(first, tmp_path).run()
    second = Scripted(by_b)
    resumed = session(second, tmp_path)
    assert resumed.replay() == 3
    verdict = resumed.run()
    assert len(second.plans) == len(whole.plans) - 3
    assert verdict.kind == expected.kind
    assert verdict.culprits[0].factors == expected.culprits[0].factors


def test_a_launch_that_failed_once_is_repeated_and_says_so(tmp_path: Path) -> None:
    script: deque[object] = deque([HostProgramError("it died", kind="launch"), 10.0])
    host = Scripted(lambda plan: script.popleft() if script else by_b(plan))
    session(host, tmp_path).run()
    first = Journal(tmp_path / "journal.jsonl").trials()[0]
    assert first.status == "measured"
    assert first.marks == ["repeated: it died"]


def test_a_launch_that_failed_twice_is_unlaunchable_with_its_reason(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> object:
        both = plan["variables"]["A"] == "1" and plan["variables"]["B"] == "2" and plan["variables"]["C"] == "1"
        return HostProgramError("A old with B new does not start", kind="launch") if both else by_b(plan)

    session(Scripted(answer), tmp_path).run()
    lines = [line for line in Journal(tmp_path / "journal.jsonl").trials() if line.status == "unlaunchable"]
    assert all(line.reason == "A old with B new does not start" for line in lines)


def test_a_live_side_that_cannot_be_launched_ends_in_one_sentence(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> object:
        new = all(plan["variables"][name] == "2" for name in "ABC")
        return HostProgramError("no GPU is free", kind="launch") if new else 10.0

    with pytest.raises(LaunchError, match="no GPU is free"):
        session(Scripted(answer), tmp_path).run()


def test_a_factor_that_did_not_arrive_makes_the_launch_void(tmp_path: Path) -> None:
    void = {"factor": "variable:A", "what": "variable", "ok": False, "seen": "rank 0 has none"}
    script: deque[object] = deque([answer_of(3.0, proof=[void])])
    host = Scripted(lambda plan: script.popleft() if script else by_b(plan))
    verdict = session(host, tmp_path).run()
    first = Journal(tmp_path / "journal.jsonl").trials()[0]
    assert first.status == "void"
    assert first.value_ms is None
    assert "variable:A was not in effect: rank 0 has none" in first.reason
    assert verdict.kind == "attributed"


EAGER = {"unread": "it is counted under `extend`"}


def eager(plan: dict[str, Any], where: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A host on which B new makes the cycle slow, and some launches have no verify time."""
    cycle = 5.0 + by_b(plan)
    sources = {"verify_ms": "engine timer", "cycle_ms": "stream"}
    figures = {"verify_ms": EAGER if where(plan) else by_b(plan), "cycle_ms": cycle, "sources": sources}
    return answer_of(0.0, figures=figures)


def b_new(plan: dict[str, Any]) -> bool:
    return bool(plan["variables"]["B"] == "2")


@pytest.mark.parametrize("lacks", ["old", "new"])
def test_launches_are_compared_by_the_best_figure_that_both_ends_have(tmp_path: Path, lacks: str) -> None:
    host = Scripted(lambda plan: eager(plan, lambda plan: b_new(plan) == (lacks == "new")))
    made = session(host, tmp_path)
    made.then = {"verify_ms": Then(old_ms=1.0, new_ms=2.0), "cycle_ms": Then(old_ms=15.0, new_ms=20.0)}
    verdict = made.run()
    assert (verdict.kind, [sorted(one.factors) for one in verdict.culprits]) == ("attributed", [["variable:B"]])
    journal = Journal(tmp_path / "journal.jsonl")
    lines = journal.trials()
    assert len(lines) == len(host.plans)
    assert {(line.status, line.metric, line.source) for line in lines} == {("measured", "cycle_ms", "stream")}
    for line, plan in zip(lines, host.plans, strict=True):
        assert line.value_ms == 5.0 + by_b(plan)
    [decided] = [line for line in journal.lines() if isinstance(line, FigureLine)]
    assert decided.reason == f"with everything {lacks} there is no verify_ms: it is counted under `extend`"
    assert (decided.then_old_ms, decided.then_new_ms) == (15.0, 20.0)
    assert verdict.then == Then(old_ms=15.0, new_ms=20.0)
    assert made.search.noise == noise.prior("reference", "cycle_ms")
    again = session(Scripted(lambda _plan: AssertionError("nothing is left to launch")), tmp_path)
    again.search = again.search.anew(noise.prior("reference", "cycle_ms"), verdict.then)
    assert again.replay() == len(lines)
    assert again.run() == verdict


def test_a_bisect_that_was_stopped_between_both_ends_goes_on_by_the_figure_that_they_share(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    host = Scripted(lambda plan: StoppedError() if len(host.plans) == 2 else eager(plan, b_new))
    with pytest.raises(StoppedError):
        session(host, tmp_path).run()
    resumed = session(Scripted(lambda plan: eager(plan, b_new)), tmp_path)
    assert resumed.replay() == 1
    assert resumed.metric == "verify_ms"
    assert resumed.run().kind == "attributed"
    assert {line.metric for line in Journal(tmp_path / "journal.jsonl").trials()} == {"cycle_ms"}


def test_both_ends_are_launched_without_speculation_twice_and_never_again(tmp_path: Path) -> None:
    plain = {
        "tokens_per_second": 80.0,
        "cycle_ms": 12.5,
        "sources": dict.fromkeys(("tokens_per_second", "cycle_ms"), "stream"),
    }

    def answer(plan: dict[str, Any]) -> object:
        if plan["variables"]["B"] == "1":
            return HostProgramError("no GPU is free", kind="launch")
        return answer_of(0.0, figures=plain)

    (tmp_path / "journal.jsonl").touch()
    host = Scripted(answer)
    made = session(host, tmp_path)
    launcher = made.live.server.processes["launcher"]
    assert isinstance(launcher.argv, list)
    words = ["--speculative-algorithm", "EAGLE3", "--tp", "2", "--speculative-num-steps=3"]
    launcher = launcher.model_copy(update={"argv": [*launcher.argv, *words]})
    made.live = made.live.model_copy(
        update={"server": made.live.server.model_copy(update={"processes": {"launcher": launcher}})}
    )
    lines = made.control()
    old, new, *again = lines
    assert [line.side for line in again] == ["new", "old"]
    for line in (old, again[1]):
        assert (line.side, line.tokens_per_second, line.reason) == ("old", None, "no GPU is free")
    for line in (new, again[0]):
        assert (line.side, line.tokens_per_second, line.step_ms) == ("new", 80.0, 12.5)
    assert [plan["argv"][3:5] for plan in host.plans] == [["--tp", "2"]] * 4
    assert not any(word.startswith("--speculative") for plan in host.plans for word in plan["argv"])
    resumed = session(Scripted(lambda _plan: AssertionError("both were launched already")), tmp_path)
    assert resumed.control() == lines
    text = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_text("".join(text[:-1]))
    host = Scripted(answer)
    cut = session(host, tmp_path)
    cut.live = made.live
    assert [line.side for line in cut.control()] == ["old", "new", "new", "old"]
    assert len(host.plans) == 1
    assert Journal(tmp_path / "journal.jsonl").trials() == []


def test_a_launch_without_the_figure_of_both_ends_is_void_and_says_the_way_out(tmp_path: Path) -> None:
    def mixed(plan: dict[str, Any]) -> bool:
        return len({plan["variables"][name] for name in "ABC"}) > 1 and b_new(plan)

    session(Scripted(lambda plan: eager(plan, mixed)), tmp_path).run()
    lines = Journal(tmp_path / "journal.jsonl").trials()
    void = [line for line in lines if line.status == "void"]
    assert void
    assert {line.metric for line in lines if line.status == "measured"} == {"verify_ms"}
    assert "cannot be compared by verify_ms of the engine timer" in void[0].reason
    assert "it is counted under `extend`" in void[0].reason
    assert void[0].reason.endswith("--figure cycle_ms compares all launches by that")


@pytest.mark.parametrize("plain", ["1", "2"])
def test_a_step_of_plain_decoding_is_not_compared_with_a_cycle(tmp_path: Path, plain: str) -> None:
    def answer(plan: dict[str, Any]) -> object:
        speculates = plan["variables"]["A"] != plain
        unread = {"unread": "the server does not speculate"}
        figures = {
            "verify_ms": 9.0 if speculates else unread,
            "accept_length": 2.0 if speculates else unread,
            "cycle_ms": 20.0 if speculates else 12.0,
            "sources": {"verify_ms": "engine timer", "cycle_ms": "stream"},
        }
        return answer_of(0.0, figures=figures)

    verdict = session(Scripted(answer), tmp_path).run()
    assert verdict.culprits == ()
    lines = Journal(tmp_path / "journal.jsonl").trials()
    first = "variable:A" in lines[0].new
    other = [line for line in lines if ("variable:A" in line.new) != first]
    assert other
    assert {line.status for line in other} == {"void"}
    assert "a step of plain decoding is no cycle" in other[0].reason


def test_ends_that_share_no_figure_are_void(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> object:
        figures = {"verify_ms": EAGER} if b_new(plan) else {"verify_ms": 9.0, "cycle_ms": 9.0}
        return answer_of(0.0, figures={**figures, "sources": {"verify_ms": "engine timer", "cycle_ms": "stream"}})

    verdict = session(Scripted(answer), tmp_path).run()
    assert verdict.culprits == ()
    lines = Journal(tmp_path / "journal.jsonl").trials()
    assert {line.status for line in lines if "variable:B" in line.new} == {"void"}


def test_a_disturbed_launch_is_repeated_then_marked(tmp_path: Path) -> None:
    script: deque[object] = deque([answer_of(10.0, watch={"steal_share": 0.4})] * 2)
    host = Scripted(lambda plan: script.popleft() if script else by_b(plan))
    session(host, tmp_path).run()
    first = Journal(tmp_path / "journal.jsonl").trials()[0]
    assert first.status == "measured"
    assert "disturbed twice" in first.marks


def test_a_fault_of_our_own_is_not_taken_for_a_result(tmp_path: Path) -> None:
    host = Scripted(lambda _plan: HostProgramError("KeyError: 'x'", kind="fault"))
    with pytest.raises(HostProgramError, match="KeyError"):
        session(host, tmp_path).run()
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_launch_that_does_other_work_than_the_first_is_marked(tmp_path: Path) -> None:
    def answer(plan: dict[str, Any]) -> dict[str, Any]:
        other = plan["variables"]["A"] == "1"
        figures = {
            "verify_ms": by_b(plan),
            "sources": {"verify_ms": "engine timer"},
            "outputs": "other" if other else "same",
            "accept_length": 2.5 if other else 3.0,
        }
        return answer_of(0.0, figures=figures, watch={"throttled_s": 0.25 if other else 0.0})

    session(Scripted(answer), tmp_path).run()
    lines = Journal(tmp_path / "journal.jsonl").trials()
    first = "variable:A" in lines[0].new
    for line in lines:
        other = "variable:A" not in line.new
        assert ("its CPU quota held it up for 0.25 s" in line.marks) == other
        unlike = other == first
        assert any("generated other tokens than launch 1" in mark for mark in line.marks) == unlike
        assert any(mark.startswith("its accept length was") for mark in line.marks) == unlike


def test_what_could_not_be_put_back_and_what_is_unlike_the_live_server_is_said(tmp_path: Path) -> None:
    lost = "proc/sys/kernel/numa_balancing could NOT be put back to 0: it is 1"
    unlike = "unlike the live server's, its nice is not -5: Permission denied"
    made = session(
        Scripted(lambda plan: answer_of(by_b(plan), restored=[lost, "vm.x is 1 again"], missing=[unlike])), tmp_path
    )
    made.run()
    assert made.unlike == [unlike]
    assert {tuple(line.marks) for line in Journal(tmp_path / "journal.jsonl").trials()} == {(lost,)}
