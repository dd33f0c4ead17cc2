"""Files that trials put in place, on the host: whole or not at all, bounded, and gone at the end."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.bisect.run import PIECE_BYTES, send_objects
from fingerprint.capture import Store
from fingerprint.factors import Evidence
from fingerprint.host import HostProgram
from fingerprint.targets.local import LocalTarget
from probes import keeper, objects


def pieces(data: bytes, length: int) -> list[dict[str, object]]:
    digest = hashlib.sha256(data).hexdigest()
    return [
        {"sha256": digest, "size": len(data), "offset": at, "data": b64encode(data[at : at + length]).decode()}
        for at in range(0, max(len(data), 1), length)
    ]


@given(st.binary(max_size=300), st.integers(1, 100))
def test_a_file_is_the_same_however_it_was_cut(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, length: int
) -> None:
    store = objects.Objects(str(tmp_path_factory.mktemp("store")))
    sent = pieces(data, length)
    digest = str(sent[0]["sha256"])
    for piece in sent:
        assert not store.has(digest)
        store.put(piece)
    assert store.has(digest)
    assert Path(store.folder, digest).read_bytes() == data
    store.close()
    assert not Path(store.folder).exists()


def test_what_is_not_what_it_is_called_is_refused(tmp_path: Path) -> None:
    store = objects.Objects(str(tmp_path / "store"))
    one, two = pieces(b"some bytes", 5)
    with pytest.raises(objects.NoRoomError, match="another digest"):
        store.put({**one, "size": 5})
    with pytest.raises(objects.NoRoomError, match="is missing before byte 5"):
        objects.Objects(str(tmp_path / "other")).put(two)
    with pytest.raises(objects.NoRoomError, match="is no SHA-256"):
        store.put({**one, "sha256": "../escape"})
    assert [path.name for path in (tmp_path / "store").iterdir()] == [".partial"]


def test_what_does_not_fit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    store = objects.Objects(str(tmp_path / "store"))
    (one,) = pieces(b"x", 5)
    with pytest.raises(objects.NoRoomError, match="does not fit"):
        store.put({**one, "size": 1 << 60})
    assert not store.has(str(one["sha256"]))


def test_objects_vanish_with_the_program() -> None:
    (piece,) = pieces(b"kept for trials", 100)
    with HostProgram(LocalTarget()) as host:
        digests = [piece["sha256"], "0" * 64]
        assert host.call("keep", {"digests": digests}) == {"missing": digests}
        assert host.call("keep", {"pieces": [piece], "digests": digests}) == {"missing": ["0" * 64]}
        (held,) = Path("/tmp").glob(f"fingerprint-trial-{host.greeting['pid']}-*-objects")
        assert (held / str(piece["sha256"])).read_bytes() == b"kept for trials"
        assert keeper._is_held(str(held))  # a program that does not see the owner's process lets it be
    assert not held.exists()


def test_files_large_and_small_are_sent_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    digests = [store.put(data) for data in (b"", b"small", b"x" * PIECE_BYTES, b"y" * (2 * PIECE_BYTES + 7))]
    with HostProgram(LocalTarget()) as host:
        send_objects(host, Evidence((store,)), digests)
        (held,) = Path("/tmp").glob(f"fingerprint-trial-{host.greeting['pid']}-*-objects")
        assert {path.name: path.read_bytes() for path in held.iterdir()} == {one: store.get(one) for one in digests}
        at = {path.name: path.stat().st_mtime_ns for path in held.iterdir()}
        send_objects(host, Evidence((store,)), digests)
        assert {path.name: path.stat().st_mtime_ns for path in held.iterdir()} == at
