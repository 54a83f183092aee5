"""Many messages on shared links, window by window: as `batch` where links wait for each other in a circle.

A head needs the latency of a link to come to the next one, so all heads of a window as long as the least latency are
known when it begins. They are sorted and served together, link by link, with the answer of `core` to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simcore.network.batch import Batch, served
from simcore.network.clock import occupied_ns, steps
from simcore.network.core import NEVER
from simcore.network.topology.fabric import IntArray, Routes
from simcore.network.topology.links import LinkGraph

HOPS_A_WINDOW = 32  # a window costs as much as so many hops that `core` plays in Python

Arrived = Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]
"""Told messages and when they arrive, which other messages are sent, and when."""


def play_windows(
    links: LinkGraph, src: IntArray, dst: IntArray, size_bytes: IntArray, start_ns: IntArray, rounds: IntArray,
    arrived: Arrived,
) -> Batch | None:  # fmt: skip
    """Send messages at their times, `NEVER` for those that wait for others, and serve them first come, first served.

    Of those that come to a link at one time the lowest (round, links behind, source) is served first. None where
    windows are too short: the messages are then better played one by one.
    """
    routes = links.routes(src, dst)
    step_ns, sizes = steps(links.latency_ns, routes), np.repeat(size_bytes, routes.counts)
    spent_ns = occupied_ns(sizes, links.bandwidth_bytes_per_s[routes.links])
    carried, busy_ns, free_ns = np.zeros((3, len(links)), np.int64)
    np.add.at(carried, routes.links, sizes)
    np.add.at(busy_ns, routes.links, spent_ns)
    width_ns = int(step_ns.min(initial=NEVER))
    if width_ns * len(routes.links) < HOPS_A_WINDOW * int(busy_ns.max()) or not width_ns or not routes.counts.all():
        return None
    first, last = routes.offsets[:-1], routes.offsets[1:]
    keys = _keys(routes, rounds, src)
    place, head_ns, tail_ns = first.copy(), start_ns.copy(), start_ns.copy()
    while (now_ns := int(head_ns.min())) < NEVER:
        message = np.flatnonzero(head_ns < now_ns + width_ns)
        message = message[np.argsort(keys[place[message]])]
        hop = place[message]
        link = routes.links[hop]
        begun_ns = served(link, head_ns[message], spent_ns[hop], free_ns[link])
        left_ns = begun_ns + spent_ns[hop]
        np.maximum.at(free_ns, link, left_ns)
        head_ns[message] = begun_ns + step_ns[hop]
        tail_ns[message] = np.maximum(left_ns, tail_ns[message]) + step_ns[hop]
        place[message] += 1
        there = message[hop + 1 == last[message]]
        if len(there):
            head_ns[there] = NEVER
            sent, sent_ns = arrived(there, tail_ns[there])
            head_ns[sent] = tail_ns[sent] = sent_ns
    return Batch(tail_ns, carried, busy_ns, free_ns)


def _keys(routes: Routes, rounds: IntArray, src: IntArray) -> IntArray:
    """For every hop a number that orders those of one link, and keeps them together: by round, links behind, source."""
    owner = np.repeat(np.arange(len(routes.counts)), routes.counts)
    behind = np.arange(len(owner)) - np.repeat(routes.offsets[:-1], routes.counts)
    keys = np.empty_like(owner)
    keys[np.lexsort((src[owner], behind, rounds[owner], routes.links))] = np.arange(len(owner))
    return keys
