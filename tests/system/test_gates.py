"""A gang looks only at the first chunk of each place, and decides as if it looked at all that wait."""

from dataclasses import dataclass

import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.instant import after, at_end_of_instant
from simcore.system.gates import GANG_ORDERS, Gang

WIDTH, HEIGHT = 3, 2  # classes in a plane: each has a row and a column, with a queue for either


@dataclass
class Phase:
    queue: int
    largest_bytes: int


class Chunk:
    """What a gate asks of a stream; a phase of no length ends in the call that begins it."""

    def __init__(self, number, priority, visits):
        self.key, self.at, self.priority, self.visits = ("", number), 0, priority, visits

    @property
    def phase(self):
        return Phase(self.visits[self.at][0], self.visits[self.at][1])

    @property
    def remaining(self):
        return len(self.visits) - self.at - 1


def group_of(npu_class, stream):
    x, y = npu_class % WIDTH, npu_class // WIDTH
    if stream.phase.queue == 0:
        return ("row", y), [WIDTH * y + other for other in range(WIDTH)]
    return ("column", x), [x + WIDTH * other for other in range(HEIGHT)]


class AllThatWait:
    """The rule in full: whenever something has changed, everything that waits is tried in order."""

    def __init__(self, env, limit, order):
        self.env, self.limit, self.order = env, limit, order
        self.there, self.waiting, self.running, self.begin, self.count, self.changed = {}, [], {}, {}, 0, False

    def gate(self, npu_class, begin):
        self.begin[npu_class] = begin
        return self

    def offer(self, npu_class, stream):
        name, classes = group_of(npu_class, stream)
        there = self.there.setdefault((stream.key, stream.at, name), {})
        there[npu_class] = stream
        if len(there) == len(classes):
            self.count += 1
            rank = (stream.phase.queue, *self.order(stream), stream.key, stream.at, classes[0], self.count)
            self.waiting.append((rank, stream.phase.queue, there))
            self.change()

    def release(self, npu_class, queue):
        self.running[npu_class, queue] -= 1
        self.change()

    def change(self):
        if not self.changed:
            self.changed = True
            at_end_of_instant(self.env, 0, self.settle)

    def settle(self, _):
        self.changed, waiting, self.waiting = False, sorted(self.waiting, key=lambda entry: entry[0]), []
        for entry in waiting:
            _, queue, there = entry
            if any(self.running.get((member, queue), 0) == self.limit for member in there):
                self.waiting.append(entry)
                continue
            for member in there:
                self.running[member, queue] = self.running.get((member, queue), 0) + 1
            for member in sorted(there):
                self.begin[member](there[member])


def begun(make, limit, order, chunks):
    """What begins when, in order; `chunks` are (issue time, late classes, priority, visits of (queue, bytes, ns))."""
    env = simpy.Environment()
    gang, log = make(env, limit, GANG_ORDERS[order]), []

    def enter(npu_class, chunk):
        if chunk.at < len(chunk.visits):
            gang.offer(npu_class, chunk)

    def leave(npu_class, chunk):
        gang.release(npu_class, chunk.phase.queue)
        chunk.at += 1
        enter(npu_class, chunk)

    def begin(npu_class, chunk):
        log.append((int(env.now), npu_class, chunk.key, chunk.at))
        duration_ns = chunk.visits[chunk.at][2]
        if duration_ns:
            after(env, duration_ns, lambda _: leave(npu_class, chunk))
        else:
            leave(npu_class, chunk)

    for npu_class in range(WIDTH * HEIGHT):
        gang.gate(npu_class, lambda chunk, npu_class=npu_class: begin(npu_class, chunk))
        for number, (time_ns, late, priority, visits) in enumerate(chunks):
            chunk = Chunk(number, priority, visits)
            after(env, time_ns + (npu_class in late), lambda _, c=npu_class, chunk=chunk: enter(c, chunk))
    env.run()
    return log


VISITS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=4, unique_by=lambda v: v[0]
)
CHUNKS = st.lists(
    st.tuples(st.integers(0, 6), st.sets(st.integers(0, 5), max_size=2), st.integers(0, 2), VISITS), max_size=12
)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 3), st.sampled_from(sorted(GANG_ORDERS)), CHUNKS)
def test_what_begins_is_what_begins_when_all_that_waits_is_tried(limit, order, chunks):
    usual = begun(lambda *given: Gang(*given, group_of), limit, order, chunks)
    assert usual == begun(AllThatWait, limit, order, chunks)
    assert len(usual) == WIDTH * HEIGHT * sum(len(visits) for *_, visits in chunks)
