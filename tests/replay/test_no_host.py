"""Traces that hold the device alone, as some that are published do: nobody launches, and nobody marks steps."""

import json

import pytest

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.breakdown import critical_path, sides
from simcore.replay.whatif.changes import kinds
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder

STEPS = 3


def device_alone(keep_marks=False):
    """Products on one stream, a collective of each on another, and the product of the next step behind that."""
    recorder = Recorder()
    for _ in range(STEPS):
        recorder.launch("gemm", 400)
        recorder.launch("ncclDevKernel_AllReduce", 300, 21, 7)
        recorder.synchronise()
        recorder.mark()
    document = recorder.document()
    kept = {"kernel"} | ({"user_annotation"} if keep_marks else set())
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") in kept]
    return read_kineto(json.dumps(document).encode(), "device.json")


@pytest.mark.parametrize("keep_marks", [False, True])
def test_a_step_of_which_no_host_was_recorded_is_not_the_hosts(keep_marks):
    for step in replay_traces([device_alone(keep_marks)], Changes()).steps[0]:
        assert sides(critical_path(step))["host"] < 0.1
        assert step.tasks


def test_a_single_device_gets_shorter_by_what_its_kernels_do():
    (step,) = replay_traces([device_alone()], Changes(), [kinds("products", 0.5)]).steps[0]
    assert step.baseline.device_ns - step.period.device_ns == STEPS * 200_000


@pytest.mark.parametrize("lost", [{}, {"correlation": 0}])
def test_a_stream_without_launches_goes_with_what_runs_at_the_time(lost):
    """Half of the launches are lost with their stream, as of kernels inside of graphs; some versions write 0."""
    recorder = Recorder()
    for _ in range(STEPS):
        recorder.launch("gemm", 400)
        recorder.launch("ncclDevKernel_AllReduce", 300, 21, 7)
        recorder.synchronise()
        recorder.mark()
    document = recorder.document()
    for event in document["traceEvents"]:
        if "nccl" in event["name"] or "Synchronize" in event["name"]:
            del event["args"]["correlation"]
            event["args"] |= lost
    trace = read_kineto(json.dumps(document).encode(), "half.json")
    assert [len(step.tasks) for step in replay_traces([trace], Changes()).steps[0]] == [2] * STEPS
