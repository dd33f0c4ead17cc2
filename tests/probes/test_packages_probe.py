"""The distributions of the serving interpreter."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import digests, interpreter, packages
from snapshots import Packages, Unread

Context = Callable[..., dict[str, Any]]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def install(site: Path, name: str, version: str, files: dict[str, bytes], **metadata: str) -> Path:
    """Lay a distribution out as an installer does."""
    info = site / f"{name}-{version}.dist-info"
    contents = dict(files)
    contents[f"{info.name}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    contents[f"{info.name}/WHEEL"] = b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\nTag: py3-none-any\n"
    contents |= {f"{info.name}/{key}": value.encode() for key, value in metadata.items()}
    rows = [f"{path},sha256={b64(data)},{len(data)}" for path, data in contents.items()]
    for path, data in contents.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
    return info


@pytest.fixture
def environment_copy(tmp_path: Path, environment: Path) -> tuple[Path, Path]:
    """A virtual environment of the test's own: its Python and its site-packages."""
    place = tmp_path / "venv"
    shutil.copytree(environment, place, symlinks=True)
    return place / "bin" / "python", next(place.glob("lib/python3.*/site-packages"))


def test_distributions_have_canonical_names_and_what_their_wheels_say(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    install(site, "flashinfer_python", "0.2.5", {"flashinfer/__init__.py": b"x = 1\n"}, INSTALLER="uv\n")
    section = Packages.model_validate(packages.read(context(python=str(python))))
    found = section.distributions["flashinfer-python"]
    assert (found.version, found.installer, found.tags) == ("0.2.5", "uv", ["cp311-cp311-linux_x86_64", "py3-none-any"])
    assert found.location == str(site)
    assert found.contents is None
    assert section.interpreter is not None
    assert section.interpreter.prefix == str(python.parent.parent)
    assert str(site) in section.interpreter.path


def test_the_version_is_the_interpreter_s_own(environment_copy: tuple[Path, Path], context: Context) -> None:
    python, _site = environment_copy
    told = subprocess.run([python, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, text=True)
    assert packages.read(context(python=str(python)))["interpreter"]["version"] == told.stdout.strip()


def test_the_path_is_the_one_that_python_itself_has(
    environment_copy: tuple[Path, Path], context: Context, tmp_path: Path
) -> None:
    python, site = environment_copy
    (tmp_path / "named").mkdir()
    (site / "below").mkdir()
    (site / "more.pth").write_text("below\nnot-there\nimport os\n# a comment\n")
    variables = {"PYTHONPATH": f"{tmp_path}/named:{tmp_path}/nowhere", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    told = subprocess.run(
        [python, "-c", "import os, sys; print([p for p in sys.path[1:] if os.path.isdir(p)])"],
        capture_output=True, text=True, env=variables, cwd=tmp_path,
    )  # fmt: skip
    serving = {"argv": [str(python), "-c", "pass"], "variables": variables, "cwd": str(tmp_path), "executable": ""}
    found = interpreter.deduce({**context(), "serving": serving})
    assert [place for place in found.path if place not in found.script] == eval(told.stdout)
    assert found.script == [str(tmp_path)]


def test_verification_marks_what_was_changed_and_only_that(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    files = {f"kernels/{name}.py": f"{name} = 1\n".encode() for name in ("same", "digest", "size", "gone")}
    install(site, "kernels", "1.0", files)
    clean = packages.read(context(python=str(python), verify=True))["distributions"]["kernels"]
    assert clean["altered"] == {}
    (site / "kernels/digest.py").write_bytes(b"digest = 2\n")
    (site / "kernels/size.py").write_bytes(b"longer = 1000\n")
    (site / "kernels/gone.py").unlink()
    (site / "kernels/new.py").write_bytes(b"new = 1\n")
    (site / "kernels/__pycache__").mkdir()
    (site / "kernels/__pycache__/same.cpython-311.pyc").write_bytes(b"compiled")
    found = packages.read(context(python=str(python), verify=True))["distributions"]["kernels"]
    assert found["altered"] == {
        "kernels/digest.py": "5", "kernels/size.py": "S5", "kernels/gone.py": "missing", "kernels/new.py": "extra",
    }  # fmt: skip
    assert found["record"] == clean["record"]
    assert found["contents"] != clean["contents"]


def test_the_same_wheel_installed_elsewhere_has_the_same_digests(
    environment_copy: tuple[Path, Path], context: Context, tmp_path: Path
) -> None:
    python, site = environment_copy
    info = install(site, "tool", "1.0", {"tool.py": b"x = 1\n"}, INSTALLER="pip")
    scripts = python.parent / "tool"
    scripts.write_bytes(b"#!/somewhere/python\nrun()\n")
    with (info / "RECORD").open("a") as record:
        record.write(f"../../../bin/tool,sha256={b64(b'#!/elsewhere/python')},9\n")
    here = packages.read(context(python=str(python), verify=True))["distributions"]["tool"]
    assert here["altered"] == {}  # a rewritten shebang is no alteration
    moved = tmp_path / "moved"
    shutil.copytree(python.parent.parent, moved, symlinks=True)
    (moved / "bin/tool").write_bytes(b"#!/a/third/python\nrun()\n")
    info.joinpath("INSTALLER").write_text("uv")
    there = packages.read(context(python=str(moved / "bin/python"), verify=True))["distributions"]["tool"]
    assert (there["record"], there["contents"]) == (here["record"], here["contents"])


def test_without_a_record_a_distribution_is_not_verifiable_and_not_accused(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    (install(site, "fromconda", "2.0", {"fromconda.py": b""}, INSTALLER="conda") / "RECORD").unlink()
    section = packages.read(context(python=str(python), verify=True))
    found = section["distributions"]["fromconda"]
    assert found["record"] is None
    assert found["contents"] == {"unread": "it has no RECORD"}
    assert found.get("altered", {}) == {}


def test_what_conda_installed_is_told_with_build_channel_and_digests(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    (install(site, "torch", "2.5.1", {"torch/__init__.py": b""}, INSTALLER="conda") / "RECORD").unlink()
    folder = python.parent.parent / "conda-meta"
    folder.mkdir()
    paths = [{"_path": "lib/libcublas.so.12", "sha256": "ab" * 32}, {"_path": "lib/link", "path_type": "softlink"}]
    told = {"name": "libcublas", "channel": "https://conda.example/t/tk-s3cret/nvidia", "paths_data": {"paths": paths}}
    (folder / "libcublas-12.4.5.8-0.json").write_text(json.dumps(told))
    (folder / "pytorch-2.5.1-py3.11_cuda12.4_0.json").write_text("{ cut off")
    (folder / "history").write_text("")
    section = Packages.model_validate(packages.read(context(python=str(python), verify=True)))
    library = section.conda["libcublas"]
    assert (library.version, library.build) == ("12.4.5.8", "0")
    expected = hashlib.sha256(f"lib/libcublas.so.12 {'ab' * 32}".encode()).hexdigest()
    assert library.record == expected
    damaged = section.conda["pytorch"]
    assert (damaged.version, damaged.build) == ("2.5.1", "py3.11_cuda12.4_0")
    assert isinstance(damaged.record, Unread)
    assert section.distributions["torch"].altered == {}
    quick = Packages.model_validate(packages.read(context(python=str(python))))
    assert {name: one.version for name, one in quick.conda.items()} == {"libcublas": "12.4.5.8", "pytorch": "2.5.1"}


def test_a_stub_is_a_leftover_and_does_not_hide_the_real_one(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    install(site, "torch", "2.7.1+cu128", {"torch/__init__.py": b""})
    stub = site / "torch-2.6.0+cu124.dist-info"
    stub.mkdir()
    (stub / "REQUESTED").touch()
    nameless = site / "nameless-1.dist-info"
    nameless.mkdir()
    (nameless / "METADATA").write_text("Metadata-Version: 2.1\n")
    (site / "~orch").mkdir()
    section = packages.read(context(python=str(python)))
    assert section["distributions"]["torch"]["version"] == "2.7.1+cu128"
    assert section["duplicates"] == {}
    assert section["leftovers"] == {
        str(stub): "has no METADATA",
        str(nameless): "ValueError: its METADATA names no project and version",
        str(site / "~orch"): "left by an interrupted uninstall",
    }


@pytest.mark.parametrize("winner", ["1.0", "2.0"])
def test_of_two_whole_copies_the_one_whose_files_are_there_wins(
    environment_copy: tuple[Path, Path], context: Context, winner: str
) -> None:
    python, site = environment_copy
    for version in ("1.0", "2.0"):
        install(site, "dup", version, {"dup/__init__.py": f"__version__ = '{version}'\n".encode()})
    (site / "dup/__init__.py").write_text(f"__version__ = '{winner}'\n")
    section = packages.read(context(python=str(python)))
    assert section["distributions"]["dup"]["version"] == winner
    assert section["duplicates"]["dup"][0].startswith(f"{winner} in ")
    assert len(section["duplicates"]["dup"]) == 2


def test_the_first_directory_on_the_path_wins(
    environment_copy: tuple[Path, Path], context: Context, tmp_path: Path
) -> None:
    python, site = environment_copy
    overlay = tmp_path / "overlay"
    install(site, "kernels", "2.0", {"kernels.py": b""})
    install(overlay, "kernels", "1.0", {"kernels.py": b""})
    variables = {"PYTHONPATH": str(overlay)}
    serving = {"argv": [str(python), "-m", "x"], "variables": variables, "cwd": str(tmp_path), "executable": ""}
    section = packages.read({**context(), "serving": serving})
    assert section["distributions"]["kernels"]["version"] == "1.0"
    assert section["distributions"]["kernels"]["location"] == str(overlay)


def test_origins_are_told_without_credentials(environment_copy: tuple[Path, Path], context: Context) -> None:
    python, site = environment_copy
    url = '{"url": "https://me:s3cr3tword@git.example/lib", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'
    install(site, "lib", "1.0", {"lib.py": b""}, **{"direct_url.json": url})
    editable = '{"url": "file:///srv/edit", "dir_info": {"editable": true}}'
    install(site, "edit", "1.0", {"edit.py": b""}, **{"direct_url.json": editable})
    found = packages.read(context(python=str(python)))["distributions"]
    assert "s3cr3tword" not in repr(found)
    assert found["lib"]["origin"].startswith("git+https://<secret:")
    assert found["lib"]["origin"].endswith("@git.example/lib@abc")
    assert (found["edit"]["editable"], found["edit"]["origin"]) == (True, "file:///srv/edit")


def test_kept_distributions_travel_whole(environment_copy: tuple[Path, Path], context: Context) -> None:
    python, site = environment_copy
    install(site, "tiny_kernels", "1.0", {"tiny_kernels/__init__.py": b"speed = 1\n", "tiny_kernels/data.bin": b"\0\1"})
    (site / "tiny_kernels/patched.py").write_bytes(b"by hand\n")
    install(site, "other", "1.0", {"other.py": b""})
    request = context(python=str(python), keep=["tiny-*"])
    section = packages.read(request)
    assert section["distributions"]["tiny-kernels"]["kept"] is True
    assert section["distributions"]["other"].get("kept", False) is False
    files = section["files"]["tiny-kernels"]
    assert set(files) == {
        "tiny_kernels/__init__.py", "tiny_kernels/data.bin", "tiny_kernels/patched.py",
        "tiny_kernels-1.0.dist-info/METADATA", "tiny_kernels-1.0.dist-info/WHEEL", "tiny_kernels-1.0.dist-info/RECORD",
    }  # fmt: skip
    sent = {value["sha256"]: base64.b64decode(value["data"]) for _event, value in request["emitted"]}
    for path, digest in files.items():
        assert hashlib.sha256(sent[digest]).hexdigest() == digest
        assert (site / path).read_bytes() == sent[digest]


def test_a_fifo_in_place_of_a_file_is_not_waited_for(environment_copy: tuple[Path, Path], context: Context) -> None:
    python, site = environment_copy
    install(site, "kernels", "1.0", {"kernels/a.py": b"a"})
    (site / "kernels/a.py").unlink()
    os.mkfifo(site / "kernels/a.py")
    found = packages.read(context(python=str(python), verify=True))["distributions"]["kernels"]
    assert found["altered"] == {"kernels/a.py": "not a regular file"}


def test_rows_of_every_age_are_understood() -> None:
    text = (
        "pkgc/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
        '"pkgc/maps/a, b and c.txt",sha256=AAAA,12\n'
        "pkgc/map,v2.dat,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,10\n"
        '"pkgc/quoted,v2.dat",,\n'
        "pkgc/bad.py,sha=abcd,5\n"
        "pkgc/hex.py,sha256=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff,7\n"
        "../../../bin/pkgc,sha256=CCCC,200\n"
        "pkgc-1.0.dist-info/RECORD,,\n"
        "\n"
    )
    rows = list(packages.record_rows(text))
    assert [(row.path, (row.verifiable or (None,))[0], row.size) for row in rows] == [
        ("pkgc/__init__.py", "sha256", 0),
        ("pkgc/maps/a, b and c.txt", None, 12),
        ("pkgc/map,v2.dat", "sha256", 10),
        ("pkgc/quoted,v2.dat", None, None),
        ("pkgc/bad.py", None, 5),
        ("pkgc/hex.py", "sha256", 7),
        ("../../../bin/pkgc", None, 200),
        ("pkgc-1.0.dist-info/RECORD", None, None),
    ]
    assert rows[0].verifiable == ("sha256", hashlib.sha256(b"").hexdigest())
    assert (rows[5].verifiable or ("", ""))[1].startswith("001122")


@given(st.text())
def test_no_record_whatever_it_says_breaks_the_others(text: str) -> None:
    whole = "good.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"
    rows = list(packages.record_rows(f"{whole}\n{text}\n{whole}\n"))
    assert rows[0].path == rows[-1].path == "good.py"


def test_no_server_and_no_interpreter_is_absent(context: Context) -> None:
    assert packages.read(context()) == {
        "status": "absent",
        "reason": "no server runs here, and no interpreter was named",
    }


def test_an_interpreter_that_is_not_there_is_a_reason(context: Context, tmp_path: Path) -> None:
    section = packages.read(context(venv=str(tmp_path)))
    assert section == {"status": "failed", "reason": f"{tmp_path}/bin/python does not exist"}


def test_what_did_not_change_is_not_read_again(environment_copy: tuple[Path, Path], context: Context) -> None:
    python, site = environment_copy
    for name in ("one", "other"):
        install(site, name, "1.0", {f"{name}/__init__.py": b"x = 1\n"})
    first = packages.read(context(python=str(python), verify=True))["distributions"]
    verified = Packages.model_validate({"distributions": first}).verified()
    assert set(verified) == set(first)
    (site / "other/__init__.py").write_bytes(b"y = 2\n")
    lie = {**verified, "one": {**verified["one"], "contents": "what was remembered"}}
    second = packages.read(context(python=str(python), verify=True, verified=lie))["distributions"]
    assert second["one"]["contents"] == "what was remembered"  # it was believed, not read
    assert second["other"]["altered"] == {"other/__init__.py": "5"}


def test_a_change_that_keeps_size_and_time_is_seen_all_the_same(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    install(site, "one", "1.0", {"one.py": b"x = 1\n"})
    first = packages.read(context(python=str(python), verify=True))["distributions"]
    times = (site / "one.py").stat()
    (site / "one.py").write_bytes(b"x = 2\n")
    os.utime(site / "one.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    verified = Packages.model_validate({"distributions": first}).verified()
    second = packages.read(context(python=str(python), verify=True, verified=verified))["distributions"]
    assert second["one"]["altered"] == {"one.py": "5"}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_file_is_digested_once_whatever_the_threads(tmp_path: Path, threads: int) -> None:
    jobs = []
    for number in range(50):
        path = tmp_path / str(number)
        path.write_bytes(b"x" * number**3)
        jobs.append(digests.Job(number**3, str(path), "sha512" if number % 2 else "sha256"))
    jobs.append(digests.Job(0, str(tmp_path / "missing"), "sha256"))
    found = digests.of_files(jobs, threads)
    assert isinstance(found.pop(str(tmp_path / "missing")), FileNotFoundError)
    for number in range(50):
        expected = hashlib.new("sha512" if number % 2 else "sha256", b"x" * number**3).hexdigest()
        assert found[str(tmp_path / str(number))] == (expected, number**3)


def test_how_the_interpreter_was_built_is_what_it_says_itself(environment: Path, context: Context) -> None:
    python = environment / "bin/python"
    code = "import json, sysconfig; print(json.dumps(sysconfig.get_config_vars()))"
    told = json.loads(subprocess.run([python, "-c", code], capture_output=True, text=True).stdout)
    built = packages.read(context(python=str(python)))["interpreter"]["build"]
    flags = built.pop("CONFIG_ARGS").split()
    assert flags
    assert all(flag in told["CONFIG_ARGS"] and "/" not in flag for flag in flags)
    assert built
    assert built == {name: str(told[name]) for name in built}


def test_a_mapped_cuda_library_is_told_with_the_wheel_that_it_came_with(
    environment_copy: tuple[Path, Path], context: Context
) -> None:
    python, site = environment_copy
    name = "nvidia/cuda_runtime/lib/libcudart.so.12"
    install(site, "nvidia_cuda_runtime_cu12", "12.8.90", {name: b"\x7fELF"})
    install(site, "other", "1", {f"more/{name}": b"\x7fELF", "other/libcufoo.so": b""})
    mapped = (site.resolve() / name, site.resolve() / "other/libcufoo.so.1", Path("/usr/lib/libcuda.so.1"))
    libraries = {path.name: {"path": str(path)} for path in mapped}
    server = {"processes": {"launcher": {"libraries": {"unread": "gone"}}, "rank 0": {"libraries": libraries}}}
    section = packages.read({**context(python=str(python)), "server": server})
    assert section["owners"] == {str(mapped[0]): "nvidia-cuda-runtime-cu12 12.8.90"}
