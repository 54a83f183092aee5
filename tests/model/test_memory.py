"""Memory of a rank against the published formulas."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from simcore.compute.kernel import Product
from simcore.errors import InputError
from simcore.model.layer import blocks
from simcore.model.memory import (
    activation_bytes,
    held_parameters,
    in_flight,
    kept_bytes,
    kv_cache_bytes,
    layer_parameters,
    peak,
    stage_memory,
    stage_needs,
    states,
)
from simcore.model.plan import LINEAR, Plan, divides
from simcore.model.presets import SHIPPED, model
from simcore.model.shape import Experts, LayerKind, Model, Weights, elements, kinds, total_parameters
from simcore.workload.loops import schedules

GPT = model("gpt-22b")
PLAIN = LayerKind()
SMALL = Model("small", 8, 2048, 16, 5632, 32000, kv_heads=4)


@settings(max_examples=60, deadline=None)
@given(tp=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 4), seq=st.sampled_from([1024, 2048]))
def test_activations_of_a_gpt_layer_are_the_papers(tp, batch, seq):
    """Source: Korthikanti et al. 2022, table 2: sbh times 10 + 24/t + 5as/(ht), 34/t + 5as/(ht), 34/t and 2."""
    hidden, heads, unit = GPT.hidden, GPT.heads, seq * batch * GPT.hidden
    plan = Plan(tp, seq, tp=tp, micro_batch=batch, global_batch=batch, fused_attention=False, dropout=True)
    scores = 5 * heads * seq / (hidden * tp)
    parallel = replace(plan, sequence_parallel=True)
    for chosen, factor in (
        (plan, 10 + 24 / tp + scores),
        (parallel, 34 / tp + scores),
        (replace(parallel, recompute="selective"), 34 / tp),
        (replace(plan, recompute="full"), 2),
    ):
        assert activation_bytes(GPT, chosen, PLAIN) == pytest.approx(factor * unit, rel=1e-9)


@given(tp=st.sampled_from([1, 2, 4]), sequence=st.booleans())
def test_norms_behind_blocks_keep_what_they_read_and_those_ahead_what_they_make(tp, sequence):
    """Two bytes of every hidden state on the rank: a norm of its own of blocks side by side, two more behind others."""
    plan, beside = Plan(tp, 1024, tp=tp, sequence_parallel=sequence), replace(SMALL, parallel_block=True)
    kept = [activation_bytes(replace(beside, norms=norms), plan, PLAIN) for norms in (1, 2)]
    further = [activation_bytes(replace(SMALL, norms=norms), plan, PLAIN) for norms in (2, 4)]
    unit = 2 * 1024 * SMALL.hidden / plan.apart
    assert (kept[1] - kept[0], further[1] - further[0]) == (unit, 2 * unit)


@given(
    tp=st.sampled_from([1, 2, 4]),
    split=st.booleans(),
    dtype=st.sampled_from(["bf16", "fp8", "fp4"]),
    load=st.sampled_from([1.0, 1.5, 2.0]),
    gated=st.booleans(),
)
def test_experts_keep_what_their_products_read_as_those_read_it(tp, split, dtype, load, gated):
    """Transformer Engine's `GroupedLinear` saves its input, in 8 bits under 8-bit products; Megatron-LM gathers the
    tokens of split experts ahead of it (`explicit_expert_comm`), so it is whole on every rank. Sums weigh 16 bits.
    """
    shape = replace(SMALL, gated=gated, experts=Experts(8, 2, 1024))
    degrees = {"tp": tp, "ep": 2, "expert_tp": tp if split else 1}
    plan = Plan(2 * tp, 1024, **degrees, sequence_parallel=True, dtype=dtype, load=load)
    rows, width = 2 * 1024 // (1 if split else tp), 1024 // plan.expert_tp
    read = 2 if dtype == "bf16" else 1
    busiest = load * rows * (read * (SMALL.hidden + width) + 2 * width * (1 + gated))
    hidden = 1024 * SMALL.hidden / tp  # the router reads 16 bits, then the sum, with its residual
    kept = kept_bytes(blocks(shape, plan, LayerKind(experts=True))[1:], plan)
    assert sum(kept) == pytest.approx(busiest + 2 * rows * SMALL.hidden / plan.expert_tp + 4 * hidden, rel=1e-9)


@pytest.mark.parametrize(("zero", "each"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_states_take_the_bytes_of_the_zero_paper(zero, each):
    """Source: Rajbhandari et al. 2020, figure 1, with 2-byte gradients and K = 12."""
    plan = Plan(8, 2048, global_batch=8, zero=zero, gradient_bytes=2, pad_vocab_to=1)
    held = held_parameters(model("llama-2-7b"), plan, 0)
    assert sum(states(held, plan)) == pytest.approx(each * 6738415616, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(zero=st.integers(0, 2), tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]))
def test_gradients_kept_beside_their_sums_take_two_bytes_of_every_trained_parameter(zero, tp, pp):
    plan = Plan.of(2048, 8, dp=2, tp=tp, pp=pp, zero=zero, gradients_apart=True)
    for stage in range(pp):
        held = held_parameters(SMALL, plan, stage)
        assert stage_memory(SMALL, plan, stage).library == 2 * held.trained
        assert stage_memory(SMALL, replace(plan, gradient_bytes=2), stage).library == 0


def existing() -> Iterator[schedules.Schedule]:
    """Schedules of few and of many micro-batches, where their kind exists."""
    for name, stages, count in product(schedules.names(), (1, 2, 4, 6), (1, 2, 3, 12, 24)):
        with suppress(InputError):
            yield schedules.make(name, stages, count, {"interleaved": 3, "zb-v": 2, "dualpipe": 2}.get(name))


@pytest.mark.parametrize("schedule", list(existing()), ids=lambda one: f"{one.name}-{one.stages}-{one.micro_batches}")
def test_the_micro_batches_a_stage_holds_are_those_its_cells_show(schedule):
    """Counted from every forward to the cell that frees it: its weight gradient, where that is a cell of its own."""
    stages, count, chunks = schedule.stages, schedule.micro_batches, schedule.chunks
    plan = Plan.of(128, count, pp=stages, schedule=schedule.name, virtual_stages=chunks)
    frees, passes = "W" if schedule.splits_backward else "B", chunks // plan.copies
    for stage, line in enumerate(schedule.order):
        steps = [{"F": 1, frees: -1}.get(cell.kind, 0) for cell in line]
        assert in_flight(plan, stage) >= max(accumulate(steps)) / passes
        if count >= 2 * stages:
            assert in_flight(plan, stage) == max(accumulate(steps)) / passes


@settings(max_examples=100, deadline=None)
@given(
    schedule=st.sampled_from(schedules.names()),
    layers=st.integers(6, 15),
    dense=st.integers(0, 8),
    pp=st.sampled_from([2, 4, 6]),
    count=st.sampled_from([12, 24]),
)
@example(schedule="zb-v", layers=14, dense=7, pp=4, count=12)
@example(schedule="zb-v", layers=10, dense=5, pp=6, count=24)
def test_the_peak_is_that_of_the_fullest_of_all_stages(schedule, layers, dense, pp, count):
    """Stages of a V that hold as much of the model differ: later ones keep more of what runs back up."""
    shape = replace(SMALL, layers=layers, experts=Experts(8, 2, 2048, dense_layers=dense))
    chunks = {"interleaved": 2, "zb-v": 2, "dualpipe": 2}.get(schedule, 1)
    plan = Plan.of(8192, count, pp=pp, schedule=schedule, virtual_stages=chunks)
    assert peak(shape, plan).total == max(stage_memory(shape, plan, stage).total for stage in range(pp))


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
@pytest.mark.parametrize("shape", ["gpt-1.7b", "llama-3-8b", "mixtral-8x7b"])
def test_all_stages_together_hold_the_model_once_for_every_pipeline(name, shape):
    """A V begins and ends on the first stage: a tied table is there once, an untied head beside the embedding."""
    shape = model(shape)
    plan = Plan.of(2048, 16, pp=4, schedule=name, virtual_stages=1 if name == "1f1b" else 2, pad_vocab_to=1)
    held = sum(held_parameters(shape, plan, stage).whole for stage in range(plan.pp))
    again = {"1f1b": 1, "zb-v": 0, "dualpipe": 2}[name] if shape.tied else 0
    assert held == plan.copies * total_parameters(shape) + again * shape.vocab * shape.hidden
    assert plan.ends(0) == {"1f1b": (1, 0), "zb-v": (1, 1), "dualpipe": (1, 1)}[name]


@settings(max_examples=40, deadline=None)
@given(
    seq=st.sampled_from([1024, 4096]),
    layers=st.sampled_from([0, 1, 2, 4]),
    method=st.sampled_from(["block", "uniform"]),
)
def test_what_is_computed_again_is_not_kept(seq, layers, method):
    """Megatron-LM's --recompute-method: the first layers of a stage, or one input for as many layers."""
    shape = model("llama-3-8b")
    plan = Plan.of(seq, 1, recompute="full", recompute_layers=layers, recompute_method=method)
    kept = [activation_bytes(shape, plan, PLAIN, again=again) for again in (False, True)]
    if method == "block" and layers:
        expected = layers * kept[1] + (shape.layers - layers) * kept[0]
    else:
        expected = shape.layers / max(1, layers) * kept[1]
    assert stage_memory(shape, plan).activations == pytest.approx(expected, abs=1)


@given(layers=st.integers(0, 10), zero=st.sampled_from([0, 1, 3]))
def test_what_the_host_keeps_is_not_on_the_device(layers, zero):
    """The optimizer's states all leave; of activations and weights those of the first layers, two at work left out."""
    plan = Plan.of(2048, 16, dp=4, zero=zero)
    everything = replace(plan, offload=("activations", "weights", "optimizer"), offload_layers=layers)
    here, there = stage_memory(SMALL, plan), stage_memory(SMALL, everything)
    gone = min(layers or SMALL.layers, SMALL.layers)
    assert there.optimizer == 0
    assert here.activations - there.activations == gone * activation_bytes(SMALL, plan, PLAIN)
    weights = 2 * elements(SMALL.layer_weights(PLAIN)) // (4 if zero == 3 else 1)
    assert here.parameters - there.parameters == gone * weights
    assert there.workspace > here.workspace


@pytest.mark.parametrize("ep", [2, 8])
def test_zero_3_gathers_experts_only_where_ranks_share_them(ep):
    """A layer and the next one in 2 bytes, gradients of one in 4; as much for the embedding and the head."""
    plan, shape = Plan.of(2048, 8, dp=8, zero=3, ep=ep), model("mixtral-8x7b")
    weights = shape.layer_weights(LayerKind(experts=True))
    gathered = elements(weights, experts=False) + (elements(weights, experts=True) // ep if ep < plan.dp else 0)
    assert stage_needs(shape, plan, 0).gathered_bytes(plan) == 8 * (gathered + shape.vocab * shape.hidden)


def test_zero_3_by_matrix_gathers_the_largest_and_the_next_one():
    plan, shape = Plan.of(2048, 8, dp=8, zero=3, by_matrix=True), model("llama-3-8b")
    assert stage_needs(shape, plan, 0).gathered_bytes(plan) == 8 * shape.hidden * shape.ffn


@given(loss=st.sampled_from([0, 4, 10]), states=st.sampled_from([4, 10, 12]), micro=st.integers(1, 4))
def test_losses_and_optimizers_take_what_the_plan_says(loss, states, micro):
    """A loss wider than anything else decides the workspace; states are the replicas'."""
    plan = Plan.of(4096, 4 * micro, dp=4, zero=1, micro_batch=micro, gradient_bytes=2, recompute="full")
    usual, other = (stage_memory(SMALL, one) for one in (plan, replace(plan, loss_bytes=loss, optimizer_bytes=states)))
    assert other.optimizer * 12 == usual.optimizer * states
    wider = stage_memory(SMALL, replace(plan, loss_bytes=64))
    assert stage_memory(SMALL, replace(plan, loss_bytes=65)).workspace - wider.workspace == plan.tokens * SMALL.vocab
    assert (other.workspace <= usual.workspace) == (loss <= 4) or other.workspace == usual.workspace


def test_interleaved_zero_2_holds_the_gradients_of_a_chunk():
    """Its micro-batches pass one after the other, then their sum is shared."""
    plan = Plan(8, 2048, pp=4, virtual_stages=2, global_batch=16, zero=2, schedule="interleaved")
    plain = replace(plan, virtual_stages=1, schedule="1f1b")
    whole, shared = (stage_memory(model("llama-3-8b"), one, 1).gradients for one in (replace(plan, zero=1), plain))
    assert stage_memory(model("llama-3-8b"), plan, 1).gradients == whole // 2 + shared


def test_interleaved_zero_2_holds_no_sum_of_gradients_that_nobody_shares():
    """One replica has its own gradients whole, and so have expert ranks of which each has other experts."""
    dense = Plan(4, 2048, pp=4, virtual_stages=2, global_batch=16, zero=2)
    experts = replace(dense, world_size=32, ep=8)
    for shape, plan, shared in (("llama-3-8b", dense, False), ("mixtral-8x7b", experts, True)):
        held, unshared = held_parameters(model(shape), plan, 1), replace(plan, zero=1)
        least = plan.gradient_bytes * (held.trained // 2 + held.trained // 8 + held.trained_experts)
        whole = stage_memory(model(shape), unshared, 1).gradients
        assert stage_memory(model(shape), plan, 1).gradients == (least if shared else whole)


def test_adapters_on_some_weights_leave_out_what_only_the_others_gradients_need():
    plan = Plan.of(2048, 1, lora_rank=16)
    some, every = replace(plan, lora_modules=("linear_qkv",)), stage_memory(SMALL, plan)
    narrow = stage_memory(SMALL, some)
    assert narrow.gradients < every.gradients
    # What the second norm and the activation make is read by frozen products only.
    width = SMALL.hidden + SMALL.ffn
    adapters = 3 * 16  # what the adapters of the products without make
    assert every.activations - narrow.activations == 2 * 2048 * SMALL.layers * (width + adapters)


@given(
    readers=st.sampled_from([("linear_qkv", "linear_fc1"), ("router", "linear_fc1")]),
    frozen=st.sets(st.sampled_from(["linear_qkv", "linear_fc1", "router"])),
    tp=st.sampled_from([1, 2, 4]),
)
def test_what_a_norm_makes_is_kept_for_any_weights_that_read_it(readers, frozen, tp):
    """As autograd saves it: of blocks side by side both read it, of a mixture the router and the shared expert."""
    beside, mixture = replace(SMALL, parallel_block=True, norms=1), replace(SMALL, experts=Experts(8, 2, 512, 512))
    shape, plan = mixture if "router" in readers else beside, Plan(tp, 1024, tp=tp)
    kind = shape.kind(0)
    whole, kept = (activation_bytes(shape, replace(plan, frozen=some), kind) for some in ((), (*frozen,)))
    others = {"linear_qkv"} & frozen if shape is mixture else set()  # attention has a norm of its own
    assert whole - kept == 2 * 1024 * SMALL.hidden * (frozen.issuperset(readers) + len(others))
    none, some = (replace(plan, lora_rank=8, lora_modules=modules) for modules in ((), ("linear_fc1",)))
    more = activation_bytes(shape, some, kind) - activation_bytes(shape, none, kind)
    assert more == 2 * 1024 * (SMALL.hidden + 8)  # and what the adapter makes


@given(tp=st.sampled_from([1, 2, 4]), dropped=st.booleans(), norm_of_all=st.booleans())
def test_norms_of_queries_and_keys_keep_what_they_make_beside_what_they_read(tp, dropped, norm_of_all):
    """A norm's gradients need its input, those of attention its output: only the first was kept."""
    plan = Plan(tp, 1024, tp=tp)
    if dropped:
        plan = replace(plan, recompute="selective", recompute_modules=("qkv_proj",))
    normed = replace(SMALL, query_key_norm=True, norm_of_all=norm_of_all)
    more = activation_bytes(normed, plan, PLAIN) - activation_bytes(SMALL, plan, PLAIN)
    assert more == (0 if dropped else 2 * 1024 * (SMALL.heads + SMALL.key_heads) // tp * SMALL.head_dim)


@pytest.mark.parametrize("frozen", ["embedding", "linear_qkv", "linear_fc1", "output_layer"])
def test_frozen_weights_have_no_gradients_and_no_states(frozen):
    plan = Plan.of(2048, 1)
    whole, held = stage_memory(SMALL, plan), stage_memory(SMALL, replace(plan, frozen=(frozen,)))
    weights = [SMALL.layer_weights(PLAIN)] * SMALL.layers + [SMALL.embedding_weights(), SMALL.head_weights()]
    gone = sum(elements(tuple(one for one in some if one.kind == frozen)) for some in weights)
    assert gone
    assert whole.gradients - held.gradients == 4 * gone
    assert whole.optimizer - held.optimizer == 12 * gone
    assert whole.parameters == held.parameters


@given(
    frozen=st.sets(st.sampled_from(["embedding", "linear_qkv", "linear_fc1", "experts", "output_layer"])),
    lora_rank=st.sampled_from([0, 8]),
    gradient_bytes=st.sampled_from([2, 4]),
    shape=st.sampled_from([SMALL, replace(SMALL, experts=Experts(8, 2, 512))]),
)
def test_all_that_is_gathered_has_weights_and_only_what_is_trained_has_gradients(
    frozen, lora_rank, gradient_bytes, shape
):
    """Of the layer at work, the next one and the head; frozen ones had gradients, and a frozen head no weights."""
    plan = Plan.of(512, 8, dp=8, zero=3, gradient_bytes=gradient_bytes, lora_rank=lora_rank, frozen=(*frozen,))
    layer = layer_parameters(shape, plan, shape.kind(0))
    head = plan.padded_vocab(shape.vocab) * shape.hidden
    trained = layer.trained + layer.trained_experts + head * plan.trains(Weights.HEAD)
    gathered = stage_needs(shape, plan, 0).gathered_bytes(plan)
    assert gathered == 2 * 2 * (layer.whole + head) + gradient_bytes * trained


def test_latent_attention_keeps_a_small_cache():
    """Source: DeepSeek-V2, table 1: 576 elements a token and layer instead of 2 x 128 x 128."""
    assert kv_cache_bytes(model("deepseek-v3"), 1) == 61 * 576 * 2
    assert kv_cache_bytes(model("llama-2-7b"), 1) == 2 * 32 * 4096 * 2


@given(context=st.integers(1, 4096), window=st.integers(1, 2048), tp=st.sampled_from([1, 2, 4]))
def test_a_cache_holds_what_decoding_reads(context, window, tp):
    """Every second layer sees all tokens, the others a window; a decoder keeps its own tokens and its encoder's."""
    token = 2 * (SMALL.kv_heads // tp) * SMALL.head_dim * 2
    windowed = replace(SMALL, window=window, full_every=2)
    assert kv_cache_bytes(windowed, context, tp=tp) == 4 * (context + min(context, window)) * token
    pair = replace(SMALL, encoder_layers=6, relative_positions=32)
    assert kv_cache_bytes(pair, context, range(7), tp=tp) == 2 * context * token
    assert kv_cache_bytes(pair, context, tp=tp) == 8 * 2 * context * token


def test_adapters_stand_beside_every_matrix_of_their_modules():
    """Rank times both sides (Hu et al. 2021, section 4.1); of latent attention also beside the low-rank projections.

    Queries, keys and values have one, and so have both halves of a gated layer, as Megatron-LM fuses them (NeMo's
    guide, "A Comparison of Performant and Canonical LoRA Variants").
    """
    plan = Plan.of(512, 1, lora_rank=16)
    sides = sum(map(sum, [(4096, 4096 + 2 * 1024), (4096, 4096), (4096, 2 * 14336), (14336, 4096)]))
    assert held_parameters(model("llama-3-8b"), plan, 0).trained == 16 * 32 * sides
    latent = [(7168, 1536), (1536, 128 * 192), (7168, 576), (512, 128 * 256), (128 * 128, 7168)]
    dense, shared = ([(7168, 2 * width), (width, 7168)] for width in (18432, 2048))
    sides = sum(map(sum, [*latent * 61, *dense * 3, *shared * 58]))
    assert held_parameters(model("deepseek-v3"), plan, 0).trained == 16 * sides


@given(
    name=st.sampled_from(sorted(SHIPPED)),
    modules=st.sets(st.sampled_from(LINEAR), min_size=1),
    tp=st.sampled_from([1, 2, 4]),
    sequence_parallel=st.booleans(),
    encoder_layers=st.sampled_from([0, 6]),
    recomputed=st.sampled_from(["core_attn", "mlp_gate"]),
)
def test_adapters_that_are_held_are_those_that_run(name, modules, tp, sequence_parallel, encoder_layers, recomputed):
    """Each is two narrow products. Behind an encoder, keys and values are of another product than queries.

    Where half of a gated layer's first product is computed again, both halves read the same narrow values.
    """
    shape, rank = model(name), 13  # which no model has a size of
    if encoder_layers and not shape.latent:
        shape = replace(shape, encoder_layers=encoder_layers)
    chosen = {"lora_rank": rank, "lora_modules": (*modules,), "sequence_parallel": sequence_parallel}
    plan = Plan.of(512, 1, tp=tp, recompute="selective", recompute_modules=(recomputed,), **chosen)
    assume(divides(shape, plan))
    for kind, _ in kinds(shape, range(shape.depth)):
        works = [kernel.work for block in blocks(shape, plan, kind) for kernel in block.kernels]
        run = sum(one.n * one.k for one in works if isinstance(one, Product) and rank in (one.n, one.k))
        assert layer_parameters(shape, plan, kind).trained == run
