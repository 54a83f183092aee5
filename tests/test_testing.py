"""The laws that users try on their own: what is shipped keeps them, what is broken is named."""

from dataclasses import replace
from functools import partial

import pytest

from simcore import testing
from simcore.engine.run import simulate
from simcore.errors import InputError
from simcore.network.topology.fabric import FABRICS
from simcore.network.topology.model import Dimension, Topology
from simcore.system.collectives import algorithms
from simcore.system.plans.plan import Plan, Round, Transfer
from simcore.testing import LawError, check_collective, check_folding, check_loop, check_topology
from simcore.workload.loops import Loop, Ref, Step, loops
from simcore.workload.model import CollectiveKind, Layer, Phase, PhaseName, Workload

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
        (lambda kind, size, *_: Plan(size, transfers=(Transfer(0, 0, 1, (0,), True),)), "misses"),
        (refuses, "on every number of ranks"),
    ],
)
def test_what_a_broken_collective_breaks_is_said(algorithm, law):
    with pytest.raises(LawError, match=law):
        check_collective(algorithm, ALL_REDUCE)


def pairwise(kind, size, data_bytes, options):
    """The rounds of the shipped algorithm, as a user would register them."""
    if size & (size - 1):
        raise InputError.at("mine", "powers of two only")
    return Plan(size, tuple((Round(hop, data_bytes // size), 1) for hop in range(1, size)), exchange=True)


def test_rounds_of_pairs_take_as_long_under_any_name():
    check_collective(pairwise, ALL_TO_ALL)


def test_a_run_that_is_faster_than_its_messages_is_named(monkeypatch, tmp_path):
    def hurried(workload, topology, system, profile, settings):
        scale = 1.0 if settings.exact else 0.5
        return simulate(workload, topology, system, profile, replace(settings, comm_scale=scale))

    monkeypatch.setattr(testing, "simulate", hurried)
    system = tmp_path / "system.yaml"
    system.write_text("preferred-dataset-splits: 1\n")
    with pytest.raises(LawError, match="on a Ring of 4 ranks: message by message time_ns is 9000, folded 6000"):
        check_collective(algorithms.get("ring"), ALL_REDUCE, ranks=(4,), system=system)
    workload = Workload("DATA", (Layer("layer", weight_grad=Phase(0, ALL_REDUCE, 4096)),))
    with pytest.raises(LawError, match="DATA: message by message time_ns"):
        check_folding(workload, system=system)


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
