"""The next step from this one's graph and the next one's kernel times."""

from pathlib import Path

import pytest

from simcore.replay.steps.build import Prepared
from simcore.replay.views.trial import foresight
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder
from tests.shared import recording
from tools.replay_validation import tables

DEVICE_BOUND = "ResNet, V100", "recommendation model, A100, rank 0 of 16", "ResNet, MI300X, rank 0 of 8"


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
    (found,) = foresight([Prepared(trace_of([300, 400, 800, 600]))])
    assert found.steps == 2
    assert found.graph < 0.01 < found.null
    assert found.persistence == pytest.approx((400 / 965 + 200 / 765) / 2, rel=0.05)


def test_steps_that_run_other_kernels_are_not_compared():
    recorder = Recorder()
    for name in ("gemm", "gemm", "norm"):
        recorder.launch(name, 100)
        recorder.mark()
    (found,) = foresight([Prepared(read_kineto(recorder.content(), "made.json"))])
    assert found.steps == 0


@pytest.fixture(scope="module")
def lines():
    """The tables of the validation page, made anew from public traces."""
    return "\n".join(tables(lambda place: recording(*place.split("/")))).replace("\n\n", "\n").splitlines()


def test_the_validation_page_has_what_the_traces_give(lines):
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    section = page.partition("## Recorded steps replayed")[2].splitlines()
    assert lines == [line for line in section if line.startswith("|")]


@pytest.mark.parametrize("name", DEVICE_BOUND)
def test_public_device_bound_traces_are_foretold_better_than_by_persistence(name, lines):
    cells = next(line for line in lines if line.startswith(f"| {name} |")).strip("| ").split(" | ")
    graph, _, persistence = (float(cell.rstrip("%")) for cell in cells[-3:])
    assert graph < persistence
