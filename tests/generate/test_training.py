"""Laws of the corrected training step: bytes, symmetry, stages that add up."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.errors import InputError
from simcore.generate.aicb.deepspeed import deepspeed_operations
from simcore.generate.aicb.options import Options
from simcore.generate.aicb.training import training_text
from simcore.generate.build import Asked, aicb_options
from simcore.generate.deviations import deviations
from simcore.generate.durations import roofline
from simcore.generate.step import make_step
from simcore.generate.traces import groups_of, listed_step
from simcore.model.memory import held_parameters, tied_gradient_bytes
from simcore.model.plan import Plan
from simcore.model.rows import pipeline_workload, stage_workload
from simcore.model.shape import Experts, Model, elements, mtp_parameters, total_parameters
from simcore.model.steps import Axis
from simcore.network.topology.model import Dimension, Topology
from simcore.workload import text
from simcore.workload.loops import schedules
from simcore.workload.loops.pipeline import pipeline_of
from simcore.workload.loops.step import group_axes
from simcore.workload.model import CollectiveKind, Group, PhaseName, Workload
from tests.runs import Run, micro

DEVICE = accelerator("A100")
DENSE = Model("dense", 4, 256, 8, 1024, 1024, kv_heads=4)
MIXED = replace(DENSE, name="mixed", experts=Experts(8, 2, 512, 512, 1))
MODELS = {
    "dense": DENSE,
    "mixed": MIXED,
    "gpt": replace(DENSE, gated=False, tied=True, norm="layer", positions=512),
    "ahead": replace(MIXED, mtp_layers=2),
}


def step(model, plan, stage=0):
    return stage_workload(model, plan, roofline(model, plan, DEVICE), stage)


def sent(workload, phases=tuple(PhaseName), keep=lambda layer, phase: True):
    """Bytes of the collectives of a workload."""
    pairs = ((layer, layer.phase(name)) for layer in workload.layers for name in phases)
    return sum(phase.size_bytes for layer, phase in pairs if phase.collective is not None and keep(layer, phase))


def in_tensor_group(layer, phase):
    return phase.group is Group.LOOP and not layer.name.endswith("_again") and layer.name != "replicated_gradients"


plans = st.builds(
    Plan,
    world_size=st.just(32),
    seq=st.just(256),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    micro_batch=st.sampled_from([1, 2]),
    global_batch=st.just(128),
    sequence_parallel=st.booleans(),
    zero=st.sampled_from([0, 1, 2, 3]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    overlap=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(plan=plans)
def test_tensor_parallelism_sends_backward_what_it_sends_forward(plan):
    """Every operator has its conjugate (Megatron-LM, section 3): gathers answer reduce-scatters.

    The loss, the inputs gathered again and recomputed blocks stand outside this balance.
    """
    assume(plan.recompute != "full")
    loss = 3 * 4 * plan.tokens * plan.micro_batches * (plan.tp > 1)
    for stage in range(plan.pp):
        workload = step(DENSE, plan, stage)
        forward = sent(workload, (PhaseName.FORWARD,), in_tensor_group) - loss * (stage == plan.pp - 1)
        backward = sent(workload, (PhaseName.INPUT_GRAD,), in_tensor_group)
        whole = plan.tokens * DENSE.hidden * 2 * plan.micro_batches * (plan.tp > 1)
        # Without sequence parallelism an embedding reduces forward only, a head backward only.
        ends = 0 if plan.sequence_parallel else (stage == 0) * whole - (stage == plan.pp - 1) * whole
        assert forward - backward == ends


@settings(max_examples=30, deadline=None)
@given(plan=plans, name=st.sampled_from(sorted(MODELS)))
def test_the_text_reads_back_as_the_same_workload(plan, name):
    model = MODELS[name]
    assume(plan.zero < 3 or not (model.experts or model.mtp_layers))
    workload = step(model, replace(plan, expert_tp=plan.tp if model.experts else 1))
    assert text.parse(text.write(workload), "made") == workload


@settings(max_examples=60, deadline=None)
@given(plan=plans, cp=st.sampled_from([1, 2]), ep=st.sampled_from([1, 2]), whole=st.booleans())
def test_a_texts_header_says_who_meets(plan, cp, ep, whole):
    """Experts that tensor ranks do not split have replicas among these, whether expert ranks share them or not."""
    plan = replace(plan, cp=cp, ep=ep, expert_tp=1 if whole else plan.tp)
    assume(plan.zero < 3)
    axes = group_axes(text.parse(text.write(step(MIXED, plan)), "made").parallelism, plan.world_size)
    meet = {Group.TP: Axis.TENSOR, Group.CP: Axis.CONTEXT, Group.DP: Axis.DATA}
    meet |= {Group.EP: Axis.EXPERT, Group.DP_EP: Axis.EXPERT_DATA}
    for group, axis in meet.items():
        ranks, apart = axis.layout(plan)
        assert axes[group] == (ranks, apart if ranks > 1 else axes[group][1]), group


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["", *schedules.names()]), st.integers(2, 4), st.integers(1, 9), st.integers(1, 2))
def test_a_pipeline_that_is_written_can_be_run(schedule, stages, count, virtual):
    plan = Plan(stages, 256, pp=stages, global_batch=count, schedule=schedule, virtual_stages=virtual)
    model = replace(DENSE, layers=8)
    try:
        workload = pipeline_workload(model, plan, roofline(model, plan, DEVICE))
    except InputError:
        return
    written = text.parse(text.write(workload), "made")
    assert pipeline_of(written).schedule.micro_batches == count


def test_heads_that_cannot_be_split_are_told_of_by_the_option_that_says_them():
    for given_values, option in (({}, "num_attention_heads"), ({"num_query_groups": 4}, "num_query_groups")):
        values = {"num_layers": 4, "world_size": 8, "tensor_model_parallel_size": 8, "global_batch": 1} | given_values
        with pytest.raises(InputError, match=f"^--{option}: error: heads of keys"):
            make_step(Asked.of("Megatron", None, values))


@settings(max_examples=30, deadline=None)
@given(plan=plans, name=st.sampled_from(sorted(MODELS)))
def test_the_stages_of_a_pipeline_hold_the_model_once(plan, name):
    """Held by all tensor and expert ranks of all stages: the model, and a table again that is tied or read ahead."""
    model, experts = MODELS[name], MODELS[name].experts
    plan = replace(plan, expert_tp=plan.tp)
    held = [held_parameters(model, plan, stage) for stage in range(plan.pp)]
    routed = sum(
        weight.copies * weight.elements()
        for layer in range(model.layers + model.mtp_layers)
        for weight in model.layer_weights(model.kind(layer))
        if weight.split == "expert"
    )
    assert sum(part.experts for part in held) * plan.ep * plan.tp == routed
    assert bool(experts) == bool(routed)
    if plan.tp == 1:
        copied = plan.pp > 1 and (model.tied or model.mtp_layers)
        again = elements(model.embedding_weights()[:1]) if copied else 0
        assert sum(part.dense for part in held) == total_parameters(model) + mtp_parameters(model) - routed + again


@settings(max_examples=40, deadline=None)
@given(plan=plans, model=st.sampled_from([DENSE, replace(DENSE, tied=True), replace(DENSE, mtp_layers=1)]))
def test_data_parallel_bytes_are_those_of_the_parameters_held(plan, model):
    """ZeRO (Rajbhandari et al. 2020): 0 all-reduces and 1 reduce-scatters gradients once; 2 and 3 every micro-batch."""
    assume(plan.zero < 3 or not model.mtp_layers)
    last = plan.pp - 1
    workload, held = step(model, plan, last), held_parameters(model, plan, last)
    kind = CollectiveKind.REDUCE_SCATTER if plan.zero else CollectiveKind.ALL_REDUCE
    times = plan.micro_batches if plan.zero >= 2 else 1
    reduced = sent(workload, (PhaseName.WEIGHT_GRAD,), lambda layer, phase: phase.collective is kind)
    norm = 4 * (plan.zero == 0)
    assert reduced - norm == plan.gradient_bytes * held.dense * times
    gathered = sent(workload, keep=lambda layer, phase: "gather" in layer.name)
    per_step = {0: 0, 1: 1, 2: 1, 3: 2 * plan.micro_batches}[plan.zero]
    assert gathered == 2 * held.dense * per_step


@settings(max_examples=20, deadline=None)
@given(plan=plans)
def test_overlapping_gradients_sends_the_same_bytes(plan):
    assert sent(step(DENSE, replace(plan, overlap=True))) == sent(step(DENSE, replace(plan, overlap=False)))


@settings(max_examples=20, deadline=None)
@given(plan=plans)
def test_full_recompute_adds_a_forward_pass_to_the_backward(plan):
    """Blocks of layers run forward once more, with their collectives; embedding and head do not."""
    plan = replace(plan, pp=1, recompute="none")
    plain, again = step(DENSE, plan), step(DENSE, replace(plan, recompute="full"))

    def block(layer):
        return layer.name.startswith(("attention", "mlp"))

    added = sum(layer.input_grad.compute_ns for layer in again.layers) - sum(
        layer.input_grad.compute_ns for layer in plain.layers
    )
    assert added == sum(layer.forward.compute_ns for layer in plain.layers if block(layer))
    extra = sent(again) - sent(plain)
    assert extra == sent(plain, (PhaseName.FORWARD,), lambda layer, phase: block(layer))


def test_a_module_that_predicts_a_further_token_adds_a_layer_a_head_and_what_joins_its_inputs():
    """DeepSeek-V3, section 2.2; the projection gathers two inputs of hidden size and its own output (Megatron-LM)."""
    model = replace(DENSE, mtp_layers=1)
    for sequence_parallel in (False, True):
        plan = Plan(8, 256, tp=2, global_batch=8, sequence_parallel=sequence_parallel)
        plain, ahead, deeper = (step(each, plan) for each in (DENSE, model, replace(DENSE, layers=DENSE.layers + 1)))
        whole = plan.tokens * DENSE.hidden * 2
        ends = ("head", "cross_entropy", "embedding")

        def forward(workload, names=(*ends, "attention", "mlp", "mtp_")):
            return sent(workload, (PhaseName.FORWARD,), lambda layer, phase: layer.name.startswith(names))

        head = forward(plain, ends)
        inputs = (3 if sequence_parallel else 1) * whole * plan.micro_batches
        assert forward(ahead) == forward(deeper) + head + inputs
        backward = sent(ahead, (PhaseName.INPUT_GRAD,), lambda layer, phase: layer.name.startswith("mtp_"))
        assert backward == (5 if sequence_parallel else 2) * whole * plan.micro_batches


def test_what_rows_cannot_say_is_a_warning():
    """Replicas of hybrid sharding sum what a reduce-scatter leaves, and first and last stage sum one word table."""
    hybrid = step(DENSE, Plan(8, 256, zero=3, shard=4, global_batch=8))
    assert any("does not wait" in warning for warning in hybrid.warnings)
    ahead = replace(DENSE, mtp_layers=1)
    plan = Plan(8, 256, pp=2, global_batch=8)
    size = tied_gradient_bytes(ahead, plan)
    assert size == 4 * plan.padded_vocab(DENSE.vocab) * DENSE.hidden
    assert any(f"{size} bytes of the shared word table" in warning for warning in step(ahead, plan).warnings)


@pytest.mark.parametrize("layers", [4, 5, 7])
def test_stages_share_the_layers_without_a_remainder_lost(layers):
    plan = Plan(4, 128, pp=4, global_batch=1)
    parts = [plan.stage_layers(replace(DENSE, layers=layers), stage) for stage in range(4)]
    assert [layer for part in parts for layer in part] == list(range(layers))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_experts_get_every_token_as_often_as_it_is_routed():
    """Dispatch and combine, forward and backward: tokens times top-k, a rank's share under sequence parallelism."""
    plan = Plan(16, 256, tp=2, ep=4, expert_tp=2, global_batch=8, sequence_parallel=True, zero=1)
    workload = step(MIXED, plan)
    exchanged = sent(workload, keep=lambda layer, phase: phase.collective is CollectiveKind.ALL_TO_ALL)
    each = plan.tokens * 2 * MIXED.hidden * 2 // plan.tp
    assert exchanged == 4 * each * (MIXED.layers - 1) * plan.micro_batches


def test_an_operation_list_has_every_collective_of_the_rows():
    plan = Plan(8, 256, tp=2, pp=2, global_batch=8, zero=1, overlap=True)
    for stage in range(2):
        workload = step(DENSE, plan, stage)
        operations = listed_step(workload, plan, stage)
        transfers = [op for op in operations if op.kind in ("isend", "irecv")]
        assert len(transfers) == 2 * plan.micro_batches
        others = sum(op.size for op in operations if op not in transfers)
        assert others == sent(workload)


@pytest.mark.parametrize("values", [{"world_size": 6}, {"global_batch": 3}, {"tp": 3, "world_size": 3}, {"pp": 8}])
def test_degrees_that_do_not_divide_are_refused(values):
    with pytest.raises(InputError):
        step(DENSE, replace(Plan(8, 256, tp=2, pp=2, global_batch=8), **values))


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "seq", "batch", "rows", "gathered"),
    [
        (36, 4096, 32, 1024, 2048, 620, 7445037056),
        (36, 4096, 32, 2048, 2048, 620, 7453425664),
        (36, 2048, 16, 1024, 2048, 620, 1915297792),
        (36, 4096, 32, 1024, 1024, 312, 7445037056),
        (48, 6144, 48, 4096, 2048, 812, 22105841664),
    ],
)
def test_the_five_executions_corrected_are_those_of_the_documentation(
    layers, hidden, heads, seq, batch, rows, gathered
):
    """Source: docs/generate.md; parameters counted by hand: layers with a gate, one word table, positions, norms."""
    ffn = int((8 * hidden / 3) / 64) * 64
    model = Model("", layers, hidden, heads, ffn, 50257, tied=True, positions=seq, norm="layer")
    plan = Plan(512, seq, tp=2, global_batch=batch, zero=1)
    workload = step(model, plan)
    assert len(workload.layers) == rows
    vocab = -(-50257 // 256) * 256
    split = layers * (4 * hidden * hidden + 3 * hidden * ffn) + vocab * hidden
    whole = layers * 4 * hidden + seq * hidden + 2 * hidden
    parameters = next(layer for layer in workload.layers if layer.name == "parameter_gather")
    assert parameters.weight_grad.size_bytes == gathered == 2 * (split // 2 + whole)


def test_deviations_add_up_to_the_difference_of_the_two_files():
    """Sum of bytes: what is listed is all there is, of cross-attention, too."""
    encoded = replace(MODELS["gpt"], encoder_layers=2)
    for model, sequence_parallel in ((MODELS["gpt"], False), (MODELS["gpt"], True), (encoded, True)):
        plan = Plan(16, 256, tp=2, global_batch=16, sequence_parallel=sequence_parallel, zero=1)
        options = Options(
            world_size=16,
            tensor_model_parallel_size=2,
            global_batch=16,
            seq_length=256,
            num_layers=4,
            hidden_size=256,
            num_attention_heads=8,
            ffn_hidden_size=1024,
            vocab_size=1024,
            enable_sequence_parallel=sequence_parallel,
        )
        ours, theirs = step(model, plan), Workload("", tuple(training_text(options).layers))
        found = deviations(options, ours.layers)
        assert sum(item.bytes - item.aicb_bytes for item in found) == sent(ours) - sent(theirs)
        assert all(item.reason for item in found)


def test_the_optimizer_follows_the_reduction_of_the_gradients():
    """A step without TP is its computations, the reduction and the optimizer, one after the other."""
    plan = Plan(4, 256, global_batch=4)
    workload = step(DENSE, plan)
    topology = Topology((Dimension("Ring", 4, 50e9, 500.0),))
    report = Run(workload, topology).report()
    computed = sum(layer.phase(name).compute_ns for layer in workload.layers for name in PhaseName)
    reduced = Run(micro(CollectiveKind.ALL_REDUCE, 4 * held_parameters(DENSE, plan, 0).dense), topology).report()
    norm = Run(micro(CollectiveKind.ALL_REDUCE, 4), topology).report()
    assert report["time_ns"] == computed + reduced["time_ns"] + norm["time_ns"]


sharded = st.builds(
    Plan,
    world_size=st.just(32),
    seq=st.just(256),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2]),
    global_batch=st.just(64),
    sequence_parallel=st.just(True),
    zero=st.just(3),
    shard=st.sampled_from([1, 2, 4, 8]),
)


@settings(max_examples=20, deadline=None)
@given(plan=sharded, name=st.sampled_from(sorted(MODELS)))
def test_hybrid_sharding_gathers_inside_and_sums_outside(plan, name):
    """FSDP's hybrid sharding: all parameters pass in the group, one rank's part of the gradients outside it."""
    model = replace(MODELS[name], mtp_layers=0)
    plan = replace(plan, expert_tp=plan.tp)
    workload, held = step(model, plan), held_parameters(model, plan, 0)
    count, times = held.dense + held.experts, plan.micro_batches
    gathered = sent(workload, keep=lambda layer, phase: layer.name.startswith("gather_"))
    assert gathered == 2 * plan.element_bytes * count * times * (plan.shard > 1)
    summed = sent(workload, keep=lambda layer, phase: layer.name.startswith("replicas_"))
    parts = plan.gradient_bytes * count * times / plan.shard
    assert parts <= summed <= parts * 1.001 + 1e4
    norm = 4
    reduced = sent(workload, (PhaseName.WEIGHT_GRAD,), lambda layer, phase: "replicas" not in layer.name)
    assert reduced - norm == plan.gradient_bytes * count * times


def test_hybrid_sharding_over_all_replicas_is_zero_3():
    plan = Plan(8, 256, global_batch=8, zero=3)
    for model in (DENSE, MIXED):
        plain, hybrid = step(model, plan), step(model, replace(plan, shard=8))
        assert sent(plain) == sent(hybrid)
        groups = {phase.group for layer in hybrid.layers for phase in (layer.forward, layer.weight_grad)}
        assert Group.DP_EP not in groups


@pytest.mark.parametrize(
    "values", [{"shard": 3}, {"zero": 0, "shard": 4}, {"zero": 1, "shard": 4}, {"ep": 2}, {"tp": 2, "expert_tp": 1}]
)
def test_what_zero_3_does_not_shard_is_refused(values):
    with pytest.raises(InputError, match=r"shard_ranks|stage"):
        step(MIXED, replace(Plan(8, 256, global_batch=8, zero=3), **values))


def test_the_tied_word_table_is_reduced_between_the_first_stage_and_the_last():
    """Once a step in operation lists of these two stages, by their vocabulary-parallel shares."""
    plan, model = Plan(16, 256, tp=2, pp=4, global_batch=8, zero=1), MODELS["gpt"]
    size = tied_gradient_bytes(model, plan)
    assert size == 4 * plan.padded_vocab(model.vocab) * model.hidden // 2
    groups = groups_of(plan)
    for stage in range(4):
        listed = listed_step(step(model, plan, stage), plan, stage, tied_bytes=size)
        tied = [operation.size for operation in listed if operation.group == "embedding_group"]
        assert tied == ([size] if stage in (0, 3) else [])
        members = groups.members.get(groups.of("embedding_group", 4 * stage + 1))
        assert members == ((1, 13) if stage in (0, 3) else None)


FIVE = {
    "dense": ("Megatron", {"tensor_model_parallel_size": 2, "use_distributed_optimizer": True, "swiglu": True}),
    "sequence": ("Megatron", {"tensor_model_parallel_size": 4, "enable_sequence_parallel": True}),
    "stages": ("Megatron", {"pipeline_model_parallel": 2, "tensor_model_parallel_size": 2, "pp_rank": 1}),
    "context": ("Megatron", {"context_parallel_size": 2}),
    "profiled": ("Megatron", {"tensor_model_parallel_size": 2, "aiob_enable": True}),
    "experts": (
        "Megatron",
        {
            "tensor_model_parallel_size": 2,
            "expert_model_parallel_size": 2,
            "enable_sequence_parallel": True,
            "moe_enable": True,
            "num_experts": 8,
            "moe_router_topk": 2,
            "use_distributed_optimizer": True,
        },
    ),
    "zero 2": ("DeepSpeed", {"stage": 2}),
    "zero 3": ("DeepSpeed", {"stage": 3}),
}


@pytest.mark.parametrize("name", FIVE)
def test_what_is_listed_as_different_from_aicb_is_all_that_differs(name):
    """Listed differences add up to the difference of all bytes, in every kind of file, and every one has a reason."""
    frame, values = FIVE[name]
    common = {"world_size": 16, "global_batch": 32, "seq_length": 256, "num_layers": 4, "hidden_size": 512}
    common |= {"num_attention_heads": 8, "ffn_hidden_size": 1024, "vocab_size": 1000}
    options = Options(frame=frame, gpu_type="A100", **(common | values))
    made = make_step(Asked(options, given={*common, *values}))
    found = deviations(aicb_options(options, made.model), made.workload.layers)
    if frame == "DeepSpeed":
        listed = deepspeed_operations(aicb_options(options, made.model))
        theirs = sum(
            each.size for each in listed if each.group and isinstance(each.size, int) and "init" not in each.stage
        )
    else:
        theirs = sent(Workload("", tuple(training_text(aicb_options(options, made.model), times={}).layers)))
    assert sum(item.bytes - item.aicb_bytes for item in found) == sent(made.workload) - theirs
    assert sent(made.workload) != theirs
    assert all(item.reason for item in found)
