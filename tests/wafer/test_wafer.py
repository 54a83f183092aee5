"""The step of a wafer, played on its links."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.errors import DeadlockError, InputError
from simcore.generate.wse.nodes import exchanges, steps
from simcore.generate.wse.settings import parse_layers
from simcore.generate.wse.traces import instructions
from simcore.generate.wse.traffic import matrix, node_step
from simcore.network.clock import idle_ns
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import logical
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.timeline.breakdown import breakdown, class_figures
from simcore.wafer.cores import play_cores
from simcore.wafer.run import core_places, simulate_wafer
from simcore.wafer.steps import Rates, play, send_all
from simcore.workload.wafer import CoreStep, Flows, Instruction, NodeStep, Phase
from tests.generate.test_wse_nodes import SYSTEMS
from tests.generate.wse import SMALL, job, of_run, oracle, system

RATES = Rates(1e12, 1e11)


def mesh(columns, rows, rate=100e9, latency_ns=10.0, **broken):
    """A mesh, with dead links when they are given."""
    dims = (Dimension("Mesh", columns, rate, latency_ns), Dimension("Mesh", rows, rate, latency_ns))
    return LinkGraph(Topology(dims, wafer=Wafer(dims, **broken) if broken else None))


def spared(columns, rows, dead):
    """A wafer with a spare row and a dead NPU, as its file gives it."""
    dims = mesh(columns, rows).topology.dims
    wafer = Wafer((dims[0], dims[1]), dead_npus=(dead,), spare_rows=1)
    return Topology(logical(wafer, dims), wafer=wafer)


def phase(sent, groups, nodes=6, macs=0):
    """One phase of one round of flows (source, target, bytes, tree)."""
    rounds = (Flows(*np.array(sent, np.int64).reshape(-1, 4).T),) if sent else ()
    return Phase("phase", np.full(nodes, macs), np.zeros(nodes, np.int64), groups, rounds, "layer")


def step_of(*made, nodes=6):
    """A step of phases."""
    return NodeStep("decode0", 8, nodes, made)


def played(made):
    """A job's first step as phases."""
    step = steps(made)[0]
    return node_step(made, step, exchanges(made, step))


def link_bytes(graph, phase):
    """Bytes that every link carries in a phase; a multicast crosses a link once."""
    loads, nothing = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int64)
    for each in phase.rounds:
        start = np.zeros(len(each.source), np.int64)
        routes = graph.routes(each.source, each.target)
        loads += send_all(graph, routes, each.size_bytes, start, each.tree, nothing).size_bytes
    return loads


def test_the_exchange_of_the_default_run_loads_the_links_as_estimated():
    """reference/wse.md section 7: 250.1 MB, 4.86 hops, 194 links, mean 6.27 MB, hottest 11.9 MB, most sent 7.7 MB."""
    every = played(of_run(oracle()["runs"]["dsv3_default56_bsz1024"])).phases
    both = [each for each in every if each.name.endswith("_a2a")]
    graph = mesh(8, 7)
    sent = matrix(both, 56)
    loads = sum(link_bytes(graph, each) for each in both)
    assert [round(matrix([each], 56).sum() / 1e6, 1) for each in both] == [121.1, 129.0]
    assert round(sent.sum() / 1e6, 1) == 250.1
    assert len(graph) == np.count_nonzero(loads) == 194
    assert round(loads.sum() / sent.sum(), 2) == 4.86
    assert round(loads.mean() / 1e6, 2) == 6.27
    assert round(loads.max() / 1e6, 1) == 11.9
    assert round(sent.sum(axis=1).max() / 1e6, 1) == 7.7
    work = sum(each.macs for each in every)
    assert round(work.max() / work.mean(), 2) == 1.53


@given(st.sets(st.sampled_from(parse_layers("all", SMALL)), min_size=1), st.sampled_from([1, 2, 4, 8]))
def test_stages_of_one_node_compute_one_after_the_other(layers, stages):
    """Those without layers are passed over: there are more than layers, or layers were left out."""
    on = system(nodes=stages, node_grid=(1, stages), dp=1, tp=1, pp=stages, ep=1, shared_copies=1)
    step = played(job(on=on, layers=",".join(layers)))
    times = play(mesh(stages, 1, rate=1e300, latency_ns=0.0), step, RATES)
    assert times.time_ns == times.compute_ns.sum()


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"alone"}))
def test_a_network_without_cost_leaves_the_slowest_node_of_every_phase(name):
    """Infinite bandwidth, no latency: every phase lasts as long as its slowest member, one after the other."""
    step = played(job(on=SYSTEMS[name], layers="decode0,decode2,lm_head"))
    run = play(mesh(4, 2, rate=1e300, latency_ns=0.0), step, RATES)
    clock = np.zeros(8, np.int64)
    for each in step.phases:
        clock += RATES.spent_ns(each.macs, each.hbm_bytes)
        for group in each.groups:
            clock[list(group)] = clock[list(group)].max()
    assert run.time_ns == clock.max()
    assert run.time_ns >= run.compute_ns.max()


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"alone"}))
def test_a_run_is_never_faster_than_its_links_and_its_messages_allow(name):
    """The fullest link from the first start on, each message alone; links never carry two at once."""
    step = played(job(on=SYSTEMS[name]))
    graph = mesh(4, 2, rate=1e9)
    run, free = play(graph, step, RATES), play(graph, step, RATES, queues=False)
    assert run.time_ns >= free.time_ns
    assert (run.busy_ns <= run.time_ns).all()
    for number, each in enumerate(step.phases):
        lower = run.ready_ns[number].min() + link_bytes(graph, each) / graph.bandwidth_bytes_per_s * 1e9
        assert not each.rounds or run.end_ns[number].max() >= lower.max()
        for sent in each.rounds[:1]:
            alone = run.ready_ns[number][sent.source] + idle_ns(
                graph, graph.routes(sent.source, sent.target), sent.size_bytes
            )
            assert (run.end_ns[number][sent.source] >= alone).all()


def test_two_flows_over_one_link_take_twice_as_long_and_a_multicast_crosses_it_once():
    """A line of three: 0 to 1 and 0 to 2 share the first link."""
    graph = mesh(3, 1, latency_ns=0.0)
    sent = [(0, 1, 1000, -1), (0, 2, 1000, -1)]
    apart = play(graph, step_of(phase(sent, ((0, 1, 2),), 3), nodes=3), RATES)
    tree = play(graph, step_of(phase([(*flow[:3], 7) for flow in sent], ((0, 1, 2),), 3), nodes=3), RATES)
    assert (apart.time_ns, tree.time_ns) == (20, 10)
    assert (apart.link_bytes.max(), tree.link_bytes.max()) == (2000, 1000)


@settings(max_examples=30, deadline=None)
@given(source=st.integers(0, 11), targets=st.sets(st.integers(0, 11), min_size=1), size=st.integers(1, 10**6))
def test_a_multicast_alone_arrives_like_single_messages_and_uses_the_union_of_their_routes(source, targets, size):
    """XY routes from one source form a tree."""
    graph, others = mesh(4, 3), sorted(targets - {source})
    sent = [(source, other, size, 0) for other in others]
    run = play(graph, step_of(phase(sent, (tuple(range(12)),), 12), nodes=12), RATES)
    ways = graph.routes(np.full(len(others), source), np.array(others, np.int64))
    alone = idle_ns(graph, ways, size)
    assert run.time_ns == alone.max(initial=0)
    used = np.unique(ways.links)
    assert np.flatnonzero(run.link_bytes).tolist() == list(used)
    assert set(run.link_bytes[used].tolist()) <= {size}


def test_groups_do_not_wait_for_each_other():
    """Each group leaves when its own flows are there."""
    sent = [(0, 1, 1000, -1), (4, 5, 5000, -1)]
    run = play(mesh(3, 2), step_of(phase(sent, ((0, 1), (4, 5))), phase([], ((0, 1),), macs=10**6)), RATES)
    assert run.end_ns.max(axis=1).tolist() == [60, 1060]
    assert run.end_ns[0].tolist() == [20, 20, 0, 0, 60, 60]


def test_a_dead_link_is_gone_round_and_the_step_is_not_faster():
    """The way round is two hops longer."""
    sent = [(0, 1, 1000, -1)]
    whole = play(mesh(3, 2), step_of(phase(sent, ((0, 1),))), RATES)
    broken = play(mesh(3, 2, dead_links=((0, 1),)), step_of(phase(sent, ((0, 1),))), RATES)
    assert (whole.time_ns, broken.time_ns) == (20, 40)


def test_a_dead_node_is_replaced_by_its_spare():
    """Node ids stay logical; the column of the dead node shifts down by one row."""
    step = played(job(layers="decode0"))
    whole = play(mesh(4, 2), step, RATES)
    spared = play(mesh(4, 3, dead_npus=(1,), spare_rows=1), step, RATES)
    assert spared.time_ns >= whole.time_ns
    assert (spared.compute_ns == whole.compute_ns).all()


def test_the_timeline_of_a_wafer_adds_up():
    """Breakdown = time; compute of the ranks = that of the run; steps follow each other; traffic = the phases'."""
    step = played(job())
    graph = mesh(4, 2)
    timeline = simulate_wafer([step, step], graph.topology, RATES, Settings())
    one = play(graph, step, RATES)
    assert timeline.iterations == ((0, one.time_ns), (one.time_ns, 2 * one.time_ns))
    assert (class_figures(timeline).compute_ns == 2 * one.compute_ns).all()
    for npu in range(8):
        shares = breakdown(timeline, npu)
        assert shares.compute_ns + shares.overlapped_ns + shares.exposed_comm_ns + shares.idle_ns == timeline.time_ns
    assert (sum(timeline.wafer.traffic.values()) == 2 * matrix(step.phases, 8)).all()
    assert (timeline.links.size_bytes == 2 * one.link_bytes).all()
    asked = sum(size for layer in timeline.asked for _, size in layer.values())
    assert asked == matrix(step.phases, 8)[0].sum(), "of a step; what crosses two dimensions once"


def test_a_straggler_slows_the_step_down():
    """Factors on the computing of nodes."""
    step, topology = played(job()), mesh(4, 2).topology
    plain, slow = (simulate_wafer([step], topology, RATES, Settings(stragglers=each)) for each in ({}, {3: 5.0}))
    assert slow.time_ns > plain.time_ns
    assert slow.wafer.steps[0]["stragglers"][0]["npu"] == 3


def test_a_topology_that_is_too_small_is_refused():
    """Nodes and NPUs must fit."""
    with pytest.raises(InputError, match="fewer NPUs"):
        simulate_wafer([played(job())], mesh(2, 2).topology, RATES, Settings())


FREE = Rates(1e9, 1e300)


def _trace(*lines):
    """A core's instructions from (kind, arguments, after)."""
    return [Instruction(kind, arguments, after, "") for kind, arguments, after in lines]


def cores(traces, rates, grid, rate=1e300, latency_ns=0.0, **options):
    """Traces played on a mesh of cores."""
    return play_cores(mesh(*grid, rate=rate, latency_ns=latency_ns), np.arange(len(traces)), traces, rates, **options)


def test_nodes_are_rectangles_of_cores():
    """Two nodes of 2 x 2 cores side by side on a mesh of four columns."""
    empty = CoreStep("decode0", 0, 4, [[]] * 8)
    assert core_places(empty, mesh(4, 2).topology).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert core_places(empty, spared(4, 3, 2)).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    with pytest.raises(InputError, match="do not tile"):
        core_places(empty, mesh(3, 3).topology)


def test_moves_over_one_link_and_out_of_one_bank_wait_for_each_other():
    """Two cores read the same bank at once: its port serves one after the other, then the link they share."""
    reads = [_trace(("READ", (0, 100), ())) for _ in range(2)]
    together = cores([[], *reads], Rates(1e9, 1e9), (3, 1), rate=1e9)
    apart = cores([[], *reads], Rates(1e9, 1e9), (3, 1), rate=1e9, queues=False)
    assert together.end_ns.tolist() == [0, 100, 200]
    assert apart.end_ns.tolist() == [0, 100, 100]
    assert sorted(together.link_bytes.tolist())[-2:] == [100, 200]


def test_a_core_multicast_crosses_a_link_once():
    """A line of three: banks 1 and 2 get it over the same first link."""
    run = cores([_trace(("MULTICAST", (0, 1, 2, 50), ())), [], []], Rates(1e9, 1e9), (3, 1), rate=1e9)
    assert sorted(run.link_bytes.tolist())[-2:] == [50, 50]
    assert run.time_ns == 50


def test_cores_without_barriers_and_with_free_moves_take_as_long_as_the_busiest_computes():
    """Infinite bandwidth, zero latency: the maximum over cores of computing."""
    made = job(layers="decode0,decode2")
    step = steps(made)[0]
    program = instructions(made, step, exchanges(made, step))
    traces = [held for node in program.lists for held in node]
    work = [sum(np.prod(each.arguments) for each in held if each.kind in {"GEMM", "ADD"}) for held in traces]
    run = cores(traces, FREE, (8, 4))
    assert run.compute_ns.tolist() == work
    assert run.time_ns >= max(work)
    alone = [[each._replace(after=()) for each in held if each.kind != "BARRIER"] for held in traces]
    assert cores(alone, FREE, (8, 4)).time_ns == max(work)


def test_a_core_computes_while_it_moves_and_a_barrier_waits_for_both():
    """READ 100 ns, GEMM 60 ns independent; the other core comes at 30 ns."""
    rates = Rates(1e9, 1e9)
    meet = ("BARRIER", ("b",), ())
    first = _trace(("READ", (0, 100), ()), ("GEMM", (3, 4, 5), ()), meet, ("READ", (3, 10), ()))
    second = _trace(("ADD", (30,), ()), meet, ("GEMM", (1, 1, 7), ()))
    run = cores([first, second, [], []], rates, (2, 2), rate=1e9, latency_ns=5.0)
    assert run.end_ns.tolist() == [100 + 10 + 2 * 5, 107, 0, 0]
    assert run.compute_ns.tolist() == [60, 37, 0, 0]
    assert run.move_ns.tolist() == [120, 0, 0, 0]


def test_an_instruction_waits_for_those_it_names():
    """READ then GEMM then WRITE."""
    rates = Rates(1e9, 1e9)
    chain = _trace(("READ", (0, 10), ()), ("GEMM", (1, 1, 20), (0,)), ("WRITE", (0, 5), (1,)))
    assert cores([chain], rates, (2, 1)).time_ns == 35


def test_barriers_in_another_order_on_two_cores_are_a_deadlock():
    """The message names the barrier and the cores."""
    a, b = ("BARRIER", ("a",), ()), ("BARRIER", ("b",), ())
    with pytest.raises(DeadlockError, match=r"cores \[0\] wait at barrier a for 1 more"):
        cores([_trace(a, b), _trace(b, a)], FREE, (2, 1))
