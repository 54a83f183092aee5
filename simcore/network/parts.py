"""A machine's network in parts that share no link: a dimension each, or several that some message crosses together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.topology.fabric import Fabric, IntArray
from simcore.network.topology.links import LinkGraph
from simcore.noise import QUIET


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
        """Whether it is the whole machine."""
        return self.npus == self.links.npus and self.stride == 1

    @property
    def fabric(self) -> Fabric:
        """Of a part of one dimension."""
        return self.graph.axes[0].fabric

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
        return LinkGraph(replace(topology, dims=dims, noise=QUIET), timed=self.links.timed)

    def graph_of(self, base: int) -> LinkGraph:
        """The links of one place, as fast as the machine's noise makes them there."""
        if self.whole or not self.links.topology.noise.links:
            return self.graph
        graph = LinkGraph(self.graph.topology, timed=self.links.timed)
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
