"""The flags that a version knows, read from its source without importing it."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fingerprint.reference
from probes import flags

DECLARED = '''
raise RuntimeError("this module must never be imported")

class ServerArgs(Disagg, Parallel):
    """`--not-a-flag` is only mentioned."""
    tp_size: A[int, Arg(help="ranks", aliases=["--tensor-parallel-size"])] = 1
    dtype: Annotated[str, "type of the weights"] = "auto"
    lora_paths: A[Optional[List[str]], Arg(help="paths", cli_name="--lora")] = None
    computed: A[int, Arg(help="", no_cli=True)] = 0
    plain: int = 3

    def add_cli_args(parser):
        parser.add_argument("--reasoning-parser", "-r", choices=["--odd"])
        parser.add_argument(
            "--enable-fusion", action=argparse.BooleanOptionalAction)
        logger.warning("--deprecated is deprecated")
'''
KNOWN = {"--tp-size", "--tensor-parallel-size", "--dtype", "--lora", "--reasoning-parser", "-r", "--enable-fusion"}


@pytest.fixture
def version(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "groups"
    folder.mkdir(parents=True)
    (tmp_path / "engine" / "server_args.py").write_text(DECLARED)
    (folder / "more.py").write_text("class More:\n    page_size: typing.Annotated[int, 'rows'] = 1\n")
    (folder / "broken.py").write_text("def (:\n")
    return tmp_path


def test_declared_flags_are_known_and_mentioned_ones_are_not(version: Path) -> None:
    found = flags.known(str(version), ["engine/server_args.py", "engine/groups", "engine/missing.py"])
    assert found == KNOWN | {"--page-size"}


def test_the_embedded_server_knows_what_its_own_parser_takes() -> None:
    root = Path(fingerprint.reference.__file__).parent / "tree" / "python"
    source = runpy.run_path(str(root / "tinyserve" / "server_args.py"))
    names = {name for field in dataclasses.fields(source["ServerArgs"]) for name in field.metadata["names"]}
    assert flags.known(str(root), ["tinyserve/server_args.py"]) == names


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["--dtype"], "--dtype"),
        (["--reason"], "--reason"),  # an unambiguous beginning
        (["--t"], None),  # an ambiguous one
        (["--no-enable-fusion"], "--no-enable-fusion"),
        (["--renamed", "--tp-size"], "--tp-size"),
        (["--nothing"], None),
    ],
)
def test_a_setting_is_spelled_by_the_first_name_that_is_taken(names: list[str], taken: str | None) -> None:
    assert flags.spelled(KNOWN, names) == taken


def test_only_unknown_flags_are_translated() -> None:
    names = {"--tp": ["--tp", "--tp-size"], "--old-name": ["--old-name", "--dtype"], "--gone": ["--gone"]}
    argv = ["python", "-m", "engine", "--tp", "2", "--old-name=half", "--gone", "--", "x"]
    done = flags.translated(argv, KNOWN, names)
    # `--tp` is the beginning of one flag only, so the parser takes it as it is.
    assert done == ["python", "-m", "engine", "--tp", "2", "--dtype=half", "--gone", "--", "x"]


NAMES = st.lists(st.from_regex(r"--[a-d]{1,3}(-[a-d]{1,2})?", fullmatch=True), min_size=1, max_size=6, unique=True)


@given(NAMES, st.from_regex(r"--[a-d]{1,3}(-[a-d]{1,2})?", fullmatch=True))
def test_a_name_is_taken_when_argparse_takes_it(declared: list[str], name: str) -> None:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    for flag in declared:
        parser.add_argument(flag)
    try:
        parser.parse_args([name, "1"])
        takes = True
    except (argparse.ArgumentError, SystemExit):
        takes = False
    assert (flags.spelled(set(declared), [name]) is not None) == takes


@given(st.text(max_size=200))
def test_no_source_can_spoil_the_reading(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.py"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    found = flags.known(str(path.parent), [path.name])
    assert all(flag.startswith("-") for flag in found)
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        assert found == set()
