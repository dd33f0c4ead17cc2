"""More than two snapshots: which host is the odd one out, key by key.

Hosts that are equal are one group. The host that deviates least from what most have is the reference; the others are
compared with it, and each difference becomes a row that says which hosts have which value. Where a value is held by
more than half, the rest are the odd ones, also when the reference is among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fingerprint.diff import Difference, compare, same_leaf
from fingerprint.errors import UsageError
from snapshots import Key, Leaf, Snapshot, Unread, leaves


@dataclass(frozen=True)
class Value:
    """One value of a row.

    Attributes:
        leaf: the value; None where those hosts have no such thing.
        note: what tells it from another one that reads alike ("same version, other contents").
        hosts: who has it.
    """

    leaf: Leaf | None
    note: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One difference over the fleet.

    Attributes:
        difference: the difference between the reference and the first host that has it, with its rank and reasons.
        values: by number of hosts, most first; hosts that could not read it are in none.
        odd: the hosts that do not have what more than half of those listed have; empty where no value has a majority.
    """

    difference: Difference
    values: tuple[Value, ...]
    odd: tuple[str, ...]


@dataclass(frozen=True)
class Fleet:
    """Several snapshots compared.

    Attributes:
        groups: hosts with equal identities, largest group first.
        reference: the host that the rows were taken against.
        rows: likeliest first.
        not_comparable: what some host could not read, with the hosts.
    """

    groups: tuple[tuple[str, ...], ...]
    reference: str
    rows: tuple[Row, ...]
    not_comparable: tuple[Row, ...]

    def causes(self) -> tuple[Row, ...]:
        """The rows that no other row brought about."""
        keys = {row.difference.key for row in self.rows}
        return tuple(row for row in self.rows if row.difference.group not in keys)

    @property
    def equal(self) -> bool:
        """All hosts are the same, as far as could be read."""
        return not self.rows and not self.not_comparable


def fleet(snapshots: Mapping[str, Snapshot]) -> Fleet:
    """Compare several snapshots.

    Args:
        snapshots: by the name that the rows call them.

    Raises:
        UsageError: fewer than two.
    """
    if len(snapshots) < 2:
        raise UsageError("One snapshot alone has nothing to be compared with; name at least two.")
    snapshots = dict(sorted(snapshots.items()))
    groups = _groups(snapshots)
    reference = _reference(groups, snapshots)
    rows: dict[Key, list[_Found]] = {}
    blind: dict[Key, list[_Found]] = {}
    dark: dict[str, frozenset[Key]] = {}
    for group in groups:
        comparison = compare(snapshots[reference], snapshots[group[0]])
        for difference in comparison.differences:
            rows.setdefault(difference.key, []).append((difference, group))
        for difference in comparison.not_comparable:
            if not (isinstance(difference.old, Unread) and isinstance(difference.new, Unread)):
                blind.setdefault(difference.key, []).append((difference, group))
        unknown = frozenset(
            key for item in comparison.not_comparable for key in (item.key, *(change.key for change in item.changes))
        )
        dark |= dict.fromkeys(group, unknown)
    return Fleet(
        groups=groups,
        reference=reference,
        rows=_sorted(_row(found, dark) for found in rows.values()),
        not_comparable=_sorted(_row(found, {name: frozenset() for name in snapshots}) for found in blind.values()),
    )


_Found: TypeAlias = tuple[Difference, tuple[str, ...]]


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.difference.likelihood, row.difference.key)))


def _groups(snapshots: Mapping[str, Snapshot]) -> tuple[tuple[str, ...], ...]:
    of: dict[str, list[str]] = {}
    for name, snapshot in snapshots.items():
        of.setdefault(snapshot.id, []).append(name)
    return tuple(sorted((tuple(names) for names in of.values()), key=lambda names: (-len(names), names)))


def _reference(groups: tuple[tuple[str, ...], ...], snapshots: Mapping[str, Snapshot]) -> str:
    """The host that deviates from the most common value in the fewest leaves."""
    sides = {group: dict(leaves(snapshots[group[0]])) for group in groups}
    common: dict[Key, Leaf | None] = {}
    for key in {key for side in sides.values() for key in side}:
        counted: Counter[str] = Counter()
        example: dict[str, Leaf | None] = {}
        for group, side in sides.items():
            words = repr(side.get(key))
            counted[words] += len(group)
            example[words] = side.get(key)
        most = max(counted.values())
        common[key] = example[min(words for words, number in counted.items() if number == most)]

    def deviations(group: tuple[str, ...]) -> int:
        return sum(not same_leaf(sides[group].get(key), leaf) for key, leaf in common.items())

    return min(groups, key=lambda group: (deviations(group), -len(group), group))[0]


def _row(found: list[_Found], dark: Mapping[str, frozenset[Key]]) -> Row:
    """One row; a host that could not read what the row is about has no value in it.

    Args:
        found: the difference of each group that has one, against the reference.
        dark: what each host could not read.
    """
    values: dict[object, Value] = {}
    for difference, group in found:
        signature = tuple((change.key, repr(change.new)) for change in difference.changes)
        known = values.get(signature)
        values[signature] = Value(difference.new, difference.note, (*known.hosts, *group) if known else group)
    elsewhere = {host for value in values.values() for host in value.hosts}
    about = {change.key[:n] for difference, _ in found for change in difference.changes for n in range(1, 20)}
    kept = tuple(host for host, unknown in dark.items() if host not in elsewhere and not unknown & about)
    listed = [Value(found[0][0].old, "", kept), *values.values()] if kept else [*values.values()]
    listed.sort(key=lambda value: (-len(value.hosts), value.hosts))
    hosts = sum(len(value.hosts) for value in listed)
    majority = len(listed[0].hosts) * 2 > hosts
    odd = tuple(host for value in listed[1:] for host in value.hosts) if majority else ()
    return Row(max((difference for difference, _ in found), key=lambda item: item.likelihood), tuple(listed), odd)
