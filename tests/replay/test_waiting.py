"""A collective of which one rank was recorded: what of it is transfer, and what waiting for the others."""

import json

import pytest

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.steps.build import Prepared
from simcore.replay.views.breakdown import critical_path
from simcore.replay.whatif.changes import kinds
from simcore.system.collectives.nccl import FABRICS, collective_s
from simcore.workload.kineto_reader import read_kineto
from simcore.workload.model import CollectiveKind
from tests.profiles_of_steps import Recorder

SAID = {
    "Collective name": "allreduce", "In msg nelems": 1 << 24, "dtype": "Half", "Group size": 8,
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip


def trace_of(lengths_us, device="made to order", arguments=()):
    """Steps of one kernel and one all-reduce, which lasts as given in each of them."""
    recorder = Recorder()
    for length_us in lengths_us:
        recorder.launch("gemm", 100)
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
