"""What holds of random ASTRA-sim 2.x runs without the original: ways of working them out, symmetries, closed forms."""

from dataclasses import replace
from math import prod
from unittest import mock

import numpy as np
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from simcore.engine import run, transports
from simcore.engine.settings import Settings
from simcore.errors import DeadlockError
from simcore.network.topology.model import Dimension, Topology
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.memory import RemoteMemory
from simcore.system.transport import Played
from simcore.workload.model import CollectiveKind, NodeKind
from tests.laws.cases_astra_sim_2 import NUMBERS, Case, Event, cases
from tests.runs import KINDS


@settings(deadline=None, max_examples=40)
@given(cases())
def test_folding_changes_nothing(case):
    assert case.report() == case.report(fold=False)


@settings(deadline=None, max_examples=40)
@given(cases(shared=False))
def test_phases_that_are_solved_end_as_those_played_message_by_message(case):
    choices_of = run.choices_of
    with mock.patch.object(run, "choices_of", lambda setup: choices_of(replace(setup, in_turn=True))):
        played = finish_ns(case)
    assert finish_ns(case) == played


@settings(deadline=None, max_examples=40)
@given(cases(shared=True))
def test_columns_in_the_order_of_events_do_what_ranks_played_one_by_one_do(case):
    in_columns = outcome(case)
    with mock.patch.object(transports, "InOrder", Played):
        assert outcome(case) == in_columns


def outcome(case: Case) -> object:
    """Report of a case, or what waits for what for ever."""
    try:
        return case.report()
    except DeadlockError as error:
        return str(error)


def finish_ns(case: Case) -> object:
    """When NPUs finish; None where they wait for each other for ever."""
    try:
        return case.finish_ns()
    except DeadlockError:
        return None


def relabelled(case: Case, names: list[int]) -> Case:
    """The same run with NPU n called `names[n]`."""
    events = []
    for event in case.events:
        pairs = [(names[npu], wait) for npu, wait in zip(event.npus, event.waits, strict=True)]
        if event.kind == NodeKind.COLLECTIVE and not case.is_group(event):
            pairs.sort()
        npus, waits = zip(*pairs, strict=True)
        events.append(replace(event, npus=npus, waits=waits))
    return replace(case, events=tuple(events))


@settings(deadline=None, max_examples=40)
@given(cases(shared=False, names=("ring", "direct"), loads=False), st.data())
def test_npus_may_be_numbered_from_anywhere_in_every_dimension(case, data):
    """Rings, switches and full meshes look the same from everywhere; only trees and pairs go by an NPU's place.

    Where NPUs start different collectives first, the original may wait for ever; who is first in a tie goes by the NPU.
    """
    assume(not case.system.implementations[CollectiveKind.ALL_REDUCE][0].whole_machine)
    sizes = [dim.npus for dim in case.topology.dims]
    shifts = [data.draw(st.integers(0, size - 1)) for size in sizes]
    places = np.array(np.unravel_index(np.arange(prod(sizes)), sizes, order="F"))
    moved = (places + np.array(shifts)[:, None]) % np.array(sizes)[:, None]
    names = np.ravel_multi_index(tuple(moved), sizes, order="F").tolist()
    try:
        found, expected = relabelled(case, names).finish_ns(), case.finish_ns()
    except DeadlockError:
        reject()
    assert expected == [found[name] for name in names]


def slowed(case: Case, factor: int) -> Case:
    """The same run with every time `factor` times as long, where no time has a fraction."""

    def dimension(dim: Dimension) -> Dimension:
        return replace(dim, bandwidth_bytes_per_s=1e9 / factor, latency_ns=factor * float(round(dim.latency_ns)))

    events = tuple(
        replace(event, details=dict(event.details) | {"duration_ns": factor * event.details.get("duration_ns", 1)})
        for event in case.events
    )
    topology = Topology(tuple(dimension(dim) for dim in case.topology.dims))
    endpoint_ns = factor * (case.system.endpoint_delay_ns or 0)
    system = replace(case.system, endpoint_delay_ns=endpoint_ns, local_memory_bytes_per_s=0.0, roofline=False)
    memory = RemoteMemory(factor * 100, 1 / factor, case.memory.npus_per_node if case.memory else 0)
    return replace(case, events=events, topology=topology, system=system, memory=memory)


@settings(deadline=None, max_examples=40)
@given(cases(groups=False, bus=False), st.sampled_from([2, 4, 8]))
def test_a_factor_on_all_times_is_one_on_the_answer(case, factor):
    """With whole nanoseconds and powers of two, as every time is truncated.

    Left out is what has a time of its own: rings of communicators pay 10 ns at the endpoint, the memory bus has another
    behind it. Reductions and rooflines are scaled after they were divided, so whole times may be truncated to one less.
    """
    once, often = slowed(case, 1).finish_ns(), slowed(case, factor).finish_ns()
    assert often == [factor * time_ns for time_ns in once]


def reduction_ns(size_bytes: int, rate: float) -> int:
    """Two reads and a write."""
    return 3 * int(size_bytes / rate * 1e9)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_collective_alone_takes_the_closed_form_as_often_as_it_has_chunks(data):
    """The reference's forms; the farthest peer is half a ring away, one hop in a full mesh and two behind a switch."""
    kind, npus = data.draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])), data.draw(st.integers(2, 9))
    rate, latency_ns = data.draw(st.sampled_from([1, 12.5, 291.98])) * 2**30, data.draw(st.sampled_from([1.0, 936.25]))
    wanted, splits = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from([1, 2, 4, 7]))
    name, size_bytes = data.draw(st.sampled_from(["ring", "direct"])), data.draw(st.integers(70, 1 << 21))
    ep, memory = data.draw(st.sampled_from([1, 10, 47])), data.draw(st.sampled_from([50e9, 1600e9]))
    system = SystemConfig(
        endpoint_delay_ns=ep,
        preferred_dataset_splits=splits,
        implementations=dict.fromkeys(KINDS, (Algorithm(name),)),
        local_memory_bytes_per_s=memory,
    )
    details = {"size_bytes": size_bytes, "collective": NUMBERS.index(wanted)}
    event = Event(NodeKind.COLLECTIVE, tuple(range(npus)), details, (False,) * npus)
    free = Settings(network="congestion-free")
    case = Case((event,), Topology((Dimension(kind, npus, rate, latency_ns),)), system, free)

    chunk = size_bytes // splits
    message = chunk if wanted == CollectiveKind.ALL_GATHER else chunk // npus
    near = 2 if kind == "Switch" else 1
    hops = npus // 2 if kind == "Ring" and name == "direct" else near
    c = int(hops * latency_ns + message / (rate / 1e9))
    red = reduction_ns(message, memory)
    steps = npus - 1
    forms = {
        ("ring", CollectiveKind.ALL_REDUCE): ep + 2 * steps * (c + ep) + steps * red,
        ("ring", CollectiveKind.REDUCE_SCATTER): ep + steps * (c + ep + red),
        ("ring", CollectiveKind.ALL_GATHER): ep + steps * (c + ep),
        ("ring", CollectiveKind.ALL_TO_ALL): ep + npus * steps // 2 * (c + ep),
        ("direct", CollectiveKind.ALL_REDUCE): ep + 2 * (c + ep) + red,
        ("direct", CollectiveKind.REDUCE_SCATTER): ep + c + ep + red,
        ("direct", CollectiveKind.ALL_GATHER): ep + c + ep,
        ("direct", CollectiveKind.ALL_TO_ALL): ep + c + ep,
    }
    chunks = -(-size_bytes // chunk)
    assert case.finish_ns() == [chunks * forms[name, wanted]] * npus
