"""Many messages on shared links, hop by hop in order of time: for networks where links wait for each other in a circle.

The answer is `batch.solve_batch`'s wherever that has one.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from simcore.network.batch import Batch, solve_batch
from simcore.network.clock import occupied_ns, steps
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph

__all__ = ["send_all", "step_batch"]


def send_all(
    links: LinkGraph, src: IntArray, dst: IntArray, size_bytes: IntArray, start_ns: IntArray, tree: IntArray,
    free_ns: IntArray,
) -> Batch:  # fmt: skip
    """`solve_batch` where it has an answer, otherwise `step_batch`."""
    solved = solve_batch(links, src, dst, size_bytes, start_ns, tree=tree, free_ns=free_ns)
    return solved or step_batch(links, src, dst, size_bytes, start_ns, tree, free_ns)


def step_batch(
    links: LinkGraph, src: IntArray, dst: IntArray, size_bytes: IntArray, start_ns: IntArray, tree: IntArray,
    free_ns: IntArray,
) -> Batch:  # fmt: skip
    """Send all messages at their times; the parameters are those of `solve_batch`, as columns of equal length."""
    routes = links.routes(src, dst)
    owner = np.repeat(np.arange(len(routes.counts), dtype=np.int32), routes.counts)
    occupied = occupied_ns(size_bytes[owner], links.bandwidth_bytes_per_s[routes.links]).tolist()
    step = steps(links.latency_ns, routes).tolist()
    taken, group = routes.links.tolist(), tree.tolist()
    place, last = routes.offsets[:-1].tolist(), routes.offsets[1:].tolist()
    tail, free = start_ns.tolist(), free_ns.tolist()
    carried, busy = [0] * len(links), [0] * len(links)
    crossed: dict[tuple[int, int], int] = {}
    waiting = [(time, message) for message, time in enumerate(tail) if place[message] < last[message]]
    heapify(waiting)
    while waiting:
        time, message = heappop(waiting)
        hop = place[message]
        link = taken[hop]
        start = crossed.get((group[message], link), -1)
        if start < 0:
            start = max(time, free[link])
            free[link] = start + occupied[hop]
            busy[link] += occupied[hop]
            carried[link] += int(size_bytes[message])
            if group[message] >= 0:
                crossed[group[message], link] = start
        start = max(start, time)
        tail[message] = max(start + occupied[hop], tail[message]) + step[hop]
        place[message] = hop + 1
        if hop + 1 < last[message]:
            heappush(waiting, (start + step[hop], message))
    return Batch(np.array(tail), np.array(carried), np.array(busy), np.array(free))
