"""What comes out of a snapshot puts back what was there: real wheels through pip, real patches through git."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import snapshots
from fingerprint.capture import store_beside
from fingerprint.errors import SnapshotError, UsageError
from fingerprint.extract import extract, wheel
from fingerprint.factors import Evidence
from fingerprint.factors.tree import ChangedFile
from fingerprint.factors.variables import Variable
from snapshots import LocalFile, Packages, Section, Snapshot, Startup, StartupFile, Tree, Trees

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
WHEEL = b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n"


def snapshot(**sections: Section) -> Snapshot:
    return Snapshot(tool="0", taken_at=NOON, target="local", **sections)


def installed(files: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """A distribution as pip leaves it."""
    return {
        "tiny/__init__.py": b"VALUE = 1\n",
        "tiny/__pycache__/__init__.cpython-311.pyc": b"compiled",
        "../../../bin/tiny-run": b"#!python\nimport tiny\n",
        "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": WHEEL,
        "tiny-1.0.dist-info/INSTALLER": b"pip\n",
        "tiny-1.0.dist-info/RECORD": b"of the installation\n",
        **(files or {}),
    }


def test_pip_installs_the_wheel_of_kept_files_as_they_were(tmp_path: Path) -> None:
    store = store_beside(tmp_path / "old.json")
    files = {path: store.put(data) for path, data in installed().items()}
    taken = extract(snapshot(packages=Packages(files={"tiny": files})), "package:tiny", Evidence((store,)))
    (tmp_path / taken.name).write_bytes(taken.data)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, str(tmp_path / taken.name)], check=True, capture_output=True)
    assert taken.name == "tiny-1.0-py2.py3-none-any.whl"
    assert (tmp_path / "site/tiny/__init__.py").read_bytes() == installed()["tiny/__init__.py"]
    assert "import tiny" in (tmp_path / "site/bin/tiny-run").read_text()


@given(st.dictionaries(st.from_regex(r"tiny/[a-z ,\"]{1,8}\.py", fullmatch=True), st.binary(max_size=40), max_size=5))
def test_a_wheel_holds_every_file_and_a_record_that_lists_them(files: dict[str, bytes]) -> None:
    import io

    taken = wheel(installed(files))
    with zipfile.ZipFile(io.BytesIO(taken.data)) as archive:
        assert {name: archive.read(name) for name in files} == files
        rows = archive.read("tiny-1.0.dist-info/RECORD").decode().splitlines()
        assert len(rows) == len(archive.namelist())
        assert "tiny-1.0.dist-info/INSTALLER" not in archive.namelist()
    assert taken == wheel(dict(reversed(installed(files).items())))


def test_files_that_are_no_wheel_or_lie_elsewhere_are_refused() -> None:
    with pytest.raises(SnapshotError, match="WHEEL"):
        wheel({"tiny/__init__.py": b""})
    with pytest.raises(SnapshotError, match="outside"):
        wheel(installed({"../../../etc/passwd": b""}))


def test_a_startup_file_comes_out_as_it_was_unless_a_secret_was_taken_out() -> None:
    def holding(text: str) -> Snapshot:
        file = StartupFile(path="/x/sitecustomize.py", sha256="0" * 64, text=text)
        return snapshot(startup=Startup(files={"sitecustomize.py": file}))

    assert extract(holding("import os\n"), "startup:sitecustomize", Evidence()).data == b"import os\n"
    with pytest.raises(UsageError, match="not whole"):
        extract(holding("KEY = '<secret:aa:bb>'"), "startup:sitecustomize", Evidence())


@pytest.mark.parametrize("unknown", ["startup:no", "tree:no.py", "package:no", "variable:HOME", "nonsense"])
def test_what_a_snapshot_does_not_hold_is_one_sentence(unknown: str) -> None:
    with pytest.raises(UsageError) as error:
        extract(snapshot(), unknown, Evidence())
    assert str(error.value).count("\n") == 0


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("stage", [False, True])
def test_the_line_that_reverts_a_local_change_brings_the_old_one_back(tmp_path: Path, stage: bool) -> None:
    root = tmp_path / "a tree"
    root.mkdir()
    git(root, "init", "-q")
    (root / "x.py").write_text("a = 1\nb = 1\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    (root / "x.py").write_text("a = 2\nb = 1\n")
    patch = git(root, "diff", "HEAD")
    (root / "x.py").write_text("a = 1\nb = 3\nc = 4\n")
    if stage:
        git(root, "add", ".")
    old, new = LocalFile(change="modified", patch=patch), LocalFile(change="modified", patch=git(root, "diff", "HEAD"))
    tree = Tree(files={"x.py": old})
    snapshots.save(snapshot(trees=Trees(trees={str(root): tree})), tmp_path / "old.json")
    line = ChangedFile("tree:x.py", "", "", str(root), "x.py", old, new, tree).revert()
    command = line.replace("fingerprint ", f"'{sys.executable}' -m fingerprint ", 1)
    subprocess.run(["bash", "-ec", f"set -o pipefail; {command}"], check=True, cwd=tmp_path, capture_output=True)
    assert (root / "x.py").read_text() == "a = 2\nb = 1\n"
    without = ChangedFile("tree:x.py", "", "", str(root), "x.py", None, new, tree).revert()
    subprocess.run(["bash", "-ec", without], check=True, cwd=tmp_path, capture_output=True)
    assert (root / "x.py").read_text() == "a = 1\nb = 1\n"


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30))
def test_a_value_from_a_host_cannot_run_anything_when_its_line_is_typed(value: str) -> None:
    line = Variable("variable:X", value, "new", "X", value, "new").revert()
    shown = subprocess.run(["bash", "-c", f'{line}\nprintf %s "$X"'], capture_output=True, check=True)
    assert shown.stdout == value.encode()
