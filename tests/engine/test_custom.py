"""Collectives that are execution traces: their sends, receives and computations take a collective's place."""

import numpy as np
import pytest

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.generate.collectives import collective
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system import config
from simcore.timeline.events import EventKind
from simcore.workload.chakra import writer
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind
from tests.graphs import graph, node
from tests.runs import micro

NPUS, SIZE = 4, 4000
RING = Topology((Dimension("Ring", NPUS, 25e9, 500.0),))
NUMBERS = list(CollectiveKind)
PROFILES = ("native", "astra-sim-2")


def ring_program(rank, reduce_micros):
    """What a rank of a ring all-reduce does: a send, a receive and the reduction, again and again."""
    nodes, before = [], []
    for step in range(2 * (NPUS - 1)):
        number = 3 * step
        ends = {"comm_dst": (rank + 1) % NPUS, "comm_src": rank}, {"comm_src": (rank - 1) % NPUS, "comm_dst": rank}
        kinds = (NodeKind.SEND, NodeKind.RECV)
        for at, (kind, peers) in enumerate(zip(kinds, ends, strict=True)):
            attributes = {"comm_size": SIZE // NPUS, "comm_tag": step} | peers
            nodes.append(writer.node(number + at, f"{kind.name}_{step}", kind, data_deps=before, attributes=attributes))
        last = {"data_deps": [number + 1], "duration_micros": reduce_micros}
        nodes.append(writer.node(number + 2, f"reduce_{step}", NodeKind.COMPUTE, **last))
        before = [number + 2]
    return nodes


def write(folder, *, reduce_micros=0, name="algorithm"):
    for rank in range(NPUS):
        data = writer.encode(writer.metadata(), ring_program(rank, reduce_micros))
        (folder / f"{name}.{rank}.et").write_bytes(data)


def system(folder, text):
    path = folder / "system.yaml"
    path.write_text(text + "\npreferred-dataset-splits: 4\nendpoint-delay: 10\n")
    return config.read(path)


def workload(folder, repeat=1):
    path = folder / "workload.et"
    path.write_bytes(collective(CollectiveKind.ALL_REDUCE, 10**6, repeat=repeat))
    return read_graphs(str(path), NPUS)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", ["congestion-free", "congested"])
@pytest.mark.parametrize("reduce_micros", [0, 3])
def test_it_takes_the_sizes_and_durations_of_its_traces_and_no_endpoint_delay_nor_splits(
    tmp_path, profile, mode, reduce_micros
):
    write(tmp_path, reduce_micros=reduce_micros)
    chosen = system(tmp_path, "all-reduce-implementation-custom: [algorithm]")
    rules = profiles.get(profile)
    timeline = simulate(workload(tmp_path), RING, chosen, rules, Settings(network=mode))
    reduction_ns = reduce_micros * 1000 or rules.graph.shortest_ns
    assert timeline.time_ns == 2 * (NPUS - 1) * (500 + SIZE // NPUS // 25 + reduction_ns)
    events = timeline.events
    assert (events.kind == EventKind.COLLECTIVE).all(), "the node is one collective, whatever it does inside"
    assert events.end_ns.max() == timeline.time_ns


@pytest.mark.parametrize("profile", PROFILES)
def test_nodes_of_its_traces_that_do_nothing_hold_up_nobody(tmp_path, profile):
    for rank in range(NPUS):
        nodes = [writer.node(100 + kind, kind.name, kind) for kind in (NodeKind.INVALID, NodeKind.METADATA)]
        nodes.append(writer.node(0, "last", NodeKind.COMPUTE, data_deps=[100, 101], duration_micros=3))
        (tmp_path / f"algorithm.{rank}.et").write_bytes(writer.encode(writer.metadata(), nodes))
    chosen = system(tmp_path, "all-reduce-implementation-custom: [algorithm]")
    assert simulate(workload(tmp_path), RING, chosen, profiles.get(profile), Settings()).time_ns == 3000


def test_a_node_s_own_traces_come_before_its_collective_s_and_both_before_the_algorithm(tmp_path):
    write(tmp_path)
    write(tmp_path, reduce_micros=7, name="slow")
    (tmp_path / "map.yml").write_text("1: slow\n")
    text = "all-reduce-implementation: [ring]\nall-reduce-implementation-custom: [algorithm]\n"
    chosen = system(tmp_path, text + "per-node-custom-implementation: map.yml")
    timeline = simulate(workload(tmp_path, 2), RING, chosen, profiles.get("native"), Settings())
    fast = 2 * (NPUS - 1) * (500 + SIZE // NPUS // 25)
    assert timeline.time_ns == fast + fast + 2 * (NPUS - 1) * 7000


@pytest.mark.parametrize("profile", PROFILES)
def test_ranks_are_places_in_the_communicator(tmp_path, profile):
    """Place 0 is NPU 3, place 1 is NPU 1: two links of the ring away."""
    for rank, kind, ends in ((0, NodeKind.SEND, {"comm_dst": 1}), (1, NodeKind.RECV, {"comm_src": 0})):
        made = writer.node(0, "message", kind, attributes={"comm_size": SIZE, "comm_tag": 0} | ends)
        (tmp_path / f"algorithm.{rank}.et").write_bytes(writer.encode(writer.metadata(), [made]))
    chosen = system(tmp_path, "all-reduce-implementation-custom: [algorithm]")
    reduced = {"collective": NUMBERS.index(CollectiveKind.ALL_REDUCE), "size_bytes": 64, "group": 1}
    work = graph(node(NodeKind.COLLECTIVE, **reduced), group_names=("", "1"))
    graphs = GraphSet((work, graph()), np.array([1, 0, 1, 0], np.int32), {"1": (3, 1)})
    timeline = simulate(graphs, RING, chosen, profiles.get(profile), Settings())
    assert timeline.time_ns == 2 * 500 + SIZE // 25


def test_what_cannot_be_inside_a_collective_is_refused(tmp_path):
    for rank in range(NPUS):
        (tmp_path / f"algorithm.{rank}.et").write_bytes(collective(CollectiveKind.ALL_REDUCE, 64))
    chosen = system(tmp_path, "all-reduce-implementation-custom: [algorithm]")
    with pytest.raises(InputError, match=r"algorithm.0.et: error: node 'all_reduce_0' cannot be part of a collective"):
        simulate(workload(tmp_path), RING, chosen, profiles.get("native"), Settings())


def test_traces_that_are_not_there_are_named(tmp_path):
    chosen = system(tmp_path, "all-reduce-implementation-custom: [nothing_here]")
    with pytest.raises(InputError, match="nothing_here"):
        simulate(workload(tmp_path), RING, chosen, profiles.get("native"), Settings())


def test_a_text_workload_cannot_have_them(tmp_path):
    write(tmp_path)
    chosen = system(tmp_path, "all-reduce-implementation-custom: [algorithm]")
    with pytest.raises(InputError, match=r"system.yaml:1:35: error: collectives that are execution traces"):
        simulate(micro(CollectiveKind.ALL_REDUCE, 64), RING, chosen, profiles.get("native"), Settings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all-reduce-implementation-custom: [one, two]", "must name one set of traces"),
        ("all-reduce-implementation-custom: []", "must name one set of traces"),
        ("per-node-custom-implementation: bad.yml", "'first' is no node id"),
    ],
)
def test_wrong_keys_are_refused_at_their_place(tmp_path, text, message):
    (tmp_path / "bad.yml").write_text("first: slow\n")
    with pytest.raises(InputError, match=message):
        system(tmp_path, text)
