"""What the server's own log says it decided: which all-reduce, which attention backend, graphs or eager, which NCCL.

The log is the file that the server's standard output or error goes to; a terminal or a pipe cannot be read back.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, List, Optional, Pattern, Tuple

from probes.reading import Json, attempt, is_unread, read_bytes, unread, without_server

_HEAD_BYTES = 4 << 20
_TAIL_BYTES = 1 << 20
_MOST_LINES = 12

_KNOWN = ((0, 5, 5), (0, 5, 23))
"""The SGLang versions in whose source every line below was looked up, first and last."""
_REST = r"[^\n]{0,200}"
_FACTS: List[Tuple[str, Pattern[str]]] = [
    (name, re.compile(pattern))
    for name, pattern in (
        ("attention backend", r"Attention backend not (?:explicitly )?specified\. Use (\S+) backend by default"),
        ("attention backend", r"Attention backend not specified\. Falling back to '(\w{1,40})'"),
        ("attention backend", r"\b(?:Use|Using|Auto-select) (\w{1,40}) (?:as )?(?:the |default )?attention backend"),
        ("attention backend", rf"(Using hybrid attention backend for decode{_REST})"),
        ("attention backend", r"(?:Attention backend is set|[Ss]etting attention backend) to (\w{1,40})"),
        ("draft attention backend", r"Overriding draft attention backend to (\w{1,40})"),
        ("nccl", r"using nccl==(\S+)"),
        # From 0.5.10 on the class is named: CustomAllreduce, CustomAllReduceV2.
        (
            "custom all-reduce",
            rf"((?:Setup )?Custom ?[Aa]ll-?[Rr]educe(?: ?[Vv]2)? (?:is disabled|failed|initialized){_REST})",
        ),
        ("custom all-reduce", rf"All Reduce config: (symmetric_memory{_REST})"),
        ("custom all-reduce", rf"\[AR\] ((?:All-reduce call path|Using|Aiter){_REST})"),
        ("custom all-reduce", rf"(Disabling SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2{_REST})"),
        ("all-reduce fusion", rf"((?:Auto-enabling|Enable) FlashInfer AllReduce Fusion{_REST})"),
        ("all-reduce fusion", r"(FlashInfer AllReduce Fusion enabled and workspace initialized: backend=\w{1,40})"),
        ("all-reduce fusion", rf"(FlashInfer [Aa]ll[Rr]educe fusion (?:is forcibly )?disabled{_REST})"),
        ("all-reduce fusion", rf"(FlashInfer workspace preflight{_REST})"),
        ("all-reduce fusion", rf"(Failed to initialize FlashInfer workspace{_REST})"),
        ("all-reduce fusion", rf"(flashinfer\.comm (?:unified )?allreduce_fusion API is not available{_REST})"),
        ("pcie all-reduce", rf"((?:Setup )?FlashInfer PCIe-IPC{_REST})"),
        ("pcie all-reduce", rf"(SGLANG_ENABLE_PCIE_IPC_ALLREDUCE is set but{_REST})"),
        ("mscclpp all-reduce", rf"(PyMscclpp (?:is disabled|is unavailable|did not){_REST}|Created MSCCL\+\+{_REST})"),
        ("symmetric memory all-reduce", rf"TorchSymmMemCommunicator: ({_REST})"),
        ("graph addresses", r"Regist(?:ering|ered) (\d+) cuda graph addresses"),
        ("verify graph", r"Capture target verify CUDA graph begin\. ([^\n]{0,300}?), avail mem"),
        ("verify graph", r"Capture cuda graph (bs \[[\d, ]{0,300}\])"),
        ("draft graph", r"Capture draft ((?:decode|extend) CUDA graph begin\. [^\n]{0,300}?), avail mem"),
        ("draft graph", r"Capture (draft (?:extend )?cuda graph) begin\. This can"),
        # "because only 3.21 GB ..." is another number each time
        ("graphs", r"(Disable [\w-]{1,20} draft cuda graph because only)"),
        ("graphs", rf"(Disabl(?:e|ing) (?:[\w-]{{1,20}} ){{1,3}}(?:CUDA|cuda) graph (?:because|for) (?!only){_REST})"),
        ("graphs", rf"\b((?:Piecewise )?(?:CUDA|Cuda|cuda) graph is (?:disabled|incompatible){_REST})"),
        ("graphs", r"(can't use cuda graph for draft extend)"),
        ("moe config", r"(Using default MoE kernel config[^\n]{0,80})"),
        ("moe config", rf"(Config file not found at {_REST} Fallback to triton version \S{{1,20}})"),
        ("moe config", r"(Using MoE kernel config with down_moe=False|Down MoE config file not found)"),
        ("kernel config", rf"(Using default W8A8 Block \w{{1,8}} kernel config{_REST})"),
        ("numa", rf"(numactl rejected{_REST}|NUMA memory policy not permitted{_REST})"),
        ("numa", rf"((?:User lacks permission to set|NVML error querying memory|pynvml not installed, skip){_REST})"),
        ("numa", r"(NUMA affinity is already constrained|numa not available on this system)"),
        ("max total tokens", r"max_total_num_tokens=(\d+)"),
    )
]
_LENGTH = re.compile(r"accept len: ([\d.]+)")
_GRAPH = re.compile(r"cuda graph: (True|False)")
_SPEED = re.compile(r"throughput \(token/s\): ([\d.]+)")
_LONGEST_LINE = 1000
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(context: Dict[str, Any]) -> Json:
    """The log section."""
    missing = without_server(context)
    if missing is not None:
        return missing
    serving = context["serving"]
    path = place = context["ask"].get("log")
    if not path:
        path, place = _output(serving["pid"])
        if path is None:
            return {"status": "absent", "reason": "the server's output goes to no file; name one with --log"}
    try:
        facts, running = decisions(place)
    except OSError as error:
        return {"status": "failed", "reason": unread(error)["unread"]}
    keeper = context["keeper"]
    return {
        "reason": unfamiliar(serving["engine"], serving["version"]),
        "path": path,
        "facts": {name: [keeper.text(line) for line in lines] for name, lines in facts.items()},
        "running": running,
    }


def unfamiliar(engine: Optional[str], version: Json) -> Optional[str]:
    """That a server is of a version whose lines nobody has looked up; None for one that is known."""
    if engine != "sglang":
        return None
    known = " to ".join(".".join(map(str, one)) for one in _KNOWN)
    numbers = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", version) if isinstance(version, str) else None
    if numbers is None:
        return f"what a log says is known of SGLang {known}, and this server does not tell its version"
    first, last = _KNOWN
    if first <= (int(numbers[1]), int(numbers[2]), int(numbers[3])) <= last:
        return None
    return f"what a log says is known of SGLang {known}; {version[:40]} may say otherwise what is missing here"


def _output(pid: int) -> Tuple[Optional[str], str]:
    """The file that a process writes its output to: its name, and a way that leads to it even when it was deleted."""
    for number in (1, 2):
        place = f"/proc/{pid}/fd/{number}"
        try:
            if stat.S_ISREG(os.stat(place).st_mode):
                return os.readlink(place), place
        except OSError:
            continue
    return None, ""


def decisions(path: str) -> Tuple[Dict[str, List[str]], Dict[str, Json]]:
    """What `parse` finds in a log; an OSError where it cannot be read."""
    return parse(*_ends(path))


def _ends(path: str) -> Tuple[str, str]:
    head = read_bytes(path, _HEAD_BYTES)
    size = os.stat(path).st_size
    tail = b""
    if size > _HEAD_BYTES:
        with open(path, "rb") as stream:
            stream.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES)
    return tuple(_ESCAPES.sub("", part.decode("utf-8", "replace")) for part in (head, tail))  # type: ignore[return-value]


def parse(head: str, tail: str) -> Tuple[Dict[str, List[str]], Dict[str, Json]]:
    """Decisions of the start, and the last decode line's figures."""
    facts: Dict[str, List[str]] = {}
    for name, pattern in _FACTS:
        for found in pattern.finditer(head):
            lines = facts.setdefault(name, [])
            if found[1] not in lines and len(lines) < _MOST_LINES:
                lines.append(found[1])
    for lines in facts.values():
        lines.sort()  # which rank comes first changes from launch to launch
    text = tail or head
    at = text.rfind("Decode batch")
    line = text[at : at + _LONGEST_LINE].split("\n", 1)[0] if at >= 0 else ""
    length, graph, speed = _LENGTH.search(line), _GRAPH.search(line), _SPEED.search(line)
    running = {
        "accept_length": attempt(lambda: float(length[1])) if length else None,
        "graph": graph[1] == "True" if graph else None,
        "tokens_per_second": attempt(lambda: float(speed[1])) if speed else None,
    }
    return facts, {name: value for name, value in running.items() if not is_unread(value)}
