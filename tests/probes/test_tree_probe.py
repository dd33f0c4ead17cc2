"""Source trees and their differences."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes import tree
from probes.secrets import Keeper
from snapshots import Trees

Context = Callable[..., dict[str, Any]]
KEEPER = Keeper(b"a key of the tests")


def git(root: Path, *words: str, **variables: str) -> str:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example", **variables,
    }  # fmt: skip
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make(root: Path, **files: str | bytes) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(
        tmp_path / "srv",
        python__sglang__a_dot_py="".join(f"line {number}\n" for number in range(40)),
        python__sglang__b_dot_py="b = 1\n",
        gone_dot_py="gone\n",
    )


def read(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = tree._tree(tree.Git(str(root)), ["."], KEEPER)
    return found


def restore(root: Path, files: dict[str, Any], into: Path) -> None:
    """Build the present state from the commit and what was captured."""
    subprocess.run(["git", "clone", "-q", str(root), str(into)], check=True)
    for path, entry in files.items():
        assert entry["exact"], path
        if entry["change"] == "untracked":
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_text(entry["patch"], newline="")
        else:
            subprocess.run(["git", "-C", str(into), "apply", "-"], input=entry["patch"].encode(), check=True)


def test_patches_give_back_every_kind_of_change(root: Path, tmp_path: Path) -> None:
    changed = root / "python/sglang/a.py"
    changed.write_text(changed.read_text().replace("line 3\n", "line three\n").replace("line 30\n", ""))
    (root / "python/sglang/b.py").chmod(0o755)
    (root / "gone.py").unlink()
    (root / "python/added.py").write_text("added = 1")  # without a newline at its end
    git(root, "add", "python/added.py")
    (root / "python/free.py").write_text("free = 1\r\n")
    found = Trees.model_validate({"trees": {str(root): read(root)}}).trees[str(root)]
    assert {path: entry.change for path, entry in found.files.items()} == {
        "python/sglang/a.py": "modified", "python/sglang/b.py": "mode", "gone.py": "deleted",
        "python/added.py": "added", "python/free.py": "untracked",
    }  # fmt: skip
    assert found.files["python/added.py"].staged
    assert not found.files["python/sglang/a.py"].staged
    assert found.files["python/sglang/a.py"].sha256 == hashlib.sha256(changed.read_bytes()).hexdigest()
    assert found.files["gone.py"].sha256 is None
    restore(root, {path: entry.model_dump() for path, entry in found.files.items()}, tmp_path / "again")
    for path in ("python/sglang/a.py", "python/added.py", "python/free.py"):
        assert (tmp_path / "again" / path).read_bytes() == (root / path).read_bytes()
    assert os.access(tmp_path / "again/python/sglang/b.py", os.X_OK)
    assert not (tmp_path / "again/gone.py").exists()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_any_bytes_come_back_through_their_patch(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    root = make(tmp_path_factory.mktemp("any") / "srv", file=before, other=b"x")
    (root / "file").write_bytes(after)
    files = read(root)["files"]
    assert set(files) == (set() if before == after else {"file"})
    restore(root, files, root.parent / "again")
    assert (root.parent / "again/file").read_bytes() == after


def test_text_that_is_not_utf8_and_odd_names_lose_nothing(tmp_path: Path) -> None:
    root = make(tmp_path / "srv", latin_dot_py=b"# caf\xe9\nx = 1\n", plain_dot_py="y = 1\n")
    odd = 'caf\xe9 "quoted"\t.py'
    (root / odd).write_text("z = 1\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")
    (root / "latin.py").write_bytes(b"# caf\xe9 cr\xe8me\nx = 2\n")
    (root / odd).write_text("z = 2\n")
    (root / "plain.py").write_text("y = 2\n")
    files = read(root)["files"]
    assert set(files) == {"latin.py", odd, "plain.py"}
    restore(root, files, tmp_path / "again")
    assert (tmp_path / "again/latin.py").read_bytes() == b"# caf\xe9 cr\xe8me\nx = 2\n"
    assert (tmp_path / "again" / odd).read_text() == "z = 2\n"


def test_a_secret_in_a_patch_is_replaced_and_the_patch_no_longer_exact(root: Path) -> None:
    (root / ".env").write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\n")
    (root / "python/sglang/b.py").write_text("b = 2\n")
    files = read(root)["files"]
    assert "hf_abcd" not in repr(files)
    assert files[".env"]["exact"] is False
    assert files[".env"]["sha256"] == hashlib.sha256((root / ".env").read_bytes()).hexdigest()
    assert files["python/sglang/b.py"]["exact"] is True


def test_large_and_binary_files_are_told_by_their_digest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_LARGEST_FILE_BYTES", 1000)
    (root / "python/sglang/a.py").write_text("x" * 2000)
    (root / "picture.bin").write_bytes(b"\0\1\2")
    files = read(root)["files"]
    assert "larger than" in files["python/sglang/a.py"]["patch"]["unread"]
    assert "not text" in files["picture.bin"]["patch"]["unread"]
    for path in ("python/sglang/a.py", "picture.bin"):
        assert files[path]["exact"] is False
        assert files[path]["sha256"] == hashlib.sha256((root / path).read_bytes()).hexdigest()


def test_a_tree_of_very_many_changes_is_told_by_digests_after_a_while(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MOST_PATCH_BYTES", 1500)
    for number in range(5):
        (root / f"new{number}.py").write_text(f"# {number}\n" * 100)
    files = read(root)["files"]
    assert [entry["exact"] for entry in files.values()] == [True, True, True, False, False]
    assert all(entry["sha256"] for entry in files.values())


def test_commit_branch_tags_and_remotes_without_credentials(root: Path) -> None:
    git(root, "tag", "v1")
    git(root, "remote", "add", "origin", "https://me:s3cretword@git.example/x.git")
    found = read(root)
    assert found["commit"] == git(root, "rev-parse", "HEAD")
    assert (found["branch"], found["describe"], found["shallow"]) == ("main", "v1", False)
    assert "s3cretword" not in found["remotes"]["origin"]
    git(root, "checkout", "-q", "--detach")
    assert read(root)["branch"] is None


def test_a_shallow_clone_says_so_and_describes_nothing(root: Path, tmp_path: Path) -> None:
    git(root, "tag", "v1")
    git(root, "commit", "-q", "--allow-empty", "-m", "second")
    clone = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{root}", str(clone)], check=True)
    found = read(clone)
    assert (found["shallow"], found["describe"]) == (True, None)
    assert found["commit"] == git(root, "rev-parse", "HEAD")


def test_a_tree_without_commits_is_read(tmp_path: Path) -> None:
    root = tmp_path / "new"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.py").write_text("a = 1\n")
    git(root, "add", "a.py")
    found = read(root)
    assert found["commit"] is None
    assert found["files"]["a.py"]["change"] == "added"


def test_submodules_have_their_commit_and_their_own_differences(root: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other", c_dot_py="c = 1\n")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "third")
    git(root, "config", "-f", ".gitmodules", "submodule.third.ignore", "all")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "with a submodule")
    (root / "third/c.py").write_text("c = 2\n")
    trees: dict[str, Any] = {}
    tree._add(trees, {}, str(root), ["."], KEEPER)
    assert trees[str(root)]["submodules"] == {"third": git(other, "rev-parse", "HEAD")}
    assert trees[str(root)]["files"]["third"]["change"] == "submodule"
    assert trees[str(root)]["files"]["third"]["patch"] == "changed files"
    assert trees[str(root / "third")]["files"]["c.py"]["change"] == "modified"


def test_an_lfs_file_that_is_what_its_pointer_says_is_no_difference(root: Path) -> None:
    contents = b"weights " * 100
    oid = hashlib.sha256(contents).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(contents)}\n"
    (root / "model.bin").write_text(pointer)
    (root / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "weights")
    (root / "model.bin").write_bytes(contents)
    assert read(root)["files"] == {}
    (root / "model.bin").write_bytes(contents + b"more")
    assert set(read(root)["files"]) == {"model.bin"}


def test_nothing_of_the_repository_s_own_configuration_runs(root: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho $0 $@ >> {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    for name, value in {
        "core.fsmonitor": str(trap), "core.hooksPath": str(tmp_path), "diff.external": str(trap),
        "core.pager": str(trap),
        "filter.evil.clean": str(trap), "filter.evil.process": str(trap), "diff.evil.textconv": str(trap),
        "diff.evil.command": str(trap), "core.sshCommand": str(trap),
    }.items():  # fmt: skip
        git(root, "config", name, value)
    (root / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    (root / "python/sglang/b.py").write_text("b = 2\n")
    for hook in ("post-index-change", "fsmonitor-watchman"):
        shutil.copy(trap, tmp_path / hook)
    found = read(root)
    assert not (tmp_path / "sprung").exists()
    assert set(found["files"]) == {"python/sglang/b.py", ".gitattributes"}


def test_a_busy_repository_is_read_and_nothing_in_it_is_written(root: Path) -> None:
    (root / "python/sglang/b.py").write_text("b = 2\n")
    os.utime(root / "python/sglang/a.py")  # an index that git would like to refresh
    (root / ".git/index.lock").touch()

    def state() -> dict[str, tuple[int, int]]:
        paths = [Path(place) / name for place, _, names in os.walk(root) for name in names]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    before = state()
    assert set(read(root)["files"]) == {"python/sglang/b.py"}
    assert state() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a tree to another user")
def test_files_touched_without_a_change_are_no_difference_and_the_index_is_not_refreshed(root: Path) -> None:
    (root / "python/sglang/a.py").write_text("changed\n")
    for name in ("python/sglang/b.py", "gone.py"):  # the same contents, at another time and with another link
        os.utime(root / name, (1, 1))
        os.link(root / name, root.with_name(f"linked-{Path(name).name}"))
    index = root / ".git" / "index"
    before = index.read_bytes(), index.stat().st_mtime_ns, index.stat().st_ino
    assert set(read(root)["files"]) == {"python/sglang/a.py"}
    assert (index.read_bytes(), index.stat().st_mtime_ns, index.stat().st_ino) == before


def test_another_user_s_tree_is_read_as_that_user(root: Path) -> None:
    for place, directories, names in os.walk(root.parent):
        for name in [*directories, *names]:
            os.lchown(Path(place) / name, 12345, 12345)
    above = root
    while above != above.parent:  # pytest's directories are for their owner alone
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o055)
        above = above.parent
    (root / "python/sglang/b.py").write_text("b = 2\n")
    assert set(read(root)["files"]) == {"python/sglang/b.py"}


def test_without_git_the_tree_is_unreadable_and_not_clean(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    trees: dict[str, Any] = {}
    unreadable: dict[str, Any] = {}
    tree._add(trees, unreadable, str(root), ["."], KEEPER)
    assert trees == {}
    assert "git" in unreadable[str(root)]["unread"]


def test_the_server_s_tree_is_found_from_its_import_path(
    environment: Path, root: Path, tmp_path: Path, context: Context
) -> None:
    elsewhere = make(tmp_path / "elsewhere", unrelated_dot_py="x = 1\n")
    serving = {
        "argv": [str(environment / "bin/python"), "-m", "sglang.launch_server"],
        "variables": {"PYTHONPATH": str(root / "python")}, "cwd": str(elsewhere), "executable": "",
    }  # fmt: skip
    section = Trees.model_validate(tree.read({**context(), "serving": serving}))
    assert set(section.trees) == {str(root)}  # sglang is not imported from the working directory
    assert section.trees[str(root)].imports == ["python"]


def test_editable_installs_lead_to_their_trees(environment: Path, root: Path, tmp_path: Path, context: Context) -> None:
    place = tmp_path / "venv"
    shutil.copytree(environment, place, symlinks=True)
    site = next(place.glob("lib/python3.*/site-packages"))
    (site / "__editable___sglang_finder.py").write_text(
        f"MAPPING: dict[str, str] = {{'sglang': '{root}/python/sglang'}}\n"
    )
    other = make(tmp_path / "other dir", python__x_dot_py="x = 1\n")
    info = site / "other-1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(
        f'{{"url": "file://{tmp_path}/other%20dir", "dir_info": {{"editable": true}}}}'
    )
    section = tree.read(context(python=str(place / "bin/python")))
    assert set(section["trees"]) == {str(root), str(other)}


def test_a_directory_that_the_tree_around_it_ignores_is_not_of_that_tree(tmp_path: Path) -> None:
    around = make(tmp_path / "home", _dot_gitignore="/demo/\n/kept/\n", lib__b_dot_py="b = 1\n")
    for name in ("demo/site", "kept"):
        (around / name).mkdir(parents=True)
        (around / name / "a.py").write_text("a = 1\n")
    git(around, "add", "--force", "kept/a.py")

    def trees(*places: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        unreadable: dict[str, Any] = {}
        tree._add(found, unreadable, str(around), list(places), KEEPER)
        assert unreadable == {}
        return found

    assert trees("demo/site") == {}
    assert trees("demo/site", "lib", "kept")[str(around)]["imports"] == ["kept", "lib"]
    assert trees(".")[str(around)]["imports"] == ["."]
