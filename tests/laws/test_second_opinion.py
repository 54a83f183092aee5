"""`--exact messages` itself, held to a simulator that shares no line with the engine (`tests.naive`)."""

from itertools import compress

from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.system.config import Algorithm, SystemConfig
from tests import naive
from tests.runs import KINDS, Run

ALGORITHMS = ("ring", "direct", "halvingDoubling")


@st.composite
def cases(draw):
    """One or two dimensions, and a collective of all NPUs, often with one of a communicator beside it."""
    rates, latencies = st.sampled_from([12.5, 25.0, 37.5]), st.sampled_from([0, 1, 100])
    kinds, count = st.sampled_from(["Ring", "Torus", "FullyConnected", "Switch", "Mesh"]), draw(st.integers(1, 2))
    sizes = [st.sampled_from([2, 3, 4, 5, 8]), st.sampled_from([2, 3, 4])][:count]
    dims = [naive.Dim(draw(kinds), draw(size), draw(rates), draw(latencies)) for size in sizes]
    kind, size = draw(st.sampled_from(KINDS)), draw(st.sampled_from([1, 7, 64, 1000, 65536, 300_000]))
    possible = [compress(ALGORITHMS, (True, True, dim.npus in {2, 4, 8} and kind != "all_to_all")) for dim in dims]
    jobs = [naive.Job(kind, size, [draw(st.sampled_from([*names])) for names in possible])]
    npus = dims[0].npus * dims[-1].npus
    if count == 2 and draw(st.booleans()):  # communicators cross dimensions in rings, all-to-alls at once
        members = tuple(draw(st.permutations(range(npus)))[: draw(st.integers(2, npus - 1))])
        kind = draw(st.sampled_from(KINDS))
        algorithm = "direct" if kind == "all_to_all" else "ring"
        start_ns = draw(st.sampled_from([0, 0, 1000]))
        jobs.append(naive.Job(kind, draw(st.sampled_from([1, 999, 65536])), [algorithm], members, "1", start_ns))
    splits, room, endpoint_ns = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 1, 10]))
    if "direct" in jobs[0].algorithms and jobs[0].kind == "all_reduce":
        endpoint_ns = 0  # which packets of the second half go first is ASTRA-sim's own rule
    return dims, jobs, {"splits": splits, "room": room, "endpoint_ns": endpoint_ns}


@settings(deadline=None, max_examples=40)
@given(cases())
def test_messages_take_what_a_naive_simulator_says(case):
    dims, jobs, about = case
    graph = simcore.graph(dims[0].npus * (dims[1].npus if len(dims) > 1 else 1))
    for job in jobs:
        on = job.members or None
        before = [graph.compute(job.start_ns, on=on)] if job.start_ns else []
        graph.collective(job.kind, job.size, on=on, depends=before)
    system = SystemConfig(
        endpoint_delay_ns=about["endpoint_ns"],
        active_chunks_per_dimension=about["room"],
        preferred_dataset_splits=about["splits"],
        scheduling_policy="FIFO",
        implementations={jobs[0].kind: tuple(map(Algorithm, jobs[0].algorithms))},
    )
    topology = Topology(tuple(Dimension(dim.kind, dim.npus, dim.rate * 1e9, float(dim.latency_ns)) for dim in dims))
    timeline = Run(graph.graphs(), topology, system, settings=Settings(exact="messages")).timeline()
    finish_ns, carried = naive.simulate(dims, jobs, **about)
    assert {int(npus[0]): end_ns for npus, end_ns in zip(timeline.ranks, timeline.finish_ns, strict=True)} == finish_ns
    found = sorted(zip(timeline.links.size_bytes.tolist(), timeline.links.busy_ns.tolist(), strict=True))
    assert [row for row in found if any(row)] == [row for row in carried if any(row)]
