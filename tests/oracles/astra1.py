"""A naive model of ASTRA-sim 1.0, written from its description alone; cases are dictionaries as of its oracle.

The memory bus is that of the public sources (`LogGP.cc`, `MemBus.cc`, `PacketBundle.cc`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import cache, partial
from math import prod
from struct import pack, unpack

from tests.oracles.loops1 import PHASES, WG, Loops
from tests.oracles.packets import GIBIBYTE, Bus, Clock, Network, Port, Queues, RefusalError, algorithm, alone, play

KINDS = {
    "ALLREDUCE": "ALL_REDUCE",
    "ALLTOALL": "ALL_TO_ALL",
    "ALLGATHER": "ALL_GATHER",
    "REDUCESCATTER": "REDUCE_SCATTER",
}
FIGURES = ("compute", "comm", "exposed")
MEBIBYTE = 1 << 20


def float32(number):
    """As the original reads its options."""
    return unpack("f", pack("f", number))[0]


class Links(Network):
    """A message pays the highest dimension in which its ends differ, cut to whole nanoseconds term by term."""

    def __init__(self, clock, net):
        super().__init__(clock)
        self._net, self._delay = net, cache(self._delay)

    def carry(self, src, dst, size, key):
        self.clock.at(self._delay(src, dst, size), self.arrive, key)

    def links(self, d, *, in_all):
        """The links of a dimension that a message has, or all of an NPU."""
        links, others = self._net["links-count"][d], self._net["units-count"][d] - 1
        whole = links // others * (others if in_all else 1)
        return {"Ring": links // 2 * 2, "FullyConnected": whole}.get(self._net["topologies-per-dim"][d], links)

    def _delay(self, src, dst, size):
        net = self._net
        for at, n in enumerate(net["units-count"]):
            if src % n != dst % n:
                d, around = at, min((dst - src) % n, (src - dst) % n)
            src, dst = src // n, dst // n
        kind = net["topologies-per-dim"][d]
        time = int({"Ring": around, "FullyConnected": 1, "Switch": 2}[kind] * net["link-latency"][d])
        time = int(time + size / (net["link-bandwidth"][d] * GIBIBYTE / 1e9 * self.links(d, in_all=False)))
        time = int(time + 2 * net["nic-latency"][d])
        time = int(time + (net["router-latency"][d] if kind == "Switch" else 0))
        memory = net["hbm-latency"][d] + size / net["hbm-bandwidth"][d]
        return max(time, memory * net["hbm-scale"][d])


def cut(sizes, wanted):
    """Logical dimensions (network dimension, size, stride), and how many are inside a model-parallel group."""
    dims = [(d, n, prod(sizes[:d])) for d, n in enumerate(sizes)]
    for at, (d, n, stride) in enumerate(dims):
        if wanted == stride * n and wanted > 1:
            return dims, at + 1
        if stride < wanted < stride * n:
            inner = wanted // stride
            if stride * inner != wanted or n % inner:
                raise RefusalError("a group that does not divide its dimension")
            return [*dims[:at], (d, inner, stride), (d, n // inner, wanted), *dims[at + 1 :]], at + 1
    return dims, 0


class Themis:
    """Loads of the logical dimensions, one for all NPUs, and the plans of chunks that some have not yet asked for."""

    def __init__(self, sim, *, flexible):
        self._sim, self._flexible, self._cleared, self._plans = sim, flexible, -1, {}
        self._sizes = [n for _, n, _ in sim.dims]
        weights = [sim.network.links(d, in_all=True) * sim.net["link-bandwidth"][d] for d, _, _ in sim.dims]
        self._speeds = [weight / weights[0] for weight in weights]
        self._clear()

    def _clear(self):
        self._loads, self._sorted = [0.0] * len(self._sizes), list(range(len(self._sizes)))

    def begin(self, npu):
        """NPU 0 clears the loads in a later nanosecond."""
        now = int(self._sim.clock.now)
        if npu == 0 and now > self._cleared:
            self._cleared = now
            self._clear()

    def plan(self, number, left, full, usable, *, gather):
        """Size and dimensions of a chunk, worked out for the first NPU that asks, forgotten with the last."""
        plan, asked = self._plans.pop(number, None) or (self._work_out(left, full, usable, gather), 0)
        if asked + 1 < self._sim.total:
            self._plans[number] = plan, asked + 1
        return plan

    def _work_out(self, left, full, usable, gather):
        self._sorted.sort(key=self._loads.__getitem__)
        if gather:
            self._sorted.reverse()
        path = [d for d in self._sorted if d in usable]
        if not path:
            return min(left, full), []
        slack = self._slack(path, gather)
        booked, size = list(range(len(self._sizes))), slack if self._flexible else full
        if slack < (full if self._flexible else full // 16):
            path.sort()
            self._sorted.sort()
            booked = booked[::-1] if gather else booked
            size = min(left, full) if self._flexible else full
        data = size
        for d in path:
            n = self._sizes[d]
            self._loads[booked[d]] += data / MEBIBYTE * (n - 1 if gather else (n - 1) / n) / self._speeds[d]
            data = data * n if gather else data // n
        return min(left, size), path

    def _slack(self, path, gather):
        """Bytes that fit into the difference of the loads."""
        first, last = path[0], path[-1] if gather else self._sorted[-1]
        difference = abs(self._loads[last] - self._loads[first])
        if not gather:
            n = self._sizes[first]
            return int(difference * self._speeds[first] / ((n - 1) / n) * MEBIBYTE)
        slack = int(difference * self._speeds[last] / (self._sizes[last] - 1) * MEBIBYTE)
        return slack // prod(self._sizes[d] for d in path[:-1])


class Stream:
    """A chunk on an NPU: `phases` have kind, data before and after."""

    def __init__(self, number, npu, priority, phases, dataset):
        self.id, self.npu, self.priority, self.phases, self.dataset = number, npu, priority, phases, dataset
        self.plan = deque()
        self.queue = self.make = None
        self.started = False

    @property
    def next(self):
        """The phase that it waits for or is in."""
        return self.phases[len(self.phases) - len(self.plan) - 1]

    @property
    def largest(self):
        return max(self.next[1:])


def insertion(policy):
    """How a chunk gets its place in a queue."""

    def insert(queue, stream):
        kind = stream.next[0]
        if policy in {"SCF", "smallestFirst"} and kind in {"REDUCE_SCATTER", "ALL_GATHER"} and len(stream.plan) == 1:
            queue.append(stream)
            return

        def stays_before(place):
            other = queue[place]
            if other.started:
                return True
            if policy == "FIFO" or kind in {"ALL_REDUCE", "ALL_TO_ALL"}:
                return other.priority >= stream.priority
            if policy == "lessRemainingPhaseFirst":
                return len(other.plan) < len(stream.plan)
            if policy != "RG":
                return other.largest < stream.largest
            # "Walk past running ones (and past the first waiting one after the running block)".
            after_running = place > 0 and queue[place - 1].started
            two = {each.next[0] for each in queue[max(0, place - 1) : place + 1]}
            return after_running or other.priority > stream.priority or two == {"REDUCE_SCATTER", "ALL_GATHER"}

        place = 0
        while place < len(queue) and stays_before(place):
            place += 1
        queue.insert(place, stream)

    return insert


class Npu:
    """The training loop (a coroutine), the figures and the queues of an NPU."""

    def __init__(self, sim, number):
        self.sim, self.id, self.clock, self.endpoint_delay = sim, number, sim.clock, sim.endpoint_delay
        self.port = Port(number, sim.network, sim.rendezvous)
        self.bus = sim.bus(number)
        self.queues = Queues(sim.concurrency, insertion(sim.intra), sim.begin)
        self._priority, self._chunks, self._turn = 0, 0, 0
        self._queue, self._trees = defaultdict(int), defaultdict(int)
        self._pending, self._waiting, self._issued, self._over = defaultdict(list), {}, 0, False
        self.figures = [dict.fromkeys([(p, f) for p in PHASES for f in FIGURES], 0) for _ in sim.layers]
        self.passes, self.finish = [], None

    def start(self):
        self._code = self._run()
        self._resume()

    def _resume(self):
        next(self._code, None)

    def _run(self):
        yield from self.sim.loop(self)
        self._over = True
        if self._issued and self._pending[0, WG]:
            self._waiting[0, WG] = self.now
        self._check_end()

    def _check_end(self):
        if self._over and not self._issued:
            self.finish = self.now

    @property
    def now(self):
        """What the statistics' clock says."""
        return int(self.clock.now)

    def step(self, ns=1):
        self.clock.npu_at(self.id, ns, self._resume)
        yield

    def compute(self, i, phase):
        time = self.sim.layers[i][phase][0]
        self.figures[i][phase, "compute"] += time
        if time:
            yield from self.step(time)

    def wait(self, i, phase):
        while self._pending[i, phase]:
            self._waiting[i, phase] = self.now
            yield

    def issue(self, i, phase, policy, *, blocking=False):
        _, type_, size = self.sim.layers[i][phase]
        if type_ not in KINDS:
            return
        priority = self._priority
        self._priority += {"LIFO": 1, "FIFO": -1, "HIGHEST": 0}[policy]
        dataset = {"left": 0, "begin": self.now, "key": (i, phase)}
        self._generate(KINDS[type_], size, i, phase, 100_000_000 if policy == "HIGHEST" else priority, dataset)
        if dataset["left"]:
            self._issued += 1
            self._pending[i, phase].append(dataset)
        if blocking and dataset["left"]:
            yield from self.wait(i, phase)

    def _complete(self, dataset):
        update = self.sim.layers[dataset["key"][0]]["update"]
        self.clock.npu_at(self.id, update, self._updated, dataset)

    def _updated(self, dataset):
        key = i, phase = dataset["key"]
        self.figures[i][phase, "comm"] += self.now - dataset["begin"]
        self._pending[key].remove(dataset)
        self._issued -= 1
        since = self._waiting.pop(key, None)
        if since is not None:
            self.figures[i][phase, "exposed"] += self.now - since
        self._check_end()
        if since is not None and not self._over:
            self._resume()

    def _generate(self, kind, size, i, phase, priority, dataset):
        full, usable = size // self.sim.splits, self.sim.usable(kind, i, phase)
        if full == 0:
            raise RefusalError("fewer bytes than splits never end")
        self.sim.themis.begin(self.id)
        while size > 0:
            chunk, order = self._order(kind, size, full, usable)
            if not order:
                return
            size -= chunk
            dataset["left"] += 1
            stream = self._stream(kind, chunk, order, priority, dataset)
            self.queues.enter(stream)
            self.sim.issued(stream)

    def _order(self, kind, left, full, usable):
        """The size of the next chunk and the dimensions that it visits."""
        sim = self.sim
        if sim.balances and kind != "ALL_TO_ALL":
            return sim.themis.plan(self._chunks, left, full, usable, gather=kind == "ALL_GATHER")
        order = list(range(len(sim.names(kind))))
        if kind == "ALL_GATHER":
            order.reverse()
        if sim.inter == "roundRobin":
            if self._turn > len(order):
                raise RefusalError("a turn beyond the last dimension reads what is behind it")
            order = order[self._turn :] + order[: self._turn]
            self._turn = 0 if self._turn + 1 == len(order) else self._turn + 1
        return min(full, left), [d for d in order if d in usable]

    def _stream(self, kind, data, order, priority, dataset):
        sim, names, plan, phases = self.sim, self.sim.names(kind), [], []
        visits = [(kind, d) for d in order]
        if kind == "ALL_REDUCE" and sim.decomposes:
            down = order if sim.balances else order[:-1]
            visits = [("REDUCE_SCATTER", d) for d in down] + [(kind, d) for d in order[len(down) :]]
            visits += [("ALL_GATHER", d) for d in down[::-1]]
        stream = Stream(self._chunks, self.id, priority, phases, dataset)
        self._chunks += 1
        for part, d in visits:
            members, name = sim.members(self.id, d, names), names[d]
            part = "ALL_REDUCE" if name == "doubleBinaryTree" else part  # noqa: PLW2901
            turn = self._queue[d] % sim.num_queues
            self._queue[d] += 1
            backward = sim.num_queues > 1 and turn >= sim.num_queues // 2
            make = algorithm(alone(name) if name.startswith("one") else name, partial(self._mirrored, (kind, d)))
            plan.append(((d, turn), partial(make, self, stream, part, members, -1 if backward else 1, data, False)))
            after = {"REDUCE_SCATTER": data // len(members), "ALL_GATHER": data * len(members)}.get(part, data)
            phases.append((part, data, after))
            data = after
        stream.plan.extend(plan)
        return stream

    def _mirrored(self, key):
        self._trees[key] += 1
        return self._trees[key] % 2 == 0

    def reduction(self, size):
        """Three accesses for every whole bundle."""
        return 3 * (size // 500_000)

    def phase_done(self, stream):
        self.sim.through(self, stream)

    def leave(self, stream):
        self.queues.leave(stream, partial(self._arrived, stream.dataset))

    def _arrived(self, dataset):
        dataset["left"] -= 1
        if not dataset["left"]:
            self._complete(dataset)


class Simulation(Loops):
    """All NPUs of a case."""

    def __init__(self, case):
        self.system, run, self.net = case["system"], case["run"], case["network"]
        self.clock = Clock()
        self.network, self.total = Links(self.clock, self.net), prod(self.net["units-count"])
        compute, comm = float32(run.get("compute_scale", 1)), float32(run.get("comm_scale", 1))
        self.layers = []
        for row in case["workload"]["layers"]:
            scaled = {p: (int(row[p][0] * compute), row[p][1], int(row[p][2] * comm)) for p in PHASES}
            self.layers.append(row | scaled)
        self.name, *self.words = case["workload"]["header"].split()
        group = int(self.words[1]) if self.name.startswith("HYBRID_TRANSFORMER") else 1
        self.dims, self._inside = cut(self.net["units-count"], group)
        self.splits, self.num_queues = self.system["preferred-dataset-splits"], run.get("num_queues_per_dim", 1)
        self.concurrency = -(-self.system["active-chunks-per-dimension"] // self.num_queues)
        self.endpoint_delay = int(self.system["endpoint-delay"] * float32(run.get("injection_scale", 1)))
        self.intra = self.system.get("intra-dimension-scheduling", "FIFO")
        self.inter = self.system.get("inter-dimension-scheduling", "ascending")
        self.balances = self.inter.startswith(("themis", "offline"))
        self.decomposes = self.system["collective-optimization"] == "localBWAware"
        self.rendezvous, self.passes = run.get("rendezvous_protocol", False), run["num_passes"]
        self.themis, self._through = Themis(self, flexible=self.inter.endswith("Flex")), defaultdict(list)
        self._issued, self._held = defaultdict(int), defaultdict(list)
        self.npus = [Npu(self, number) for number in range(self.total)]

    def names(self, kind):
        """The algorithms of the logical dimensions, or the one of the whole machine."""
        names = self.system[f"{kind.lower().replace('_', '-')}-implementation"].split("_")
        return names[:1] if names[0].startswith("one") else [names[d] for d, _, _ in self.dims if d < len(names)]

    def members(self, npu, d, names):
        """Who is in a phase with an NPU."""
        if names[0].startswith("one"):
            return list(range(self.total))
        _, n, stride = self.dims[d]
        return [npu - npu // stride % n * stride + k * stride for k in range(n)]

    def usable(self, kind, i, phase):
        """The dimensions that a column of a layer takes."""
        policy = self.layers[i].get("policy") or self.name
        first = i == 0 and self.name.startswith("HYBRID_DLRM")
        inside = {"MODEL": len(self.dims), "DISTRIBUTED_INFERENCE": len(self.dims), "HYBRID_DATA_MODEL": 1}
        inside |= {"DATA": 0, "MICRO": 0, "HYBRID_DLRM": 0, "HYBRID_DLRM_ENHANCED": 0}
        names, border = self.names(kind), inside.get(policy, self._inside)

        def takes(d):
            if policy == "HYBRID_MODEL_DATA":
                return (d == 0) == (phase == WG)
            return (d >= border) == (phase == WG) or (first and phase != WG)

        sizes = [self.total] if names[0].startswith("one") else [n for _, n, _ in self.dims]
        return {d for d in range(min(len(names), len(sizes))) if takes(d) and sizes[d] > 1}

    def bus(self, npu):
        """The memory bus of an NPU, if it has one."""
        keys = self.system
        if not int(keys.get("model-shared-bus", 0)):
            return None
        costs = *(int(float(keys[key])) for key in ("L", "o", "g")), float32(float(keys["G"]))
        return Bus(self.clock, npu, costs, int(keys.get("local-reduction-delay", 1)))

    def begin(self, stream):
        """A chunk begins when all NPUs have issued it."""
        if self._issued[stream.id] == self.total:
            play(stream)
        else:
            self._held[stream.id].append(stream)

    def issued(self, stream):
        """The last NPU to issue a chunk lets it begin, in the order of the NPUs."""
        self._issued[stream.id] += 1
        if self._issued[stream.id] == self.total:
            for each in sorted(self._held.pop(stream.id, ()), key=lambda each: each.npu):
                play(each)

    def through(self, npu, stream):
        """A chunk leaves a phase when it is through on all NPUs."""
        there = self._through[stream.id, len(stream.plan)]
        there.append((npu, stream))
        if len(there) == self.total:
            del self._through[stream.id, len(stream.plan)]
            for each, own in there:
                each.leave(own)

    def run(self):
        """The figures of NPU 0."""
        for npu in self.npus:
            npu.start()
        self.clock.run()
        first = self.npus[0]
        if first.finish is None:
            raise RefusalError("it never ends")
        return {"finish_ns": first.finish, "pass_end_ns": first.passes, "layers": first.figures}
