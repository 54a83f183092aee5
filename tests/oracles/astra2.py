"""A naive model of ASTRA-sim 2.x, written from its description alone; cases are dictionaries as of its oracle.

It has no memory bus, custom collectives or metadata nodes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from math import prod

from tests.oracles.packets import GIBIBYTE, TAGS, Clock, Network, Port, Queues, RefusalError, algorithm, alone, play

SLOTS = {"COMP": "gpu", "COMM_RECV": None}


class Unaware(Network):
    """A message pays the first dimension in which its ends differ, and meets nobody."""

    def __init__(self, clock, dims):
        super().__init__(clock)
        self._dims = dims

    def carry(self, src, dst, size, key):
        for dim in self._dims:
            n = dim["npus"]
            if src % n != dst % n:
                around = (dst - src) % n
                hops = {"Ring": min(around, n - around), "FullyConnected": 1, "Switch": 2}[dim["type"]]
                delay = int(hops * dim["latency_ns"] + size / (dim["bandwidth_GBps"] * GIBIBYTE / 1e9))
                self.clock.at(delay, self.arrive, key)
                return
            src, dst = src // n, dst // n


class Aware(Network):
    """One dimension of links that carry a message at a time, store and forward."""

    def __init__(self, clock, dims):
        super().__init__(clock)
        (self._dim,) = dims
        self._busy, self._waiting = set(), defaultdict(deque)

    def carry(self, src, dst, size, key):
        kind, n = self._dim["type"], self._dim["npus"]
        stops = [src, dst]
        if kind == "Switch":
            stops = [src, "switch", dst]
        elif kind == "Ring":
            step = 1 if (dst - src) % n <= (src - dst) % n else -1
            stops = [(src + step * hop) % n for hop in range((dst - src) * step % n + 1)]
        self._hop(stops, size, key)

    def _hop(self, stops, size, key):
        link = tuple(stops[:2])
        if len(link) == 1:
            self.arrive(key)
        elif link in self._busy:
            self._waiting[link].append((stops, size, key))
        else:
            self._transmit(link, stops, size, key)

    def _transmit(self, link, stops, size, key):
        self._busy.add(link)
        serial = size / (self._dim["bandwidth_GBps"] * GIBIBYTE / 1e9)
        self.clock.at(int(self._dim["latency_ns"] + serial), self._hop, stops[1:], size, key)
        self.clock.at(int(serial), self._free, link)

    def _free(self, link):
        self._busy.discard(link)
        if self._waiting[link]:
            self._transmit(link, *self._waiting[link].popleft())


class Stream:
    """A chunk of a collective."""

    def __init__(self, number, priority, plan, finished):
        self.id, self.priority, self.plan, self.finished = number, priority, deque(plan), finished
        self.queue = self.make = None
        self.started = False


def in_order(queue, stream):
    """Behind what has started, and what is as urgent."""
    place = 0
    while place < len(queue) and (queue[place].started or queue[place].priority >= stream.priority):
        place += 1
    queue.insert(place, stream)


class Npu:
    """The graph, the streams and the queues of an NPU, which has no memory bus."""

    bus = None

    def __init__(self, sim, number, nodes):
        self.sim, self.id, self.clock, self.endpoint_delay = sim, number, sim.clock, sim.endpoint_delay
        self.port = Port(number, sim.network, sim.rendezvous)
        self.queues = Queues(sim.concurrency, in_order, play)
        self._priority, self._streams = 0, {}
        self._trees, self._turns = defaultdict(int), defaultdict(int)
        self._nodes = {node["id"]: node for node in nodes}
        self._waits = {n["id"]: {*n.get("data_deps", ()), *n.get("ctrl_deps", ())} for n in nodes}
        self._ready = {number for number, deps in self._waits.items() if not deps}
        self._slots, self.spans, self.finish, self.left = set(), [], 0, len(nodes)

    def scan(self):
        """Start what is ready, the lowest number first; what a skipped node makes ready is not seen here."""
        for number in sorted(self._ready):
            node = self._nodes[number]
            slot = "cpu" if node.get("is_cpu_op") else SLOTS.get(node["type"], "comm")
            if slot in self._slots:
                continue
            self._ready.discard(number)
            if self._skipped(node):
                self._release(node)
            else:
                self._slots |= {slot} - {None}
                self._issue(node, partial(self._done, node, slot, self.clock.now))

    def _skipped(self, node):
        if self.sim.system.get("replay-only"):
            return False
        return node["type"] == "INVALID" or (self._rooflined(node) and node["tensor_size"] == 0)

    def _rooflined(self, node):
        return node["type"] == "COMP" and self.sim.system.get("roofline-enabled") and not node.get("is_cpu_op")

    def _release(self, node):
        self.left -= 1
        self.finish = self.clock.now
        for number, deps in self._waits.items():
            if node["id"] in deps:
                deps.discard(node["id"])
                self._ready |= set() if deps else {number}

    def _done(self, node, slot, start):
        self._slots.discard(slot)
        self.spans.append((slot or "comm", start, self.clock.now))
        self._release(node)
        self.scan()

    def _issue(self, node, done):
        kind, replayed = node["type"], node.get("duration_micros", 0) * 1000 or 1
        if self.sim.system.get("replay-only") or node.get("collective") == "BROADCAST":
            self.clock.npu_at(self.id, replayed, done)
        elif kind == "COMP":
            self.clock.npu_at(self.id, self._roofline(node) if self._rooflined(node) else replayed, done)
        elif kind == "COMM_SEND":
            self.port.send(node["dst"], node["bytes"], node["tag"] % TAGS, done)
        elif kind == "COMM_RECV":
            self.port.receive(node["src"], node["bytes"], node["tag"] % TAGS, done)
        elif kind == "COMM_COLL":
            self._collective(node, done)
        else:
            self.sim.memory.access(self.id, node["tensor_size"], done)

    def _roofline(self, node):
        system = self.sim.system
        intensity = node["num_ops"] / node["tensor_size"]
        perf = min(system["local-mem-bw"] * 1e9 * intensity, system["peak-perf"] * 1e12)
        return int(node["num_ops"] / perf * 1e9)

    def _collective(self, node, done):
        sim, kind, size = self.sim, node["collective"], node["bytes"]
        group = node.get("pg_name") or "0"
        policy, priority = sim.system["scheduling-policy"], self._priority
        self._priority += {"LIFO": 1, "FIFO": -1, "EXPLICIT": 0}[policy]
        priority = node.get("priority", 0) if policy == "EXPLICIT" else priority
        chunk = size // sim.splits
        if kind != "ALL_GATHER" and sim.total > chunk:
            chunk, size = sim.total, sim.splits * sim.total
        if chunk == 0:
            raise RefusalError("an all-gather of fewer bytes than splits never ends")
        left = [None] * -(-size // chunk)

        def finished():
            left.pop()
            if not left:
                done()

        for _ in list(left):
            plan = [*self._plan(kind, chunk, group, node.get("involved_dim", [True] * 4))]
            if not plan:
                raise RefusalError("a collective of no dimensions never ends")
            number = self._streams.setdefault(group, int(group) * 1_000_000)
            self._streams[group] += 1
            stream = Stream(number, priority, (), finished)
            stream.plan.extend((queue, partial(make, self, stream, *rest)) for queue, make, rest in plan)
            self.queues.enter(stream)

    def _plan(self, kind, chunk, group, involved):
        """The phases of a chunk."""
        sim, names = self.sim, self.sim.system[f"{kind.lower().replace('_', '-')}-implementation"]
        local = len(sim.groups.get(group, sim.everybody)) < sim.total
        involved = [True] * 4 if group in sim.groups else involved
        if local:
            names, rings, involved = names if len(names) == 1 else ["ring"], [sim.groups[group]], [True]
            names = [alone(name) if name.startswith("one") else name for name in names]
        elif names[0].startswith("one"):
            names, rings = [alone(names[0])], [sim.everybody]
        else:
            rings = [sim.ring(self.id, d) for d in range(len(names))]
        dims = [d for d in range(len(rings)) if involved[d]]
        split = kind == "ALL_REDUCE" and sim.system["collective-optimization"] == "localBWAware"
        visits = [(kind, d) for d in (dims[::-1] if kind == "ALL_GATHER" else dims)]
        if split and dims:
            down = dims[:-1]
            visits = [("REDUCE_SCATTER", d) for d in down] + visits[-1:] + [("ALL_GATHER", d) for d in down[::-1]]
        for part, d in visits:
            queue, direction = self._take_queue(part, d, split)
            make = algorithm(names[d], partial(self._mirrored, (kind, d, group if local else "")))
            yield (d, queue), make, (part, rings[d], direction, chunk, local)
            if names[d] != "doubleBinaryTree":
                n = len(rings[d])
                chunk = {"REDUCE_SCATTER": chunk // n, "ALL_GATHER": chunk * n}.get(part, chunk)

    def _take_queue(self, part, d, split):
        """The next queue of a dimension, and which way round it goes."""
        count = self.sim.num_queues
        choice = range(count)
        if split:
            choice = range(count // 2, count) if part == "ALL_GATHER" else range(max(1, count // 2))
        queue = choice[self._turns[d, split and part == "ALL_GATHER", split] % len(choice)]
        self._turns[d, split and part == "ALL_GATHER", split] += 1
        backward = part == "ALL_GATHER" if split else count > 1 and queue >= count // 2
        return queue, -1 if backward else 1

    def _mirrored(self, key):
        self._trees[key] += 1
        return self._trees[key] % 2 == 0

    def reduction(self, size):
        """Two reads and a write."""
        return 3 * int(size / (self.sim.system["local-mem-bw"] * 1e9) * 1e9)

    def phase_done(self, stream):
        self.queues.leave(stream, stream.finished)


class Memory:
    """Remote memory: every NPU's own, or one access at a time for a node or for all."""

    def __init__(self, clock, given):
        self._clock, self._given, self._lines = clock, given, defaultdict(deque)

    def access(self, npu, size, done):
        given = self._given
        time = int(size / given["remote-mem-bw"]) + given["remote-mem-latency"]
        if given["memory-type"] == "PER_NPU_MEMORY_EXPANSION":
            self._clock.npu_at(npu, time, done)
            return
        line = self._lines[npu // given.get("num-npus-per-node", npu + 1)]
        line.append((npu, time, done))
        if len(line) == 1:
            self._serve(line)

    def _serve(self, line):
        npu, time, done = line[0]

        def end():  # who asked goes on before the next one is served
            done()
            line.popleft()
            if line:
                self._serve(line)

        self._clock.npu_at(npu, time, end)


class Simulation:
    """All NPUs of a case."""

    def __init__(self, case):
        self.system, self.dims, cli = case["system"], case["topology"]["dims"], case["cli"]
        self.total = prod(dim["npus"] for dim in self.dims)
        self.everybody, self.groups = list(range(self.total)), case.get("comm_groups", {})
        self.clock = Clock()
        self.network = (Aware if case["backend"] == "congestion_aware" else Unaware)(self.clock, self.dims)
        self.rendezvous = cli.get("rendezvous-protocol", False)
        self.splits, self.num_queues = self.system["preferred-dataset-splits"], cli.get("num-queues-per-dim", 1)
        self.concurrency = -(-self.system["active-chunks-per-dimension"] // self.num_queues)
        self.endpoint_delay = int(self.system["endpoint-delay"] * cli.get("injection-scale", 1))
        self.memory = Memory(self.clock, case.get("remote_memory"))
        self.npus = [Npu(self, number, nodes) for number, nodes in enumerate(case["workload"]["per_npu"])]

    def ring(self, npu, d):
        """Who differs from an NPU in a dimension alone."""
        stride, n = prod(dim["npus"] for dim in self.dims[:d]), self.dims[d]["npus"]
        first = npu - npu // stride % n * stride
        return [first + k * stride for k in range(n)]

    def run(self):
        """The figures of every NPU."""
        for npu in self.npus:
            npu.scan()
        self.clock.run()
        if any(npu.left for npu in self.npus):
            raise RefusalError("some never finish")
        return {"finish_ns": [npu.finish for npu in self.npus], "compute_ns": [busy(npu, "gpu") for npu in self.npus]}


def busy(npu, slot):
    """How long a slot of an NPU was taken."""
    return sum(end - start for name, start, end in npu.spans if name == slot)
