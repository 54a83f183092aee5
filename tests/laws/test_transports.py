"""Laws of the transports: what is solved for a group, or folded, is what playing every message of every NPU gives."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.network import batch
from simcore.network.congested import CutThrough
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Fault, Topology
from simcore.noise import Noise, Spread
from simcore.system.alone.at_once import all_at_once
from simcore.system.alone.chain import Phases
from simcore.system.alone.solver import solve_alone
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.groups import LogicalDim
from simcore.system.messages.layouts import Layouts, Shape
from simcore.system.plans.maker import Costs, Plans
from simcore.system.streams import Lane, StreamPhase
from simcore.workload.model import CollectiveKind, Layer, Phase, Workload
from tests.runs import KINDS, Run, runs, twisted_tori

NATIVE = [("native", "congested"), ("native", "fair")]
ANYWHERE = ("Ring", "FullyConnected", "Switch", "Mesh", "FatTree")
DRAGONFLIES = ("Dragonfly", "DragonflyPlus")
SPREADS = st.builds(Spread, st.sampled_from(["normal", "uniform", "exponential"]), st.sampled_from([0.05, 0.5]))
NOISE = st.builds(Noise, st.integers(0, 99), st.none() | SPREADS, st.none() | SPREADS)


@settings(deadline=None, max_examples=60)
@given(runs(kinds=ANYWHERE, modes=NATIVE))
def test_folded_solved_and_played_runs_are_the_same(run):
    system = run.system or SystemConfig()
    chosen = system.implementations or dict.fromkeys(KINDS, (Algorithm("ring"),) * len(run.topology.dims))
    system = replace(system, active_chunks_per_dimension=1, implementations=chosen)
    run = replace(run, system=system, settings=replace(run.settings, queues_per_dim=1))
    assert run.report() == run.report(fold=False) == run.report(exact="messages")


TWISTED = twisted_tori(st.sampled_from([1e9, 12.5e9]), st.sampled_from([0.0, 1.0, 500.0]), most_npus=18)


@settings(deadline=None, max_examples=20)
@given(runs(places=TWISTED, modes=[*NATIVE, ("native", "congestion-free")]))
def test_on_twisted_tori_folded_solved_and_played_runs_are_the_same(run):
    assert run.report() == run.report(fold=False) == run.report(exact="messages")


@settings(deadline=None, max_examples=40)
@given(runs(kinds=ANYWHERE, modes=[*NATIVE, ("native", "congestion-free")]), NOISE)
def test_noisy_runs_are_the_same_folded_solved_and_played(run, noise):
    run = replace(run, topology=replace(run.topology, noise=noise), settings=replace(run.settings, noise=noise))
    assert run.report() == run.report(fold=False) == run.report(exact="messages")


def test_npus_that_send_at_different_times_agree_on_the_order_of_dimensions():
    """By load, which would be another for those that send two collectives in one nanosecond."""
    reduced = Phase(0, CollectiveKind.ALL_REDUCE, 1)
    layers = tuple(Layer(name, input_grad=Phase(ns, None, 1), weight_grad=reduced) for name, ns in (("a", 0), ("b", 1)))
    noise = Noise(60, Spread("normal", 0.5), None)
    topology = Topology(tuple(Dimension("Ring", npus, 1e9, 0.0) for npus in (3, 2, 2)), noise=noise)
    system = SystemConfig(
        preferred_dataset_splits=1, collective_optimization="localBWAware", inter_dimension_scheduling="themis"
    )
    run = Run(Workload("DATA", layers), topology, system, "native", Settings(noise=noise, stragglers={0: 1.5, 1: 1.5}))
    assert run.report() == run.report(fold=False) == run.report(exact="messages")


def test_links_that_differ_tell_npus_apart_where_messages_never_meet():
    """All would leave with the last: two columns of three NPUs, one of which has the slowest link."""
    workload = Workload("HYBRID_DATA_MODEL", (Layer("a", weight_grad=Phase(0, CollectiveKind.ALL_REDUCE, 5)),))
    noise = Noise(0, None, Spread("normal", 0.05))
    topology = Topology((Dimension("Ring", 3, 1e9, 0.0), Dimension("Ring", 2, 1e9, 0.0)), noise=noise)
    report = Run(workload, topology, None, "native", Settings(network="congestion-free", noise=noise)).report()
    assert [row["finish_ns"] for row in report["ranks"]] == [4, 3]


@settings(deadline=None, max_examples=30)
@given(runs(modes=NATIVE), st.data())
def test_faults_that_change_nothing_change_nothing(run, data):
    links = len(LinkGraph(run.topology))
    if not links:
        return
    fault = Fault("idle", (data.draw(st.integers(0, links - 1)),), 1.0, 10, 10_000)
    faulty = replace(run, topology=replace(run.topology, faults=(fault,))).report()
    faulty.pop("faults")
    assert faulty == run.report(exact="messages")


@st.composite
def phases(draw):
    """A plan for a group somewhere on a machine whose links may all differ."""
    kind = draw(st.sampled_from([*ANYWHERE, *DRAGONFLIES]))
    size = draw(st.sampled_from([2, 3, 4, 6, 8]))
    rate, latency_ns = draw(st.sampled_from([1e9, 30e9])), draw(st.sampled_from([0.0, 0.4, 7.0, 500.0]))
    routers = (2 - size % 2) * (kind in DRAGONFLIES)
    dims = (Dimension(kind, size, rate, latency_ns, groups=routers and size // routers, routers=routers),)
    spread = draw(st.none() | SPREADS)
    topology = Topology(dims, noise=Noise(draw(st.integers(0, 9)), links=spread))
    share = draw(st.sampled_from([part for part in (1, 2, 3) if size % part == 0 and size > part]))
    stride, first = draw(st.sampled_from([(1, 0), (share, share - 1)]))
    members = first + stride * np.arange(size // share)
    names = ["ring", "direct", "bruck"]
    if len(members) & (len(members) - 1) == 0:
        names += ["halvingDoubling", "recursiveDoubling"]
    known = [name for name in names if name in algorithms.names()]
    asked = draw(st.sampled_from([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL]))
    return (
        topology,
        members,
        Algorithm(draw(st.sampled_from(known))),
        asked,
        draw(st.sampled_from([1, 64, 5000, 65536])),
    )


@settings(deadline=None, max_examples=150)
@given(phases(), st.sampled_from([0, 10]), st.sampled_from([0, 3]))
def test_a_phase_that_is_solved_ends_as_the_one_that_is_stepped(case, endpoint_ns, reduction_ns):
    topology, members, algorithm, kind, size_bytes = case
    links, costs = LinkGraph(topology), Costs(endpoint_ns, lambda size: reduction_ns * (size > 0), PlanOptions())
    lane = Lane(0, LogicalDim(0, len(members), int(members[1] - members[0])), algorithm)
    phase = StreamPhase(kind, lane, size_bytes, size_bytes, 0)
    try:
        plan = Plans(costs).of(phase, 0)
    except Exception:  # noqa: BLE001 - an algorithm that does not do this kind of collective
        return
    columns = Phases(Layouts(timed=False), CutThrough, costs, plain=True)
    messages = Phases(Layouts(timed=False), CutThrough, costs, plain=False)
    shape = Shape("all", links)
    stepped = messages._stepped(shape, phase, [plan], [members], costs)
    one_by_one = replace(plan, rounds=tuple((entry, 1) for entry in plan.expanded))
    solved = [solve_alone(each, members, links, costs, len(members)) for each in (plan, one_by_one)]
    for hops in (0, batch.HOPS_A_WINDOW):
        with mock.patch.object(batch, "HOPS_A_WINDOW", hops):
            solved.append(all_at_once([plan], [members], links, costs, len(members)))
    for found in (*solved, columns._played(shape, [plan], [members], costs)):
        if found:
            assert found.exits_ns == stepped.exits_ns
            assert found.size_bytes.tolist() == stepped.size_bytes.tolist()
            assert found.busy_ns.tolist() == stepped.busy_ns.tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([("Ring", 5), ("Ring", 8), ("Dragonfly", 8), ("Dragonfly", 12), ("DragonflyPlus", 12)]),
    st.sampled_from([1, 2]),
    st.sampled_from([1.0, 7.4, 500.0]),
    st.sampled_from([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL]),
    st.integers(0, 70_000),
    st.sampled_from([0, 10]),
    st.sampled_from([0, 3]),
)
def test_messages_that_wait_in_a_circle_are_played_in_windows_as_they_are_one_by_one(
    place, groups, latency_ns, kind, size_bytes, endpoint_ns, reduction_ns
):
    """Of one group or of two side by side, to the nanosecond."""
    name, npus = place
    split = {"groups": npus // 2, "routers": 2} if name in DRAGONFLIES else {}
    links = LinkGraph(Topology((Dimension(name, npus, 1e9, latency_ns, **split),)))
    members = [np.arange(first, npus // groups * groups, groups) for first in range(groups)]
    options = PlanOptions()
    plan = algorithms.get("direct")(kind, len(members[0]), size_bytes, options)
    costs = Costs(endpoint_ns, lambda size: reduction_ns * (size > 0), options)
    with mock.patch.object(batch, "HOPS_A_WINDOW", 0):
        found = all_at_once([plan] * groups, members, links, costs, len(members[0]))
    phases = Phases(Layouts(timed=False), CutThrough, costs, plain=True)
    played = phases._played(Shape("all", links), [plan] * groups, members, costs)
    assert found.exits_ns == played.exits_ns
    assert (found.size_bytes == played.size_bytes).all()
    assert (found.busy_ns == played.busy_ns).all()


@pytest.mark.parametrize("kind", ["Ring", "Mesh", "Switch"])
def test_rings_are_solved_and_not_stepped(kind):
    topology = Topology((Dimension(kind, 8, 50e9, 500.0),), noise=Noise(1, links=Spread("normal", 0.05)))
    options = PlanOptions(window=1)
    plan = algorithms.get("ring")(CollectiveKind.ALL_REDUCE, 8, 1 << 20, options)
    assert solve_alone(plan, np.arange(8), LinkGraph(topology), Costs(0, lambda _: 0, options), 8)
