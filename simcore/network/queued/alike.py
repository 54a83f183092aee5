"""Flows that fare alike: one of them stands for all, and so does one of the links that carry as many of each kind.

Where every link of a kind is crossed by as many ways of each kind at each of their places, every way of a kind crosses
links of the same kinds in the same order, and every flow of a kind has as many ways of each kind, all flows of a kind
are told the same at every moment (an equitable partition; found by refining kinds until nothing changes, as colours of
graphs are). Sums over flows are whole numbers, so one for all has the very same bits as all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import IntArray
from simcore.noise import GOLDEN, finalised


class Alike(NamedTuple):
    """The first of its kind for each flow, way and link; of how many of its flow each way is one; and of each crossing
    how many ways share the link.
    """

    flows: IntArray
    ways: IntArray
    links: IntArray
    in_flow: IntArray
    weights: IntArray


def alike(
    kinds: tuple[IntArray, IntArray, IntArray], ways: IntArray, hops: IntArray, links: IntArray, channels: IntArray
) -> Alike | None:
    """Of flows with so many `ways` each, which have so many `hops` over `channels` of `links`, one after the other.

    `kinds` of flows, ways and links may differ from the start. None where hardly two ways are alike. Links are numbered
    from 0 on; some may be crossed by none.
    """
    flow_kinds, way_kinds, link_kinds = kinds
    of_flow, of_way = np.repeat(np.arange(len(ways)), ways), np.repeat(np.arange(len(hops)), hops)
    first_ways, starts = np.cumsum(ways) - ways, np.cumsum(hops) - hops
    places = mixed(np.arange(len(links)) - starts[of_way], channels)
    by_link = np.argsort(links, kind="stable")
    crossed, firsts = np.unique(links[by_link], return_index=True)
    sums = np.zeros(len(link_kinds), np.uint64)
    before = (0, 0)
    while True:
        flow_kinds = _kinds(mixed(flow_kinds, np.add.reduceat(mixed(way_kinds, _NONE), first_ways)))
        way_kinds = _kinds(mixed(way_kinds, flow_kinds[of_flow]))
        crossing = mixed(way_kinds[of_way], places)
        sums[crossed] = np.add.reduceat(crossing[by_link], firsts)
        link_kinds = _kinds(mixed(link_kinds, sums))
        met = mixed(link_kinds[links], places)
        way_kinds = _kinds(mixed(way_kinds, np.add.reduceat(met, starts)))
        now = int(way_kinds.max()) + 1, int(link_kinds.max()) + 1
        if now[0] * 2 > len(hops):
            return None
        if now == before:
            break
        before = now
    like = np.bincount(way_kinds)[way_kinds]
    in_flow = like // np.bincount(flow_kinds)[flow_kinds[of_flow]]
    of_links = np.bincount(link_kinds)[link_kinds[links]]
    if (like[of_way] % of_links).any():
        return None
    return Alike(_first(flow_kinds), _first(way_kinds), _first(link_kinds), in_flow, like[of_way] // of_links)


_NONE = np.zeros(1, np.uint64)


def mixed(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.uint64]:
    """A word of two, such that sums of words that differ differ, too."""
    return finalised(one.astype(np.uint64) * GOLDEN + other.astype(np.uint64))


def _kinds(words: NDArray[np.uint64]) -> IntArray:
    """Numbers of words, the same for the same."""
    return np.unique(words, return_inverse=True)[1].astype(np.int64)


def _first(kinds: IntArray) -> IntArray:
    """The first of its kind."""
    return np.unique(kinds, return_index=True)[1][kinds]
