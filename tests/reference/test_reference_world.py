"""The world: real differences, the harmful ones among them, wheels as installers leave them."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_server import serving, wait_gone

from fingerprint.errors import UsageError
from fingerprint.reference import changes
from fingerprint.reference.world import (
    HARMLESS,
    INTERACTIONS,
    MECHANISMS,
    OLD,
    PAIRS,
    SCENARIOS,
    State,
    World,
    culprits,
)


def _states() -> Iterator[State]:
    yield from (OLD, HARMLESS)
    for mechanism in (*MECHANISMS.values(), *INTERACTIONS.values()):
        yield mechanism.alter(HARMLESS)


def _git(world: World, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=world.serving, capture_output=True, text=True, check=True)
    return done.stdout


def _modified(world: World) -> set[str]:
    return {line[3:] for line in _git(world, "status", "--porcelain").splitlines()}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_culprits_are_among_many_differences_of_many_kinds(tmp_path: Path, scenario: str) -> None:
    for seed in range(24):
        world = World(tmp_path / "host", scenario, seed)
        found = world.differences()
        truth = world.truth()
        assert isinstance(truth["culprits"], list)
        assert set(truth["culprits"]) <= set(found)
        assert bool(truth["culprits"]) == (scenario not in ("phantom", "none"))
        assert 12 <= len(found) <= 20
        assert {factor.partition(":")[0] for factor in found} == {"variable", "flag", "tree", "package", "startup"}


def test_seeds_reach_every_mechanism() -> None:
    singles = {mechanism.factors for seed in range(len(MECHANISMS)) for mechanism in culprits("single", seed)}
    assert singles == {mechanism.factors for mechanism in MECHANISMS.values()}
    assert len({factors[0].partition(":")[0] for factors in singles}) >= 4
    assert len({tuple(culprits("two", seed)) for seed in range(len(PAIRS))}) == len(PAIRS)


def test_a_world_knows_its_scenarios_and_refuses_a_folder_in_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no scenario nonsense"):
        World(tmp_path, "nonsense", 0)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not empty"):
        World(tmp_path, "none", 0).build()


def test_a_patch_must_find_its_place_exactly_once() -> None:
    with pytest.raises(ValueError, match="found 2 times"):
        changes.apply((changes.Edit("a", "b"),), "aa")


def test_every_state_is_installed_as_it_says(make_host: Callable[[str, int], World]) -> None:
    world = make_host("none", 0)
    for state in (*_states(), OLD):
        world.apply(state)
        assert _modified(world) == set(state.patches)
        for path in world.serving.rglob("*.py"):
            compile(path.read_text(), str(path), "exec")
        _check_records(world.site_packages)
        versions = [entry.name for entry in world.site_packages.glob("tiny_kernels-*")]
        assert versions == [f"tiny_kernels-{state.kernels_version}.dist-info"]


def _check_records(site_packages: Path) -> None:
    records = list(site_packages.glob("*.dist-info/RECORD"))
    assert {record.parent.name.partition("-")[0] for record in records} >= {"numpy", "tiny_kernels"}
    for record in records:
        if record.parent.name.startswith("tiny"):
            assert (record.parent / "INSTALLER").is_file()
        for entry, digest, size in csv.reader(record.read_text().splitlines()):
            file = site_packages / entry
            if not digest:
                assert file.exists() or entry.endswith(".pyc")
                continue
            data = file.read_bytes()
            if record.parent.name.startswith("tiny"):
                method, _, value = digest.partition("=")
                assert value == base64.urlsafe_b64encode(hashlib.new(method, data).digest()).rstrip(b"=").decode()
            assert len(data) == int(size)


def test_the_host_is_changed_in_place(make_host: Callable[[str, int], World]) -> None:
    world = make_host("interaction", 0)
    assert len(_git(world, "log", "--oneline").splitlines()) == 3
    head = _git(world, "rev-parse", "HEAD")
    before = (world.site_packages / "tiny_collective" / "shm.py").read_bytes()
    record = next(world.site_packages.glob("tiny_collective-*.dist-info/RECORD"))
    old_record = record.read_bytes()
    world.change()
    assert _git(world, "diff", "--name-only", head.strip(), "HEAD").split() == [changes.ROTARY]
    assert changes.ROTARY not in world.new.patches
    assert (world.site_packages / "tiny_collective" / "shm.py").read_bytes() != before
    assert record.read_bytes() != old_record  # the same version, other contents
    assert world.launch().variables[changes.GATE] == "1"
    assert "NCCL_PROTO" not in world.launch().variables


def test_slow_variants_compute_the_same_tokens(host: World, make_host: Callable[[str, int], World]) -> None:
    world = make_host("none", 0)
    state = HARMLESS
    for name in ("copy", "kernel", "commit", "rebuild", "hook"):
        state = MECHANISMS[name].alter(state)
    for mechanism in INTERACTIONS.values():
        state = mechanism.alter(state)
    with serving(host, "--skip-server-warmup") as server:
        expected = server.generate("fox", 12)
    world.apply(state)
    with serving(world, "--skip-server-warmup") as server:
        answer = server.generate("fox", 12)
    assert answer["output_ids"] == expected["output_ids"]
    assert answer["meta_info"]["spec_verify_ct"] == expected["meta_info"]["spec_verify_ct"]


def test_the_tree_runs_from_another_path(host: World, tmp_path: Path) -> None:
    _git(host, "clone", "-q", str(host.serving), str(tmp_path / "checkout"))
    search = f"{tmp_path / 'checkout' / 'python'}:{host.root / 'site'}"
    with serving(host, PYTHONPATH=search) as server:
        assert server.generate("abc", 4)["meta_info"]["completion_tokens"] == 4
        maps = {str(path) for path in (tmp_path / "checkout").rglob("*.pyc")}
        assert any("eagle_worker" in path for path in maps)


def test_a_neighbour_leaves_with_its_context(host: World) -> None:
    with host.neighbour(limit_s=30) as pids:
        assert len(pids) >= 1
        assert wait_gone([]) == []
    assert wait_gone(pids) == []
