"""Who is first of NPUs that act in the same nanosecond, worked out by hand."""

from collections import Counter

import numpy as np
import pytest

from simcore.system.chunks.precedence import Precedence
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.collectives import PlanOptions
from simcore.system.config import Algorithm
from simcore.system.groups import LogicalDim
from simcore.system.plans.maker import Costs, Plans
from simcore.system.streams import Lane, StreamPhase
from simcore.workload.model import CollectiveKind
from tests.laws.cases_astra_sim_1 import answer, random_case

NPUS = 6
INNER, OUTER = LogicalDim(0, 2, 1), LogicalDim(1, 3, 2)


def order_after(*phases, rendezvous=False):
    """NPUs 0 to 5 in the order in which they leave the last of some phases."""
    asked, order = precedence(rendezvous=rendezvous), None
    for number, each in enumerate(phases):
        asked.begin(number, each, 10_000 * number, order)
        _, order = asked.after([number])
    return tuple(order)


def precedence(*, rendezvous=False):
    plans = Plans(Costs(10, lambda _: 0, PlanOptions(), rendezvous=rendezvous))
    return Precedence(NPUS, plans, lambda src, dst, size_bytes: abs(dst - src) * 0 + 500)


def phase(dim, kind=CollectiveKind.REDUCE_SCATTER, algorithm="ring", window=0, *, backward=False):
    lane = Lane(dim.index, dim, Algorithm(algorithm, window))
    return StreamPhase(kind, lane.backward if backward else lane, 96, 96, 0)


def test_the_receiver_of_the_first_message_is_the_next_to_send():
    """A ring of 2 goes round one step, a ring of 3 two."""
    assert order_after(phase(INNER)) == (1, 0, 3, 2, 5, 4)
    assert order_after(phase(INNER), phase(OUTER)) == (5, 4, 1, 0, 3, 2)


def test_of_messages_sent_at_once_the_first_counts():
    """NPU 0 sends to 2 and 4, then 1 to 3 and 5; the first message to NPU 0 is NPU 2's."""
    assert order_after(phase(OUTER, algorithm="direct")) == (2, 4, 3, 5, 0, 1)


def test_backward_rings_go_the_other_way():
    assert order_after(phase(OUTER, backward=True)) == order_after(phase(OUTER), phase(OUTER))


def test_receivers_that_ask_are_served_in_their_own_order():
    assert order_after(phase(INNER), rendezvous=True) == tuple(range(NPUS))


def test_of_a_tree_the_first_to_be_through_is_first():
    pairs = LogicalDim(0, 4, 1)
    tree = phase(pairs, CollectiveKind.ALL_REDUCE, "doubleBinaryTree")
    plans = Plans(Costs(10, lambda _: 0, PlanOptions()))
    asked = Precedence(4, plans, lambda src, dst, size_bytes: abs(dst - src) * 100)
    asked.begin("tree", tree, 0)
    _, order = asked.after(["tree"])
    assert sorted(order) == list(range(4)) and tuple(order) != tuple(range(4))


def test_chunks_of_one_time_go_on_in_one_order():
    """One goes round each way: NPU 0 sends to 2 and 4, 1 to 3 and 5, then 2 to 4 and 0, 4 to 0 and 2, 3 to 5 and 1."""
    asked = precedence()
    for way in (False, True):
        asked.begin(way, phase(OUTER, backward=way), 0)
    assert [tuple(asked.after([way])[1]) for way in (False, True)] == [(4, 0, 2, 5, 1, 3)] * 2


def test_what_npus_do_at_a_time_already_says_in_which_order_they_do_the_rest():
    asked, backwards = precedence(), np.arange(NPUS)[::-1]
    asked.later(10, backwards)
    asked.begin("joins", phase(INNER), 0)
    assert asked.now(10) is backwards and tuple(asked.after(["joins"])[1]) == (4, 5, 2, 3, 0, 1)
    assert asked.now(99, backwards) is backwards


@pytest.mark.parametrize("seed", [1, 90])
def test_chunks_that_end_together_are_told_with_their_own_beginnings(seed, monkeypatch):
    """Whichever of them goes on first."""
    begun, told, begin, chunk = Counter(), Counter(), Scheduler.begin, Scheduler.chunk

    def begins(scheduler, streams):
        begun.update((stream.phase, int(scheduler.env.now)) for stream in streams.values())
        begin(scheduler, streams)

    def tells(scheduler, request, phase, begin_ns, *more):
        told[phase, begin_ns] += 1
        return chunk(scheduler, request, phase, begin_ns, *more)

    monkeypatch.setattr(Scheduler, "begin", begins)
    monkeypatch.setattr(Scheduler, "chunk", tells)
    case = random_case(seed, most_npus=8)
    case["system"].pop("model-shared-bus", None)
    answer(case)
    assert begun == told != Counter()
