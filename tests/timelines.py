"""Small synthetic timelines for tests of reports: a data-parallel step, and anything Hypothesis can think of."""

import numpy as np
from hypothesis import strategies as st

from simcore.network.topology.model import Dimension, Topology
from simcore.report.model import Input, Report
from simcore.timeline.events import NO_LAYER, EventBuffer, EventKind, EventTable, LinkTable, Timeline
from simcore.workload.model import Layer, Parallelism, Phase, Workload
from tests.runs import Run

LAYERS = ("Embedding", "attention", "mlp <b>&", "head")
DIMS = (("Ring", 4), ("Switch", 2))


def data_parallel(layers=LAYERS, dims=DIMS, iterations=2, classes=1, chunks=4, scale=1, mix=0):
    """Forward, then backward with a non-blocking all-reduce per layer, each in chunks through every dimension."""
    buffer = EventBuffer()
    finish, spans = [], []
    for npu_class in range(classes):
        now, spans = 0, []
        for iteration in range(iterations):
            start = now
            now = _step(buffer, npu_class, iteration, now, layers, dims, chunks, scale, mix)
            spans.append((start, now))
        finish.append(now)
    npus = int(np.prod([size for _, size in dims]))
    share = npus // classes
    return Timeline(
        events=buffer.table(),
        time_ns=max(finish),
        iterations=tuple(spans),
        ranks=tuple(range(c * share, (c + 1) * share) for c in range(classes)),
        finish_ns=tuple(finish),
        layers=tuple(layers),
        dims=tuple(dims),
        links=LinkTable(("0", "1", "2"), ("1", "2", "0"), np.array([5, 9, 5]), np.array([50, 90, 60])),
        asked=[{"weight_grad": ("all_reduce", 4_000 * scale)} for _ in layers],
    )


def _step(buffer, npu_class, iteration, now, layers, dims, chunks, scale, mix):
    link_free = [now] * len(dims)
    ends = []

    def row(stream, start, end, kind, name, layer, phase, size):
        buffer.append((npu_class, stream, start, end, kind, buffer.name(name), layer, phase, size, iteration))

    for layer, name in enumerate(layers):
        length = (100 + 37 * (layer % 5) + mix * npu_class) * scale
        row(0, now, now + length, EventKind.COMPUTE, name, layer, 0, 0)
        now += length
    for layer in reversed(range(len(layers))):
        length = (150 + 41 * (layer % 7)) * scale
        row(0, now, now + length, EventKind.COMPUTE, layers[layer], layer, 2, 0)
        now += length
        issue = done = now
        for _ in range(chunks):
            at = issue
            for dim in range(len(dims)):
                start = max(at, link_free[dim] - 40 * scale)  # chunks overlap in a dimension, as latency does
                at = start + 60 * scale
                link_free[dim] = at
                row(1 + dim, start, at, EventKind.CHUNK, layers[layer], layer, 2, 1_000 * scale)
            done = max(done, at)
        row(1, issue, done, EventKind.COLLECTIVE, "all_reduce", layer, 2, 4_000 * scale)
        ends.append((layer, done))
    for layer, done in ends:
        if done > now:
            row(0, now, done, EventKind.WAIT, layers[layer], layer, 2, 0)
            now = done
    return now


def pipelined():
    """Two stages of two NPUs each that hand over four micro-batches, each NPU for itself."""
    layer = Layer("block", Phase(1000), Phase(1000), Phase(1000))
    sizes = Parallelism(1, 1, pp=2, vpp=1, gradient_accumulation=4)
    loop = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
    workload = Workload(loop, (layer,) * 4, sizes, "simai", pipeline_bytes=2000)
    topology = Topology((Dimension("Ring", 2, 1e9, 10.0), Dimension("Ring", 2, 1e9, 10.0)))
    return Run(workload, topology).timeline(fold=False)


def messages():
    """NPU 0 sends to NPU 1 twice, once before it listens, once after."""
    buffer = EventBuffer()
    for npu, kind, start, end, number in (
        (1, EventKind.RECV, 0, 90, 0),
        (0, EventKind.SEND, 40, 90, 0),
        (0, EventKind.SEND, 100, 150, 1),
        (1, EventKind.RECV, 200, 210, 1),
    ):
        buffer.message(number, sends=kind == EventKind.SEND)
        buffer.append((npu, 0, start, end, kind, buffer.name(kind.name), NO_LAYER, -1, 50, 0))
    return Timeline(buffer.table(), 210, ((0, 210),), ((0,), (1,)), (150, 210), dims=(("Ring", 2),))


def enormous(num_events=1_000_000, classes=8):
    """A timeline of very many computations on few classes, made of columns at once."""
    each = num_events // classes
    npu_class = np.repeat(np.arange(classes), each)
    start = np.tile(np.arange(each) * 100, classes) + npu_class
    number = np.tile(np.arange(each), classes)
    zero = np.zeros_like(start)
    columns = (
        npu_class,
        zero,
        start,
        start + 40 + number % 50,
        zero,
        number % 300,
        number % 300,
        number % 3,
        zero,
        zero,
    )
    order = np.argsort(start, kind="stable")
    names = tuple(f"layer{index}" for index in range(300))
    time_ns = each * 100 + classes
    return Timeline(
        events=EventTable(names, *(column[order].astype(np.int64) for column in columns)),
        time_ns=time_ns,
        iterations=((0, time_ns),),
        ranks=tuple(range(8 * c, 8 * c + 8) for c in range(classes)),
        finish_ns=(time_ns,) * classes,
        layers=names,
        dims=(("Ring", 8 * classes),),
    )


def report(**options):
    """A report on `data_parallel`."""
    inputs = (Input("workload", "w.txt", "0" * 64), Input("topology", "t.yaml", "1" * 64))
    return Report(data_parallel(**options), "native", "congested", inputs, ("a <warning>",))


@st.composite
def timelines(draw, max_events=25):
    """Any timeline: two classes, three layers, two dimensions, events wherever they like."""
    classes, horizon = draw(st.integers(1, 3)), 200
    row = st.tuples(
        st.integers(0, classes - 1),
        st.integers(0, 2),
        st.integers(0, horizon),
        st.integers(0, 80),
        st.sampled_from(list(EventKind)),
        st.integers(NO_LAYER, 2),
        st.integers(-1, 2),
        st.integers(0, 1000),
    )
    buffer = EventBuffer()
    for npu_class, stream, start, length, kind, layer, phase, size in draw(st.lists(row, max_size=max_events)):
        name = buffer.name(f"{kind.name}{layer}")
        buffer.append((npu_class, stream, start, start + length, kind, name, layer, phase, size, 0))
    events = buffer.table()
    time_ns = int(events.end_ns.max(initial=0)) + draw(st.integers(0, 50))
    finish = tuple(int(events.end_ns[events.npu_class == c].max(initial=0)) for c in range(classes))
    ranks = tuple(tuple(range(c, 6, classes)) for c in range(classes))
    return Timeline(events, time_ns, ((0, time_ns),), ranks, finish, ("a", "b", "c"), DIMS[:2])
