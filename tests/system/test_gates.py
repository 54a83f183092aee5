"""A gang looks only at the first chunk of each place, and decides as if it looked at all that wait."""

from dataclasses import dataclass
from operator import itemgetter

from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.instant import DECISION, Environment, after
from simcore.system.chunks.scheduler import GANG_ORDERS, Gang

WIDTH, HEIGHT = 3, 2  # classes in a plane: each has a row and a column, with a queue for either


@dataclass(frozen=True)
class Lane:
    dim: int


@dataclass(frozen=True)
class Phase:
    queue: int
    largest_bytes: int
    lane: Lane


class Chunk:
    """What a gate asks of a stream; a phase of no length ends in the call that begins it."""

    def __init__(self, number, priority, visits, issue_ns):
        self.key, self.at, self.priority, self.visits = ("", number), 0, priority, visits
        self.dataset, self.came = self, (issue_ns, number % 2)

    @property
    def phase(self):
        queue, size_bytes, _ = self.visits[self.at]
        return Phase(queue, size_bytes, Lane(queue))

    @property
    def remaining(self):
        return len(self.visits) - self.at - 1

    def advance(self):
        self.at += 1


def group_of(npu_class, dim):
    x, y = npu_class % WIDTH, npu_class // WIDTH
    if dim == 0:
        return ("row", y), [WIDTH * y + other for other in range(WIDTH)]
    return ("column", x), [x + WIDTH * other for other in range(HEIGHT)]


class AllThatWait:
    """The rule in full: whenever something has changed, everything that waits is tried in order."""

    def __init__(self, env, limit, order, begin):
        self.env, self.limit, self.order, self.begin = env, limit, order, begin
        self.there, self.waiting, self.running, self.count, self.changed = {}, [], {}, 0, False

    def enter(self, npu_class, streams):
        for stream in streams:
            self.offer(npu_class, stream)

    def move(self, npu_class, stream):
        self.leave(npu_class, stream)
        stream.advance()
        self.offer(npu_class, stream)

    def offer(self, npu_class, stream):
        name, classes = group_of(npu_class, stream.phase.lane.dim)
        there = self.there.setdefault((stream.key, stream.at, name), {})
        there[npu_class] = stream
        if len(there) == len(classes):
            self.count += 1
            order = (*min(map(self.order, there.values())), *min(each.came for each in there.values()))
            rank = (stream.phase.queue, *order, stream.key, stream.at, classes[0], self.count)
            self.waiting.append((rank, stream.phase.queue, there))
            self.change()

    def leave(self, npu_class, stream):
        self.running[npu_class, stream.phase.queue] -= 1
        self.change()

    def change(self):
        if not self.changed:
            self.changed = True
            after(self.env, 0, self.settle, DECISION)

    def settle(self):
        self.changed, waiting, self.waiting = False, sorted(self.waiting, key=lambda entry: entry[0]), []
        for entry in waiting:
            _, queue, there = entry
            if any(self.running.get((member, queue), 0) == self.limit for member in there):
                self.waiting.append(entry)
                continue
            for member in there:
                self.running[member, queue] = self.running.get((member, queue), 0) + 1
            self.begin({member: there[member] for member in sorted(there)})


def begun(make, limit, order, chunks):
    """What begins when, in order; `chunks` are (issue time, late classes, priority, visits of (queue, bytes, ns))."""
    env = Environment()
    log = []

    def leave(npu_class, chunk):
        (gang.move if chunk.remaining else gang.leave)(npu_class, chunk)

    def begin(chunks):
        for npu_class, chunk in sorted(chunks.items(), key=itemgetter(0)):
            log.append((int(env.now), npu_class, chunk.key, chunk.at))
        for npu_class, chunk in sorted(chunks.items(), key=itemgetter(0)):
            duration_ns = chunk.visits[chunk.at][2]
            if duration_ns:
                after(env, duration_ns, lambda npu_class=npu_class, chunk=chunk: leave(npu_class, chunk))
            else:
                leave(npu_class, chunk)

    gang = make(env, limit, GANG_ORDERS[order], begin)
    for npu_class in range(WIDTH * HEIGHT):
        for number, (time_ns, late, priority, visits) in enumerate(chunks):
            if visits:
                issue_ns = time_ns + (npu_class in late)
                chunk = Chunk(number, priority + npu_class % 2, visits, issue_ns)
                after(
                    env,
                    issue_ns,
                    lambda npu_class=npu_class, chunk=chunk: gang.enter(npu_class, [chunk]),
                )
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
    usual = begun(
        lambda env, limit, order, begin: Gang(env, limit, order, group_of, lambda _: None, begin), limit, order, chunks
    )
    assert usual == begun(AllThatWait, limit, order, chunks)
    assert len(usual) == WIDTH * HEIGHT * sum(len(visits) for *_, visits in chunks)
