"""Names of places and people become pseudonyms; comparisons stay what they were."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots import Declared, Distribution, Packages, Snapshot, leaves, parse
from snapshots.redact import Redactor, redact

KEY = b"the key of a case"
WHEN = datetime(2031, 1, 1, tzinfo=timezone.utc)


def snapshot(host: str = "gpu-node-17", user: str = "alice", **changes: Any) -> Snapshot:  # noqa: ANN401
    home = f"/home/{user}"
    variables = {
        "HOME": home, "USER": user, "HOSTNAME": host, "MASTER_ADDR": "10.1.2.3", "NCCL_PROTO": "Simple",
        "PYTHONPATH": f"{home}/secret-project/python", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/usr/lib",
        "MODEL_URL": f"https://{host}.example.org/x",
    }  # fmt: skip
    body = {
        "schema": 1, "tool": "test", "taken_at": WHEN, "target": f"{user}@{host}:2222",
        "host": {
            "status": "ok", "name": host, "kernel": "6.8.0",
            "library_directories": ["/usr/local/lib", f"{home}/secret-project/lib"],
        },
        "topology": {"status": "ok", "network": {"ens1f0": {"mtu": 9000, "state": "up"}}},
        "server": {
            "status": "ok", "engine": "sglang",
            "declared": {
                "by": "systemd", "name": "sglang.service", "files": [f"{home}/.config/systemd/user/sglang.service"],
                "variables": variables,
            },
            "files": {
                "--config": {
                    "path": f"{home}/secret-project/serve.yaml", "sha256": "a" * 64,
                    "text": f"model-path: {home}/llama\nhost: 10.1.2.3\ntp-size: 2\n",
                },
            },
            "processes": {
                "launcher": {
                    "role": "launcher", "pid": 1, "parent": 0, "title": "", "started": 1.0, "cwd": home,
                    "argv": ["python3", "-m", "sglang.launch_server", "--model", f"{home}/llama", "--host", "10.1.2.3"],
                    "executable": "/usr/bin/python3.11", "at_exec": variables, "variables": variables, **changes,
                }
            },
        },
        "trees": {
            "status": "ok",
            "trees": {
                f"{home}/secret-project": {
                    "commit": "a" * 40,
                    "files": {
                        "python/a.py": {"change": "modified", "patch": f"+x = '{home}/secret-project'\n"},
                        "python/b.py": {"change": "modified", "patch": "+x = a / b\n"},
                    },
                }
            },
        },
    }  # fmt: skip
    return Snapshot.model_validate(body)


def test_no_name_is_left_and_everything_else_is() -> None:
    clean = redact(snapshot(), KEY)
    text = clean.text()
    for name in ("gpu-node-17", "alice", "10.1.2.3", "secret-project", "llama"):
        assert name not in text
    variables = clean.server.processes["launcher"].variables
    assert isinstance(variables, dict)
    assert variables["NCCL_PROTO"] == "Simple"
    assert variables["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64:/usr/lib"
    assert clean.server.processes["launcher"].executable == "/usr/bin/python3.11"
    assert clean.host.kernel == "6.8.0"
    assert clean.host.library_directories[0] == "/usr/local/lib"
    assert isinstance(clean.server.declared, Declared)
    assert clean.server.declared.variables == variables
    told = clean.server.files["--config"].text
    assert isinstance(told, str)
    assert told.endswith("tp-size: 2\n")
    assert clean.topology == snapshot().topology
    assert parse(text, "the file") == clean


def test_a_version_of_four_numbers_is_no_address() -> None:
    torch = Distribution(
        version="9.19.0.56",
        location="/x",
        requires=["nvidia-cudnn-cu13==9.19.0.56", "a @ http://10.1.2.3/a", "b>=1.2.3.4,<2"],
    )
    clean = redact(snapshot().model_copy(update={"packages": Packages(distributions={"torch": torch})}), KEY)
    (told,) = clean.packages.distributions.values()
    assert told.version == "9.19.0.56"
    assert [told.requires[0], told.requires[2]] == [torch.requires[0], torch.requires[2]]
    assert "10.1.2.3" not in told.requires[1]


def test_pseudonyms_are_the_same_in_every_snapshot_of_a_case_and_in_no_other() -> None:
    one, again, other = redact(snapshot(), KEY), redact(snapshot(), KEY), redact(snapshot(), b"another key")
    assert one.id == again.id != other.id
    assert one.target == again.target != other.target


def test_differences_stay_differences_and_sameness_sameness() -> None:
    def different(first: Snapshot, second: Snapshot) -> list[str]:
        one, two = dict(leaves(first)), dict(leaves(second))
        return sorted(key[-1] for key in one.keys() | two.keys() if one.get(key) != two.get(key))

    before, after = snapshot(), snapshot(nice=5, cwd="/home/alice/elsewhere")
    assert different(before, after) == ["cwd", "nice"]
    assert different(redact(before, KEY), redact(after, KEY)) == ["cwd", "nice"]


def test_a_patch_that_held_a_name_is_no_longer_exact() -> None:
    (tree,) = redact(snapshot(), KEY).trees.trees.values()
    assert tree.files["python/a.py"].exact is False
    assert tree.files["python/b.py"].exact is True
    assert tree.files["python/b.py"].patch == "+x = a / b\n"


@pytest.mark.parametrize("user", ["model", "launcher", "modified", "status", "server"])
def test_a_user_whose_name_is_a_word_of_the_file_s_own_does_no_harm(user: str) -> None:
    clean = redact(snapshot(user=user), KEY)
    assert parse(clean.text(), "the file") == clean
    assert clean.server.processes["launcher"].role == "launcher"


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "0.0.0.0:30000", "::1", "2.27.5+cuda12.9", "1.2.3", "-m sglang.launch_server", "a/b", "--x=/",
        "/usr/lib/x86_64-linux-gnu/libc.so.6", "0000:3b:00.0", "12:34:56", "torch/lib/libtorch.so",
        "/proc/self/fd/1", "https://github.com/org/name",
    ],
)  # fmt: skip
def test_what_names_nothing_stays(text: str) -> None:
    assert Redactor(KEY, {"gpu-node-17"}, {"alice"}).text(text) == text


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("ssh alice@10.9.8.7", "10.9.8.7"),
        ("http://gpu-node-17:30000/generate", "gpu-node-17"),
        ("fe80::1234:5678", "fe80"),
        ("git+https://git.corp.example/team/tool", "team"),
        ("git+https://git.corp.example/team/tool", "corp"),
        ("file:///home/alice/x.py", "alice"),
        ("aa:bb:cc:dd:ee:ff", "aa:bb"),
        ("--draft=/data/project9/draft", "project9"),
    ],
)
def test_names_are_found_wherever_they_stand(text: str, gone: str) -> None:
    assert gone not in Redactor(KEY, {"gpu-node-17"}, {"alice"}).text(text)


def test_a_user_s_name_that_is_also_a_word_is_replaced_only_where_it_is_one() -> None:
    redactor = Redactor(KEY, set(), {"model"})
    assert redactor.text("--model-path") == "--model-path"
    assert "model" not in redactor.text("/home/model").replace("/home/", "")
    assert redactor.text("model").startswith("user-")


@given(st.text())
def test_any_text_has_one_pseudonymous_form(text: str) -> None:
    redactor = Redactor(KEY, {"gpu-node-17"}, {"alice"})
    assert redactor.text(text) == redactor.text(text)
    assert "gpu-node-17" not in redactor.text(f" gpu-node-17 {text}").partition(text or "\0")[0]
