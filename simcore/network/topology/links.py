"""All directed links of a topology, the way a message takes over them, and what they offer in figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import lcm, prod
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from simcore.memory import check_room
from simcore.network.topology.fabric import Fabric, FloatArray, IntArray, Routes
from simcore.network.topology.graph import GraphFabric
from simcore.network.topology.grid import moves_of
from simcore.network.topology.hashes import mixed
from simcore.network.topology.kinds import FABRICS, Ring
from simcore.network.topology.model import Topology
from simcore.network.topology.moves import EVERYBODY, Fold
from simcore.network.topology.ports import Ports
from simcore.network.topology.twisted import TwistedTorus
from simcore.network.topology.wafer import WaferMesh
from simcore.timeline.events import LinkTable, NodeNames
from simcore.timeline.link_use import LinkHistory, LinkRows

LINK_BYTES = 64  # ends, rates and what a link carried, in columns
_Number = TypeVar("_Number", int, IntArray)
MOST_PLACED = 1 << 16  # links whose table says where they lie


def fabrics(topology: Topology) -> tuple[Fabric, ...]:
    """The network of one group of each dimension; a graph or a wafer is a single one."""
    if topology.graph:
        return (GraphFabric(topology.graph),)
    if topology.wafer:
        return (WaferMesh(topology.wafer),)
    if topology.twisted:
        return (TwistedTorus(topology.twisted),)
    return _by_kind(topology)


def rates_bytes_per_s(topology: Topology) -> tuple[float, ...]:
    """What the links out of NPU 0 carry together, in each dimension."""
    parts = fabrics(topology)
    if len(parts) < len(topology.dims):  # a wafer, one network of two dimensions
        parts = _by_kind(topology)
    return tuple(fabric.rate_bytes_per_s() for fabric in parts)


def _by_kind(topology: Topology) -> tuple[Fabric, ...]:
    return tuple(FABRICS.get(dim.kind)(dim) for dim in topology.dims)


class Axis(Struct, frozen=True, eq=False, dict=True):
    """One dimension in the whole: NPUs of a group are `stride` apart; links and devices are numbered by group."""

    fabric: Fabric
    ports: Ports
    stride: int
    groups: int
    links_before: int
    links: int
    devices_before: int
    devices: tuple[str, ...]
    ends: tuple[IntArray, IntArray]

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The links that messages take inside a group: as its kind says, or by a hash of both ends (ECMP)."""
        if not self.ports.how.hashed:
            return self.fabric.routes(src, dst)
        hashes = mixed(src + self.ports.seed * self.fabric.npus, dst)
        return Routes.of_table(self.fabric.paths.ranked(src, dst, hashes))

    def distinct(self, cut: Sequence[int]) -> int:
        """After how many NPUs groups are the same again where a workload's cut it, and the fabric, too."""
        return lcm(self.fabric.turn, prod(cut[:-1]))

    def moved(self, links: IntArray, cut: Sequence[int], by: IntArray, *, back: bool = False) -> IntArray:
        """The links of a group that some become when NPUs move on, or `back`, by so many, as `Moves` do.

        Devices stay, or move with the NPUs whose share they are.
        """
        npus, moves, most = self.fabric.npus, moves_of(self.fabric, cut), max(len(self.devices), 1)
        turns = by // self.fabric.turn * (len(self.devices) * self.fabric.turn // npus)

        def moved(node: IntArray) -> IntArray:
            device = npus + (node - npus + (-turns if back else turns)) % most
            return np.where(node < npus, (moves.back if back else moves.on)(node % npus, by), device)

        src, dst = (moved(end[links]) for end in self.ends)
        codes, order, beside = self._codes
        found: IntArray = order[np.searchsorted(codes, src * (npus + most) + dst, sorter=order) + beside[links]]
        return found

    @cached_property
    def _codes(self) -> tuple[IntArray, IntArray, IntArray]:
        """A number for the ends of each link, the links in their order, and how many with its ends come before each."""
        src, dst = self.ends
        codes = src * (self.fabric.npus + max(len(self.devices), 1)) + dst
        order = np.argsort(codes, kind="stable")
        beside = np.empty(len(codes), np.int64)
        beside[order] = np.arange(len(codes)) - np.searchsorted(codes, codes[order], sorter=order)
        return codes, order, beside


class LinkGraph:
    """Directed links as columns, numbered by dimension, group, and then as the dimension's kind does.

    Nodes 0 to `npus` - 1 are the NPUs as the workload numbers them, further ones up to `nodes` - 1 switches, routers,
    spares. Several dimensions are crossed in order, dimension 0 first; every hop is paid.
    `cuts` are the sizes into which a workload's groups cut each dimension, innermost first.
    """

    fold: Fold = EVERYBODY

    def __init__(self, topology: Topology, *, timed: bool = False, cuts: Sequence[Sequence[int]] = ()):
        self.topology, self.timed = topology, timed
        self.axes = tuple(_axes(topology))
        self.cuts = cuts or [[axis.fabric.npus] for axis in self.axes]
        self.npus = prod(axis.fabric.npus for axis in self.axes)
        self.nodes = self.npus + sum(axis.groups * len(axis.devices) for axis in self.axes)
        self._routes: dict[tuple[int, int], tuple[int, ...]] = {}

    def __len__(self) -> int:
        return sum(axis.groups * axis.links for axis in self.axes)

    @cached_property
    def src(self) -> IntArray:
        """Where every link begins."""
        return self.ends_of(np.arange(len(self)))[0]

    @cached_property
    def dst(self) -> IntArray:
        """Where every link ends."""
        return self.ends_of(np.arange(len(self)))[1]

    @cached_property
    def bandwidth_bytes_per_s(self) -> FloatArray:
        """Of every link, in one direction; with the run's noise."""
        rates = np.concatenate([np.tile(axis.fabric.bandwidths(), axis.groups) for axis in self.axes])
        return rates / self.topology.noise.link_factors(np.arange(len(self))) if self.topology.noise.links else rates

    @cached_property
    def latency_ns(self) -> FloatArray:
        """Of every link."""
        return np.concatenate([np.tile(axis.fabric.latencies(), axis.groups) for axis in self.axes])

    @cached_property
    def dims(self) -> IntArray:
        """Of every link, the dimension."""
        return np.repeat(np.arange(len(self.axes)), [axis.groups * axis.links for axis in self.axes])

    @cached_property
    def heights(self) -> IntArray:
        """Of every link, as `Fabric.heights`."""
        return np.concatenate([np.tile(axis.fabric.heights(), axis.groups) for axis in self.axes])

    @cached_property
    def order(self) -> IntArray:
        """Whose turn it is: by place among those that differ in a dimension, which stays when all move on so far."""
        npus, order = np.arange(self.npus), np.empty(self.npus, np.int64)
        places = (
            npus // axis.stride % axis.fabric.npus % axis.distinct(cut)
            for axis, cut in zip(self.axes, self.cuts, strict=True)
        )
        order[np.lexsort([npus, *places])] = npus
        return order

    def ends_of(self, links: IntArray) -> tuple[IntArray, IntArray]:
        """Source and destination node of some links."""
        src, dst = np.empty((2, len(links)), np.int64)
        for axis in self.axes:
            mine = (links >= axis.links_before) & (links < axis.links_before + axis.groups * axis.links)
            src[mine], dst[mine] = _ends(axis, links[mine] - axis.links_before)
        return src, dst

    def end_of(self, link: int, end: int) -> int:
        """Source (0) or destination (1) of one link."""
        axis = next(axis for axis in self.axes if link < axis.links_before + axis.groups * axis.links)
        group, local = divmod(link - axis.links_before, axis.links)
        node = int(axis.ends[end][local])
        return _nodes(axis, group, node)[node >= axis.fabric.npus]

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The links of many messages at once."""
        src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        parts = [_on_axis(axis, src, dst) for axis in self.axes]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The links of one message, remembered for the next of the same ends."""
        key = (src, dst)
        found = self._routes.get(key)
        if found is None:
            found = tuple(self.routes(np.array([src]), np.array([dst])).links.tolist())
            self._routes[key] = found
        return found

    def instead_of(self, way: tuple[int, ...]) -> tuple[int, ...]:
        """The links that stand for those of a way: these."""
        return way

    def remember(self, src: IntArray, dst: IntArray) -> Routes:
        """Find the routes of many pairs at once, so that `route` has them at hand."""
        routes = self.routes(src, dst)
        links, offsets = routes.links.tolist(), routes.offsets.tolist()
        for index, pair in enumerate(zip(np.asarray(src).tolist(), np.asarray(dst).tolist(), strict=True)):
            self._routes[pair] = tuple(links[offsets[index] : offsets[index + 1]])
        return routes

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of every node."""
        return tuple(map(self.name_of, range(self.nodes)))

    def name_of(self, node: int) -> str:
        """An NPU's number; a device with its dimension and group where there are several."""
        if self.topology.graph:
            return self.topology.graph.names[node]
        if node < self.npus:
            return str(node)
        places = ((index, axis, node - axis.devices_before) for index, axis in enumerate(self.axes))
        index, axis, place = next(each for each in places if each[2] < each[1].groups * len(each[1].devices))
        group, device = divmod(place, len(axis.devices))
        where = (f"@{index}" if len(self.axes) > 1 else "") + (f".{group}" if axis.groups > 1 else "")
        return axis.devices[device] + where

    def coordinates(self) -> IntArray | None:
        """Column and row of every node of a 2-D mesh, torus or wafer, (nodes, 2); None for other shapes."""
        (first, *rest) = self.axes
        if isinstance(first.fabric, WaferMesh):
            cells, columns = first.fabric.cells, first.fabric.wafer.columns
            return np.stack([cells % columns, cells // columns], axis=1)
        if len(rest) == 1 and all(isinstance(axis.fabric, Ring) for axis in self.axes):
            ids = np.arange(self.npus)
            return np.stack([ids % first.fabric.npus, ids // first.fabric.npus], axis=1)
        return None

    def table(self, size_bytes: IntArray, busy_ns: IntArray, times: LinkRows | None = None) -> LinkTable:
        """What the links carried, for the timeline; with `times`, when."""
        places = self.coordinates() if len(self) <= MOST_PLACED else None
        return LinkTable(
            _Ends(self, 0),
            _Ends(self, 1),
            size_bytes,
            busy_ns,
            None if places is None else np.concatenate([places[self.src], places[self.dst]], axis=1),
            use=None if times is None else LinkHistory([times], np.arange(len(self))),
        )


class _Ends(NodeNames):
    """One end of every link."""

    def __init__(self, links: LinkGraph, end: int):
        self._links, self._end = links, end

    def __len__(self) -> int:
        return len(self._links)

    def __getitem__(self, index: Any) -> Any:  # a name of a number, several of a slice
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        return self._links.name_of(self._links.end_of(range(len(self))[index], self._end))

    def __iter__(self) -> Iterator[str]:
        names = self._links.names
        return (names[node] for node in self.nodes.tolist())

    @property
    def nodes(self) -> IntArray:
        return (self._links.src, self._links.dst)[self._end]

    def name_of(self, node: int) -> str:
        return self._links.name_of(node)


def _axes(topology: Topology) -> Iterator[Axis]:
    """The dimensions with their places in the whole."""
    parts, ports = fabrics(topology), [dim.ports for dim in topology.dims]
    npus = prod(fabric.npus for fabric in parts)
    stride, links_before, devices_before = 1, 0, npus
    for index, fabric in enumerate(parts):
        check_room(fabric.about_links() * LINK_BYTES, f"the links of {fabric.npus:,} NPUs in dimension {index}")
        ends, devices, groups = fabric.ends(), fabric.devices(), npus // fabric.npus
        links = len(ends[0])
        yield Axis(fabric, ports[index], stride, groups, links_before, links, devices_before, devices, ends)
        stride *= fabric.npus
        links_before += groups * links
        devices_before += groups * len(devices)


def _ends(axis: Axis, links: IntArray) -> tuple[IntArray, IntArray]:
    """Source and destination of links of a dimension, numbered by group."""
    group, local = np.divmod(links, max(axis.links, 1))
    own = (column[local] for column in axis.ends)
    src, dst = (np.where(node < axis.fabric.npus, *_nodes(axis, group, node)) for node in own)
    return src, dst


def _nodes(axis: Axis, group: _Number, node: _Number) -> tuple[_Number, _Number]:
    """The node of a group as the whole numbers it, as an NPU and as a device."""
    size, device = axis.fabric.npus, axis.devices_before + group * len(axis.devices) + node
    return group // axis.stride * axis.stride * size + group % axis.stride + node * axis.stride, device - size


def _on_axis(axis: Axis, src: IntArray, dst: IntArray) -> Routes:
    """What the messages take of a dimension; the dimensions before have been crossed, those after not yet."""
    size = axis.fabric.npus
    routes = axis.routes(src // axis.stride % size, dst // axis.stride % size)
    above, below = src // (axis.stride * size), dst % axis.stride
    first = axis.links_before + (above * axis.stride + below) * axis.links
    return Routes(routes.counts, routes.links + np.repeat(first, routes.counts))


def _joined(parts: list[Routes]) -> Routes:
    """The parts of each route one after the other."""
    counts = np.sum([part.counts for part in parts], axis=0)
    start = np.cumsum(counts) - counts
    links = np.empty(int(counts.sum()), np.int64)
    for part in parts:
        own = np.cumsum(part.counts) - part.counts
        links[np.arange(len(part.links)) + np.repeat(start - own, part.counts)] = part.links
        start = start + part.counts
    return Routes(counts, links)


class Figures(Struct, frozen=True):
    """Of a whole topology.

    `links` have one direction each; `degree_min` and `degree_max` count those out of one NPU; `diameter_hops` is the
    most links that the shortest path between two NPUs has; `bisection_bytes_per_s` is what two halves of the NPUs
    can send each other in one direction, `bisection_how` says how it was found.
    """

    npus: int
    devices: int
    links: int
    degree_min: int
    degree_max: int
    diameter_hops: int
    bisection_bytes_per_s: float
    bisection_how: str


def figures(links: LinkGraph) -> Figures:
    """Count and work out the figures; formulas per kind of dimension, searches only on wafers and graphs.

    The bisection is the smallest of the straight cuts across one dimension, which is the least of all cuts into equal
    halves for dimensions of even size; across an odd dimension the halves differ by one layer.
    """
    degrees = np.bincount(links.src, minlength=links.nodes)[: links.npus]
    cuts = [
        (axis.groups * axis.fabric.bisection_bytes_per_s(), index)
        for index, axis in enumerate(links.axes)
        if axis.fabric.npus > 1
    ]
    bisection, across = min(cuts, default=(0.0, 0))
    return Figures(
        links.npus,
        links.nodes - links.npus,
        len(links),
        int(degrees.min()),
        int(degrees.max()),
        sum(axis.fabric.diameter() for axis in links.axes),
        bisection,
        links.axes[across].fabric.bisection_how.format(dimension=across) if cuts else "a single NPU",
    )
