"""The run that `simcore cost transformer` counts, on accelerators that are there: a step as `predict` has it."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.cost.closed.transformer import RunCost
from simcore.cost.predict import predict
from simcore.cost.systems import Cluster
from simcore.errors import InputError
from simcore.model.plan import Plan, check
from simcore.model.shape import Experts, Model


@dataclass(frozen=True, slots=True)
class Utilised:
    """Seconds of a batch and of the run, and the share of the accelerators' peak that its arithmetic is."""

    step_s: float
    runtime_s: float
    utilisation: float


def utilised(run: RunCost, cluster: Cluster, microbatch_size: int | None) -> Utilised:
    """A point of the grid is an accelerator; micro-batches are of so many sequences over all replicas, or of one each.

    Embedding and head, which the count leaves out, have next to no vocabulary. InputError where degrees do not divide.
    """
    model, grid, training = run.model, run.grid, run.training
    experts = Experts(model.experts, 1, model.d_ffn) if model.experts > 1 else None
    heads = 1 if model.multi_query else model.heads
    norms = 2 if model.consecutive else 1
    shape = Model(
        "counted", model.layers, model.d_model, model.heads, model.d_ffn, 1, heads, model.d_head, gated=model.glu,
        tied=True, norms=norms, experts=experts, parallel_block=not model.consecutive,
    )  # fmt: skip
    tp, replicas = grid.tensor_int * grid.tensor_ext, grid.data * grid.exp
    each, rest = divmod(microbatch_size or replicas, replicas)
    if rest:
        raise InputError.at("--microbatch_size", "does not divide", expected=f"a multiple of {replicas}")
    plan = Plan.of(
        training.seq_len, training.batch_size, dp=replicas, tp=tp, cp=grid.seq, ep=grid.exp, pp=grid.pipe,
        expert_tp=tp, micro_batch=each, sequence_parallel=tp > 1,
        recompute="full" if training.checkpointing else "none",
    )  # fmt: skip
    check(shape, plan)
    step_s = predict(shape, plan, cluster).step_s
    runtime_s = step_s * training.batches
    flop = run.total.forward.flop + run.total.backward.flop
    peak = grid.clusters * cluster.device.peak(plan.dtype)
    return Utilised(step_s, runtime_s, flop / (runtime_s * peak))
