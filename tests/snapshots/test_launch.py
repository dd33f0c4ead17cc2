"""Command lines taken apart and put together again, and what of a launch is its identity."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots.launch import CommandLine, is_inert, is_inert_flag, settings
from snapshots.spellings import canonical

NAMES = st.from_regex(r"--[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9/._:]{1,12}", fullmatch=True)
FLAGS = st.dictionaries(NAMES, st.lists(VALUES, max_size=3).map(tuple), max_size=6)


def words_of(flags: dict[str, tuple[str, ...]]) -> list[str]:
    return [word for name, values in flags.items() for word in (name, *values)]


@given(FLAGS)
def test_a_command_line_is_the_same_after_it_was_taken_apart(flags: dict[str, tuple[str, ...]]) -> None:
    argv = ["/venv/bin/python", "-m", "sglang.launch_server", *words_of(flags)]
    line = CommandLine.of(argv)
    assert line.program == ("/venv/bin/python", "-m", "sglang.launch_server")
    assert line.flags == flags
    assert line.argv() == argv


@given(FLAGS, NAMES, st.lists(VALUES, max_size=2).map(tuple))
def test_setting_a_flag_changes_that_flag_alone(
    flags: dict[str, tuple[str, ...]], name: str, values: tuple[str, ...]
) -> None:
    line = CommandLine.of(["python", *words_of(flags)]).with_flag(name, values)
    assert line.flags == {**flags, name: values}
    assert line.with_flag(name, None).flags == {flag: words for flag, words in flags.items() if flag != name}


def test_equals_signs_negative_numbers_and_switches_are_understood() -> None:
    line = CommandLine.of(["python", "-m", "x", "--tp=2", "--bias", "-0.5", "--eager", "--bs", "1", "2", "4"])
    assert line.flags == {"--tp": ("2",), "--bias": ("-0.5",), "--eager": (), "--bs": ("1", "2", "4")}


@pytest.mark.parametrize(
    "name",
    [
        "PWD", "SHLVL", "SSH_CONNECTION", "XDG_RUNTIME_DIR", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "TERM",
        "SYSTEMD_EXEC_PID", "LISTEN_PID", "INVOCATION_ID", "SGLANG_RUN_ID", "TORCHELASTIC_RUN_ID", "POD_IP",
        "PMIX_RANK", "VIRTUAL_ENV_PROMPT", "CONDA_PROMPT_MODIFIER", "ECS_CONTAINER_METADATA_URI_V4", "MASTER_PORT",
        "KRB5CCNAME", "_",
    ],
)  # fmt: skip
def test_what_describes_the_session_is_no_factor(name: str) -> None:
    assert is_inert(name)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_PROTO", "OMP_NUM_THREADS", "HOME", "LD_PRELOAD", "PATH", "CUDA_VISIBLE_DEVICES", "SGLANG_CACHE_DIR",
        "VIRTUAL_ENV", "MASTER_ADDR", "SLURM_CPUS_PER_TASK", "OMPI_MCA_btl", "RUNPOD_GPU_COUNT", "SYSTEM_PROMPT",
    ],
)  # fmt: skip
def test_what_may_reach_the_server_is_one(name: str) -> None:
    assert not is_inert(name)


def is_plain(name: str) -> bool:
    return canonical(name) == name != "--tp-size" and not is_inert_flag(name)


@given(st.dictionaries(NAMES.filter(is_plain), st.lists(VALUES, max_size=3).map(tuple), max_size=6), st.randoms())
def test_the_settings_of_a_launch_do_not_depend_on_order_spelling_and_port(
    flags: dict[str, tuple[str, ...]], shuffler: Random
) -> None:
    names = list(flags)
    shuffler.shuffle(names)
    again = {name: flags[name] for name in names}
    one = settings(["python", *words_of(flags), "--tp", "2", "--port", "1", "--nccl-init-addr=:2"])
    other = settings(["python", "--tensor-parallel-size=2", "--host", "::", *words_of(again)])
    assert one == other
    assert settings(["python", *words_of(flags), "--tp", "4"]) != one
