"""Many messages on shared links at once: what `congested.CutThrough` would do with them, in a few sorts of columns.

Where no link waits for itself over others (meshes, switches, trees: any network whose routes follow an order of
the links), all messages of a link can be served together as soon as those of the links before it are. Elsewhere they
are served window by window: a head needs the latency of a link to come to the next one, so all heads of a window as
long as the least latency are known when it begins. Both give the same answer as `core`, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from simcore.network.clock import occupied_ns, steps
from simcore.network.core import NEVER
from simcore.network.topology.fabric import IntArray, Routes
from simcore.network.topology.links import LinkGraph

DENSE_LINKS = 1 << 13  # up to so many, which links follow which is kept in a table rather than sorted out
HOPS_A_WINDOW = 32  # a window costs as much as so many hops that `core` plays in Python
WINDOWS_AHEAD = 512  # heads of so much time are found at once, so that few windows look at all messages

Arrived = Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]
"""Told messages and when they arrive, which other messages are sent, and when."""


class Batch(Struct, frozen=True, eq=False):
    """When each message's last byte arrives, what every link carried and for how long, and when it is free again."""

    arrival_ns: IntArray
    size_bytes: IntArray
    busy_ns: IntArray
    free_ns: IntArray

    def _count(self, link: IntArray, start: IntArray, occupied: IntArray, size: IntArray) -> None:
        """Count the messages of some links; those of one link stand together."""
        first = np.flatnonzero(np.diff(link, prepend=-1))
        self.size_bytes[link[first]] = np.add.reduceat(size, first)
        self.busy_ns[link[first]] = np.add.reduceat(occupied, first)
        self.free_ns[link[first]] = np.maximum.reduceat(start + occupied, first)

    def then(self, other: Batch, own: IntArray, others: IntArray) -> Batch:
        """With another that begins when this one is over; which of all messages are whose."""
        arrival_ns = np.empty(len(own) + len(others), np.int64)
        arrival_ns[own], arrival_ns[others] = self.arrival_ns, other.arrival_ns
        free_ns = np.maximum(self.free_ns, other.free_ns)
        return Batch(arrival_ns, self.size_bytes + other.size_bytes, self.busy_ns + other.busy_ns, free_ns)


def solve_batch(
    links: LinkGraph,
    routes: Routes,
    size_bytes: IntArray | int,
    start_ns: IntArray | int,
    *,
    tree: IntArray | None = None,
    free_ns: IntArray | None = None,
    rounds: IntArray | None = None,
) -> Batch | None:
    """Send all messages over their routes at their times and serve them first come, first served.

    Of messages that reach a link at one time the one that stands first in the columns is served first; with `rounds`,
    of equal rounds the one with fewer links behind it (`congested.CutThrough`). `size_bytes` and
    `start_ns` may be single numbers. Messages of one source with the same `tree` >= 0 are one multicast: a link that
    several of them take is crossed once, for all. Links serve nobody before `free_ns`. None when links wait for each
    other in a circle (rings, tori): step those (`wafer.steps.step_batch`, `CutThrough`).
    """
    size = np.broadcast_to(np.asarray(size_bytes, np.int64), routes.counts.shape)
    head = np.array(np.broadcast_to(np.asarray(start_ns, np.int64), routes.counts.shape))
    levels = _levels(routes, len(links))
    if levels is None:
        return None
    owner = np.repeat(np.arange(len(routes.counts), dtype=np.int32), routes.counts)
    rates, step_ns = links.bandwidth_bytes_per_s, steps(links.latency_ns, routes)
    batch = Batch(head.copy(), *np.zeros((3, len(links)), np.int64))
    tail = batch.arrival_ns
    if free_ns is not None:
        batch.free_ns[:] = free_ns
    leader = None if tree is None else leaders(routes, tree, len(links))
    begun = np.empty(0 if leader is None else len(routes.links), np.int64)
    first = None  # all hops: those of lower rounds first, of these who has fewer links behind, then earlier messages
    if rounds is not None:
        span = int(routes.counts.max(initial=0)) + 1
        places = np.repeat(rounds * span - routes.offsets[:-1], routes.counts)
        first = np.argsort(np.arange(len(routes.links)) + places, kind="stable")
    for entries in _by_level(routes.links, levels, first):
        first_ones = entries if leader is None else entries[leader[entries] == entries]
        message, link = owner[first_ones], routes.links[first_ones]
        occupied = occupied_ns(size[message], rates[link])
        start = served(link, head[message], occupied, None if free_ns is None else batch.free_ns[link])
        batch._count(link, start, occupied, size[message])
        if leader is not None:
            begun[first_ones] = start
            message, link, start = owner[entries], routes.links[entries], begun[leader[entries]]
            occupied = occupied_ns(size[message], rates[link])
        step = step_ns[entries]
        head[message] = start + step
        tail[message] = np.maximum(start + occupied, tail[message]) + step
    return batch


def leaders(routes: Routes, tree: IntArray, count: int) -> IntArray:
    """For every hop the hop that crosses its link for it: the first of its tree there, otherwise itself."""
    leader = np.arange(len(routes.links))
    number = np.repeat(tree, routes.counts)
    shared = np.flatnonzero(number >= 0)
    _, first, which = np.unique(number[shared] * count + routes.links[shared], return_index=True, return_inverse=True)
    leader[shared] = shared[first][which]
    return leader


def _followers(routes: Routes, count: int) -> tuple[IntArray, IntArray]:
    """Pairs of links that some route takes one after the other."""
    inner = np.ones(len(routes.links), bool)
    inner[np.cumsum(routes.counts)[routes.counts > 0] - 1] = False
    pairs = (routes.links[:-1] * count + routes.links[1:])[inner[:-1]]
    if count <= DENSE_LINKS:
        seen = np.zeros(count * count, bool)
        seen[pairs] = True
        pairs = np.flatnonzero(seen)
    else:
        pairs = np.unique(pairs)
    return pairs // count, pairs % count


def _levels(routes: Routes, count: int) -> IntArray | None:
    """A number per link, higher than that of every link before it on some route; None when that cannot be."""
    first, second = _followers(routes, count)
    level = np.zeros(count, np.int64)
    waiting = np.bincount(second, minlength=count)
    ready = np.flatnonzero(waiting == 0)
    starts = np.searchsorted(first, np.arange(count + 1))
    done = 0
    while len(ready):
        done += len(ready)
        counts = starts[ready + 1] - starts[ready]
        ends = np.cumsum(counts)
        edges = np.arange(counts.sum()) + np.repeat(starts[ready] - (ends - counts), counts)
        np.maximum.at(level, second[edges], np.repeat(level[ready], counts) + 1)
        waiting -= np.bincount(second[edges], minlength=count)
        reached = np.flatnonzero(np.bincount(second[edges]))  # `np.unique` would load masked arrays
        ready = reached[waiting[reached] == 0]
    return level if done == count else None


def _by_level(links: IntArray, levels: IntArray, first: IntArray | None) -> list[IntArray]:
    """Positions of the hops level by level, by link within a level, and in the order `first` within a link.

    None: in the order of the messages.
    """
    rank = np.empty(len(levels), np.min_scalar_type(len(levels)))
    order = np.argsort(levels, kind="stable")
    rank[order] = np.arange(len(levels))
    own = rank[links]
    position = np.argsort(own if first is None else own[first], kind="stable")
    position = position if first is None else first[position]
    load = np.bincount(links, minlength=len(levels))
    per_level = np.bincount(levels, load).astype(np.int64)
    return [entries for entries in np.split(position, np.cumsum(per_level)[:-1]) if len(entries)]


def served(link: IntArray, arrival: IntArray, occupied: IntArray, free: IntArray | None = None) -> IntArray:
    """When each message gets its link, which is there from `free` on; messages of one link stand together, the first of
    equals first.
    """
    segment = np.concatenate([[0], np.cumsum(link[1:] != link[:-1])])
    earliest = int(arrival.min())
    span = int(arrival.max()) - earliest + 1
    order = np.argsort(segment * span + (arrival - earliest), kind="stable")
    came = arrival[order] if free is None else np.maximum(arrival, free)[order]
    busy = occupied[order]
    before = np.cumsum(busy) - busy
    # A message starts when it comes or when those before it are through: the running maximum of "came less the
    # work before it", separately for each link, kept apart by an offset that grows from link to link.
    slack = came - before
    apart = int(slack.max()) - int(slack.min()) + 1
    start = np.maximum.accumulate(slack + segment * apart) - segment * apart + before
    served: IntArray = np.empty_like(start)
    served[order] = start
    return served


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
    places = np.repeat(kind * len(links), routes.counts) + routes.links
    crossed = np.bincount(places, minlength=spent_ns.size).reshape(spent_ns.shape)
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
        until_ns = min(now_ns + WINDOWS_AHEAD * width_ns, NEVER)
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
