"""Sets of settings that cannot be launched, and the nearest sets that can.

A conflict is a set of settings: the name of a factor means "at its new value", `old(name)` means "at its old value".
So `{"package:torch", "package:flashinfer"}` says that both new cannot start, and `{"tree:commit",
old("package:kernel")}` that the new tree cannot start without the new kernel package: a dependency. A launch is in
conflict when it has all settings of one.

Some conflicts are learned: a launch that did not start is never asked again, and since both ends do start, its cause
is most often a pair "this one new, that one old"; such pairs are suspects until a launch that has them starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_OLD: Final = "old "
# A failed launch most often fails by a pair of settings; else only that very set fails.
_PAIR: Final = 0.9


def old(factor: str) -> str:
    """The setting "this factor at its old value", for use in a conflict."""
    return _OLD + factor


class Conflicts:
    """What can be launched among some factors: rules known beforehand and launches that failed.

    Args:
        factors: the factors, in the order of the columns of the settings.
        rules: the conflicts that are known; names that are no factor here are taken as always old.
    """

    def __init__(self, factors: Sequence[str], rules: Iterable[frozenset[str]]) -> None:
        self.count = len(factors)
        column = {name: i for i, name in enumerate(factors)}
        kept: set[tuple[tuple[int, bool], ...]] = set()
        for rule in rules:
            settings = []
            for setting in rule:
                name, value = (setting[len(_OLD) :], False) if setting.startswith(_OLD) else (setting, True)
                if name in column:
                    settings.append((column[name], value))
                elif value:
                    break
            else:
                if settings:
                    kept.add(tuple(sorted(settings)))
        self.rules = sorted(kept)
        # needs[i, j]: i new needs j new.
        self.needs = np.eye(self.count, dtype=bool)
        for rule_ in self.rules:
            if len(rule_) == 2 and rule_[0][1] != rule_[1][1]:
                (a, _), (b, b_new) = rule_
                i, j = (b, a) if b_new else (a, b)
                self.needs[i, j] = True
        self.others = [r for r in self.rules if not (len(r) == 2 and r[0][1] != r[1][1])]
        for k in range(self.count):
            self.needs |= self.needs[:, k : k + 1] & self.needs[k : k + 1, :]
        # A failed launch makes its pairs of settings suspects; along a line of changes it says nothing of the next.
        self.by_pairs = not (self.needs | self.needs.T).all()
        self.failed: list[Bools] = []
        self._suspects: list[Bools] = []
        self._seen = np.zeros((self.count, self.count), bool)

    def launched(self, new: Bools) -> None:
        """This setting started: its pairs are no suspects."""
        self._seen |= new[:, None] & ~new[None, :]
        self._suspects = [s & ~self._seen for s in self._suspects]

    def did_not_launch(self, new: Bools) -> None:
        """This setting did not start."""
        self.failed.append(new.copy())
        self._suspects.append(new[:, None] & ~new[None, :] & ~self._seen)

    def allowed(self, new: Bools) -> Bools:
        """Which of these settings (setting by factor) break no rule and have not failed before."""
        ok = ~((new @ self.needs) & ~new).any(axis=1)
        for rule in self.others:
            columns = [i for i, _ in rule]
            ok &= ~(new[:, columns] == np.array([v for _, v in rule])).all(axis=1)
        for failed in self.failed:
            ok &= (new != failed).any(axis=1)
        return np.asarray(ok)

    def chance(self, new: Bools) -> Floats:
        """Probability that each setting starts, by what failed so far."""
        out = np.ones(new.shape[0])
        for suspects in self._suspects if self.by_pairs else ():
            total = int(suspects.sum())
            if total:
                hit = ((new @ suspects.astype(np.float64)) * ~new).sum(axis=1)
                out *= 1 - _PAIR * hit / total
        return out

    def repaired(self, new: Bools) -> Bools:
        """The settings with what they need added, and with what lacks its need removed (twice as many rows)."""
        up = new @ self.needs
        down = new & ~(~new @ self.needs.T)
        return np.concatenate([up, down])

    def above(self, core: Bools) -> Bools:
        """The smallest setting by the known needs that has these factors new."""
        return np.asarray(core @ self.needs)

    def below(self, core: Bools) -> Bools:
        """The largest setting by the known needs that has these factors old."""
        return np.asarray(~(core @ self.needs.T))
