"""Figures from the metric pages of different versions, and from streams of a server that keeps its own time."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import measure

# What SGLang 0.5.14 served after 804 verify passes of six requests on an H200, with CUDA graphs.
GRAPHS = """\
# TYPE sglang:forward_execution_seconds_total counter
sglang:forward_execution_seconds_total{category="extend",engine_type="unified",pp_rank="0",tp_rank="0"} 0.143228
sglang:forward_execution_seconds_total{category="eagle_draft",engine_type="unified",pp_rank="0",tp_rank="0"} 0.142806
sglang:forward_execution_seconds_total{category="target_verify",engine_type="unified",pp_rank="0",tp_rank="0"} 1.372138
sglang:forward_execution_seconds_total{category="eagle_draft_extend",engine_type="unified",tp_rank="0"} 0.150591
sglang:cuda_graph_passes_total{engine_type="unified",mode="prefill_none",model_name="m",pp_rank="0",tp_rank="0"} 6.0
sglang:cuda_graph_passes_total{engine_type="unified",mode="decode_cuda_graph",model_name="m",tp_rank="0"} 810.0
"""
# What SGLang 0.5.23 served after 36 verify passes without graphs.
EAGER = """\
sglang:forward_execution_seconds_total{category="extend",model_name="m",tp_rank="0"} 0.8969312730000016
sglang:forward_execution_seconds_total{category="decode",model_name="m",tp_rank="0"} 2.1009972249999986
sglang:forward_execution_seconds_total{category="target_verify",model_name="m",tp_rank="0"} 1.7181825809999989
sglang:cuda_graph_passes_total{mode="prefill_none",model_name="m",tp_rank="0"} 3.0
sglang:cuda_graph_passes_total{mode="decode_none",model_name="m",tp_rank="0"} 36.0
"""
# SGLang 0.5.14 without graphs has no category of its own for verify.
EAGER_OLDER = EAGER.replace('category="target_verify"', 'category="idle"')
# SGLang 0.5.8 to 0.5.10: one timer around the whole step, and no count of passes.
WHOLE = """\
sglang:gpu_execution_seconds_total{category="forward_decode",tp_rank="0"} 0.9
sglang:gpu_execution_seconds_total{category="forward_extend",tp_rank="0"} 0.2
"""
UNTIMED = 'sglang:cuda_graph_passes_total{mode="decode_cuda_graph",tp_rank="0"} 50.0\n'


def of(page: str, cycles: int = 100, rank: str = "0") -> dict[str, Any]:
    return measure.timed(measure.parse_metrics(page), rank, cycles)


def test_with_graphs_every_part_is_a_category_of_its_own_and_prompts_are_no_cycles() -> None:
    figures = of(GRAPHS)
    assert figures["verify_ms"] == pytest.approx(1372.138 / 810)
    assert figures["draft_ms"] == pytest.approx(142.806 / 810)
    assert figures["extend_ms"] == pytest.approx(150.591 / 810)
    assert "parts of a cycle" in figures["gpu_cycle_ms"]["unread"]


def test_without_graphs_drafts_are_under_decode_and_draft_extends_are_mixed_with_prompts() -> None:
    figures = of(EAGER)
    assert figures["verify_ms"] == pytest.approx(1718.18258 / 36)
    assert figures["draft_ms"] == pytest.approx(2100.997 / 36, rel=1e-4)
    assert "together with prompts" in figures["extend_ms"]["unread"]


def test_an_older_version_without_graphs_cannot_tell_verify_from_prompts_and_says_so() -> None:
    assert "together with prompts" in of(EAGER_OLDER)["verify_ms"]["unread"]


def test_the_oldest_timer_knows_whole_cycles_which_the_answers_count() -> None:
    figures = of(WHOLE, cycles=90)
    assert figures["gpu_cycle_ms"] == pytest.approx(10.0)
    assert "whole cycles only" in figures["verify_ms"]["unread"]


def test_a_server_without_a_timer_or_without_metrics_says_which() -> None:
    assert "SGLANG_ENABLE_METRICS_DEVICE_TIMER" in of(UNTIMED)["verify_ms"]["unread"]
    assert "--enable-metrics" in of("")["verify_ms"]["unread"]


def test_each_rank_has_its_own_figures() -> None:
    other = GRAPHS.replace('tp_rank="0"', 'tp_rank="1"').replace("1.372138", "1.300000")
    assert of(GRAPHS + other, rank="1")["verify_ms"] == pytest.approx(1300 / 810)
    assert of(GRAPHS + other)["verify_ms"] == pytest.approx(1372.138 / 810)


def test_a_server_that_does_not_speculate_has_no_verify_time_whatever_it_counts() -> None:
    figures = measure.timed(measure.parse_metrics(EAGER), "0", 36, speculates=False)
    assert {value["unread"] for value in figures.values()} == {"the server does not speculate"}


@given(st.text(max_size=300), st.integers(0, 5))
def test_no_page_can_stop_a_measurement_or_make_a_figure_of_nothing(page: str, cycles: int) -> None:
    figures = of(page, cycles)
    assert figures.keys() == {"verify_ms", "draft_ms", "extend_ms", "gpu_cycle_ms"}
    for value in figures.values():
        assert isinstance(value, float) or value["unread"]


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.7", False),
        ("gpu01", False),
        ("0.0.0.0", False),
    ],
)
def test_only_our_own_addresses_are_believed_without_a_certificate(host: str, here: bool) -> None:
    connection = measure.Server(8443, host, secure=True).connect(1.0)
    assert isinstance(connection, http.client.HTTPSConnection)
    mode = connection._context.verify_mode  # type: ignore[attr-defined]
    assert (mode == ssl.CERT_NONE) == here


class Clock:
    """Goes on by 5 ms whenever it is looked at, twice a chunk: at its line and at the empty one after it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.005
        return self.now


class Speaking(ThreadingHTTPServer):
    """Speaks SGLang's interface: 13 tokens in six cycles, of which verify takes 4 ms, drafts and draft extends 1 ms."""

    daemon_threads = True

    def __init__(self) -> None:
        self.passes = 0
        self.asked: list[dict[str, Any]] = []
        self.together = threading.Barrier(1)
        self.answer = 200
        self.meta: dict[str, Any] = {}
        self.further_ranks: list[float] = []
        self.pages: list[tuple[str, int]] = []
        """Pages that were asked for, each with the number of requests in work."""
        self.working = 0
        super().__init__(("127.0.0.1", 0), Speaks)

    @property
    def at(self) -> measure.Server:
        return measure.Server(self.server_port, key="k1")


class Speaks(BaseHTTPRequestHandler):
    server: Speaking

    def do_GET(self) -> None:
        self.server.pages.append((self.path, self.server.working))
        page = GRAPHS.replace(" 810.0", f" {self.server.passes}").replace("1.372138", f"{0.004 * self.server.passes}")
        for text in ("0.142806", "0.150591"):
            page = page.replace(text, f"{0.001 * self.server.passes}")
        own, first = f"{0.004 * self.server.passes}", page
        for rank, verify_s in enumerate(self.server.further_ranks, 1):
            page += first.replace('tp_rank="0"', f'tp_rank="{rank}"').replace(own, f"{verify_s * self.server.passes}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append({**body, "key": self.headers["Authorization"]})
        server.working += 1
        first = server.together.wait(10) == 0  # nobody is answered before all have asked: they share their passes
        self.send_response(server.answer)
        self.end_headers()
        for cycle in range(7):
            server.passes += 1 if cycle and first else 0
            meta = {
                "completion_tokens": 1 + 2 * cycle,
                "spec_verify_ct": cycle,
                "spec_accept_length": 13 / 6,
                **server.meta,
            }
            self.wfile.write(b"data: " + json.dumps({"text": "x", "meta_info": meta}).encode() + b"\n\n")
        server.working -= 1
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def speaking() -> Iterator[Speaking]:
    server = Speaking()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


ASK: dict[str, Any] = {"prompts": ["a", "b"], "max_new_tokens": 13, "requests": 3, "warmup": 2}


def test_a_cycle_is_taken_apart_into_what_the_timer_counts_and_the_rest(speaking: Speaking) -> None:
    figures = measure.measure(speaking.at, ASK, Clock())
    wanted = {
        "verify_ms": 4.0, "draft_ms": 1.0, "extend_ms": 1.0, "host_ms": 4.0, "cycle_ms": 10.0, "cycle_mean_ms": 10.0,
        "accept_length": 13 / 6, "tokens_per_second": 200.0,
    }  # fmt: skip
    assert {name: figures[name] for name in wanted} == pytest.approx(wanted)
    assert figures["sources"].keys() - figures.keys() == set()
    assert figures["sources"]["verify_ms"] == "engine timer"
    assert figures["ranks"]["0"]["verify_ms"] == pytest.approx(4.0)
    assert len(figures["samples"]) == 3
    assert [body["text"] for body in speaking.asked] == ["a", "b", "a", "b", "a"]
    assert {body["key"] for body in speaking.asked} == {"Bearer k1"}
    assert all(body["sampling_params"]["temperature"] == 0 for body in speaking.asked)


def test_nothing_but_the_counters_is_asked_for_and_never_while_a_request_is_in_work(speaking: Speaking) -> None:
    measure.measure(speaking.at, ASK, Clock())
    assert speaking.pages == [("/metrics", 0)] * (1 + ASK["requests"])


def test_of_several_ranks_the_one_counts_that_waited_least_for_the_others(speaking: Speaking) -> None:
    speaking.further_ranks = [0.003]
    figures = measure.measure(speaking.at, ASK, Clock())
    assert figures["verify_ms"] == pytest.approx(3.0)
    assert {rank: of["verify_ms"] for rank, of in figures["ranks"].items()} == pytest.approx({"0": 4.0, "1": 3.0})
    assert figures["host_ms"] == pytest.approx(5.0)
    assert figures["sources"]["verify_ms"] == "engine timer, least of 2 ranks"
    assert figures["sources"]["cycle_ms"] == "stream"


def test_requests_at_once_share_their_passes(speaking: Speaking) -> None:
    speaking.together = threading.Barrier(4)
    figures = measure.measure(speaking.at, {**ASK, "concurrency": 4}, Clock())
    assert figures["verify_ms"] == pytest.approx(4.0)
    assert len(figures["samples"]) == 3
    assert sorted(body["text"] for body in speaking.asked) == ["a"] * 10 + ["b"] * 10


def test_parts_that_outlast_the_cycle_leave_no_host_time(speaking: Speaking) -> None:
    class Fast(Clock):
        def __call__(self) -> float:
            self.now += 0.0025
            return self.now

    assert "longer than the cycle" in measure.measure(speaking.at, ASK, Fast())["host_ms"]["unread"]


def test_a_slow_server_is_asked_less_often_but_with_every_prompt(speaking: Speaking) -> None:
    figures = measure.measure(speaking.at, {**ASK, "requests": 9, "enough_s": 0.0}, Clock())
    assert len(figures["samples"]) == 2


@pytest.mark.parametrize("together", [1, 3])
def test_a_refusal_is_told_in_the_servers_words(speaking: Speaking, together: int) -> None:
    speaking.answer = 503
    speaking.together = threading.Barrier(together)
    with pytest.raises(measure.MeasureError, match="answered 503"):
        measure.measure(speaking.at, {**ASK, "concurrency": together}, Clock())


def test_a_server_of_another_kind_is_told_from_one_that_failed(speaking: Speaking) -> None:
    speaking.answer = 404
    with pytest.raises(measure.MeasureError, match=r"answered 404: (.|\n)*only SGLang's own interface is measured"):
        measure.measure(speaking.at, ASK, Clock())


def test_a_server_that_does_not_speculate_has_steps_and_a_speed(speaking: Speaking) -> None:
    speaking.meta = {"spec_verify_ct": None, "spec_accept_length": None}
    figures = measure.measure(speaking.at, ASK, Clock())
    assert figures["cycle_mean_ms"] == pytest.approx(10.0)
    assert figures["tokens_per_second"] == pytest.approx(200.0)
    assert "does not speculate" in figures["accept_length"]["unread"]
    assert "does not speculate" in figures["verify_ms"]["unread"]


@pytest.mark.parametrize(
    "meta", [{"spec_verify_ct": [1]}, {"spec_accept_length": "long"}, {"completion_tokens": {"no": 1}}]
)
def test_counts_that_are_no_numbers_end_in_a_sentence(speaking: Speaking, meta: dict[str, Any]) -> None:
    speaking.meta = meta
    with pytest.raises(measure.MeasureError, match="/generate failed"):
        measure.measure(speaking.at, ASK, Clock())
