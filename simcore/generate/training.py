"""A training step of a transformer as rows: what one rank of a pipeline stage computes, which collectives it joins.

Rows stand in forward order, once per micro-batch; the loop runs them downwards, then upwards for the gradients. Before
them stand the rows of the end of the step (`end`), which the upward pass reaches last. Sizes are those of whole
buffers: the gathered result, the unreduced input. Sources: Shoeybi et al. 2019 (tensor parallelism), Korthikanti et al.
2022 (sequence parallelism, recompute), Rajbhandari et al. 2020 (ZeRO), Lepikhin et al. 2020 (experts), DeepSeek-V3,
section 2.2, and Megatron-LM's `multi_token_prediction.py` (MTP modules).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from simcore.generate.durations import Durations, Part
from simcore.generate.models import Experts, Transformer, Weight, elements
from simcore.generate.plan import Plan, check
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, PhaseName, Workload

__all__ = [
    "END_ROWS",
    "Held",
    "held_parameters",
    "pipeline_workload",
    "stage_workload",
    "tied_gradient_bytes",
    "unsaid",
]

LOOP = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
LOSS_BYTES = 4
COUNT_BYTES = 8
FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD
ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
REDUCE_SCATTER, ALL_TO_ALL = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
IDLE = Phase()

END_ROWS = (
    *("gradient_reduce", "gradient_reduce_experts", "replicated_gradients", "gradient_norm"),
    *("optimizer", "parameter_gather", "parameter_gather_experts"),
)
"""Names of the rows of the end of a step, in the order in which a framework gets to them."""


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters a rank of a stage holds: ordinary ones and those of its experts.

    `replicated` of the ordinary ones are whole on every tensor rank, which with sequence parallelism sees some of the
    tokens only: norms, routers, low-rank projections.
    """

    dense: int
    experts: int
    replicated: int


def held_parameters(model: Transformer, plan: Plan, stage: int) -> Held:
    """Parameters of a rank of a stage, the vocabulary padded as the plan says."""
    weights = _stage_weights(_padded(model, plan), plan, stage)
    whole = tuple(weight for weight in weights if weight.split == "none" and weight.name != "positions")
    return Held(elements(weights, plan.tp, experts=False), _expert_elements(weights, plan), elements(whole))


def _padded(model: Transformer, plan: Plan) -> Transformer:
    return replace(model, vocab=plan.padded_vocab(model.vocab))


def _stage_weights(model: Transformer, plan: Plan, stage: int) -> tuple[Weight, ...]:
    """Embedding on the first stage, head and MTP modules on the last, which may need a copy of the word table."""
    further = plan.mtp_layers(model, stage)
    numbers = (*plan.stage_layers(model.layers, stage), *further)
    layers = chain.from_iterable(model.layer_weights(layer) for layer in numbers)
    before = model.embedding_weights() if stage == 0 else ()
    last = (*model.head_weights(), *_copied(model, plan)) if stage == plan.pp - 1 else ()
    return (*before, *layers, *last, *(model.mtp_weights() * len(further)))


def _copied(model: Transformer, plan: Plan) -> tuple[Weight, ...]:
    """The word table where the last stage is not the first and has a tied head, or embeds what MTP modules read."""
    return model.embedding_weights()[:1] if plan.pp > 1 and (model.tied or model.mtp_layers) else ()


def _expert_elements(weights: Sequence[Weight], plan: Plan) -> int:
    """Elements of a rank's experts."""
    routed = (weight for weight in weights if weight.split == "expert")
    return sum(weight.copies // plan.ep * weight.elements() // plan.expert_tp for weight in routed)


def stage_workload(model: Transformer, plan: Plan, durations: Durations, stage: int = 0) -> Workload:
    """Rows of one rank of a pipeline stage for one step; InputError names the options that do not fit each other."""
    check(model, plan)
    rows = _Rows(model, plan, durations, stage)
    first, later = rows.micro_batch(last=True), rows.micro_batch(last=False)
    batches = chain(first, *([later] * (plan.micro_batches - 1)))
    handed = plan.tokens * model.hidden * plan.element_bytes
    return Workload(
        LOOP,
        (*rows.end(), *batches),
        Parallelism(
            plan.tp,
            plan.shard or plan.ep,
            plan.pp,
            plan.virtual_stages,
            plan.cp if plan.cp > 1 else 0,
            plan.micro_batches,
            plan.world_size,
        ),
        "simai",
        pipeline_bytes=0 if plan.pp == 1 else handed // (plan.tp if plan.sequence_parallel else 1),
        name=model.name,
        warnings=tuple(_warnings(model, plan)),
    )


def pipeline_workload(model: Transformer, plan: Plan, durations: Durations) -> Workload:
    """Rows of one rank of every stage, virtual ones in the order of the model; InputError as `stage_workload`."""
    if plan.pp == 1:
        return stage_workload(model, plan, durations)
    check(model, plan)
    count = plan.virtual_stages
    # The stages of a pipeline that is as many times as long; what a rank shares with its replicas stays the same.
    parts = replace(plan, pp=plan.pp * count, world_size=plan.world_size * count, virtual_stages=1)
    made = [stage_workload(model, parts, durations, part) for part in range(parts.pp)]
    sizes = replace(made[0].parallelism, pp=plan.pp, vpp=count, all_gpus=plan.world_size)
    layers = tuple(chain.from_iterable(part.layers for part in made))
    return replace(made[0], layers=layers, parallelism=sizes, stage_rows=tuple(len(part.layers) for part in made))


def tied_gradient_bytes(model: Transformer, plan: Plan) -> int:
    """Bytes that a rank of the first stage and one of the last all-reduce: both hold the word table."""
    copied = bool(_copied(model, plan))
    return plan.gradient_bytes * plan.padded_vocab(model.vocab) * model.hidden // plan.tp if copied else 0


def unsaid(model: Transformer, plan: Plan) -> list[str]:
    """What rows cannot say, and operation lists can."""
    found = []
    if size := tied_gradient_bytes(model, plan):
        shared = "tied" if model.tied else "shared"
        found.append(f"the first and the last stage also all-reduce {size} bytes of the {shared} word table's gradient")
    if 1 < plan.shard < plan.replicas:
        found.append("the sum of gradients over replicas does not wait for their reduce-scatter; in traces it does")
    return found


def _warnings(model: Transformer, plan: Plan) -> list[str]:
    found = unsaid(model, plan)
    if model.experts and plan.expert_tp != plan.tp:
        found.append("expert_tp differs from tp: expert products are timed with as many tokens as with tp of them")
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Builds the rows of a stage."""

    model: Transformer
    plan: Plan
    durations: Durations
    stage: int

    # --- pieces

    @property
    def _activations(self) -> int:
        """Bytes of a micro-batch's hidden states, whole."""
        return self.plan.tokens * self.model.hidden * self.plan.element_bytes

    def _time(self, phase: PhaseName, *parts: Part) -> int:
        return sum(self.durations.part(part, phase) for part in parts)

    def _phases(self, name: str, *parts: Part) -> Layer:
        """A row that computes parts of the model and communicates nothing."""
        forward, input_grad, weight_grad = (Phase(self._time(phase, *parts)) for phase in PhaseName)
        return Layer(name, forward, input_grad, weight_grad)

    def _split(self, kind: CollectiveKind, size_bytes: int | None = None) -> Phase:
        """A collective of the tensor group over activations, nothing when a rank is alone."""
        return Phase(0, kind, self._activations if size_bytes is None else size_bytes) if self.plan.tp > 1 else IDLE

    @property
    def _shards_sequence(self) -> bool:
        return self.plan.sequence_parallel and self.plan.tp > 1

    # --- blocks of a layer

    def attention(self) -> list[Layer]:
        """Column-parallel projections, attention, row-parallel projection."""
        if not self._shards_sequence:
            whole = self._phases("attention_layer", "attention_down", "attention_in", "attention_core", "attention_out")
            input_grad = self._split(ALL_REDUCE, self._attention_input)
            return self._recomputed([*self._context(), _with(whole, self._split(ALL_REDUCE), input_grad)])
        down = [self._phases("attention_down", "attention_down")] if self.model.latent else []
        column = self._column("attention", self._phases("attention_column", "attention_in"), self._attention_input)
        out = self._phases("attention_row", "attention_core", "attention_out")
        return [*down, *column, *self._context(), *self._recomputed([out]), self._output("attention")]

    @property
    def _attention_input(self) -> int:
        """Bytes of what the split projections read: hidden states, under latent attention the low-rank vectors."""
        latent = self.model.latent
        if latent is None:
            return self._activations
        width = (latent.query_rank or self.model.hidden) + latent.key_value_rank + latent.rope_size
        return self.plan.tokens * width * self.plan.element_bytes

    def mlp(self, shared: bool = False) -> list[Layer]:
        """The feed-forward block, or the shared expert, which is split the same way."""
        name = "shared_expert" if shared else "mlp"
        parts: tuple[Part, ...] = ("shared",) if shared else ("mlp_in", "mlp_out")
        if not self._shards_sequence:
            whole = self._phases(f"{name}_layer", *parts)
            return [_with(whole, self._split(ALL_REDUCE), self._split(ALL_REDUCE))]
        into, out = self._phases(f"{name}_column", parts[0]), self._phases(f"{name}_row", *parts[1:])
        return [*self._column(name, into), out, self._output(name)]

    def _column(self, name: str, row: Layer, size_bytes: int | None = None) -> list[Layer]:
        """Column-split weights under sequence parallelism: their input is gathered, again for the weight gradient."""
        gather, scatter = (self._split(kind, size_bytes) for kind in (ALL_GATHER, REDUCE_SCATTER))
        return [Layer(f"{name}_input", gather, scatter), row, Layer(f"{name}_input_again", input_grad=gather)]

    def _output(self, name: str) -> Layer:
        """The output of row-split weights is summed and split along the sequence, its gradient gathered."""
        return Layer(f"{name}_output", self._split(REDUCE_SCATTER), self._split(ALL_GATHER))

    def _context(self) -> list[Layer]:
        """Keys and values of the other context-parallel ranks, their gradients back."""
        if self.plan.cp == 1:
            return []
        latent = self.model.latent
        widths = (latent.nope_size + latent.rope_size + latent.value_size) * self.model.heads if latent else 0
        widths = widths or 2 * max(self.model.key_heads, self.plan.tp) * self.model.head_dim
        size = self.plan.micro_batch * self.plan.seq * widths // self.plan.tp * self.plan.element_bytes
        forward, backward = (Phase(0, kind, size, Group.CP) for kind in (ALL_GATHER, REDUCE_SCATTER))
        return [Layer("attention_context", forward, backward)]

    def _recomputed(self, rows: list[Layer]) -> list[Layer]:
        """With selective recompute the core of attention is done again just before its gradient."""
        if self.plan.recompute != "selective":
            return rows
        again = Phase(self._time(FORWARD, "attention_core"))
        return [*rows, Layer("attention_recompute", input_grad=again)]

    def experts(self, experts: Experts) -> list[Layer]:
        """Router, dispatch, this rank's experts, combine; the shared expert beside them."""
        plan = self.plan
        share = plan.tp // plan.expert_tp if self._shards_sequence else 1
        routed = self._routed(experts)
        counts = COUNT_BYTES * plan.ep * plan.expert_tp * experts.count
        gather, scatter = (self._expert_split(kind, routed // share) for kind in (ALL_GATHER, REDUCE_SCATTER))
        exchange = Phase(0, ALL_TO_ALL, routed // (plan.tp if self._shards_sequence else 1), Group.EP)
        exchange = exchange if plan.ep > 1 else IDLE
        told = Phase(0, ALL_GATHER, counts, Group.EP) if plan.ep > 1 else IDLE
        rows = [
            _with(self._phases("moe_router", "router"), forward=told),
            Layer("moe_dispatch", exchange, exchange),
            *([Layer("moe_gather", gather, scatter)] if plan.expert_tp > 1 else []),
            self._phases("moe_experts", "experts"),
            *([Layer("moe_scatter", scatter, gather)] if plan.expert_tp > 1 else []),
            Layer("moe_combine", exchange, exchange),
            self._phases("moe_output", "combine"),
        ]
        return rows + (self.mlp(shared=True) if experts.shared_ffn else [])

    def _routed(self, experts: Experts) -> int:
        """Bytes of the activations that go to the busiest experts; with a capacity every expert is filled up to it."""
        tokens = int(self.plan.tokens * experts.top_k * (self.plan.capacity or self.plan.load))
        return tokens * self.model.hidden * self.plan.element_bytes

    def _expert_split(self, kind: CollectiveKind, size_bytes: int) -> Phase:
        return Phase(0, kind, size_bytes) if self.plan.expert_tp > 1 else IDLE

    # --- micro-batch

    def micro_batch(self, *, last: bool) -> list[Layer]:
        """Rows of a micro-batch; `last` of the upward pass, the first in the file: its gradients are complete."""
        blocks = [self._embedding()] if self.stage == 0 else []
        for layer in self.plan.stage_layers(self.model.layers, self.stage):
            blocks += self._layer(layer)
        if self.stage == self.plan.pp - 1:
            blocks.append((self._head_rows(), (*self.model.head_weights(), *_copied(self.model, self.plan))))
        for layer in self.plan.mtp_layers(self.model, self.stage):
            blocks += self._mtp(layer)
        made: list[Layer] = []
        for rows, weights in blocks:
            made += self._sharded(rows, weights, reduced=last)
        return made

    def _layer(self, layer: int) -> list[tuple[list[Layer], tuple[Weight, ...]]]:
        experts = self.model.experts
        feed_forward = self.mlp() if experts is None or self.model.dense(layer) else self.experts(experts)
        attention = (self.attention(), self.model.attention_weights())
        block = (feed_forward, self.model.feed_forward_weights(layer))
        return [self._again(attention), self._again(block)]

    def _again(self, block: tuple[list[Layer], tuple[Weight, ...]]) -> tuple[list[Layer], tuple[Weight, ...]]:
        """With full recompute a block runs forward again before its gradients, collectives included."""
        rows, weights = block
        if self.plan.recompute != "full":
            return block
        # The upward pass reads these first, from the last to the first.
        again = [
            Layer(f"{row.name}_recompute", input_grad=row.forward) for row in reversed(rows) if row.forward != IDLE
        ]
        return [*rows, *again], weights

    def _mtp(self, layer: int) -> list[tuple[list[Layer], tuple[Weight, ...]]]:
        """An MTP module: the next tokens' embeddings and the hidden states, projected together; its layer, the head."""
        size, weights = 2 * self._activations, self.model.mtp_weights()
        combine = self._phases("mtp_combine", "mtp_combine")
        if self._shards_sequence:
            rows = self._column("mtp_combine", combine, size)
        else:
            rows = [_with(combine, input_grad=self._split(ALL_REDUCE, size))]
        # Columns are gathered. Of whole gradients each rank cuts its own; parts of the sequence are gathered for that.
        gradient = self._split(ALL_GATHER) if self._shards_sequence else IDLE
        gathered = Layer("mtp_combine_output", self._split(ALL_GATHER), gradient)
        joined = [*self._embedding()[0], *rows, *([gathered] if self.plan.tp > 1 else [])]
        return [(joined, weights[:3]), *self._layer(layer), (self._head_rows(), weights[3:])]

    def _embedding(self) -> tuple[list[Layer], tuple[Weight, ...]]:
        row = self._phases("embedding_layer", "embedding")
        forward = self._split(REDUCE_SCATTER if self._shards_sequence else ALL_REDUCE)
        backward = self._split(ALL_GATHER) if self._shards_sequence else IDLE
        return [_with(row, forward=forward, input_grad=backward)], self.model.embedding_weights()

    def _head_rows(self) -> list[Layer]:
        """Head with its norm, then maximum, target and sum of the vocabulary-parallel loss."""
        row = self._phases("head", "head")
        rows = self._column("head", row) if self._shards_sequence else [_with(row, input_grad=self._split(ALL_REDUCE))]
        loss = self._split(ALL_REDUCE, LOSS_BYTES * self.plan.tokens)
        return rows + [Layer(f"cross_entropy{i}", loss) for i in (1, 2, 3)] * (self.plan.tp > 1)

    # --- data parallelism

    def _sharded(self, rows: list[Layer], weights: tuple[Weight, ...], *, reduced: bool) -> list[Layer]:
        """Rows of a block with what data parallelism adds to it."""
        each_time = self.plan.zero >= 2
        if self.plan.replicas == 1 and self.plan.expert_replicas == 1:
            return rows
        if self.plan.zero == 3:
            rows = self._gathered(rows, weights)
        if not (each_time or (reduced and self.plan.overlap)):
            return rows
        return self._reduced(rows, weights)

    def _reduced(self, rows: list[Layer], weights: tuple[Weight, ...]) -> list[Layer]:
        """Gradients of a block go out with its topmost row, the upward pass's last; those of experts with theirs."""
        dense = elements(weights, self.plan.tp, experts=False)
        own = _expert_elements(weights, self.plan)
        target = next((index for index, row in enumerate(rows) if row.name == "moe_experts"), -1)
        top = next(index for index, row in enumerate(rows) if not row.name.startswith("gather_"))
        made = list(rows)
        if self.plan.shard:
            return self._hybrid(made, top, dense + own)
        if self.plan.replicas > 1:
            made[top] = _with(made[top], weight_grad=self._gradient_phase(dense, Group.LOOP))
        if target >= 0 and self.plan.expert_replicas > 1:
            made[target] = _with(made[target], weight_grad=self._gradient_phase(own, Group.DP_EP))
        return made

    def _hybrid(self, rows: list[Layer], top: int, count: int) -> list[Layer]:
        """Hybrid sharding: gradients are reduced to the ranks that share them, then summed over their replicas.

        The text calls the groups EP and DP_EP: ranks next to each other, and those that stand in their place elsewhere.
        """
        plan = self.plan
        rows[top] = _with(
            rows[top], weight_grad=self._gradient_phase(count, Group.EP if plan.shard > 1 else Group.LOOP)
        )
        if plan.shard == plan.replicas:
            return rows
        summed = Phase(0, ALL_REDUCE, plan.gradient_bytes * -(-count // plan.shard), Group.DP_EP)
        # The upward pass comes to it after the row that reduces.
        return [*rows[:top], Layer(f"replicas_{rows[top].name.partition('_')[0]}", weight_grad=summed), *rows[top:]]

    def _gradient_phase(self, count: int, group: Group) -> Phase:
        kind = REDUCE_SCATTER if self.plan.zero else ALL_REDUCE
        return Phase(0, kind, self.plan.gradient_bytes * count, group)

    def _gathered(self, rows: list[Layer], weights: tuple[Weight, ...]) -> list[Layer]:
        """ZeRO-3: a block's parameters are gathered before its forward and again before its gradients.

        The group is written DP_EP, in a file without expert groups the data-parallel one; with hybrid sharding EP.
        """
        size = self.plan.element_bytes * elements(weights, self.plan.tp)
        if self.plan.sharing == 1:
            return rows
        gather = Phase(0, ALL_GATHER, size, Group.EP if self.plan.shard else Group.DP_EP)
        name = rows[0].name.partition("_")[0]
        return [Layer(f"gather_{name}", gather), *rows, Layer(f"gather_{name}_again", input_grad=gather)]

    def end(self) -> list[Layer]:
        """End of the step: gradients reduced, parameters gathered, the gradients' norm; what waits for them goes down.

        The loop waits for collectives of weight gradients only when it comes down to their rows again. So what needs
        the sums, gradients of replicated weights and the optimizer, is computed forward, below the rows that send: the
        optimizer opens the next step in place of closing this one, and a step is as long.
        """
        plan, held = self.plan, held_parameters(self.model, self.plan, self.stage)
        sharded = plan.zero > 0
        owned = (
            held.dense // plan.sharing + held.experts // (plan.shard or plan.expert_replicas)
            if sharded
            else held.dense + held.experts
        )
        rows = []
        if plan.replicas > 1:
            rows.append(Layer("gradient_norm", weight_grad=Phase(0, ALL_REDUCE, LOSS_BYTES)))
        if plan.zero in (1, 2):
            rows += self._both("parameter_gather", plan.element_bytes, ALL_GATHER, held)
        if plan.zero < 2 and not plan.overlap:
            rows += self._both("gradient_reduce", plan.gradient_bytes, REDUCE_SCATTER if sharded else ALL_REDUCE, held)
        if self._shards_sequence:
            rows.append(Layer("replicated_gradients", self._split(ALL_REDUCE, plan.gradient_bytes * held.replicated)))
        return [*rows, Layer("optimizer", Phase(self.durations.optimizer(owned)))]

    def _both(self, name: str, each_bytes: int, kind: CollectiveKind, held: Held) -> list[Layer]:
        """A row for ordinary parameters and one for experts, each unless its group is one rank."""
        groups = (
            (name, held.dense, self.plan.replicas, Group.LOOP),
            (f"{name}_experts", held.experts, self.plan.expert_replicas, Group.DP_EP),
        )
        return [
            Layer(row, weight_grad=Phase(0, kind, each_bytes * count, group))
            for row, count, ranks, group in groups
            if ranks > 1 and count
        ]


def _with(
    row: Layer, forward: Phase | None = None, input_grad: Phase | None = None, *, weight_grad: Phase | None = None
) -> Layer:
    """The row with these collectives behind its computations."""
    return replace(
        row,
        forward=_joined(row.forward, forward),
        input_grad=_joined(row.input_grad, input_grad),
        weight_grad=_joined(row.weight_grad, weight_grad),
    )


def _joined(computed: Phase, added: Phase | None) -> Phase:
    return computed if added is None else replace(added, compute_ns=computed.compute_ns)
