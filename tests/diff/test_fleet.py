"""More than two hosts: the odd one out, key by key."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.diff.fleet import fleet
from fingerprint.errors import UsageError
from snapshots import Distribution, Packages, Snapshot


def host(**versions: str) -> Snapshot:
    dists = {name: Distribution(version=version, location="/x") for name, version in versions.items()}
    return Snapshot(
        tool="test",
        taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        target="here",
        packages=Packages(status="ok", distributions=dists),
    )


def test_the_odd_host_is_named_and_equal_hosts_are_one_group() -> None:
    hosts = {name: host(torch="2.8.0", triton="3.4.0") for name in ("a", "b", "d")}
    result = fleet({**hosts, "c": host(torch="2.8.0", triton="3.6.0")})
    assert result.groups == (("a", "b", "d"), ("c",))
    (row,) = result.rows
    assert row.odd == ("c",)
    assert [(value.leaf, value.hosts) for value in row.values] == [("3.4.0", ("a", "b", "d")), ("3.6.0", ("c",))]


def test_every_host_may_be_odd_in_something_else() -> None:
    hosts = {
        "a": host(torch="1", triton="1", numpy="2"),
        "b": host(torch="1", triton="2", numpy="1"),
        "c": host(torch="2", triton="1", numpy="1"),
    }
    odd = {row.difference.title: row.odd for row in fleet(hosts).rows}
    assert odd == {"torch": ("c",), "triton": ("b",), "numpy": ("a",)}


def test_two_hosts_have_no_odd_one() -> None:
    (row,) = fleet({"a": host(torch="1"), "b": host(torch="2")}).rows
    assert row.odd == ()
    assert len(row.values) == 2


def test_what_a_host_could_not_read_is_no_value() -> None:
    blind = host().model_copy(update={"packages": Packages(status="failed", reason="no interpreter")})
    result = fleet({"a": host(torch="1"), "b": host(torch="1"), "c": blind})
    assert not result.rows
    assert [row.odd for row in result.not_comparable] == [("c",)]
    assert not result.equal


def test_a_host_that_could_not_read_something_is_not_said_to_have_the_usual_value() -> None:
    blind = host().model_copy(update={"packages": Packages(status="failed", reason="no interpreter")})
    result = fleet({"a": host(torch="1"), "b": host(torch="1"), "c": host(torch="2"), "d": blind})
    (row,) = result.rows
    assert [(value.leaf, value.hosts) for value in row.values] == [("1", ("a", "b")), ("2", ("c",))]
    assert row.odd == ("c",)


def test_one_host_is_refused() -> None:
    with pytest.raises(UsageError, match="at least two"):
        fleet({"a": host()})


versions = st.sampled_from(["1", "2", "3"])


@given(st.dictionaries(st.sampled_from("abcdef"), st.builds(host, torch=versions, triton=versions), min_size=2))
def test_each_row_names_every_host_once_and_the_order_of_hosts_does_not_matter(hosts: dict[str, Snapshot]) -> None:
    result = fleet(hosts)
    for row in result.rows:
        assert sorted(name for value in row.values for name in value.hosts) == sorted(hosts)
    assert fleet(dict(reversed(hosts.items()))) == result
