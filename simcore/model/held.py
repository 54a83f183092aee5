"""What a rank of a pipeline stage holds of a model's weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import add
from typing import NamedTuple

from simcore.model.plan import Plan, layers_of, seen, seen_by, unlike
from simcore.model.shape import LayerKind, Model, Weight, Weights, elements


class Held(NamedTuple):
    """Parameters a rank holds: ordinary ones and those of its experts.

    `replicated` of the ordinary ones are whole on every tensor rank, which with sequence parallelism sees some of the
    tokens only: norms, routers, low-rank projections. `trained` of the ordinary ones, and of `trained_experts`, have
    gradients.
    """

    dense: int = 0
    experts: int = 0
    replicated: int = 0
    trained: int = 0
    trained_experts: int = 0

    def __add__(self, other: Held) -> Held:  # type: ignore[override]
        return Held(*map(add, self, other))

    def __mul__(self, times: int) -> Held:  # type: ignore[override]
        return Held(*(times * count for count in self))

    def __floordiv__(self, shares: int) -> Held:
        return Held(*(count // shares for count in self))

    @property
    def whole(self) -> int:
        """All of them."""
        return self.dense + self.experts

    def owned(self, plan: Plan) -> int:
        """Trained parameters whose states a rank has: where ZeRO shares them, its part."""
        if not plan.zero:
            return self.trained + self.trained_experts
        return self.trained // plan.sharing + self.trained_experts // plan.expert_sharing


NOTHING = Held()


def of_weights(weights: tuple[Weight, ...], plan: Plan) -> Held:
    """What a rank holds of some weights, with their adapters."""
    trained = tuple(weight for weight in weights if plan.trains(weight.kind))
    whole = (weight for weight in trained if weight.split == "none" and weight.kind is not Weights.EMBEDDING)
    adapters = sum(_adapter(weight, plan) for weight in weights if plan.adapts(weight.kind))
    dense, learnt = (elements(some, plan.tp, experts=False) + adapters for some in (weights, trained))
    experts, learning = (
        sum(one.copies // plan.ep * one.elements() // plan.expert_tp for one in some if one.split == "expert")
        for some in (weights, trained)
    )
    return Held(dense, experts, elements(tuple(whole)), learnt, learning)


def _adapter(weight: Weight, plan: Plan) -> int:
    """Elements of a matrix's adapter on a rank: its side that is split, divided."""
    if weight.inputs == 1 or weight.split in ("none", "expert"):
        return 0
    inputs, outputs = weight.inputs, weight.outputs
    split = (inputs + outputs // plan.tp) if weight.split == "column" else (inputs // plan.tp + outputs)
    return plan.lora_rank * split


def held_parameters(model: Model, plan: Plan, stage: int) -> Held:
    """Parameters a rank of a stage holds, of all its parts of the model."""
    return part_parameters(model, plan, plan.parts(stage))


_OF_LAYER = ("tp", "ep", "expert_tp", "lora_rank", "lora_modules", "frozen")
_of_layer = seen(seen_by(*_OF_LAYER))
_of_parts = seen(seen_by(*_OF_LAYER, "pp", "virtual_stages", "schedule", "cuts", "pad_vocab_to"))


@_of_parts
def fullest_parameters(model: Model, plan: Plan) -> Held:
    """Parameters a rank of the fullest stage holds, of one pipeline."""
    stages = unlike(model, plan.outline, plan.cuts)
    return max((held_parameters(model, plan, stage) for stage in stages), key=lambda one: one.whole) // plan.copies


@_of_parts
def part_parameters(model: Model, plan: Plan, parts: tuple[int, ...]) -> Held:
    """Parameters a rank holds of some parts of the model, the vocabulary padded as the plan says.

    The first part has the embedding, the last the head, MTP modules and, unless its stage has one, a word table for
    those that need it.
    """
    padded = replace(model, vocab=plan.padded_vocab(model.vocab))
    tables, last = padded.embedding_weights(), plan.outline.parts - 1
    held = of_weights(tables, plan) * parts.count(0)
    for some in layers_of(model, plan, plan.outline.parts, plan.cuts, parts):
        held += layer_parameters(model, plan, some.kind) * some.number
    if last not in parts:
        return held
    copied = (model.tied or model.mtp_layers > 0) and (plan.copies > 1 or not plan.ends(0)[1])
    held += of_weights((*padded.head_weights(), *(tables[:1] if copied else ())), plan)
    for layer in range(model.depth, model.depth + model.mtp_layers):
        held += layer_parameters(model, plan, model.kind(layer)) + of_weights(model.mtp_weights(), plan)
    return held


@_of_layer
def layer_parameters(model: Model, plan: Plan, kind: LayerKind) -> Held:
    """Parameters a rank holds of a layer."""
    return of_weights(model.layer_weights(kind), plan)


@_of_layer
def matrices(model: Model, plan: Plan, kind: LayerKind) -> frozenset[tuple[object, int]]:
    """The trained matrices of a layer by their shape, and elements of one on a rank.

    Equal ones, as those of a gate, are one of as many columns.
    """
    return frozenset(
        (
            (weight, number),
            number * (weight.elements() // plan.expert_tp if weight.split == "expert" else weight.elements(plan.tp)),
        )
        for weight, number in Counter(model.layer_weights(kind)).items()
        if weight.inputs > 1 and plan.trains(weight.kind)
    )


def tied_gradient_bytes(model: Model, plan: Plan) -> int:
    """Bytes that a rank of the first stage and one of the last all-reduce: both hold the word table."""
    tied = plan.pp > 1 and plan.ties_stages(model) and plan.trains(Weights.EMBEDDING)
    return plan.gradient_bytes * plan.padded_vocab(model.vocab) * model.hidden // plan.tp if tied else 0
