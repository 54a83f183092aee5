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
WINDOWS_AHEAD = 512  # heads of so much time are found at once, so that few windows look at all messages

Arrived = Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]
"""Told messages and when they arrive, which other messages are sent, and when."""


def play_windows(
    links: LinkGraph, routes: Routes, src: IntArray, size_bytes: IntArray, start_ns: IntArray, rounds: IntArray,
    arrived: Arrived,
) -> Batch | None:  # fmt: skip
    """Send messages at their times, `NEVER` for those that wait for others, and serve them first come, first served.

    Of those that come to a link at one time the lowest (round, links behind, source) is served first. None where
    windows are too short: the messages are then better played one by one.
    """
    sizes, kind = np.unique(size_bytes, return_inverse=True)
    spent_ns = occupied_ns(sizes[:, None], links.bandwidth_bytes_per_s)  # by size and link
    crossed = np.bincount(np.repeat(kind * len(links), routes.counts) + routes.links, minlength=spent_ns.size)
    crossed = crossed.reshape(spent_ns.shape)
    carried, busy_ns, free_ns = sizes @ crossed, (spent_ns * crossed).sum(axis=0), np.zeros(len(links), np.int64)
    step_ns = steps(links.latency_ns, routes)
    width_ns = int(step_ns.min(initial=NEVER))
    if width_ns * len(routes.links) < HOPS_A_WINDOW * int(busy_ns.max()) or not width_ns or not routes.counts.all():
        return None
    first, last = routes.offsets[:-1], routes.offsets[1:]
    # A number orders the hops of one link, and keeps them together: by round, links behind, source.
    sources = int(src.max()) + 1
    a_round = sources * int(routes.counts.max())
    order, a_link = rounds * a_round + src, (int(rounds.max()) + 1) * a_round
    place, head_ns, tail_ns = first.copy(), start_ns.copy(), start_ns.copy()
    while (now_ns := int(head_ns.min())) < NEVER:
        until_ns = now_ns + WINDOWS_AHEAD * width_ns
        soon = np.flatnonzero(head_ns < until_ns)
        while (now_ns := int((heads_ns := head_ns[soon]).min())) < until_ns:
            message = soon[heads_ns < min(now_ns + width_ns, until_ns)]
            hop = place[message]
            together = np.argsort(routes.links[hop] * a_link + order[message] + (hop - first[message]) * sources)
            message, hop = message[together], hop[together]
            link = routes.links[hop]
            spent = spent_ns[kind[message], link]
            begun_ns = served(link, head_ns[message], spent, free_ns[link])
            left_ns, step = begun_ns + spent, step_ns[hop]
            np.maximum.at(free_ns, link, left_ns)
            head_ns[message] = begun_ns + step
            tail_ns[message] = np.maximum(left_ns, tail_ns[message]) + step
            place[message] += 1
            there = message[hop + 1 == last[message]]
            if len(there):
                head_ns[there] = NEVER
                sent, sent_ns = arrived(there, tail_ns[there])
                head_ns[sent] = tail_ns[sent] = sent_ns
                soon = np.concatenate([soon, sent])
    return Batch(tail_ns, carried, busy_ns, free_ns)
