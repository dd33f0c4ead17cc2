"""What a change depends on, read from its source."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gates import gates


def diff(before: str, after: str, tmp_path: Path) -> tuple[str, str]:
    old, new = tmp_path / "a", tmp_path / "b"
    old.write_text(textwrap.dedent(before))
    new.write_text(textwrap.dedent(after))
    done = subprocess.run(["git", "diff", "--no-index", "-U0", old, new], capture_output=True, text=True)
    return new.read_text(), done.stdout


HEAD = """
    import os
    FLAG = os.environ.get("SGLANG_MY_FLAG", "0") == "1"
    LEVEL = int(os.getenv("NCCL_LEVEL", "3"))
    other = 1
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("x = 1", "x = os.environ['NCCL_PROTO']", {"1": ["NCCL_PROTO"]}),
        ("x = 1", "x = get_bool_env_var('SGLANG_FAST')", {"1": ["SGLANG_FAST"]}),
        ("x = 1", "x = envs.SGLANG_FAST.get()", {"1": ["SGLANG_FAST"]}),
        ("x = 1", "x = 'SGLANG_FAST' in os.environ", {"1": ["SGLANG_FAST"]}),
        ("x = 1", "x = 2", {}),
        ("if FLAG:\n    x = 1", "if FLAG:\n    x = 2", {"1": ["SGLANG_MY_FLAG"]}),
        ("if other:\n    x = 1", "if other:\n    x = 2", {}),
        ("if FLAG:\n    pass\nx = 1", "if FLAG:\n    pass\nx = 2", {}),
        (
            "def f():\n    if not FLAG:\n        return\n    x = 1",
            "def f():\n    if not FLAG:\n        return\n    x = 2",
            {"1": ["SGLANG_MY_FLAG"]},
        ),
        (
            "def f():\n    while LEVEL:\n        try:\n            x = 1\n        except E:\n            pass",
            "def f():\n    while LEVEL:\n        try:\n            x = 2\n        except E:\n            pass",
            {"1": ["NCCL_LEVEL"]},
        ),
    ],
)
def test_a_hunk_depends_on_what_it_and_its_surroundings_read(
    tmp_path: Path, before: str, after: str, expected: dict[str, list[str]]
) -> None:
    head = textwrap.dedent(HEAD)
    assert gates(*diff(head + before, head + after, tmp_path)) == expected


def test_every_hunk_has_its_own_variables(tmp_path: Path) -> None:
    head = textwrap.dedent(HEAD)
    before = head + "if FLAG:\n    x = 1\n" + "\n" * 20 + "if LEVEL:\n    y = 1\n" + "\n" * 20 + "z = 1\n"
    after = before.replace("x = 1", "x = 2").replace("y = 1", "y = 2").replace("z = 1", "z = 2")
    assert gates(*diff(before, after, tmp_path)) == {"1": ["SGLANG_MY_FLAG"], "2": ["NCCL_LEVEL"]}


def test_a_removed_line_counts_where_it_was(tmp_path: Path) -> None:
    head = textwrap.dedent(HEAD)
    before = head + "if FLAG:\n    x = 1\n    y = 2\n    z = 3\n"
    assert gates(*diff(before, before.replace("    y = 2\n", ""), tmp_path)) == {"1": ["SGLANG_MY_FLAG"]}


def test_a_new_file_counts_whole() -> None:
    assert gates("import os\nx = os.environ['NEW_FLAG']\n", "") == {"1": ["NEW_FLAG"]}


@given(st.text(), st.text())
def test_no_source_and_no_patch_leads_astray(source: str, patch: str) -> None:
    assert isinstance(gates(source, patch), dict)
