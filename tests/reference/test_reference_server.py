"""The embedded server: the same tokens however it runs, SGLang's interface, its process tree and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from live_server import Live, children, serving, wait_gone

from fingerprint.reference.world import World

_PROMPTS = {"The quick brown fox": 60, "q": 20, "a" * 140: 9}


@pytest.fixture(scope="module")
def live(host: World) -> Iterator[Live]:
    with serving(host, SPT_NOENV="1") as server:
        yield server


@pytest.fixture(scope="module")
def plain_tokens(host: World) -> dict[str, list[int]]:
    """What one rank decodes without any speculation."""
    command = host.launch()
    script = (
        "import json, sys\n"
        "from tinyserve.io_struct import Request\n"
        "from tinyserve.scheduler import Scheduler\n"
        "from tinyserve.server_args import parse\n"
        "class Out:\n"
        "    seen = []\n"
        "    send = seen.append\n"
        "scheduler = Scheduler(parse(sys.argv[1:3]), 0, None, Out())\n"
        "for prompt, tokens in json.load(sys.stdin).items():\n"
        "    scheduler.serve(Request('', list(prompt.encode()), tokens, True, False))\n"
        "json.dump([output.output_ids for output in Out.seen], sys.stdout)\n"
    )
    flags = ["--model-path", str(host.root / "models" / "target")]
    done = subprocess.run(
        [str(host.python), "-c", script, *flags],
        cwd=command.cwd,
        env=command.variables,
        input=json.dumps(_PROMPTS),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(_PROMPTS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        ((), {}),
        (("--tp", "1"), {}),
        ((), {"TCCL_TRANSPORT": "tcp"}),
        (("--attention-backend", "native", "--chunked-prefill-size", "7"), {}),
        (("--speculative-num-steps", "5", "--disable-cuda-graph"), {"TINYSERVE_SORTED_TOPK": "1"}),
    ],
    ids=["two ranks", "one rank", "tcp", "native attention", "five steps, no graphs"],
)
def test_speculation_changes_no_token(
    host: World, plain_tokens: dict[str, list[int]], flags: tuple[str, ...], variables: dict[str, str]
) -> None:
    with serving(host, *flags, **variables) as server:
        for prompt, tokens in _PROMPTS.items():
            answer = server.generate(prompt, tokens)
            assert answer["output_ids"] == plain_tokens[prompt]
            if tokens == max(_PROMPTS.values()):
                assert answer["meta_info"]["spec_accept_length"] > 2


def test_two_ranks_without_speculation_decode_the_same_tokens(host: World, plain_tokens: dict[str, list[int]]) -> None:
    with serving(host, "--speculative-algorithm", "NONE") as server:
        prompt = "The quick brown fox"
        answer = server.generate(prompt, _PROMPTS[prompt])
        assert answer["output_ids"] == plain_tokens[prompt]
        assert "spec_verify_ct" not in answer["meta_info"]
        assert server.metrics()["forward_execution_seconds_total decode"] > 0


def test_health_ready_and_information_are_served(live: Live) -> None:
    assert [live.get(path)[0] for path in ("/health", "/health_generate", "/ready", "/nowhere")] == [200, 200, 200, 404]
    info = json.loads(live.get("/server_info")[1])
    assert info["tp_size"] == 2
    assert info["attention_backend"] == "fused"
    assert info["speculative_num_draft_tokens"] == 4
    assert "-m tinyserve.launch_server --model-path" in info["launch_command"]
    assert info["internal_states"][0]["avg_spec_accept_length"] > 1
    assert json.loads(live.get("/model_info")[1])["model_path"] == info["model_path"]


def test_a_streamed_answer_has_one_chunk_for_each_cycle(live: Live) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 40, "ignore_eos": True}, "stream": True}
    request = urllib.request.Request(f"http://127.0.0.1:{live.port}/generate", json.dumps(body).encode())
    with urllib.request.urlopen(request) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = [line.decode().removeprefix("data: ") for line in reply.read().splitlines() if line]
    assert events.pop() == "[DONE]"
    answers = [json.loads(event) for event in events]
    meta = [answer["meta_info"] for answer in answers]
    assert [chunk.get("spec_verify_ct", 0) for chunk in meta] == list(range(len(meta)))
    counts = [chunk["completion_tokens"] for chunk in meta]
    assert counts[0] == 1
    assert counts[-1] == 40
    assert all(1 <= after - before <= 4 for before, after in pairwise(counts))
    assert [chunk["finish_reason"] for chunk in meta[:-1]] == [None] * (len(meta) - 1)
    assert meta[-1]["finish_reason"] == {"type": "length", "length": 40}
    assert answers[-1]["output_ids"] == live.generate("hello", 40)["output_ids"]
    assert meta[-1]["prompt_tokens"] == 5
    assert meta[-1]["spec_accept_length"] == 40 / meta[-1]["spec_verify_ct"]


def test_a_request_ends_at_the_end_token_unless_told_otherwise(live: Live) -> None:
    answers = []
    for ignore_eos in (True, False):
        sampling = {"max_new_tokens": 9, "ignore_eos": ignore_eos}
        status, body = live.post("/generate", {"input_ids": [428], "sampling_params": sampling})
        assert status == 200
        answers.append(json.loads(body))
    beyond, stopped = (answer["output_ids"] for answer in answers)
    assert len(beyond) == 9
    assert stopped == beyond[: beyond.index(256) + 1]
    assert len(stopped) > 1
    assert answers[1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": 256}


def test_pass_counters_follow_the_verify_count(live: Live) -> None:
    before = live.metrics()
    count = sum(live.generate(prompt, 30)["meta_info"]["spec_verify_ct"] for prompt in ("abc", "xyz"))
    after = live.metrics()
    passes = "cuda_graph_passes_total decode_cuda_graph"
    assert after[passes] - before[passes] == count
    for category in ("target_verify", "eagle_draft", "eagle_draft_extend", "extend"):
        name = f"forward_execution_seconds_total {category}"
        assert after[name] > before[name]
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 60
    assert 1 < after["spec_accept_length"] <= 4


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        [],
        {},
        {"text": 3},
        {"input_ids": []},
        {"input_ids": [512]},
        {"input_ids": [True]},
        {"text": "a", "sampling_params": 1},
        {"text": "a", "sampling_params": {"max_new_tokens": 0}},
        {"text": "a", "sampling_params": {"max_new_tokens": 100000}},
        {"text": "a", "sampling_params": {"temperature": 1.0}},
    ],
)
def test_a_bad_request_is_refused_with_a_sentence(live: Live, body: object) -> None:
    status, text = live.post("/generate", body)
    assert status == 400
    assert json.loads(text)["error"]["message"]


def test_titles_and_tree_are_those_of_sglang(live: Live) -> None:
    found = children(live.process.pid)
    titles = sorted(title for title in found.values() if "resource_tracker" not in title)
    assert titles == ["sglang::detokenizer", "sglang::scheduler_TP0", "sglang::scheduler_TP1"]
    assert len(found) == 4
    rank = next(pid for pid, title in found.items() if title.endswith("TP0"))
    assert Path(f"/proc/{rank}/comm").read_text() == "sglang::schedul\n"
    assert b"SPT_NOENV=1" in Path(f"/proc/{rank}/environ").read_bytes()


def test_shared_memory_has_no_name_that_could_be_left_behind(live: Live) -> None:
    maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in (live.process.pid, *children(live.process.pid))}
    assert sum("/memfd:tccl" in text for text in maps.values()) == 2
    assert not any("/dev/shm/" in text for text in maps.values())


def test_a_title_empties_the_visible_environment_and_sigterm_leaves_nothing(host: World) -> None:
    with serving(host, TCCL_DEBUG="INFO") as server:
        found = children(server.process.pid)
        rank = next(pid for pid, title in found.items() if title.endswith("TP1"))
        assert not Path(f"/proc/{rank}/environ").read_bytes().strip(b"\0")
        server.process.terminate()
        assert server.process.wait(10) == 0
        log = (host.root / f"server-{server.port}.log").read_text()
    assert "Traceback" not in log
    assert "leaked" not in log
    assert log.count("using transport shm") == 2  # the ranks still read variables after their title was set
    assert wait_gone([*found]) == []


def test_a_killed_launcher_takes_its_children_along(host: World) -> None:
    with serving(host) as server:
        found = children(server.process.pid)
        server.process.kill()
        server.process.wait(10)
        assert wait_gone([*found]) == []


def test_a_dead_rank_ends_the_server(host: World) -> None:
    with serving(host) as server:
        found = children(server.process.pid)
        os.kill(next(pid for pid, title in found.items() if title.endswith("TP1")), signal.SIGKILL)
        assert server.process.wait(10) == 1
        assert wait_gone([*found]) == []


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--speculative-num-draft-tokens", "7"), "num-steps + 1 = 4"),
        (("--tp", "3"), "invalid choice"),
        (("--model-path", "/nowhere"), "cannot serve /nowhere"),
    ],
)
def test_flags_that_cannot_work_are_refused_with_a_sentence(host: World, flags: tuple[str, ...], reason: str) -> None:
    command = host.launch()
    done = subprocess.run(
        [*command.argv, *flags], cwd=command.cwd, env=command.variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (1, 2)
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
