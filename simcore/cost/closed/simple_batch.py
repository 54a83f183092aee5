"""A batch of `cost simple` as rows: two products in three passes, each with the sum that its split asks for."""

from __future__ import annotations

from simcore.cost.closed.executed import Axes, Axis, Batch
from simcore.cost.closed.simple import Setup, SimpleRun
from simcore.errors import InputError
from simcore.workload.model import CollectiveKind, Layer, Phase, Role

__all__ = ["batch_of"]

ALL_REDUCE, ALL_TO_ALL = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL


def batch_of(setup: Setup, run: SimpleRun) -> Batch:
    """The batch for the engine; InputError where a token goes to several experts, whose sum has no group."""
    if setup.routed > 1:
        message = "--topology executes routing to one expert"
        raise InputError.at("--n_routed_experts", message, expected="1", found=str(setup.routed))
    axes = _axes(setup)
    width, seconds, tokens = setup.precision_bits / 8, run.matmul_time, run.tokens_per_matmul
    internal, residual = (tokens * size * width for size in (run.d_int_per_matmul, run.d_per_matmul))
    summed = (
        axes.phase(seconds, ALL_REDUCE, Axis.INNER, residual),
        axes.phase(seconds, ALL_REDUCE, Axis.OUTER, internal),
    )
    weights = Phase(round(seconds * 1e9))
    rows = [Layer("up", summed[1], summed[0], weights), Layer("down", summed[0], summed[1], weights)]
    if setup.tp == 1 and setup.experts > 1:
        moved = axes.phase(0, ALL_TO_ALL, Axis.EXPERT, residual)
        rows.append(Layer("routing", moved, moved))
    gradients = setup.parameters_per_expert * setup.experts / (setup.chips // setup.dp) * width
    end = Layer("gradient_reduce", weight_grad=axes.phase(0, ALL_REDUCE, Axis.WEIGHTS, gradients), role=Role.REDUCE)
    stage = rows * (setup.layers // setup.pp)
    program = axes.workload([end], stage, run.n_microbatches_per_batch, residual / setup.tp)
    return Batch(program, setup.chips, run.batch_time)


def _axes(setup: Setup) -> Axes:
    """The setup's degrees; InputError where they need more groups than there are."""
    axes = Axes(setup.tp, setup.tp2, setup.experts, 1, setup.dp, setup.pp, setup.interleaving)
    if axes.both_tensor and setup.experts > 1:
        message = "--topology executes experts beside one tensor axis"
        raise InputError.at("--tp2", message, expected="--tp, --tp2 or --n_experts of 1", found=str(setup.tp2))
    return axes
