"""A second opinion on `--exact messages`: a naive simulator of collectives, written from docs/ alone.

One heap, and an event for every message and link. Within a nanosecond come what ranks do, arrivals, decisions (which
phase begins), and then the links, which serve heads in the order of (chunk, phase, message, links behind, ends).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

ACT, PAID, ARRIVE, DECIDE, LINKS = range(5)


class Dim(NamedTuple):
    """A dimension: GB/s and ns of each link."""

    kind: str
    npus: int
    rate: float
    latency_ns: int


class Job(NamedTuple):
    """A collective of all NPUs, dimension by dimension, or of some `members`; `group` names its communicator."""

    kind: str
    size: int
    algorithms: list[str]
    members: tuple[int, ...] = ()
    group: str = ""
    start_ns: int = 0


def way(dims, src, dst):
    """The links of a message, dimension 0 first: (name, latency, rate)."""
    found = []
    for number, (kind, npus, rate, latency_ns) in enumerate(dims):
        stride = math.prod(dim.npus for dim in dims[:number])
        at, to = src // stride % npus, dst // stride % npus
        first, there = src - at * stride, src + (to - at) * stride
        stops = [src, there]
        if kind == "Switch":
            stops = [src, ("switch", first), there]
        elif kind in {"Ring", "Torus", "Mesh"}:
            onward = (to > at) if kind == "Mesh" else (to - at) % npus <= (at - to) % npus
            count = abs(to - at) if kind == "Mesh" else min((to - at) % npus, (at - to) % npus)
            stops = [first + (at + (step if onward else -step)) % npus * stride for step in range(count + 1)]
        if at != to:
            found += [((number, *ends), latency_ns, rate) for ends in pairwise(stops)]
        src = there
    return found


def rounds(kind, algorithm, n, data):
    """What ranks send: (to whom, bytes) in order, how many at once, how many before all of these must be there."""
    share = data // n
    all_gather, all_reduce = kind == "all_gather", kind == "all_reduce"
    if algorithm == "ring":
        count = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(kind, n - 1)
        return [(lambda rank: (rank + 1) % n, data if all_gather else share)] * count, 1, 0
    if algorithm == "direct":
        each = [(lambda rank, hop=hop: (rank + hop) % n, data if all_gather else share) for hop in range(1, n)]
        return each * (1 + all_reduce), n - 1, (n - 1) * all_reduce
    levels = range(n.bit_length() - 1)  # halvingDoubling
    halves = [(lambda rank, hop=1 << level: rank ^ hop, data >> level + 1) for level in levels]
    doubles = [(lambda rank, hop=n >> level + 1: rank ^ hop, data << level) for level in levels]
    return {"reduce_scatter": halves, "all_gather": doubles, "all_reduce": halves + halves[::-1]}[kind], 1, 0


class World:
    """Links, the heap, and the phases that wait for their ranks and for room."""

    def __init__(self, dims, room, endpoint_ns):
        self.dims, self.room, self.endpoint_ns = dims, room, endpoint_ns
        self.now, self._heap, self._count = 0, [], 0
        self.links = defaultdict(lambda: [0, 0, 0])  # free again at, bytes, busy
        self._heads, self._tails, self._waiting = defaultdict(list), defaultdict(list), {}
        self._running, self.finish_ns = defaultdict(int), defaultdict(int)

    def at(self, time_ns, what, do):
        self._count += 1
        heapq.heappush(self._heap, (time_ns, what, self._count, do))

    def later(self, do):
        self.at(self.now + self.endpoint_ns, PAID, do)

    def run(self):
        while self._heap:
            self.now, _, _, do = heapq.heappop(self._heap)
            do()

    def send(self, key, src, dst, size, arrived):
        self._head(self.now, [(key, 0, (src, dst)), way(self.dims, src, dst), size, self.now, arrived])

    def _head(self, time_ns, message):
        if not self._heads[time_ns]:
            self.at(time_ns, LINKS, self._serve)
        self._heads[time_ns].append(message)

    def _serve(self):
        waiting = self._heads.pop(self.now)
        while waiting:
            message = min(waiting, key=lambda each: each[0])
            waiting.remove(message)
            (key, behind, ends), links, size, tail_ns, _ = message
            name, latency_ns, rate = links[behind]
            link, spent_ns = self.links[name], math.ceil(round(size / rate, 3))
            begin_ns = max(self.now, link[0])
            link[:] = [begin_ns + spent_ns, link[1] + size, link[2] + spent_ns]
            message[0], message[3] = (key, behind + 1, ends), max(tail_ns, link[0]) + latency_ns
            if behind + 1 == len(links):
                if not self._tails[message[3]]:
                    self.at(message[3], ARRIVE, self._arrive)
                self._tails[message[3]].append(message)
            elif begin_ns + latency_ns == self.now:
                waiting.append(message)
            else:
                self._head(begin_ns + latency_ns, message)

    def _arrive(self):
        for *_, arrived in sorted(self._tails.pop(self.now), key=lambda each: (each[0][0], each[0][2])):
            arrived()

    def offer(self, chunk, npu):
        """An NPU has a chunk's phase ready."""
        dim, members, _ = chunk.phases[npu][chunk.at[npu]]
        place = (dim, chunk.key, chunk.at[npu], members)
        self._waiting.setdefault(place, (chunk, set()))[1].add(npu)
        self.at(self.now, DECIDE, self._decide)

    def leave(self, dim, npu):
        self._running[dim, npu] -= 1
        self.at(self.now, DECIDE, self._decide)

    def _decide(self):
        for place in sorted(self._waiting):
            (dim, _, _, members), (chunk, there) = place, self._waiting[place]
            if len(there) == len(members) and all(self._running[dim, npu] < self.room for npu in members):
                del self._waiting[place]
                for npu in members:
                    self._running[dim, npu] += 1
                chunk.begin(self, members)


class Chunk:
    """A chunk on its way: `phases` of every NPU (dimension, group, plan), of which it is in number `at`."""

    def __init__(self, key, phases):
        self.key, self.phases, self.at = key, phases, dict.fromkeys(phases, 0)

    def begin(self, world, members):
        at = self.at[members[0]]
        Phase(world, (self.key, at), members, self.phases[members[0]][at][2], partial(self._through, world))

    def _through(self, world, npu):
        world.leave(self.phases[npu][self.at[npu]][0], npu)
        self.at[npu] += 1
        if self.at[npu] < len(self.phases[npu]):
            world.offer(self, npu)
        else:
            world.finish_ns[npu] = world.now


class Phase:
    """Who has sent and received a round sends the next; it has received one that came early when it sends its own."""

    def __init__(self, world, key, members, plan, through: Callable[[int], None]):
        self._world, self._key, self._members, self._through = world, key, members, through
        self._entries, window, self._half = plan
        self._sent, self._got, self._paid = (dict.fromkeys(members, 0) for _ in range(3))
        self._early = {npu: set() for npu in members}
        for npu in members:
            world.later(partial(self._post, npu, window))

    def _post(self, npu, count=1):
        for number in range(self._sent[npu], min(self._sent[npu] + count, len(self._entries))):
            self._sent[npu] += 1
            whom, size = self._entries[number]
            to = self._members[whom(self._members.index(npu))]
            self._world.send((*self._key, number), npu, to, size, partial(self._hear, to, number))
            if number in self._early[npu]:
                self._take(npu)

    def _hear(self, npu, number):
        if number < self._sent[npu]:
            self._take(npu)
        else:
            self._early[npu].add(number)

    def _take(self, npu):
        self._got[npu] += 1
        self._world.later(partial(self._credit, npu))

    def _credit(self, npu):
        self._paid[npu] += 1
        if not self._half:
            self._post(npu)
        elif self._sent[npu] == self._half == self._got[npu]:
            self._post(npu, self._half)
        if self._paid[npu] == len(self._entries):
            self._through(npu)


def simulate(dims: list[Dim], jobs: list[Job], *, splits: int, room: int, endpoint_ns: int):
    """When every NPU is done, and the bytes and busy times of all links that were used."""
    world = World(dims, room, endpoint_ns)
    for job in jobs:
        npus = job.members or range(math.prod(dim.npus for dim in dims))
        count = min(splits, job.size)
        for number in range(count):
            data = job.size * (number + 1) // count - job.size * number // count
            phases = {npu: [] for npu in npus}
            for kind, dim in _visits(job, dims):
                n = dims[dim].npus if not job.members else len(npus)
                plan = rounds(kind, job.algorithms[dim], n, data)
                data = {"reduce_scatter": data // n, "all_gather": data * n}.get(kind, data)
                stride = math.prod(each.npus for each in dims[:dim])
                for npu in npus:
                    first = npu - npu // stride % n * stride
                    phases[npu].append((dim, job.members or tuple(range(first, first + n * stride, stride)), plan))
            chunk = Chunk((job.group, number), phases)
            for npu in npus:
                world.at(job.start_ns, ACT, partial(world.offer, chunk, npu))
    world.run()
    return dict(world.finish_ns), sorted((size, busy_ns) for _, size, busy_ns in world.links.values())


def _visits(job, dims):
    """Kinds of phases and dimensions: what gathers comes from the outermost, all else goes there."""
    wide = [0] if job.members else list(range(len(dims)))
    if job.kind == "all_reduce":
        down = [("reduce_scatter", dim) for dim in wide[:-1]]
        return [*down, ("all_reduce", wide[-1]), *(("all_gather", dim) for _, dim in reversed(down))]
    return [(job.kind, dim) for dim in (wide[::-1] if job.kind == "all_gather" else wide)]
