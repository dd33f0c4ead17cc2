"""What a speculative cycle is worth: tokens per second, and the accept length at which it breaks even.

A cycle gains `accept_length` tokens, the target's own included, and takes `cycle_ms`. Nothing else enters.
"""

from __future__ import annotations


def tokens_per_second(accept_length: float, cycle_ms: float) -> float:
    """The speed of a cycle of `cycle_ms` that gains `accept_length` tokens."""
    return 1000 * accept_length / cycle_ms


def accept_length_for(wanted_tokens_per_second: float, cycle_ms: float) -> float:
    """The accept length at which cycles of `cycle_ms` give the speed that is wanted."""
    return wanted_tokens_per_second * cycle_ms / 1000
