"""Policies say which collective goes first; those that a workload cannot follow are refused."""

from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.chunks.scheduler import GANG_ORDERS
from simcore.timeline.events import EventKind
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind
from tests.graphs import graph, node

ALL_REDUCE = list(CollectiveKind).index(CollectiveKind.ALL_REDUCE)
RING = Topology((Dimension("Ring", 4, 1e9, 100.0),))


def test_explicit_priorities_need_a_trace(tmp_path):
    system = tmp_path / "system.yaml"
    system.write_text("scheduling-policy: EXPLICIT\n")
    with pytest.raises(InputError, match="EXPLICIT takes priorities from execution traces"):
        simcore.run("dlrm", "ring8", str(system))


def test_an_order_of_chunks_of_ones_own_is_known_to_system_files_of_its_profile(tmp_path):
    system = tmp_path / "system.yaml"
    system.write_text("intra-dimension-scheduling: largestFirst\n")
    largest_first = {"largestFirst": lambda stream: (-stream.phase.largest_bytes,)}
    with pytest.raises(InputError, match="intra-dimension-scheduling is not known"):
        simcore.run("dlrm", "torus_4x4x4", str(system))
    with mock.patch.dict(GANG_ORDERS, largest_first):
        assert simcore.run("dlrm", "torus_4x4x4", str(system)).time_ns != simcore.run("dlrm", "torus_4x4x4").time_ns
        with pytest.raises(
            InputError, match=r"profile astra-sim-1\.0 has no intra-dimension-scheduling 'largestFirst'"
        ):
            simcore.run("dlrm", "torus_4x4x4", str(system), profile="astra-sim-1.0")


@st.composite
def waiting(draw):
    """Collectives of some sizes, when they are issued and how urgent they are; several at one time."""
    times, sizes = st.sampled_from([0, 1000, 1500, 4000, 9000]), st.sampled_from([400, 4000, 8000])
    return draw(st.lists(st.tuples(times, sizes, st.integers(-1, 1)), min_size=1, max_size=6))


def ends(found, policy, names):
    """When each of some collectives ends, each of a communicator of all NPUs, on links that play one at a time."""
    rows = []
    for place, (time_ns, size_bytes, priority) in enumerate(found):
        rows.append(node(NodeKind.COMPUTE, duration_ns=time_ns, stream=place))
        sends = {"size_bytes": size_bytes, "collective": ALL_REDUCE, "group": place + 1, "priority": priority}
        rows.append(node(NodeKind.COLLECTIVE, len(rows) - 1, name=f"{place}", **sends))
    native = profiles.get("native")
    system = replace(native.system(RING), scheduling_policy=policy, preferred_dataset_splits=1)
    graphs = GraphSet((graph(*rows, group_names=("", *names)),), np.zeros(4, np.int32), dict.fromkeys(names, range(4)))
    events = simulate(graphs, RING, system, native, Settings()).events
    sent = events.where(events.kind == EventKind.COLLECTIVE)
    return {int(sent.names[name]): end for name, end in zip(sent.name, sent.end_ns.tolist(), strict=True)}


@given(st.data(), st.permutations("abcd"), st.sampled_from(["Ring", "Switch", "Mesh"]))
@settings(deadline=None, max_examples=100)
def test_what_communicators_are_called_changes_no_answer(data, names, kind):
    """Of their messages that come to a link in one nanosecond, too."""
    ranks = st.permutations(range(6)).map(lambda order: order[: 2 + order[-1] % 2])
    groups = data.draw(st.lists(ranks, min_size=2, max_size=4, unique_by=tuple))
    sent = st.tuples(st.sampled_from(groups), st.sampled_from(["all_reduce", "all_to_all", "all_gather"]))
    built = simcore.graph(6)
    for (on, what), size in data.draw(st.lists(st.tuples(sent, st.sampled_from([1000, 4000, 8000])), min_size=3)):
        built.collective(what, size, on=on)
    made = built.graphs()
    called = {"": ""} | dict(zip(sorted(made.groups), names, strict=False))
    other = [replace(one, group_names=tuple(called[name] for name in one.group_names)) for one in made.graphs]
    known = {called[name]: own for name, own in made.groups.items()}
    machine, native = Topology((Dimension(kind, 6, 1e9, 100.0),)), profiles.get("native")
    system = replace(native.system(machine), preferred_dataset_splits=1, active_chunks_per_dimension=4)
    renamed, played = replace(made, graphs=tuple(other), groups=known), set()
    for graphs, exact in product((made, renamed), ("", "messages")):
        timeline = simulate(graphs, machine, system, native, Settings(exact=exact, fold=False))
        played.add((timeline.finish_ns, *timeline.links.busy_ns.tolist(), *timeline.events.end_ns.tolist()))
    assert len(played) == 1


@given(waiting(), st.sampled_from(["LIFO", "FIFO", "EXPLICIT"]), st.permutations("abcdef"))
def test_collectives_of_traces_go_in_the_order_of_the_policy_whatever_their_communicators_are_called(
    found, policy, names
):
    """The last issued, the first, or the most urgent and of those the first; in one instant, in the trace's order."""
    urgent = {"LIFO": lambda at: (found[at][0], at), "FIFO": lambda at: (-found[at][0], -at)}
    first = urgent.get(policy, lambda at: (found[at][2], -found[at][0], -at))
    expected, now_ns = {}, 0
    while left := {*range(len(found))} - expected.keys():
        now_ns = max(now_ns, min(found[at][0] for at in left))
        chosen = max((at for at in left if found[at][0] <= now_ns), key=first)
        now_ns += 6 * (100 + found[chosen][1] // 4)
        expected[chosen] = now_ns
    assert ends(found, policy, names[: len(found)]) == expected


URGENCIES = st.lists(st.integers(0, 1), min_size=3, max_size=3)


@given(st.tuples(URGENCIES, URGENCIES), st.lists(st.integers(0, 1), min_size=4, max_size=4))
@example(([1, 0, 0], [0, 1, 0]), [0, 1, 1, 0])
def test_npus_that_find_other_collectives_urgent_agree_however_they_are_played(urgencies, who):
    """Each says how urgent three collectives are that all can begin; what the last to come says counts no more."""
    names = ("a", "b", "c")
    variants = tuple(
        graph(
            *(
                node(NodeKind.COLLECTIVE, size_bytes=4000 * size, collective=ALL_REDUCE, group=size, priority=urgency)
                for size, urgency in enumerate(own, 1)
            ),
            node(NodeKind.COMPUTE, 0, duration_ns=50_000),
            group_names=("", *names),
        )
        for own in urgencies
    )
    found = GraphSet(variants, np.array(who, np.int32), dict.fromkeys(names, range(4)))
    system = replace(profiles.get("native").system(RING), scheduling_policy="EXPLICIT")
    ways = ({}, {"fold": False}, {"exact": "messages"})
    settings = [Settings(network="congestion-free", **way) for way in ways]  # there they are folded
    reports = [Report(simulate(found, RING, system, profiles.get("native"), each), "native", "") for each in settings]
    told = [report.to_dict() | {"classes": 0} for report in reports]
    assert told[0] == told[1] == told[2]
