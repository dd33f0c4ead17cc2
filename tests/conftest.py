"""What all tests share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code.
settings.register_profile("fingerprint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fingerprint")


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fake of NVML, compiled here: a shared library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine: install gcc")
    library = tmp_path_factory.mktemp("nvml") / "libfake-nvidia-ml.so"
    source = Path(__file__).parent / "probes" / "fake_nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True)
    return str(library)
