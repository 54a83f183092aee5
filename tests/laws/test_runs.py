"""Laws of whole runs: folding, shared links, bounds, textbook times, scaling, determinism."""

from dataclasses import replace
from math import log2, prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.errors import DeadlockError, InputError
from simcore.network.core import NEVER
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.config import Algorithm, SystemConfig
from simcore.units import transfer_ns
from simcore.workload.loops import loops
from simcore.workload.loops.step import Span
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, PhaseName, Workload
from tests.runs import KINDS, Run, machines, micro, runs

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
NATIVE = [("native", "congested"), ("native", "congestion-free"), ("native", "fair")]
GIGABYTE = 1e9


def outcome(run: Run, **changes: object) -> object:
    """The report, or that there is none."""
    try:
        return run.report(**changes)
    except DeadlockError:
        return "deadlock"


@settings(deadline=None, max_examples=100)
@given(runs(kinds=("Ring", "FullyConnected", "Switch", "Mesh")))
def test_folding_changes_nothing(run):
    """Held to every message of every NPU; in profiles that do not play those, to a process for each."""
    unfolded = {"exact": "messages"} if run.profile == "native" else {"fold": False}
    assert outcome(run) == outcome(run, **unfolded)


@st.composite
def with_one_more(draw):
    """A run on a machine with a dimension of one NPU somewhere, and the run without it."""
    run = draw(runs(kinds=("Ring", "FullyConnected", "Switch", "Mesh"), modes=NATIVE))
    at, kind = draw(st.sampled_from([0, 0, 1])), draw(st.sampled_from(["Ring", "Mesh", "Switch"]))

    def longer(row, one):
        return (*row[:at], one, *row[at:])

    system = run.system and replace(
        run.system,
        implementations={
            kind: longer(chosen, Algorithm("direct")) for kind, chosen in run.system.implementations.items()
        },
    )
    dims = longer(run.topology.dims, Dimension(kind, 1, 50e9, 500.0))
    return replace(run, topology=Topology(dims), system=system), run


@settings(deadline=None, max_examples=60)
@given(with_one_more())
def test_a_dimension_of_one_npu_does_not_say_how_the_others_look(pair):
    run, without = pair
    assert outcome(run) == outcome(run, exact="messages")
    if run.workload.loop in {"DATA", "MICRO"}:  # takes all dimensions
        assert len(run.timeline().ranks) <= len(without.timeline().ranks)


def test_one_npu_plays_for_a_ring_behind_a_dimension_of_one_npu():
    dims = (Dimension("Mesh", 1, 50e9, 500.0), Dimension("Ring", 8, 50e9, 500.0))
    assert len(Run(micro(ALL_REDUCE, 1 << 20), Topology(dims)).timeline().ranks) == 1


@pytest.mark.parametrize("kind", ["Mesh", "FatTree", "Ring", "FullyConnected"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
def test_groups_that_cut_a_dimension_behind_one_of_one_npu_are_on_their_own_links(kind, algorithm):
    """Behind a switch any two NPUs may change places, and they are told apart on a line though one is alone there."""
    dims = (Dimension("Switch", 1, 50e9, 500.0), Dimension(kind, 16, 50e9, 500.0))
    system = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm("ring"), Algorithm(algorithm))))
    rows = (Phase(1000, ALL_REDUCE, 1 << 20), Phase(1000), Phase(1000, ALL_REDUCE, 1 << 20))
    run = Run(Workload("HYBRID_TRANSFORMER", (Layer("one", *rows),), Parallelism(tp=4)), Topology(dims), system)
    assert run.report() == run.report(exact="messages")


@settings(deadline=None, max_examples=60)
@given(runs(modes=NATIVE), st.data())
def test_gradients_that_a_loop_sends_to_everybody_go_to_everybody_whatever_groups_the_header_names(run, data):
    loop = data.draw(st.sampled_from([name for name in loops if loops.get(name).gradients == Span.ALL]))
    workload = replace(run.workload, loop=loop, parallelism=Parallelism(), checkpoints=(), checkpoint_initiates=())
    tp = data.draw(st.sampled_from([1, run.topology.dims[0].npus, run.topology.npus]))  # whole dimensions
    named = replace(workload, parallelism=Parallelism(tp=tp))
    assert outcome(replace(run, workload=named)) == outcome(replace(run, workload=workload))


def test_ranks_paired_by_xor_are_folded_behind_a_switch_only():
    """On a ring a pair sends both ways, in a full mesh links of non-pairs are idle: one NPU does not stand for all."""
    halving = SystemConfig(
        active_chunks_per_dimension=2, implementations=dict.fromkeys(KINDS, (Algorithm("halvingDoubling"),))
    )
    for kind, classes in (("Ring", 8), ("FullyConnected", 8), ("Switch", 1)):
        run = Run(micro(ALL_REDUCE, 1 << 20), Topology((Dimension(kind, 8, 50e9, 500.0),)), halving)
        assert len(run.timeline().ranks) == classes
        assert run.report() == run.report(exact="messages")


def test_groups_that_cut_a_ring_share_its_links_with_those_of_their_class():
    """An all-reduce of each half, told as a whole, is disturbed; the gradients' cross the ring of both halves."""
    rows = (Phase(50_000, ALL_REDUCE, 1 << 20), Phase(20_000, ALL_REDUCE, 1 << 20), Phase(30_000, ALL_REDUCE, 3 << 20))
    split = Parallelism(tp=8)
    work = Workload("HYBRID_TRANSFORMER", (Layer("one", *rows),), split)
    system = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm("ring"),)))
    run = Run(work, Topology((Dimension("Ring", 16, 12.5e9, 100.0),)), system)
    assert len(run.timeline().ranks) == 8
    assert run.report() == run.report(exact="messages")


@pytest.mark.parametrize("endpoint_ns", [5, 10, 15])
def test_a_message_that_comes_with_a_credit_is_there_behind_it(endpoint_ns):
    """Three messages of 5 ns come one behind the other; the last may come as the packet of an earlier one is paid."""
    system = SystemConfig(endpoint_delay_ns=endpoint_ns)
    run = Run(micro(ALL_REDUCE, 4 * 978), Topology((Dimension("Switch", 4, 50e9, 500.0),)), system)
    assert run.report() == run.report(exact="messages")


def test_groups_of_the_same_classes_are_one_whoever_is_where():
    """The slow one of a pair is its second on NPUs 2 and 7, the first on 3 and 8: either's links count."""
    dims = (Dimension("Mesh", 5, 50e9, 500.0), Dimension("Switch", 2, 50e9, 500.0))
    slow = Settings(stragglers={7: 1.5, 3: 1.5})
    run = Run(
        Workload("HYBRID_MODEL_DATA", (Layer("one", Phase(1000, ALL_REDUCE, 4096)),)), Topology(dims), settings=slow
    )
    assert len(run.timeline().ranks) < 10
    assert run.report() == run.report(exact="messages")


def test_packets_of_the_other_half_let_a_rank_go_on_before_those_of_the_first():
    """Reductions take longer than messages: who has sent one of the other half may be paid for that before."""
    system = SystemConfig(preferred_dataset_splits=1, local_memory_bytes_per_s=50e9)
    run = Run(micro(ALL_REDUCE, 1024), Topology((Dimension("FatTree", 4, 100e9, 0.0),)), system)
    assert run.report() == run.report(exact="messages")


@pytest.mark.parametrize("latency_ns", [2.0**50, 2.0**54, 2.0**56])
def test_hops_may_take_years(latency_ns):
    run = Run(micro(CollectiveKind.ALL_TO_ALL, 4096), Topology((Dimension("Ring", 4, 50e9, latency_ns),)))
    assert run.report() == run.report(exact="messages")


@pytest.mark.parametrize("rate", [0.03, 0.01])
def test_what_takes_longer_than_can_be_counted_is_refused(rate):
    run = Run(micro(CollectiveKind.ALL_TO_ALL, 10**9), Topology((Dimension("Ring", 8, rate, 500.0),)))
    with pytest.raises(OverflowError, match="or more"):
        run.report()


ALL_WAYS = [("native", {}), ("native", {"fold": False}), ("native", {"exact": "messages"})]
ALL_WAYS += [("native", {"network": mode}) for mode in ("congestion-free", "fair", "queued")]
ALL_WAYS += [("astra-sim-1.0", {}), ("astra-sim-2", {}), ("astra-sim-2", {"network": "congested"})]


@pytest.mark.parametrize(("profile", "changes"), ALL_WAYS, ids=str)
def test_what_ends_later_than_can_be_counted_is_refused_whoever_plays_it(profile, changes):
    late = Phase(NEVER - 1024, ALL_REDUCE, 1000)
    ring = Topology((Dimension("Ring", 4, 1e9, 500.0),))
    run = Run(Workload("DATA", (Layer("one", weight_grad=late),)), ring, profile=profile)
    with pytest.raises(OverflowError, match="or more"):
        run.timeline(**changes)


def by_diagonal(dims: tuple[Dimension, ...]) -> dict[int, float]:
    """Stragglers of a Latin square: in every row and column each factor once, everywhere at another place."""
    width, height = (dim.npus for dim in dims)
    return {x + width * y: 1 + (x + y) % width / 2 for x in range(width) for y in range(height) if (x + y) % width}


@pytest.mark.parametrize("network", ["congestion-free", "congested"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
@pytest.mark.parametrize("kind", ["Mesh", "Ring", "FullyConnected", "Switch"])
def test_places_that_differ_are_told_apart_when_folding(kind, algorithm, network):
    """On a line or in a tree the end of a phase depends on the place, so equal classes in a group are not enough."""
    dims = (Dimension(kind, 4, 50e9, 500.0), Dimension("Switch", 4, 50e9, 500.0))
    system = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm(algorithm), Algorithm("ring"))))
    layer = Layer("one", weight_grad=Phase(1000, ALL_REDUCE, 65536))
    slow = Settings(2, network, stragglers=by_diagonal(dims))
    run = Run(Workload("DATA", (layer, layer)), Topology(dims), system, settings=slow)
    assert run.report() == run.report(exact="messages")


def test_classes_that_meet_in_several_groups_find_each_other():
    """The slow NPUs 1 and 9 share a column with 6 and 4, a class of which neither is first in the column of NPU 1."""
    dims = (Dimension("Switch", 5, 50e9, 500.0), Dimension("Ring", 3, 50e9, 500.0))
    slow = Settings(network="congestion-free", stragglers={1: 2.0, 9: 2.0})
    layer = Layer("one", weight_grad=Phase(1000, CollectiveKind.ALL_TO_ALL, 4096))
    run = Run(Workload("DATA", (layer,)), Topology(dims), settings=slow)
    assert len(run.timeline().ranks) < 15
    assert run.report() == run.report(exact="messages")


@settings(deadline=None, max_examples=60)
@given(runs(modes=NATIVE))
def test_natively_nothing_deadlocks(run):
    run.report()


# --- bounds


@st.composite
def collectives(draw, modes=NATIVE, *, splits=(1, 2, 4)):
    """A collective of the whole machine; sizes that every algorithm cuts without a rest."""
    topology = draw(machines(sizes=(2, 4, 8)))
    kind = draw(st.sampled_from(KINDS))
    names = ["ring", "direct"] if kind == CollectiveKind.ALL_TO_ALL else ["ring", "direct", "halvingDoubling"]
    chosen = tuple(Algorithm(draw(st.sampled_from(names)), draw(st.sampled_from([0, 1, 2]))) for _ in topology.dims)
    system = SystemConfig(
        preferred_dataset_splits=draw(st.sampled_from(splits)),
        active_chunks_per_dimension=draw(st.sampled_from([1, 2])),
        implementations=dict.fromkeys(KINDS, chosen),
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
    )
    size_bytes = 4 * topology.npus * draw(st.sampled_from([1, 16, 1000, 4096]))
    profile, network = draw(st.sampled_from(modes))
    return Run(micro(kind, size_bytes), topology, system, profile, Settings(network=network))


def injection_bytes_per_ns(topology: Topology) -> float:
    """What an NPU can send at once into all dimensions."""
    ports = {"Ring": lambda n: min(2, n - 1), "FullyConnected": lambda n: n - 1, "Switch": lambda _: 1}
    return sum(ports[dim.kind](dim.npus) * dim.links * dim.bandwidth_bytes_per_s for dim in topology.dims) / 1e9


@settings(deadline=None, max_examples=80)
@given(collectives(NATIVE[:1] + NATIVE[2:]))
def test_no_collective_beats_the_bandwidth_or_the_latency_of_its_network(run):
    phase = run.workload.layers[0].weight_grad
    n = run.topology.npus
    least_bytes = phase.size_bytes * (n - 1) if phase.collective == ALL_GATHER else phase.size_bytes * (n - 1) / n
    if phase.collective == ALL_REDUCE:
        least_bytes *= 2
    time_ns = run.timeline().time_ns
    assert time_ns >= int(least_bytes / injection_bytes_per_ns(run.topology))
    links = LinkGraph(run.topology)
    routes = links.routes(np.zeros(n, np.int64), np.arange(n))
    farthest = max(
        links.latency_ns[routes.links[a:b]].sum() for a, b in zip(routes.offsets, routes.offsets[1:], strict=False)
    )
    assert time_ns >= farthest, "everybody needs something of everybody"


@settings(deadline=None, max_examples=60)
@given(collectives(NATIVE[:1], splits=(1,)))
def test_shared_links_never_make_a_collective_faster(run):
    """One chunk: with several, a delay may let another go first and end sooner (Graham's anomalies)."""
    assert run.timeline().time_ns >= run.timeline(network="congestion-free").time_ns


@settings(deadline=None, max_examples=60)
@given(collectives(splits=(1,)))
def test_twice_the_bandwidth_never_takes_longer(run):
    faster = tuple(replace(dim, bandwidth_bytes_per_s=2 * dim.bandwidth_bytes_per_s) for dim in run.topology.dims)
    assert replace(run, topology=replace(run.topology, dims=faster)).timeline().time_ns <= run.timeline().time_ns


@settings(deadline=None, max_examples=60)
@given(runs(modes=NATIVE[:2]), st.sampled_from([2, 3]))
def test_a_world_in_which_everything_takes_so_many_times_as_long_does_so_too(run, factor):
    """Nothing but compute times, latencies, bandwidths and delays sets the time; whole byte times avoid rounding."""
    system = replace(run.system, local_memory_bytes_per_s=0.0) if run.system else None
    dims = tuple(
        replace(dim, bandwidth_bytes_per_s=GIGABYTE / (1 + dim.links % 2), links=1) for dim in run.topology.dims
    )
    slower = tuple(
        replace(dim, bandwidth_bytes_per_s=dim.bandwidth_bytes_per_s / factor, latency_ns=dim.latency_ns * factor)
        for dim in dims
    )
    layers = tuple(replace(layer, update_ns=layer.update_ns * factor) for layer in run.workload.layers)
    slowed = Run(
        replace(run.workload, layers=layers),
        replace(run.topology, dims=slower),
        replace(system, endpoint_delay_ns=(system.endpoint_delay_ns or 0) * factor) if system else None,
        settings=replace(run.settings, compute_scale=float(factor)),
    )
    computes = {layer.phase(name).compute_ns for layer in layers for name in PhaseName}
    assume(not run.settings.stragglers or 1 not in computes)  # a straggler's time is rounded to whole nanoseconds
    once = replace(run, system=system, topology=replace(run.topology, dims=dims))
    assert slowed.timeline().time_ns == factor * once.timeline().time_ns


# --- textbook times (reference: flat algorithms; Chan et al. 2007; Thakur et al. 2005)


def alone(kind: CollectiveKind, algorithm: str, topology: Topology, size_bytes: int, **changes: object) -> int:
    """Time of one collective natively."""
    settings = {"preferred_dataset_splits": 1, **changes}
    chosen = (Algorithm(algorithm),) * len(topology.dims)
    system = SystemConfig(implementations=dict.fromkeys(KINDS, chosen), **settings)
    return Run(micro(kind, size_bytes), topology, system).timeline().time_ns


HOPS = {"Ring": 1, "FullyConnected": 1, "Switch": 2}
NPUS = st.sampled_from([2, 4, 8, 16])
SHARES = st.sampled_from([1, 1000, 65536])


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["Ring", "FullyConnected", "Switch"]), NPUS, SHARES, st.sampled_from([0.0, 500.0]))
def test_a_ring_takes_its_textbook_time(kind, n, share, latency_ns):
    topology = Topology((Dimension(kind, n, 25e9, latency_ns),))
    step_ns = int(HOPS[kind] * latency_ns) + transfer_ns(share, 25e9)
    assert alone(ALL_REDUCE, "ring", topology, n * share) == 2 * (n - 1) * step_ns
    assert alone(CollectiveKind.REDUCE_SCATTER, "ring", topology, n * share) == (n - 1) * step_ns
    assert alone(ALL_GATHER, "ring", topology, share) == (n - 1) * step_ns


@settings(deadline=None, max_examples=40)
@given(NPUS, SHARES, st.sampled_from([0.0, 500.0]))
def test_direct_takes_two_steps_with_a_link_per_pair_and_shares_one_behind_a_switch(n, share, latency_ns):
    transfer = transfer_ns(share, 25e9)
    mesh = Topology((Dimension("FullyConnected", n, 25e9, latency_ns),))
    assert alone(ALL_REDUCE, "direct", mesh, n * share) == 2 * (int(latency_ns) + transfer)
    switch = Topology((Dimension("Switch", n, 25e9, latency_ns),))
    assert alone(ALL_REDUCE, "direct", switch, n * share) == 2 * (int(2 * latency_ns) + (n - 1) * transfer)
    assert alone(CollectiveKind.ALL_TO_ALL, "direct", switch, n * share) == int(2 * latency_ns) + (n - 1) * transfer


@settings(deadline=None, max_examples=40)
@given(NPUS, SHARES, st.sampled_from([0.0, 500.0]))
def test_halving_doubling_takes_its_textbook_time_behind_a_switch(n, share, latency_ns):
    switch = Topology((Dimension("Switch", n, 1e9, latency_ns),))
    expected = 2 * int(log2(n)) * int(2 * latency_ns) + 2 * (n - 1) * share
    assert alone(ALL_REDUCE, "halvingDoubling", switch, n * share) == expected


@settings(deadline=None, max_examples=20)
@given(NPUS, SHARES)
def test_an_unpipelined_tree_takes_its_textbook_time(n, size_bytes):
    mesh = Topology((Dimension("FullyConnected", n, 1e9, 500.0),))
    assert alone(ALL_REDUCE, "doubleBinaryTree", mesh, size_bytes) == 2 * int(log2(n)) * (500 + size_bytes)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3), SHARES, st.sampled_from([0, 500]))
def test_a_hierarchy_of_rings_takes_its_textbook_time(sizes, share, latency_ns):
    """BlueConnect: reduce-scatter inwards out, all-gather back (Cho et al. 2019)."""
    topology = Topology(tuple(Dimension("Ring", n, 1e9, float(latency_ns)) for n in sizes))
    size_bytes = prod(sizes) * share
    expected = sum(2 * (n - 1) * (latency_ns + size_bytes // prod(sizes[: d + 1])) for d, n in enumerate(sizes))
    assert alone(ALL_REDUCE, "ring", topology, size_bytes) == expected


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4]), SHARES)
def test_chunks_one_at_a_time_pay_every_latency(splits, n, share):
    ring = Topology((Dimension("Ring", n, 1e9, 500.0),))
    expected = splits * 2 * (n - 1) * (500 + share)
    assert alone(ALL_REDUCE, "ring", ring, splits * n * share, preferred_dataset_splits=splits) == expected


# --- conservation


@settings(deadline=None, max_examples=60)
@given(collectives(NATIVE[:1] + NATIVE[2:]), st.booleans())
def test_links_carry_what_the_plan_sends_over_every_hop(run, fold):
    run = replace(run, topology=Topology(run.topology.dims[:1]))
    (layer,), dim = run.workload.layers, run.topology.dims[0]
    kind, size_bytes, splits = (
        layer.weight_grad.collective,
        layer.weight_grad.size_bytes,
        run.system.preferred_dataset_splits,
    )
    algorithm = run.system.implementations[kind][0]
    one = (algorithm,)
    run = replace(run, system=replace(run.system, implementations=dict.fromkeys(KINDS, one)))
    plan = algorithms.get(algorithm.name)(kind, dim.npus, size_bytes // splits, PlanOptions(algorithm.window))
    links, ranks = LinkGraph(run.topology), np.arange(dim.npus)
    expected = 0
    for entry, count in plan.rounds:
        peers = np.array([plan.peer(rank, entry.hop) for rank in range(dim.npus)])
        expected += count * entry.size_bytes * int(links.routes(ranks, peers).counts.sum())
    table = run.timeline(fold=fold).links
    assert int(table.size_bytes.sum()) == splits * expected
    busiest = table.size_bytes * 1e9 / links.bandwidth_bytes_per_s
    assert (table.busy_ns >= np.floor(busiest)).all()


@settings(deadline=None, max_examples=60)
@given(runs())
def test_every_npu_s_times_lie_within_the_run_and_add_up(run):
    """The sums are checked with every report of a random run (`tests.runs.check_sums`)."""
    report = outcome(run)
    assume(report != "deadlock")
    assert max(row["finish_ns"] for row in report["ranks"]) == report["time_ns"]
    ends = [span["end_ns"] for span in report["iterations"]]
    assert ends == sorted(ends)
    assert ends[-1] <= report["time_ns"]


# --- determinism


@settings(deadline=None, max_examples=20)
@given(runs())
def test_the_same_run_gives_the_same_report(run):
    assert outcome(run) == outcome(run)


def test_what_an_algorithm_cannot_do_is_said_whole_even_from_within_a_process():
    halving = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm("halvingDoubling"),)))
    ring = Topology((Dimension("Ring", 6, 1e9, 1.0),))
    for profile in ("native", "astra-sim-1.0", "astra-sim-2"):
        with pytest.raises(InputError, match="halvingDoubling needs a power of two of ranks, not 6"):
            Run(micro(ALL_REDUCE, 60), ring, halving, profile).timeline()
