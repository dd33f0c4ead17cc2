"""The proof looks where a factor acts: what overrides a value, maps another library or imports elsewhere is found."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from git_trees import commit, git, new_tree
from incident_host import BRIEF, Incident
from test_trees_on_a_host import NUMBER, captured, factors
from test_trials import attempt, unproven
from trials_host import contents_of

from fingerprint.factors import LaunchPlan
from fingerprint.factors.flags import Flag
from fingerprint.host import HostProgram
from probes import processes, proof
from probes.secrets import Keeper

OVERRIDES = """
import os, sys
os.environ["BY_STARTUP"] = "another"
if "-c" in sys.orig_argv:  # in what the launcher spawns
    os.environ.pop("IN_LAUNCHER", None)
"""


def test_a_variable_that_something_overrides_is_found_where_it_acts(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan_without("startup:sitecustomize")
    site = incident.world.root / "site"
    text = (site / "sitecustomize.py").read_text()
    plan.directory(str(site)).write["sitecustomize.py"] = {"text": text + OVERRIDES}
    plan.argv[:0] = ["/usr/bin/env", "BY_WRAPPER=another"]
    for name in ("BY_STARTUP", "BY_WRAPPER", "IN_LAUNCHER", "NOWHERE_ELSE"):
        plan.variables[name] = "wanted"
        plan.check(f"variable:{name}", "variable", name=name, value="wanted")
    BRIEF.adopt(plan)
    seen = {check["factor"]: check["seen"] for check in unproven(attempt(prepared, plan))}
    assert "package:tiny-kernels" not in seen, seen
    assert seen.keys() == {"variable:BY_STARTUP", "variable:BY_WRAPPER", "variable:IN_LAUNCHER"}
    assert seen["variable:BY_STARTUP"].startswith("the launcher has 'another'; rank 0 has 'another'")
    assert seen["variable:BY_WRAPPER"].startswith("the launcher has 'another'; rank 0 has 'another'")
    assert seen["variable:IN_LAUNCHER"] == (
        "it is right in the launcher and in no rank, where something replaced it: rank 0 has none; rank 1 has none"
    )


def test_a_flag_is_proven_by_what_the_server_made_of_it(prepared: HostProgram, incident: Incident) -> None:
    plan = incident.plan_without("flag:--watchdog-timeout")
    flag = incident.factor("flag:--watchdog-timeout")
    assert isinstance(flag, Flag)
    assert (flag.old_resolved, flag.new_resolved) == ((300.0,), (600.0,))
    flag.apply(plan, new=False)
    BRIEF.adopt(plan)
    plan.argv += ["--watchdog-timeout", "500"]  # the last one counts
    (failed,) = unproven(attempt(prepared, plan))
    assert failed["factor"] == flag.id
    assert failed["seen"] == "it is on the command line, and the engine made watchdog_timeout 500.0 of it"


def test_a_server_that_tells_nothing_of_its_arguments_is_believed_and_that_is_said() -> None:
    check = {"factor": "flag:--x", "what": "argument", "names": ["x"], "words": ["1"], "values": []}
    (one,) = proof.check([check], os.getpid(), {})
    assert one["ok"]
    assert one["seen"].startswith("the server does not say what it made of it")


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["0.80"], 0.8), (["fa3"], "fa3"), (["True"], True), (["1", "2"], [1, 2]), (["1,2"], [1, 2]),
        (['{"a": 1}'], {"a": 1}), (["none"], "None"),
    ],
)  # fmt: skip
def test_words_of_a_flag_are_understood_as_the_value_that_they_mean(words: list[str], there: object) -> None:
    assert proof._means(words, there)
    assert not proof._means(["another"], there)
    assert proof._means([], True)
    assert not proof._means([], False)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The site-packages of an environment of its own, where nothing is installed yet."""
    prefix = tmp_path / "venv"
    site = prefix / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (prefix / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    return site


LEADS = {
    "tree.pth": "{}\n",
    "__editable___speed_finder.py": "MAPPING: dict[str, str] = {{'speed': '{}/speed'}}\n",
    "__editable__.speed.pth": "import sys; sys.path.append('{}')\n",
}


@pytest.mark.parametrize("isolation", ["overlay", "copies"])
def test_a_tree_that_the_environment_leads_to_is_imported_from_its_private_checkout(
    host: HostProgram, environment: Path, tmp_path: Path, isolation: str
) -> None:
    tree = new_tree(tmp_path / "tree", {"speed/__init__.py": "MS = 10\n"})
    for name, text in LEADS.items():
        (environment / name).write_text(text.format(tree))
    old = captured(tree)
    commit(tree, {"speed/__init__.py": "MS = 20\n"}, "slower")
    made = factors(old, captured(tree))
    before = contents_of(tmp_path)
    host.call("prepare", {"pid": None})
    prefix = environment.parents[2]
    proven = tmp_path.with_suffix(".proven")
    waits = f"while not os.path.exists({str(proven)!r}): time.sleep(0.01)"
    code = f"import os, speed, time\nprint(speed.MS, 'ms', flush=True)\n{waits}"
    for new, ms in ((False, 10), (True, 20)):
        plan = LaunchPlan([str(prefix / "bin" / "python"), "-c", code], str(tmp_path), {"PATH": "/bin"}, str(prefix))
        for factor in made.values():
            factor.apply(plan, new=new)
        ask = {**plan.to_json(), "run": NUMBER, "stop_s": 1.0, "isolation": isolation}
        answer = host.call("try", ask, lambda _event, value: proven.touch() if value["stage"] == "measuring" else None)
        proven.unlink()
        assert unproven(answer) == []
        assert [one["time_ms"] for one in answer["figures"]["samples"]] == [ms]
    assert contents_of(tmp_path) == before


def test_a_server_that_imports_from_the_live_tree_is_no_proof_of_the_copy(tmp_path: Path) -> None:
    live, copy = (new_tree(tmp_path / name, {"speed.py": "MS = 10\n"}) for name in ("live", "copy"))
    check = {
        "factor": "tree:commit",
        "what": "commit",
        "root": str(live),
        "value": git(live, "rev-parse", "HEAD").strip(),
    }
    git(copy, "fetch", "-q", str(live), "main")
    git(copy, "checkout", "-q", "--detach", "FETCH_HEAD")
    for path, ok in ((copy, True), (live, False), (f"{copy}:{live}", True), (f"{live}:{copy}", False)):
        words = [sys.executable, "-c", "print('ready', flush=True); input()"]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(path)}, cwd="/"
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            (one,) = proof.check([check], server.pid, {str(live): str(copy)})
            server.communicate(b"\n")
        assert one["ok"] == ok, (path, one["seen"])
        assert ok or one["seen"] == f"it is imported from {live}, not from the copy"


LIBRARY = "libfast.so.2"
MAPS = """
import ctypes, sys
held = [ctypes.CDLL(path) for path in sys.argv[1:]]
print('ready', flush=True)
input()
"""


@pytest.fixture
def installed(environment: Path) -> Path:
    """A package with a library of its own: a real one, under another name."""
    source = next(path for path in processes.mappings(os.getpid()) if "/libc.so" in path.path or "/libc-" in path.path)
    (environment / "fast" / "lib").mkdir(parents=True)
    shutil.copy(next(Path(source.path).parent.glob("libutil.so.1")), environment / "fast" / "lib" / LIBRARY)
    meta = environment / "fast-2.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Name: fast\nVersion: 2.0\n")
    (meta / "RECORD").write_text(f"fast/lib/{LIBRARY},,\nfast-2.0.dist-info/METADATA,,\nfast-2.0.dist-info/RECORD,,\n")
    return environment


def package_check(
    site: Path, *mapped: Path, written: dict[str, str] | None = None, moved: dict[str, str] | None = None
) -> dict[str, Any]:
    """What the proof says of the package for a process that has mapped these libraries."""
    check = {"factor": "package:fast", "what": "package", "name": "fast", "location": str(site), "version": "2.0",
             "record": None}  # fmt: skip
    words = [sys.executable, "-c", MAPS, *map(str, mapped)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        (one,) = proof.check([check], server.pid, moved or {}, written={str(site): written or {}})
        server.communicate(b"\n")
    return dict(one)


def test_the_library_that_is_mapped_is_the_package_s_own(installed: Path, tmp_path: Path) -> None:
    own = installed / "fast" / "lib" / LIBRARY
    elsewhere = tmp_path / "elsewhere" / LIBRARY
    elsewhere.parent.mkdir()
    shutil.copy(own, elsewhere)
    assert package_check(installed)["ok"]
    seen = package_check(installed, own)
    assert (seen["ok"], seen["seen"]) == (True, "2.0, RECORD e3b0c44298fc, 1 of its libraries mapped")
    seen = package_check(installed, elsewhere)
    assert not seen["ok"]
    assert seen["seen"] == f"the launcher has {LIBRARY} of {elsewhere.parent} mapped, not the package's own"


def test_a_library_of_the_live_environment_is_not_that_of_its_copy(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "venv", copy, symlinks=True)
    moved = {str(tmp_path / "venv"): str(copy)}
    own = Path("fast") / "lib" / LIBRARY
    assert package_check(installed, copy / installed.relative_to(tmp_path / "venv") / own, moved=moved)["ok"]
    seen = package_check(installed, installed / own, moved=moved)
    assert not seen["ok"]
    assert seen["seen"].endswith(f"has {LIBRARY} of {(installed / own).parent} mapped, not the package's own")


def test_a_package_is_proven_file_by_file_where_its_files_were_sent(installed: Path) -> None:
    own = installed / "fast" / "lib" / LIBRARY
    path = f"fast/lib/{LIBRARY}"
    right = hashlib.sha256(own.read_bytes()).hexdigest()
    seen = package_check(installed, own, written={path: right})
    assert (seen["ok"], seen["seen"]) == (
        True, "2.0, RECORD e3b0c44298fc, 1 of 1 files read again, 1 of its libraries mapped"
    )  # fmt: skip
    seen = package_check(installed, own, written={path: "0" * 64})
    assert (seen["ok"], seen["seen"]) == (False, f"{path} is not the file that was sent")


def test_secrets_are_proven_by_what_stands_for_them_and_never_told() -> None:
    secret = "hf_0123456789abcdefghij"
    keeper = Keeper(b"the operator's")
    variable = {"factor": "variable:HF_TOKEN", "what": "variable", "name": "HF_TOKEN"}
    flag = {"factor": "flag:--api-key", "what": "word"}
    checks = [
        {**variable, "value": keeper.token(secret)}, {**variable, "value": None},
        {**flag, "values": [keeper.token("s3cret-0123")]}, {**flag, "values": ["another"]},
    ]  # fmt: skip
    words = [sys.executable, "-c", "print('ready', flush=True); input()", "--api-key", "s3cret-0123"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"HF_TOKEN": secret}) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        found = proof.check(checks, server.pid, {}, secrets=keeper)
        server.communicate(b"\n")
    assert [one["ok"] for one in found] == [True, False, True, False]
    assert f"the launcher has '{keeper.token(secret)}'" in found[1]["seen"]
    assert secret not in str(found)
    assert "s3cret" not in str(found)


def test_values_that_name_a_moved_tree_are_proven_where_it_is_now() -> None:
    moved = {"/live/tree": "/scratch/tree"}
    checks = [
        {"factor": "variable:PYTHONPATH", "what": "variable", "name": "PYTHONPATH", "value": "/live/tree/python:/site"},
        {"factor": "flag:--model-path", "what": "word", "values": ["/live/tree/model"]},
    ]
    words = [sys.executable, "-c", "print('ready', flush=True); input()", "--model-path", "/scratch/tree/model"]
    variables = {"PYTHONPATH": "/scratch/tree/python:/site"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert [one["ok"] for one in proof.check(checks, server.pid, moved)] == [True, True]
        assert [one["ok"] for one in proof.check(checks, server.pid, {})] == [False, False]
        server.communicate(b"\n")
