"""A package served from a git tree becomes what each release says, and nothing of the last one is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fingerprint.reference.sglang_tree import NOTE, Edit, Release, ServedTree, await_ready, operations_packages
from probes.ports import free_port


@pytest.fixture
def served(tmp_path: Path) -> ServedTree:
    package = tmp_path / "installed" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "srt" / "engine.py").write_text("depth = 1\nwidth = 1\n")
    host = ServedTree(tmp_path / "host")
    host.build(package)
    return host


ENGINE = "python/sglang/srt/engine.py"
SPRING = Release({}, {"--tp": "2"}, {ENGINE: NOTE.format("spring")}, packages=operations_packages(4, "a"))
AUTUMN = Release(
    {"NCCL_PROTO": None}, {"--tp": None, "--disable-overlap": ""}, edits=(Edit(ENGINE, "depth = 1", "depth = 2"),),
    startup="import sys\n", packages=operations_packages(5, "b"),
)  # fmt: skip


def changed(served: ServedTree) -> str:
    command = ["git", "-C", str(served.tree), "diff", "-U0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_release_takes_the_place_of_the_last_one(served: ServedTree) -> None:
    served.become(SPRING)
    assert "+# Operations: reviewed for the spring release." in changed(served)
    served.become(AUTUMN)
    assert "spring" not in changed(served)
    assert "-depth = 1\n+depth = 2\n" in changed(served)
    assert (served.startup / "sitecustomize.py").read_text() == "import sys\n"
    assert "RELEASE = 5" in (served.extra / "ops_metrics" / "__init__.py").read_text()
    assert SPRING.words() == ["--tp", "2"]
    assert AUTUMN.words() == ["--disable-overlap"]


@pytest.mark.parametrize("text", ["= 1", "= 3"])
def test_a_text_that_is_not_there_once_is_refused_by_name(served: ServedTree, text: str) -> None:
    with pytest.raises(ValueError, match=f"engine.py of this SGLang has '{text}' [02] times, not once"):
        served.become(Release({}, {}, edits=(Edit(ENGINE, text, ""),)))


def test_a_server_that_ends_before_it_is_ready_is_told_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(["sh", "-c", "echo no memory; exit 3"], stdout=out)
        with pytest.raises(RuntimeError, match=r"the live server ended with 3: no memory"):
            await_ready(server, free_port(), "/ready", 20.0, log)
