"""Flows that fare alike: one of them stands for all, and so does one of the links that carry as many of each kind.

Where every link of a kind is crossed by as many flows of each kind at each place of their ways, and every flow of a
kind crosses links of the same kinds in the same order, all flows of a kind are told the same at every moment (an
equitable partition; found by refining kinds until nothing changes, as colours of graphs are). Sums over flows are whole
numbers, so one for all has the very same bits as all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import IntArray, finalised


class Alike(NamedTuple):
    """The first of its kind for each flow and each link, and of each crossing how many of its flows share the link."""

    flows: IntArray
    links: IntArray
    weights: IntArray


def alike(flow_kinds: IntArray, link_kinds: IntArray, hops: IntArray, links: IntArray) -> Alike | None:
    """Of flows with so many `hops` each, over `links` one after the other; kinds may differ from the start.

    None where hardly two are alike. Links are numbered from 0 on; some may be crossed by none.
    """
    flows = np.repeat(np.arange(len(hops)), hops)
    starts = np.cumsum(hops) - hops
    places = (np.arange(len(links)) - starts[flows]).astype(np.uint64)
    by_link = np.argsort(links, kind="stable")
    crossed, firsts = np.unique(links[by_link], return_index=True)
    sums = np.zeros(len(link_kinds), np.uint64)
    before = (0, 0)
    while True:
        crossing = _mixed(flow_kinds[flows], places)
        sums[crossed] = np.add.reduceat(crossing[by_link], firsts)
        link_kinds = _kinds(_mixed(link_kinds, sums))
        met = _mixed(link_kinds[links], places)
        flow_kinds = _kinds(_mixed(flow_kinds, np.add.reduceat(met, starts)))
        now = int(flow_kinds.max()) + 1, int(link_kinds.max()) + 1
        if now[0] * 2 > len(hops):
            return None
        if now == before:
            break
        before = now
    own, of_links = np.bincount(flow_kinds)[flow_kinds[flows]], np.bincount(link_kinds)[link_kinds[links]]
    return Alike(_first(flow_kinds), _first(link_kinds), own // of_links) if not (own % of_links).any() else None


def _mixed(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.uint64]:
    """A word of two, such that sums of words that differ differ, too."""
    return finalised(one.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + other.astype(np.uint64))


def _kinds(words: NDArray[np.uint64]) -> IntArray:
    """Numbers of words, the same for the same."""
    return np.unique(words, return_inverse=True)[1].astype(np.int64)


def _first(kinds: IntArray) -> IntArray:
    """The first of its kind."""
    return np.unique(kinds, return_index=True)[1][kinds]
