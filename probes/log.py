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

_FACTS: List[Tuple[str, Pattern[str]]] = [
    ("attention backend", re.compile(r"Attention backend not specified\. Use (\S+) backend by default")),
    ("nccl", re.compile(r"using nccl==(\S+)")),
    ("custom all-reduce", re.compile(r"((?:Setup )?[Cc]ustom all-?reduce (?:is disabled|failed)[^\n]{0,200})")),
    ("custom all-reduce", re.compile(r"(CustomAllReduceV2[^\n]{0,120})")),
    ("all-reduce fusion", re.compile(r"(Auto-enabling FlashInfer AllReduce Fusion[^\n]{0,120})")),
    ("all-reduce fusion", re.compile(r"(flashinfer\.comm allreduce_fusion API is not available[^\n]{0,160})")),
    ("pcie all-reduce", re.compile(r"(FlashInfer PCIe-IPC all-reduce enabled)")),
    ("graph addresses", re.compile(r"Registering (\d+) cuda graph addresses")),
    ("verify graph", re.compile(r"Capture target verify CUDA graph begin\. ([^\n]{0,300}?), avail mem")),
    ("graphs", re.compile(r"(Disable \w+ CUDA graph because[^\n]{0,160})")),
    ("moe config", re.compile(r"(Using default MoE kernel config[^\n]{0,80})")),
    ("max total tokens", re.compile(r"max_total_num_tokens=(\d+)")),
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
        "path": path,
        "facts": {name: [keeper.text(line) for line in lines] for name, lines in facts.items()},
        "running": running,
    }


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
