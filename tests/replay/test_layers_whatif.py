"""Another number of layers, against traces of that many."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.replay.device import SHORT_GAP_NS
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif import Layers
from simcore.workload.kineto import read_kineto, read_ranks
from tests.profiles_of_steps import recorded
from tests.shared import shared

operations = st.one_of(
    st.tuples(st.just("work"), st.integers(1, 100)),
    st.tuples(st.just("launch"), st.sampled_from(["gemm", "norm"]), st.integers(1, 300)),
)
bodies = st.lists(operations, min_size=1, max_size=8).map(lambda body: [("work", 3), ("launch", "gemm", 40), *body])


def model(layers, forward, backward, batches=1):
    """Forward and backward of every layer in ranges, an optimizer's kernel, and a synchronisation."""
    step = [("work", 20), ("launch", "embedding", 30)]
    for _ in range(batches):
        step += [("annotate", f"layer {number} forward", forward) for number in range(layers)]
        step += [("annotate", f"layer {number} backward", backward) for number in reversed(range(layers))]
    return [*step, ("launch", "adam", 70), ("synchronise",), ("work", 10)]


def trace_of(program, rank=0):
    return read_kineto(recorded(program, 3, rank).content(), "made.json")


@settings(deadline=None, max_examples=50)
@given(bodies, bodies, st.integers(2, 5), st.integers(1, 7), st.integers(1, 2))
def test_a_model_of_other_depth_takes_what_its_own_trace_says(forward, backward, layers, wanted, batches):
    """Against a recording of that many. At each seam a short gap may be the device's own or that of a late launch."""
    seams = 2 * batches * max(wanted - layers, 1)
    predicted = replay_traces([trace_of(model(layers, forward, backward, batches))], Changes(), [Layers(wanted)])
    measured = trace_of(model(wanted, forward, backward, batches)).steps[1]
    assert predicted.steps[0][1].predicted_ns == pytest.approx(
        measured.end_ns - measured.start_ns, rel=0.02, abs=SHORT_GAP_NS * seams
    )


@pytest.mark.parametrize("wanted", [1, 2, 4, 12])
@pytest.mark.parametrize("length_us", [4, 300])
def test_where_host_or_device_alone_decides_other_depths_are_exact(wanted, length_us):
    """Kernels of 300 us that always queue, or of 4 us that never do."""
    forward, backward = ([("work", 30), ("launch", "gemm", length_us), ("work", rest)] for rest in (20, 40))
    predicted = replay_traces([trace_of(model(4, forward, backward))], Changes(), [Layers(wanted)])
    measured = trace_of(model(wanted, forward, backward)).steps[1]
    assert predicted.steps[0][1].predicted_ns == measured.end_ns - measured.start_ns


def test_the_recorded_number_of_layers_changes_nothing():
    trace = trace_of(model(3, [("launch", "gemm", 50)], [("launch", "gemm", 90)]))
    step = replay_traces([trace], Changes(), [Layers(3)]).steps[0][1]
    assert (step.predicted_ns, step.schedule.copies) == (step.baseline_ns, 4)


def test_a_layer_holds_on_to_its_collectives_on_all_ranks():
    """Two ranks, one 200 us slower a layer: each of six layers costs the slower one's time on both."""
    programs = [
        [
            (
                "annotate",
                f"layer {n}",
                [("launch", "gemm", 300 - 200 * rank), ("launch", "ncclAllReduce", 50 + 200 * rank)],
            )
            for n in range(3)
        ]
        for rank in (0, 1)
    ]
    traces = [trace_of([*program, ("synchronise",)], rank) for rank, program in enumerate(programs)]
    found = replay_traces(traces, Changes(), [Layers(6)]).steps
    gained = [steps[1].predicted_ns - steps[1].baseline_ns for steps in found]
    assert gained == pytest.approx([3 * 352_000] * 2, rel=0.01)


UNNAMED = {
    "no ranges": [("launch", "gemm", 50)] * 4,
    "one layer": [("annotate", "layer 0", [("launch", "gemm", 50)])],
    "nothing launched": [("annotate", f"layer {n}", [("work", 5)]) for n in range(3)] + [("launch", "gemm", 50)],
}


@pytest.mark.parametrize("program", UNNAMED.values(), ids=UNNAMED.keys())
def test_layers_need_ranges_that_launch_the_same_kernels(program):
    with pytest.raises(InputError, match="does not say which calls and kernels are a layer"):
        replay_traces([trace_of(program)], Changes(), [Layers(2)])


def test_layers_of_a_forward_pass_do_not_stand_for_the_backward_pass():
    recorder = recorded([*[("annotate", f"layer {n}", [("launch", "gemm", 50)]) for n in range(2)], ("work", 40)])
    recorder.add("cpu_op", "autograd::engine::evaluate_function", recorder.now_us - 20, 10, 2)
    with pytest.raises(InputError, match="the backward pass runs outside the ranges 'layer'") as raised:
        replay_traces([read_kineto(json.dumps(recorder.document()).encode(), "made.json")], Changes(), [Layers(4)])
    assert "layers cannot be changed" in str(raised.value)


def test_public_models_grow_by_their_layers():
    """Inference on an H100 with PyTorch's module stack: Qwen1.5-0.5B has 24 layers, 47.15 ms a pass."""
    traces = read_ranks([shared("data", "traces", "tracelens", "h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")])
    times = [replay_traces(traces, Changes(), [Layers(count)]).steps[0][0].predicted_ns for count in (23, 24, 25, 26)]
    assert times[1] == pytest.approx(47.15e6, rel=0.001)
    assert np.diff(times) == pytest.approx([times[1] / 24] * 3, rel=0.5)
    assert np.diff(times)[1:] == pytest.approx([times[2] - times[1]] * 2, rel=0.01)
