"""The file is whole or refused in a sentence; the id says what the environment is and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots import (
    SCHEMA,
    Distribution,
    Host,
    NotASnapshotError,
    Packages,
    Process,
    Server,
    Snapshot,
    Unread,
    identity_digest,
    leaves,
    load,
    parse,
    save,
)

WHEN = datetime(2031, 1, 1, tzinfo=timezone.utc)
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.one_of(texts, st.builds(Unread, unread=texts))
distributions = st.dictionaries(
    texts,
    st.builds(
        Distribution, version=values, location=texts, record=st.one_of(st.none(), values), requires=st.lists(texts)
    ),
    max_size=4,
)
processes = st.dictionaries(
    texts,
    st.builds(
        Process, role=st.sampled_from(["launcher", "rank"]), pid=st.integers(1, 99), parent=st.just(1), title=texts,
        argv=st.lists(texts), executable=values, cwd=values, started=st.floats(0, 1e10),
        at_exec=st.dictionaries(texts, texts),
        variables=st.one_of(st.dictionaries(texts, texts), st.builds(Unread, unread=texts)),
    ),
    max_size=3,
)  # fmt: skip
arguments = st.dictionaries(
    texts,
    st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-99, 99), texts), st.lists),
    max_size=4,
)
snapshots = st.builds(
    lambda dists, running, told, where: Snapshot(
        tool="test", taken_at=WHEN, target=where, packages=Packages(status="ok", distributions=dists),
        server=Server(status="ok", processes=running, arguments=told),
    ),
    distributions, processes, arguments, texts,
)  # fmt: skip


def example(**changes: Any) -> Snapshot:  # noqa: ANN401
    return Snapshot(tool="test", taken_at=WHEN, target="here", host=Host(status="ok", kernel="6.8", **changes))


@given(snapshots)
def test_what_is_written_is_what_is_read(snapshot: Snapshot) -> None:
    assert parse(snapshot.text(), "it") == snapshot


@given(snapshots)
def test_the_id_does_not_depend_on_order_or_on_state(snapshot: Snapshot) -> None:
    reordered = snapshot.model_copy(
        update={
            "target": "elsewhere",
            "seconds": 5.0,
            "packages": snapshot.packages.model_copy(
                update={"distributions": dict(reversed(snapshot.packages.distributions.items())), "seconds": 9.0}
            ),
        }
    )
    assert reordered.id == snapshot.id


@given(snapshots, st.data())
def test_every_identity_value_counts(snapshot: Snapshot, data: st.DataObject) -> None:
    name = data.draw(texts)
    changed = snapshot.model_copy(
        update={
            "packages": snapshot.packages.model_copy(
                update={
                    "distributions": {**snapshot.packages.distributions, name: Distribution(version="x", location="y")}
                }
            )
        }
    )
    same = dict(leaves(changed)) == dict(leaves(snapshot))
    assert (changed.id == snapshot.id) == same


def test_the_wording_of_a_reason_is_no_difference_but_being_unread_is() -> None:
    one, other = (
        Distribution(version=Unread(unread="a"), location="x"),
        Distribution(version=Unread(unread="b"), location="x"),
    )
    assert identity_digest(one) == identity_digest(other) != identity_digest(Distribution(version="1", location="x"))


@given(st.data())
def test_a_file_that_is_cut_anywhere_is_refused_in_a_sentence(data: st.DataObject) -> None:
    text = example().text()
    cut = text[: data.draw(st.integers(0, len(text) - 3))]
    with pytest.raises(NotASnapshotError) as refused:
        parse(cut, "the file")
    assert str(refused.value).startswith("the file ")


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.dictionaries(
        st.sampled_from(["schema", "id", "taken_at", "tool", "target", "packages", "server", "x"]), inner
    ),
)


@given(anything)
def test_whatever_json_it_is_the_answer_is_a_sentence(value: object) -> None:
    with pytest.raises(NotASnapshotError) as refused:
        parse(json.dumps(value), "the file")
    assert str(refused.value).startswith("the file ")


@given(snapshots)
def test_the_digest_is_that_of_the_rest_of_the_file_in_canonical_json(snapshot: Snapshot) -> None:
    body = json.loads(snapshot.text())
    digest = body.pop("digest")
    assert digest == hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def test_an_edited_file_is_noticed() -> None:
    with pytest.raises(NotASnapshotError, match="does not match its own digest"):
        parse(example().text().replace("6.8", "6.9"), "the file")


def test_a_file_without_a_digest_is_not_called_edited() -> None:
    body = json.loads(example().text())
    del body["digest"]
    with pytest.raises(NotASnapshotError, match="has no digest"):
        parse(json.dumps(body), "the file")


def test_a_newer_file_asks_for_an_upgrade() -> None:
    text = example().text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}')
    with pytest.raises(NotASnapshotError, match="upgrade fingerprint"):
        parse(text, "the file")


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(NotASnapshotError):
        parse("[" * 100_000, "the file")


@pytest.mark.parametrize("make", ["missing", "directory", "binary"])
def test_what_cannot_be_read_is_a_sentence(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x.json"
    if make == "directory":
        path.mkdir()
    elif make == "binary":
        path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(NotASnapshotError, match=r"x\.json"):
        load(path)


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep/x.json"
    save(example(), path)
    before = path.read_bytes()

    def fails(_handle: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="full"):
        save(example(swap_kib=7), path)
    assert path.read_bytes() == before
    assert [child.name for child in path.parent.iterdir()] == ["x.json"]


def test_every_value_of_a_whole_snapshot_is_a_leaf_also_state() -> None:
    body = {
        "schema": 1, "tool": "test", "taken_at": WHEN, "target": "x",
        "measured": {"metric": "verify_ms", "value": 1.0, "source": "s"},
        "server": {"status": "failed", "choices": [{"pid": 1, "port": None, "argv": ["a"]}]},
        "gpu": {"status": "ok", "gpus": {"0000:06:00.0": {"index": 0, "processes": [{"pid": 7, "foreign": True}]}}},
    }  # fmt: skip
    found = dict(leaves(Snapshot.model_validate(body), state=True))
    assert found["taken_at",] == WHEN.isoformat()
    assert "('foreign', True)" in repr(found["gpu", "gpus", "0000:06:00.0", "processes"])
    assert found["server", "choices"] == ((("argv", ("a",)), ("pid", 1)),)
    assert all(hash(leaf) is not None for leaf in found.values() if not isinstance(leaf, Unread))
