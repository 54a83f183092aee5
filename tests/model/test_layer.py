"""Kernels and collectives of a layer against published formulas."""

from dataclasses import replace
from functools import partial
from math import fsum

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore.compute.kernel import Attention, GroupedProduct, MemoryPass, Product, Touch
from simcore.model.layer import blocks
from simcore.model.memory import activation_bytes
from simcore.model.plan import Plan, divides
from simcore.model.presets import SHIPPED, model
from simcore.model.rows import Rows
from simcore.model.shape import Experts, LayerKind, Model, Weights, elements
from simcore.model.steps import Axis, Kernel, Module, Part, dropped, in_phase
from simcore.workload.model import CollectiveKind, PhaseName

GPT3 = model("gpt-175b")
PLAIN = LayerKind()
CLASSIC = Plan(1, 2048, fused_attention=False)


def steps(shape, plan, kind):
    return [step for block in blocks(shape, plan, kind) for step in block.steps]


def kernels(shape, plan, phase=PhaseName.FORWARD, kind=PLAIN):
    return [one for step in steps(shape, plan, kind) if isinstance(step, Kernel) for one in in_phase(step, phase)]


def flops(shape, plan, phase=PhaseName.FORWARD, kind=PLAIN):
    return fsum(kernel.work.flops for kernel in kernels(shape, plan, phase, kind))


def spread(tp, **choices):
    return Plan.of(2048, choices.pop("micro_batch", 1), tp=tp, **choices)


def test_a_layer_costs_what_the_megatron_paper_says():
    """24 B s h^2 (1 + s / 6h) forward (Narayanan et al. 2021, appendix), all scores computed."""
    forward = flops(GPT3, replace(CLASSIC, micro_batch=4, global_batch=4))
    assert forward == pytest.approx(24 * 4 * 2048 * 12288**2 * (1 + 2048 / (6 * 12288)), rel=1e-9)


@given(micro=st.integers(1, 8), tp=st.sampled_from([1, 2, 4, 8]))
def test_both_gradients_together_are_twice_the_forward(micro, tp):
    plan = spread(tp, micro_batch=micro, fused_attention=False)
    back = flops(GPT3, plan, PhaseName.INPUT_GRAD) + flops(GPT3, plan, PhaseName.WEIGHT_GRAD)
    assert back == pytest.approx(2 * flops(GPT3, plan))


@given(tp=st.sampled_from([2, 4, 8]), phase=st.sampled_from(list(PhaseName)))
def test_tensor_ranks_share_the_arithmetic_evenly(tp, phase):
    whole = flops(GPT3, spread(1, fused_attention=False), phase)
    assert flops(GPT3, spread(tp, fused_attention=False), phase) * tp == pytest.approx(whole)


@pytest.mark.parametrize("name", SHIPPED)
def test_tensor_ranks_hold_the_matrices_that_they_multiply_with(name):
    """Whole heads of keys, also where there are fewer than ranks or one only, as in Gemma 2B and PaLM."""
    shape = model(name)
    for plan in filter(partial(divides, shape), map(spread, (1, 2, 4, 8))):
        used = sum(one.work.n * one.work.k for one in kernels(shape, plan) if isinstance(one.work, Product))
        matrices = [replace(weight, bias=False) for weight in shape.layer_weights(PLAIN) if weight.inputs > 1]
        assert elements(tuple(matrices), plan.tp) == used


@pytest.mark.parametrize("name", SHIPPED)
def test_a_layer_passes_through_every_norm_that_it_has_weights_of(name):
    """One where both blocks read it (PaLM), two beside each other (GPT-NeoX), four around both (Grok-1)."""
    shape, plan = model(name), spread(1)
    kind = shape.kind(shape.layers - 1)
    weights = [weight.outputs for weight in shape.layer_weights(kind) if weight.kind == Weights.NORM]
    works = [one.work for one in kernels(shape, plan, kind=kind) if isinstance(one.work, MemoryPass)]
    passes = [work for work in works if work == MemoryPass(4 * plan.tokens * shape.hidden, Touch.NORM)]
    assert len(passes) == weights.count(shape.hidden)


@given(
    name=st.sampled_from(["mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"]),
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 8]),
    whole=st.booleans(),
)
def test_expert_ranks_share_the_experts_however_tensor_ranks_split_them(name, tp, ep, whole):
    shape, kind = model(name), model(name).kind(SHIPPED[name].layers - 1)
    plan = Plan.of(2048, 8, tp=tp, ep=ep, dp=8, expert_tp=1 if whole else tp, sequence_parallel=True)

    def routed(plan):
        return fsum(one.work.flops for one in kernels(shape, plan, kind=kind) if one.part is Part.EXPERTS)

    assert routed(plan) * tp == pytest.approx(routed(Plan(1, 2048)), rel=1e-6)


@given(
    name=st.sampled_from(["mixtral-8x7b", "deepseek-v2", "deepseek-v3", "qwen3-30b-a3b"]),
    micro=st.integers(1, 512),
    ep=st.sampled_from([1, 2, 8]),
)
def test_no_more_experts_work_than_there_are_tokens_for_them(name, micro, ep):
    """Decoding one token of DeepSeek-V3 reads the weights of 8 of its 256 experts, not of all."""
    shape, plan = model(name), Plan.of(1, 8 * micro, micro_batch=micro, ep=ep, dp=8)
    kind = shape.kind(shape.layers - 1)
    found = [one.work for one in kernels(shape, plan, kind=kind) if one.part is Part.EXPERTS]
    products = [work for work in found if isinstance(work, Product | GroupedProduct)]
    rows, held = micro * shape.experts.top_k, shape.experts.count // ep
    (working,) = {getattr(work, "experts", 1) for work in products}
    assert working <= min(rows, held)
    assert working == rows or micro * ep > 1
    assert sum(work.flops for work in products) == 6 * rows * shape.hidden * shape.experts.ffn


def test_sequence_parallelism_shares_the_memory_passes_too():
    def moved(plan):
        works = [kernel.work for kernel in kernels(GPT3, plan)]
        return sum(work.bytes for work in works if isinstance(work, MemoryPass))

    assert moved(spread(8, sequence_parallel=True)) < moved(spread(8))


@given(
    name=st.sampled_from([name for name, shape in SHIPPED.items() if shape.experts]),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
)
def test_ranks_that_share_a_sequence_share_the_arithmetic_of_mixtures_evenly(name, tp, cp):
    """Routers, too: a tensor rank sees some of the tokens there, as the replicated gradients of routers say."""
    shape, kind = model(name), model(name).kind(SHIPPED[name].layers - 1)
    plan = Plan.of(8192, 8, tp=tp, cp=cp, dp=8, ep=4, expert_tp=tp, sequence_parallel=True)
    assume(divides(shape, plan) and shape.key_heads >= tp)
    assert flops(shape, plan, kind=kind) * tp * cp == pytest.approx(flops(shape, Plan(1, 8192), kind=kind), rel=1e-6)


def test_fused_causal_attention_skips_half_the_scores_and_a_window_more():
    def attention(window=0):
        shape = Model("plain", 1, 4096, 32, 16384, 32000)
        found = kernels(shape, Plan(1, 4096), kind=LayerKind(window=window))
        return sum(kernel.work.flops for kernel in found if isinstance(kernel.work, Attention))

    assert attention() == 2 * 4096 * 4096 * 4096
    assert attention(window=2048) == 0.75 * attention()


@given(seq=st.integers(1, 100), piece=st.integers(1, 100), cp=st.sampled_from([1, 2, 4]))
def test_every_token_sees_those_before_it_in_its_piece(seq, piece, cp):
    """Of the last piece, which may be shorter, too; a token sees half of itself."""
    seq, piece = 2 * cp * seq, 2 * cp * piece  # context ranks have an early and a late part
    shape, before = Model("pieces", 1, 64, 4, 128, 320, window=piece, pieces=True), [at % piece for at in range(seq)]
    found = kernels(shape, Plan.of(seq, 1, cp=cp), kind=shape.kind(0))
    attention = sum(one.work.flops for one in found if isinstance(one.work, Attention))
    assert attention * cp == pytest.approx(4 * shape.hidden * sum(number + 0.5 for number in before), rel=1e-9)
    assert [shape.seen(shape.kind(0), at + 1) for at in range(seq)] == [number + 1 for number in before]


@given(cp=st.sampled_from([2, 4, 8]), context=st.sampled_from(["gather", "ring", "all_to_all"]))
def test_context_ranks_share_the_attention_evenly_however_they_exchange(cp, context):
    shape = model("llama-3-8b")
    whole = flops(shape, Plan(1, 8192))
    assert flops(shape, Plan.of(8192, 1, cp=cp, context=context)) * cp == pytest.approx(whole, rel=1e-6)


@given(
    name=st.sampled_from(["gpt-175b", "llama-3-8b", "deepseek-v2-lite"]),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([2, 4, 8]),
)
def test_gathered_keys_are_given_back_and_gathered_again_for_gradients(name, tp, cp):
    """Transformer Engine's `AttnFuncWithCPAndKVAllGather`: a rank saves its own keys and values only."""
    shape = model(name)
    plan = Plan.of(8192, 1, tp=tp, cp=cp, context="gather")
    found = [one for one in steps(shape, plan, PLAIN) if not isinstance(one, Kernel) and one.axis is Axis.CONTEXT]
    assert [one.forward for one in found] == [CollectiveKind.ALL_GATHER, None]
    assert [one.backward for one in found] == [CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
    assert len({one.size_bytes for one in found}) == 1
    whole = activation_bytes(shape, Plan.of(8192, 1, tp=tp), PLAIN)
    assert activation_bytes(shape, plan, PLAIN) * cp == pytest.approx(whole, rel=1e-9)


@given(
    name=st.sampled_from(["gpt-175b", "llama-3-8b", "deepseek-v2-lite"]),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([2, 4, 8]),
)
def test_heads_are_exchanged_for_tokens_once_there_and_once_back(name, tp, cp):
    """DeepSpeed Ulysses (Jacobs et al. 2023): queries, keys, values and results, 4 N h / P of a whole sequence."""
    shape = model(name)
    found = steps(shape, Plan.of(8192, 1, tp=tp, cp=cp, context="all_to_all"), shape.kind(0))
    (sent,) = (one.size_bytes for one in found if not isinstance(one, Kernel) and one.axis is Axis.CONTEXT)
    keys = max(shape.key_heads, tp * cp)  # no rank has less than one
    assert sent == 2 * 8192 // cp * (shape.head_dim + shape.value_dim) * (shape.heads + keys) // tp
    if name == "gpt-175b":
        assert sent == 2 * 4 * 8192 * shape.hidden // (cp * tp)


@given(
    tokens=st.integers(1, 96),
    top_k=st.sampled_from([1, 2, 8]),
    count=st.sampled_from([8, 64, 256]),
    ep=st.sampled_from([1, 2, 8]),
)
def test_of_few_tokens_only_the_experts_that_get_one_read_their_weights(tokens, top_k, count, ep):
    """Against tokens that choose their experts at random, of which some choose the same."""
    shape = replace(model("mixtral-8x7b"), experts=Experts(count, top_k, 512))
    plan = Plan(ep, tokens, ep=ep)
    found = [one.work for one in kernels(shape, plan, kind=LayerKind(experts=True)) if one.part is Part.EXPERTS]
    (work, _, _), generator = found, np.random.default_rng(0)
    draws = generator.random((50, tokens * ep, count)).argpartition(top_k - 1, axis=2)[..., :top_k]
    mean = np.mean([len(np.unique(draw)) for draw in draws]) / ep
    reached = work.experts if isinstance(work, GroupedProduct) else 1
    assert reached == pytest.approx(mean, abs=0.6 + 0.03 * mean)
    padded = kernels(shape, replace(plan, capacity=1.0), kind=LayerKind(experts=True))
    grouped = [one.work.experts for one in padded if isinstance(one.work, GroupedProduct)]
    assert set(grouped) <= {min(count // ep, tokens * top_k)}


def test_selective_recomputation_does_what_it_drops_again_and_nothing_else():
    """Fused attention keeps nothing that could be dropped."""
    block = blocks(GPT3, replace(CLASSIC, recompute="selective"), PLAIN)[0]
    again = dropped(block.kernels, replace(CLASSIC, recompute="selective"))
    assert {kernel.part for kernel in again} == {Part.ATTENTION_CORE}
    assert not dropped(blocks(GPT3, Plan(1, 2048), PLAIN)[0].kernels, Plan(1, 2048, recompute="selective"))
    norms = Plan(1, 2048, recompute="selective", recompute_modules=("layernorm",))
    assert all(Module.NORM in kernel.modules for kernel in dropped(block.kernels, norms))


class Free:
    """No kernel takes any time."""

    def time_ns(self, part, kernels, phase):
        return 0


@given(
    name=st.sampled_from(["llama-3-8b", "gpt-1.7b", "deepseek-v2-lite", "mixtral-8x7b"]),
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2]),
    split=st.booleans(),
    parallel=st.booleans(),
)
def test_ranks_meet_again_in_a_feed_forward_block_that_is_computed_again_as_one(name, tp, ep, split, parallel):
    """Megatron-LM's `mlp` and `moe` are checkpoints around all of it (`transformer_layer.py`, `moe_layer.py`): tokens
    are routed, sent to experts and back once more, the shared expert among it. Norm and residual are outside.
    """
    shape = model(name)
    kind, module = shape.kind(shape.layers - 1), "moe" if shape.experts else "mlp"
    plan = Plan.of(2048, 2, tp=tp, dp=2, ep=ep, expert_tp=tp if split else 1, sequence_parallel=parallel)
    assume(divides(shape, plan))
    chosen = replace(plan, recompute="selective", recompute_modules=(module,))
    block = blocks(shape, chosen, kind)[-1]
    left = [kernel for kernel in block.kernels if kernel not in dropped(block.kernels, chosen)]
    assert sum(kernel.keeps_bytes for kernel in left) == pytest.approx(4 * 2048 * shape.hidden / chosen.apart)
    selective, whole = (
        [row.input_grad for row in Rows(shape, some, Free()).block(block, again=again)[0]]
        for some, again in ((chosen, False), (plan, True))
    )
    both = ([(one.collective, one.size_bytes) for one in some if one.collective] for some in (selective, whole))
    assert len({tuple(sorted(sent)) for sent in both}) == 1


@pytest.mark.parametrize("parallel", [False, True])
def test_tensor_ranks_meet_as_megatron_says(parallel):
    """An all-reduce a block and pass; with sequence parallelism gathers and scatters, and inputs gathered again."""
    plan = spread(4, sequence_parallel=parallel)
    found = [step for step in steps(GPT3, plan, PLAIN) if not isinstance(step, Kernel)]
    kinds = [kind for one in found for kind in (one.forward, one.backward) if kind]
    assert {one.axis for one in found} == {Axis.TENSOR}
    if parallel:
        assert sorted(kinds) == sorted([CollectiveKind.ALL_GATHER] * 6 + [CollectiveKind.REDUCE_SCATTER] * 4)
    else:
        assert kinds == [CollectiveKind.ALL_REDUCE] * 4


def test_adapters_beside_frozen_weights_are_all_that_has_a_weight_gradient():
    """LoRA (Hu et al. 2021, section 4.1): rank times both sides of every matrix."""
    shape, plan = model("llama-3-8b"), Plan(1, 2048, lora_rank=16)
    found = [one.work for one in kernels(shape, plan, PhaseName.WEIGHT_GRAD)]
    assert found
    assert all(16 in (work.m, work.n, work.k) for work in found)
    assert flops(shape, plan, PhaseName.INPUT_GRAD) > flops(shape, replace(plan, lora_rank=0), PhaseName.INPUT_GRAD)
