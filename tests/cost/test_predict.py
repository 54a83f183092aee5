import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.cost.predict import gradient_sums, message_bytes, part_cells, predict
from simcore.cost.step import Machine, cut_of, in_nodes
from simcore.cost.systems import CLUSTERS, SOFTWARE
from simcore.errors import InputError
from simcore.model.layer import blocks
from simcore.model.memory import held_parameters, peak, stage_memory
from simcore.model.plan import Plan
from simcore.model.presets import model
from simcore.model.shape import Experts, LayerKind, Model
from simcore.model.steps import Axis, Collective

GPT = replace(model("gpt-7.5b"), layers=24)
BASE = Plan.of(
    *(2048, 64),
    tp=4,
    pp=2,
    dp=4,
    recompute="selective",
    sequence_parallel=True,
    fused_attention=False,
    dropout=True,
)
SELENE = CLUSTERS["selene"]


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    cluster=st.sampled_from(sorted(CLUSTERS)),
)
def test_the_parts_of_a_prediction_add_up(tp, pp, recompute, cluster):
    found = predict(GPT, replace(BASE, tp=tp, pp=pp, recompute=recompute), CLUSTERS[cluster])
    assert sum(found.parts.values()) == pytest.approx(found.step_s)
    assert min(found.parts.values()) >= 0


@given(
    pp=st.sampled_from([1, 2, 4]),
    micro_batches=st.integers(1, 6).map(lambda half: 2 * half),
    schedule=st.sampled_from(["1f1b", "zb-h1", "zb-v", "dualpipe"]),
    dtype=st.sampled_from(["bf16", "fp8"]),
    shape=st.sampled_from([GPT, replace(GPT, vocab=500_000)]),
)
def test_ranks_alone_on_their_stage_wait_for_their_pipeline_at_most(pp, micro_batches, schedule, dtype, shape):
    """8-bit scales follow other ranks' values where there are some: one accelerator waited for them as if it shared.

    A busiest stage that never waits has no bubble, which was less than nothing by what rounding leaves.
    """
    batch = max(micro_batches, 2 * pp)
    plan = Plan.of(1024, batch, pp=pp, schedule=schedule if pp > 1 else "", dtype=dtype)
    parts = predict(shape, plan, CLUSTERS["h100"]).parts
    assert not any(parts[name] for name in ("tensor_parallel", "context_parallel", "expert_parallel", "sharding"))
    assert parts["bubble"] >= 0


def test_recomputation_costs_time_and_saves_memory():
    jobs = [replace(BASE, recompute=kind) for kind in ("none", "selective", "full")]
    times = [predict(GPT, job, SELENE).step_s for job in jobs]
    assert times == sorted(times)
    assert [peak(GPT, job).activations for job in jobs] == sorted(
        (peak(GPT, job).activations for job in jobs), reverse=True
    )


@given(pp=st.sampled_from([1, 2]), layers=st.sampled_from([0, 1]), further=st.integers(1, 3))
def test_the_layers_of_mtp_modules_are_computed_again_as_all_others_are(pp, layers, further):
    """Memory keeps no more than their input, so time has them twice (Megatron-LM's `_checkpointed_forward`)."""
    plan = Plan.of(2048, 4, pp=pp, sequence_parallel=False)
    again = replace(plan, recompute="full", recompute_layers=layers)
    deeper = replace(GPT, mtp_layers=further)
    parts = [cell for cell, _ in part_cells(deeper, cut_of(again), SELENE, pp - 1)]
    plain = [cell for cell, _ in part_cells(GPT, cut_of(again), SELENE, pp - 1)]
    assert plain[pp == 1].backward_ns in {cell.backward_ns for cell in parts[len(plain) :]}
    longer, shorter = ([predict(one, this, SELENE).step_s for this in (again, plan)] for one in (deeper, GPT))
    assert longer[0] - longer[1] > shorter[0] - shorter[1]


def test_interleaving_shortens_the_bubble():
    deep = replace(BASE, pp=4)
    plain, split = (predict(GPT, replace(deep, virtual_stages=chunks), SELENE).parts["bubble"] for chunks in (1, 3))
    assert split < plain


@given(
    schedule=st.sampled_from(["interleaved", "zb-v", "dualpipe"]),
    pp=st.sampled_from([2, 4]),
    zero=st.integers(0, 3),
    overlap=st.booleans(),
)
def test_a_schedule_has_its_two_chunks_without_a_word(schedule, pp, zero, overlap):
    """Of its time and of the memory of every stage."""
    plan = Plan.of(2048, 8 * pp, pp=pp, dp=2, schedule=schedule, zero=zero, overlap=overlap)
    stated = replace(plan, virtual_stages=2)
    assert predict(GPT, plan, SELENE) == predict(GPT, stated, SELENE)
    for stage in range(pp):
        assert stage_memory(GPT, plan, stage) == stage_memory(GPT, stated, stage)


def test_hidden_gradients_never_cost_more():
    plain, hidden = (predict(GPT, replace(BASE, overlap=value), SELENE).parts["gradients"] for value in (False, True))
    assert hidden < plain


def test_zero_shards_what_it_says():
    plans = [replace(BASE, zero=level) for level in range(4)]
    parts = [stage_memory(GPT, plan) for plan in plans]
    sizes = [one.parameters + one.gradients + one.optimizer for one in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] / sizes[3] == pytest.approx(BASE.dp, rel=1e-6)


def test_hybrid_sharding_sums_what_a_rank_owns_over_the_replicas():
    """A group of two scatters, then every rank sums its half with the ranks that own the same half."""
    scattered, summed, gathered = gradient_sums(GPT, replace(BASE, zero=1, shard=2), SELENE.software)
    assert (scattered.axis, summed.axis, gathered.axis) == (Axis.DATA, Axis.REPLICAS, Axis.DATA)
    assert summed.size_bytes == -(-scattered.size_bytes // 2)
    plain = predict(GPT, replace(BASE, zero=1), SELENE)
    assert predict(GPT, replace(BASE, zero=1, shard=BASE.replicas), SELENE).step_s == plain.step_s


def test_sums_over_replicas_of_a_shard_hide_behind_no_more_than_the_backward():
    slow = replace(SELENE, fabric=replace(SELENE.fabric, across_bytes_per_s=1e6))

    def gradients_s(cluster, overlap):
        return predict(GPT, replace(BASE, zero=1, shard=2, overlap=overlap), cluster).parts["gradients"]

    assert gradients_s(SELENE, True) < gradients_s(SELENE, False)
    assert 0.5 * gradients_s(slow, False) < gradients_s(slow, True) < gradients_s(slow, False)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(InputError, match="multiple of dp x micro-batch = 4"):
        predict(GPT, replace(BASE, global_batch=62), SELENE)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_sums_of_input_gradients_beside_weight_gradients_cost_less_but_not_nothing(sequence_parallel):
    job = replace(BASE, sequence_parallel=sequence_parallel)
    beside = replace(SELENE, software=replace(SELENE.software, hides_input_gradient=True))
    behind = replace(SELENE, software=replace(SELENE.software, hides_input_gradient=False))
    hidden, exposed = (predict(GPT, job, cluster).parts["tensor_parallel"] for cluster in (beside, behind))
    assert exposed / 2 < hidden < exposed


@given(
    share=st.sampled_from([0.03, 0.2, 1.0]),
    tp=st.sampled_from([16, 32]),
    name=st.sampled_from(["megatron-core", "maxtext", "megatron-lm", "torchtitan-async"]),
    split=st.booleans(),
)
def test_a_step_takes_no_less_than_its_layers_keep_the_network_between_nodes(share, tp, name, split):
    """Whatever runs beside them: collectives of layers pass the same cards one after the other."""
    cluster = CLUSTERS["h100"]
    cluster = replace(cluster, fabric=cluster.fabric.with_cards(share), software=SOFTWARE[name])
    plan, shape = Plan.of(2048, 2, tp=tp, sequence_parallel=split), model("gpt-145.6b")
    machine = Machine(plan, cluster)
    steps = [step for block in blocks(shape, plan, LayerKind()) for step in block.steps]
    sent = [step for step in steps if isinstance(step, Collective)]
    kinds = [(step, kind) for step in sent for kind in (step.forward, step.backward) if kind]
    sent_s = sum(machine.collective_s(kind, step.size_bytes, step.axis) for step, kind in kinds)
    assert predict(shape, plan, cluster).step_s >= plan.micro_batches * shape.layers * sent_s


def test_launches_that_wait_add_their_time_to_the_kernels():
    """CUDA_LAUNCH_BLOCKING: the host's part no longer hides, so more of it always costs more."""

    def seconds(launch_s, synchronous):
        software = replace(SELENE.software, launch_s=launch_s, synchronous=synchronous)
        return predict(GPT, BASE, replace(SELENE, software=software)).step_s

    assert seconds(0.0, synchronous=True) == seconds(0.0, synchronous=False)
    assert seconds(20e-6, synchronous=True) > seconds(20e-6, synchronous=False)
    added = [seconds(launches * 1e-6, synchronous=True) - seconds(0.0, synchronous=True) for launches in (10, 20)]
    assert added[1] == pytest.approx(2 * added[0])


def test_summing_gradients_apart_costs_its_passes_over_memory():
    """Every parameter of a rank moves so many bytes in every micro-batch, at the rate of the memory."""
    added = 10.0
    apart = replace(SELENE, software=replace(SELENE.software, accumulation_bytes=added))
    more_s = predict(GPT, BASE, apart).step_s - predict(GPT, BASE, SELENE).step_s
    held = max(held_parameters(GPT, BASE, stage).trained for stage in range(BASE.pp))
    least_s = BASE.micro_batches * held * added / 2.039e12
    assert 0.9 * least_s < more_s < 1.5 * least_s


@given(
    layers=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    pp=st.sampled_from([2, 3, 4]),
    seqs=st.tuples(st.sampled_from([64, 512]), st.sampled_from([0, 64, 4096])),
    scatters=st.booleans(),
)
def test_stages_hand_on_what_later_ones_read(layers, pp, seqs, scatters):
    """An encoder's tokens go to every decoder stage, through those before it."""
    (encoders, decoders), (seq, read) = layers, seqs
    shape = Model("pair", decoders, 256, 4, 1024, 1000, encoder_layers=encoders)
    plan = Plan.of(seq, 2 * pp, tp=2, pp=pp, encoder_seq=read, scatter_pipeline=scatters)
    starts = [plan.layers(shape, part).start for part in range(1, pp)]
    passed = [(read or seq) + (seq if start > encoders else 0) for start in starts]
    assert message_bytes(shape, plan) == max(passed) * shape.hidden * plan.element_bytes // (2 if scatters else 1)
    alone = replace(shape, encoder_layers=0, layers=pp)
    assert message_bytes(alone, replace(plan, encoder_seq=0)) == seq * shape.hidden * plan.element_bytes // (
        1 + scatters
    )


RUN = "cost transformer --num_layers 24 --d_model 2048 --dataset_size 1e11 --batch_size 512 --json"


@pytest.mark.parametrize("grid", ["--p_data 8", "--p_data 4 --p_tensor_int 2 --consecutive_attn_and_ffn", "--p_pipe 4"])
def test_a_counted_run_takes_longer_than_at_the_peak_by_what_it_does_not_use(grid, capsys):
    peak = 312e12  # of an A100 in bf16
    ideal = [*RUN.split(), *grid.split(), "--skip_efficiency_check", "--cluster_flop_rate", str(peak)]
    assert main([*ideal, "--cluster", "selene"]) == 0
    document = json.loads(capsys.readouterr().out)
    predicted = document["predicted"]
    assert 0.1 < predicted["utilisation"] < 0.8
    assert predicted["runtime_s"] * predicted["utilisation"] == pytest.approx(document["runtime_s"])
    assert main([*ideal, "--cluster", "selene", "--fwd_only"]) == 2
    assert "--fwd_only" in capsys.readouterr().out


def test_what_a_predicted_run_computes_again_is_not_used(capsys):
    """It takes longer with the same arithmetic that the model needs."""
    asked, used = [*RUN.split(), "--p_data", "8", "--cluster", "selene"], []
    for again in ((), ("--activation_checkpointing",)):
        assert main([*asked, *again]) == 0
        predicted = json.loads(capsys.readouterr().out)["predicted"]
        used.append((predicted["runtime_s"], predicted["runtime_s"] * predicted["utilisation"]))
    (once_s, needed_s), (twice_s, still_needed_s) = used
    assert twice_s > 1.2 * once_s
    assert still_needed_s == pytest.approx(needed_s)


def test_a_predicted_run_has_one_accelerator_in_every_place_of_its_grid(capsys):
    asked = [*RUN.split(), "--p_data", "8", "--cluster", "selene", "--price_per_chip_hour", "2", "--chips_per_cluster"]
    assert [main([*asked, chips]) for chips in "18"] == [0, 2]
    assert "--chips_per_cluster" in capsys.readouterr().out


def test_a_predicted_run_has_the_smallest_efficient_micro_batch(capsys):
    """With two ways to time a run, what it is told to need holds for both, and the answer names the one it gives."""
    words = "--num_layers 32 --d_model 8192 --dataset_size 3e11 --batch_size 1024 --p_data 16 --p_pipe 2 --p_seq 4"
    asked, times = ["cost", "transformer", *words.split(), "--p_tensor_int", "8", "--cluster", "selene"], []
    for chosen in ([], ["--microbatch_size", "32"], ["--microbatch_size", "16"]):
        assert main([*asked, *chosen, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["microbatch_sizes"][0] == 32
        times.append(document["predicted"]["runtime_s"])
    assert times[0] == times[1] < times[2]
    assert main([*asked, "--cluster_flop_rate", "156e12"]) == 0
    assert "By the closed form it would be 3.0 days" in capsys.readouterr().out.splitlines()[0]


def test_a_predicted_run_costs_what_it_takes(capsys):
    """Energy, money and traffic of 8 A100: by the hours of the prediction, were they 3.4 days of the closed form."""
    words = "--p_data 8 --cluster selene --chip_watts 400 --pue 1.2 --price_per_chip_hour 2 --skip_efficiency_check"
    found = {}
    for rate in ("", "--cluster_flop_rate 312e12"):
        assert main([*RUN.split(), *words.split(), *rate.split()]) == 0
        document = json.loads(capsys.readouterr().out)
        told, runtime_s = document["operation"], document["predicted"]["runtime_s"]
        assert told["ideal_s"] == told["wall_clock_s"] == runtime_s
        assert told["money"] == pytest.approx(8 * 2 * runtime_s / 3600)
        assert told["energy_joules"] == pytest.approx(8 * 400 * 1.2 * runtime_s)
        assert told["break_even_bytes_per_s"] == pytest.approx(2 * document["net"]["total"] / 8 / runtime_s)
        found[rate] = told
    assert found[""] == found["--cluster_flop_rate 312e12"]


@given(first=st.integers(0, 20), **dict.fromkeys(("ranks", "stride", "groups", "node"), st.integers(1, 9)))
def test_groups_have_as_many_ranks_in_a_node_as_they_have_one_by_one(first, ranks, stride, groups, node):
    world, shares = ranks * stride * groups, set()
    for start in (rank for rank in range(world) if rank // stride % ranks == 0):
        nodes = [(first + start + turn * stride) // node for turn in range(ranks)]
        shares.add(max(map(nodes.count, nodes)))
    assert in_nodes(ranks, stride, world, node, first) == tuple(sorted(shares))


@pytest.mark.parametrize("dp", [3, 4, 5, 7])
def test_replicas_of_stages_that_end_within_a_node_sum_their_gradients_across_nodes(dp):
    """Of stages of 6 ranks on nodes of 8 the first has its replicas in one node, the second not; the engine says so."""
    answer = simcore.predict(replace(GPT, layers=8), "h100", 8 * dp, 512, tp=2, pp=4, global_batch=8 * dp)
    assert 0.95 * answer.step_s < answer.run_s() < 1.00001 * answer.step_s


def test_expert_ranks_that_do_not_nest_in_tensor_ranks_cannot_be_played():
    experts = Model("six experts", 4, 1536, 12, 4096, 32000, experts=Experts(6, 2, 1536))
    answer = simcore.predict(experts, "h100", 6, 2048, tp=2, ep=3, expert_tp=1)
    with pytest.raises(InputError, match="the step as rows: error: the groups of the header do not fit"):
        answer.run_s()
