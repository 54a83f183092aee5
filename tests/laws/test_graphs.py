"""Laws of native graphs: drawn ones end, and take what their messages take."""

import json
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import Ports
from simcore.profiles import profiles
from simcore.timeline.events import EventKind
from simcore.workload.chakra.builder import GraphBuilder, GraphNode
from simcore.workload.model import ALL_DIMENSIONS, CollectiveKind, Graph, GraphSet, NodeKind
from tests.runs import machines

WHOLE = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "broadcast", "gather"]
SIZES = st.sampled_from([1, 64, 5000, 65536])


@st.composite
def graphs(draw, topology: Topology):
    """Computations, collectives of communicators along a dimension or of all, and messages, in an order that can be."""
    npus, made = topology.npus, simcore.graph(topology.npus)
    nodes: list[GraphNode] = []

    def before(on: set[int]) -> list[GraphNode]:
        fitting = [node for node in nodes if on <= node.npus]
        return draw(st.lists(st.sampled_from(fitting), max_size=2)) if fitting else []

    for tag in range(draw(st.integers(4, 14))):
        what = draw(st.sampled_from(["compute", "compute", "collective", "collective", "message"]))
        if what == "compute":
            on = draw(st.sets(st.integers(0, npus - 1), min_size=1))
            nodes.append(made.compute(draw(st.sampled_from([0, 10, 1000, 50_000])), on=on, depends=before(on)))
        elif what == "collective":
            kind, size = draw(st.sampled_from(WHOLE)), draw(SIZES)
            for ranks in draw(st.sampled_from([*_rows(topology), [range(npus)]])):
                root = ranks[-1] if kind in {"broadcast", "gather"} else None
                moved = 0 if kind == "barrier" else size
                nodes.append(made.collective(kind, moved, on=ranks, depends=before({*ranks}), root=root))
        elif npus > 1:
            src, dst = draw(st.permutations(range(npus)))[:2]
            size = draw(SIZES)
            nodes.append(made.send(src, dst, size, tag=tag, depends=before({src})))
            nodes.append(made.recv(src, dst, size, tag=tag, depends=before({dst})))
    return made


def _rows(topology: Topology) -> list[list[range]]:
    """The communicators along each dimension."""
    found = []
    for dim, stride in zip(topology.dims, topology.strides, strict=True):
        firsts = [npu for npu in range(topology.npus) if npu // stride % dim.npus == 0]
        found.append([range(npu, npu + dim.npus * stride, stride) for npu in firsts])
    return found


@st.composite
def runs(draw):
    """A graph, a machine, and options of the run."""
    topology = draw(machines(("Ring", "Switch", "FullyConnected", "Mesh"), most_npus=12))
    options = {
        "network": draw(st.sampled_from(["congested", "congested", "congestion-free", "queued"])),
        "queues_per_dim": draw(st.sampled_from([1, 2])),
        "straggler": draw(st.sampled_from([None, f"{topology.npus - 1}=3"])),
    }
    return draw(graphs(topology)), topology, options


def finished(made: GraphBuilder, topology: Topology, **options: object) -> dict[str, object]:
    """What a run comes to, NPU by NPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = simcore.run(made, topology, **{name: value for name, value in options.items() if value})
    timeline = report.timeline
    table, ends = timeline.links, zip(timeline.ranks, timeline.finish_ns, strict=True)
    carried = table and (table.size_bytes.tolist(), table.busy_ns.tolist())
    finish_ns = {int(npu): end_ns for npus, end_ns in ends for npu in npus}
    return {"shares": report.to_dict()["breakdown"], "finish_ns": finish_ns, "carried": carried}


@settings(deadline=None, max_examples=120)
@given(runs())
def test_a_graph_ends_and_takes_what_its_messages_take(run):
    """No order in which nodes become ready is a deadlock: members of a communicator agree, whatever they compute."""
    made, topology, options = run
    assert finished(made, topology, **options) == finished(made, topology, **options, exact="messages")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=2, max_size=4),
    st.sampled_from([(5e9, 10.0), (1e12, 0.0)]),
    st.sampled_from(["congested", "queued"]),
)
def test_messages_of_one_tag_that_are_sent_at_once_go_in_that_order(rounds, link, network):
    """Each round begins when all messages of the one before are there."""
    made, sent, received = simcore.graph(4), [], []
    for sizes in rounds:
        sent, received = (
            [end(0, 2, size, depends=before) for size in sizes]
            for end, before in ((made.send, sent), (made.recv, received))
        )
    topology = Topology((Dimension("FullyConnected", 4, *link),))
    timelines = [simcore.run(made, topology, network=network, exact=exact).timeline for exact in ("", "messages")]
    told, oracle = ([*each.events.rows("start_ns", "end_ns", "kind", "size_bytes")] for each in timelines)
    assert told == oracle


@st.composite
def rows_of_collectives(draw):
    """Collectives along dimensions, each by some of the rows of its dimension, and of all, with computation between."""
    topology = Topology(tuple(Dimension("Ring", draw(st.sampled_from([2, 3, 4])), 1e9, 500.0) for _ in range(2)))
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        kind, size, dim = draw(st.sampled_from(WHOLE[:4])), draw(SIZES), draw(st.sampled_from([0, 1, None]))
        some = [range(topology.npus)] if dim is None else _rows(topology)[dim]
        rows = draw(st.lists(st.sampled_from(some), unique=True, min_size=len(some) if dim is None else 0))
        steps.append((draw(st.sampled_from([0, 1000])), kind, size, dim, rows))
    return topology, steps


@settings(deadline=None, max_examples=60)
@given(rows_of_collectives(), st.sampled_from(["congested", "congestion-free"]), st.sampled_from(["", "messages"]))
def test_a_row_that_a_trace_gives_by_its_dimension_is_a_communicator(run, network, exact):
    """Rows may do more or less than others: what they do next is nobody's but their own."""
    topology, steps = run
    named = simcore.graph(topology.npus)
    own: list[list[dict[str, object]]] = [[] for _ in range(topology.npus)]
    for compute_ns, kind, size, dim, rows in steps:
        for row in rows:
            named.compute(compute_ns, on=row)
            named.collective(kind, size, on=row)
            code, mask = list(CollectiveKind).index(CollectiveKind(kind)), ALL_DIMENSIONS if dim is None else 1 << dim
            for npu in row:
                own[npu].append({"kind": NodeKind.COMPUTE, "duration_ns": compute_ns})
                node = {"kind": NodeKind.COLLECTIVE, "collective": code, "size_bytes": size, "dims": mask}
                own[npu].append(node)
    masked = GraphSet(tuple(Graph.of(*nodes) for nodes in own), np.arange(topology.npus, dtype=np.int32))
    expected, found = (
        simulate(graphs, topology, None, profiles.get("native"), Settings(network=network, exact=exact))
        for graphs in (named.graphs(), masked)
    )
    assert _ends(found) == _ends(expected)


def _ends(timeline):
    ends = zip(timeline.ranks, timeline.finish_ns, strict=True)
    return {int(npu): end_ns for npus, end_ns in ends for npu in npus}


def test_rounds_that_take_no_time_come_between_those_of_others():
    """A scatter of shares of no byte, on links without latency, while a collective that takes time begins."""
    made, topology = simcore.graph(4), Topology((Dimension("FullyConnected", 4, 12.5e9, 0.0),))
    pairs = [made.collective("barrier", on=pair) for pair in ((0, 1), (2, 3))]
    reduced = made.collective("reduce", 0, root=3)
    shared = made.collective("reduce_scatter", 1, depends=[reduced])
    made.compute(on=[0, 2, 3])
    made.compute(10, on=3, depends=pairs[1:])
    made.collective("all_gather", 1, depends=[shared])
    assert finished(made, topology) == finished(made, topology, exact="messages")


PAIRS = [
    (0, 2, 6, 8, 9, 10, 12, 13, 14, 15),
    (10, 4, 0, 1, 6, 7, 2, 3, 5, 11, 13),
    (0, 1, 4, 5, 6, 7),
    (0, 1, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14, 15),
]
MOMENTS = {
    "a root is through at once": ("FullyConnected8 FatTree3", [("scatter", 4096, 0), ("all_gather", 1, (0, 8, 16))]),
    "the last link takes no time": (
        "Ring4 Switch3",
        [("scatter", 1, 7), ("all_to_all", 1), ("all_gather", 12, (0, 4, 8))],
    ),
    "alone in the first round": (
        "Ring5",
        [("scatter", 1, 1), ("broadcast", 1, (3, 0)), ("all_gather", 1, (4, 0, 3, 2, 1))],
    ),
    "in the same round": ("Mesh5", [("all_to_all", 1, (0, 1, 2, 3, 4)), ("all_gather", 1), ("all_gather", 1, (2, 3))]),
    "a phase is idle": ("Switch4 Switch2", [("all_gather", 2, PAIRS[2]), ("reduce", 1, 6), ("all_gather", 1)]),
    "leaves with others": ("Ring4", [("gather", 1, 2), ("scatter", 3, 2, (0, 2)), ("barrier", 0, (0, 3))]),
    "begins behind heads": (
        "Mesh2 Switch4 Ring2",
        [("all_reduce", 1), ("broadcast", 1, 1), ("all_gather", 2, PAIRS[3])],
    ),
    "foreseen": ("Ring4 Mesh4", [("all_reduce", 1, PAIRS[0]), ("all_gather", 1, PAIRS[1])]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_takes_no_time_happens_in_the_order_of_its_messages(moment, tmp_path):
    """Within a nanosecond: ranks that leave without a message come before heads move, heads of one round together."""
    dims, sent = MOMENTS[moment]
    sizes = [(dim[:-1], int(dim[-1])) for dim in dims.split()]
    topology = Topology(tuple(Dimension(kind, npus, 50e9, 0.5 * (npus == 4)) for kind, npus in sizes))
    made = simcore.graph(topology.npus)
    for kind, size, *where in sent:
        root = next((place for place in where if isinstance(place, int)), None)
        on = next((place for place in where if isinstance(place, tuple)), None)
        made.collective(kind, size, on=on, root=on[0] if on and kind == "broadcast" else root)
    system = tmp_path / "system.yaml"
    system.write_text("active-chunks-per-dimension: 2\ninter-dimension-scheduling: roundRobin\n")
    for queues, file in product((1, 2), (None, system)):
        options = {"system": file, "queues_per_dim": queues}
        assert finished(made, topology, **options) == finished(made, topology, **options, exact="messages")


def test_who_leaves_behind_heads_begins_behind_those_of_who_is_alone(tmp_path):
    """A second round of no byte ends where nothing else happens; a ring that nobody met has moved its heads by then."""
    made, topology = simcore.graph(16), Topology(tuple(Dimension(dim, 4, 1e8, 0.0) for dim in ("Switch", "Ring")))
    made.collective("all_gather", 1, on=[0, 4, 8, 12])
    made.compute(100, depends=[made.collective("reduce_scatter", 2)])
    system = tmp_path / "system.json"
    rules = {"reduce-scatter-implementation": ["halvingDoubling", "ring"], "preferred-dataset-splits": 1}
    system.write_text(json.dumps(rules | {"active-chunks-per-dimension": 2}))
    assert finished(made, topology, system=system) == finished(made, topology, system=system, exact="messages")


PORTS = Ports(buffer_bytes=1 << 18, segment_bytes=4096)


def test_what_begins_in_the_middle_of_an_instant_moves_at_its_end():
    """Messages of no byte have moved already, over queues, when a message meets a collective that begins with it."""
    made, topology = simcore.graph(2), Topology((Dimension("Ring", 2, 50e9, 0.0, ports=PORTS),))
    nothing = made.collective("all_to_all", 1)
    made.send(0, 1, 200_000, tag=1, depends=[nothing])
    made.recv(0, 1, 200_000, tag=1)
    made.collective("all_gather", 200_000, on=[0, 1])
    assert finished(made, topology, network="queued") == finished(made, topology, network="queued", exact="messages")


def test_nothing_of_a_phase_comes_back_in_the_next():
    """Congestion control begins anew in each phase, also where the last messages before it have no bytes."""
    swift = Ports(law="swift", segment_bytes=1024)
    made, topology = simcore.graph(4), Topology((Dimension("Mesh", 4, 50e9, 500.0, ports=swift),))
    made.collective("all_gather", 150_000, depends=[made.collective("all_to_all", 1)])
    assert finished(made, topology, network="queued") == finished(made, topology, network="queued", exact="messages")


@pytest.mark.parametrize("exact", ["", "messages"])
def test_of_what_is_ready_in_one_nanosecond_the_lowest_node_begins(exact, tmp_path):
    """A scatter and a message end together on NPU 4, in whichever order their messages are told."""
    made, topology = simcore.graph(5), Topology((Dimension("Ring", 5, 50e9, 0.0),))
    scattered = made.collective("scatter", 8, root=2)
    made.send(3, 4, 5, tag=1)
    received = made.recv(3, 4, 5, tag=1)
    made.compute(7, on=4, depends=[scattered])
    made.compute(3, on=4, depends=[received])
    system = tmp_path / "system.yaml"
    system.write_text("active-chunks-per-dimension: 2\n")
    events = simcore.run(made, topology, system=system, exact=exact).timeline.events
    rows = zip(events.start_ns.tolist(), events.end_ns.tolist(), events.kind.tolist(), strict=True)
    assert [(start, end) for start, end, kind in rows if kind == EventKind.COMPUTE] == [(1, 8), (8, 11)]
