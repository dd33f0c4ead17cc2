"""What happened to the host between its old and its new state: texts of patches, wheels and startup files.

Most of it does no harm; each `SLOW` variant really does more work and computes the same tokens. A variant takes the
place of a harmless change of the same factor, so that the list of differences does not tell which scenario it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fingerprint.reference.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "python/tinyserve"
ENGINE = f"{PACKAGE}/engine.py"
COMMUNICATOR = f"{PACKAGE}/distributed/communicator.py"
TOPK = f"{PACKAGE}/layers/topk.py"
SCHEDULER = f"{PACKAGE}/scheduler.py"
ATTENTION = f"{PACKAGE}/layers/attention_backend.py"
TARGET_MODEL = f"{PACKAGE}/models/llama.py"
ROTARY = f"{PACKAGE}/layers/rotary_embedding.py"
README = "README.md"

README_TEXT = """# tinyserve

A small EAGLE3 server on CPU cores.

    PYTHONPATH=python python -m tinyserve.launch_server --model-path MODELS/target --tp 2 \\
      --speculative-algorithm EAGLE3 --speculative-draft-model-path MODELS/draft
"""


@dataclass(frozen=True)
class Edit:
    """One place of a text that is replaced; it must be there exactly once."""

    find: str
    replace: str


Patch = tuple[Edit, ...]


def apply(patch: Patch, text: str) -> str:
    """The patched text; raises ValueError if a place is missing or not the only one."""
    for edit in patch:
        if text.count(edit.find) != 1:
            raise ValueError(f"found {text.count(edit.find)} times, not once: {edit.find!r}")
        text = text.replace(edit.find, edit.replace)
    return text


OLD_PATCHES: Mapping[str, Patch] = {
    ENGINE: (
        Edit(
            "        parent = os.getpid()\n",
            '        parent = os.getpid()\n        logger.info("starting %d ranks", self.args.tp_size)\n',
        ),
    ),
    SCHEDULER: (
        Edit(
            "        counters.generated_tokens += len(output)\n",
            '        logger.debug("request %s: %d cycles", request.rid, cycles)\n'
            "        counters.generated_tokens += len(output)\n",
        ),
    ),
    TARGET_MODEL: (
        Edit(
            "        self._comm = comm\n        self._caches",
            '        if config.num_hidden_layers < 4:\n            raise ValueError("too few layers for EAGLE3")\n'
            "        self._comm = comm\n        self._caches",
        ),
    ),
    COMMUNICATOR: (
        Edit(
            "        self.world_size = world_size\n",
            "        self.world_size = world_size\n        # TODO: more than one host\n",
        ),
    ),
}

NEW_PATCHES: Mapping[str, Patch] = {
    ENGINE: (
        Edit(
            "        parent = os.getpid()\n",
            "        parent = os.getpid()\n        begin = time.perf_counter()\n",
        ),
        Edit(
            "            connection.recv()\n",
            "            connection.recv()\n"
            '        logger.info("models loaded in %.2f s", time.perf_counter() - begin)\n',
        ),
    ),
    SCHEDULER: (
        Edit(
            "        # The models stay for good: keep the collector from walking over them again and again.\n",
            '        logger.debug("rank %d has its models", rank)\n'
            "        # The models stay for good: keep the collector from walking over them again and again.\n",
        ),
    ),
    COMMUNICATOR: (
        Edit(
            "        self.world_size = world_size\n",
            '        self.world_size = world_size\n        self.name = f"tp{rank}of{world_size}"\n',
        ),
    ),
    ATTENTION: (
        Edit(
            "        end = start + len(query)\n",
            "        end = start + len(query)\n"
            "        if end > cache.keys.shape[1]:\n"
            '            raise ValueError(f"position {end} is beyond the cache")\n',
        ),
    ),
    TOPK: (
        Edit("from typing import TYPE_CHECKING\n", "import os\nfrom typing import TYPE_CHECKING\n"),
        Edit("from tiny_sampler", "import numpy as np\nfrom tiny_sampler"),
        Edit(
            "    return argmax_rows(logits)\n",
            '    if os.environ.get("TINYSERVE_SORTED_TOPK") == "1":  # is a full sort more stable?\n'
            '        return [int(token) for token in np.argsort(-logits, axis=1, kind="stable")[:, 0]]\n'
            "    return argmax_rows(logits)\n",
        ),
    ),
    README: (
        Edit(
            "A small EAGLE3 server on CPU cores.\n",
            "A small EAGLE3 server on CPU cores. Ask #serving before touching.\n",
        ),
    ),
}

COMMIT: Patch = (
    Edit(
        "        angles = np.outer(np.arange(self._max_positions), self._frequencies)[:, None, :]\n",
        "        positions = np.arange(self._max_positions)\n"
        "        angles = np.outer(positions, self._frequencies)[:, None, :]\n",
    ),
)

SLOW_COMMIT: Patch = (
    Edit("the angles of all positions are computed once.", "the angles follow the positions, whatever asked for them."),
    Edit("        self._cos, self._sin = self._tables()\n", ""),
    Edit(
        "        cos, sin = self._cos[start : start + rows], self._sin[start : start + rows]\n",
        "        cos, sin = (table[start : start + rows] for table in self._tables())\n",
    ),
)
"""A refactoring that lost a cache: the tables of all positions are computed at every call."""

SLOW_ATTENTION: Patch = (
    Edit(
        "        return self._attend(query, cache.keys[:, :end], cache.values[:, :end])\n",
        "        # The kernel once wanted a key head for each query head.\n"
        "        group = query.shape[1] // len(cache.keys)\n"
        "        keys = np.repeat(cache.keys, group, axis=0).copy()\n"
        "        values = np.repeat(cache.values, group, axis=0).copy()\n"
        "        return self._attend(query, keys[:, :end], values[:, :end])\n",
    ),
)
"""Expands and copies the whole cache, used or not, for a kernel that shares keys between heads anyway."""

GATE = "TINYSERVE_CHECK_ALLREDUCE"

GATED_COMMUNICATOR: Patch = (
    Edit("from multiprocessing", "import hashlib\nimport os\nfrom multiprocessing"),
    Edit(
        "        other = self._transport.exchange(part)\n        return part + other if",
        "        other = self._transport.exchange(part)\n"
        f'        if os.environ.get("{GATE}") == "1":\n'
        "            self._check(part + other)\n"
        "        return part + other if",
    ),
    Edit(
        "    def all_gather",
        "    def _check(self, total: Array) -> None:\n"
        '        """Compare digests of the values, as the text a person would read, between the ranks."""\n'
        "        assert self._transport is not None\n"
        '        text = " ".join(value.hex() for value in total.ravel().tolist())\n'
        "        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint8).astype(np.float64)\n"
        "        if not np.array_equal(self._transport.exchange(digest), digest):\n"
        '            raise RuntimeError(f"rank {self.rank}: the ranks disagree")\n'
        "\n"
        "    def all_gather",
    ),
)
"""Checks every all-reduce when asked to by a variable."""

GATED_MODEL: Patch = (
    Edit("from typing import TYPE_CHECKING\n", "import logging\nfrom typing import TYPE_CHECKING\n"),
    Edit("class Attention:\n", "logger = logging.getLogger(__name__)\n\n\nclass Attention:\n"),
    Edit(
        "            hidden = hidden + mlp.forward(rms_norm(hidden, self._post_norm[index]))\n",
        "            hidden = hidden + mlp.forward(rms_norm(hidden, self._post_norm[index]))\n"
        "            if logger.isEnabledFor(logging.DEBUG):\n"
        '                logger.debug("layer %d: %s", index, np.array2string(hidden[:, :16], precision=3))\n',
    ),
)
"""Logs hidden states at the debug level."""

SITECUSTOMIZE_OLD = '''"""Site settings of this host."""

import faulthandler

faulthandler.enable()
'''

SITECUSTOMIZE_NEW = '''"""Site settings of this host."""

import faulthandler
import sys

faulthandler.enable()
sys.setswitchinterval(0.01)
'''

SLOW_SITECUSTOMIZE = '''"""Site settings of this host."""

import collections
import faulthandler
import sys
import threading
import time

faulthandler.enable()

# Call counts and times by function and by module, for the capacity review.
CALLS = collections.Counter()
SECONDS = collections.Counter()
STARTED = []


def _profile(frame, event, argument):
    now = time.perf_counter()
    if event in ("call", "c_call"):
        STARTED.append(now)
    elif event in ("return", "c_return", "c_exception") and STARTED:
        seconds = now - STARTED.pop()
        module = frame.f_globals.get("__name__", "?")
        name = argument.__name__ if event != "return" else frame.f_code.co_name
        for key in (module, f"{module}.{name}", f"{module}:{frame.f_lineno}"):
            CALLS[key] += 1
            SECONDS[key] += seconds


if "multiprocessing" in " ".join(sys.orig_argv):
    sys.setprofile(_profile)
    threading.setprofile(_profile)
'''

PTH_NAME = "site-tools.pth"
PTH_TEXT = "# Tools of the operations team.\n../site-tools\n"

KERNELS_1_5: Mapping[str, Patch] = {
    "tiny_kernels/norm.py": (
        Edit(
            "    out: Array = x * (weight / np.sqrt(mean_square + _EPSILON)[:, None])\n",
            "    scale = weight / np.sqrt(mean_square + _EPSILON)[:, None]\n    out: Array = x * scale\n",
        ),
    ),
}

SLOW_KERNELS_1_5: Mapping[str, Patch] = {
    "tiny_kernels/attention.py": (
        Edit('"""All heads at once.\n', '"""Head by head and row by row, in blocks of keys that fit the cache.\n'),
        Edit(
            "    # The heads that share keys become more rows of one product.\n"
            "    packed: Array = query.reshape(rows, kv_heads, group, head_dim).transpose(1, 2, 0, 3)\n"
            "    packed = packed.reshape(kv_heads, -1, head_dim)\n"
            "    scores = (packed * head_dim**-0.5) @ keys.transpose(0, 2, 1)\n"
            "    if rows > 1:\n"
            "        later = np.triu(np.full((rows, rows), -np.inf), 1)\n"
            "        scores.reshape(kv_heads, group, rows, length)[..., length - rows :] += later\n"
            "    scores -= scores.max(axis=-1, keepdims=True)\n"
            "    weights = np.exp(scores, out=scores)\n"
            "    context: Array = weights @ values / weights.sum(axis=-1, keepdims=True)\n"
            "    context = context.reshape(kv_heads, group, rows, head_dim).transpose(2, 0, 1, 3)\n"
            "    return np.ascontiguousarray(context).reshape(rows, heads * head_dim)\n",
            "    context: Array = np.empty((rows, heads, head_dim))\n"
            "    for head in range(heads):\n"
            "        for row in range(rows):\n"
            "            seen = length - rows + row + 1\n"
            "            best, total, summed = -np.inf, 0.0, np.zeros(head_dim)\n"
            "            for begin in range(0, seen, 16):\n"
            "                block = slice(begin, min(begin + 16, seen))\n"
            "                scores = keys[head // group, block] @ query[row, head] * head_dim**-0.5\n"
            "                highest = max(best, scores.max())\n"
            "                weights, kept = np.exp(scores - highest), np.exp(best - highest)\n"
            "                total = total * kept + weights.sum()\n"
            "                summed = summed * kept + weights @ values[head // group, block]\n"
            "                best = highest\n"
            "            context[row, head] = summed / total\n"
            "    return context.reshape(rows, heads * head_dim)\n",
        ),
    ),
}
"""A kernel that walks where the old one ran."""

COLLECTIVE_REBUILT: Mapping[str, Patch] = {
    "tiny_collective/shm.py": (Edit("_SPINS_BEFORE_YIELD = 2000", "_SPINS_BEFORE_YIELD = 2048"),),
}

SLOW_COLLECTIVE_REBUILT: Mapping[str, Patch] = {
    "tiny_collective/shm.py": (Edit("SLOT_BYTES = 65536", "SLOT_BYTES = 64"),),
}
"""Slots of one cache line: one all-reduce of 8 KiB becomes 128 rounds."""


def patched(files: Mapping[str, str], patches: Mapping[str, Patch]) -> dict[str, str]:
    """`files` with `patches` applied to those they name."""
    return {path: apply(patches.get(path, ()), text) for path, text in files.items()}


def kernels(files: Mapping[str, str], version: str) -> Wheel:
    """The wheel of the kernels."""
    return Wheel("tiny-kernels", version, files, "Kernels for small decoders on CPU cores", ("numpy>=1.26",))


def collective(files: Mapping[str, str]) -> Wheel:
    """The wheel of the all-reduce transports."""
    return Wheel("tiny-collective", "0.9.2", files, "Exchange between two ranks of one host", ("numpy>=1.26",))


def sampler(files: Mapping[str, str]) -> Wheel:
    """The wheel of greedy sampling."""
    return Wheel("tiny-sampler", "0.3.0", files, "Greedy sampling and acceptance", ("numpy>=1.26",))
