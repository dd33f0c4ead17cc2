"""Which variables of a launch are factors."""

from __future__ import annotations

from datetime import datetime, timezone

from fingerprint.factors.base import Evidence, Factor, Fixed
from fingerprint.factors.variables import find
from snapshots import Process, Server, Snapshot


def snapshot(launched: str | None, in_rank: str | None) -> Snapshot:
    def process(role: str, value: str | None) -> Process:
        variables = {"PATH": "/bin", **({} if value is None else {"CUDA_DEVICE_MAX_CONNECTIONS": value})}
        return Process(
            role=role, pid=1, parent=1, title="", argv=[], executable="/bin/python", cwd="/", started=1.0,
            at_exec=variables, variables=variables,
        )  # fmt: skip

    processes = {"launcher": process("launcher", launched), "rank 0": process("rank", in_rank)}
    taken = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Snapshot(tool="1", taken_at=taken, target="here", server=Server(status="ok", processes=processes))


def test_a_variable_that_the_engine_sets_itself_is_switched_by_no_launch() -> None:
    [found] = find(snapshot("1", "8"), snapshot("8", "8"), Evidence())
    assert isinstance(found, Fixed)
    assert "rank 0 has 8 whatever the launch says (1 on the old side)" in found.reason
    [factor] = find(snapshot("1", "1"), snapshot("8", "8"), Evidence())
    assert isinstance(factor, Factor)


def test_a_variable_that_got_lost_on_the_way_to_a_rank_is_switched_by_no_launch() -> None:
    [found] = find(snapshot(None, None), snapshot("8", None), Evidence())
    assert isinstance(found, Fixed)
    assert "rank 0 has none" in found.reason
