"""How a head and a tail cross a link, and how times become whole nanoseconds: for one message and for columns of them.

A message's head goes on as soon as a link is its own, its tail when the link has carried all of it; a link's latency is
paid by both. Times are rounded up, so that no answer beats a bound (`units.whole_ns`).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import FloatArray, IntArray, Routes
from simcore.network.topology.links import LinkGraph
from simcore.units import whole_ns

LATENCY_DIGITS = 6


def whole_column(times_ns: FloatArray | IntArray, digits: int = 3) -> IntArray:
    """`units.whole_ns` of a column, to the nanosecond."""
    whole: IntArray = np.ceil(np.round(times_ns, digits)).astype(np.int64)
    return whole


def whole_latency(latency_ns: float) -> int:
    """The latency of a whole way; its parts are added before, so that only their sum is rounded."""
    return whole_ns(latency_ns, LATENCY_DIGITS)


def occupied_ns(size_bytes: IntArray | int, bytes_per_s: FloatArray) -> IntArray:
    """How long links are occupied by messages: `units.transfer_ns` of columns."""
    return whole_column(size_bytes / bytes_per_s * 1e9)


def whole_steps(latencies_ns: list[float]) -> tuple[int, ...]:
    """Latencies of a route in whole nanoseconds whose sum is the exact sum, rounded up.

    >>> whole_steps([0.9, 0.9, 0.9])
    (1, 1, 1)
    >>> whole_steps([0.4, 0.4, 0.4, 0.4])
    (1, 0, 1, 0)
    """
    marks, total = [0], 0.0
    for latency_ns in latencies_ns:
        total += latency_ns
        marks.append(whole_latency(total))
    return tuple(end - start for start, end in pairwise(marks))


def steps(latencies_ns: FloatArray, routes: Routes) -> IntArray:
    """`whole_steps` of many routes, one after the other; `latencies_ns` are those of all links."""
    whole = latencies_ns.astype(np.int64)
    if (latencies_ns == whole).all():
        return whole[routes.links]
    offsets = routes.offsets[:-1]
    found = np.empty(len(routes.links), np.int64)
    before, total = np.zeros(len(offsets), np.int64), np.zeros(len(offsets))
    # Hop by hop, so that the floats are added in the order in which a single route adds them.
    for hop in range(int(routes.counts.max(initial=0))):
        there = np.flatnonzero(routes.counts > hop)
        entries = offsets[there] + hop
        total[there] += latencies_ns[routes.links[entries]]
        mark = whole_column(total[there], LATENCY_DIGITS)
        found[entries] = mark - before[there]
        before[there] = mark
    return found


def cut_through(links: LinkGraph, routes: Routes, size_bytes: IntArray) -> tuple[IntArray, IntArray]:
    """Of messages on every link of their ways: the head's step, and how long the link is occupied."""
    return steps(links.latency_ns, routes), occupied_ns(size_bytes, links.bandwidth_bytes_per_s[routes.links])


def stored(links: LinkGraph, routes: Routes, size_bytes: IntArray) -> tuple[IntArray, IntArray]:
    """The same where links pass on whole messages (ASTRA-sim 2): truncated, and the step is the whole message's."""
    spent_ns = size_bytes / (links.bandwidth_bytes_per_s[routes.links] / 1e9)
    return (links.latency_ns[routes.links] + spent_ns).astype(np.int64), spent_ns.astype(np.int64)


def cross(
    head_ns: IntArray, tail_ns: IntArray, free_ns: IntArray, occupied_ns: IntArray, step_ns: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Heads and tails of messages at the far ends of the links they come to, and when those are free again."""
    start_ns = np.maximum(head_ns, free_ns)
    left_ns = start_ns + occupied_ns
    return start_ns + step_ns, np.maximum(tail_ns, left_ns) + step_ns, left_ns


def idle_ns(links: LinkGraph, routes: Routes, size_bytes: IntArray | int) -> IntArray:
    """From sending to the last byte's arrival where nobody is met: all latencies, and the slowest link's occupation.

    That is what `cross` adds up to on idle links; 0 from an NPU to itself.
    """
    owner = np.repeat(np.arange(len(routes.counts)), routes.counts)
    latency_ns = np.bincount(owner, links.latency_ns[routes.links], len(routes.counts))
    slowest: NDArray[np.float64] = np.full(len(routes.counts), np.inf)
    np.minimum.at(slowest, owner, links.bandwidth_bytes_per_s[routes.links])
    return whole_column(latency_ns, LATENCY_DIGITS) + occupied_ns(size_bytes, slowest)
