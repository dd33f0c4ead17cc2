"""Factors: the differences that a launch can have in their old or their new value.

One file a kind. A kind finds its factors in two snapshots and says how a launch plan gets either value; what no launch
can switch is `Fixed`, with the reason. `find` asks all kinds.
"""

from __future__ import annotations

from fingerprint.errors import UsageError
from fingerprint.factors.base import Every, Evidence, Factor, Fixed, Found, Inside, Need, Part, Together
from fingerprint.factors.plan import LaunchPlan, plan_of
from snapshots import Snapshot


def find(old: Snapshot, new: Snapshot, evidence: Evidence) -> Found:
    """All factors between two snapshots, and all differences that look like factors but cannot be switched.

    Args:
        old: the good side.
        new: the slow side, which is also what is live.
        evidence: what is at hand to bring old values back (kept files).

    Raises:
        UsageError: one of them was made of a pasted report.
    """
    for side, words in ((old, "old"), (new, "new")):
        if side.method == "imported":
            raise UsageError(
                f"The {words} snapshot was made of a pasted report ({side.target}): it names too little for a launch;"
                " `fingerprint diff` compares what it names."
            )
    # Loaded here: a comparison asks this package for a constant, and needs none of the kinds.
    from fingerprint.factors import flags, host_settings, packages, process, startup, tree, variables

    kinds = (variables.find, flags.find, tree.find, packages.find, startup.find, process.find, host_settings.find)
    factors: list[Factor] = []
    fixed: list[Fixed] = []
    for kind in kinds:
        for one in kind(old, new, evidence):
            (factors if isinstance(one, Factor) else fixed).append(one)  # type: ignore[arg-type]
    return Found(factors, fixed, tuple(packages.needs(old, new, factors, fixed)))


__all__ = [
    "Every",
    "Evidence",
    "Factor",
    "Fixed",
    "Found",
    "Inside",
    "LaunchPlan",
    "Need",
    "Part",
    "Together",
    "find",
    "plan_of",
]
