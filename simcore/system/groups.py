"""Which NPUs a collective's phase spans: logical dimensions, the groups in them, and how a machine is cut into them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.network.topology.moves import Moves

# Times in ns of messages of `size_bytes` from each `src` to each `dst` (arrays of NPU ids of equal length).
Delay = Callable[[NDArray[np.int64], NDArray[np.int64], int], NDArray[np.int64]]


class LogicalDim(Struct, frozen=True, cache_hash=True):
    """Groups of `size` NPUs, `stride` ids apart: all or a part of topology dimension `index`, or the whole machine.

    `backward`, as of all dimensions: taken from the last, so that what goes to the next NPU goes to the one before.
    """

    index: int
    size: int
    stride: int
    backward: bool = False

    @property
    def along(self) -> int:
        """The dimension in which a timeline shows its traffic."""
        return self.index

    def members(self, npu: int) -> NDArray[np.int64]:
        """The NPUs of the group that `npu` is in, in order."""
        first = npu - npu // self.stride % self.size * self.stride
        found = first + np.arange(self.size, dtype=np.int64) * self.stride
        return found[::-1] if self.backward else found

    def position(self, npu: int) -> int:
        """Its place in its group."""
        place = npu // self.stride % self.size
        return self.size - 1 - place if self.backward else place


class JointDim(Struct, frozen=True):
    """Several dimensions taken as one, the first innermost; its traffic counts as the first one's."""

    dims: tuple[LogicalDim, ...]
    backward: bool = False

    @property
    def index(self) -> int:
        """The first dimension's."""
        return self.dims[0].index

    @property
    def along(self) -> int:
        """As `LogicalDim.along`."""
        return self.index

    @property
    def size(self) -> int:
        """How many NPUs there are in a group."""
        return prod(dim.size for dim in self.dims)

    def members(self, npu: int) -> NDArray[np.int64]:
        """The NPUs of the group that `npu` is in, in order."""
        found = np.array([npu], dtype=np.int64)
        for dim in self.dims:
            found = (found - npu + dim.members(npu)[:, None]).ravel()
        return found[::-1] if self.backward else found

    def position(self, npu: int) -> int:
        """Its place in its group."""
        place: int = self.members(npu).tolist().index(npu)
        return place


class Communicator(Struct, frozen=True, cache_hash=True):
    """Listed NPUs in ring order: a logical dimension of its own.

    Timelines show its traffic in the dimension `along` which it lies.
    """

    ranks: tuple[int, ...]
    backward: bool = False
    along: int = 0
    index = 0

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.ranks)

    def members(self, npu: int) -> NDArray[np.int64]:
        """The NPUs, in order."""
        return np.array(self.ranks[::-1] if self.backward else self.ranks, dtype=np.int64)

    def position(self, npu: int) -> int:
        """Its place in the group."""
        place = self.ranks.index(npu)
        return len(self.ranks) - 1 - place if self.backward else place


GroupDim = LogicalDim | JointDim | Communicator


@lru_cache(4096)  # a trace has many collectives of few groups
def first_apart(sizes: tuple[int, ...], npus: tuple[int, ...]) -> int:
    """The first dimension in which some NPUs lie apart."""
    places = np.array(np.unravel_index(np.array(npus), sizes[::-1]))[::-1]
    return int((places.min(axis=1) != places.max(axis=1)).argmax())


def logical_dims(sizes: Sequence[int]) -> list[LogicalDim]:
    """One logical dimension per topology dimension."""
    dims, stride = [], 1
    for index, size in enumerate(sizes):
        dims.append(LogicalDim(index, size, stride))
        stride *= size
    return dims


def cut(dims: Sequence[LogicalDim], product: int) -> list[LogicalDim]:
    """Split dimensions so that the first ones hold exactly `product` NPUs.

    ValueError when the product does not divide the dimension it ends in.
    """
    made = list(dims)
    for position, dim in enumerate(dims):
        if product <= 1:
            break
        if product >= dim.size and product % dim.size == 0:
            product //= dim.size
        elif dim.size % product == 0:
            rest = LogicalDim(dim.index, dim.size // product, dim.stride * product)
            made[position : position + 1] = [replace(dim, size=product), rest]
            product = 1
        else:
            raise ValueError(f"{product} does not divide the {dim.size} NPUs of dimension {dim.index}")
    if product > 1:
        raise ValueError(f"there are {product} times too few NPUs")
    return made


def class_of(ranks: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The class of every NPU."""
    found = np.empty(sum(map(len, ranks)), dtype=np.int64)
    for npu_class, members in enumerate(ranks):
        own = slice(members.start, members.stop, members.step) if isinstance(members, range) else np.asarray(members)
        found[own] = npu_class
    return found


class RankGroup:
    """NPUs in ring order, with the time of messages between them; the class of each, and the classes that `met` here.

    Whichever way members go round, which two need not agree on, a group has one name.
    """

    def __init__(self, members: NDArray[np.int64], delay: Delay, classes: Sequence[int] = (), name: Hashable = ()):
        self.members, self._delay, self.classes, self.name = members, delay, classes, name
        self.met = sorted(set(classes))
        self._known: dict[tuple[int, Moves, int], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.members)

    def delays(self, hop: int, moves: Moves, size_bytes: int) -> NDArray[np.int64]:
        """Time of the message that each member sends to where the move of `hop` goes."""
        key = (hop, moves, size_bytes)
        if key not in self._known:
            places = np.arange(len(self))
            self._known[key] = self.between(places, moves.on(places, np.array(hop)), size_bytes)
        return self._known[key]

    def between(self, src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        """Times of messages between positions."""
        return self._delay(self.members[src], self.members[dst], size_bytes)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The members as plain numbers."""
        return tuple(self.members.tolist())


class Groups:
    """The groups that classes of NPUs are in; `ranks[c]` are those of class c. In a folded run a class stands for
    members of all groups that are made of the same classes: they are one group.
    """

    def __init__(self, ranks: Sequence[Sequence[int]], delay: Delay = lambda src, *_: np.zeros_like(src)):
        self._ranks, self._delay, self._class_of = ranks, delay, class_of(ranks)
        self._known: dict[tuple[int, GroupDim], RankGroup] = {}
        self._unfolded = len(ranks) == len(self._class_of)

    def of(self, npu_class: int, dim: GroupDim) -> RankGroup:
        """The group of a dimension that a class is in."""
        found = self._known.get((npu_class, dim))
        if found is None:
            members = dim.members(int(self._ranks[npu_class][0]))
            classes: list[int] = self._class_of[members].tolist()
            ends = (int(members.min()), int(members.max()))
            found = RankGroup(members, self._delay, classes, ends if self._unfolded else tuple(sorted(classes)))
            # In an unfolded run a group is the same for all in it.
            self._known |= {(each, dim): found for each in (found.met if self._unfolded else (npu_class,))}
        return found

    def named(self, npu_class: int, dim: GroupDim) -> tuple[Hashable, Sequence[int]]:
        """The name of that group as one of this dimension, and the classes in it."""
        group = self.of(npu_class, dim)
        return (dim, group.name), group.met
