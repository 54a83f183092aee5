"""The step of a wafer, played on its links."""

import numpy as np
import pytest

from simcore.engine.cores import CoreRates, play_cores
from simcore.engine.wafer import Rates, link_bytes, play
from simcore.errors import DeadlockError
from simcore.generate.wse.nodes import exchanges, steps
from simcore.generate.wse.program import Instruction
from simcore.generate.wse.traces import instructions
from simcore.generate.wse.traffic import Phase, matrix, phases
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology, Wafer
from tests.generate.test_wse_nodes import SYSTEMS
from tests.generate.wse import job, of_run, oracle

RATES = Rates(1e12, 1e11)


def mesh(columns, rows, rate=100e9, latency_ns=10.0, **broken):
    """A mesh, with dead links when they are given."""
    dims = (Dimension("Mesh", columns, rate, latency_ns), Dimension("Mesh", rows, rate, latency_ns))
    return LinkGraph(Topology(dims, wafer=Wafer(dims, **broken) if broken else None))


def phase(flows, groups, nodes=6, macs=0):
    """One phase of flows (source, target, bytes, tree)."""
    columns = np.array(flows, np.int64).reshape(-1, 4).T
    return Phase("phase", np.full(nodes, macs), np.zeros(nodes, np.int64), groups, *columns)


def test_the_exchange_of_the_default_run_loads_the_links_as_estimated():
    """reference/wse.md section 7: 250.1 MB, 4.86 hops, 194 links, mean 6.27 MB, hottest 11.9 MB, most sent 7.7 MB."""
    made = of_run(oracle()["runs"]["dsv3_default56_bsz1024"])
    step = steps(made)[0]
    every = phases(made, step, exchanges(made, step))
    both = [each for each in every if each.name.endswith("_a2a")]
    graph = mesh(8, 7)
    sent = matrix(both, 56)
    loads = sum(link_bytes(graph, each) for each in both)
    assert [round(each.size_bytes.sum() / 1e6, 1) for each in both] == [121.1, 129.0]
    assert round(sent.sum() / 1e6, 1) == 250.1
    assert len(graph) == np.count_nonzero(loads) == 194
    assert round(loads.sum() / sent.sum(), 2) == 4.86
    assert round(loads.mean() / 1e6, 2) == 6.27
    assert round(loads.max() / 1e6, 1) == 11.9
    assert round(sent.sum(axis=1).max() / 1e6, 1) == 7.7
    work = sum(each.macs for each in every)
    assert round(work.max() / work.mean(), 2) == 1.53


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"alone"}))
def test_a_network_without_cost_leaves_the_slowest_node_of_every_phase(name):
    """Infinite bandwidth, no latency: every phase lasts as long as its slowest member, one after the other."""
    made = job(on=SYSTEMS[name], layers="decode0,decode2,lm_head")
    step = steps(made)[0]
    every = phases(made, step, exchanges(made, step))
    run = play(mesh(4, 2, rate=1e300, latency_ns=0.0), every, RATES)
    clock = np.zeros(8)
    for each in every:
        clock += np.maximum(each.macs / 1e12, each.hbm_bytes / 1e11) * 1e9
        for group in each.groups:
            clock[list(group)] = clock[list(group)].max()
    assert run.time_ns == int(np.ceil(round(clock.max(), 3)))
    assert run.time_ns >= run.compute_ns.max()


def test_two_flows_over_one_link_take_twice_as_long_and_a_multicast_crosses_it_once():
    """A line of three: 0 to 1 and 0 to 2 share the first link."""
    graph = mesh(3, 1, latency_ns=0.0)
    flows = [(0, 1, 1000, -1), (0, 2, 1000, -1)]
    apart = play(graph, [phase(flows, ((0, 1, 2),), 3)], RATES)
    tree = play(graph, [phase([(*flow[:3], 7) for flow in flows], ((0, 1, 2),), 3)], RATES)
    assert (apart.time_ns, tree.time_ns) == (20, 10)
    assert (apart.hottest_bytes[0], tree.hottest_bytes[0]) == (2000, 1000)


def test_groups_do_not_wait_for_each_other():
    """Each group leaves when its own flows are there."""
    flows = [(0, 1, 1000, -1), (4, 5, 5000, -1)]
    run = play(mesh(3, 2), [phase(flows, ((0, 1), (4, 5))), phase([], ((0, 1),), macs=10**6)], RATES)
    assert run.end_ns.tolist() == [60, 1060]


def test_a_dead_link_is_gone_round_and_the_step_is_not_faster():
    """The way round is two hops longer."""
    flow = [(0, 1, 1000, -1)]
    whole = play(mesh(3, 2), [phase(flow, ((0, 1),))], RATES)
    broken = play(mesh(3, 2, dead_links=((0, 1),)), [phase(flow, ((0, 1),))], RATES)
    assert (whole.time_ns, broken.time_ns) == (20, 40)


def test_a_dead_node_is_replaced_by_its_spare():
    """Node ids stay logical; the column of the dead node shifts down by one row."""
    made = job(layers="decode0")
    step = steps(made)[0]
    every = phases(made, step, exchanges(made, step))
    whole = play(mesh(4, 2), every, RATES)
    spared = play(mesh(4, 3, dead_npus=(1,), spare_rows=1), every, RATES)
    assert spared.time_ns >= whole.time_ns
    assert (spared.compute_ns[:8] == whole.compute_ns).all()


FREE = CoreRates(1e9, 1e300, 1e300, 0.0)


def _trace(*instructions):
    """A core's instructions from (kind, arguments, after)."""
    return [Instruction(kind, arguments, after, "") for kind, arguments, after in instructions]


def test_cores_without_barriers_and_with_free_moves_take_as_long_as_the_busiest_computes():
    """Infinite bandwidth, zero latency: the maximum over cores of computing."""
    made = job(layers="decode0,decode2")
    step = steps(made)[0]
    program = instructions(made, step, exchanges(made, step))
    traces = [held for cores in program.lists for held in cores]
    work = [sum(np.prod(each.arguments) for each in held if each.kind in {"GEMM", "ADD"}) for held in traces]
    run = play_cores(traces, FREE, (2, 4), (2, 2))
    assert run.compute_ns.tolist() == work
    assert run.time_ns >= max(work)
    alone = [[each._replace(after=()) for each in held if each.kind != "BARRIER"] for held in traces]
    assert play_cores(alone, FREE, (2, 4), (2, 2)).time_ns == max(work)


def test_a_core_computes_while_it_moves_and_a_barrier_waits_for_both():
    """READ 100 ns, GEMM 60 ns independent; the other core comes at 30 ns."""
    rates = CoreRates(1e9, 1e9, 1e9, 5.0)
    meet = ("BARRIER", ("b",), ())
    first = _trace(("READ", (0, 100), ()), ("GEMM", (3, 4, 5), ()), meet, ("READ", (3, 10), ()))
    second = _trace(("ADD", (30,), ()), meet, ("GEMM", (1, 1, 7), ()))
    run = play_cores([first, second, [], []], rates, (1, 1), (2, 2))
    assert run.end_ns.tolist() == [100 + 10 + 2 * 5, 107, 0, 0]
    assert run.compute_ns.tolist() == [60, 37, 0, 0]
    assert run.move_ns.tolist() == [120, 0, 0, 0]


def test_an_instruction_waits_for_those_it_names():
    """READ then GEMM then WRITE."""
    rates = CoreRates(1e9, 1e9, 1e9, 0.0)
    chain = _trace(("READ", (0, 10), ()), ("GEMM", (1, 1, 20), (0,)), ("WRITE", (0, 5), (1,)))
    assert play_cores([chain], rates, (1, 1), (1, 1)).time_ns == 35


def test_barriers_in_another_order_on_two_cores_are_a_deadlock():
    """The message names the barrier and the cores."""
    a, b = ("BARRIER", ("a",), ()), ("BARRIER", ("b",), ())
    with pytest.raises(DeadlockError, match=r"cores \[0\] wait at barrier a for 1 more"):
        play_cores([_trace(a, b), _trace(b, a)], FREE, (1, 1), (1, 2))
