"""What would fit: plans that differ in one choice from one that needs too much memory, the fastest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simcore.cost.cluster import Cluster
from simcore.cost.predict import predict
from simcore.errors import InputError
from simcore.model.memory import peak
from simcore.model.plan import OFFLOADED, Plan, check
from simcore.model.shape import Model


def remedies(model: Model, plan: Plan, cluster: Cluster) -> list[tuple[str, int, float]]:
    """Option, peak bytes and step seconds of every single change with which the plan fits, the fastest first."""
    fitting = []
    for option, other in _changes(model, plan):
        try:
            check(model, other)
            size = peak(model, other).total
        except InputError:
            continue
        if size <= cluster.memory_bytes:
            fitting.append((option, size, predict(model, other, cluster).step_s))
    return sorted(fitting, key=lambda one: one[2])


def _changes(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans on as many accelerators that need less."""
    yield from ((f"--zero {zero}", replace(plan, zero=zero)) for zero in range(plan.zero + 1, 4))
    if plan.recompute == "none":
        yield from _computed_again(model, plan)
    for what in OFFLOADED:
        if what not in plan.offload:
            yield f"--offload {what}", replace(plan, offload=(*plan.offload, what))
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "--sequence-parallel", replace(plan, sequence_parallel=True)
    yield f"--ep {2 * plan.ep}", replace(plan, ep=2 * plan.ep)
    for name in ("tp", "pp", "cp") if plan.dp % 2 == 0 else ():  # what replicas were
        degree = 2 * getattr(plan, name)
        yield f"--{name} {degree} --dp {plan.dp // 2}", plan.but(**{name: degree})
    if plan.micro_batch > 1:
        yield f"--micro-batch {plan.micro_batch // 2}", replace(plan, micro_batch=plan.micro_batch // 2)


def _computed_again(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Modules, or layers of every part of the model: powers of two, and all."""
    if not plan.fused_attention:
        yield "--recompute selective", replace(plan, recompute="selective")
    deepest = max(len(plan.layers(model, part)) for part in range(plan.outline.parts))
    for layers in sorted({*(1 << power for power in range(deepest.bit_length())), deepest}):
        some = replace(plan, recompute="full", recompute_layers=layers)
        yield f"--recompute full --recompute-layers {layers}", some
