"""Variables that a unit or a container's engine declares, in files laid out as these lay them out."""

from __future__ import annotations

import json
import os
import pwd
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import declared, server
from snapshots import Declared, Server

Context = Callable[..., dict[str, Any]]
NUMBER = "0123456789abcdef" * 4


def laid_out(root: Path, cgroup: str, files: dict[str, str]) -> Any:  # noqa: ANN401 - what a probe says
    for path, text in {"proc/7/cgroup": cgroup, **files}.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return declared.read(7, str(root))


UNIT = """\
[Unit]
Description=A server
Environment=NOT=ours

[Service]
# Environment=COMMENTED=out
Environment=NCCL_PROTO=LL "NCCL_ALGO=Ring,Tree" OMP_NUM_THREADS=4 \\
    ; a comment within
    'SGLANG_NOTE=a "b"' GREETING="two words" EMPTY=
EnvironmentFile=-/etc/default/sglang-%i
EnvironmentFile=/etc/missing
ExecStart=/usr/bin/python3 -m sglang.launch_server
"""


def test_a_unit_s_variables_are_those_of_its_file_drop_ins_and_environment_files(tmp_path: Path) -> None:
    found = laid_out(
        tmp_path,
        "0::/system.slice/system-sglang.slice/sglang@big.service/worker\n",
        {
            "usr/lib/systemd/system/sglang@.service": "[Service]\nEnvironment=SHIPPED=1\n",
            "etc/systemd/system/sglang@.service": UNIT,
            "etc/systemd/system/sglang@big.service.d/20-more.conf": "[Service]\nEnvironment=OMP_NUM_THREADS=8\n",
            "usr/lib/systemd/system/sglang@.service.d/20-more.conf": "[Service]\nEnvironment=HIDDEN=1\n",
            "run/systemd/system/service.d/10-all.conf": (
                "[Service]\nEnvironment=WHERE=%n RUN=%t\nUnsetEnvironment=EMPTY\n"
            ),
            "etc/default/sglang-big": '# of the operator\nexport\nNCCL_PROTO=Simple\nPLAIN=a b \\\nc \nQUOTED="x y"\n',
        },
    )
    assert found["variables"] == {
        "NCCL_PROTO": "Simple",
        "NCCL_ALGO": "Ring,Tree",
        "OMP_NUM_THREADS": "8",
        "SGLANG_NOTE": 'a "b"',
        "GREETING": "two words",
        "WHERE": "sglang@big.service",
        "RUN": {"unread": "it holds %t, which only systemd knows"},
        "PLAIN": "a b c",
        "QUOTED": "x y",
    }
    assert found["files"] == [
        "/etc/systemd/system/sglang@.service",
        "/run/systemd/system/service.d/10-all.conf",
        "/etc/systemd/system/sglang@big.service.d/20-more.conf",
        "/etc/default/sglang-big",
    ]
    assert (found["by"], found["name"]) == ("systemd", "sglang@big.service")


def test_an_empty_setting_takes_back_what_came_before_and_a_masked_drop_in_says_nothing(tmp_path: Path) -> None:
    drop = tmp_path / "etc/systemd/system/s-g.service.d/30-off.conf"
    drop.parent.mkdir(parents=True)
    drop.symlink_to("/dev/null")
    found = laid_out(
        tmp_path,
        "12:cpu:/elsewhere\n1:name=systemd:/system.slice/s-g.service\n",
        {
            "etc/systemd/system/s-g.service": "[Service]\nEnvironment=A=1\nEnvironmentFile=/etc/a\n",
            "etc/systemd/system/s-.service.d/10-a.conf": "[Service]\nEnvironment=\nEnvironmentFile=\nEnvironment=B=2\n",
            "usr/lib/systemd/system/s-g.service.d/30-off.conf": "[Service]\nEnvironment=C=3\n",
            "etc/a": "D=4\n",
        },
    )
    assert found["variables"] == {"B": "2"}


def test_a_user_s_own_unit_is_looked_for_in_that_user_s_home(tmp_path: Path) -> None:
    user = pwd.getpwuid(os.getuid())
    found = laid_out(
        tmp_path,
        f"0::/user.slice/user-{user.pw_uid}.slice/user@{user.pw_uid}.service/app.slice/sglang.service\n",
        {f"{user.pw_dir.lstrip('/')}/.config/systemd/user/sglang.service": "[Service]\nEnvironment=AT=%h BY=%u\n"},
    )
    assert found["variables"] == {"AT": user.pw_dir, "BY": user.pw_name}


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/\n",
        "0::/user.slice/user-0.slice/session-3.scope\n",
        "0::/user.slice/user-7.slice/user@7.service/tmux-spawn-1.scope\n",
        "0::/system.slice/gone.service\n",
        f"0::/docker/{NUMBER}\n",
    ],
)
def test_where_nobody_declares_anything_there_is_nothing(tmp_path: Path, cgroup: str) -> None:
    assert laid_out(tmp_path, cgroup, {"etc/systemd/system/other.service": UNIT}) is None


@pytest.mark.parametrize(
    ("cgroup", "path", "told"),
    [
        ("docker-{}.scope", "data/docker/containers/{}/config.v2.json", {"Config": {"Env": ["A=1", "B=x=y", "C"]}}),
        ("docker/{}", "run/containerd/io.containerd.runtime.v2.task/moby/{}/config.json", {}),
        ("cri-containerd-{}.scope", "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", {}),
        ("kubepods/burstable/pod1/{}", "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", {}),
        ("crio-{}.scope", "var/lib/containers/storage/overlay-containers/{}/userdata/config.json", {}),
        ("libpod-{}.scope", "var/lib/containers/storage/overlay-containers/{}/userdata/config.json", {}),
    ],
)
def test_a_container_s_variables_are_what_its_engine_wrote_down(
    tmp_path: Path, cgroup: str, path: str, told: dict[str, Any]
) -> None:
    text = json.dumps(told or {"process": {"args": ["python"], "env": ["A=1", "B=x=y", "C"]}})
    files = {"etc/docker/daemon.json": '{"data-root": "/data/docker"}', path.format(NUMBER): text}
    found = laid_out(tmp_path, f"0::/{cgroup.format(NUMBER)}\n", files)
    assert Declared.model_validate(found).variables == {"A": "1", "B": "x=y"}
    assert found["files"] == [f"/{path.format(NUMBER)}"]
    assert found["name"] == NUMBER


@pytest.mark.parametrize("text", ["", "[]", "{", '{"Config": {"Env": 7}}', '{"Config": [], "process": {"env": [1]}}'])
def test_what_is_no_container_s_description_is_no_variables(tmp_path: Path, text: str) -> None:
    path = f"var/lib/docker/containers/{NUMBER}/config.v2.json"
    try:
        assert laid_out(tmp_path, f"0::/docker/{NUMBER}\n", {path: text})["variables"] == {}
    except ValueError:
        assert text in {"", "{"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not look")
def test_what_may_not_be_read_is_a_reason_and_not_nothing(tmp_path: Path) -> None:
    path = f"var/lib/docker/containers/{NUMBER}/config.v2.json"
    laid_out(tmp_path, f"0::/docker/{NUMBER}\n", {path: '{"Config": {"Env": ["A=1"]}}'})
    for place in (*tmp_path.parents, tmp_path):
        if place.stat().st_uid == os.getuid() and place != Path("/"):
            place.chmod(0o755)
    (tmp_path / "var/lib/docker/containers").chmod(0o700)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            declared.read(7, str(tmp_path))
        except PermissionError:
            os.write(writing, b"denied")
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"denied"
    os.close(reading)


WORDS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\\\0%"), max_size=12), max_size=5)


@given(WORDS)
def test_quoted_words_come_back_as_a_shell_reads_them(wanted: list[str]) -> None:
    """Without backslashes systemd's quotes mean what a shell's mean."""
    assert declared.words(shlex.join(wanted)) == wanted


@given(st.text())
def test_no_text_of_a_unit_leads_astray(text: str) -> None:
    list(declared.settings(text))
    declared.assignments(text)
    assert all(isinstance(word, str) for word in declared.words(text))


def test_escapes_are_understood() -> None:
    assert declared.words(r"""A=a\x20b "B=\tc\101" 'C=\n' x\"y""") == ["A=a b", "B=\tcA", "C=\n", 'x"y']
    told = "A=a\\x20b \nB=\"p\\\"q\\t\" \nC='c\\d'e\nD=' x '\n"
    assert declared.assignments(told) == {"A": "ax20b", "B": 'p"q\\t', "C": "c\\de", "D": " x "}


def test_declared_secrets_never_leave_and_are_replaced_in_the_server_too(
    running: Any,  # noqa: ANN401 - a fixture
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"HF_TOKEN": "hf_" + "a" * 24, "NCCL_PROTO": "LL", "RUN": {"unread": "it holds %t"}}
    told = {"by": "systemd", "name": "sglang.service", "files": [], "variables": said}
    monkeypatch.setattr(declared, "read", lambda _pid: told)
    section = server.read(context(pid=running.pid))
    assert "a" * 24 not in json.dumps(section)
    found = Server.model_validate(section).declared
    assert isinstance(found, Declared)
    assert str(found.variables["HF_TOKEN"]).startswith("<secret:")
    assert found.variables["NCCL_PROTO"] == "LL"
