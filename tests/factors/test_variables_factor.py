"""Which variables of a launch are factors."""

from __future__ import annotations

import pytest

from fingerprint.factors.variables import is_inert


@pytest.mark.parametrize(
    "name", ["PWD", "SHLVL", "SSH_CONNECTION", "XDG_RUNTIME_DIR", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "TERM"]
)
def test_what_describes_the_session_is_no_factor(name: str) -> None:
    assert is_inert(name)


@pytest.mark.parametrize(
    "name", ["NCCL_PROTO", "OMP_NUM_THREADS", "HOME", "LD_PRELOAD", "PATH", "CUDA_VISIBLE_DEVICES", "SGLANG_CACHE_DIR"]
)
def test_what_may_reach_the_server_is_one(name: str) -> None:
    assert not is_inert(name)
