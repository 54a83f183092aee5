"""The laws that users try on their own: what is shipped keeps them, what is broken is named."""

from functools import partial

import pytest

from simcore.errors import InputError
from simcore.network.topology.fabric import FABRICS
from simcore.network.topology.model import Dimension, Topology
from simcore.system.collectives import algorithms
from simcore.system.explicit import Explicit, Transfer
from simcore.system.plan import Plan, Round
from simcore.testing import LawError, check_collective, check_loop, check_topology
from simcore.workload.loops import Loop, Ref, Step, loops
from simcore.workload.model import CollectiveKind, PhaseName

ALL_REDUCE, ALL_TO_ALL = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL


@pytest.mark.parametrize("name", ["ring", "direct", "halvingDoubling", "recursiveDoubling", "doubleBinaryTree"])
def test_shipped_collectives_keep_their_laws(name):
    check_collective(algorithms.get(name), ALL_REDUCE)


def refuses(kind, size, data_bytes, options):
    raise InputError.at("mine", "never")


@pytest.mark.parametrize(
    ("algorithm", "law"),
    [
        (lambda kind, size, *_: Plan(size, ((Round(1, 1), 1),)), "at least"),
        (lambda kind, size, *_: Plan(size, ((Round(size, 10**9), 1),)), "sends to itself"),
        (lambda kind, size, *_: Plan(size + 1, ()), "ranks where"),
        (lambda kind, size, *_: Explicit(size, (Transfer(0, 0, 1, (0,), True),)), "misses"),
        (refuses, "on every number of ranks"),
    ],
)
def test_what_a_broken_collective_breaks_is_said(algorithm, law):
    with pytest.raises(LawError, match=law):
        check_collective(algorithm, ALL_REDUCE)


@pytest.fixture
def registered():
    """Registers for one test."""
    undone = []

    def register(registry, name, what):
        registry.register(name)(what)
        undone.append(partial(registry._entries.pop, name))

    yield register
    for undo in undone:
        undo()


def test_a_fabric_whose_routes_lead_elsewhere_is_named(registered):
    ring = FABRICS.get("Ring")

    class Lost(ring):
        def routes(self, src, dst):
            return super().routes(src, (dst + 1) % self.npus)

    registered(FABRICS, "Lost", Lost)
    check_topology(Topology((Dimension("Ring", 5, 1e9, 1.0),)))
    with pytest.raises(LawError, match="the route from 0 to 0 ends at 1"):
        check_topology(Topology((Dimension("Lost", 5, 1e9, 1.0),)))


@pytest.mark.parametrize("name", [name for name in loops if name != "MICRO"])
def test_shipped_loops_keep_their_laws(name):
    check_loop(name)


def test_a_loop_that_issues_what_is_not_there_is_named(registered):
    def steps(workload):
        return [Step(PhaseName.FORWARD, i, issue=Ref(PhaseName.FORWARD, i + 1)) for i in range(len(workload.layers))]

    registered(loops, "WAITING", Loop(steps))
    with pytest.raises(LawError, match="layers that are not there"):
        check_loop("WAITING")
