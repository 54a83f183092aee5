"""A training step of the wafer-scale generator: what the backward pass costs and sends."""

import numpy as np
import pytest
from msgspec.structs import replace

from simcore.generate.wse.nodes import exchanges, operations, steps
from simcore.generate.wse.settings import groups
from simcore.generate.wse.traffic import matrix, node_step
from tests.generate.test_wse_nodes import SYSTEMS
from tests.generate.wse import SMALL_LLAMA, job, rows

TRAINED = sorted(name for name, system in SYSTEMS.items() if system.dp_ffn == 1)
KINDS = {"Linear", "GroupedLinear", "MLANaiveAttention", "SelfAttention"}


def train(on="experts", **changes):
    """A training job and its rows."""
    made = job(on=SYSTEMS[on], **changes)
    return replace(made, prefill_len=6, phase="train")


def passes(held):
    """(forward, input gradient, weight gradient) rows of a node."""
    gradients = ([each for each in held if each.uid.endswith(end)] for end in ("_dgrad", "_wgrad"))
    return [each for each in held if not each.uid.endswith(("_dgrad", "_wgrad"))], *gradients


@pytest.mark.parametrize("model", [{}, {"model": SMALL_LLAMA}], ids=["latent", "grouped"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_training_step_computes_three_times_its_forward_pass(name, model):
    """Every product once for the output, once for each gradient; an attention twice more."""
    for held in rows(train(name, **model))[2]:
        forward, inputs, weights = passes(held)
        work = sum(each.macs for each in forward)
        attention = sum(each.macs for each in forward if each.kind.endswith("Attention"))
        assert sum(each.macs for each in inputs) == work + attention
        assert sum(each.macs for each in weights) == work - attention


@pytest.mark.parametrize("name", TRAINED)
def test_the_forward_pass_of_a_training_step_is_a_prefill(name):
    """The same rows, in front."""
    made = train(name)
    forward = [[str(each._replace(of=None)) for each in passes(held)[0]] for held in rows(made)[2]]
    alone = rows(replace(made, phase="prefill"))[2]
    prefill = [[str(each._replace(of=None)) for each in held] for held in alone]
    assert forward == prefill


@pytest.mark.parametrize("name", TRAINED)
def test_the_partial_gradients_of_a_block_s_input_are_summed_behind_their_product(name):
    """Of the head, too: all-reduces of input gradients wait for a product of the same layer."""
    for held in rows(train(name))[2]:
        products = set[str]()
        for each in passes(held)[1]:
            layer = each.uid.replace("lm_head", "head").split("_")[0]
            assert each.kind != "AllReduce" or "_ar_sp" in each.uid or layer in products
            products |= {layer} if each.kind in KINDS else set()


@pytest.mark.parametrize("name", sorted(set(TRAINED) - {"alone"}))
def test_tokens_and_results_of_experts_travel_back_the_way_they_came(name):
    """Bytes of dispatch and combine, from node to node, are those of the forward pass turned round."""
    made = train(name, layers="decode2")
    step = steps(made)[0]
    phases = node_step(made, step, exchanges(made, step)).phases
    there, back = (
        matrix([each for each in phases if "_moe" in each.name and each.name.endswith("_dgrad") == backward], 8)
        for backward in (False, True)
    )
    if SYSTEMS[name].tp_ffn == 1 and SYSTEMS[name].exchange == "alltoall":
        own = [each for each in phases if each.name.endswith(("_barrier_mc", "_barrier_mc_dgrad"))]
        shared = [matrix([each], 8) for each in own]
        assert (shared[0] == shared[1]).all()
        assert ((there - shared[0]) == (back - shared[1]).T).all()
    assert there.sum() == back.sum() or SYSTEMS[name].exchange == "multicast"


@pytest.mark.parametrize("name", sorted(set(TRAINED) - {"alone"}))
def test_weight_gradients_are_summed_over_the_nodes_with_the_same_weights(name):
    """The vector of a layer's all-reduce is as long as its weights that have copies."""
    made = train(name, layers="decode0")
    _, _, held = rows(made)
    for node, own in enumerate(held):
        sums = [each for each in own if "_sync_" in each.uid]
        attention = sum(each.memory_bytes for each in own if each.uid.endswith("_wgrad") and "_attn" in each.uid)
        group = groups(made.system, node).replicas
        found = [each for each in sums if "attention" in each.uid]
        assert [(each.network_bytes, each.group) for each in found] == ([(attention, group)] * (len(group) > 1))


def test_every_node_of_a_pipeline_agrees_on_the_order_of_the_phases():
    """Forward down the stages, backward up."""
    made = train("pipeline")
    step = steps(made)[0]
    names = [each.name for each in node_step(made, step, exchanges(made, step)).phases]
    order = [names.index(name) for name in ("decode1_pp_barrier", "decode2_pp_barrier_dgrad")]
    assert order == sorted(order)
    sent = [op for held in rows(made)[2] for op in held if op.uid.endswith("_pp_dgrad")]
    assert [(op.group, op.network_bytes) for op in sent] == [((node,), 8 * 6 * 64 * 2) for node in (0, 1, 2, 3)]


def test_weights_are_in_memory_once_and_their_gradients_once():
    """The memory column of a training step is twice the forward pass's."""
    for held in rows(train())[2]:
        forward, inputs, weights = passes(held)
        size = sum(each.memory_bytes for each in forward)
        assert (sum(each.memory_bytes for each in inputs), sum(each.memory_bytes for each in weights)) == (0, size)


def test_operations_of_a_training_step_cost_time_on_both_sides():
    """No row of the backward pass is a copy of a row that only moves tensors."""
    made = train()
    step = steps(made)[0]
    own = operations(made, step, 0, exchanges(made, step))
    gradients = [each for each in own if each.uid.endswith(("_dgrad", "_wgrad"))]
    assert {each.kind for each in gradients} <= KINDS | {"AllReduce", "AlltoAll", "Multicast", "Barrier"}
    assert np.all([each.macs > 0 for each in gradients if each.kind in KINDS])
