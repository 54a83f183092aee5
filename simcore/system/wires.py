"""Which ranks of a group are neighbours, and what is between them: for algorithms that look at the network."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.clock import whole_latency
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph


class Wire(Struct, frozen=True):
    """The way from rank `src` to rank `dst`: the links on it with their bytes per second, and its latency."""

    src: int
    dst: int
    links: tuple[int, ...]
    rates: tuple[float, ...]
    latency_ns: int


def wires(graph: LinkGraph, npus: IntArray) -> list[Wire]:
    """The ways between members of a group that lead past no other member, by source and destination.

    Switches and NPUs of other groups may lie on them.
    """
    src, dst = (side.ravel() for side in np.meshgrid(np.arange(len(npus)), np.arange(len(npus)), indexing="ij"))
    routes = graph.routes(npus[src], npus[dst])
    near = (src != dst) & ~_past_members(graph, npus, routes.counts, routes.links)
    links, offsets = routes.links, routes.offsets
    return [
        _wire(graph, int(src[pair]), int(dst[pair]), links[offsets[pair] : offsets[pair + 1]])
        for pair in np.flatnonzero(near).tolist()
    ]


def _past_members(graph: LinkGraph, npus: IntArray, counts: IntArray, links: IntArray) -> NDArray[np.bool_]:
    """Which routes pass a member on their way."""
    owner = np.repeat(np.arange(len(counts)), counts)
    inner = np.ones(len(links), bool)
    inner[np.cumsum(counts)[counts > 0] - 1] = False  # the last link ends at the destination
    passed = np.zeros(len(counts), np.int64)
    np.add.at(passed, owner, inner & np.isin(graph.dst[links], npus))
    return passed > 0


def _wire(graph: LinkGraph, src: int, dst: int, links: IntArray) -> Wire:
    latency_ns = whole_latency(float(graph.latency_ns[links].sum()))
    return Wire(src, dst, tuple(links.tolist()), tuple(graph.bandwidth_bytes_per_s[links].tolist()), latency_ns)
