"""The installed SGLang, which `make test-sglang` puts in place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "targets"))


@pytest.fixture(scope="session")
def installed(pytestconfig: pytest.Config) -> Path:
    """The folder with `venv` and `models`."""
    place = pytestconfig.rootpath / ".cache" / "sglang"
    if not (place / "installed").is_file():
        pytest.fail("the real SGLang is not installed; run `make test-sglang`, which does that first")
    return place.resolve()
