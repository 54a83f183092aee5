"""The next step from this one's graph and the next one's kernel times."""

from pathlib import Path

import pytest

from simcore.replay.build import prepare
from simcore.replay.views.trial import foresight
from simcore.workload.kineto import read_kineto, read_ranks
from tests.profiles_of_steps import Recorder
from tests.shared import shared
from tools.replay_validation import tables

DEVICE_BOUND = [
    ("hta", "ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"),
    ("hta", "negative_queue_length_values_check__rank0.json.gz"),
    ("tracelens", "mi300__resnet_act_checkpoint.json.gz"),
]


def trace_of(lengths_us):
    recorder = Recorder()
    for length_us in lengths_us:
        recorder.launch("gemm", length_us)
        recorder.launch("ncclAllReduce", 100, 21, 7)
        recorder.launch("adam", 50, 7, 21)
        recorder.synchronise()
        recorder.mark()
    return read_kineto(recorder.content(), "made.json")


def test_known_kernel_times_tell_a_device_bound_step_exactly():
    (found,) = foresight([prepare(trace_of([300, 400, 800, 600]))])
    assert found.steps == 2
    assert found.graph < 0.01 < found.null
    assert found.persistence == pytest.approx((400 / 965 + 200 / 765) / 2, rel=0.05)


def test_steps_that_run_other_kernels_are_not_compared():
    recorder = Recorder()
    for name in ("gemm", "gemm", "norm"):
        recorder.launch(name, 100)
        recorder.mark()
    (found,) = foresight([prepare(read_kineto(recorder.content(), "made.json"))])
    assert found.steps == 0


@pytest.mark.parametrize("place", DEVICE_BOUND, ids=[name[:12] for _, name in DEVICE_BOUND])
def test_public_device_bound_traces_are_foretold_better_than_by_persistence(place):
    (found,) = foresight([prepare(trace) for trace in read_ranks([shared("data", "traces", *place)])])
    assert found.graph < found.persistence


def test_the_validation_page_has_what_the_traces_give():
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    assert "\n".join(tables(shared("data", "traces"))).replace("\n\n", "\n").splitlines() == [
        line for line in page.partition("## Recorded steps replayed")[2].splitlines() if line.startswith("|")
    ]
