"""A machine's network in parts that share no link: a dimension each, or several that some message crosses together.

And the links of a part as one NPU of a symmetric one sees them, each of which stands for all that look like it. On a
ring, a twisted torus, a switch or a full mesh every NPU can take every other's place. When all of them do the same at
the same time, what one NPU's message meets on its way is what the messages of its neighbours leave behind: so one NPU's
messages, sent over representative links, meet each other just as they would meet the others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import cycle, islice
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.queued.routing import chooses_alike
from simcore.network.topology.fabric import Fabric, FloatArray, IntArray, Routes
from simcore.network.topology.links import Axis, LinkGraph
from simcore.network.topology.moves import Fold, Symmetry
from simcore.noise import QUIET
from simcore.timeline.events import LinkTable
from simcore.timeline.link_use import LinkHistory, LinkRows


class Part(Struct, frozen=True, eq=False, dict=True):
    """Dimensions `first` to `last` of a machine, of which every place that `npus` NPUs share has its own copy.

    The NPUs of a place are `stride` ids apart.
    """

    links: LinkGraph
    first: int
    last: int

    @cached_property
    def stride(self) -> int:
        """How far apart neighbours are."""
        return prod(dim.npus for dim in self.links.topology.dims[: self.first])

    @cached_property
    def npus(self) -> int:
        """How many NPUs share a place."""
        return prod(dim.npus for dim in self.links.topology.dims[self.first : self.last + 1])

    @cached_property
    def whole(self) -> bool:
        """Whether it has all NPUs, on its own links: dimensions of one NPU may lie behind it, and none before it."""
        return self.npus == self.links.npus and self.first == 0

    @property
    def fabric(self) -> Fabric:
        """Of a part of one dimension."""
        return self.graph.axes[0].fabric

    @cached_property
    def symmetries(self) -> frozenset[Symmetry]:
        """The moves after which a part of one dimension looks the same, and the ways that its ports choose, too."""
        topology, own = self.links.topology, self.fabric.symmetries
        if topology.dims[self.first].ports.routing:
            own -= {Symmetry.EXCHANGES}
        return own if chooses_alike(topology, self.first) else frozenset()

    def base(self, npu: int) -> int:
        """The first NPU of the place of an NPU."""
        return npu - self.local(npu) * self.stride

    def local(self, npu: int) -> int:
        """Which one of its place an NPU is."""
        return npu // self.stride % self.npus

    def members(self, base: int) -> IntArray:
        """The NPUs of a place."""
        return base + np.arange(self.npus) * self.stride

    @cached_property
    def graph(self) -> LinkGraph:
        """The links of one place, without the machine's noise."""
        topology = self.links.topology
        if self.whole:
            return self.links
        dims = topology.dims[self.first : self.last + 1]
        cuts = self.links.cuts[self.first : self.last + 1]
        return LinkGraph(replace(topology, dims=dims, noise=QUIET), timed=self.links.timed, cuts=cuts)

    def graph_of(self, base: int) -> LinkGraph:
        """The links of one place, as fast as the machine's noise makes them there."""
        if self.whole or not self.links.topology.noise.links:
            return self.graph
        graph = LinkGraph(self.graph.topology, timed=self.links.timed, cuts=self.graph.cuts)
        outside, inside = self.coordinates(np.array(base))
        views = self.views(self.links.bandwidth_bytes_per_s)
        graph.bandwidth_bytes_per_s = np.concatenate([view[outside, :, inside].ravel() for view in views])
        return graph

    def views(self, column: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Views of a column of all links of the machine, one for each dimension of the part.

        Indexed [outside, :, inside] they give the links of the place at these coordinates, in its own order.
        """
        outside = self.links.npus // (self.npus * self.stride)
        for axis in self.links.axes[self.first : self.last + 1]:
            own = column[axis.links_before : axis.links_before + axis.groups * axis.links]
            yield own.reshape(outside, -1, self.stride, axis.links)

    def coordinates(self, bases: IntArray) -> tuple[IntArray, IntArray]:
        """Where places lie outside and inside of the part's dimensions, for `views`."""
        return bases // (self.stride * self.npus), bases % self.stride


def parts(links: LinkGraph, together: Iterable[tuple[int, int]]) -> list[Part]:
    """The parts of a machine in which dimensions `first` to `last` of each pair in `together` are in one."""
    count = len(links.topology.dims)
    if len(links.axes) < count:
        return [Part(links, 0, count - 1)]
    joined = {index for first, last in together for index in range(first, last)}  # with the next one
    ends = [index for index in range(count) if index not in joined]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [Part(links, first, last) for first, last in zip(starts, ends, strict=True)]


class FoldedLinks(LinkGraph):
    """The links of `whole`, each replaced by its representative on the NPU that plays for its own: else on NPU 0."""

    def __init__(self, whole: LinkGraph, fold: Fold | None = None):
        self.fold = fold or Fold(whole.npus)
        stands_for: IntArray = np.concatenate(
            [_stand_ins(axis, cut, self.fold) for axis, cut in zip(whole.axes, whole.cuts, strict=True)]
        )
        self.topology, self.axes, self.npus, self.nodes = whole.topology, whole.axes, whole.npus, whole.nodes
        self.whole, self.timed, self.cuts = whole, whole.timed, whole.cuts
        used = np.zeros(len(whole), bool)
        used[stands_for] = True
        self.kept = np.flatnonzero(used)
        self.stands_for: IntArray = (np.cumsum(used) - 1)[stands_for]

    def __len__(self) -> int:
        return len(self.kept)

    def ends_of(self, links: IntArray) -> tuple[IntArray, IntArray]:
        """Ends of the representatives."""
        return self.whole.ends_of(self.kept[links])

    @cached_property
    def bandwidth_bytes_per_s(self) -> FloatArray:
        """Of the representatives."""
        return self._of_kept([axis.fabric.bandwidths() for axis in self.axes])

    @cached_property
    def latency_ns(self) -> FloatArray:
        """Of the representatives."""
        return self._of_kept([axis.fabric.latencies() for axis in self.axes])

    @cached_property
    def dims(self) -> IntArray:
        """Of the representatives."""
        return self.whole.dims[self.kept]

    @cached_property
    def heights(self) -> IntArray:
        """Of the representatives."""
        return self.whole.heights[self.kept]

    def _of_kept(self, columns: Sequence[FloatArray]) -> FloatArray:
        """Of the representatives; one column per dimension, for the links of one group."""
        own = np.split(self.kept, np.searchsorted(self.kept, [axis.links_before for axis in self.axes[1:]]))
        each = zip(self.axes, columns, own, strict=True)
        return np.concatenate([column[(at - axis.links_before) % max(axis.links, 1)] for axis, column, at in each])

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The representatives of the links of one message; one link may occur several times."""
        return self.instead_of(self.whole.route(src, dst))

    def instead_of(self, way: tuple[int, ...]) -> tuple[int, ...]:
        """The representatives of the links of a way."""
        return tuple(self.stands_for[list(way)].tolist())

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The representatives of the links of many messages."""
        routes = self.whole.routes(src, dst)
        return Routes(routes.counts, self.stands_for[routes.links])

    def remember(self, src: IntArray, dst: IntArray) -> Routes:
        """As of the whole network."""
        routes = self.whole.remember(src, dst)
        return Routes(routes.counts, self.stands_for[routes.links])

    def unfolded(self, way: Sequence[int]) -> list[int]:
        """A circle of links of `whole` that goes on and on over those that some representatives stand for."""
        found = [int(self.kept[way[0]])]
        for wanted in islice(cycle(way), 1, None):
            behind = np.flatnonzero(self.stands_for == wanted)
            following = int(behind[self.whole.src[behind] == self.whole.dst[found[-1]]][0])
            if following in found:
                return found[found.index(following) :]
            found.append(following)
        return found

    def table(self, size_bytes: IntArray, busy_ns: IntArray, times: LinkRows | None = None) -> LinkTable:
        """Every link carried what its representative did."""
        table = self.whole.table(size_bytes[self.stands_for], busy_ns[self.stands_for])
        return table if times is None else replace(table, use=LinkHistory([times], self.stands_for))


def _stand_ins(axis: Axis, cut: Sequence[int], fold: Fold) -> IntArray:
    """For every link of a dimension its representative."""
    first = np.arange(axis.groups)  # the first NPU of each group
    first = first // axis.stride * axis.stride * axis.fabric.npus + first % axis.stride
    played = fold.of(first)
    group = played // (axis.stride * axis.fabric.npus) * axis.stride + played % axis.stride
    places = fold.of(np.arange(axis.fabric.npus) * axis.stride) // axis.stride
    src, dst = axis.ends
    of_device = (src - axis.fabric.npus) * axis.fabric.npus // max(len(axis.devices), 1)
    owner = np.where(src < axis.fabric.npus, src, np.where(dst < axis.fabric.npus, dst, of_device))
    local = axis.moved(np.arange(axis.links), cut, owner - places[owner], back=True)
    found: IntArray = (axis.links_before + group[:, None] * axis.links + local).reshape(-1)
    return found
