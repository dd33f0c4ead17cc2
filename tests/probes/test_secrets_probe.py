"""Secrets are replaced wherever they stand, and what only looks like one stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.secrets import Keeper, is_secret_name

KEY = b"a key of the tests"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "http://u:p4ss@proxy:8080"), ("HF_TOKEN", "hf_xxxxxxxx"), ("VLLM_API_KEY", "sk-xxxxxxxx"),
        ("S3_SECRET_ACCESS_KEY", "abcdefgh"), ("PIP_INDEX_URL", "https://__token__:abc@host/simple"),
        ("DB_PASSWORD", "several words in one"), ("AWS_ACCESS_KEY_ID", "AKIAABCDEFGHIJKLMNOP"),
    ],
)  # fmt: skip
def test_secrets_do_not_travel(name: str, value: str) -> None:
    clean = Keeper(KEY).variables({name: value})[name]
    assert "<secret:" in clean
    for part in ("p4ss", "xxxxxxxx", "abcdefgh", ":abc@", "several", "words", "AKIA"):
        assert part not in clean


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"), ("VLLM_MAX_TOKENS_X", "8"), ("NCCL_IB_PKEY", "0x8001"), ("MKL_KEY_X", "1"),
        ("SGLANG_MAX_TOKENS", "4096"), ("NCCL_PROTO", "Simple"), ("PWD", "/root"), ("EOS_TOKEN", "<|end1|>"),
        ("MAX_TOKEN", "1"), ("SSH_AUTH_SOCK", "/run/x"),
    ],
)  # fmt: skip
def test_tuning_variables_that_look_like_secrets_stay_readable(name: str, value: str) -> None:
    assert Keeper(KEY).variables({name: value}) == {name: value}
    assert not is_secret_name(name)


def test_same_and_changed_can_be_told_apart_with_one_key_only() -> None:
    def token(key: bytes, value: str) -> str:
        return Keeper(key).value("HF_TOKEN", value)

    assert token(KEY, "hf_one_one_one") == token(KEY, "hf_one_one_one")
    assert token(KEY, "hf_one_one_one") != token(KEY, "hf_two_two_two")
    assert token(KEY, "hf_one_one_one") != token(b"another", "hf_one_one_one")


def test_a_secret_that_was_met_is_replaced_everywhere_and_once() -> None:
    keeper = Keeper(KEY)
    secret = "correct horse battery"
    token = keeper.value("DB_PASSWORD", secret)
    assert keeper.text(f"connecting with {secret}!") == f"connecting with {token}!"
    assert keeper.text(token) == token
    assert keeper.text(f"x{token}y") == f"x{token}y"


def test_a_secret_that_begins_like_another_leaves_nothing_behind() -> None:
    keeper = Keeper(KEY)
    for name, value in (("A_PASSWORD", "swordfish"), ("B_PASSWORD", "swordfish-and-more")):
        keeper.value(name, value)
    assert keeper.text("is it swordfish-and-more?") == f"is it {keeper.token('swordfish-and-more')}?"


def test_command_lines_lose_the_values_of_secret_flags() -> None:
    keeper = Keeper(KEY)
    clean = keeper.argv(["serve", "--api-key", "abc12345", "--admin-api-key=def67890", "--port", "30000"])
    assert "abc12345" not in " ".join(clean)
    assert "def67890" not in " ".join(clean)
    assert clean[-2:] == ["--port", "30000"]


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["DB_PASSWORD"] = "correct horse battery"', "os.environ['MY_API_KEY']='correct-horse'",
        'os.environ.setdefault("WANDB_API_KEY", "correct horse 1")', "export DB_PASSWORD='correct horse'",
        'HF_TOKEN="correct horse 1"', '{"api_key": "correct.horse"}', 'run = "curl --password=horse12345"',
        "token=horse12345", 'token:password="correct horse 1"', "serve --api-key  horse12345 --port 1",
        'command("x", "secret: horse12345")',
    ],
)  # fmt: skip
def test_secrets_in_source_code_are_replaced_whole(text: str) -> None:
    clean = Keeper(KEY).text(text)
    assert "<secret:" in clean
    assert "correct" not in clean
    assert "horse" not in clean
    assert Keeper(KEY).text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        'eos_token = "</s>"', 'password = getpass("your password")', 'f"password={password}"',
        '("api_key", "admin_key1")', "serve --api-key --port 30000", "x --y-api-key-z 12345",
        "self.api_key: str = None", 'url = f"{api_key}@{host}"', '"api_key": f"{self.api_key}"', "token_ids = [1, 2]",
        'environ.get("HF_TOKEN", "none given")', 'api_key = "$API_KEY"',
        "token = get_token(request)", "self.token_to_kv_pool = 1", "num_tokens=128", "x = a / b",
        "key: cache_key_for(layer)", "https://github.com/org/name", "max_total_num_tokens=4096",
    ],
)  # fmt: skip
def test_source_code_is_left_alone(text: str) -> None:
    assert Keeper(KEY).text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "a.b+",
        "eyJ-",
        "sk-",
        "hf_",
        "a ",
        "a=",
        "://",
        "-----BEGIN ",
        "x@",
        "token:",
        "'",
        "<secret:",
        "token='",
        'password="aaaa ',
    ],
)
def test_no_text_can_keep_the_replacement_busy_for_ever(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert isinstance(Keeper(KEY).text(text), str)


@given(st.text(), st.text(min_size=8))
def test_a_met_secret_is_in_no_text_that_leaves(text: str, secret: str) -> None:
    keeper = Keeper(KEY)
    keeper.value("THE_PASSWORD", secret)
    token = keeper.token(secret)
    assert secret not in keeper.text(f"{text}{secret}{text}").replace(token, "")
