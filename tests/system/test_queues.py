"""Chunks that wait: priorities, room, and the policies of ASTRA-sim 1.0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.network.instant import Environment
from simcore.system.chunks.scheduler import INSERTION, ChunkQueue
from simcore.system.config import Algorithm
from simcore.system.groups import LogicalDim, cut, logical_dims
from simcore.system.npus.npu import HIGHEST_PRIORITY, Priorities
from simcore.system.streams import Dataset, Lane, Request, Stream, StreamPhase
from simcore.workload.loops import Order
from simcore.workload.model import CollectiveKind

LANE = Lane(0, LogicalDim(0, 4, 1), Algorithm("ring"))
SCATTER, GATHER, REDUCE = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE


def chunk(number, kind=SCATTER, size_bytes=64, priority=0, behind=0):
    """A chunk with some phases behind the one it waits for."""
    request = Request(kind, size_bytes, (LANE,), priority)
    phase = StreamPhase(kind, LANE, size_bytes, size_bytes, 0)
    return Stream(("", number), Dataset(Environment(), request), (phase,) * (1 + behind))


CHUNKS = st.lists(
    st.builds(
        chunk,
        st.just(0),
        st.sampled_from([SCATTER, GATHER, REDUCE]),
        st.sampled_from([1, 2, 3]),
        st.integers(-2, 2),
        st.integers(0, 2),
    ),
    max_size=12,
)


@pytest.mark.parametrize("policy", INSERTION)
@given(chunks=CHUNKS, limit=st.integers(1, 4))
def test_every_chunk_plays_once_and_no_more_than_the_limit_at_a_time(policy, chunks, limit):
    queue, played = ChunkQueue(limit), []
    for stream in chunks:
        queue.add(stream, INSERTION[policy])
        while started := queue.next():
            played.append(started)
        assert queue.running <= limit
    while queue.streams:
        queue.remove(queue.streams[0])
        while started := queue.next():
            played.append(started)
    assert sorted(map(id, played)) == sorted(map(id, chunks))


@given(CHUNKS)
def test_higher_priority_goes_first_and_equal_ones_in_order_of_arrival(chunks):
    queue = ChunkQueue(1)
    for stream in chunks:
        queue.add(stream, INSERTION["FIFO"])
    order = {id(stream): position for position, stream in enumerate(chunks)}
    found = [(-stream.priority, order[id(stream)]) for stream in queue.streams]
    assert found == sorted(found)


def waiting(policy, *chunks):
    queue = ChunkQueue(1)
    for stream in chunks:
        queue.add(stream, INSERTION[policy])
    return [stream.key[1] for stream in queue.streams]


def test_small_chunks_go_first_but_for_those_with_one_more_phase():
    assert waiting("SCF", chunk(0, size_bytes=8), chunk(1, size_bytes=2), chunk(2, size_bytes=4)) == [1, 2, 0]
    assert waiting("SCF", chunk(0, size_bytes=8), chunk(1, size_bytes=2, behind=1)) == [0, 1]


def test_chunks_with_fewer_phases_left_go_first():
    phases = [chunk(0, behind=3), chunk(1, behind=1), chunk(2, behind=2)]
    assert waiting("lessRemainingPhaseFirst", *phases) == [1, 2, 0]


def test_priorities_count_up_for_lifo_and_down_for_fifo_on_one_counter():
    """So a layer's weight gradient outranks every later input gradient (ASTRA-sim 1.0)."""
    mine = Priorities(Order.LIFO)
    assert [mine.next(order) for order in (Order.LIFO, Order.FIFO, Order.LIFO, Order.FIFO)] == [0, 1, 0, 1]
    assert mine.next(Order.HIGHEST) == HIGHEST_PRIORITY
    assert [mine.next(Order.SYSTEM), mine.next(Order.SYSTEM)] == [0, 1]


# --- groups


@given(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3), st.integers(1, 64))
def test_a_cut_machine_has_the_same_npus_and_groups_of_the_product(sizes, product):
    dims = logical_dims(sizes)
    npus = dims[-1].stride * dims[-1].size
    try:
        made = cut(dims, product)
    except ValueError:
        return
    totals = [1]
    for dim in made:
        assert dim.stride == totals[-1]
        totals.append(totals[-1] * dim.size)
    assert product in totals
    assert totals[-1] == npus


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
def test_the_groups_of_a_dimension_part_the_machine(sizes):
    for dim in logical_dims(sizes):
        npus = 1
        for size in sizes:
            npus *= size
        groups = {tuple(dim.members(npu).tolist()) for npu in range(npus)}
        assert sorted(npu for group in groups for npu in group) == list(range(npus))
        assert all(len(group) == dim.size for group in groups)
