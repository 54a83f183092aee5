"""What a replay's report says of a rank: how much of its devices is in use."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.report import utilisation, warnings
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder, recorded


def replayed(said, steps=2):
    """A rank whose kernels of 100 us, on a stream each, `said` so much."""
    recorder = Recorder(0)
    for _ in range(steps):
        for stream, (name, arguments) in enumerate(said):
            recorder.launch(name, 100, 7 + stream)
            recorder.events[-1]["args"] |= arguments
        recorder.synchronise()
        recorder.mark()
    return replay_traces([read_kineto(json.dumps(recorder.document()).encode(), "rank0.json")], Changes())


@given(st.lists(st.lists(st.integers(0, 16), min_size=1, max_size=3), min_size=1, max_size=4))
def test_several_devices_are_in_use_as_much_as_one_of_them_is_in_the_mean(shares):
    """Kernels that run at once add up on their device: two that are half full were one full one."""
    said = [
        ("gemm", {"device": device, "blocks per SM": share / 16, "est. achieved occupancy %": 100 * share / 16})
        for device, own in enumerate(shares)
        for share in own
    ]
    found = utilisation(replayed(said), 0)
    whole = sum(min(sum(own) / 16, 1) for own in shares) / len(shares)
    for filled in (found.sm_measured, found.sm_predicted, found.occupancy_measured, found.occupancy_predicted):
        assert max(filled) == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_kernels_that_were_lost_are_counted_by_their_launches(lost):
    """Not what launches no kernel: records of events, and memsets of nothing."""
    recorder = recorded([("launch", "gemm", 100), ("record", 7), ("launch", "norm", 50), ("synchronise",)])
    kernels = [event for event in recorder.events if event["cat"] == "kernel"]
    recorder.events = [event for event in recorder.events if event not in kernels[-lost:] or not lost]
    recorder.add("cuda_runtime", "cudaMemsetAsync", recorder.began_us - 1, 1, 1, correlation=1000)
    replay = replay_traces([read_kineto(recorder.content(), "rank0.json")], Changes())
    said = [text for text in warnings(replay, 0) if "no recorded task" in text]
    assert said == [
        f"incomplete trace: {lost} launches have no recorded task: it was lost, or captured into a graph"
    ] * (lost > 0)
