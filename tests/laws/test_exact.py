"""Whatever algorithm, network and trouble: the usual run gives the report of the run message by message."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Fault, Topology
from simcore.noise import QUIET, Noise, Spread
from simcore.system.collectives import algorithms
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.plans.plan import Plan, Round, Transfer
from simcore.workload.model import CollectiveKind
from tests.runs import Run, machines, micro

KIND = CollectiveKind.ALL_TO_ALL
SIZES = st.sampled_from([1, 7, 4096, 65536])


@st.composite
def rounds(draw, exchange=False):
    """What a user's algorithm may do with any number of ranks: hops are taken modulo it."""
    row = st.tuples(st.integers(1, 7), SIZES, st.sampled_from([0, 4096]), st.sampled_from([1, 1, 3]))
    rows = draw(st.lists(row, min_size=1, max_size=4))
    window, half = draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([0, 0, 1]))

    def plan(size):
        pairs = exchange and size & (size - 1) == 0
        made = ((Round(1 + (hop - 1) % (size - 1), sent, reduced), count) for hop, sent, reduced, count in rows)
        return Plan(size, tuple(made), window, exchange=pairs, half=half)

    return plan


@st.composite
def transfers(draw):
    """Any transfers in any order, of pieces that nobody asks for."""
    row = st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(1, 15), SIZES, st.sampled_from([0, 64]))
    rows = sorted(draw(st.lists(row, min_size=1, max_size=12)), key=lambda row: row[0])

    def plan(size):
        ends = ((step, src % size, (src + 1 + hop % (size - 1)) % size, *rest) for step, src, hop, *rest in rows)
        made = (Transfer(step, a, b, (0,), charged > 0, sent, charged) for step, a, b, sent, charged in ends)
        return Plan(size, transfers=tuple(made))

    return plan


def side_by_side(plans):
    first, *others = plans
    return lambda size: replace(first(size), beside=tuple(plan(size) for plan in others))


PLANS = rounds() | transfers() | st.lists(rounds(), min_size=2, max_size=3).map(side_by_side)
SPREADS = st.sampled_from([None, None, Spread("normal", 0.05)])
NETWORKS = st.sampled_from(["congested", "congested", "fair", "congestion-free"])


@st.composite
def cases(draw):
    """A machine with one collective and with what may trouble it; the algorithm is left open."""
    topology = draw(machines(("Ring", "FullyConnected", "Switch", "Mesh", "FatTree"), most_npus=12))
    noise = Noise(draw(st.integers(0, 9)), draw(SPREADS), draw(SPREADS))
    network = draw(NETWORKS)
    if network != "congestion-free" and len(LinkGraph(topology)) and draw(st.integers(0, 4)) == 0:
        link = draw(st.integers(0, len(LinkGraph(topology)) - 1))
        fault = Fault("drawn", (link,), draw(st.sampled_from([0.0, 0.5])), 10, draw(st.sampled_from([1000, 100_000])))
        topology = replace(topology, faults=(fault,))
    system = SystemConfig(
        endpoint_delay_ns=draw(st.sampled_from([0, 10])),
        active_chunks_per_dimension=draw(st.sampled_from([1, 1, 2])),
        preferred_dataset_splits=draw(st.sampled_from([1, 2, 4])),
        local_memory_bytes_per_s=draw(st.sampled_from([0.0, 100e9])),
        inter_dimension_scheduling=draw(st.sampled_from(["ascending", "roundRobin"])),
    )
    rendezvous = draw(st.sampled_from([False, False, True]))
    chosen = Settings(network=network, rendezvous=rendezvous, noise=noise)
    return Run(micro(KIND, 1 << 14), replace(topology, noise=noise or QUIET), system, settings=chosen)


def check(run, plan):
    """The usual report is that of the run message by message, whatever is sent."""
    with algorithms.lend(lambda kind, size, data_bytes, options: plan(size)) as name:
        chosen = {KIND: (Algorithm(name),) * len(run.topology.dims)}
        run = replace(run, system=replace(run.system or SystemConfig(), implementations=chosen))
        assert run.report() == run.report(exact="messages")


@settings(deadline=None, max_examples=100)
@given(cases(), PLANS)
def test_a_user_s_algorithm_takes_what_its_messages_take(run, plan):
    check(run, plan)


def pairs(size):
    return Plan(size, ((Round(3, 1), 1),), exchange=True)


RING = Run(micro(KIND, 64), Topology((Dimension("Ring", 8, 37e9, 1.0),)))


@settings(deadline=None, max_examples=50)
@example(RING, pairs)
@example(RING, side_by_side([pairs, lambda size: Plan(size, ((Round(1, 1), 1),))]))
@given(cases(), rounds(exchange=True))
def test_ranks_that_a_user_pairs_take_what_their_messages_take(run, plan):
    check(run, plan)


def test_an_algorithm_may_go_another_way_when_there_is_more_to_send():
    def tuned(kind, size, data_bytes, options):
        return Plan(size, ((Round(3, data_bytes // size), 1),), exchange=data_bytes > 1 << 20)

    run = replace(RING, workload=micro(KIND, 1 << 23))
    with algorithms.lend(tuned) as name:
        run = replace(run, system=SystemConfig(implementations={KIND: (Algorithm(name),)}))
        assert run.report() == run.report(exact="messages")
