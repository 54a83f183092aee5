"""How a training step is spread over ranks: degrees, batches, schedule, what is sharded, recomputed and kept narrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache, wraps
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

from simcore.compute.accelerators import ELEMENT_BYTES
from simcore.errors import InputError, Location, Problem, Problems
from simcore.hashed import Hashed
from simcore.library import table
from simcore.model.shape import LayerKind, Model, Weights, kinds
from simcore.workload.loops.schedules import Schedule, make, outline, splits_backward
from simcore.workload.model import Parallelism

Recompute = Literal["none", "selective", "full"]
Context = Literal["gather", "ring", "all_to_all"]
LINEAR = tuple(map(str, (Weights.QKV, Weights.PROJECTION, Weights.UP, Weights.DOWN)))  # what adapters stand beside
OFFLOADED = ("activations", "weights", "optimizer")
STORED_BYTES = 2  # of a parameter or activation where products are narrower
GRADIENT_BYTES, ZERO_LEVELS = (2, 4), range(4)
ENDS = 2  # parts of a model that may have no layers: the embedding alone, the head alone

MOST_ROWS, MOST_CAPACITY, MOST_LAYERS = 1 << 24, 1 << 20, 1 << 13
MOST = 1 << 32  # of anything: beyond, products of them are no numbers of bytes


@dataclass(frozen=True)
class Plan(Hashed):
    """Degrees and choices of a training step.

    `zero` is what data-parallel ranks share: 0 nothing, 1 optimizer states (Megatron's distributed optimizer), 2 also
    gradients, 3 also parameters (FSDP). `shard` ranks share the parameters of ZeRO-3, which the others replicate
    (FSDP's hybrid sharding); 0 = all do. `expert_tp` ranks split one expert. Gradients are reduced and accumulated in
    `gradient_bytes` an element; `gradients_apart`: products' own are kept beside such sums of more bits, not added in
    place. `overlap` reduces a layer's gradients as soon as its last micro-batch has made them. With ZeRO-3 weights come
    layer by layer, or `by_matrix`. The optimizer has `optimizer_bytes` an element: 12 = two moments and a wide weight.

    `recompute` "selective" drops the `recompute_modules` of every layer, by Megatron's names; "full" whole layers:
    the first `recompute_layers` of every part of the model (method "block"; 0 = all), or all of them in groups of as
    many, of which only the input is kept ("uniform"). `dtype` is that of products; what is stored has 16 bits or more.

    With a `capacity` every expert gets that many times its mean share of tokens, padded; `load` is that of the busiest
    expert rank, for which the others wait. `context`: how attention gets at the other ranks' tokens: keys and values
    gathered or passed around behind the attention itself, or heads exchanged for tokens. `overlap_pipeline` sends
    between stages beside kernels, `scatter_pipeline` a tensor rank's part only. `cuts`: layers of every part of the
    model where they are not as even as they go, 0 for ends that have none. `encoder_seq`: tokens of an encoder's input
    (0: as many).

    `frozen` weights have no gradients. With `lora_rank` > 0 all are frozen, and adapters of that rank beside those of
    `lora_modules` are trained. `offload`: what the host's memory keeps: "activations" and "weights" of the first
    `offload_layers` layers of every part of the model (0 = all), moved beside the kernels of their layer; "optimizer":
    its states, and the host's cores take the step. `attention_dtype`: of fused attention, "" = 16 bits.
    `parameter_dtype`: of weights as they are held and gathered ("fp8": no 16-bit copy of them), "" = as stored. The
    loss has `loss_bytes` a logit beside its 16 bits: 4 = a 32-bit copy (Megatron), 0 = fused passes, 10 = PyTorch's:
    three 32-bit ones, and those gone.
    """

    __hash__ = Hashed.__hash__

    world_size: int
    seq: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    expert_tp: int = 1
    virtual_stages: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    recompute: Recompute = "none"
    dtype: str = "bf16"
    gradient_bytes: int = 4
    gradients_apart: bool = False
    by_matrix: bool = False
    optimizer_bytes: int = 12
    overlap: bool = False
    pad_vocab_to: int = 128
    capacity: float = 0.0
    load: float = 1.0
    shard: int = 0
    schedule: str = ""
    overlap_pipeline: bool = False
    scatter_pipeline: bool = False
    context: Context = "gather"
    fused_attention: bool = True
    dropout: bool = False
    recompute_modules: tuple[str, ...] = ("core_attn",)
    recompute_layers: int = 0
    recompute_method: Literal["block", "uniform"] = "block"
    cuts: tuple[int, ...] = ()
    encoder_seq: int = 0
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = LINEAR
    frozen: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    offload_layers: int = 0
    attention_dtype: str = ""
    parameter_dtype: str = ""
    loss_bytes: int = 4

    @classmethod
    def of(cls, seq: int, global_batch: int, *, dp: int = 1, **choices: object) -> Plan:
        """A plan from all of its degrees."""
        plan = cls(1, seq, global_batch=global_batch, **choices)  # type: ignore[arg-type]
        return replace(plan, world_size=plan.tp * plan.cp * plan.pp * dp)

    @property
    def dp(self) -> int:
        """Ranks that see different sequences."""
        return self.world_size // (self.tp * self.cp * self.pp)

    @property
    def degrees(self) -> str:
        """Degrees above one, in words.

        >>> Plan(64, 2048, tp=8).degrees, Plan(1, 2048).degrees
        ('tp 8, dp 8', 'one replica')
        """
        named = [(name, getattr(self, name)) for name in ("tp", "cp", "ep", "pp", "dp")]
        return ", ".join(f"{name} {degree}" for name, degree in named if degree > 1) or "one replica"

    @property
    def replicas(self) -> int:
        """Ranks with the same dense parameters: data and context parallelism together."""
        return self.dp * self.cp

    @property
    def sharing(self) -> int:
        """Ranks that share states: replicas, or as many of them as hybrid sharding says."""
        return self.shard or self.replicas

    @property
    def expert_replicas(self) -> int:
        """Ranks with the same experts."""
        return max(1, self.replicas * self.tp // (self.ep * self.expert_tp))

    @property
    def expert_sharing(self) -> int:
        """As `sharing`, of experts: what is left of these ranks where expert ranks are among them."""
        return max(1, self.sharing * self.tp // (self.ep * self.expert_tp))

    def repeats(self, model: Model) -> bool:
        """Whether several ranks have the same parameters of a model, all of them or experts, which they could share."""
        return max(self.replicas, self.expert_replicas if model.experts else 1) > 1

    @property
    def micro_batches(self) -> int:
        """Micro-batches a replica runs in a step; InputError when the batch does not divide."""
        count, rest = divmod(self.global_batch, self.dp * self.micro_batch)
        if rest or count < 1:
            expected = f"a multiple of dp x micro-batch = {self.dp * self.micro_batch}"
            raise InputError.at("global batch", "does not divide", expected=expected, found=str(self.global_batch))
        return count

    @property
    def usual_batch(self) -> int:
        """Sequences of a step where none are stated: a micro-batch for every replica and stage."""
        return self.dp * self.micro_batch * self.pp

    @property
    def reduced_at_once(self) -> int:
        """Micro-batches whose gradients are shared as a sum: that pass a chunk in turn (arXiv 2407.21783, 3.3.2)."""
        return self.pp if self.zero == 2 and self.schedule_name == "interleaved" else 1

    @property
    def element_bytes(self) -> int:
        """Bytes of a parameter or activation as it is stored and sent."""
        return max(STORED_BYTES, int(ELEMENT_BYTES[self.dtype]))

    @property
    def narrow(self) -> bool:
        """Whether products run in fewer bits than what is stored."""
        return ELEMENT_BYTES[self.dtype] < STORED_BYTES

    @property
    def parameter_bytes(self) -> int:
        """Bytes of a parameter as it is held and gathered."""
        return int(ELEMENT_BYTES[self.parameter_dtype]) if self.parameter_dtype else self.element_bytes

    @property
    def input_bytes(self) -> float:
        """Bytes of what a product reads as it is kept for the weight's gradient: quantised, where products are narrow.

        Transformer Engine keeps the copy that the product reads, a byte an element (4 bits: one for either side).
        """
        return min(float(self.element_bytes), max(1.0, ELEMENT_BYTES[self.dtype]))

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank, before sequence parallelism."""
        return self.micro_batch * self.seq // self.cp

    @property
    def encoder_tokens(self) -> int:
        """As `tokens`, of an encoder's input."""
        return self.micro_batch * (self.encoder_seq or self.seq) // self.cp

    @property
    def shards_sequence(self) -> bool:
        """Whether tensor ranks share the tokens outside of their products."""
        return self.sequence_parallel and self.tp > 1

    @property
    def apart(self) -> int:
        """Ranks that share the tokens outside of split products."""
        return self.tp if self.sequence_parallel else 1

    @property
    def group(self) -> int:
        """Layers of a part of the model that are computed again as one, of which only the first one's input is kept."""
        grouped = self.recompute == "full" and self.recompute_method == "uniform"
        return (self.recompute_layers if grouped else 0) or 1

    def again(self, position: int) -> bool:
        """Whether the layer at a position of a part of the model is computed again as a whole."""
        some = self.recompute_method == "block" and self.recompute_layers
        return self.recompute == "full" and (not some or position < self.recompute_layers)

    def away(self, what: str, position: int = 0) -> bool:
        """Whether the host keeps the activations or weights of the layer at a position of a part of the model."""
        return what in self.offload and (not self.offload_layers or position < self.offload_layers)

    def layer_states(self, layers: range) -> Iterator[tuple[range, bool, bool]]:
        """Some layers of a part of the model by what is done to them: computed again, kept by the host."""
        if not self.offload and not (self.recompute == "full" and self.recompute_layers):
            yield layers, self.recompute == "full", False
            return
        how = groupby(range(len(layers)), lambda at: (self.again(at), any(self.away(what, at) for what in _PER_LAYER)))
        for (again, away), positions in how:
            first, *others = positions
            yield layers[first : first + 1 + len(others)], again, away

    def trains(self, weights: Weights) -> bool:
        """Whether weights of a kind have gradients."""
        return not self.lora_rank and weights not in self.frozen

    def adapts(self, weights: Weights) -> bool:
        """Whether adapters stand beside weights of a kind."""
        return self.lora_rank > 0 and weights in self.lora_modules

    def keeps_input(self, weights: Weights) -> bool:
        """Whether some gradient needs what weights of a kind read."""
        return self.trains(weights) or self.adapts(weights)

    @property
    def crowded(self) -> float:
        """Tokens of the busiest expert rank over the mean, of which one rank alone has all."""
        return self.capacity or (self.load if self.ep > 1 else 1.0)

    def padded_vocab(self, vocab: int) -> int:
        """The vocabulary padded so that every rank holds a whole multiple."""
        multiple = self.pad_vocab_to * self.tp
        return -(-vocab // multiple) * multiple

    def sizes(self, model: Model) -> Parallelism:
        """Groups as the header of a text workload says them: ranks that share parameters stand in for expert ranks."""
        cp = self.cp if self.cp > 1 else 0
        split = self.expert_tp if model.experts and self.expert_tp != self.tp else 0
        ranks, batches, parts = self.shard or self.ep, self.micro_batches, self.outline.parts // self.pp
        return Parallelism(self.tp, ranks, self.pp, parts, cp, batches, self.world_size, split)

    @property
    def of_layer(self) -> Plan:
        """The plan as a layer's kernels and activations see it: what does not matter there is left at its default."""
        return _of_layer(self)

    # --- the pipeline

    @property
    def schedule_name(self) -> str:
        """The schedule; interleaved where a stage holds several parts and none is named."""
        return self.schedule or ("interleaved" if self.virtual_stages > 1 else "1f1b")

    @property
    def order(self) -> Schedule:
        """The pipeline schedule."""
        return make(self.schedule_name, self.pp, self.micro_batches, self._chunks)

    @property
    def outline(self) -> Schedule:
        """The schedule's shape without the order of its cells, which the number of micro-batches does not change."""
        return _outline(self.schedule_name, self.pp, 1, self._chunks)

    @property
    def _chunks(self) -> int | None:
        return self.virtual_stages if self.virtual_stages > 1 else None

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients are cells of their own."""
        return splits_backward(self.schedule_name)

    @property
    def copies(self) -> int:
        """Pipelines that run against each other on the same stages, each with weights of its own."""
        return 2 if self.outline.placement == "twoway" else 1

    def parts(self, stage: int) -> tuple[int, ...]:
        """Which parts of the model a stage holds."""
        return stage_parts(self.outline)[stage]

    def layers(self, model: Model, part: int) -> range:
        """Layers of a part of the model, MTP modules left out."""
        return split(model.depth, self.outline.parts, self.cuts)[part]

    def stage_layers(self, model: Model, stage: int) -> tuple[int, ...]:
        """Layers of all parts of a stage, and the MTP modules, which are with the head."""
        parts, last = self.parts(stage), self.outline.parts - 1
        held = tuple(layer for part in parts for layer in self.layers(model, part))
        further = range(model.depth, model.depth + model.mtp_layers)
        return (*held, *further) if last in parts else held

    def passed_tokens(self, model: Model) -> int:
        """Tokens that a rank hands to the next stage at most: decoders pass on what an encoder wrote beside their own.

        So do Megatron-LM's (`get_tensor_shapes` in its `schedules.py`).
        """
        if not model.encoder_layers:
            return self.tokens
        *_, last = (layers.start for layers in split(model.depth, self.outline.parts, self.cuts))
        return self.encoder_tokens + (self.tokens if last > model.encoder_layers else 0)

    def ends(self, stage: int) -> tuple[int, int]:
        """How many embeddings and how many heads a stage holds."""
        parts = self.parts(stage)
        return parts.count(0), parts.count(self.outline.parts - 1)

    def ties_stages(self, model: Model) -> bool:
        """Whether two stages hold the same word table and sum its gradients."""
        return (model.tied or model.mtp_layers > 0) and not self.ends(0)[1]


_PER_LAYER = ("activations", "weights")
P = ParamSpec("P")
T = TypeVar("T")
_Asked = Callable[Concatenate[Model, Plan, P], T]


def seen_by(*names: str) -> Callable[[Plan], Plan]:
    """Plans as something sees them that these choices decide: all else is left at its default, what is alike one."""
    choices = attrgetter(*names)

    @lru_cache(maxsize=8192)
    def made(chosen: tuple[Any, ...]) -> Plan:
        plan = Plan(**{"world_size": 1, "seq": 1, **dict(zip(names, chosen, strict=True))})
        return plan.but(world_size=plan.tp * plan.cp * plan.pp)

    return lambda plan: made(choices(plan))


def seen(by: Callable[[Plan], Plan]) -> Callable[[_Asked[P, T]], _Asked[P, T]]:
    """Remembers what a function says of a model under a plan, of all plans that `by` sees alike once."""

    def made(asked: _Asked[P, T]) -> Any:
        known: Any = lru_cache(maxsize=1 << 14)(asked)
        return wraps(asked)(lambda model, plan, *more: known(model, by(plan), *more))

    return made


# What layers do not see: how many ranks there are, how they share and pass on.
_ELSEWHERE = {
    *("world_size", "pp", "virtual_stages", "global_batch", "overlap", "cuts", "zero", "overlap_pipeline"),
    *("scatter_pipeline", "schedule", "gradient_bytes", "gradients_apart", "shard", "optimizer_bytes"),
}
_of_layer = seen_by(*(field.name for field in fields(Plan) if field.name not in _ELSEWHERE))


_outline = lru_cache(maxsize=4096)(outline)


@lru_cache(maxsize=4096)
def stage_parts(shape: Schedule) -> tuple[tuple[int, ...], ...]:
    """Which parts of the model every stage holds."""
    return tuple(tuple(shape.part(stage, chunk) for chunk in range(shape.chunks)) for stage in range(shape.stages))


@lru_cache(maxsize=4096)
def unlike(model: Model, shape: Schedule, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """The first stage of every kind: stages with the same layers and ends hold and do the same."""
    seen: dict[object, int] = {}
    same = alike(model, shape.parts, cuts)
    for stage, held in enumerate(stage_parts(shape)):
        seen.setdefault(tuple(same[part] for part in held), stage)
    return tuple(seen.values())


@lru_cache(maxsize=4096)
def alike(model: Model, parts: int, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """For every part of the model the first that does the same: with as many layers, of the same kinds, or an end."""
    seen: dict[object, int] = {}
    held = enumerate(split(model.depth, parts, cuts))
    shapes = ((part, (part == 0, part == parts - 1, kinds(model, layers))) for part, layers in held)
    return tuple(seen.setdefault(shape, part) for part, shape in shapes)


class Layers(NamedTuple):
    """Layers of parts of a model that are alike: their kind, whether they are computed `again` as a whole, whether the
    host keeps what is theirs, how many, how many of them leave something (of groups done again one), and how many are
    done again at once.
    """

    kind: LayerKind
    again: bool
    away: bool
    number: int
    leaving: int
    at_once: int


@seen(seen_by("recompute", "recompute_layers", "recompute_method", "offload", "offload_layers"))
def layers_of(model: Model, plan: Plan, many: int, cuts: tuple[int, ...], parts: tuple[int, ...]) -> tuple[Layers, ...]:
    """Layers of some of `many` parts of a model, MTP modules left out."""
    cut, made = split(model.depth, many, cuts), Counter[tuple[LayerKind, bool, bool]]()
    leaving, at_once = made.copy(), min(plan.group, max(len(cut[part]) for part in parts))
    for part in parts:
        for some, again, away in plan.layer_states(cut[part]):
            made.update({(kind, again, away): number for kind, number in kinds(model, some)})
            left = some[:: plan.group] if again else some
            leaving.update({(kind, again, away): number for kind, number in kinds(model, left)})
    return tuple(Layers(*how, number, leaving[how], at_once) for how, number in made.items())


@lru_cache(maxsize=4096)
def split(layers: int, parts: int, cuts: tuple[int, ...] = ()) -> tuple[range, ...]:
    """Layers of every part of a pipelined model, as `cuts` says or as even as they go.

    What does not divide goes to the parts behind the first, the last getting none where it can be: these two have the
    embedding and the head to do (Grattafiori et al. 2024, section 3.3.2).

    >>> [len(part) for part in split(126, 16)]
    [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]
    """
    if cuts and (len(cuts) != parts or sum(cuts) != layers or not all(cuts[1:-1])):
        message, expected = "the layers of the parts are not those of the model", f"{parts} numbers that add up to"
        raise InputError.at("--cuts", message, expected=f"{expected} {layers}, 0 only at the ends", found=str(cuts))
    base, extra = divmod(layers, parts)
    longer = sorted(range(parts), key=lambda part: (part in (0, parts - 1), part))[:extra]
    sizes = cuts or [base + (part in longer) for part in range(parts)]
    return tuple(range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def most_parts(model: Model, parts: int) -> int:
    """How many parts a model can be cut into that is cut into `parts`: of three and more the ends need no layer."""
    return model.depth + ENDS if parts > ENDS else model.depth


class Option(NamedTuple):
    """What others call a field of a model, of its experts, of latent attention or of a plan; its least value."""

    name: str
    owner: str
    field: str
    least: int | None


OPTIONS = [
    Option(name, owner, field, None if least == "-" else int(least))
    for name, owner, field, least in table(__file__, "options.txt")
]
SPLIT_BY = {
    "num_attention_heads": "tensor_model_parallel_size",
    "ffn_hidden_size": "tensor_model_parallel_size",
    "num_experts": "expert_model_parallel_size",
}
"""What of a model ranks share -> the option that is to blame where it cannot be shared and no option says it."""
_OWNERS = dict.fromkeys(option.owner for option in OPTIONS)
NAMES = {owner: {one.name: one.field for one in OPTIONS if one.owner == owner} for owner in _OWNERS}
"""Whose fields -> options that say them, and the fields."""


def check(model: Model, plan: Plan, words: Mapping[str, str] | None = None) -> None:
    """Raise InputError, all problems at once, for degrees that do not divide what they split.

    `words`: what a command calls the options of a plan, if not as the generators do.
    """
    check_sizes(model)
    _refuse(_plan_sizes(plan), words)
    divisions = (
        (divisor < 1 or value % divisor > 0, option, f"{value} is not divisible by {divisor}, {by}", value)
        for option, value, divisor, by in _divisions(model, plan)
    )
    _refuse((*divisions, *_refusals(model, plan)), words)


def divides(model: Model, plan: Plan) -> bool:
    """Whether degrees divide what they split."""
    return all(divisor > 0 and value % divisor == 0 for _, value, divisor, _ in _divisions(model, plan))


def _divisions(model: Model, plan: Plan) -> Iterator[tuple[str, int, int, str]]:
    """Option, its value, what must divide it, and what that is."""
    yield "world_size", plan.world_size, plan.tp * plan.cp * plan.pp, "the product of tp, cp and pp"
    yield "num_attention_heads", model.heads, plan.tp, "the tensor ranks that share the heads"
    if not model.latent:
        fewer, more = sorted((model.key_heads, plan.tp))
        yield "tensor_model_parallel_size", more, fewer, "heads of keys by tensor ranks, or ranks by heads"
    if plan.context == "all_to_all":
        yield (
            "context_parallel_size",
            model.heads,
            plan.tp * plan.cp,
            "the ranks that have whole sequences of some heads",
        )
        fewer, more = sorted((model.key_heads, plan.tp * plan.cp))
        if model.key_heads < model.heads:
            yield "context_parallel_size", more, fewer, "heads of keys by tensor and context ranks, or ranks by heads"
    yield "ffn_hidden_size", model.ffn, plan.tp, "the tensor ranks that share the feed-forward"
    yield "seq_length", plan.seq, plan.cp * (plan.tp if plan.sequence_parallel else 1), "the ranks that share it"
    yield "global_batch", plan.global_batch, plan.dp * plan.micro_batch, "data parallel ranks times micro-batch"
    if model.experts:
        yield "num_experts", model.experts.count, plan.ep, "the ranks that share the experts"
        yield "ffn_hidden_size", model.experts.ffn, plan.expert_tp, "the ranks that split an expert"
        yield "expert_model_parallel_size", plan.replicas * plan.tp, plan.ep * plan.expert_tp, "ep x its tp in a stage"
    if plan.shard:
        yield "shard_ranks", plan.replicas, plan.shard, "the ranks that share the parameters"


Rule = tuple[bool, str, str, object]
"""Whether it is broken, the option, what is wrong with it, and what was found."""


def _refusals(model: Model, plan: Plan) -> Iterator[Rule]:
    rows = model.depth * (plan.global_batch // (max(plan.dp, 1) * plan.micro_batch))
    yield rows > MOST_ROWS, "global_batch", f"{rows:,} layers of micro-batches are too many", plan.global_batch
    parts = plan.outline.parts
    most = most_parts(model, parts)
    yield plan.pp > most, "pipeline_model_parallel", "more stages than layers and ends", plan.pp
    chunks = f"{parts} chunks of {model.depth} layers: some between the ends would have none"
    yield plan.pp <= most < parts, "virtual_pipeline_model_parallel_size", chunks, plan.virtual_stages
    tp = "must be 1 or the tensor parallel size"
    yield plan.expert_tp not in (1, plan.tp), "expert_tensor_parallel_size", tp, plan.expert_tp
    if model.experts:
        all_tokens = f"all tokens are {plan.ep} times the mean of the expert ranks"
        yield 1 < plan.ep < plan.load, "load", all_tokens, plan.load
    else:
        yield plan.ep > 1, "expert_model_parallel_size", "this model has no experts", plan.ep
    yield plan.shard > 0 and not plan.zero, "shard_ranks", "nothing is shared without ZeRO, level 1 or more", plan.shard
    widths = "gradients have " + " or ".join(f"{width} bytes" for width in GRADIENT_BYTES)
    yield plan.gradient_bytes not in GRADIENT_BYTES, "gradient_bytes", widths, plan.gradient_bytes


def check_sizes(model: Model) -> None:
    """Raise InputError, all problems at once, for a model of which something has no size, too much, or does not fit."""
    sizes, experts = [*_within(model=model, experts=model.experts, latent=model.latent)], model.experts
    if experts:
        sizes += (*_between("ffn_hidden_size", experts.ffn, 1), *_between("n_shared_expert", experts.shared_ffn, 0))
    _refuse(sizes)
    option, message = "qk_nope_dim" if model.latent else "hidden_size", "attention heads get no channel each"
    _refuse(((model.head_dim < 1, option, f"{model.heads} {message}", model.hidden), *_unfit(model)))


def _unfit(model: Model) -> Iterator[Rule]:
    yield model.depth > MOST_LAYERS, "num_layers", f"at most {MOST_LAYERS:,} can be timed one by one", model.layers
    uneven = f"{model.heads} attention heads do not share them evenly"
    yield model.heads % model.key_heads > 0, "num_query_groups", uneven, model.key_heads
    if experts := model.experts:
        yield experts.top_k > experts.count, "moe_router_topk", f"there are {experts.count} experts", experts.top_k


def _plan_sizes(plan: Plan) -> Iterator[Rule]:
    yield from _within(plan=plan)
    least = plan.tp * plan.cp * plan.pp if min(plan.tp, plan.cp, plan.pp) > 0 else 0
    yield 0 < plan.world_size < least, "world_size", f"fewer GPUs than tp * cp * pp = {least}", plan.world_size
    outside = not 0 <= plan.capacity <= MOST_CAPACITY
    yield outside, "moe_expert_capacity_factor", f"at most {MOST_CAPACITY:,}", plan.capacity
    known = ", ".join(ELEMENT_BYTES)
    yield plan.dtype not in ELEMENT_BYTES, "dtype", f"unknown number format; known: {known}", plan.dtype


def _within(**owners: object) -> Iterator[Rule]:
    """Whether numbers of a model, its parts or a plan are as large as they must be."""
    for option in OPTIONS:
        if option.least is not None and (owner := owners.get(option.owner)) is not None:
            yield from _between(option.name, getattr(owner, option.field), option.least)


def _between(option: str, value: int, least: int) -> Iterator[Rule]:
    yield value < least, option, f"the value must be {least} or more", value
    yield value > MOST, option, f"the value must be {MOST:,} or less", value


def _refuse(rules: Iterable[Rule], words: Mapping[str, str] | None = None) -> None:
    """InputError with all rules that are broken."""
    with Problems() as problems:
        for broken, option, message, found in rules:
            if broken:
                name = (words or {}).get(option, option)
                problems.add(Problem(Location(f"--{name}"), message, found=str(found), field=name.replace("-", "_")))
