"""Which packages cannot be mixed, and which only move together."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from fingerprint.ties import Place, Tie, bundles, place_of, requirement_of, ties
from snapshots import Distribution, Host, Interpreter, Packages, Snapshot


def host(**packages: tuple[str, list[str]]) -> Snapshot:
    """A host with these packages: name to version and requirements."""
    installed = {
        name: Distribution(version=version, location="/venv", requires=requires)
        for name, (version, requires) in packages.items()
    }
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Snapshot(taken_at=now, target="local", tool="0", packages=Packages(status="ok", distributions=installed))


def test_packages_that_pin_each_other_in_both_directions_are_one_bundle() -> None:
    old = host(torch=("2.7.1", ["triton==3.3.1"]), triton=("3.3.1", []), numpy=("1.26", []))
    new = host(torch=("2.8.0", ["triton==3.4.0"]), triton=("3.4.0", []), numpy=("2.0", []))
    assert list(ties(old, new)) == [
        Tie("torch", "triton", "triton==3.4.0", exact=True, side="new"),
        Tie("torch", "triton", "triton==3.3.1", exact=True, side="old"),
    ]
    assert bundles(ties(old, new)) == (("torch", "triton"),)


def test_a_requirement_that_both_versions_meet_ties_nothing() -> None:
    old = host(torch=("2.7.1", ["numpy>=1.20"]), numpy=("1.26", []))
    new = host(torch=("2.8.0", ["numpy>=1.20"]), numpy=("2.0", []))
    assert not list(ties(old, new))


def test_a_new_package_that_needs_a_newer_one_is_an_order_and_no_bundle() -> None:
    old = host(sglang=("0.5.5", ["kernel>=0.3"]), kernel=("0.3.0", []))
    new = host(sglang=("0.5.8", ["kernel>=0.4"]), kernel=("0.4.0", []))
    assert [(tie.mover, tie.moved, tie.side) for tie in ties(old, new)] == [("sglang", "kernel", "new")]
    assert bundles(ties(old, new)) == ()


def test_a_requirement_that_is_broken_where_it_was_read_ties_nothing() -> None:
    old = host(torch=("2.7.1", []), triton=("3.3.1", []))
    new = host(torch=("2.8.0", ["triton==3.4.0"]), triton=("3.5.0", []))
    assert not list(ties(old, new))


def test_a_package_that_came_with_the_one_that_needs_it_is_tied_to_it() -> None:
    old = host(flashinfer=("0.6.6", []))
    new = host(flashinfer=("0.6.7", ["tvm-ffi<1"]), **{"tvm-ffi": ("0.1.2", [])})
    assert [(tie.mover, tie.moved, tie.side) for tie in ties(old, new)] == [("flashinfer", "tvm-ffi", "new")]


def test_other_platforms_and_extras_tie_nothing() -> None:
    old = host(torch=("2.7.1", []), triton=("3.3.1", []))
    wanted = ['triton==3.4.0; sys_platform == "win32"', 'triton==3.4.0; extra == "all"', "not a requirement ==="]
    assert not list(ties(old, host(torch=("2.8.0", wanted), triton=("3.4.0", []))))


def test_a_bundle_goes_through_others() -> None:
    old = host(a=("1", ["b==1"]), b=("1", ["c==1"]), c=("1", ["a==1"]), d=("1", ["a==1"]))
    new = host(a=("2", ["b==2"]), b=("2", ["c==2"]), c=("2", ["a==2"]), d=("2", []))
    assert bundles(ties(old, new)) == (("a", "b", "c"),)


NAMES = st.sampled_from("abcde")
PACKAGE = st.tuples(
    st.sampled_from("123"),
    st.lists(st.builds("{}{}{}".format, NAMES, st.sampled_from(["==", ">=", "<"]), st.sampled_from("123"))),
)


@given(st.dictionaries(NAMES, PACKAGE), st.dictionaries(NAMES, PACKAGE))
def test_bundles_are_disjoint_and_the_other_way_round_they_are_the_same(
    before: dict[str, tuple[str, list[str]]], after: dict[str, tuple[str, list[str]]]
) -> None:
    old, new = host(**before), host(**after)
    found = bundles(ties(old, new))
    members = [name for bundle in found for name in bundle]
    assert len(members) == len(set(members))
    assert all(len(bundle) > 1 for bundle in found)
    assert found == bundles(ties(new, old))


clauses = st.sampled_from(
    [
        'extra == "all"', "extra=='or'", '"all" == extra', 'extra != "all"', 'extra == ""', 'python_version >= "3.8"',
        'sys_platform == "win32"', 'sys_platform == "linux"', 'platform_machine == "extra"',
    ]
)  # fmt: skip


@given(
    st.recursive(clauses, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner))
)
def test_a_requirement_counts_exactly_where_its_marker_holds_without_an_extra(marker: str) -> None:
    text = f"torch>=2; {marker}"
    parsed = Requirement(text)
    assert parsed.marker is not None
    there = {"extra": "", "sys_platform": "linux", "platform_machine": "x86_64"}
    assert (requirement_of(text, Place()) is not None) == parsed.marker.evaluate(dict(there))


@pytest.mark.parametrize("marker", ['"x" == "y"', 'sys_platform ~= "linux"', '"extra" == "x"', "python_version > ;"])
def test_a_marker_that_means_nothing_is_no_requirement(marker: str) -> None:
    assert requirement_of(f"torch; {marker}", Place()) is None


@pytest.mark.parametrize(
    ("marker", "place", "holds"),
    [
        ('python_version < "3.11"', Place("3.10.12"), True),
        ('python_version < "3.11"', Place("3.12.3"), False),
        ('python_full_version >= "3.12.4"', Place("3.12.3"), False),
        ('platform_machine == "aarch64"', Place(machine="aarch64"), True),
        ('platform_machine == "aarch64"', Place(), False),
        ('python_version < "3.11"', Place("\x1b[31m"), False),
    ],
)
def test_a_marker_is_asked_of_the_host_and_not_of_this_interpreter(marker: str, place: Place, *, holds: bool) -> None:
    assert (requirement_of(f"numpy<2; {marker}", place) is not None) == holds


def test_a_snapshot_says_where_its_requirements_are_to_hold() -> None:
    interpreter = Interpreter(executable="/p", version="3.12.3", prefix="/", base_prefix="/", path=[])
    known = host().model_copy(
        update={"packages": Packages(status="ok", interpreter=interpreter), "host": Host(machine="aarch64")}
    )
    assert place_of(known) == Place("3.12.3", "aarch64")
    assert place_of(host()) == Place()
