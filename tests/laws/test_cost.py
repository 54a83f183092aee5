"""Laws between the closed forms of `simcore.cost` and what generates and runs workloads row by row."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.compute.operations import Transformer, parameters
from simcore.cost import memory as closed
from simcore.cost.job import Software
from simcore.cost.played import engine_ns, program, run_ns
from simcore.cost.predict import Job, part_times, predict
from simcore.cost.systems import CLUSTERS
from simcore.errors import InputError
from simcore.generate import memory as counted
from simcore.generate import models
from simcore.generate.durations import roofline
from simcore.generate.plan import Plan
from simcore.generate.training import pipeline_workload
from simcore.workload.loops import schedules

SELENE = CLUSTERS["selene"]
GPT = Transformer(8, 2048, 16, 8192, 32000, 1024)


EXPERTS = Transformer(8, 1024, 16, 4096, 32000, 1024, experts=4, top_k=2, expert_ffn=2048, dense_layers=2)
TWO_CHUNKS = {"zb-v", "dualpipe"}


@st.composite
def strategies(draw):
    """A small job on a system, and how its stages hand over."""
    name, pp = draw(st.sampled_from(schedules.names())), draw(st.sampled_from([1, 2, 4]))
    name = name if pp > 1 else "1f1b"
    tp, dp, ep = draw(st.sampled_from([(1, 1, 1), (2, 2, 2), (4, 2, 1), (2, 4, 4), (1, 8, 2)]))
    chunks = 2 if name in TWO_CHUNKS else draw(st.sampled_from([2, 4])) if name == "interleaved" else 1
    count = pp * draw(st.sampled_from([2, 3, 30])) if name == "interleaved" else 2 * draw(st.integers(pp, 15 * pp))
    return Job(
        draw(st.sampled_from([replace(GPT, layers=16), EXPERTS])),
        *(count * dp, 1, tp, pp, dp),
        ep=ep,
        chunks=min(chunks, 8 // pp),
        schedule=name,
        sequence_parallel=draw(st.booleans()),
        zero=draw(st.integers(0, 3)),
        overlap_gradients=draw(st.booleans()),
        overlap_pipeline=draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None)
@given(strategies(), st.sampled_from(["selene", "vtrain-cluster", "h100", "gb200"]))
def test_the_engine_takes_as_long_for_a_step_as_predicted(job, system):
    """To the rounding of every cell on the longest way to whole nanoseconds."""
    cells = 3 * job.micro_batches * job.outline.chunks + 4 * job.outline.parts
    predicted_s, engine_s = predict(job, CLUSTERS[system]).step_s, engine_ns(job, CLUSTERS[system]) * 1e-9
    assert engine_s == pytest.approx(predicted_s, abs=cells * 1e-9)


@settings(max_examples=80, deadline=None)
@given(strategies())
def test_a_pipeline_is_played_to_the_nanosecond(job):
    """The engine's stages as processes, against the schedule as data in the same whole nanoseconds."""
    job = replace(job, tp=1, dp=1, ep=1, global_batch=job.micro_batches)
    times, workload = part_times(job, SELENE), program(job, SELENE)
    end = next(layer for layer in workload.layers if layer.name == "gradient_reduce")
    rounded = ([round(seconds * 1e9) for seconds in some] for some in (times.forward, times.backward, times.weight))
    sent = times.transfer if job.overlap_pipeline else [0.0] * job.pp
    exact = schedules.Durations(*rounded, transfer=[ceil(round(seconds * 1e9, 3)) for seconds in sent])
    assert engine_ns(job, SELENE) == schedules.play(job.plan, exact).makespan + end.forward.compute_ns


LLAMA = replace(GPT, gated=True, tied=False, learned_positions=False, kv_heads=4, ffn=5632)
CLASSIC = replace(GPT, dropout=True, attention="unfused")
MIXED = replace(LLAMA, experts=8, top_k=2, expert_ffn=1408, shared_ffn=2816, dense_layers=1)


def described(model: Transformer) -> models.Transformer:
    """The same shape as the generator writes it."""
    return models.Transformer(
        "model",
        *(model.layers, model.hidden, model.heads, model.ffn, model.vocab),
        kv_heads=model.kv_heads,
        gated=model.gated,
        tied=model.tied,
        positions=model.seq if model.learned_positions else 0,
        norm="layer" if model.dropout else "rms",
        linear_bias=model.dropout,
        qkv_bias=model.dropout,
        experts=models.Experts(model.experts, model.top_k, model.expert_ffn, model.shared_ffn, model.dense_layers)
        if model.experts
        else None,
    )


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from([LLAMA, CLASSIC, MIXED]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4]),
    micro=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sequence_parallel=st.booleans(),
)
def test_memory_in_closed_form_is_the_memory_counted_weight_by_weight(
    model, tp, pp, cp, ep, micro, zero, recompute, sequence_parallel
):
    """A layer's activations to the byte; weights, gradients and states of every stage but for norms and biases.

    Experts are spread over data, context and tensor ranks; ZeRO 3 shares them over all replicas or not at all.
    """
    parallel = sequence_parallel and tp > 1
    ep = ep if model.experts and 2 * cp * tp % ep == 0 else 1
    zero = min(zero, 2) if model.experts else zero
    job = Job(model, 32, micro, tp, pp, 2, cp, ep, sequence_parallel=parallel, recompute=recompute, zero=zero)
    plan = Plan(
        *(2 * tp * pp * cp, model.seq, tp, cp, ep),
        pp=pp,
        micro_batch=micro,
        global_batch=32,
        sequence_parallel=parallel,
        zero=zero,
        recompute=recompute,
    )
    shape, flash = described(model), model.attention == "flash"
    for index, dense in ((0, True), (model.layers - 1, not model.experts)):
        layer = counted.activation_bytes_per_layer(shape, plan, index, flash=flash)
        assert closed.activation_bytes_per_layer(job, dense=dense) == pytest.approx(layer, abs=1)
    for stage in range(pp):
        assert closed.in_flight(job, stage) == counted.in_flight(pp, stage, plan.micro_batches)
        held, found = counted.stage_memory(shape, plan, stage, flash=flash), closed.model_bytes(job, stage)
        names = {"parameters": "weights", "gradients": "gradients", "optimizer": "optimizer"}
        for theirs, ours in names.items():
            assert found[ours] == pytest.approx(getattr(held, theirs), rel=0.02)


def existing() -> Iterator[schedules.Schedule]:
    """Schedules of few and of many micro-batches, where their kind exists."""
    for name, stages, count in product(schedules.names(), (1, 2, 4, 6), (1, 2, 3, 12, 24)):
        with suppress(InputError):
            yield schedules.make(name, stages, count, {"interleaved": 3, "zb-v": 2, "dualpipe": 2}.get(name))


@pytest.mark.parametrize("schedule", list(existing()), ids=lambda one: f"{one.name}-{one.stages}-{one.micro_batches}")
def test_the_micro_batches_a_stage_holds_are_those_its_cells_show(schedule):
    """Counted from every forward to the cell that frees it: its weight gradient, where that is a cell of its own."""
    stages, count, chunks = schedule.stages, schedule.micro_batches, schedule.chunks
    job = Job(replace(GPT, layers=24), count, pp=stages, schedule=schedule.name, chunks=chunks)
    frees, passes = "W" if schedule.splits_backward else "B", chunks // job.copies
    for stage, line in enumerate(schedule.order):
        steps = [{"F": 1, frees: -1}.get(cell.kind, 0) for cell in line]
        assert closed.in_flight(job, stage) >= max(accumulate(steps)) / passes
        if count >= 2 * stages:
            assert closed.in_flight(job, stage) == max(accumulate(steps)) / passes


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
@pytest.mark.parametrize("model", [GPT, LLAMA, MIXED])
def test_all_stages_together_hold_the_model_once_for_every_pipeline(name, model):
    """A V begins and ends on the first stage: a tied table is there once, an untied head beside the embedding."""
    job = Job(model, 16, pp=4, schedule=name, chunks=1 if name == "1f1b" else 2)
    held = sum(sum(closed.stage_parameters(job, stage)) for stage in range(job.pp))
    twice = model.vocab * model.hidden if model.tied and name == "1f1b" else 0
    assert held == pytest.approx(job.copies * parameters(model) + twice + _second_table(job), rel=1e-3)
    assert job.ends(0) == {"1f1b": (1, 0), "zb-v": (1, 1), "dualpipe": (1, 1)}[name]


def _second_table(job: Job) -> int:
    """Two whole pipelines have a tied table on four places, not on two."""
    return 2 * job.model.vocab * job.model.hidden if job.copies > 1 and job.model.tied else 0


BARE = replace(SELENE, software=Software(launch_s=0.0, step_s=0.0))


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from([LLAMA, replace(LLAMA, layers=16, heads=32, kv_heads=32)]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 4]),
    count=st.sampled_from([4, 8]),
    chunks=st.sampled_from([1, 2]),
    zero=st.integers(0, 1),
    recompute=st.sampled_from(["none", "full"]),
)
def test_generator_kernels_and_engine_give_the_predicted_step(model, pp, dp, count, chunks, zero, recompute):
    """The rows `simcore generate` writes, timed by the same kernels, run by the engine: what `predict` adds up.

    Without tensor parallelism, whose collectives the engine hides behind weight gradients as far as they go and
    `predict` at a price; with messages that overlap; with software that costs nothing. What is left is the sum of the
    gradients' norm and, chunk by chunk, the latencies of the collectives and kernels that end a step.
    """
    chunks = chunks if pp > 1 else 1
    job = Job(model, count * dp, 1, 1, pp, dp, chunks=chunks, zero=zero, recompute=recompute, overlap_pipeline=True)
    plan = Plan(
        *(pp * dp, model.seq),
        pp=pp,
        virtual_stages=chunks,
        global_batch=count * dp,
        zero=zero,
        recompute=recompute,
    )
    shape = described(model)
    workload = pipeline_workload(shape, plan, roofline(shape, plan, accelerator(BARE.accelerator)))
    more_s = run_ns(workload, job, BARE.fabric) * 1e-9 - predict(job, BARE).step_s
    assert -1e-5 < more_s < (150e-6 * chunks if dp > 1 or chunks > 1 else 1e-5)
