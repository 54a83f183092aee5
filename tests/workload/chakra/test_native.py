"""The graph of a text workload takes natively exactly as long as its training loop, for every loop."""

from dataclasses import replace
from math import prod
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.workload.chakra import reader, variants
from simcore.workload.chakra.convert import text
from simcore.workload.chakra.convert.native import convert
from simcore.workload.loops import loops
from simcore.workload.model import CollectiveKind, Dialect, Group, Layer, Parallelism, Phase, Workload

PHASES = st.builds(
    Phase,
    st.sampled_from([0, 1000, 5000, 20000]),
    st.sampled_from(list(CollectiveKind)[:4]),
    st.sampled_from([0, 3, 1000, 4096, 1 << 20]),
)
LAYERS = st.builds(
    Layer,
    st.sampled_from(["a", "b"]),
    PHASES,
    PHASES,
    PHASES,
    st.sampled_from([0, 700]),
    loop=st.just("HYBRID_DATA_MODEL"),
)


@st.composite
def workloads(draw, loop, tp, dialect="astra-sim"):
    layers = tuple(draw(st.lists(LAYERS, min_size=2, max_size=5)))
    return Workload(
        loop,
        layers,
        Parallelism(tp=tp),
        last_bottom_layer=draw(st.integers(0, len(layers) - 1)),
        checkpoints=(0,),
        checkpoint_initiates=(len(layers) - 1,),
        dialect=dialect,
    )


@pytest.mark.parametrize("loop", loops.names())
@given(st.data())
@settings(max_examples=16, deadline=None)
def test_the_graph_takes_as_long_as_the_loop(tmp_path_factory, loop, data):
    """Groups of the header are whole dimensions: none, the first, all."""
    sizes = data.draw(st.sampled_from([(2, 4), (4,), (2, 2, 2), (1,), (1, 4)]))
    tp, dialect = data.draw(st.sampled_from([1, sizes[0], prod(sizes)])), data.draw(st.sampled_from(get_args(Dialect)))
    workload = data.draw(workloads(loop, tp, dialect))
    kinds = st.sampled_from(["Ring", "Switch", "FullyConnected"])
    topology = Topology(tuple(Dimension(data.draw(kinds), size, 50e9, 500.0) for size in sizes))
    passes, policy = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(["LIFO", "FIFO"]))
    native = profiles.get("native")
    system = replace(native.system(topology), scheduling_policy=policy)
    folder = tmp_path_factory.mktemp("native")
    for rank, content in enumerate(convert(workload, sizes, passes, policy=policy)):
        (folder / f"w.{rank}.et").write_bytes(content)
    graphs = reader.read_graphs(str(folder / "w"), topology.npus)
    assert len(graphs.graphs) == 1
    explicit = replace(system, scheduling_policy="EXPLICIT")
    of_graph = simulate(graphs, topology, explicit, native, Settings())
    assert of_graph.time_ns == simulate(workload, topology, system, native, Settings(iterations=passes)).time_ns


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_the_graphs_of_a_pipeline_take_as_long_as_its_stages(tmp_path_factory, data):
    sizes = data.draw(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]), st.integers(2, 4)))
    rows, count = data.draw(st.lists(LAYERS, min_size=1, max_size=2)), data.draw(st.integers(1, 4))
    blocks = tuple(replace(row, loop="") for row in rows) * count
    parallelism = Parallelism(tp=sizes[0], pp=sizes[2], gradient_accumulation=count)
    schedule = data.draw(st.sampled_from(["", "gpipe", "zb-h1"]))
    loop = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
    workload = Workload(loop, blocks, parallelism, pipeline_bytes=data.draw(st.integers(1, 10**6)), schedule=schedule)
    kinds, native = st.sampled_from(["Ring", "Switch", "FullyConnected"]), profiles.get("native")
    topology = Topology(tuple(Dimension(data.draw(kinds), size, 50e9, 500.0) for size in sizes))
    system, passes = native.system(topology), data.draw(st.integers(1, 2))
    graphs = reader.of_ranks(convert(workload, sizes, passes), "w", ())
    explicit = replace(system, scheduling_policy="EXPLICIT")
    of_graph = simulate(graphs, topology, explicit, native, Settings())
    assert of_graph.time_ns == simulate(workload, topology, system, native, Settings(iterations=passes)).time_ns


@given(st.data())
@settings(max_examples=4, deadline=None)
def test_an_obfuscated_trace_takes_as_long_as_the_original(tmp_path_factory, data):
    content = convert(data.draw(workloads("HYBRID_DATA_MODEL", 4)), (4, 2), 2)[0]
    topology = Topology((Dimension("Ring", 4, 50e9, 500.0), Dimension("Switch", 2, 25e9, 700.0)))
    times = []
    for made in (content, variants.obfuscate(content, b"salt", keep_sizes=True)):
        path = tmp_path_factory.mktemp("hidden") / "w.et"
        path.write_bytes(made)
        graphs = reader.read_graphs(str(path), topology.npus)
        times.append(simulate(graphs, topology, None, profiles.get("native"), Settings()).time_ns)
    assert times[0] == times[1]


def test_groups_inside_a_dimension_become_communicators(tmp_path):
    phase = Phase(10, CollectiveKind.ALL_REDUCE, 64, Group.TP)
    workload = Workload("HYBRID_TRANSFORMER", (Layer("a", phase, phase, phase),), Parallelism(tp=2))
    for rank, content in enumerate(convert(workload, (8,), 1)):
        (tmp_path / f"w.{rank}.et").write_bytes(content)
    graphs = reader.read_graphs(str(tmp_path / "w"), 8)
    assert sorted(graphs.groups.values()) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_the_first_dimension_is_what_the_header_s_groups_leave_of_it(tmp_path):
    phase = Phase(10, CollectiveKind.ALL_REDUCE, 64)
    workload = Workload("HYBRID_DATA_MODEL", (Layer("a", phase, phase, phase),), Parallelism(tp=2))
    for rank, content in enumerate(convert(workload, (4, 2), 1)):
        (tmp_path / f"w.{rank}.et").write_bytes(content)
    graphs = reader.read_graphs(str(tmp_path / "w"), 8)
    pairs, others = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert sorted(graphs.groups.values()) == sorted([*pairs, *others])


def test_groups_that_do_not_divide_the_machine_are_refused():
    phase = Phase(10, CollectiveKind.ALL_REDUCE, 64, Group.TP)
    workload = Workload("HYBRID_TRANSFORMER", (Layer("a", phase, phase, phase),), Parallelism(tp=3))
    with pytest.raises(InputError, match="do not divide the machine"):
        convert(workload, (8,), 1)
    with pytest.raises(InputError, match="3 stages of groups of 1 do not fit the topology"):
        convert(replace(workload, parallelism=Parallelism(pp=3)), (8,), 1)


def test_a_loop_without_a_graph_of_chakras_names_the_option_that_writes_it():
    with pytest.raises(InputError, match="--native writes the loop itself"):
        text.steps(Workload("HYBRID_TRANSFORMER", ()), 1)
