"""The training loops: what an NPU does in one iteration, in the notation of their documentation (ASTRA-sim 1.0)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.workload.headers import LOOPS
from simcore.workload.loops import Order, Ref, loops
from simcore.workload.model import CollectiveKind, Layer, Phase, PhaseName, Workload

FORWARD, INPUT, WEIGHT = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD
EXCHANGE = Phase(1, CollectiveKind.ALL_TO_ALL, 64)
BACKWARD = "F0 F1 F2 I2 W2 I1 W1 I0 W0"
DLRM = "F0 F1 F2 W2 I2 W1 I1 W0"
PRINTED = {
    "MICRO": "W0",
    "DATA": DLRM,
    "MODEL": BACKWARD,
    "HYBRID_DATA_MODEL": BACKWARD,
    "HYBRID_MODEL_DATA": BACKWARD,
    "HYBRID_CUSTOMIZED": BACKWARD,
    "HYBRID_TRANSFORMER": BACKWARD,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": BACKWARD,  # without checkpoints
    "HYBRID_DLRM": DLRM,
    "HYBRID_DLRM_ENHANCED": DLRM,
    "DISTRIBUTED_INFERENCE": "F0 F1 F2",
}


def workload(loop, layers=3, **details):
    return Workload(loop, (Layer("layer", EXCHANGE, EXCHANGE, EXCHANGE),) * layers, **details)


def steps(loop, layers=3, **details):
    return loops.get(loop).steps(workload(loop, layers, **details))


def test_every_loop_that_a_header_may_name_is_registered_and_no_other():
    assert set(loops.names()) == set(LOOPS) == set(PRINTED)


@pytest.mark.parametrize("loop", loops.names())
def test_a_loop_prints_as_documented(loop):
    assert " ".join(map(str, steps(loop))) == PRINTED[loop]


@given(st.sampled_from([name for name in loops if name != "MICRO"]), st.integers(1, 9))
def test_every_layer_is_computed_forwards_once_and_backwards_from_the_last(loop, layers):
    made = steps(loop, layers)
    forwards = [step.layer for step in made if step.phase == FORWARD]
    weights = [step.layer for step in made if step.phase == WEIGHT]
    assert forwards == list(range(layers))
    assert weights == ([] if loop == "DISTRIBUTED_INFERENCE" else forwards[::-1])


@pytest.mark.parametrize("loop", ["MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_CUSTOMIZED"])
def test_row_0_s_input_gradient_goes_nowhere_but_in_the_transformer_loops(loop):
    assert Ref(INPUT, 0) not in {step.issue for step in steps(loop)}
    assert Ref(INPUT, 0) in {step.issue for step in steps("HYBRID_TRANSFORMER")}


def test_model_parallel_weights_stay_where_they_are():
    assert not any(step.issue for step in steps("MODEL") if step.phase == WEIGHT)


@pytest.mark.parametrize(
    "loop", ["MODEL", "HYBRID_DATA_MODEL", "HYBRID_TRANSFORMER", "HYBRID_CUSTOMIZED", "DISTRIBUTED_INFERENCE"]
)
def test_activations_block_the_next_layer(loop):
    assert all(
        step.blocking and step.issue == Ref(FORWARD, step.layer) for step in steps(loop) if step.phase == FORWARD
    )


@pytest.mark.parametrize("loop", ["HYBRID_DATA_MODEL", "HYBRID_TRANSFORMER"])
def test_input_gradients_hide_behind_their_layer_s_weight_gradient_only(loop):
    for step in steps(loop):
        if step.phase == WEIGHT:
            assert step.after == Ref(INPUT, step.layer)
            assert step.order == Order.FIFO
        if step.phase == INPUT:
            assert step.order == Order.LIFO


@pytest.mark.parametrize("loop", [name for name in loops if name not in {"MICRO", "DISTRIBUTED_INFERENCE"}])
def test_a_forward_waits_for_the_weights_of_the_iteration_before(loop):
    assert all(step.before == Ref(WEIGHT, step.layer) for step in steps(loop) if step.phase == FORWARD)


def test_dlrm_sends_the_embedding_s_gradient_above_the_bottom_layers_and_awaits_it_at_row_0():
    made = steps("HYBRID_DLRM", 4, last_bottom_layer=1)
    assert [(step.layer, step.issue, step.order) for step in made if step.phase == INPUT and step.issue] == [
        (2, Ref(INPUT, 0), Order.HIGHEST)
    ]
    assert made[-1].after == Ref(INPUT, 0)
    assert steps("HYBRID_DLRM_ENHANCED", 4, last_bottom_layer=1)[-1].after is None


def test_dlrm_s_last_bottom_layer_waits_for_the_embedding_and_all_to_alls_go_first():
    layers = (Layer("embedding", EXCHANGE), Layer("bottom"), Layer("top"))
    made = loops.get("HYBRID_DLRM").steps(Workload("HYBRID_DLRM", layers, last_bottom_layer=1))
    assert (made[0].issue, made[0].order, made[0].blocking) == (Ref(FORWARD, 0), Order.HIGHEST, False)
    assert made[1].after == Ref(FORWARD, 0)
    assert made[2].after is None


# --- recomputation


def recomputed(checkpoints, initiates, layers=4):
    made = steps("HYBRID_TRANSFORMER_FWD_IN_BCKWD", layers, checkpoints=checkpoints, checkpoint_initiates=initiates)
    return " ".join(map(str, made))


def test_forwards_run_again_from_the_checkpoint_to_the_layer_that_asks():
    assert recomputed((0, 2), (1, 3)) == "F0 F1 F2 F3 I3 F2 I3 W3 I2 W2 I1 F0 I1 W1 I0 W0"
    assert recomputed((0,), (3,)) == "F0 F1 F2 F3 I3 F0 F1 F2 I3 W3 I2 W2 I1 W1 I0 W0"


def test_a_recomputation_that_meets_another_asking_layer_goes_on_from_there():
    assert recomputed((0,), (1, 3)) == "F0 F1 F2 F3 I3 F0 I1 W1 I0 W0"


@pytest.mark.parametrize(
    ("checkpoints", "initiates", "message"), [((2,), (1,), "no checkpoint is at or below"), ((3,), (3,), "never ends")]
)
def test_a_recomputation_that_cannot_begin_or_end_is_refused(checkpoints, initiates, message):
    with pytest.raises(InputError, match=message):
        recomputed(checkpoints, initiates)
