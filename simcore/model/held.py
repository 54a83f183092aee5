"""What a rank of a pipeline stage holds of a model's weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.model.plan import Plan
from simcore.model.shape import LayerKind, Model, Weight, elements, kinds

__all__ = ["NOTHING", "Held", "held_parameters", "of_weights", "part_parameters", "tied_gradient_bytes"]


@dataclass(frozen=True, slots=True)
class Held:
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

    def __add__(self, other: Held) -> Held:
        return Held(
            self.dense + other.dense,
            self.experts + other.experts,
            self.replicated + other.replicated,
            self.trained + other.trained,
            self.trained_experts + other.trained_experts,
        )

    def __mul__(self, times: int) -> Held:
        counts = self.dense, self.experts, self.replicated, self.trained, self.trained_experts
        return Held(*(times * count for count in counts))

    @property
    def whole(self) -> int:
        """All of them."""
        return self.dense + self.experts

    def owned(self, plan: Plan) -> int:
        """Trained parameters whose states a rank has where ZeRO shares them."""
        return self.trained // plan.sharing + self.trained_experts // (plan.shard or plan.expert_replicas)


NOTHING = Held()


def of_weights(weights: tuple[Weight, ...], plan: Plan) -> Held:
    """What a rank holds of some weights; under LoRA adapters, which alone are trained, beside every matrix."""
    whole = tuple(weight for weight in weights if weight.split == "none" and weight.name != "positions")
    routed = (weight for weight in weights if weight.split == "expert")
    experts = sum(weight.copies // plan.ep * weight.elements() // plan.expert_tp for weight in routed)
    dense = elements(weights, plan.tp, experts=False)
    if not plan.lora_rank:
        return Held(dense, experts, elements(whole), dense, experts)
    adapters = sum(_adapter(weight, plan) for weight in weights)
    return Held(dense + adapters, experts, 0, adapters, 0)


def _adapter(weight: Weight, plan: Plan) -> int:
    """Elements of a matrix's adapter on a rank: its side that is split, divided."""
    if weight.inputs == 1 or weight.split in ("none", "expert"):
        return 0
    if plan.lora_targets and _MODULE.get(weight.name) not in plan.lora_targets:
        return 0
    inputs, outputs = weight.inputs, weight.outputs
    split = (inputs + outputs // plan.tp) if weight.split == "column" else (inputs // plan.tp + outputs)
    return plan.lora_rank * split


# The module that a matrix is part of.
_MODULE = {
    **dict.fromkeys(("query", "key", "value"), "qkv_proj"),
    **dict.fromkeys(("gate", "up"), "mlp_up"),
    "projection": "out_proj",
    "down": "mlp_down",
}


@lru_cache(maxsize=8192)
def _layer(model: Model, plan: Plan, kind: LayerKind) -> Held:
    return of_weights(model.layer_weights(kind), plan)


def _edges(model: Model, plan: Plan) -> tuple[Held, Held, Held]:
    """Embedding, head, and the copy of the word table that a head may need."""
    frozen = plan if plan.lora_rank == 0 else replace(plan, lora_rank=0)
    found = [
        of_weights(weights, frozen)
        for weights in (model.embedding_weights(), model.head_weights(), model.embedding_weights()[:1])
    ]
    if plan.lora_rank:
        found = [replace(held, trained=0, trained_experts=0, replicated=0) for held in found]
    return found[0], found[1], found[2]


@lru_cache(maxsize=1024)
def _shape(tp: int, ep: int, expert_tp: int, lora: tuple[int, tuple[str, ...]], pad_vocab_to: int) -> Plan:
    """What of a plan decides what is held."""
    rank, targets = lora
    return Plan(1, 1, tp, ep=ep, expert_tp=expert_tp, lora_rank=rank, lora_targets=targets, pad_vocab_to=pad_vocab_to)


def part_parameters(model: Model, plan: Plan, part: int) -> Held:
    """Parameters a rank holds of a part of the model, the vocabulary padded as the plan says.

    The first part has the embedding, the last the head, MTP modules and, unless its stage has one, a word table for
    those that need it.
    """
    lora = plan.lora_rank, plan.lora_targets
    shape = _shape(plan.tp, plan.ep, plan.expert_tp, lora, plan.pad_vocab_to)
    last = part == plan.outline.parts - 1
    copied = last and (model.tied or model.mtp_layers > 0) and (plan.copies > 1 or not plan.ends(0)[1])
    return _part(model, shape, kinds(model, plan.layers(model, part)), part == 0, last, copied)


@lru_cache(maxsize=8192)
def _part(
    model: Model, shape: Plan, layers: tuple[tuple[LayerKind, int], ...], first: bool, last: bool, copied: bool
) -> Held:
    """Some layers with the embedding, with the head, and with a copy of the word table."""
    padded = replace(model, vocab=shape.padded_vocab(model.vocab))
    before, behind, copy = _edges(padded, shape)
    held = before if first else NOTHING
    for kind, count in layers:
        held += _layer(padded, shape, kind) * count
    if not last:
        return held
    held += behind + copy if copied else behind
    for layer in range(model.depth, model.depth + model.mtp_layers):
        held = held + _layer(padded, shape, model.kind(layer)) + of_weights(model.mtp_weights(), shape)
    return held


def held_parameters(model: Model, plan: Plan, stage: int) -> Held:
    """Parameters a rank of a stage holds, of all its parts of the model."""
    held = NOTHING
    for part in plan.parts(stage):
        held += part_parameters(model, plan, part)
    return held


def tied_gradient_bytes(model: Model, plan: Plan) -> int:
    """Bytes that a rank of the first stage and one of the last all-reduce: both hold the word table."""
    tied = plan.pp > 1 and plan.ties_stages(model) and not plan.lora_rank
    return plan.gradient_bytes * plan.padded_vocab(model.vocab) * model.hidden // plan.tp if tied else 0
