"""Names of variables that are one slip away from what a library reads."""

from __future__ import annotations


def misspelling_of(name: str) -> str | None:
    """The well-known prefix that a name just misses, as the whole name would be; None for an ordinary one.

    Only a prefix that is a letter short, long or wrong counts: `CCL_NET_GDR_LEVEL` for `NCCL_NET_GDR_LEVEL`.
    """
    head, mark, tail = name.partition("_")
    if not mark or head in _PREFIXES:
        return None
    for prefix in ("NCCL", "SGLANG", "VLLM", "FLASHINFER", "TRITON"):
        if _one_slip(head, prefix) and (prefix != "NCCL" or tail.split("_")[0] in _NCCL_WORDS):
            return f"{prefix}_{tail}"
    return None


_PREFIXES = frozenset({"NCCL", "RCCL", "SGLANG", "SGL", "VLLM", "FLASHINFER", "TRITON", "TORCH", "HCCL", "ONECCL"})
_NCCL_WORDS = frozenset(
    {"ALGO", "BUFFSIZE", "CROSS", "CUMEM", "DEBUG", "GRAPH", "IB", "LAUNCH", "LL", "MAX", "MIN", "NET", "NTHREADS"}
    | {"NVB", "NVLS", "P2P", "PROTO", "PXN", "SHM", "SOCKET", "TOPO"}
)


def _one_slip(word: str, wanted: str) -> bool:
    """Whether one inserted, dropped, replaced or swapped letter makes `word` of `wanted`."""
    if abs(len(word) - len(wanted)) > 1 or word == wanted:
        return False
    if len(word) == len(wanted):
        apart_at = [at for at, pair in enumerate(zip(word, wanted, strict=True)) if pair[0] != pair[1]]
        swapped = (
            len(apart_at) == 2 and word[apart_at[0]] == wanted[apart_at[1]] and word[apart_at[1]] == wanted[apart_at[0]]
        )
        return len(apart_at) == 1 or (swapped and apart_at[1] == apart_at[0] + 1)
    longer, shorter = (word, wanted) if len(word) > len(wanted) else (wanted, word)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
