"""Bundles: everything is proven, and a stranger's one does no harm."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerprint.case import Case
from fingerprint.errors import BundleError, UsageError
from fingerprint.report import bundle
from fingerprint.report.bundle import MANIFEST, SIGNATURE, findings, unpack_bundle, verify_bundle, write_bundle

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")


@pytest.fixture
def made(cases: dict[str, Case], tmp_path: Path) -> Path:
    path = tmp_path / "case.zip"
    write_bundle(cases["attributed"], path)
    return path


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None], add: dict[str, bytes] | None = None) -> None:
    """The same zip with other contents."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in held.items():
            if (changed := change(name, data)) is not None:
                archive.writestr(name, changed)
        for name, data in (add or {}).items():
            archive.writestr(name, data)


def test_a_bundle_holds_the_case_and_is_whole(made: Path, cases: dict[str, Case]) -> None:
    verified = verify_bundle(made)
    assert verified.whole
    assert verified.signature == "none"
    assert {"old.json", "new.json", "journal.jsonl", "verdict.json", "report.md", "report.html"} < set(
        verified.manifest.files
    )
    assert any(name.startswith("pictures/") for name in verified.manifest.files)


def test_what_is_unpacked_is_the_case(made: Path, cases: dict[str, Case], tmp_path: Path) -> None:
    unpack_bundle(made, tmp_path / "there")
    for name in verify_bundle(made).manifest.files:
        assert (tmp_path / "there" / name).read_bytes() == (cases["attributed"].folder / name).read_bytes()
    assert Case.open(tmp_path / "there").outcome() == cases["attributed"].outcome()
    with pytest.raises(BundleError, match="exists already"):
        unpack_bundle(made, tmp_path / "there")


def test_one_changed_byte_is_named(made: Path, tmp_path: Path) -> None:
    rewrite(made, lambda name, data: data.replace(b"Simple", b"simple", 1) if name == "journal.jsonl" else data)
    verified = verify_bundle(made)
    assert verified.altered == ("journal.jsonl",)
    assert "altered: journal.jsonl" in findings(verified)
    assert not verified.whole
    with pytest.raises(BundleError, match=r"journal\.jsonl"):
        unpack_bundle(made, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_missing_and_added_files_are_named(made: Path) -> None:
    rewrite(made, lambda name, data: None if name == "old.json" else data, {"extra.txt": b"hello"})
    verified = verify_bundle(made)
    assert (verified.missing, verified.extra) == (("old.json",), ("extra.txt",))


def test_a_file_longer_than_it_claims_is_altered(made: Path) -> None:
    def shorter(name: str, data: bytes) -> bytes:
        if name != MANIFEST:
            return data
        manifest = json.loads(data)
        manifest["files"]["new.json"]["bytes"] -= 1
        return json.dumps(manifest).encode()

    rewrite(made, shorter)
    assert verify_bundle(made).altered == ("new.json",)


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "a/../../b",
        "C:\\evil",
        "a\\b",
        ".hidden",
        "a//b",
        "a/./b",
        "x\x00y",
        "caf\u00e9",
        "a\nb",
    ],
)
def test_a_name_that_leads_elsewhere_is_not_opened(made: Path, name: str, tmp_path: Path) -> None:
    rewrite(made, lambda _name, data: data, {"placeholder": b"x"})
    raw = made.read_bytes()
    spare = name.encode()[:11].ljust(11, b"z")
    made.write_bytes(raw.replace(b"placeholder", spare))
    if b"\x00" in spare:
        # zipfile ends a name at a null byte; what is left must still be simple, or it is refused.
        assert verify_bundle(made).extra
        return
    with pytest.raises(BundleError):
        unpack_bundle(made, tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == [made.name]


def test_a_link_is_not_opened(made: Path) -> None:
    with zipfile.ZipFile(made, "a") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(BundleError, match="no plain file"):
        verify_bundle(made)


def test_the_same_name_twice_is_not_opened(made: Path) -> None:
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("Old.json", b"{}")
    with pytest.raises(BundleError, match="twice"):
        verify_bundle(made)


def test_a_bomb_is_not_unpacked(made: Path, tmp_path: Path) -> None:
    huge = b"\0" * (64 << 20)
    rewrite(made, lambda name, data: huge if name == "report.md" else data)
    assert verify_bundle(made).altered == ("report.md",)


def test_reading_stops_one_byte_past_what_is_allowed(made: Path) -> None:
    rewrite(made, lambda _name, data: data, {"big": b"\0" * (32 << 20)})
    with zipfile.ZipFile(made) as archive:
        assert sum(len(piece) for piece in bundle._pieces(archive, "big", 1000)) == 1001


def test_a_directory_of_too_many_files_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(bundle.MOST_FILES + 3):
            archive.writestr(f"f{number}", b"")
    with pytest.raises(BundleError, match="more files than any bundle"):
        verify_bundle(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"not a zip" * 100, b"PK\x05\x06" + b"\xff" * 18, b"PK\x05\x06" + bytes(18)]
)
def test_what_is_no_zip_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"x\.zip"):
        verify_bundle(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_bundle_is_refused_or_reported_never_believed(made: Path, data: st.DataObject) -> None:
    whole = made.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    piece = data.draw(st.binary(min_size=1, max_size=8))
    changed = whole[:at] + piece + whole[at + len(piece) :]
    path = made.with_name("damaged.zip")
    path.write_bytes(changed)
    try:
        verified = verify_bundle(path)
    except BundleError:
        return
    if verified.whole:
        # The change hit nothing that carries meaning (a time stamp): all contents are as they were.
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made) as original:
            assert all(archive.read(name) == original.read(name) for name in verified.manifest.files)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "id"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ann@example.com", "-f", str(path)], check=True
    )
    return path


@needs_ssh
def test_a_signature_names_its_signer(cases: dict[str, Case], key: Path, tmp_path: Path) -> None:
    path, allowed = tmp_path / "case.zip", tmp_path / "allowed"
    allowed.write_text(f"ann@example.com {key.with_suffix('.pub').read_text()}")
    write_bundle(cases["phantom"], path, sign=key)
    verified = verify_bundle(path, allowed)
    assert (verified.signature, verified.signer, verified.whole) == ("good", "ann@example.com", True)
    assert findings(verified)[-1] == "signed by ann@example.com"
    stranger = verify_bundle(path)
    assert stranger.signature == "unknown signer"
    assert stranger.signer.startswith("SHA256:")


@needs_ssh
def test_a_signer_who_is_not_allowed_is_a_stranger(cases: dict[str, Case], key: Path, tmp_path: Path) -> None:
    path, allowed = tmp_path / "case.zip", tmp_path / "allowed"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    allowed.write_text(f"bob {(tmp_path / 'other.pub').read_text()}")
    write_bundle(cases["phantom"], path, sign=key)
    assert verify_bundle(path, allowed).signature == "unknown signer"


@needs_ssh
def test_a_changed_manifest_breaks_the_signature(cases: dict[str, Case], key: Path, tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    write_bundle(cases["phantom"], path, sign=key)
    rewrite(path, lambda name, data: data.replace(b'"tool"', b' "tool"') if name == MANIFEST else data)
    verified = verify_bundle(path)
    assert verified.signature == "bad"
    assert not verified.whole


@needs_ssh
def test_a_signature_of_something_else_does_not_count(cases: dict[str, Case], key: Path, tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    write_bundle(cases["phantom"], path, sign=key)
    with zipfile.ZipFile(path) as archive:
        text = archive.read(MANIFEST)
    other = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)], input=text, capture_output=True, check=True
    ).stdout
    rewrite(path, lambda name, data: other if name == SIGNATURE else data)
    assert verify_bundle(path).signature == "bad"


@needs_ssh
def test_a_key_that_is_not_there_leaves_no_bundle(cases: dict[str, Case], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        write_bundle(cases["phantom"], tmp_path / "case.zip", sign=tmp_path / "nokey")
    (tmp_path / "nokey").write_text("not a key")
    (tmp_path / "nokey").chmod(0o600)
    with pytest.raises(BundleError, match="could not be signed"):
        write_bundle(cases["phantom"], tmp_path / "case.zip", sign=tmp_path / "nokey")
    assert [path.name for path in tmp_path.iterdir()] == ["nokey"]
