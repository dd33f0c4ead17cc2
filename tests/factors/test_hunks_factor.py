"""A changed file opened to its hunks: any subset is a patch that git applies, and both ends are what was captured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from git_trees import git, new_tree, patch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fingerprint.factors import Evidence, Inside, LaunchPlan, find
from fingerprint.factors.hunks import Hunks, hunks_of, places_of
from fingerprint.factors.plan import TreePlan
from fingerprint.hunks import hunks, patch_of
from snapshots import LocalFile, Snapshot, Tree, Trees, Unread

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example asks git a dozen things: a failing one is shown as it was found."""
BASE = [f"line {number}" for number in range(60)]
EDITS = st.dictionaries(
    st.integers(0, 59),
    st.one_of(st.just([]), st.lists(st.sampled_from(["changed", "added", "    deeper", ""]), min_size=1, max_size=3)),
    max_size=6,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_tree(tmp_path_factory.mktemp("tree") / "tree", {"code.py": text_of({})})


@pytest.fixture(autouse=True)
def _as_committed(tree: Path) -> Iterator[None]:
    yield
    git(tree, "checkout", "-q", "--", ".")


def text_of(edits: dict[int, list[str]]) -> str:
    return "".join(f"{row}\n" for number, line in enumerate(BASE) for row in edits.get(number, [line]))


def opened(old: LocalFile | None, new: LocalFile | None) -> Inside | str:
    def tree_of(plan: LaunchPlan) -> TreePlan:
        live = {"code.py": new} if new is not None else {}
        return plan.trees.setdefault("/tree", TreePlan("c", "c", live, dict(live)))

    return hunks_of("tree:code.py", "/tree", "code.py", old, new, tree_of)


def local(text: str) -> LocalFile | None:
    return LocalFile(change="modified", patch=text) if text else None


def applied(tree: Path, inside: Hunks, new: frozenset[str]) -> tuple[str, list[list[str]]]:
    """The file as a launch with these parts has it, and the blocks that prove it."""
    plan = LaunchPlan(argv=[], cwd="/", variables={}, prefix=None)
    inside.apply(plan, new)
    wanted = plan.trees["/tree"].wanted.get("code.py")
    git(tree, "checkout", "-q", "--", "code.py")
    if wanted is not None:
        git(tree, "apply", "--whitespace=nowarn", "-", stdin=str(wanted.patch))
    (check,) = plan.checks
    return (tree / "code.py").read_text(), check["blocks"]


@settings(max_examples=30, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDITS, EDITS, st.randoms())
def test_any_subset_of_hunks_applies_and_reads_as_its_proof_says(
    tree: Path, before: dict[int, list[str]], after: dict[int, list[str]], random: object
) -> None:
    old, new = (patch(tree, "code.py", text_of(edits)) for edits in (before, after))
    inside = opened(local(old), local(new))
    if old == new:
        assert inside == ""
        return
    assert isinstance(inside, Hunks)
    names = [part.id for part in inside.parts]
    assert len(set(names)) == len(names)
    chosen = frozenset(name for name in names if random.random() < 0.5)  # type: ignore[attr-defined]
    for subset in (frozenset[str](), frozenset(names), chosen):
        text, blocks = applied(tree, inside, subset)
        for block in blocks:
            assert "\n" + "\n".join(block) + "\n" in "\n" + text
    assert applied(tree, inside, frozenset())[0] == text_of(before)
    assert applied(tree, inside, frozenset(names))[0] == text_of(after)


def test_changes_of_both_sides_at_one_place_are_one_part(tree: Path) -> None:
    old = patch(tree, "code.py", text_of({10: ["as it was"], 30: ["kept"]}))
    new = patch(tree, "code.py", text_of({10: ["as it is"], 30: ["kept"], 50: ["more"]}))
    inside = opened(local(old), local(new))
    assert isinstance(inside, Hunks)
    assert [(len(place.old), len(place.new)) for place in inside.places] == [(1, 1), (0, 1)]
    text, _ = applied(tree, inside, frozenset({inside.parts[1].id}))
    assert text == text_of({10: ["as it was"], 30: ["kept"], 50: ["more"]})


def test_equal_changes_at_two_places_are_two_parts(tree: Path) -> None:
    inside = opened(None, local(patch(tree, "code.py", text_of({10: ["same", "line 10"], 40: ["same", "line 40"]}))))
    assert isinstance(inside, Hunks)
    assert len({part.id for part in inside.parts}) == 2


def test_a_hunk_is_called_by_the_function_that_holds_it(tmp_path: Path) -> None:
    code = "class Model:\n" + "    x = 1\n" * 9 + "\n    def forward(self, x):\n        y = x\n        return y\n"
    tree = new_tree(tmp_path / "tree", {"model.py": code})
    text = patch(tree, "model.py", code.replace("        y = x\n", "        y = x.copy()\n"))
    inside = hunks_of("tree:model.py", "/tree", "model.py", None, local(text), lambda plan: plan.trees["/tree"])
    assert isinstance(inside, Hunks)
    assert [part.title for part in inside.parts] == ["hunk @@ forward of model.py"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (LocalFile(change="untracked", patch="print()\n"), ""),
        (LocalFile(change="deleted"), ""),
        (LocalFile(change="modified", patch="x", exact=False), "not whole in the snapshot"),
        (LocalFile(change="modified", patch=Unread(unread="too long"), exact=False), "not whole in the snapshot"),
        (LocalFile(change="modified", patch="diff --git a/x b/x\nGIT binary patch\nliteral 0\n"), ""),
    ],
)
def test_what_is_one_piece_or_not_whole_is_not_opened(file: LocalFile, reason: str) -> None:
    told = opened(None, file)
    assert isinstance(told, str)
    assert reason in told


def test_form_feeds_are_letters_of_their_line(tree: Path) -> None:
    text = text_of({5: ["a\x0cb", "c\x85d"]})
    inside = opened(None, local(patch(tree, "code.py", text)))
    assert isinstance(inside, Hunks)
    assert applied(tree, inside, frozenset(part.id for part in inside.parts))[0] == text
    assert places_of(hunks(patch_of("code.py", hunks(patch(tree, "code.py", text)))), []) != []


def test_a_line_that_begins_with_dashes_or_pluses_counts_like_any_other() -> None:
    patch_text = "diff --git a/a.sql b/a.sql\n--- a/a.sql\n+++ b/a.sql\n@@ -1,2 +1 @@\n--- old note\n-x\n+++ 1\n"

    def host(files: dict[str, LocalFile]) -> Snapshot:
        trees = Trees(status="ok", trees={"/srv": Tree(commit="1" * 40, files=files)})
        return Snapshot(tool="test", taken_at=datetime(2026, 11, 2, tzinfo=timezone.utc), target="here", trees=trees)

    found = find(host({}), host({"a.sql": LocalFile(change="modified", patch=patch_text)}), Evidence())
    [file] = found.factors or found.fixed
    assert (file.old_words, file.new_words) == ("as committed", "modified +1 -2")
