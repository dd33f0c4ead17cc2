"""Two snapshots in, the ranked list of what could have done it out: the join, and what surrounds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fingerprint.diff.difference import (
    Change,
    Comparison,
    Difference,
    Pair,
    judge,
    same_leaf,
)
from snapshots import Key, Leaf, Packages, Section, Snapshot, Unread, leaves


def join(old: Mapping[Key, Leaf], new: Mapping[Key, Leaf]) -> list[Change]:
    """Every leaf that differs, in key order. `apply` turns it back."""
    changes = []
    for key, was in old.items():
        now = new.get(key)
        if was is now or (type(was) is str and was == now):  # nearly all of them
            continue
        if not same_leaf(was, now):
            changes.append(Change(key, was, now))
    changes.extend(Change(key, None, now) for key, now in new.items() if key not in old)
    changes.sort(key=lambda change: change.key)
    return changes


def apply(changes: Iterable[Change], old: Mapping[Key, Leaf]) -> dict[Key, Leaf]:
    """The new side's leaves, made of the old side's and the changes."""
    leaves_now = dict(old)
    for change in changes:
        if change.new is None:
            leaves_now.pop(change.key, None)
        else:
            leaves_now[change.key] = change.new
    return leaves_now


def compare(old: Snapshot, new: Snapshot, *, state: bool = False) -> Comparison:
    """Compare two snapshots.

    Args:
        old: the side that was fast, usually.
        new: the side that is slow.
        state: also list what moves on its own (temperature, pids) and inert variables.
    """
    from fingerprint.diff.causes import hang
    from fingerprint.diff.ranking import rank
    from fingerprint.diff.views import view

    given = old, new
    if old.method != new.method:
        from fingerprint.pasted import placed

        if old.method == "imported":
            old = placed(old, new)
        else:
            new = placed(new, old)
    differences: list[Difference] = []
    moving: list[Difference] = []
    blind: list[Difference] = []
    same: dict[str, int] = {}
    unseen: dict[str, str] = {}
    everything: list[Change] = []
    ours, theirs = old.sections(), new.sections()
    for name in ours:
        pair = Pair(name, ours[name], theirs[name])
        before, after = _told(old, pair.old, name), _told(new, pair.new, name)
        changes = join(before, after)
        everything += changes
        gap = _whole_section(pair, changes)
        if gap is not None:
            if isinstance(gap, str):
                unseen[name] = gap
            else:
                blind.append(gap)
            continue
        same[name] = len(before) - sum(change.old is not None for change in changes)
        changes, untold = _untold_apart(changes, old, new)
        blind += untold
        readable, unread = _unread_apart(changes, before, after)
        files = _changed_files(pair, readable)
        blind += _gathered_unread(unread)
        for difference in view(pair, readable + files):
            (blind if difference.verdict == "not comparable" else differences).append(_partial(difference, pair))
        if state:
            moving += _state(pair, {*before, *after, *(change.key for change in files)})
    ranked = rank(hang(differences, old, new), old, new)
    return Comparison(
        old=given[0],
        new=given[1],
        differences=tuple(ranked),
        not_comparable=tuple(sorted(blind, key=lambda item: item.key)),
        same=same,
        state=tuple(moving),
        unseen=unseen,
        changes=tuple(everything),
    )


def _told(snapshot: Snapshot, section: Section, name: str) -> dict[Key, Leaf]:
    """The leaves of a section. A pasted report says nothing by leaving a value at its default, or empty."""
    if snapshot.method == "captured":
        return dict(leaves(section, key=(name,)))
    return {key: leaf for key, leaf in leaves(section, defaults=False, key=(name,)) if leaf not in ("", ())}


def _untold_apart(changes: list[Change], old: Snapshot, new: Snapshot) -> tuple[list[Change], list[Difference]]:
    """Split off what a side that was imported does not hold: that is unknown."""
    blind = []
    for side, imported in (("old", old.method == "imported"), ("new", new.method == "imported")):
        untold = [change for change in changes if imported and getattr(change, side) is None]
        if not untold:
            continue
        changes = [change for change in changes if getattr(change, side) is not None]
        reason = Unread(unread="the pasted report does not say")
        blind.append(
            Difference(
                key=(untold[0].key[0], "*"),
                verdict="not comparable",
                old=reason if side == "old" else "was read",
                new=reason if side == "new" else "was read",
                title="all that a pasted report does not name",
                changes=tuple(untold),
            )
        )
    return changes, blind


def _changed_files(pair: Pair, changes: Iterable[Change]) -> list[Change]:
    """The files in which a changed package differs, where both sides list them.

    A list exists only for packages whose files were kept: it explains a difference, and is no identity of its own.
    """
    if not (isinstance(pair.old, Packages) and isinstance(pair.new, Packages)):
        return []
    names = {change.key[2] for change in changes if change.key[1] == "distributions"}
    files: list[Change] = []
    for name in sorted(names & pair.old.files.keys() & pair.new.files.keys()):
        old, new = pair.old.files[name], pair.new.files[name]
        files += [
            Change((pair.name, "files", name, path), old.get(path), new.get(path))
            for path in sorted({path for path, _ in old.items() ^ new.items()})
        ]
    return files


def _whole_section(pair: Pair, changes: list[Change]) -> Difference | str | None:
    """One entry for a section that a side lacks as a whole; text when both do; None when both have it."""
    gaps = [_gap(section) for section in (pair.old, pair.new)]
    if gaps == [None, None]:
        return None
    if None not in gaps:
        reasons = [gap.unread for gap in gaps if gap is not None]
        return reasons[0] if reasons[0] == reasons[1] else f"old: {reasons[0]}; new: {reasons[1]}"
    side = "old" if gaps[0] is not None else "new"
    return Difference(
        key=(pair.name,),
        verdict="not comparable",
        old=gaps[0] or "was read",
        new=gaps[1] or "was read",
        title=pair.name,
        note=f"the {side} snapshot does not have this section",
        changes=tuple(changes),
    )


def _gap(section: Section) -> Unread | None:
    if section.status == "failed":
        return Unread(unread=section.reason or "the probe failed")
    if section.status == "absent":
        return Unread(unread=section.reason or "not captured")
    return None


def _partial(difference: Difference, pair: Pair) -> Difference:
    """Something that is missing on a side that was read only in part may be there all the same."""
    section = {"only in old": pair.new, "only in new": pair.old}.get(difference.verdict)
    if section is None or section.status != "partial" or not section.reason:
        return difference
    side = "new" if difference.verdict == "only in old" else "old"
    warning = f"the {side} side read this section only in part: {section.reason}"
    return replace(difference, details=(*difference.details, warning))


def _unread_apart(
    changes: list[Change], before: Mapping[Key, Leaf], after: Mapping[Key, Leaf]
) -> tuple[list[Change], list[_Blind]]:
    """Split off what one side could not read: the leaf itself, and everything below it on the other side.

    What both sides could not read is no change, but it is unknown all the same.
    """
    dark_before = {key for key, leaf in before.items() if type(leaf) is Unread}
    dark_after = {key for key, leaf in after.items() if type(leaf) is Unread}
    both = dark_before & dark_after
    below: dict[Key, list[Change]] = {}
    readable: list[Change] = []
    for change in changes:
        hidden_in = dark_before if change.old is None else dark_after if change.new is None else frozenset()
        roof = next((change.key[:n] for n in range(1, len(change.key)) if change.key[:n] in hidden_in), None)
        if roof is not None:
            below.setdefault(roof, []).append(change)
        elif isinstance(change.old, Unread) or isinstance(change.new, Unread):
            below.setdefault(change.key, []).append(change)
        else:
            readable.append(change)
    seen = "was read"
    blind = [
        _Blind(key, before.get(key, seen), after.get(key, seen), tuple(below.get(key, ())))
        for key in sorted({*below, *both})
    ]
    return readable, blind


@dataclass(frozen=True)
class _Blind:
    key: Key
    old: Leaf
    new: Leaf
    changes: tuple[Change, ...]


def _gathered_unread(unread: list[_Blind]) -> list[Difference]:
    """One entry per field and reason, however many processes or devices share it."""
    gathered: dict[tuple[str, ...], list[_Blind]] = {}
    for item in unread:
        reasons = [leaf.unread if isinstance(leaf, Unread) else "" for leaf in (item.old, item.new)]
        gathered.setdefault((item.key[0], item.key[-1], *reasons), []).append(item)
    return [
        Difference(
            key=items[0].key,
            verdict="not comparable",
            old=items[0].old if isinstance(items[0].old, Unread) else "was read",
            new=items[0].new if isinstance(items[0].new, Unread) else "was read",
            title=items[0].key[-1],
            where=tuple("/".join(item.key[1:-1]) for item in items),
            changes=tuple(change for item in items for change in item.changes),
        )
        for items in gathered.values()
    ]


def _without_what_is_equal(old: Section, new: Section) -> tuple[Section, Section]:
    """Both sides without the tables (a package's list of files) that are the same on both: they need no walk."""
    left: tuple[dict[str, object], dict[str, object]] = ({}, {})
    for place in type(old).model_fields:
        sides = getattr(old, place), getattr(new, place)
        if all(isinstance(side, dict) for side in sides):
            equal = {
                name
                for name in sides[0].keys() & sides[1].keys()
                if type(sides[0][name]) is dict and sides[0][name] == sides[1][name]
            }
            for side, kept in zip(sides, left, strict=True):
                kept[place] = {name: value for name, value in side.items() if name not in equal}
    return old.model_copy(update=left[0]), new.model_copy(update=left[1])


def _state(pair: Pair, told: set[Key]) -> Iterator[Difference]:
    """What moves on its own, without the keys that are told elsewhere."""
    from fingerprint.diff.views import of_the_session

    moving = [
        {key: leaf for key, leaf in leaves(section, state=True, key=(pair.name,)) if key not in told}
        for section in _without_what_is_equal(pair.old, pair.new)
    ]
    changes = [change for change in join(*moving) if len(change.key) > 2]  # shorter ones are about the capture itself
    if pair.name == "server":
        yield from of_the_session(pair, [change for change in changes if _is_variable(change.key)])
        changes = [change for change in changes if not _is_variable(change.key)]
    for change in changes:
        yield Difference(
            change.key,
            judge(change.old, change.new),
            change.old,
            change.new,
            title="/".join(change.key[1:]),
            changes=(change,),
        )


def _is_variable(key: Key) -> bool:
    return key[3:4] in {("at_exec",), ("variables",)}
