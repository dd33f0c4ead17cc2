"""Factors: the differences that a launch can have in their old or their new value.

One file a kind. A kind finds its factors in two snapshots and says how a launch plan gets either value; what no launch
can switch is `Fixed`, with the reason. `find` asks all kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fingerprint.errors import UsageError
from fingerprint.factors.base import Every, Evidence, Factor, Fixed, Found, Inside, Need, Part, Together, short
from fingerprint.factors.plan import LaunchPlan, plan_of
from snapshots import Snapshot

if TYPE_CHECKING:
    from fingerprint.diff import Comparison


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


MACHINE = frozenset({"gpu", "topology", "host", "limits"})
"""Sections that are about what a launch runs on."""


def with_the_rest(found: Found, comparison: Comparison) -> Found:
    """The same with all other lines of the comparison among the fixed: the driver, the kernel, a PCIe link."""
    told = {name for one in found.factors for name in (one.id, *one.covers())} | {one.id for one in found.fixed}
    rest = []
    for line in comparison.lines():
        one = line.difference
        if one.factor not in told:
            reason = "it is of the machine, which a launch finds as it is"
            if one.section not in MACHINE:
                reason = "no launch sets it by itself: it comes with something that the server runs or reads"
            rest.append(Fixed(one.factor or one.name, short(one.old), short(one.new), reason))
    return replace(found, fixed=[*found.fixed, *rest])


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
    "with_the_rest",
]
