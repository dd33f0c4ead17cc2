"""An engine's variables that its own files do not name."""

from __future__ import annotations

from pathlib import Path

from probes.unnamed import of, unnamed


def engine(place: Path, **files: str) -> Path:
    for name, text in {"__init__": "", **files}.items():
        path = place / "sglang" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def test_what_no_file_names_is_told_and_what_one_names_is_not(tmp_path: Path) -> None:
    place = engine(tmp_path, srt__environ="SGLANG_KNOB = EnvInt(1)", srt__deep__kernel='os.getenv("SGLANG_OTHER")')
    variables = {"SGLANG_KNOB": "1", "SGLANG_OTHER": "1", "SGLANG_GONE": "1", "SGLANG_EMPTY": "", "NCCL_PROTO": "LL"}
    assert unnamed("sglang", [str(place)], variables) == {"SGLANG_GONE": f"{place}/sglang"}


def test_the_older_prefix_counts_as_the_newer_one(tmp_path: Path) -> None:
    place = engine(tmp_path, srt__environ="SGLANG_KNOB")
    assert unnamed("sglang", [str(place)], {"SGL_KNOB": "1", "SGL_GONE": "1"}) == {"SGL_GONE": f"{place}/sglang"}


def test_the_first_directory_that_holds_the_engine_is_the_one_searched(tmp_path: Path) -> None:
    tree = engine(tmp_path / "tree", srt__environ="SGLANG_NEW")
    installed = engine(tmp_path / "site", srt__environ="SGLANG_OLD")
    places = [str(tmp_path), str(tree), str(installed)]
    assert unnamed("sglang", places, {"SGLANG_NEW": "1", "SGLANG_OLD": "1"}) == {"SGLANG_OLD": f"{tree}/sglang"}


def test_without_the_engine_s_files_nothing_is_said(tmp_path: Path) -> None:
    assert unnamed("sglang", [str(tmp_path)], {"SGLANG_GONE": "1"}) == {}
    assert unnamed("unheard-of", [str(engine(tmp_path))], {"SGLANG_GONE": "1"}) == {}
    assert of({}, [str(tmp_path)]) == {}
