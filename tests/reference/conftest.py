"""One host in its old state for the whole session: making the models takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fingerprint.reference.world import World


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A host that no test changes."""
    world = World(tmp_path_factory.mktemp("reference") / "host", "single", 0)
    world.build()
    return world


@pytest.fixture
def make_host(host: World, tmp_path: Path) -> Callable[[str, int], World]:
    """Builds a host of a scenario and seed, with the models of the first one."""

    def make(scenario: str, seed: int) -> World:
        world = World(tmp_path / f"{scenario}-{seed}", scenario, seed, models=host.root / "models")
        world.build()
        return world

    return make
