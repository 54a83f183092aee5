"""Which NPUs do the same: classes by partition refinement, and the names of the groups their members meet in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simcore.system.groups import GroupDim, LogicalDim
from simcore.system.transport import class_of

Ints = NDArray[np.int64]


def fold(dims: Sequence[LogicalDim], kinds: Ints) -> list[Sequence[int]]:
    """The NPUs of every class, ascending; class 0 holds NPU 0.

    `kinds` numbers NPUs by what they compute: equal numbers start in one class. Then classes are split until all
    members of a class meet the same classes in every dimension. That suffices where an NPU's place in its groups makes
    no difference.
    """
    colours, count = np.unique(kinds, return_inverse=True)[1].astype(np.int64), 1
    while colours.max() >= count:
        count = int(colours.max()) + 1
        for dim in dims:
            outer = len(colours) // (dim.stride * dim.size)
            groups = colours.reshape(outer, dim.size, dim.stride).transpose(0, 2, 1).reshape(-1, dim.size)
            met = np.unique(np.sort(groups, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
            seen = np.repeat(met, dim.size).reshape(outer, dim.stride, dim.size).transpose(0, 2, 1).reshape(-1)
            colours = np.unique(colours * (met.max() + 1) + seen, return_inverse=True)[1].astype(np.int64)
    return classes_of(colours)


def classes_of(kinds: Ints) -> list[Sequence[int]]:
    """The NPUs of every kind, ascending, ordered by their first; a class of neighbours is a range."""
    order = np.argsort(kinds, kind="stable")
    found: list[Sequence[int]] = []
    for members in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        first, last = int(members[0]), int(members[-1])
        found.append(range(first, last + 1) if last - first + 1 == len(members) else members)  # type: ignore[arg-type]
    return sorted(found, key=lambda members: int(members[0]))


def kinds_of(stragglers: Mapping[int, float], npus: int) -> Ints:
    """A number for every factor on compute times."""
    if not stragglers:
        return np.zeros(npus, np.int64)
    factors = np.ones(npus)
    factors[list(stragglers)] = list(stragglers.values())
    return np.unique(factors, return_inverse=True)[1].astype(np.int64)


class GroupNames:
    """Names a group by the classes in it: groups of equal composition are the same group to a folded run."""

    def __init__(self, ranks: Sequence[Sequence[int]]):
        self._ranks = ranks
        self._class_of = class_of(ranks)
        self._known: dict[tuple[int, GroupDim], tuple[Hashable, Sequence[int]]] = {}
        self._unfolded = len(ranks) == len(self._class_of)

    def of(self, npu_class: int, dim: GroupDim) -> tuple[Hashable, Sequence[int]]:
        """The name of the group of a dimension that a class is in, and the classes in it."""
        found = self._known.get((npu_class, dim))
        if found is None:
            members = dim.members(int(self._ranks[npu_class][0]))
            colours = np.sort(self._class_of[members])
            classes = colours[np.flatnonzero(np.diff(colours, prepend=-1))].tolist()
            name = int(members[0]) if self._unfolded else tuple(colours.tolist())
            found = ((dim, name), classes)
            # In an unfolded run a group is the same for all in it: one list for all of them, not one for each.
            self._known |= {(each, dim): found for each in (classes if self._unfolded else (npu_class,))}
        return found
