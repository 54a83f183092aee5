"""Which choices of a plan change a step, and what the others lack: predictions, searches and generators ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from simcore.model.layer import model_blocks
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.model.steps import Module, dropped

Row = tuple[tuple[str, ...], bool, str]
"""Choices, whether they change a step, and what they need for that."""
Rows = Callable[[Model, Plan], Iterator[Row]]


def idle(model: Model, plan: Plan, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those choices of a plan that change nothing of a step, and what they need; nothing is chosen by 0 or False."""
    asked = [*names]
    yield from _found(_contradictions, model, plan, asked)
    yield from _found(_resting, model, plan, asked)


def contradicting(model: Model, plan: Plan, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of them that have no effect however far the model is cut: it has no such part, or other choices bar it."""
    return _found(_contradictions, model, plan, names)


def _found(rows: Rows, model: Model, plan: Plan, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    chosen = [name for name in names if getattr(plan, name, 0)]
    for some, acts, needed in rows(model, plan) if chosen else ():
        yield from ((name, needed) for name in some if name in chosen and not acts)


def _contradictions(model: Model, plan: Plan) -> Iterator[Row]:
    yield ("capacity", "load", "expert_tp"), model.experts is not None, "a model with experts"
    yield ("load",), not plan.capacity, "no --capacity, to which all experts are padded"
    yield ("encoder_seq",), model.encoder_layers > 0, "a model with an encoder"
    yield ("schedule", "virtual_stages"), plan.pp > 1, "--pp 2 or more"
    beside = plan.zero < 3 and plan.gradient_bytes > plan.element_bytes
    yield ("gradients_apart",), beside, "--zero 2 or less and gradients of more bits than products"
    yield ("by_matrix",), plan.zero == 3, "--zero 3"
    yield ("recompute_layers", "recompute_method"), plan.recompute == "full", "--recompute full"
    yield ("recompute_modules",), plan.recompute == "selective", "--recompute selective"
    if plan.recompute == "selective":
        kept = _kept(model, plan)
        yield ("recompute_modules",), {*kept}.issuperset(plan.recompute_modules), f"some of {', '.join(kept)}"
    if plan.frozen or plan.lora_rank:  # what a model holds takes longer to tell than all else here
        held = {weight.kind for block, _ in model_blocks(model, plan) for weight in block.weights}
        known = "weights of the model: " + ", ".join(sorted(held))
        yield ("frozen",), held.issuperset(plan.frozen), known
        yield ("lora_modules",), held.issuperset(plan.lora_modules), known
    yield ("frozen",), not plan.lora_rank, "no --lora-rank, with which all weights are frozen"
    yield ("lora_modules",), plan.lora_rank > 0, "--lora-rank"
    yield ("offload_layers",), bool({"activations", "weights"} & {*plan.offload}), "--offload activations or weights"
    yield ("attention_dtype",), plan.fused_attention, "fused attention"


def _resting(model: Model, plan: Plan) -> Iterator[Row]:
    """What would act if more were cut, or less were left out."""
    copies = plan.repeats(model)
    deepest = max(len(plan.layers(model, part)) for part in range(plan.outline.parts))
    layers = f"no more layers than the {deepest} of the deepest chunk"
    yield ("sequence_parallel",), plan.tp > 1, "--tp 2 or more"
    yield ("context",), plan.cp > 1, "--cp 2 or more"
    yield ("load",), plan.ep > 1, "--ep 2 or more"
    yield ("overlap_pipeline",), plan.pp > 1, "--pp 2 or more"
    scatters = plan.pp > 1 and plan.tp > 1 and not plan.sequence_parallel
    yield ("scatter_pipeline",), scatters, "--pp and --tp 2 or more, without sequence parallelism, which does so"
    yield ("zero", "by_matrix"), copies, "several replicas"
    yield ("overlap",), copies and plan.zero < 3, "several replicas, and --zero 2 or less"
    yield ("recompute_layers",), plan.recompute_layers <= deepest, layers
    yield ("recompute_method",), plan.recompute_layers > 0, "--recompute-layers"
    if plan.recompute == "selective":
        kept = _kept(model, plan)
        yield ("recompute",), not {*kept}.isdisjoint(plan.recompute_modules), f"--recompute-modules {', '.join(kept)}"
    yield ("offload_layers",), plan.offload_layers <= deepest, layers
    yield ("attention_dtype",), plan.narrow, "--dtype fp8 or less"


def _kept(model: Model, plan: Plan) -> list[str]:
    """Modules that selective recomputation has anything to drop of."""
    blocks = [block.kernels for block, _ in model_blocks(model, plan)]
    one_by_one = ((module, replace(plan, recompute_modules=(module,))) for module in Module)
    return [str(module) for module, alone in one_by_one if any(dropped(kernels, alone) for kernels in blocks)]
