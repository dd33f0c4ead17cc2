"""Flags under their several names: what an engine's parser takes for one and the same.

`--tp 2` and `--tensor-parallel-size 2` are one setting. Two launches are compared setting by setting, whatever either
of them wrote; a launch keeps its own spelling, because not every engine and version takes all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

CANONICAL = {
    # short forms: SGLang's parser completes a prefix that is unambiguous, vLLM declares them
    "--tp": "--tp-size",
    "-tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
    "--pp": "--pp-size",
    "-pp": "--pp-size",
    "--pipeline-parallel-size": "--pp-size",
    "--dp": "--dp-size",
    "-dp": "--dp-size",
    "--data-parallel-size": "--dp-size",
    "--ep": "--ep-size",
    "--expert-parallel-size": "--ep-size",
    "--dcp": "--dcp-size",
    "-dcp": "--dcp-size",
    "--decode-context-parallel-size": "--dcp-size",
    "--attention-data-parallel-size": "--attn-dp-size",
    "--attention-context-parallel-size": "--attn-cp-size",
    "--moe-data-parallel-size": "--moe-dp-size",
    "--model": "--model-path",
    "--tokenizer": "--tokenizer-path",
    "-q": "--quantization",
    "-cc": "--compilation-config",
    "--nccl-init-addr": "--dist-init-addr",
    "--enable-hicache": "--enable-hierarchical-cache",
    "--speculative-algo": "--speculative-algorithm",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--speculative-draft": "--speculative-draft-model-path",
    # renamed from one version to the next, the old name kept for a while
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--piecewise-cuda-graph-tokens": "--cuda-graph-bs-prefill",
    "--piecewise-cuda-graph-max-tokens": "--cuda-graph-max-bs-prefill",
    "--piecewise-cuda-graph-compiler": "--cuda-graph-tc-compiler",
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--stream-output": "--incremental-streaming-output",
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--enable-prefill-context-parallel": "--enable-prefill-cp",
}
"""A name to the one that stands for all of its setting. From SGLang 0.5.14's and 0.5.23's own parsers (aliases, and
flags declared as deprecated for another one) and vLLM's documentation."""


def canonical(flag: str) -> str:
    """The one spelling of a flag: `--tensor_parallel_size` is `--tp-size`."""
    dashes = flag[: len(flag) - len(flag.lstrip("-"))]
    name = dashes + flag[len(dashes) :].replace("_", "-")
    return CANONICAL.get(name, name)


def names_of(flag: str) -> list[str]:
    """Every name of a flag's setting: its own first, then the one that stands for all."""
    setting = canonical(flag)
    return list(dict.fromkeys([flag, setting, *(name for name, one in CANONICAL.items() if one == setting)]))


Words = tuple[str, ...]


def paired(old: Mapping[str, Words], new: Mapping[str, Words]) -> dict[str, tuple[str | None, str | None]]:
    """The settings of two launches: what each is called to the flag that either launch wrote for it.

    A setting is called as the new launch writes it, else as the old one does. None: that launch does not have it. A
    launch that writes one setting under two names has each for itself: which of them counts is the parser's affair.
    """
    ours, theirs = by_setting(old), by_setting(new)
    pairs: dict[str, tuple[str | None, str | None]] = {}
    for setting in dict.fromkeys([*ours, *theirs]):
        before, after = ours.get(setting, []), theirs.get(setting, [])
        if len(before) <= 1 and len(after) <= 1:
            was, now = next(iter(before), None), next(iter(after), None)
            pairs[now or was or setting] = (was, now)
        else:
            for name in dict.fromkeys([*before, *after]):
                pairs[name] = (name if name in before else None, name if name in after else None)
    return pairs


def by_setting(flags: Mapping[str, Words]) -> dict[str, list[str]]:
    """The names under which each setting is written."""
    found: dict[str, list[str]] = {}
    for name in flags:
        found.setdefault(canonical(name), []).append(name)
    return found
