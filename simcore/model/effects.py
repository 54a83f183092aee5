"""Which choices of a plan change a step, and what the others lack: predictions, searches and generators ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from simcore.model.layer import model_blocks
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.model.steps import Module, dropped

Row = tuple[tuple[str, ...], bool, str]
"""Choices, whether they change a step, and what they need for that."""


def idle(model: Model, plan: Plan, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those choices of a plan that change nothing of a step, and what they need; nothing is chosen by 0 or False."""
    chosen = [name for name in names if getattr(plan, name, 0)]
    for some, acts, needed in _rows(model, plan) if chosen else ():
        yield from ((name, needed) for name in some if name in chosen and not acts)


def _rows(model: Model, plan: Plan) -> Iterator[Row]:
    copies = max(plan.replicas, plan.expert_replicas if model.experts else 1) > 1
    deepest = max(len(plan.layers(model, part)) for part in range(plan.outline.parts))
    layers = f"no more layers than the {deepest} of the deepest chunk"
    yield ("capacity", "load", "expert_tp"), model.experts is not None, "a model with experts"
    yield ("encoder_seq",), model.encoder_layers > 0, "a model with an encoder"
    yield ("sequence_parallel",), plan.tp > 1, "--tp 2 or more"
    yield ("context",), plan.cp > 1, "--cp 2 or more"
    yield ("schedule", "virtual_stages", "overlap_pipeline"), plan.pp > 1, "--pp 2 or more"
    scatters = plan.pp > 1 and plan.tp > 1 and not plan.sequence_parallel
    yield ("scatter_pipeline",), scatters, "--pp and --tp 2 or more, without sequence parallelism, which does so"
    yield ("zero",), copies, "several replicas"
    yield ("overlap",), copies and plan.zero < 3, "several replicas, and --zero 2 or less"
    beside = plan.zero < 3 and plan.gradient_bytes > plan.element_bytes
    yield ("gradients_apart",), beside, "--zero 2 or less and gradients of more bits than products"
    yield ("by_matrix",), copies and plan.zero == 3, "--zero 3 and several replicas"
    yield ("recompute_layers",), plan.recompute == "full", "--recompute full"
    yield ("recompute_layers",), plan.recompute_layers <= deepest, layers
    grouped = plan.recompute == "full" and plan.recompute_layers > 0
    yield ("recompute_method",), grouped, "--recompute full and --recompute-layers"
    yield ("recompute_modules",), plan.recompute == "selective", "--recompute selective"
    if plan.recompute == "selective":
        yield from _modules(model, plan)
    if plan.frozen or plan.lora_rank:  # what a model holds takes longer to tell than all else here
        held = {weight.kind for block, _ in model_blocks(model, plan) for weight in block.weights}
        known = "weights of the model: " + ", ".join(sorted(held))
        yield ("frozen",), held.issuperset(plan.frozen), known
        yield ("lora_modules",), held.issuperset(plan.lora_modules), known
    yield ("frozen",), not plan.lora_rank, "no --lora-rank, with which all weights are frozen"
    yield ("lora_modules",), plan.lora_rank > 0, "--lora-rank"
    yield ("offload_layers",), bool({"activations", "weights"} & {*plan.offload}), "--offload activations or weights"
    yield ("offload_layers",), plan.offload_layers <= deepest, layers
    yield ("attention_dtype",), plan.fused_attention and plan.narrow, "fused attention and --dtype fp8 or less"


def _modules(model: Model, plan: Plan) -> Iterator[Row]:
    """Modules that selective recomputation has anything to drop of."""
    blocks = [block.kernels for block, _ in model_blocks(model, plan)]
    one_by_one = ((module, replace(plan, recompute_modules=(module,))) for module in Module)
    kept = [str(module) for module, alone in one_by_one if any(dropped(kernels, alone) for kernels in blocks)]
    needed = "--recompute-modules that keep something here: " + ", ".join(kept)
    yield ("recompute",), not {*kept}.isdisjoint(plan.recompute_modules), needed
    yield ("recompute_modules",), {*kept}.issuperset(plan.recompute_modules), needed
