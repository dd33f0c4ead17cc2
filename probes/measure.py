"""Measures a server that speaks SGLang's HTTP interface, from beside it: fixed greedy prompts, one request at a time.

What a speculative cycle costs comes from two sources, and each figure says which. The engine's own timer counts the
seconds of forward passes by category; the stream sends one chunk a cycle at batch size 1, so the gaps between chunks
are whole cycles as a client sees them. Which categories there are, and what counts the passes, depends on the version
and on whether CUDA graphs are used: `timed` knows, and says why where a figure cannot be had. Warm-up requests are run
and thrown away. Each figure is a median over requests, so one disturbed request does not move it.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import ipaddress
import json
import math
import re
import socket
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from probes.reading import Json, is_unread, unread

if TYPE_CHECKING:
    import ssl

FORWARD = "sglang:forward_execution_seconds_total"
"""Device seconds of forward passes by category, one for verify, drafts and draft extends where they are told apart."""
WHOLE = "sglang:gpu_execution_seconds_total"
"""The older timer (SGLang 0.5.8 to 0.5.10): device seconds of everything that one step of the scheduler runs."""
PASSES = "sglang:cuda_graph_passes_total"
DECODE = ("decode_cuda_graph", "decode_none")
"""Pass counters of speculative cycles: with CUDA graphs, and without."""
TIMER, WHOLE_TIMER, STREAM, ANSWERS = "engine timer", "engine timer of whole cycles", "stream", "answers"
SOURCES = {
    "verify_ms": TIMER, "draft_ms": TIMER, "extend_ms": TIMER, "gpu_cycle_ms": WHOLE_TIMER, "cycle_ms": STREAM,
    "cycle_mean_ms": STREAM, "host_ms": f"{STREAM} less {TIMER}", "accept_length": ANSWERS, "tokens_per_second": STREAM,
}  # fmt: skip
"""Every figure and where it comes from."""
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
LARGEST_ANSWER_BYTES = 64 << 20
_ADVICE = {
    **dict.fromkeys((401, 403), "; FINGERPRINT_API_KEY is the variable for its key"),
    404: "; only SGLang's own interface is measured (for any other server: bisect --engine command)",
}

Metrics = Dict[Tuple[str, str, str], float]
"""(metric, category or mode, tp_rank) -> value."""


class MeasureError(Exception):
    """The server stopped answering, or answered with what is no measurement; the text says what."""

    kind = "measure"


class Server(NamedTuple):
    """Where a server answers, the key that it wants to see, and whether it speaks TLS."""

    port: int
    host: str = "127.0.0.1"
    key: Optional[str] = None
    secure: bool = False

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that is not open yet."""
        if self.secure:
            trust = _trust(here=_is_here(self.host))
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=trust)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    @property
    def headers(self) -> Dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def _is_here(host: str) -> bool:
    """Whether this is an address of this host: only those can be bound to."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
        with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (ValueError, OSError):
        return False
    return not address.is_unspecified


@functools.lru_cache(maxsize=2)
def _trust(*, here: bool) -> ssl.SSLContext:
    """Whom to believe: whoever answers at our own address, for few certificates name it; else a valid one."""
    import ssl

    return ssl._create_unverified_context() if here else ssl.create_default_context()  # noqa: S323


def parse_metrics(text: str) -> Metrics:
    """The timer and pass counters of a Prometheus page; other lines are skipped."""
    found: Metrics = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in {FORWARD, WHOLE, PASSES}:
            continue
        labels = dict(_LABEL.findall(match["labels"] or ""))
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        key = (match["name"], labels.get("category") or labels.get("mode") or "", labels.get("tp_rank", "0"))
        found[key] = found.get(key, 0.0) + value
    return found


def timed(counted: Metrics, rank: str, cycles: int, *, speculates: bool = True) -> Dict[str, Json]:
    """What the device timer says of one rank's cycles, in ms a cycle.

    Args:
        counted: how far each counter went while `cycles` speculative cycles were run, and no others.
        rank: the rank's label.
        cycles: as the answers counted them; used where this version does not count passes.
        speculates: whether there were any.

    Returns:
        `verify_ms`, `draft_ms`, `extend_ms` and `gpu_cycle_ms`, each a number or why it cannot be had.
    """
    names = ("verify_ms", "draft_ms", "extend_ms", "gpu_cycle_ms")
    if not speculates:
        return dict.fromkeys(names, unread("the server does not speculate"))
    passes = sum(counted.get((PASSES, mode, rank), counted.get((PASSES, mode, "0"), 0.0)) for mode in DECODE) or cycles

    def spent(metric: str, *categories: str) -> Optional[float]:
        seconds = [counted[metric, one, rank] for one in categories if counted.get((metric, one, rank), 0.0) > 0]
        return 1e3 * sum(seconds) / passes if seconds and passes else None

    def of(metric: str) -> bool:
        return any(name == metric and of_rank == rank for name, _, of_rank in counted)

    whole = spent(WHOLE, "forward_decode")
    if of(FORWARD):
        missing = "it is counted under `extend`, together with prompts"
        # Without graphs the drafts of a speculating server are the only thing under `decode`.
        return {
            "verify_ms": _or(spent(FORWARD, "target_verify"), missing),
            "draft_ms": _or(spent(FORWARD, "eagle_draft", "decode"), "the server's timer does not count drafts"),
            "extend_ms": _or(spent(FORWARD, "eagle_draft_extend"), missing),
            "gpu_cycle_ms": _or(whole, "this version times the parts of a cycle"),
        }
    if of(WHOLE):
        reason = "this version's timer knows whole cycles only"
        return {
            **dict.fromkeys(names, unread(reason)),
            "gpu_cycle_ms": _or(whole, "no cycle was timed"),
        }
    reason = (
        "its device timer is off or missing (SGLANG_ENABLE_METRICS_DEVICE_TIMER=1, SGLang 0.5.8 or later)"
        if counted
        else "its metrics are not served (--enable-metrics)"
    )
    return dict.fromkeys(names, unread(reason))


def least_waiting(by_rank: Dict[str, Dict[str, Json]]) -> Dict[str, Json]:
    """The device times of a cycle, without the ranks' waiting for each other.

    Ranks meet in every all-reduce. Who comes first has its waiting counted as device time, who comes last has none, and
    which one that is changes from launch to launch. The least of the ranks is what the work takes, also where one rank
    is slow: it is the one that nobody has to wait for it. On two H200 with NCCL's all-reduce rank 0 scattered over
    equal launches by 5 %, the least of the two by 2 %.

    Args:
        by_rank: what `timed` says of each rank.
    """
    first = by_rank["0"] if "0" in by_rank else next(iter(by_rank.values()))
    known = {name: [one[name] for one in by_rank.values() if not is_unread(one[name])] for name in first}
    return {name: min(values) if values else first[name] for name, values in known.items()}


def _sources(ranks: int) -> Dict[str, str]:
    """Where each figure comes from, with so many ranks that export their times."""
    if ranks < 2:
        return SOURCES
    return {
        name: f"{source}, least of {ranks} ranks" if TIMER in source else source for name, source in SOURCES.items()
    }


def _or(value: Optional[float], reason: str) -> Json:
    return unread(reason) if value is None else value


def get(server: Server, path: str, timeout_s: float, most: int = LARGEST_ANSWER_BYTES) -> Tuple[int, bytes]:
    """GET one page of the server: status and at most so many bytes of its body."""
    connection = server.connect(timeout_s)
    try:
        connection.request("GET", path, headers=server.headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read(most)
    finally:
        connection.close()


class Request:
    """One streamed request: when each chunk came, how many tokens it completed, and what was said at the end.

    Attributes:
        cycles: verify passes by the engine's own count; 0 where it does not speculate.
        accept_length: tokens a cycle, by the engine's own count; 0 where it does not say.
    """

    def __init__(self) -> None:
        self.times: List[float] = []
        self.tokens: List[int] = []
        self.cycles = 0
        self.accept_length = 0.0
        self.digest = ""

    @property
    def gaps(self) -> List[float]:
        """Between neighbouring chunks, in ms."""
        return [1e3 * (late - early) for early, late in zip(self.times, self.times[1:])]

    @property
    def steps(self) -> int:
        """Decode steps: verify passes, else chunks after the first."""
        return self.cycles or len(self.gaps)


def generate(server: Server, body: Json, timeout_s: float, clock: Callable[[], float]) -> Request:
    """Run one streamed `/generate` request.

    Raises:
        MeasureError: it failed, was cut off or did not end in time.
    """
    request = Request()
    connection = server.connect(timeout_s)
    said = hashlib.sha256()
    headers = {"Content-Type": "application/json", **server.headers}
    try:
        connection.request("POST", "/generate", json.dumps({**body, "stream": True}), headers)
        last: Dict[str, Any] = {}
        with connection.getresponse() as answer:
            if answer.status != 200:
                words = answer.read(300).decode("utf-8", "replace")
                raise MeasureError(f"/generate answered {answer.status}: {words}{_ADVICE.get(answer.status, '')}")
            began = clock()
            while True:
                line = answer.readline(LARGEST_ANSWER_BYTES)
                if not line:
                    raise MeasureError(
                        "the stream broke off before its end: the server died or cut it off, as its log says"
                    )
                now = clock()
                data = line[5:].strip()
                if data == b"[DONE]":
                    break
                if now - began > timeout_s:
                    raise MeasureError(f"a request did not end within {timeout_s:g} s")
                if not line.startswith(b"data:"):
                    continue  # an empty line, or one that only says that it lives
                last = json.loads(data)
                if "error" in last:
                    raise MeasureError(f"/generate failed: {str(last['error'])[:300]}")
                meta = last.get("meta_info") or {}
                request.times.append(now)
                request.tokens.append(int(meta.get("completion_tokens") or 0))
        meta = last.get("meta_info") or {}
        request.cycles = int(meta.get("spec_verify_ct") or 0)
        request.accept_length = float(meta.get("spec_accept_length") or 0.0)
        said.update(json.dumps([last.get("output_ids"), last.get("text")]).encode())
        request.digest = said.hexdigest()
    except (OSError, http.client.HTTPException, ValueError, TypeError, AttributeError) as error:
        raise MeasureError(f"/generate failed: {unread(error)['unread']}") from error
    finally:
        connection.close()
    return request


def measure(server: Server, ask: Json, clock: Callable[[], float] = time.monotonic) -> Json:
    """Measure a server.

    Args:
        server: where it answers.
        ask: `prompts` (lists of token ids, or texts), `max_new_tokens`, `warmup` and `requests` (counts), `timeout_s`
            per request, `settle_s` to wait for the engine's counters before they are read, `enough_s`: after so many
            seconds, and once every prompt had its turn, the measurement ends early; `concurrency`: so many requests
            run at once (1).
        clock: a monotonic clock, in seconds.

    Returns:
        Each figure of `SOURCES` as a number or an unread mark, of several ranks the least; `sources`; the timed
        figures of every rank that exports them, in `ranks`; `graph_mode`, which decode passes were CUDA graphs;
        per-request `samples` (with `concurrency`, one for each group that ran together), and `outputs`, a digest of all
        that came out.

    Raises:
        MeasureError: a request failed.
    """
    prompts = ask["prompts"]
    timeout_s = float(ask.get("timeout_s", 60.0))
    together = max(1, int(ask.get("concurrency", 1)))

    def run(number: int) -> List[Request]:
        """The group that starts with this prompt."""
        bodies = []
        for prompt in (prompts[(number + further) % len(prompts)] for further in range(together)):
            sampling = {"max_new_tokens": ask["max_new_tokens"], "temperature": 0, "ignore_eos": True}
            bodies.append({"text" if isinstance(prompt, str) else "input_ids": prompt, "sampling_params": sampling})
        return _at_once([functools.partial(generate, server, body, timeout_s, clock) for body in bodies])

    def counters() -> Metrics:
        if ask.get("settle_s"):
            time.sleep(float(ask["settle_s"]))
        try:
            status, page = get(server, "/metrics", timeout_s)
        except (OSError, http.client.HTTPException):
            return {}
        return parse_metrics(page.decode("utf-8", "replace")) if status == 200 else {}

    for number in range(int(ask.get("warmup", 1))):
        run(number)
    samples: List[Dict[str, Json]] = []
    ranks: Dict[str, List[Dict[str, Json]]] = {}
    outputs = hashlib.sha256()
    before = first = counters()
    began = clock()
    for number in range(int(ask["requests"])):
        if number >= len(prompts) and clock() - began > float(ask.get("enough_s", math.inf)):
            break
        group = run(number)
        after = counters()
        counted = {key: value - before.get(key, 0.0) for key, value in after.items()}
        cycles = max(request.cycles for request in group)
        speculates = cycles > 0
        exporting = {rank for metric, _, rank in counted if metric in {FORWARD, WHOLE}}
        by_rank = {rank: timed(counted, rank, cycles, speculates=speculates) for rank in exporting}
        untimed = {} if by_rank else {"0": timed(counted, "0", cycles, speculates=speculates)}
        samples.append(_sample(group, least_waiting(by_rank or untimed)))
        for rank, figures in by_rank.items():
            ranks.setdefault(rank, []).append(figures)
        if number < len(prompts):  # a slow server is asked less often: what came out is compared prompt by prompt
            outputs.update("".join(request.digest for request in group).encode())
        before = after
    return {
        **_medians(samples),
        "sources": _sources(len(ranks)),
        "ranks": {rank: _medians(rows) for rank, rows in sorted(ranks.items())},
        "graph_mode": _graph_mode({key: value - first.get(key, 0.0) for key, value in before.items()}),
        "samples": samples,
        "outputs": outputs.hexdigest(),
    }


def _graph_mode(counted: Metrics) -> Json:
    """Which of the decode passes that were counted were replays of a CUDA graph."""
    graphs, eager = (counted.get((PASSES, mode, "0"), 0.0) for mode in DECODE)
    if not graphs + eager:
        return unread("its decode passes are not counted")
    return "every decode pass" if not eager else "some decode passes" if graphs else "no decode pass"


def _at_once(calls: List[Callable[[], Request]]) -> List[Request]:
    """Run calls at the same time; the first failure of any is raised."""
    if len(calls) == 1:
        return [calls[0]()]
    done: Dict[int, Request] = {}
    failed: List[MeasureError] = []

    def one(number: int) -> None:
        try:
            done[number] = calls[number]()
        except MeasureError as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed or len(done) < len(calls):
        raise failed[0] if failed else MeasureError("a request ended without an answer")
    return [done[number] for number in range(len(calls))]


def _sample(group: List[Request], device: Dict[str, Json]) -> Dict[str, Json]:
    """The figures of requests that ran together; one alone is the usual case."""
    gaps = [gap for request in group for gap in request.gaps]
    lengths = [request.accept_length for request in group if math.isfinite(request.accept_length)]
    accepted = statistics.mean(lengths) if lengths else 0.0
    one_chunk = unread("the stream came in one chunk")
    streamed = [request for request in group if len(request.times) > 1]
    sample: Dict[str, Json] = {
        **device,
        "cycles": max(request.steps for request in group),
        "cycle_ms": statistics.median(gaps) if gaps else one_chunk,
        "cycle_mean_ms": (
            statistics.mean(1e3 * (one.times[-1] - one.times[0]) / one.steps for one in streamed)
            if streamed
            else one_chunk
        ),
        "accept_length": accepted if accepted > 0 else unread("the server does not speculate"),
        "tokens_per_second": one_chunk,
    }
    if streamed:
        seconds = max(one.times[-1] for one in streamed) - min(one.times[0] for one in streamed)
        tokens = sum(one.tokens[-1] - one.tokens[0] for one in streamed)
        sample["tokens_per_second"] = tokens / seconds if seconds > 0 else one_chunk
    sample["host_ms"] = _host(sample)
    return sample


def _host(sample: Dict[str, Json]) -> Json:
    """What is left of the mean cycle when its timed parts are taken away."""
    parts = [sample[name] for name in ("verify_ms", "draft_ms", "extend_ms")]
    if any(is_unread(part) for part in parts):
        parts = [sample["gpu_cycle_ms"]]
    if any(is_unread(part) for part in (*parts, sample["cycle_mean_ms"])):
        return unread("not every part of the cycle is timed")
    left = sample["cycle_mean_ms"] - sum(parts)
    return left if left >= 0 else unread("the timed parts take longer than the cycle: they overlap, or hold prompts")


def _medians(rows: List[Dict[str, Json]]) -> Dict[str, Json]:
    """Every figure's median over the rows that have it; the first reason where none has."""
    summary: Dict[str, Json] = {}
    for name in (name for name in SOURCES if name in rows[0]):
        values = [row[name] for row in rows if isinstance(row[name], (int, float))]
        summary[name] = statistics.median(values) if values else rows[0][name]
    return summary
