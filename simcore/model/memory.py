"""What one rank of a pipeline stage holds: weights, and at the peak gradients, states, activations; the KV cache.

Sources: activations per layer Korthikanti et al. 2022 (MLSys 2023), section 4 and table 2, kernel by kernel, so that
grouped queries, gated layers and fused attention follow; sharded states Rajbhandari et al. 2020 (ZeRO), figure 1;
micro-batches in flight Narayanan et al. 2021 (SC21), section 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from math import ceil, fsum
from operator import add, attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.model.layer import blocks, embedding, head, mtp_blocks
from simcore.model.plan import Layers, Plan, layers_of, seen, seen_by, unlike
from simcore.model.shape import LayerKind, Model, Weight, Weights, elements
from simcore.model.steps import Block, dropped
from simcore.workload.loops.schedules import make

PEAK_MARGIN = 0.1
"""Share of itself by which a peak may be missed: published ones all lie within it (docs/validation.md)."""


class Held(NamedTuple):
    """Parameters a rank holds: ordinary ones and those of its experts.

    `replicated` of the ordinary ones are whole on every tensor rank, which with sequence parallelism sees some of the
    tokens only: norms, routers, low-rank projections. `trained` ones and `trained_experts` have gradients.
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
    fused = groupby(weights, attrgetter("kind", "inputs", "split", "behind"))
    adapters = sum(_adapter([*some], plan) for (kind, *_), some in fused if plan.adapts(kind))
    dense, learnt = (elements(some, plan.tp, experts=False) + adapters for some in (weights, trained))
    routed = [
        (one, one.copies // plan.ep * one.elements() // plan.expert_tp) for one in weights if one.split == "expert"
    ]
    experts, learning = sum(size for _, size in routed), sum(size for one, size in routed if plan.trains(one.kind))
    return Held(dense, experts, elements(tuple(whole)), learnt, learning)


def _adapter(fused: Sequence[Weight], plan: Plan) -> int:
    """Elements on a rank of the adapter of matrices that one product reads: its side that is split, divided."""
    inputs, split = fused[0].inputs, fused[0].split
    if inputs == 1 or split == "expert":
        return 0
    rows = inputs * (fused[0].share(plan.tp) if split == "row" else 1.0)
    columns = sum(one.outputs * (one.share(plan.tp) if split == "column" else 1.0) for one in fused)
    return round(plan.lora_rank * (rows + columns))


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

    The first part has the embedding, the last the head, MTP modules and, where its stage lacks it, a word table.
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
    found = set[tuple[object, int]]()
    for weight, number in Counter(model.layer_weights(kind)).items():
        if weight.inputs > 1 and plan.trains(weight.kind):
            size = weight.elements() // plan.expert_tp if weight.split == "expert" else weight.elements(plan.tp)
            found.add(((weight, number), number * size))
    return frozenset(found)


def tied_gradient_bytes(model: Model, plan: Plan) -> int:
    """Bytes that a rank of the first stage and one of the last all-reduce: both hold the word table."""
    tied = plan.pp > 1 and plan.ties_stages(model) and plan.trains(Weights.EMBEDDING)
    return plan.gradient_bytes * plan.padded_vocab(model.vocab) * model.hidden // plan.tp if tied else 0


class Memory(NamedTuple):
    """Bytes of one rank at the peak of a step.

    `workspace` is what lives for a layer or two only, `library` what libraries keep (`Needs.beside_bytes`).
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int = 0
    library: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def peak(model: Model, plan: Plan) -> Memory:
    """The fullest stage's."""
    return fullest(needs(model, plan), plan)


class Needs(NamedTuple):
    """What a stage needs whatever its replicas share: plans that differ in ZeRO have the same.

    `held` and `hosted`, which the host keeps, are parameters, `pieces` those of layers or matrices that are gathered
    one at a time, `last` those of the head, `shaped` those of one matrix of every shape; `lasting` bytes stay from all
    micro-batches in flight, `working` bytes are for a layer or the loss at a time, `turning` for a layer or the
    gradients of the head.
    """

    held: Held
    hosted: Held
    pieces: frozenset[Held]
    last: Held
    shaped: int
    lasting: float
    working: float
    turning: float

    def covers(self, other: Needs) -> bool:
        """Whether another stage can need no more, whatever is shared."""
        mine, theirs = ((*one.held, *one.last, *one[4:]) for one in (self, other))
        same = self.hosted is other.hosted and self.pieces >= other.pieces
        return same and all(has >= needs for has, needs in zip(mine, theirs, strict=True))

    def memory(self, plan: Plan) -> Memory:
        """The peak."""
        parameters, gradients, optimizer = states(self.held, plan)
        if self.hosted is not NOTHING:
            parameters -= states(self.hosted, plan)[0]
        library, passing = self.beside_bytes(plan)
        working = ceil(max(self.working, self.turning + passing) + self.gathered_bytes(plan))
        return Memory(parameters, gradients, optimizer, ceil(self.lasting), working, library)

    def beside_bytes(self, plan: Plan) -> tuple[int, int]:
        """Gradients beside their sums: those that stay, and those that live for the time of a layer.

        Products add to sums of more bits in place, but Transformer Engine hands autograd a tensor of the weight's shape
        and type all the same: one for all weights of a shape, which stays (`get_dummy_wgrad` in its `module/base.py`).
        So does Megatron-LM for the head, and gives it back (`tensor_parallel/layers.py`). DeepSpeed keeps those of all
        weights until the step (`update_hp_grads` in its `bf16_optimizer.py`).
        """
        size = plan.element_bytes
        if plan.zero == 3 or plan.gradient_bytes <= size:
            return 0, 0
        if plan.gradients_apart:
            return size * (self.held.trained + self.held.trained_experts), 0
        return size * self.shaped, size * self.last.trained

    def gathered_bytes(self, plan: Plan) -> int:
        """Parameters, where they come for the time of a layer or matrix: its own and the next one's.

        With ZeRO-3 also the gradients of trained ones until they are sent; of experts where their ranks share them.
        """
        shared = plan.zero == 3 and plan.sharing > 1
        if not shared and self.hosted is NOTHING:
            return 0
        alone = self.hosted is NOTHING and plan.expert_sharing == 1

        def coming(some: Held) -> int:
            whole, trained = some.dense, some.trained
            if not alone:
                whole, trained = whole + some.experts, trained + some.trained_experts
            return 2 * plan.parameter_bytes * whole + shared * plan.gradient_bytes * trained

        ends = self.last if shared and not plan.by_matrix else NOTHING  # and the embedding, which belong to no layer
        return max(map(coming, self.pieces), default=0) + coming(ends)


def needs(model: Model, plan: Plan) -> tuple[Needs, ...]:
    """What the stages need that differ.

    Earlier stages keep no fewer micro-batches than later ones, so of those that hold as much the first is fullest; but
    of a V's chunk that runs back up later ones keep more. Those that need no more than one before are left out.
    """
    stages = range(plan.pp) if plan.outline.placement == "v" else unlike(model, plan.outline, plan.cuts)
    some = [stage_needs(model, plan, stage) for stage in stages]
    return tuple(one for at, one in enumerate(some) if not any(other.covers(one) for other in some[:at]))


def stage_needs(model: Model, plan: Plan, stage: int) -> Needs:
    """What one stage needs."""
    outline, parts = plan.outline, plan.parts(stage)

    def of(some: tuple[int, ...]) -> Needs:
        layers = layers_of(model, plan, outline.parts, plan.cuts, some)
        return _of_stage(model, plan.of_layer, layers, 0 in some, outline.parts - 1 in some)

    each, apart = of(parts), [of((part,)).lasting for part in parts]
    if len({*apart}) == 1:
        lasting = each.lasting * (in_flight(plan, stage) / plan.copies)
    else:
        lasting = float((_flying(plan)[stage] @ np.array(apart)).max())
    layers, hosted = layers_of(model, plan, outline.parts, plan.cuts, parts), NOTHING
    for some in layers if "weights" in plan.offload else ():
        hosted += layer_parameters(model, plan, some.kind) * (some.number * some.away)
    return each._replace(held=held_parameters(model, plan, stage), hosted=hosted, lasting=lasting)


def fullest(some: Iterable[Needs], plan: Plan) -> Memory:
    """The peak of the stage that needs most."""
    return max((each.memory(plan) for each in some), key=lambda memory: memory.total)


def stage_memory(model: Model, plan: Plan, stage: int = 0) -> Memory:
    """Peak memory of a rank of a stage."""
    return stage_needs(model, plan, stage).memory(plan)


def states(held: Held, plan: Plan) -> tuple[int, int, int]:
    """Bytes of parameters, gradients and optimizer states; ZeRO 1, 2, 3 shares states, gradients, parameters.

    Optimizer states may be the host's; of its weights it keeps those of some layers, which are counted here.
    """
    trained = held.trained + held.trained_experts
    owned = held.owned(plan)
    shared = held.trained * (plan.sharing > 1) + held.trained_experts * (plan.expert_sharing > 1)
    summed = shared // plan.outline.chunks if plan.reduced_at_once > 1 else 0  # of the chunk at work
    whole = held.dense // plan.sharing + held.experts // plan.expert_sharing if plan.zero >= 3 else held.whole
    return (
        plan.parameter_bytes * whole,
        plan.gradient_bytes * (owned + summed if plan.zero >= 2 else trained),
        0 if "optimizer" in plan.offload else plan.optimizer_bytes * owned,
    )


def in_flight(plan: Plan, stage: int = 0) -> float:
    """Micro-batches whose activations a stage holds at once, in whole passes through its layers.

    >>> plan = Plan(4, 128, pp=4, global_batch=8)
    >>> in_flight(plan, 0), in_flight(plan, 3)
    (4.0, 1.0)
    """
    stages, chunks = plan.pp, plan.outline.chunks
    most = {
        "gpipe": float(plan.micro_batches),
        "interleaved": (2 * (stages - stage - 1) + (chunks - 1) * stages + 1) / chunks,
        "zb-h1": float(stages),  # until their weight gradients, which a later stage puts off longer
        "zb-v": float(stages),
        "dualpipe": stages + 1.0,
    }
    return min(float(plan.micro_batches), most.get(plan.schedule_name, float(stages - stage)))


def _flying(plan: Plan) -> tuple[NDArray[np.int64], ...]:
    """How many micro-batches each stage holds of each of its chunks: every mix that its cells make of them."""
    enough = min(plan.micro_batches, _SETTLED * plan.pp)
    return _mixes(plan.schedule_name, plan.pp, enough, plan.outline.chunks)


_SETTLED = 4  # times the stages: micro-batches after which a schedule holds no more


@lru_cache(maxsize=1024)
def _mixes(name: str, stages: int, micro_batches: int, chunks: int) -> tuple[NDArray[np.int64], ...]:
    made, known = make(name, stages, micro_batches, chunks), list[NDArray[np.int64]]()
    frees = "W" if made.splits_backward else "B"
    for line in made.order:
        steps = np.zeros((len(line), chunks), np.int64)
        for at, cell in enumerate(line):
            steps[at, cell.chunk] = (cell.kind == "F") - (cell.kind == frees)
        known.append(np.unique(steps.cumsum(axis=0), axis=0))
    return tuple(known)


@lru_cache(maxsize=8192)
def activation_bytes(model: Model, plan: Plan, kind: LayerKind, *, again: bool | None = None) -> float:
    """Bytes that one micro-batch leaves in a layer for its gradients; done `again` as a whole, its input only.

    Plain layers with 4h and no fused attention give the paper's sbh(10 + 24/t + 5as/(ht)), with sequence parallelism
    sbh/t (34 + 5as/h); selective recompute drops the last term, full recompute leaves the layer's input.
    """
    return sum(layer_bytes(model, plan, kind, again=plan.again(0) if again is None else again))


def layer_bytes(model: Model, plan: Plan, kind: LayerKind, *, again: bool) -> tuple[float, ...]:
    """As `activation_bytes`, tensor by tensor."""
    if again:
        tokens = plan.encoder_tokens if kind.encoder else plan.tokens
        return (tokens * model.hidden * plan.element_bytes / plan.apart,)
    return kept_bytes(blocks(model, plan, kind), plan)


def kept_bytes(some: Iterable[Block], plan: Plan) -> tuple[float, ...]:
    """What kernels of blocks leave for their gradients, and what is not computed again."""
    made = list[float]()
    for block in some:
        repeated = {id(kernel) for kernel in dropped(block.kernels, plan)}
        made += (kernel.keeps_bytes for kernel in block.kernels if id(kernel) not in repeated)
    return tuple(made)


def again_bytes(model: Model, plan: Plan, kind: LayerKind) -> tuple[float, ...]:
    """What selective recomputation brings back at a time: of the block of a layer that drops most, tensor by tensor."""
    each = (tuple(one.keeps_bytes for one in dropped(block.kernels, plan)) for block in blocks(model, plan, kind))
    return max(each, key=sum)


@lru_cache(maxsize=1024)
def head_bytes(model: Model, plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What the head needs for the loss, and for its gradients but for `Needs.beside_bytes`, tensor by tensor.

    Those of the logits, and of all hidden states before tensor ranks share them. Where they do, a buffer that stays has
    the gathered ones (Megatron-LM's `GlobalMemoryBuffer`).
    """
    block = head(model, plan)
    kept, (_, product, _) = kept_bytes([block], plan), block.kernels
    hidden = float(plan.tokens * model.hidden * plan.element_bytes)
    gathered = (hidden,) * plan.shards_sequence
    gradient = float(plan.tokens * plan.element_bytes * (plan.padded_vocab(model.vocab) // plan.tp))
    others = (size for size in kept if size != product.keeps_bytes)
    return (*kept, *gathered), (*others, gradient, hidden, *gathered)


@lru_cache(maxsize=8192)
def _of_stage(model: Model, plan: Plan, layers: tuple[Layers, ...], embeds: bool, ends: bool) -> Needs:
    """What some layers need of a micro-batch, with the embedding, the head; what they hold is left out."""
    working, last, turns = 0.0, NOTHING, (0.0, 0.0)
    lasting = fsum(
        some.leaving * activation_bytes(model, plan, some.kind, again=some.again)
        for some in layers
        if not (some.away and "activations" in plan.offload)
    )
    if embeds:
        lasting += sum(kept_bytes([embedding(model, plan)], plan))
    held = {some.kind for some in layers}
    if plan.recompute == "full" or plan.away("activations"):
        each_bytes = (some.at_once * activation_bytes(model, plan, some.kind, again=False) for some in layers)
        working = max(each_bytes, default=0.0)
    if plan.away("activations"):  # another layer's are on their way
        working += max((activation_bytes(model, plan, kind) for kind in held), default=0.0)
    if ends:
        loss, turned = head_bytes(model, plan)
        trained = plan.trains(Weights.EMBEDDING if model.tied else Weights.HEAD)
        size = plan.padded_vocab(model.vocab) * model.hidden // plan.tp
        turns, last = (sum(loss), sum(turned)), Held(size, trained=trained * size)
        for layer in range(model.depth, model.depth + model.mtp_layers):
            lasting += sum(kept_bytes(mtp_blocks(model, plan), plan))
            lasting += activation_bytes(model, plan, model.kind(layer))
    each = [layer_parameters(model, plan, kind) for kind in held]
    if plan.by_matrix:
        each = [of_weights((weight,), plan) for kind in held for weight in model.layer_weights(kind)]
    shaped = sum(size for _, size in {one for kind in held for one in matrices(model, plan, kind)})
    again = max((sum(again_bytes(model, plan, kind)) for kind in held), default=0.0)
    at_once, turning = working + max(turns[0], again), working + turns[1]
    return Needs(NOTHING, NOTHING, frozenset(each), last, shaped, lasting, at_once, turning)


def kv_cache_bytes(
    model: Model, context: int, layers: Iterable[int] | None = None, *, tp: int = 1, element_bytes: int = 2
) -> int:
    """Bytes of keys and values that some layers (all) keep of a context on a tensor rank: what decoding reads.

    Latent attention keeps one for all heads, a layer with a window that many tokens; an encoder keeps none, its decoder
    as many again for cross-attention.

    >>> from simcore.model.presets import model
    >>> kv_cache_bytes(model("llama-3-8b"), 8192) / 2**30
    1.0
    """
    if model.latent:
        width = model.latent.key_value_rank + model.latent.rope_size
    else:
        width = 2 * max(1, model.key_heads // tp) * model.head_dim
    kept = [model.kind(layer) for layer in (range(model.depth) if layers is None else layers)]
    tokens = sum(min(context, kind.window or context) + kind.cross * context for kind in kept if not kind.encoder)
    return tokens * width * element_bytes


def room(peak_bytes: int, capacity_bytes: int) -> str:
    """What is missing; nothing is said to fit, or not to, by less than peaks are missed by.

    >>> room(80, 100), room(95 * 10**9, 100 * 10**9)
    ('', 'may not fit: 5.0 GB left, and peaks are missed by up to 10%')
    """
    missing, margin = peak_bytes - capacity_bytes, PEAK_MARGIN * peak_bytes
    if missing <= -margin:
        return ""
    much = f"{abs(missing) / 1e9:.1f} GB {'too much' if missing > 0 else 'left'}"
    sure = "does not fit" if missing > margin else "may not fit"
    return f"{sure}: {much}, and peaks are missed by up to {PEAK_MARGIN:.0%}"
