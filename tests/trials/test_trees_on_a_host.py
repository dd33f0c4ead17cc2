"""Trees of every kind in real trials: submodules, files that git does not know, linked work trees, moved repositories.

The server is a command that prints one number, which it reads from the tree.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from git_trees import commit, git, new_tree
from trials_host import contents_of, scratch_directories

from fingerprint.factors import Evidence, Factor, LaunchPlan
from fingerprint.factors.tree import find, in_place_of, moved_roots
from fingerprint.factors.variables import find as find_variables
from fingerprint.host import HostProgram
from probes import tree as probe
from probes.secrets import Keeper
from snapshots import Process, Server, Snapshot, Trees

NUMBER = {"pattern": r"^(\d+) ms$", "ms": 1.0, "rate": False, "skip": 0, "timeout_s": 60.0}
ISOLATIONS = pytest.mark.parametrize("isolation", ["overlay", "copies"])


def captured(*roots: Path, variables: dict[str, str] | None = None) -> Snapshot:
    """What a capture says of these trees now."""
    trees: dict[str, Any] = {}
    unreadable: dict[str, Any] = {}
    for root in roots:
        probe._add(trees, unreadable, str(root), ["."], Keeper(b"key"))
    assert unreadable == {}
    launcher = Process(
        role="launcher", pid=1, parent=0, title="", argv=["python"], executable="/usr/bin/python", cwd="/",
        started=0.0, at_exec=variables or {}, variables=variables or {},
    )  # fmt: skip
    return Snapshot(
        tool="0",
        taken_at=datetime(2026, 11, 3, tzinfo=timezone.utc),
        target="local",
        trees=Trees.model_validate({"status": "ok", "trees": trees}),
        server=Server(status="ok", engine="tinyserve", processes={"launcher": launcher}),
    )


def factors(old: Snapshot, new: Snapshot) -> dict[str, Factor]:
    found = {one.id: one for one in find(old, new, Evidence())}
    assert all(isinstance(one, Factor) for one in found.values()), found
    return found  # type: ignore[return-value]


def tried(
    host: HostProgram, tree: Path, made: dict[str, Factor], new: set[str], isolation: str, *files: str
) -> list[float]:
    """The numbers in these files of the tree, as a trial with the factors `new` sees them; all of it is proven."""
    words = "; ".join(f'echo "$(cat {name}) ms"' for name in files)
    plan = LaunchPlan(["/bin/sh", "-c", words], str(tree), {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"}, None)
    for name, factor in made.items():
        factor.apply(plan, new=name in new)
    proven = tree.parent.with_suffix(".proven")
    plan.argv[2] += f"; until [ -e {proven} ]; do sleep 0.01; done"  # its files are read again while it runs
    ask = {**plan.to_json(), "run": NUMBER, "stop_s": 1.0, "isolation": isolation}
    answer = host.call("try", ask, lambda _event, value: proven.touch() if value["stage"] == "measuring" else None)
    proven.unlink()
    assert [check for check in answer["proof"] if not check["ok"]] == []
    return [sample["time_ms"] for sample in answer["figures"]["samples"]]


@pytest.fixture
def trials(host: HostProgram) -> HostProgram:
    host.call("prepare", {"pid": None, "trees": [], "prefixes": [], "bytes": 0})
    return host


@ISOLATIONS
def test_a_submodule_is_a_tree_of_its_own_and_what_git_ignores_stays(
    trials: HostProgram, tmp_path: Path, isolation: str
) -> None:
    library = new_tree(tmp_path / "library", {"speed": "10\n"})
    tree = new_tree(tmp_path / "tree", {".gitignore": "built\n", "main": "1\n"})
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "kernels")
    git(tree, "commit", "-q", "-m", "kernels")
    (tree / "built").write_text("77\n")
    old = captured(tree)
    commit(tree / "kernels", {"speed": "20\n"}, "slower")
    (tree / "main").write_text("2\n")
    (tree / "extra").write_text("5\n")
    new = captured(tree)
    before = contents_of(tmp_path)
    made = factors(old, new)
    assert set(made) == {"tree:kernels/commit", "tree:tree/main", "tree:tree/extra"}
    files = ("kernels/speed", "main", "built")
    assert tried(trials, tree, made, set(made), isolation, *files, "extra") == [20, 2, 77, 5]
    assert tried(trials, tree, made, {"tree:tree/main"}, isolation, *files) == [10, 2, 77]
    assert tried(trials, tree, made, {"tree:kernels/commit"}, isolation, *files) == [20, 1, 77]
    assert contents_of(tmp_path) == before
    assert scratch_directories() == set()


@ISOLATIONS
def test_a_linked_work_tree_is_switched_and_its_repository_not_written(
    trials: HostProgram, tmp_path: Path, isolation: str
) -> None:
    repository = new_tree(tmp_path / "repository", {"main": "1\n"})
    tree = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "--detach", str(tree))
    old = captured(tree)
    commit(tree, {"main": "2\n"}, "slower")
    new = captured(tree)
    before = contents_of(tmp_path)
    made = factors(old, new)
    assert tried(trials, tree, made, set(), isolation, "main") == [1]
    assert tried(trials, tree, made, set(made), isolation, "main") == [2]
    assert contents_of(tmp_path) == before


@ISOLATIONS
def test_a_repository_that_was_moved_is_switched_where_it_is_now(
    trials: HostProgram, tmp_path: Path, isolation: str
) -> None:
    place = new_tree(tmp_path / "before", {"main": "1\n"})
    git(place, "remote", "add", "origin", "https://example.org/engine.git")
    old = captured(place, variables={"PYTHONPATH": f"{place}/python:/other", "LEVEL": "1"})
    moved = place.rename(tmp_path / "after")
    commit(moved, {"main": "2\n"}, "slower")
    new = captured(moved, variables={"PYTHONPATH": f"{moved}/python:/other", "LEVEL": "2"})
    assert moved_roots(old, new) == {str(place): str(moved)}
    made = factors(old, new)
    assert set(made) == {"tree:commit"}
    assert tried(trials, moved, made, set(), isolation, "main") == [1]
    assert tried(trials, moved, made, set(made), isolation, "main") == [2]
    # A value that only follows the move is no factor.
    assert [one.id for one in find_variables(old, new, Evidence())] == ["variable:LEVEL"]


def test_two_other_repositories_are_not_taken_for_a_move(tmp_path: Path) -> None:
    one = new_tree(tmp_path / "one", {"main": "1\n"})
    other = new_tree(tmp_path / "other", {"main": "2\n"})
    assert moved_roots(captured(one), captured(other)) == {}
    assert list(find(captured(one), captured(other), Evidence())) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/old/tree", "/new"),
        ("/old/tree/python:/x:/old/tree", "/new/python:/x:/new"),
        ("--path=/old/tree/a", "--path=/new/a"),
        ("/old/trees:/mnt/old/tree", "/old/trees:/mnt/old/tree"),
        ("", ""),
    ],
)
def test_only_whole_paths_of_a_moved_tree_are_replaced(text: str, expected: str) -> None:
    assert in_place_of({"/old/tree": "/new"}, text) == expected
