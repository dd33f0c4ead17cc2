"""Code that runs before the server."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes import startup
from snapshots import Startup

Context = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, environment: Path) -> Path:
    copy = tmp_path / "venv"
    shutil.copytree(environment, copy, symlinks=True)
    return copy


def site_of(place: Path) -> Path:
    return next(place.glob("lib/python3.*/site-packages"))


def serving(place: Path, cwd: Path, *flags: str, **variables: str) -> dict[str, Any]:
    argv = [str(place / "bin/python"), *flags, "-m", "sglang.launch_server"]
    return {"argv": argv, "variables": variables, "cwd": str(cwd), "executable": ""}


def test_the_winning_sitecustomize_is_the_one_python_runs(place: Path, tmp_path: Path, context: Context) -> None:
    named = tmp_path / "named"
    named.mkdir()
    for directory in (named, site_of(place), tmp_path):  # the last one is the working directory, which comes too late
        (directory / "sitecustomize.py").write_text(f"print({str(directory)!r})\n")
    variables = {"PYTHONPATH": str(named)}
    ran = subprocess.run([place / "bin/python", "-c", ""], capture_output=True, text=True, env=variables, cwd=tmp_path)
    section = Startup.model_validate(startup.read({**context(), "serving": serving(place, tmp_path, **variables)}))
    found = section.files["sitecustomize.py"]
    assert ran.stdout.strip() == str(named)
    assert found.path == str(named / "sitecustomize.py")
    assert found.text == f"print({str(named)!r})\n"
    assert found.sha256 == hashlib.sha256(found.text.encode()).hexdigest()
    assert str(site_of(place) / "sitecustomize.py") in section.shadowed["sitecustomize.py"]


def test_pth_files_are_all_there_and_those_that_run_code_are_marked(
    place: Path, tmp_path: Path, context: Context
) -> None:
    site = site_of(place)
    (site / "autopatch.pth").write_text("import sys; sys.patched = True\n")
    (site / "paths.pth").write_text("# import nothing\n/srv/tree\nimportant\n")
    (site / ".hidden.pth").write_text("import os\n")
    files = startup.read({**context(), "serving": serving(place, tmp_path)})["files"]
    assert files["autopatch.pth"]["runs_code"] is True
    assert files["paths.pth"]["runs_code"] is False
    assert ".hidden.pth" not in files


def test_switches_that_turn_start_up_off_are_respected(place: Path, tmp_path: Path, context: Context) -> None:
    (site_of(place) / "sitecustomize.py").write_text("x = 1\n")
    named = tmp_path / "named"
    named.mkdir()
    (named / "sitecustomize.py").write_text("x = 2\n")
    no_site = startup.read({**context(), "serving": serving(place, tmp_path, "-S")})
    assert no_site["files"] == {}
    isolated = startup.read({**context(), "serving": serving(place, tmp_path, "-I", PYTHONPATH=str(named))})
    assert isolated["files"]["sitecustomize.py"]["path"] == str(site_of(place) / "sitecustomize.py")


def test_the_user_s_site_counts_only_where_python_enables_it(place: Path, tmp_path: Path, context: Context) -> None:
    site = site_of(place)
    user = tmp_path / ".local/lib" / site.parent.name / "site-packages"
    user.mkdir(parents=True)
    (user / "usercustomize.py").write_text("x = 1\n")
    home = {"HOME": str(tmp_path)}
    inside = startup.read({**context(), "serving": serving(place, tmp_path, **home)})
    assert "usercustomize.py" not in inside["files"]  # a virtual environment does not have it
    config = (place / "pyvenv.cfg").read_text().replace("= false", "= true")
    (place / "pyvenv.cfg").write_text(config)
    with_system = startup.read({**context(), "serving": serving(place, tmp_path, **home)})
    assert with_system["files"]["usercustomize.py"]["path"] == str(user / "usercustomize.py")
    refused = startup.read({**context(), "serving": serving(place, tmp_path, **home, PYTHONNOUSERSITE="1")})
    assert "usercustomize.py" not in refused["files"]


def test_pyvenv_is_told_and_secrets_in_startup_files_are_not(place: Path, tmp_path: Path, context: Context) -> None:
    (site_of(place) / "sitecustomize.py").write_text(
        "import os\nos.environ['HF_TOKEN'] = 'hf_abcdefghijklmnopqrstuvwx'\n"
    )
    section = startup.read({**context(), "serving": serving(place, tmp_path)})
    assert section["pyvenv"]["include-system-site-packages"] == "false"
    assert "hf_abcdef" not in section["files"]["sitecustomize.py"]["text"]
    assert "<secret:" in section["files"]["sitecustomize.py"]["text"]


def test_a_fifo_named_like_a_pth_file_costs_nothing(place: Path, tmp_path: Path, context: Context) -> None:
    os.mkfifo(site_of(place) / "trap.pth")
    section = startup.read({**context(), "serving": serving(place, tmp_path)})
    assert section["files"]["trap.pth"]["text"]["unread"].endswith("not a regular file")


def test_plugins_of_the_engine_are_told_and_other_entry_points_are_not(
    place: Path, tmp_path: Path, context: Context
) -> None:
    info = site_of(place) / "autopatch-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "[console_scripts]\ntool = tool:main\n\n[sglang.srt.plugins]\n# note\nfast = autopatch.hooks:install\n"
    )
    section = startup.read({**context(), "serving": serving(place, tmp_path)})
    assert section["plugins"] == {"sglang.srt.plugins fast": "autopatch.hooks:install (autopatch)"}


def test_a_module_that_hides_an_installed_one_is_told(place: Path, tmp_path: Path, context: Context) -> None:
    for root in (site_of(place), tmp_path):
        (root / "torch").mkdir()
        (root / "torch/__init__.py").write_text("")
    (tmp_path / "own.py").write_text("")
    section = startup.read({**context(), "serving": serving(place, tmp_path)})
    assert section["hidden"] == {"torch": [str(tmp_path), str(site_of(place))]}
    safe = startup.read({**context(), "serving": serving(place, tmp_path, PYTHONSAFEPATH="1")})
    assert safe["hidden"] == {}
