"""A file must keep its id when later versions of the models know more fields."""

from __future__ import annotations

from snapshots import Part, identity_digest


class Before(Part):
    name: str


class After(Part):
    name: str
    nice: int = 0
    flags: list[str] = []
    path: str = ""


def test_fields_that_a_later_version_adds_do_not_change_the_id() -> None:
    assert identity_digest(Before(name="rank 0")) == identity_digest(After(name="rank 0"))


def test_a_value_other_than_the_default_does_change_it() -> None:
    assert identity_digest(After(name="rank 0")) != identity_digest(After(name="rank 0", nice=5))
