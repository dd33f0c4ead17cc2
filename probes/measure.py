"""Measures a server that speaks SGLang's HTTP interface, from beside it: fixed greedy prompts, one request at a time.

What a speculative cycle costs comes from two sources, and each figure says which. The engine's own timer counts the
seconds of every verify, draft and draft-extend pass; the stream sends one chunk a cycle at batch size 1, so the gaps
between chunks are whole cycles as a client sees them. Warm-up requests are run and thrown away. Each figure is a median
over requests, so one disturbed request does not move it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import re
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from probes.reading import Json, unread

TIMED = "sglang:forward_execution_seconds_total"
PASSES = "sglang:cuda_graph_passes_total"
DECODE = frozenset({"decode_cuda_graph", "decode_none"})
"""Pass counters of speculative cycles: with CUDA graphs, and without."""
TIMERS = {"verify_ms": "target_verify", "draft_ms": "eagle_draft", "extend_ms": "eagle_draft_extend"}
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
LARGEST_ANSWER_BYTES = 64 << 20

Metrics = Dict[Tuple[str, str, str], float]
"""(metric, category or mode, tp_rank) -> value."""


class MeasureError(Exception):
    """The server stopped answering, or answered with what is no measurement; the text says what."""

    kind = "measure"


def parse_metrics(text: str) -> Metrics:
    """The timer and pass counters of a Prometheus page; other lines are skipped."""
    found: Metrics = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in {TIMED, PASSES}:
            continue
        labels = dict(_LABEL.findall(match["labels"] or ""))
        try:
            value = float(match["value"])
        except ValueError:
            continue
        key = (match["name"], labels.get("category") or labels.get("mode") or "", labels.get("tp_rank", "0"))
        found[key] = found.get(key, 0.0) + value
    return found


def get(port: int, path: str, timeout_s: float, host: str = "127.0.0.1") -> Tuple[int, bytes]:
    """GET one page of the server: status and body."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST_ANSWER_BYTES)
    finally:
        connection.close()


class Request:
    """One streamed request: when each chunk came, how many tokens it completed, and what was said at the end."""

    def __init__(self) -> None:
        self.times: List[float] = []
        self.tokens: List[int] = []
        self.end: Dict[str, Any] = {}
        self.digest = ""


def generate(port: int, body: Json, timeout_s: float, clock: Callable[[], float]) -> Request:
    """Run one streamed `/generate` request.

    Raises:
        MeasureError: it failed, was cut off or did not end in time.
    """
    request = Request()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    said = hashlib.sha256()
    try:
        connection.request(
            "POST", "/generate", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        if answer.status != 200:
            words = answer.read(300).decode("utf-8", "replace")
            raise MeasureError(f"/generate answered {answer.status}: {words}")
        last: Dict[str, Any] = {}
        began = clock()
        while True:
            line = answer.readline(LARGEST_ANSWER_BYTES)
            if not line:
                raise MeasureError("the stream broke off before its end")
            if not line.startswith(b"data:"):
                continue
            now = clock()
            data = line[5:].strip()
            if data == b"[DONE]":
                break
            if now - began > timeout_s:
                raise MeasureError(f"a request did not end within {timeout_s:g} s")
            last = json.loads(data)
            if "error" in last:
                raise MeasureError(f"/generate failed: {str(last['error'])[:300]}")
            meta = last.get("meta_info") or {}
            request.times.append(now)
            request.tokens.append(int(meta.get("completion_tokens") or 0))
        request.end = last.get("meta_info") or {}
        said.update(json.dumps([last.get("output_ids"), last.get("text")]).encode())
        request.digest = said.hexdigest()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MeasureError(f"/generate failed: {unread(error)['unread']}") from error
    finally:
        connection.close()
    return request


def measure(port: int, ask: Json, clock: Callable[[], float] = time.monotonic) -> Json:
    """Measure the server on a port of this host.

    Args:
        port: its HTTP port.
        ask: `prompts` (lists of token ids, or texts), `max_new_tokens`, `warmup` and `requests` (counts), `timeout_s`
            per request, `settle_s` to wait for the engine's counters before they are read, `enough_s`: after so many
            seconds, and once every prompt had its turn, the measurement ends early.
        clock: a monotonic clock, in seconds.

    Returns:
        Each figure (`verify_ms`, `draft_ms`, `extend_ms`, `cycle_ms`, `accept_length`, `tokens_per_second`) as a number
        or an unread mark, the `source` of verify, per-request `samples`, and `outputs`, a digest of all that came out.

    Raises:
        MeasureError: a request failed.
    """
    prompts = ask["prompts"]
    timeout_s = float(ask.get("timeout_s", 60.0))

    def body(number: int) -> Json:
        prompt = prompts[number % len(prompts)]
        sampling = {"max_new_tokens": ask["max_new_tokens"], "temperature": 0, "ignore_eos": True}
        return {"text" if isinstance(prompt, str) else "input_ids": prompt, "sampling_params": sampling}

    def counters() -> Metrics:
        if ask.get("settle_s"):
            time.sleep(float(ask["settle_s"]))
        try:
            status, page = get(port, "/metrics", timeout_s)
        except (OSError, http.client.HTTPException):
            return {}
        return parse_metrics(page.decode("utf-8", "replace")) if status == 200 else {}

    for number in range(int(ask.get("warmup", 1))):
        generate(port, body(number), timeout_s, clock)
    samples: List[Dict[str, Json]] = []
    outputs = hashlib.sha256()
    before = counters()
    began = clock()
    for number in range(int(ask["requests"])):
        if number >= len(prompts) and clock() - began > float(ask.get("enough_s", math.inf)):
            break
        request = generate(port, body(number), timeout_s, clock)
        after = counters()
        samples.append(_sample(request, _difference(before, after)))
        if number < len(prompts):  # a slow server is asked less often: what came out is compared prompt by prompt
            outputs.update(request.digest.encode())
        before = after
    return {**_summary(samples), "samples": samples, "outputs": outputs.hexdigest()}


def _difference(before: Metrics, after: Metrics) -> Metrics:
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def _sample(request: Request, counted: Metrics) -> Dict[str, Json]:
    gaps = [1e3 * (late - early) for early, late in zip(request.times, request.times[1:])]
    tokens = request.tokens[-1] - request.tokens[0] if len(request.tokens) > 1 else 0
    seconds = sum(gaps) / 1e3
    sample: Dict[str, Json] = {
        "cycles": request.end.get("spec_verify_ct") or len(gaps),
        "cycle_ms": statistics.median(gaps) if gaps else unread("the stream came in one chunk"),
        "accept_length": request.end.get("spec_accept_length") or unread("the server does not speculate"),
        "tokens_per_second": tokens / seconds if seconds > 0 else unread("the stream came in one chunk"),
    }
    passes = sum(
        value for (name, mode, rank), value in counted.items() if name == PASSES and rank == "0" and mode != "prefill"
    )
    for field, category in (
        ("verify_ms", "target_verify"),
        ("draft_ms", "eagle_draft"),
        ("extend_ms", "eagle_draft_extend"),
    ):
        seconds_spent = counted.get((TIMED, category, "0"))
        if seconds_spent is None:
            sample[field] = unread(f"the server has no timer for {category}")
        elif passes <= 0:
            sample[field] = unread("the server counted no decode passes")
        else:
            sample[field] = 1e3 * seconds_spent / passes
    return sample


def _summary(samples: List[Dict[str, Json]]) -> Dict[str, Json]:
    summary: Dict[str, Json] = {}
    for field in ("verify_ms", "draft_ms", "extend_ms", "cycle_ms", "accept_length", "tokens_per_second"):
        values = [sample[field] for sample in samples if isinstance(sample[field], (int, float))]
        summary[field] = statistics.median(values) if values else samples[0][field]
    timed: Optional[bool] = isinstance(summary["verify_ms"], float)
    summary["source"] = "engine timer" if timed else "stream"
    parts = [summary[field] for field in ("verify_ms", "draft_ms", "extend_ms", "cycle_ms")]
    if all(isinstance(part, (int, float)) for part in parts):
        summary["host_ms"] = parts[3] - sum(parts[:3])
    else:
        summary["host_ms"] = unread("not every part of the cycle is timed")
    return summary
