"""Where the files of an old package come from, with real wheels, and which packages are one factor."""

from __future__ import annotations

import shutil
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from fingerprint.bisect.run import prior_of
from fingerprint.diff import compare
from fingerprint.errors import UsageError
from fingerprint.factors import Evidence, Factor, Fixed, Inside, LaunchPlan
from fingerprint.factors.packages import Bundle, Package, find
from fingerprint.factors.packages import needs as needs_of
from fingerprint.reference.wheel import Wheel, install
from fingerprint.wheels import Wheels
from probes import packages
from snapshots import Distribution, Interpreter, Packages, Snapshot

SOURCE = {"tiny_kernel/__init__.py": "from tiny_kernel.fast import run\n", "tiny_kernel/fast.py": "def run(): ...\n"}


def wheel(version: str = "1.0", requires: tuple[str, ...] = (), **files: str) -> Wheel:
    changed = {f"tiny_kernel/{name}.py": text for name, text in files.items()}
    return Wheel("tiny-kernel", version, {**SOURCE, **changed}, "Kernels", requires)


def described(folder: Path, made: Wheel) -> Distribution:
    """What a capture says of a wheel that is installed somewhere else."""
    site = folder / "described"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    install(made.build(folder / "built"), site)
    found = packages.installed(str(site), made.name)
    assert found is not None
    tags = ["py3-none-any"]
    return Distribution(
        version=found[0], record=found[1], location="/venv/site", tags=tags, requires=list(made.requires)
    )


def snapshot(**distributions: Distribution) -> Snapshot:
    return Snapshot(
        tool="0",
        taken_at=datetime(2026, 11, 3, tzinfo=timezone.utc),
        target="local",
        packages=Packages(
            status="ok",
            interpreter=Interpreter(
                executable="/venv/bin/python", version="3.11.9", prefix="/venv", base_prefix="/usr", path=["/venv/site"]
            ),
            distributions={name.replace("_", "-"): one for name, one in distributions.items()},
        ),
    )


def rebuilt(rows: tuple[tuple[str, str], ...], source: Wheels, site: Path) -> tuple[str, str | None] | None:
    """Lay the files down as a trial does, and read them as the proof does."""
    site.mkdir()
    for name, digest in rows:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        size, stream = source.open(digest)
        with stream:
            data = stream.read()
        assert len(data) == size
        (site / name).write_bytes(data)
    return packages.installed(str(site), "tiny-kernel")


def test_the_wheel_whose_record_the_old_side_had_is_taken_and_no_other(tmp_path: Path) -> None:
    wanted = described(tmp_path, wheel())
    house = tmp_path / "house"
    wheel(fast="def run(): slow()\n").build(house)
    assert "another build" in str(Wheels([house]).files("tiny-kernel", wanted, None))
    wheel().build(house)  # over the other one: a wheel's name does not tell builds apart
    source = Wheels([house])
    rows = source.files("tiny-kernel", wanted, None)
    assert isinstance(rows, tuple)
    assert rebuilt(rows, source, tmp_path / "site") == (wanted.version, wanted.record)
    assert (tmp_path / "site" / "tiny_kernel" / "fast.py").read_text() == SOURCE["tiny_kernel/fast.py"]


def test_other_versions_and_other_platforms_are_no_match(tmp_path: Path) -> None:
    wanted = described(tmp_path, wheel())
    house = tmp_path / "house"
    wheel("2.0").build(house)
    (house / "not-a-wheel.whl").write_bytes(b"")
    assert "no wheel of tiny-kernel 1.0 was found" in str(Wheels([house]).files("tiny-kernel", wanted, None))
    path = wheel().build(house)
    path.rename(path.with_name("tiny_kernel-1.0-cp39-cp39-win_amd64.whl"))
    assert "another build" in str(Wheels([house]).files("tiny-kernel", wanted, None))
    path.write_bytes(b"PK, but cut off")
    assert "another build" in str(Wheels([house]).files("tiny-kernel", wanted, None))


def test_an_installed_copy_serves_as_long_as_it_is_whole(tmp_path: Path) -> None:
    wanted = described(tmp_path, wheel())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    install(wheel().build(tmp_path / "built"), elsewhere)
    source = Wheels([elsewhere])
    rows = source.files("tiny-kernel", wanted, None)
    assert isinstance(rows, tuple)
    assert rebuilt(rows, source, tmp_path / "site") == (wanted.version, wanted.record)
    (elsewhere / "tiny_kernel" / "fast.py").write_text("def run(): patched()\n")
    assert "another build" in str(Wheels([elsewhere]).files("tiny-kernel", wanted, None))


def test_files_of_a_wheel_that_are_installed_elsewhere_are_placed_as_a_capture_sees_them(tmp_path: Path) -> None:
    path = wheel().build(tmp_path / "house")
    moved = path.with_suffix(".part")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(moved, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode()
            if name.endswith("RECORD"):
                text = text.replace("tiny_kernel/fast.py", "tiny_kernel-1.0.data/platlib/tiny_kernel/fast.py")
                text += "tiny_kernel-1.0.data/scripts/tiny,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
            where = name.replace("tiny_kernel/fast.py", "tiny_kernel-1.0.data/platlib/tiny_kernel/fast.py")
            new.writestr(where, text)
    moved.replace(path)
    wanted = described(tmp_path, wheel())
    source = Wheels([tmp_path / "house"])
    rows = source.files("tiny-kernel", wanted, None)
    assert isinstance(rows, tuple)
    assert rebuilt(rows, source, tmp_path / "site") == (wanted.version, wanted.record)


def test_a_wheel_is_downloaded_only_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = described(tmp_path, wheel())
    index = tmp_path / "index"
    wheel().build(index)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    source = Wheels([], tmp_path / "downloads")
    rows = source.files("tiny-kernel", wanted, snapshot().packages.interpreter)
    assert isinstance(rows, tuple), rows
    assert rebuilt(rows, source, tmp_path / "site") == (wanted.version, wanted.record)
    told = source.files("tiny-other", wanted.model_copy(update={"version": "7"}), None)
    assert isinstance(told, str)
    assert "tiny-other 7 could not be downloaded" in told
    unasked = Wheels([], tmp_path / "none", frozenset({"tiny-other"})).files("tiny-kernel", wanted, None)
    assert unasked == "no wheel of tiny-kernel 1.0 was found"
    assert not (tmp_path / "none").exists()


def test_a_folder_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="is no folder"):
        Wheels([Path("/no/such/folder")])


def factors(old: Snapshot, new: Snapshot, house: Path) -> dict[str, Factor | Fixed]:
    return {one.id: one for one in find(old, new, Evidence(wheels=Wheels([house])))}


def test_what_no_wheel_has_stays_fixed_and_says_why(tmp_path: Path) -> None:
    before, after = described(tmp_path, wheel()), described(tmp_path, wheel("2.0"))
    new = snapshot(tiny_kernel=after)
    (tmp_path / "house").mkdir()
    reasons = {
        "--wheelhouse": list(find(snapshot(tiny_kernel=before), new, Evidence())),
        "no wheel of": list(factors(snapshot(tiny_kernel=before), new, tmp_path / "house").values()),
    }
    wheel().build(tmp_path / "house")
    altered = before.model_copy(update={"altered": {"tiny_kernel/fast.py": "5"}})
    reasons["altered after"] = list(factors(snapshot(tiny_kernel=altered), new, tmp_path / "house").values())
    editable = before.model_copy(update={"editable": True})
    reasons["editable install"] = list(factors(snapshot(tiny_kernel=editable), new, tmp_path / "house").values())
    for words, found in reasons.items():
        (one,) = found
        assert isinstance(one, Fixed)
        assert words in one.reason
    (one,) = factors(snapshot(tiny_kernel=before), new, tmp_path / "house").values()
    assert isinstance(one, Package)
    assert one.revert() == "/venv/bin/python -m pip install --no-deps tiny-kernel==1.0"


def tied(tmp_path: Path) -> tuple[Snapshot, Snapshot]:
    """A framework and its kernel that pin each other, and a third package."""
    sides = []
    for version in ("1.0", "2.0"):
        frame = Distribution(version=version, location="/venv/site", record=None, requires=[f"tiny-kernel=={version}"])
        kernel = described(tmp_path, wheel(version, (f"frame=={version}",)))
        other = Distribution(version=version, location="/venv/site", record=None)
        sides.append(snapshot(frame=frame, tiny_kernel=kernel, other=other))
    return sides[0], sides[1]


def test_packages_that_pin_each_other_are_one_factor_that_can_be_opened(tmp_path: Path) -> None:
    old, new = tied(tmp_path)
    house = tmp_path / "house"
    wheel("1.0", ("frame==1.0",)).build(house)
    frame = Wheel("frame", "1.0", {"frame/__init__.py": ""}, "", ("tiny-kernel==1.0",))
    frame.build(house)
    found = factors(old, new, house)
    assert set(found) == {"bundle:frame+tiny-kernel", "package:other"}
    bundle = found["bundle:frame+tiny-kernel"]
    assert isinstance(bundle, Bundle)
    assert (bundle.old_words, bundle.new_words) == ("frame 1.0; tiny-kernel 1.0", "frame 2.0; tiny-kernel 2.0")
    assert isinstance(found["package:other"], Fixed)
    plan = LaunchPlan(argv=[], cwd="/", variables={}, prefix=None)
    bundle.apply(plan, new=False)
    assert sorted(plan.directories["/venv/site"].uninstall) == ["frame", "tiny-kernel"]
    inside = bundle.inside(Evidence())
    assert isinstance(inside, Inside)
    assert [part.id for part in inside.parts] == ["package:frame", "package:tiny-kernel"]
    part = LaunchPlan(argv=[], cwd="/", variables={}, prefix=None)
    inside.apply(part, frozenset({"package:frame"}))
    assert part.directories["/venv/site"].uninstall == ["tiny-kernel"]
    assert {path.partition("/")[0] for path in part.directories["/venv/site"].write} == {
        "tiny_kernel", "tiny_kernel-1.0.dist-info",
    }  # fmt: skip


def test_a_member_that_cannot_be_brought_back_holds_the_others(tmp_path: Path) -> None:
    old, new = tied(tmp_path)
    house = tmp_path / "house"
    wheel("1.0", ("frame==1.0",)).build(house)
    found = factors(old, new, house)
    held = found["package:tiny-kernel"]
    assert isinstance(held, Fixed)
    assert held.reason == "it moves only together with frame, whose old files are not at hand"


def test_a_bundle_is_as_suspicious_as_its_members_together(tmp_path: Path) -> None:
    old, new = tied(tmp_path)
    house = tmp_path / "house"
    for name, needs in (("frame", "tiny-kernel"), ("tiny-kernel", "frame")):
        made = (
            wheel("1.0", ("frame==1.0",)) if name == "tiny-kernel" else Wheel(name, "1.0", {}, "", (f"{needs}==1.0",))
        )
        made.build(house)
    found = {name: one for name, one in factors(old, new, house).items() if isinstance(one, Factor)}
    comparison = compare(old, new)
    each = {one.factor: one.likelihood for one in comparison.differences}
    assert prior_of(found, comparison) == {
        "bundle:frame+tiny-kernel": pytest.approx(each["package:frame"] + each["package:tiny-kernel"])
    }


def test_a_package_that_does_not_go_without_another_is_told_and_what_is_fixed_is_always_new() -> None:
    def dist(version: str, *requires: str) -> Distribution:
        return Distribution(version=version, location="/venv/site", requires=list(requires))

    old = snapshot(kernel=dist("1", "tvm==1"), tvm=dist("1"))
    new = snapshot(kernel=dist("2", "tvm>=1"), tvm=dist("2"))
    made = {
        name: Package(f"package:{name}", "1", "2", name, dist("1"), dist("2"), (), "python", False)
        for name in ("kernel", "tvm")
    }
    fixed = {name: Fixed(f"package:{name}", "1", "2", "its old files were not kept") for name in made}

    def told(factors: list[Package], held: list[Fixed]) -> list[tuple[str, str, str, str]]:
        return [(one.id, one.side, one.other, one.requirement) for one in needs_of(old, new, factors, held)]

    tied = [("package:kernel", "old", "package:tvm", "tvm==1")]
    assert told([*made.values()], []) == tied
    assert told([made["kernel"]], [fixed["tvm"]]) == tied
    assert told([made["tvm"]], [fixed["kernel"]]) == []
    bundle = Bundle("bundle:kernel+tvm", "1", "2", tuple(made.values()))
    assert list(needs_of(old, new, [bundle], [])) == []
