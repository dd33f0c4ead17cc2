"""The way between two commits of real repositories, and the inside of one commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_trees import commit, git, new_tree

from fingerprint.commits import way_between
from fingerprint.errors import UsageError
from fingerprint.factors import Inside, LaunchPlan, Together
from fingerprint.factors.commits import MOST_STEPS, Commits, Files, commits_inside
from fingerprint.factors.hunks import Hunks
from fingerprint.factors.plan import TreePlan


def head(tree: Path) -> str:
    return git(tree, "rev-parse", "HEAD").strip()


def opened(tree: Path, old: str, new: str, imports: tuple[str, ...] = ()) -> Commits:
    inside = told(tree, old, new, imports)
    assert isinstance(inside, Commits)
    return inside


def told(tree: Path, old: str, new: str, imports: tuple[str, ...] = ()) -> Inside | str:
    def tree_of(plan: LaunchPlan) -> TreePlan:
        return plan.trees.setdefault("/live", TreePlan(new, new, {}, {}))

    return commits_inside("tree:commit", "/live", old, new, imports, [tree], tree_of)


def planned(inside: Inside, new: frozenset[str]) -> TreePlan:
    plan = LaunchPlan(argv=[], cwd="/", variables={}, prefix=None)
    inside.apply(plan, new)
    assert plan.checks
    return plan.trees["/live"]


def numbered(tree: Path, count: int, folder: str = "src") -> list[str]:
    return [commit(tree, {f"{folder}/m{n}.py": f"x = {n}\n" * 30}, f"change {n}") for n in range(count)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return new_tree(tmp_path / "tree", {"src/m.py": "x = 0\n" * 30, "README": "read\n"})


def test_a_straight_way_is_walked_commit_by_commit(tree: Path) -> None:
    start, made = head(tree), numbered(tree, 5)
    inside = opened(tree, start, made[-1])
    names = [part.id for part in inside.parts]
    assert [part.title for part in inside.parts] == [f"commit {sha[:12]} (change {n})" for n, sha in enumerate(made)]
    assert planned(inside, frozenset()).commit == start
    for count in range(1, 6):
        assert planned(inside, frozenset(names[:count])).commit == made[count - 1]
    assert inside.parts[2].revert == f"git -C /live revert --no-commit {made[2][:12]}"


def test_commits_that_the_server_does_not_import_from_go_along(tree: Path) -> None:
    start = head(tree)
    first = numbered(tree, 1)[0]
    commit(tree, {"README": "other\n"}, "words")
    last = numbered(tree, 2, "src/more")[-1]
    end = commit(tree, {"README": "again\n"}, "words again")
    inside = opened(tree, start, end, ("src",))
    assert [part.title.partition("(")[2] for part in inside.parts] == ["change 0)", "change 0)", "change 1)"]
    names = [part.id for part in inside.parts]
    assert planned(inside, frozenset(names)).commit == end != last
    assert first != planned(inside, frozenset(names[:1])).commit
    files = inside.inside(names[-1])
    assert isinstance(files, Files)
    assert set(files.changes) == {"src/more/m1.py", "README"}
    assert len(opened(tree, start, end, ("nowhere",)).parts) == 5


def test_a_merged_branch_is_one_step_of_the_way(tree: Path) -> None:
    start = head(tree)
    git(tree, "checkout", "-q", "-b", "topic")
    numbered(tree, 3, "topic")
    git(tree, "checkout", "-q", "main")
    one = commit(tree, {"src/m.py": "x = 9\n" * 30}, "on main")
    git(tree, "merge", "-q", "--no-ff", "-m", "merge topic", "topic")
    inside = opened(tree, start, head(tree))
    assert [step.to for step in inside.steps] == [one, head(tree)]
    files = inside.inside(inside.parts[1].id)
    assert isinstance(files, Files)
    assert list(files.changes) == [f"topic/m{n}.py" for n in range(3)]


def test_an_old_side_on_the_merged_branch_is_reached_by_the_merge(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "topic")
    old = numbered(tree, 1, "topic")[0]
    git(tree, "checkout", "-q", "main")
    commit(tree, {"src/m.py": "x = 9\n" * 30}, "on main before the merge")
    git(tree, "merge", "-q", "--no-ff", "-m", "merge topic", "topic")
    merged = head(tree)
    after = commit(tree, {"src/m.py": "x = 10\n" * 30}, "after")
    assert [step.to for step in opened(tree, old, after).steps] == [merged, after]


def test_where_histories_part_the_way_leads_back_first(tree: Path) -> None:
    base = head(tree)
    git(tree, "checkout", "-q", "-b", "old")
    lost = numbered(tree, 2, "lost")
    git(tree, "checkout", "-q", "main")
    gained = numbered(tree, 2, "gained")
    inside = opened(tree, lost[-1], gained[-1])
    assert [step.to for step in inside.steps] == [lost[0], base, *gained]
    assert inside.parts[0].title == f"the loss of commit {lost[1][:12]} (change 1)"
    assert inside.parts[0].revert == f"git -C /live cherry-pick --no-commit {lost[1][:12]}"


def test_a_long_way_is_searched_in_pieces_and_a_piece_commit_by_commit(tree: Path) -> None:
    start = head(tree)
    script = []
    for n in range(150):
        script += ["commit refs/heads/main", f"mark :{n + 1}", "committer S <s@example.org> 1700000000 +0000"]
        message = f"change {n}"
        script += [f"data {len(message)}", message, f"from {f':{n}' if n else 'refs/heads/main^0'}"]
        script += [f"M 644 inline src/n{n}.py", f"data {len(str(n))}", str(n), ""]
    git(tree, "fast-import", "--quiet", stdin="\n".join(script) + "\n")
    inside = opened(tree, start, head(tree))
    assert len(inside.parts) <= MOST_STEPS
    assert sum(len(step.passed) for step in inside.steps) == 150
    assert inside.steps[-1].to == head(tree)
    piece = inside.inside(inside.parts[7].id)
    assert isinstance(piece, Commits)
    assert piece.start == inside.steps[6].to
    assert piece.steps[-1].to == inside.steps[7].to
    assert [len(step.passed) for step in piece.steps] == [1] * len(inside.steps[7].passed)


def test_one_commit_is_opened_to_its_files_and_a_file_to_its_hunks(tree: Path) -> None:
    before = [f"line {n}" for n in range(40)]
    start = commit(tree, {"src/m.py": "\n".join(before) + "\n"}, "lines")
    after = [*before[:3], "early", *before[3:30], "late", *before[30:]]
    end = commit(tree, {"src/m.py": "\n".join(after) + "\n", "src/added.py": "y = 1\n"}, "both")
    inside = opened(tree, start, end)
    files = inside.inside(inside.parts[0].id)
    assert isinstance(files, Files)
    names = {part.id.rpartition("/")[2]: part.id for part in files.parts}
    assert planned(files, frozenset(names.values())).commit == end
    some = planned(files, frozenset({names["added.py"]}))
    assert (some.commit, some.changes) == (start, [files.changes["src/added.py"]])
    assert files.inside(names["added.py"]) == ""
    hunks = files.inside(names["m.py"])
    assert isinstance(hunks, Hunks)
    late = planned(hunks, frozenset({hunks.parts[1].id}))
    git(tree, "checkout", "-q", "--detach", late.commit)
    git(tree, "apply", "-", stdin=late.changes[0])
    assert (tree / "src/m.py").read_text().split("\n") == [*before[:30], "late", *before[30:], ""]


def test_two_files_that_act_together_are_opened_beside_each_other(tree: Path) -> None:
    lines = [f"line {n}" for n in range(40)]
    start = commit(tree, {"src/m.py": "\n".join(lines) + "\n", "src/n.py": "old\n", "src/o.py": "old\n"}, "lines")
    after = [*lines[:3], "early", *lines[3:30], "late", *lines[30:]]
    end = commit(tree, {"src/m.py": "\n".join(after) + "\n", "src/n.py": "new\n", "src/o.py": "new\n"}, "three")
    inside = opened(tree, start, end)
    files = inside.inside(inside.parts[0].id)
    assert isinstance(files, Files)
    names = {part.id.rpartition("/")[2]: part.id for part in files.parts}
    hunks = files.inside(names["m.py"])
    assert isinstance(hunks, Hunks)
    plan = LaunchPlan(argv=[], cwd="/", variables={}, prefix=None)
    files.around(plan, frozenset({names["n.py"]}), frozenset({names["m.py"]}))
    hunks.apply(plan, frozenset({hunks.parts[0].id}))
    checked_out = plan.trees["/live"]
    git(tree, "checkout", "-q", "--detach", checked_out.commit)
    for patch in checked_out.changes:
        git(tree, "apply", "-", stdin=patch)
    texts = [(tree / "src" / name).read_text() for name in ("m.py", "n.py", "o.py")]
    assert texts == ["\n".join([*lines[:3], "early", *lines[3:], ""]), "new\n", "old\n"]
    proven = {check["factor"]: (check["what"], check.get("commit")) for check in plan.checks}
    assert proven == {
        names["m.py"]: ("text", None), names["n.py"]: ("committed", end), names["o.py"]: ("committed", start)
    }  # fmt: skip
    together = Together.of(files, frozenset({names["m.py"], names["n.py"]}), frozenset())
    assert together is not None
    assert [part.id for part in together.parts] == [names["n.py"], *(part.id for part in hunks.parts)]
    assert len(planned(together, frozenset({hunks.parts[1].id})).changes) == 1


def test_commits_that_are_nowhere_are_said_and_not_opened(tree: Path, tmp_path: Path) -> None:
    known, unknown = head(tree), "1" * 40
    assert "is not in" in str(told(tree, unknown, known))
    assert "is not a git repository" in str(told(tmp_path, known, known))
    with pytest.raises(UsageError, match="is not in"):
        way_between(tree, known, unknown)
    git(tree, "checkout", "-q", "--orphan", "elsewhere")
    git(tree, "commit", "-q", "-m", "unrelated")
    assert "merge-base failed" in str(told(tree, known, head(tree)))
