"""What the naive models of ASTRA-sim 1.0 and 2.x share: the clock, the matching of messages, the packet machines.

They are a second opinion on the profiles: one event for every packet and message, nothing solved, nothing known of
simcore.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from functools import partial

GIBIBYTE = 1 << 30
TOKEN_BYTES = 8192
TAGS = 500_000_000


class RefusalError(Exception):
    """The original aborts, crashes or never ends."""


class Clock:
    """Events in order of time, then of insertion; each NPU's events of one instant are one entry.

    What takes no time at time 0, which aborts the original, is played as at any other time.
    """

    def __init__(self):
        self.now, self._count = 0, 0
        self._heap, self._lists = [], {}

    def at(self, delay, call, *args):
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, call, args))

    def npu_at(self, npu, delay, call, *args):
        key = npu, self.now + delay
        if key not in self._lists:
            self._lists[key] = []
            self.at(delay, self._run_list, key)
        self._lists[key].append((call, args))

    def _run_list(self, key):
        for call, args in self._lists[key]:  # grows while it runs
            call(*args)
        del self._lists[key]

    def run(self):
        while self._heap:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)


class Network:
    """Matches the messages of a tag, two ends and a size in order; subclasses say how they travel (`carry`)."""

    def __init__(self, clock):
        self.clock = clock
        self._sent, self._received, self._flights = defaultdict(int), defaultdict(int), defaultdict(dict)

    def send(self, src, dst, size, tag, done=None):
        key = tag, src, dst, size
        self._sent[key] += 1
        key = (*key, self._sent[key])
        self._flights[key]["sender"] = done
        self.carry(src, dst, size, key)

    def receive(self, src, dst, size, tag, done):
        key = tag, src, dst, size
        self._received[key] += 1
        flight = self._flights[*key, self._received[key]]
        if flight.get("arrived"):
            self.clock.at(0, done)
        else:
            flight["receiver"] = done

    def arrive(self, key):
        flight = self._flights[key]
        if flight["sender"]:
            flight["sender"]()
        if "receiver" in flight:
            flight["receiver"]()
        else:
            flight["arrived"] = True


class Port:
    """How an NPU sends and receives: under rendezvous, what it receives it asks for with a small message."""

    def __init__(self, npu, network, rendezvous):
        self._npu, self._network, self._rendezvous = npu, network, rendezvous

    def send(self, dst, size, tag, done=None):
        go = partial(self._network.send, self._npu, dst, size, tag, done)
        if self._rendezvous:
            self._network.receive(dst, self._npu, TOKEN_BYTES, ("token", tag), go)
        else:
            go()

    def receive(self, src, size, tag, done):
        go = partial(self._network.receive, src, self._npu, size, tag, done)
        if self._rendezvous:
            self._network.send(self._npu, src, TOKEN_BYTES, ("token", tag), go)
        else:
            go()


class Bus:
    """The way between an NPU (the near end) and the memory (the far end) that its packets share, by LogGP.

    `costs` are L, o, g and G. What comes to the near end, or leaves it, goes over an inner bus as well. Of a packet one
    says whether it is `reduced` where it comes to, and whether it then goes `back`.
    """

    def __init__(self, clock, npu, costs, reduction, inner_cost=0.0038):
        inner = Bus(clock, npu, (*costs[:3], inner_cost), reduction, None) if inner_cost else None
        self.near, self.far = _End(clock, npu, costs, reduction, inner), _End(clock, npu, costs, reduction, None)
        self.near.other, self.far.other = self.far, self.near


class _End:
    """An end sends one packet at a time, unless one comes to it; it reduces one at a time."""

    def __init__(self, clock, npu, costs, reduction, inner):
        self._clock, self._at, self.costs, self.inner = clock, partial(clock.npu_at, npu), costs, inner
        self.state = self.before = "free"
        self.last, self.in_a_row, self._reduction = 0, 0, reduction
        self.sends, self.comes, self.works, self.busy = deque(), deque(), deque(), False

    def ask(self, size, reduced, back, then):
        packet = {"size": size, "reduced": reduced, "back": back, "then": then}
        if self.inner:
            self.inner.far.ask(size, False, False, partial(self.wait, self.sends, packet))
        else:
            self.wait(self.sends, packet)

    def wait(self, queue, packet):
        queue.append(packet)
        self.work()
        self.go()

    def go(self):
        if self.state != "free" or not self.sends:
            return
        if self.in_a_row > 8 and self.other.sends and self.other.in_a_row <= 8:
            self.other.go()
            return
        packet, (latency, overhead, gap, per_byte) = self.sends.popleft(), self.costs
        since = int(self._clock.now) - self.last
        start = gap - since if self.before == "sending" and overhead + since <= gap else overhead
        through = start + per_byte * (packet["size"] - 1)
        self.other.before, self.other.state, self.other.in_a_row = self.other.state, "receiving", 0
        self.other.comes.append(packet)
        self._at(int(through + latency + overhead), self.other.here)
        self.state = "sending"
        self._at(int(through), self.sent)

    def sent(self):
        self.last, self.before, self.state = int(self._clock.now), self.state, "free"
        self.in_a_row += 1
        self.go()

    def here(self):
        self.last, self.before, packet = int(self._clock.now), self.state, self.comes.popleft()
        self.state = self.state if self.comes else "free"
        if packet["reduced"]:
            packet["reduced"] = False
            self.through_inner(packet, partial(self.wait, self.works, packet), back=True)
        else:
            self.leave(packet)
        self.go()

    def leave(self, packet):
        if packet["back"]:
            packet["back"] = False
            enter = partial(self.wait, self.sends, packet) if self.inner else partial(self.sends.append, packet)
            self.through_inner(packet, enter, back=True)
        else:
            self.through_inner(packet, partial(self.retire, packet), back=False)

    def through_inner(self, packet, then, *, back):
        if self.inner:
            self.inner.near.ask(packet["size"], False, back, then)
        else:
            then()

    def retire(self, packet):
        packet["then"]()
        if self.inner:
            self.go()

    def work(self):
        if self.works and not self.busy:
            self.busy = True
            self._at(self.works[0]["size"] // 100 * self._reduction + 50, self.worked)

    def worked(self):
        self.busy = False
        self.leave(self.works.popleft())
        self.work()
        self.go()


class Phase:
    """What a chunk does on an NPU in one dimension.

    `npu` has a `port`, a `bus` or None, a `clock`, `endpoint_delay`, `reduction(size)` and `phase_done(stream)`. A
    `local` phase is one of a communicator.
    """

    def __init__(self, npu, stream, kind, members, direction, data, local):
        self.npu, self.stream, self.kind, self.members = npu, stream, kind, members
        self.direction, self.data, self.local = direction, data, local
        self.n, self.index = len(members), members.index(npu.id)
        self.delay = 10 if local else npu.endpoint_delay

    def send(self, to, size):
        self.npu.port.send(self.members[to % self.n], size, TAGS + self.stream.id % TAGS)

    def receive(self, source, size):
        self.npu.port.receive(self.members[source % self.n], size, TAGS + self.stream.id % TAGS, self.on_receive)

    def process(self, size, reduce, then, *, to_memory=False, back=False):
        """The endpoint delay or the way over the bus, then the reduction, then `then`."""
        clock, npu = self.npu.clock, self.npu.id
        if self.npu.bus and not self.local:
            own = partial(clock.npu_at, npu, self.npu.reduction(size), then) if reduce else then
            (self.npu.bus.near if to_memory else self.npu.bus.far).ask(size, reduce, back, own)
        elif reduce:
            clock.npu_at(npu, self.delay, lambda: clock.npu_at(npu, self.npu.reduction(size), then))
        else:
            clock.npu_at(npu, self.delay, then)

    def done(self):
        self.npu.phase_done(self.stream)


class Ring(Phase):
    """A packet for every message received gives a credit, which allows the next message and its receive."""

    def __init__(self, *args):
        super().__init__(*args)
        n, kind = self.n, self.kind
        self.parallel, self.batch = 1, n - 1
        self.to, self.source = self.index + self.direction, self.index - self.direction
        self.message = self.data if kind == "ALL_GATHER" else self.data // n
        self.sends = {"ALL_REDUCE": 2 * (n - 1), "ALL_TO_ALL": n * (n - 1) // 2}.get(kind, n - 1)
        self.credits = self.zero = self.nonzero = self.got = 0
        self.toggle = False
        self.packets = deque()

    def start(self):
        for _ in range(self.parallel):
            self.inject()

    def inject(self):
        if self.zero == 0 and self.nonzero == 0:
            self.zero, self.nonzero, self.toggle = self.parallel, self.batch, not self.toggle
        self.packets.append((self.source, self.to, self.message))
        first, reduce, back = self.zero > 0, False, False
        if first:
            self.zero -= 1
        else:
            reduce = self.kind == "REDUCE_SCATTER" or (self.kind == "ALL_REDUCE" and self.toggle)
            back = self.nonzero > self.parallel
            self.nonzero -= 1
        self.process(self.message, reduce, self.credit, to_memory=first, back=back)
        self.next_peer()

    def next_peer(self):
        """Rings keep theirs."""

    def credit(self):
        self.credits += 1
        self.try_send()
        self.end_test()

    def end_test(self):
        if self.sends == 0 and self.credits == self.parallel:
            self.done()

    def try_send(self):
        if self.packets and self.sends and self.credits:
            source, to, size = self.packets.popleft()
            self.send(to, size)
            self.receive(source, size)
            self.sends -= 1
            self.credits -= 1

    def on_receive(self):
        self.got += 1
        self.inject()


class Direct(Ring):
    """Everybody to everybody, a window of messages at once."""

    def __init__(self, window, *args):
        super().__init__(*args)
        self.parallel = min(window or self.n, self.n - 1)
        self.batch = (self.n - 1) * self.parallel if self.local else self.parallel
        self.sends = 2 * (self.n - 1) if self.kind == "ALL_REDUCE" else self.n - 1

    def next_peer(self):
        self.to, self.source = self.to + self.direction, self.source - self.direction
        if self.to % self.n == self.index:
            self.to, self.source = self.to + self.direction, self.source - self.direction

    def credit(self):
        if self.kind != "ALL_REDUCE" or self.sends > self.n - 1:
            super().credit()
            return
        self.credits += 1
        if self.got >= self.n - 1:
            for _ in range(self.parallel):
                self.try_send()
            self.end_test()


class HalvingDoubling(Ring):
    """Partners at doubled distances, messages of half the size, and back."""

    def __init__(self, *args):
        super().__init__(*args)
        if self.kind == "ALL_TO_ALL" or self.n & (self.n - 1):
            raise RefusalError(f"halvingDoubling cannot {self.kind} among {self.n}")
        steps = self.n.bit_length() - 1
        self.batch, self.sends = steps - 1, steps * (2 if self.kind == "ALL_REDUCE" else 1)
        self.growing = self.kind != "ALL_GATHER"
        self.offset = 1 if self.growing else self.n // 2
        self.message = self.data // 2 if self.growing else self.data
        self.partner()

    def partner(self):
        if self.offset:
            away = self.offset if self.index // self.offset % 2 == 0 else -self.offset
            self.to = self.source = self.index + away

    def next_peer(self):
        if self.growing:
            self.offset, self.message = self.offset * 2, self.message // 2
        if not self.growing or (self.offset == self.n and self.kind == "ALL_REDUCE"):
            self.growing = False
            self.offset, self.message = self.offset // 2, self.message * 2
        self.partner()


class Tree(Phase):
    """A full all-reduce over one of two binary trees, whatever is asked for."""

    def __init__(self, highest, *args):
        super().__init__(*args)
        if self.n & (self.n - 1):
            raise RefusalError(f"doubleBinaryTree among {self.n}")
        self.parent, self.children = tree(self.n, highest)[self.index]
        self.reduced, self.came, self.waiting = 0, 0, bool(self.children)

    def start(self):
        for child in self.children:
            self.receive(child, self.data)
        if not self.children:
            self.process(self.data, False, self.up, to_memory=True)

    def up(self):
        self.send(self.parent, self.data)
        self.receive(self.parent, self.data)
        self.waiting = False

    def on_receive(self):
        if self.waiting:
            self.came += 1
            self.process(self.data, True, self.child_reduced, back=self.came == len(self.children))
        elif self.children:
            self.process(self.data, True, self.down, back=True)
        else:
            self.process(self.data, False, self.done)

    def child_reduced(self):
        self.reduced += 1
        if self.reduced == len(self.children):
            self.down() if self.parent is None else self.up()

    def down(self):
        for child in self.children:
            self.send(child, self.data)
        self.done()


def tree(n, highest):
    """Parent and children of each member: a root at one end, a perfect tree in order over the others."""
    table = {}

    def build(low, high, parent):
        if low > high:
            return []
        middle = (low + high) // 2
        table[middle] = parent, build(low, middle - 1, middle) + build(middle + 1, high, middle)
        return [middle]

    root = n - 1 if highest else 0
    table[root] = None, build(0, n - 2, root) if highest else build(1, n - 1, root)
    return table


class Queues:
    """The queues of an NPU's dimensions: chunks begin in order while fewer than `concurrency` run.

    `insert(queue, stream)` puts a chunk into its place, `begin(stream)` lets it begin; a stream has `plan`, a deque of
    (queue, what makes the phase).
    """

    def __init__(self, concurrency, insert, begin):
        self._concurrency, self._insert, self._begin = concurrency, insert, begin
        self._queues, self._running = defaultdict(list), defaultdict(int)

    def enter(self, stream):
        """Wait for the first phase."""
        self._move(stream)
        self._refill(stream.queue)

    def leave(self, stream, last):
        """A phase is over; `last` is told if it was the last, before anything else."""
        old = stream.queue
        if not stream.plan:
            last()
        self._queues[old].remove(stream)
        self._running[old] -= 1
        if stream.plan:
            self._move(stream)
            self._refill(old)
        self._refill(stream.queue)

    def _move(self, stream):
        stream.queue, stream.make = stream.plan.popleft()
        stream.started = False
        self._insert(self._queues[stream.queue], stream)

    def _refill(self, name):
        queue = self._queues[name]
        while self._running[name] < min(len(queue), self._concurrency):
            stream = queue[self._running[name]]
            self._running[name] += 1
            stream.started = True
            self._begin(stream)


def play(stream):
    """Begin the phase that a chunk waits for."""
    stream.make().start()


def algorithm(name, mirrored):
    """What plays a phase by an algorithm's name; `mirrored()` says whether a tree is the lower one."""
    if name == "doubleBinaryTree":
        lower = mirrored()
        return lambda *args: Tree(not lower, *args)
    if name.startswith("direct"):
        return lambda *args: Direct(int(name[6:] or 0), *args)
    return {"ring": Ring, "halvingDoubling": HalvingDoubling}[name]


def alone(name):
    """The algorithm in a name like oneRing."""
    return name[3].lower() + name[4:]
