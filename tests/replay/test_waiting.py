"""A collective of which one rank was recorded: what of it is transfer, and what waiting for the others."""

import json

import pytest

from simcore.network.topology.model import Dimension, Topology
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.steps.build import Prepared
from simcore.replay.views.breakdown import critical_path
from simcore.replay.views.report import waiting
from simcore.replay.whatif.changes import kinds
from simcore.replay.whatif.retiming import Retimed
from simcore.replay.whatif.transfers import Interconnect, Transfer
from simcore.system.collectives.nccl import FABRICS, collective_s
from simcore.workload.kineto_reader import read_kineto
from simcore.workload.model import CollectiveKind
from tests.profiles_of_steps import Recorder

SAID = {
    "Collective name": "allreduce", "In msg nelems": 1 << 24, "dtype": "Half", "Group size": 8,
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip


def trace_of(lengths_us, device="made to order", arguments=(), late_us=0, rank=0):
    """Steps of one kernel and one all-reduce, which lasts as given in each of them."""
    recorder = Recorder(rank)
    for length_us in lengths_us:
        recorder.launch("gemm", 100 + late_us)
        recorder.launch("ncclDevKernel_AllReduce", length_us, 21, 7)
        recorder.events[-1]["args"] |= dict(arguments)
        recorder.synchronise()
        recorder.mark()
    document = recorder.document() | {"deviceProperties": [{"name": device}]}
    return read_kineto(json.dumps(document).encode(), "made.json")


def estimates(trace):
    return list(Prepared(trace).transfers.values())


def test_a_transfer_takes_at_most_what_it_took_in_the_quickest_step():
    assert {(one.least_ns, one.likely_ns, one.most_ns) for one in estimates(trace_of([300, 900, 500]))} == {
        (0, 300_000, 300_000)
    }


def test_a_transfer_takes_what_nccl_was_measured_to_take_where_size_ranks_and_device_are_known():
    (one,) = estimates(trace_of([5000], "NVIDIA H100 80GB HBM3", SAID))
    known = collective_s(CollectiveKind.ALL_REDUCE, 1 << 25, 8, 8, FABRICS["hgx-h100"]) * 1e9
    assert one.likely_ns == one.least_ns == pytest.approx(known, abs=1)
    assert one.most_ns == 5_000_000


@pytest.mark.parametrize("device", ["made to order", "NVIDIA H100 80GB HBM3"])
def test_a_rank_alone_in_its_group_waits_for_nobody(device):
    trace = trace_of([300, 900, 500], device, SAID | {"Group size": 1, "Process Group Ranks": "[0]"})
    assert [(one.least_ns, one.likely_ns, one.most_ns) for one in estimates(trace)] == [
        (each, each, each) for each in (300_000, 900_000, 500_000)
    ]
    assert "other_ranks" not in critical_path(replay_traces([trace], Changes()).steps[0][1])


def test_waiting_stays_where_transfers_get_faster_and_goes_with_the_collective():
    """Of 900 us in the second step 600 are waiting: half of 300 us is gained, and all of it without the collective."""
    trace = trace_of([300, 900, 300])
    half, none = (replay_traces([trace], Changes(), [kinds("communication", each)]).steps[0][1] for each in (0.5, 0))
    assert half.baseline_ns - half.predicted_ns == 150_000
    assert critical_path(half)["other_ranks"] == 600_000
    assert none.baseline_ns - none.predicted_ns == pytest.approx(900_000, abs=10_000)


def late_for(lengths_us, device="made to order", ranks=range(2)):
    """Two of eight ranks, of which the second comes 100 us late to each all-reduce; its kernel lasts as given."""
    return [
        trace_of(
            [length_us + 100 * (rank == 0) for length_us in lengths_us], device, SAID, late_us=100 * rank, rank=rank
        )
        for rank in ranks
    ]


@pytest.mark.parametrize("ranks", [range(1), range(2)])
def test_what_is_waiting_for_ranks_that_were_not_recorded_stays(ranks):
    """Of 900 us of the rank that came last 600 were waiting, as in a trace of that rank alone."""
    traces = late_for([300, 900, 300], ranks=ranks)
    (half, *_), (none, *_) = (
        [steps[1] for steps in replay_traces(traces, Changes(), [kinds("communication", each)]).steps]
        for each in (0.5, 0)
    )
    own = max(len(ranks), 2) - len(ranks)  # a rank alone has its own waiting in its quickest step
    assert half.baseline_ns - half.predicted_ns == 150_000 + 50_000 * own
    assert none.baseline_ns - none.predicted_ns == pytest.approx(900_000 + 100_000 * own, abs=10_000)
    assert critical_path(half)["other_ranks"] >= 600_000


def test_on_a_faster_network_what_the_recorded_one_does_not_explain_stays_for_several_ranks_as_for_one():
    slow, fast = (Topology((Dimension("Switch", 8, speed, 500.0),)) for speed in (100e9, 200e9))
    took = [Interconnect(one).time_ns(Transfer("all_reduce", 1 << 25, tuple(range(8)))) for one in (slow, fast)]
    what = Retimed((), Interconnect(fast), Interconnect(slow))
    for traces in (late_for([5000, 5000]), late_for([5000, 5000], ranks=range(1))):
        replay = replay_traces(traces, Changes(), [what])
        gained = {step.baseline_ns - step.predicted_ns for steps in replay.steps for step in steps[1:]}
        assert gained == {took[0] - took[1]}


def test_what_nccl_was_measured_to_take_is_a_groups_transfer_where_some_of_its_ranks_were_recorded():
    step = replay_traces(late_for([5000, 5000], "NVIDIA H100 80GB HBM3"), Changes()).steps[0][1]
    (one,) = {found.likely_ns for found in estimates(step.prepared.view.trace)}
    assert step.source.transfer_ns(0, step.tasks[-1]) == one
    assert waiting(step) == {
        "time_ns": 5_100_000,
        "waiting_ns": 5_100_000 - one,
        "least_ns": 100_000,
        "most_ns": 5_100_000 - one,
    }
