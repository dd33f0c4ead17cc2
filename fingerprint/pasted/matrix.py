"""Topology matrices as people paste them: `nvidia-smi topo -m` and rocm-smi's three tables.

A cell is one word of a closed vocabulary, so a row is taken apart by the words and never by counting blanks: columns
that a terminal has pushed together come apart again, and where a row still has another number of cells than the head
has devices, the whole matrix is refused. A matrix with cells shifted by one would be worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d+(?:_\w+?)??_?\d*(?=mlx|NIC|GPU|\s|$)|cxi\d+|bnxt_re\d+")
_CELL = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|(?<![A-Z])X(?![A-Z])")
_PREFIX = re.compile(r"^(?:[A-Z]+\s+)?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s?")


@dataclass(frozen=True)
class Matrix:
    """How devices reach each other, by the names that the report gives them.

    Attributes:
        devices: in the order of the report; network cards by the name that the legend gives them.
        paths: (device, other) to what they share; both directions.
        cpus: the processors near a GPU, as written; None where the report says N/A.
        nodes: its NUMA node.
    """

    devices: tuple[str, ...]
    paths: dict[tuple[str, str], str]
    cpus: dict[str, str | None] = field(default_factory=dict)
    nodes: dict[str, int | None] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs among the devices."""
        return tuple(name for name in self.devices if name.startswith("GPU"))

    def nearest(self, gpu: str) -> tuple[str, ...]:
        """The network cards that are as near to a GPU as any."""
        order = ("PIX", "PXB", "PHB", "NODE", "SYS")
        cards = [name for name in self.devices if not name.startswith("GPU") and self.paths[gpu, name] in order]
        best = min((order.index(self.paths[gpu, name]) for name in cards), default=0)
        return tuple(name for name in cards if self.paths[gpu, name] == order[best])

    def apart(self) -> tuple[str, ...]:
        """GPUs without an NVLink where all the others have one: what fell off."""
        linked = {gpu for gpu in self.gpus for other in self.gpus if self.paths[gpu, other].startswith("NV")}
        alone = tuple(gpu for gpu in self.gpus if gpu not in linked)
        return alone if linked and len(alone) == 1 else ()


def topo(text: str) -> Matrix | str | None:
    """The matrix in a text; why it cannot be read; None where there is none."""
    lines = [_PREFIX.sub("", _ESCAPES.sub("", line)) for line in text.splitlines()]
    at = next((n for n, line in enumerate(lines) if re.match(r"\s*GPU0\b(?!\s*X\b)(?!\s*NV)", line)), None)
    if at is None:
        return None
    head = re.split(r"CPU Affinity", lines[at])[0]
    devices = _DEVICE.findall(head)
    if re.sub(r"[\s]", "", head) != "".join(devices):
        return f"its head names devices that are not known: {head.strip()[:80]}"
    rows: dict[str, list[str]] = {}
    tails: dict[str, str] = {}
    for line in lines[at + 1 :]:
        name = _DEVICE.match(line.strip())
        if name is None or name[0] not in devices or name[0] in rows:
            if rows and not line.strip():
                break
            continue
        cells, rest = _cells(line.strip()[name.end() :], len(devices))
        if len(cells) != len(devices):
            return f"its head has {len(devices)} devices and the row of {name[0]} {len(cells)} cells"
        rows[name[0]], tails[name[0]] = cells, rest
    if set(rows) != set(devices):
        return f"it has no row for {', '.join(name for name in devices if name not in rows)}"
    legend = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)\s*$", "\n".join(lines[at:]), re.MULTILINE))
    named = [legend.get(name, name) for name in devices]
    paths = {
        (legend.get(name, name), named[column]): cell
        for name, cells in rows.items()
        for column, cell in enumerate(cells)
    }
    if any(paths[one, other] != paths[other, one] for one, other in paths):
        return "it says something else in one direction than in the other"
    places = {name: _place(tails[name]) for name in devices if name.startswith("GPU")}
    return Matrix(
        tuple(named),
        paths,
        {name: cpus for name, (cpus, _) in places.items()},
        {n: node for n, (_, node) in places.items()},
    )


def _cells(text: str, wanted: int) -> tuple[list[str], str]:
    cells: list[str] = []
    at = 0
    while len(cells) < wanted:
        gap = re.compile(r"\s*").match(text, at)
        at = gap.end() if gap else at
        found = _CELL.match(text, at)
        if found is None:
            break
        cells.append(found[0])
        at = found.end()
    return cells, text[at:]


def _place(rest: str) -> tuple[str | None, int | None]:
    """CPU and NUMA affinity behind the cells of a row."""
    words = rest.split()
    cpus = words[0] if words and re.fullmatch(r"[\d,-]+", words[0]) else None
    node = words[1] if len(words) > 1 else ""
    return cpus, int(node) if node.isdigit() else None


@dataclass(frozen=True)
class RocmTopology:
    """rocm-smi's account of how AMD GPUs reach each other. Hops are its own measure, and no number of links."""

    weights: dict[tuple[str, str], int]
    hops: dict[tuple[str, str], int]
    kinds: dict[tuple[str, str], str]
    nodes: dict[str, int | None]


def rocm(text: str) -> RocmTopology | None:
    """The tables of rocm-smi in a text; None where there are none."""
    tables: dict[str, dict[tuple[str, str], str]] = {}
    current: dict[tuple[str, str], str] = {}
    head: list[str] = []
    for line in text.splitlines():
        title = re.fullmatch(r"=+ (Weight|Hops|Link Type) between two GPUs =+", line.strip())
        if title:
            current, head = tables.setdefault(title[1], {}), []
            continue
        words = line.split()
        if words and all(re.fullmatch(r"GPU\d+", word) for word in words):
            head = words
        elif head and words and words[0] in head and len(words) == len(head) + 1:
            current.update({(words[0], other): cell for other, cell in zip(head, words[1:], strict=True)})
    if not tables:
        return None
    pairs = {name: {pair: cell for pair, cell in table.items() if pair[0] != pair[1]} for name, table in tables.items()}
    nodes = re.findall(r"GPU\[(\d+)\]\s*: \(Topology\) Numa (?:Node|Affinity): (-?\d+)", text)
    return RocmTopology(
        {pair: int(cell) for pair, cell in pairs.get("Weight", {}).items() if cell.isdigit()},
        {pair: int(cell) for pair, cell in pairs.get("Hops", {}).items() if cell.isdigit()},
        pairs.get("Link Type", {}),
        {f"GPU{number}": int(node) if int(node) >= 0 else None for number, node in reversed(nodes)},
    )
