"""Two snapshots in, the ranked list of what could have done it out.

A snapshot's leaves stand under natural keys, so a comparison is a join on those keys: `changes`, without loss. People
do not think in leaves, though. One variable shows in the launch, in the launcher and in every rank; one package is a
version, a record and two hundred files; one upgrade moves thirty packages. So *views* gather a section's changes into
differences (`views`), *causes* hang a consequence below what brought it about, and `ranking`
says which of them deserves a trial first, and why. Every change ends up in exactly one difference: nothing is dropped.
"""

from fingerprint.diff.compare import apply, compare, join
from fingerprint.diff.difference import SECRET, Change, Comparison, Difference, Line, Pair, Reason, same_leaf

__all__ = [
    "SECRET",
    "Change",
    "Comparison",
    "Difference",
    "Line",
    "Pair",
    "Reason",
    "apply",
    "compare",
    "join",
    "same_leaf",
]
