"""Laws between the closed forms of `simcore.cost` and what generates and runs workloads row by row."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.compute.operations import Transformer, parameters
from simcore.cost import memory as closed
from simcore.cost.predict import Job, part_times, predict
from simcore.cost.systems import CLUSTERS
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.generate import memory as counted
from simcore.generate import models
from simcore.generate.plan import Plan
from simcore.network.topology.model import Dimension, Topology
from simcore.workload.loops import schedules
from simcore.workload.model import Layer, Parallelism, Phase, Workload
from tests.runs import Run

SELENE = CLUSTERS["selene"]
GPT = Transformer(8, 2048, 16, 8192, 32000, 1024)


def stepped(job: Job) -> Workload:
    """The job's parts as rows that only compute, one row a part and micro-batch, to the nanosecond."""
    times, count = part_times(job, SELENE), job.micro_batches
    weights = times.weight if job.splits_backward else [0.0] * len(times.forward)
    rows = [
        Layer(f"part{i}", *(Phase(round(seconds * 1e9)) for seconds in cells))
        for i, cells in enumerate(zip(times.forward, times.backward, weights, strict=True))
    ]
    sizes = Parallelism(1, 1, job.pp, 1, 0, count)
    layers = tuple(row for row in rows for _ in range(count))
    return Workload("HYBRID_TRANSFORMER", layers, sizes, "simai", stage_rows=(count,) * len(rows))


@pytest.mark.parametrize("name", schedules.names())
@pytest.mark.parametrize("pp,dp", [(2, 2), (4, 1), (4, 2)])
def test_a_predicted_pipeline_takes_as_long_as_the_engine_runs_it(name, pp, dp):
    """Unequal parts (embedding, head), no messages: what `predict` plays is what the engine simulates."""
    chunks = 2 if name in {"interleaved", "zb-v", "dualpipe"} else 1
    job = Job(GPT, 16, pp=pp, dp=dp, schedule=name, chunks=chunks, overlap_pipeline=True)
    prediction = predict(job, SELENE)
    after_s = sum(prediction.parts[part] for part in ("gradients", "optimizer", "other"))
    machine = Topology((Dimension("Switch", 2, 1e15, 0.0), Dimension("Switch", pp, 1e15, 0.0)))
    run = Run(stepped(job), machine, settings=Settings(schedule=name))
    assert run.timeline().time_ns * 1e-9 == pytest.approx(prediction.step_s - after_s, rel=1e-6)


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
