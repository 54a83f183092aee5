"""What a model does in a training step on one rank: kernels and collectives, layer by layer, in forward order.

`blocks` gives them with the weights they use; every consumer (rows of a workload, times, memory, predictions) is a view
of these. Sizes are those of one rank: tensor parallelism divides heads and the feed-forward width, context parallelism
and sequence parallelism tokens. Sources: Shoeybi et al. 2019 (tensor parallelism), Korthikanti et al. 2022 (sequence
parallelism, what a layer keeps), Rajbhandari et al. 2020 (ZeRO), Lepikhin et al. 2020 (experts), DeepSeek-V3, section
2.2, and Megatron-LM's `multi_token_prediction.py` (MTP modules), Raffel et al. 2020 (encoder and decoder).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from simcore.compute.kernel import Attention, GroupedProduct, MemoryPass, Product, Touch
from simcore.model.plan import Plan
from simcore.model.shape import Experts, Latent, LayerKind, Model, Weights, kinds
from simcore.model.steps import Axis, Beside, Block, Collective, Kernel, Module, Part, Step
from simcore.workload.model import CollectiveKind, Role

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
REDUCE_SCATTER, ALL_TO_ALL = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
LOSS_BYTES, COUNT_BYTES = 4, 8


# --- kernels


def _linear(
    part: Part,
    plan: Plan,
    weights: Weights,
    shape: tuple[int, int, int],
    keeps: float = 0.0,
    *modules: Module,
    narrowed: bool = False,
) -> Iterator[Kernel]:
    """A product of so many rows, outputs and inputs with weights, and its adapter if it has one.

    That is dropout of its input, two narrow products, the sum of both results, and backward that of both gradients.
    Where the input is `narrowed`, a product beside it that has the same adapter has done so.
    """
    rank, (rows, outputs, inputs) = plan.lora_rank, shape
    yield Kernel(part, Product(*shape), keeps_bytes=keeps, modules=modules, trained=plan.trains(weights))
    if plan.adapts(weights):
        kept = float(plan.element_bytes * rows * rank)
        size = plan.element_bytes
        if not narrowed:
            yield _pass(part, rows * inputs, 2 * size + 1, Touch.ELEMENTWISE, growth=(5 * size + 1) / (2 * size + 1))
            yield Kernel(part, Product(rows, rank, inputs), keeps_bytes=kept, modules=modules)
        yield Kernel(part, Product(rows, outputs, rank), modules=modules)
        yield _pass(part, rows * outputs, 3 * size, Touch.ELEMENTWISE, growth=0.0)


def _pass(
    part: Part,
    elements: float,
    bytes_each: float,
    touch: Touch,
    keeps: float = 0.0,
    *modules: Module,
    growth: float = 1.5,
    launches: int = 1,
) -> Kernel:
    work = MemoryPass(elements * bytes_each, touch)
    return Kernel(part, work, launches, keeps, modules, input_growth=growth)


# What the gradient of a pass moves over what it moves forward. A softmax or activation reads its tensor and the
# gradient and writes one (1.5); a norm does too and reads both again for its own gradients; dropout reads the gradient
# and its mask and writes one, as forward; behind a residual the bias's sum reads once more what the add saves.
NORM_GROWTH, SAME_GROWTH = 2.5, 1.0


def _norm(part: Part, elements: float, plan: Plan, *ahead: Weights) -> Kernel:
    """A norm; what it makes is kept for the gradients of any of the weights ahead, of which routers read 16 bits."""
    size = plan.element_bytes
    read = (size if one is Weights.ROUTER else plan.input_bytes for one in ahead if plan.keeps_input(one))
    return _pass(part, elements, 2 * size, Touch.NORM, max(read, default=0) * elements, Module.NORM, growth=NORM_GROWTH)


def _local(model: Model, plan: Plan) -> float:
    """Elements of the hidden states between split products, on this rank."""
    return plan.tokens * model.hidden / plan.apart


def _residual(part: Part, model: Model, plan: Plan, *modules: Module) -> Iterator[Kernel]:
    """Bias, dropout and residual in one fused kernel; dropout keeps a byte of mask.

    A norm of what is added, if there is one, keeps what it reads.
    """
    elements, size, masks = _local(model, plan), plan.element_bytes, int(plan.dropout)
    if model.norms_behind:
        yield _pass(part, elements, 2 * size, Touch.NORM, size * elements, *modules, growth=NORM_GROWTH)
    kept = (size + masks) * elements
    yield _pass(part, elements, 3 * size + masks, Touch.ELEMENTWISE, kept, *modules, growth=SAME_GROWTH)


# --- attention


@dataclass(frozen=True, slots=True)
class _Attention:
    """The attention block of a layer, or its cross-attention."""

    model: Model
    plan: Plan
    kind: LayerKind
    cross: bool = False

    @property
    def _parts(self) -> tuple[Part, Part, Part]:
        if self.cross:
            return Part.CROSS_IN, Part.CROSS_CORE, Part.CROSS_OUT
        return Part.ATTENTION_IN, Part.ATTENTION_CORE, Part.ATTENTION_OUT

    @property
    def _heads(self) -> int:
        return max(1, self.model.heads // self.plan.tp)

    @property
    def _key_heads(self) -> int:
        return max(1, self.model.key_heads // self.plan.tp)

    def steps(self) -> Iterator[Step]:
        """Norm, projections, the attention itself, output and residual, with what they communicate."""
        model, plan = self.model, self.plan
        into, core, out = self._parts
        label, width, latent = "cross" if self.cross else "attention", model.hidden, model.latent
        if latent:  # the split projections read low-rank vectors
            yield from self._down(latent)
            width = (latent.query_rank or model.hidden) + latent.key_value_rank + latent.rope_size
        size = plan.tokens * width * plan.element_bytes
        yield from _column(label, Role.ATTENTION, plan, size, [*self._column(into)])
        if plan.cp > 1:
            yield (exchanged := self._context(label))
        if plan.fused_attention:
            modules = Module.CORE, Module.FUSED
            yield from (Kernel(core, one, wide=not plan.attention_dtype, modules=modules) for one in self._fused())
        else:
            yield from self._unfused(core)
        if plan.cp > 1 and plan.context == "gather":  # what was gathered is not kept
            yield replace(exchanged, name=f"{exchanged.name}_again", forward=None, backward=ALL_GATHER)
        width = self._heads * model.value_dim
        kept = float(plan.element_bytes * plan.tokens * width)
        yield from _linear(out, plan, Weights.PROJECTION, (plan.tokens, model.hidden, width), kept, Module.OUT)
        if not model.parallel_block:
            yield from _residual(out, model, plan, Module.OUT)
            yield from _output(label, Role.ATTENTION, plan, _hidden_bytes(model, plan))

    def _column(self, part: Part) -> Iterator[Kernel]:
        """Norm and projections to queries, keys and values."""
        model, plan, size = self.model, self.plan, self.plan.element_bytes
        shared = (Weights.UP,) if model.norms == 1 else ()  # of blocks side by side
        yield _norm(part, _local(model, plan), plan, Weights.QKV, *shared)
        if model.latent:
            yield from self._up(part, model.latent)
            return
        queries, keys = self._heads * model.head_dim, 2 * self._key_heads * model.head_dim
        kept = float(size * plan.tokens)
        if self.cross:
            made = kept * queries, float(size * plan.encoder_tokens * keys)
            yield from _linear(part, plan, Weights.QKV, (plan.tokens, queries, model.hidden), made[0])
            yield from _linear(part, plan, Weights.QKV, (plan.encoder_tokens, keys, model.hidden), made[1])
        else:
            wide = queries + keys
            yield from _linear(part, plan, Weights.QKV, (plan.tokens, wide, model.hidden), kept * wide, Module.QKV)
        if model.query_key_norm:
            elements = plan.tokens * (queries + keys / 2)
            kept = size * elements  # beside what it reads: attention needs what it makes
            yield _pass(part, elements, 2 * size, Touch.NORM, kept, Module.QKV, growth=NORM_GROWTH, launches=2)

    def _down(self, latent: Latent) -> Iterator[Kernel]:
        """Low-rank vectors of queries and of keys with values; tensor ranks split them by tokens."""
        part, plan, hidden = Part.ATTENTION_DOWN, self.plan, self.model.hidden
        local, size, keys = plan.tokens // plan.apart, plan.element_bytes, latent.key_value_rank
        for rank, outputs in ((latent.query_rank, latent.query_rank), (keys, latent.rope_size + keys)):
            if rank:
                yield from _linear(part, plan, Weights.QKV, (local, outputs, hidden), float(size * local * rank))
                yield _norm(part, local * rank, plan, Weights.QKV)

    def _up(self, part: Part, latent: Latent) -> Iterator[Kernel]:
        model, plan = self.model, self.plan
        kept = float(plan.element_bytes * plan.tokens * self._heads)
        each = latent.nope_size + latent.value_size
        shape = plan.tokens, self._heads * model.head_dim, latent.query_rank or model.hidden
        yield from _linear(part, plan, Weights.QKV, shape, kept * model.head_dim, Module.UP)
        # The part of the keys that all heads share is kept with every head.
        held = kept * (each + latent.rope_size)
        shape = plan.tokens, self._heads * each, latent.key_value_rank
        yield from _linear(part, plan, Weights.QKV, shape, held, Module.UP)

    def _context(self, label: str) -> Collective:
        """Keys and values of the other context-parallel ranks, their gradients back; or heads for tokens."""
        model, plan = self.model, self.plan
        apart = plan.tp * plan.cp if plan.context == "all_to_all" else plan.tp  # ranks with heads of their own
        each = model.head_dim + model.value_dim
        widths = each * max(model.key_heads, apart) // plan.tp
        context = partial(Collective, f"{label}_context", Role.CONTEXT, Axis.CONTEXT)
        if plan.context == "all_to_all":
            # Queries, keys and values there, results back (Jacobs et al. 2023, section 3.2), all of it at once.
            sent = plan.element_bytes * plan.tokens * (each * model.heads // plan.tp + widths)
            return context(sent, ALL_TO_ALL, ALL_TO_ALL)
        size = plan.micro_batch * plan.seq * widths * plan.element_bytes
        beside = Beside.ATTENTION if plan.context == "ring" else Beside.NOTHING
        return context(size, ALL_GATHER, REDUCE_SCATTER, beside)

    @property
    def _sees(self) -> tuple[int, int, bool]:
        """What a query looks at: so many keys, in a window (0: none), those before it or, of an encoder's, all."""
        behind = self.cross or self.kind.encoder
        keys = (self.plan.encoder_seq or self.plan.seq) if behind else self.plan.seq
        window = 0 if self.cross or self.kind.window >= keys else self.kind.window
        return keys, window, not behind

    def _fused(self) -> Iterator[Attention]:
        """One kernel that skips masked blocks, where sequences are cut into pieces one more for the rest.

        Pieces are sequences of their own.
        """
        plan, window = self.plan, self._sees[1]
        if not (window and self.model.pieces):
            yield self._kernel()
            return
        whole, rest = divmod(plan.seq, window)
        for pieces, tokens in ((whole, window), (1, rest)):
            if tokens:
                apart = replace(plan, micro_batch=plan.micro_batch * pieces, seq=tokens)
                yield replace(self, plan=apart)._kernel()

    def _kernel(self) -> Attention:
        """The fused kernel of sequences.

        Context ranks have an early and a late piece of a sequence, so a query of theirs sees what a query sees on
        average; where heads are exchanged they have whole sequences of fewer heads.
        """
        model, plan, (keys, window, causal) = self.model, self.plan, self._sees
        heads, key_heads = self._heads, self._key_heads
        queries, d, value = max(1, plan.seq // plan.cp), model.head_dim, model.value_dim
        if plan.cp == 1 or not causal:
            return Attention(plan.micro_batch, heads, key_heads, queries, keys, d, value, causal, window)
        if plan.context == "all_to_all":
            heads, key_heads = max(1, heads // plan.cp), max(1, key_heads // plan.cp)
            return Attention(plan.micro_batch, heads, key_heads, plan.seq, keys, d, value, True, window)
        if window:
            seen = window - window * window // (2 * keys)
            return Attention(plan.micro_batch, heads, key_heads, queries, seen, d, value, False)
        # The last queries of as many keys as make the same number of pairs.
        return Attention(plan.micro_batch, heads, key_heads, queries, (keys + queries) // 2, d, value)

    def _unfused(self, part: Part) -> Iterator[Kernel]:
        """Scores, scale-mask-softmax, dropout and values apart, over all scores, masked ones included."""
        model, plan, keys, modules = self.model, self.plan, self._sees[0], (Module.CORE,)
        batch, rows, d, size = plan.micro_batch * self._heads, plan.seq // plan.cp, model.head_dim, plan.element_bytes
        scores = batch * rows * keys
        yield Kernel(part, Product(rows, keys, d, batch, row=d), modules=modules, wide=True)
        yield _pass(part, scores, 2 * size, Touch.SOFTMAX, size * scores, *modules)
        if plan.dropout:
            kept = (1 + size) * scores
            yield _pass(part, scores, 2 * size + 1, Touch.ELEMENTWISE, kept, *modules, growth=SAME_GROWTH)
        yield Kernel(part, Product(rows, model.value_dim, keys, batch, row=d), modules=modules, wide=True)
        elements = batch * rows * model.value_dim
        yield _pass(part, elements, 2 * size, Touch.COPY, growth=SAME_GROWTH, launches=4)


# --- what tensor parallelism adds


def _hidden_bytes(model: Model, plan: Plan) -> int:
    """Bytes of a micro-batch's hidden states, whole."""
    return plan.tokens * model.hidden * plan.element_bytes


def _column(
    label: str, role: Role, plan: Plan, size: int, kernels: Sequence[Kernel], *modules: Module
) -> Iterator[Step]:
    """Column-split weights: the gradient of their input is summed.

    Under sequence parallelism the input is gathered, and for the weight gradient gathered again.
    """
    if plan.shards_sequence:
        beside = Beside.WEIGHT_GRADIENT
        yield Collective(f"{label}_input", role, Axis.TENSOR, size, ALL_GATHER, REDUCE_SCATTER, beside, modules)
        yield from kernels
        yield Collective(f"{label}_input_again", role, Axis.TENSOR, size, None, ALL_GATHER, Beside.INPUT_GRADIENT)
        return
    if plan.tp > 1:
        yield Collective(f"{label}_input", role, Axis.TENSOR, size, None, ALL_REDUCE, Beside.WEIGHT_GRADIENT)
    yield from kernels


def _output(label: str, role: Role, plan: Plan, size: int, *modules: Module) -> Iterator[Collective]:
    """The output of row-split weights is summed; under sequence parallelism it is split, its gradient gathered."""
    if plan.tp > 1:
        ahead, back = (REDUCE_SCATTER, ALL_GATHER) if plan.shards_sequence else (ALL_REDUCE, None)
        yield Collective(f"{label}_output", role, Axis.TENSOR, size, ahead, back, Beside.PRODUCTS, modules)


# --- feed-forward


def _products(model: Model, plan: Plan, width: int, parts: tuple[Part, Part], *modules: Module) -> Iterator[Kernel]:
    """Up, activation, down of a dense feed-forward block or a shared expert.

    Where half of the first products is computed again, each is a kernel of its own; what narrows their input is one.
    """
    tokens, size = plan.tokens, plan.element_bytes
    up, between, down = (modules + pieces for pieces in (_PIECES if Module.MLP in modules else ((), (), ())))
    wide = 2 * width if model.gated else width
    first: list[tuple[int, tuple[Module, ...]]] = [(wide, up)]
    if model.gated and plan.recompute == "selective" and Module.MLP_GATE in plan.recompute_modules:
        first = [(width, up), (width, (*up, Module.MLP_GATE))]
    for half, (outputs, pieces) in enumerate(first):
        kept, shape = float(size * tokens * outputs), (tokens, outputs, model.hidden)
        yield from _linear(parts[0], plan, Weights.UP, shape, kept, *pieces, narrowed=half > 0)
    made = plan.input_bytes * tokens * width if plan.keeps_input(Weights.DOWN) else 0.0
    yield _pass(parts[1], tokens * (wide + width), size, Touch.ACTIVATION, made, *between)
    yield from _linear(parts[1], plan, Weights.DOWN, (tokens, model.hidden, width), 0.0, *down)


_PIECES: tuple[tuple[Module, ...], ...] = ((Module.MLP_UP,), (Module.MLP_ACTIVATION,), (Module.MLP_DOWN,))


def _mlp(model: Model, plan: Plan) -> Iterator[Step]:
    size, width = _hidden_bytes(model, plan), max(1, model.ffn // plan.tp)
    kernels = list(_products(model, plan, width, (Part.MLP_IN, Part.MLP_OUT), Module.MLP))
    into = [kernel for kernel in kernels if kernel.part is Part.MLP_IN]
    if model.norms > 1:
        into.insert(0, _norm(Part.MLP_IN, _local(model, plan), plan, Weights.UP))
    if model.parallel_block:  # attention has gathered the input, and leaves its output to be summed here
        yield from into
    else:
        yield from _column("mlp", Role.FEED_FORWARD, plan, size, into, Module.MLP)
    yield from (kernel for kernel in kernels if kernel.part is Part.MLP_OUT)
    yield from _residual(Part.MLP_OUT, model, plan)
    yield from _output("mlp", Role.FEED_FORWARD, plan, size, Module.MLP)


def _mixture(model: Model, plan: Plan, experts: Experts) -> Iterator[Step]:
    """Router, dispatch, this rank's experts, combine; the shared expert beside them.

    Megatron-LM computes all of it again as one (`moe_layer.py`).
    """
    tokens, size, hidden = plan.tokens, plan.element_bytes, model.hidden
    local = max(1, experts.count // plan.ep)
    share = plan.tp // plan.expert_tp if plan.tp > plan.expert_tp else 1
    rows = tokens * experts.top_k // share
    busiest = max(1, int(rows * plan.crowded))
    beside = (Weights.UP,) if experts.shared_ffn else ()
    yield _norm(Part.ROUTER, _local(model, plan), plan, Weights.ROUTER, *beside)
    scores = Product(tokens // plan.apart, experts.count, hidden)
    yield Kernel(Part.ROUTER, scores, modules=(Module.MOE,), wide=True, trained=plan.trains(Weights.ROUTER))
    moved = rows * hidden
    kept = float(size * moved) / plan.expert_tp
    read = float(plan.input_bytes * busiest * hidden * plan.trains(Weights.EXPERTS))
    yield _pass(Part.ROUTER, moved, 2 * size, Touch.COPY, read, Module.MOE, launches=3)
    yield from _exchanges(model, plan, experts, list(_grouped(model, plan, experts, local, busiest)))
    yield _pass(Part.COMBINE, moved, 2 * size, Touch.COPY, kept, Module.MOE, launches=3)
    yield from _residual(Part.COMBINE, model, plan)
    if experts.shared_ffn:
        width = max(1, experts.shared_ffn // plan.tp)
        modules, whole = (Module.SHARED, Module.MOE), _hidden_bytes(model, plan)
        shared = list(_products(model, plan, width, (Part.SHARED, Part.SHARED), *modules))
        yield from _column("shared_expert", Role.FEED_FORWARD, plan, whole, shared, *modules)
        yield from _output("shared_expert", Role.FEED_FORWARD, plan, whole, *modules)


def _grouped(model: Model, plan: Plan, experts: Experts, local: int, busiest: int) -> Iterator[Kernel]:
    """The products of a rank's experts, with the tokens of the busiest rank.

    Experts without tokens read no weights. Of few tokens that each choose at random some have several; unless padded.
    """
    size, width = plan.element_bytes, max(1, experts.ffn // plan.expert_tp)
    wide = 2 * width if model.gated else width
    empty = 0.0 if plan.capacity else (1 - experts.top_k / experts.count) ** (busiest * plan.ep / experts.top_k)
    trained, working = plan.trains(Weights.EXPERTS), min(busiest, max(1, round(local * (1 - empty))))
    product = partial(GroupedProduct, working) if working > 1 else Product
    up = product(busiest, wide, model.hidden)
    yield Kernel(Part.EXPERTS, up, 1, float(size * busiest * wide), (Module.MOE,), trained=trained)
    kept = float(plan.input_bytes * busiest * width * trained)
    yield _pass(Part.EXPERTS, busiest * (wide + width), size, Touch.ACTIVATION, kept, Module.ACTIVATION, Module.MOE)
    down = product(busiest, model.hidden, width)
    yield Kernel(Part.EXPERTS, down, modules=(Module.MOE,), trained=trained)


def _exchanges(model: Model, plan: Plan, experts: Experts, kernels: Sequence[Kernel]) -> Iterator[Step]:
    """Experts between dispatch and combine; where several ranks split one, its tokens are gathered and summed."""
    tokens = int(plan.tokens * experts.top_k * plan.crowded)
    routed = tokens * model.hidden * plan.element_bytes
    exchanged = routed // (plan.tp if plan.shards_sequence else 1)
    gathered = routed // (plan.tp // plan.expert_tp if plan.shards_sequence else 1)
    counts = COUNT_BYTES * plan.ep * plan.expert_tp * experts.count
    among = partial(Collective, role=Role.EXPERTS, modules=(Module.MOE,))
    sent = among("moe_dispatch", axis=Axis.EXPERT, size_bytes=exchanged, forward=ALL_TO_ALL, backward=ALL_TO_ALL)
    whole = among("moe_gather", axis=Axis.TENSOR, size_bytes=gathered, forward=ALL_GATHER, backward=REDUCE_SCATTER)
    if plan.ep > 1:
        yield replace(sent, name="moe_counts", size_bytes=counts, forward=ALL_GATHER, backward=None)
        yield sent
    if plan.expert_tp > 1:
        yield whole
    yield from kernels
    if plan.expert_tp > 1:
        yield replace(whole, name="moe_scatter", forward=REDUCE_SCATTER, backward=ALL_GATHER)
    if plan.ep > 1:
        yield replace(sent, name="moe_combine")


# --- blocks


@lru_cache(maxsize=8192)
def blocks(model: Model, plan: Plan, kind: LayerKind) -> tuple[Block, ...]:
    """The blocks of a layer: attention, in a decoder behind an encoder also cross-attention, then feed-forward."""
    if kind.encoder and plan.encoder_seq:  # its tokens
        plan = replace(plan, seq=plan.encoder_seq, encoder_seq=0)
    made = [Block("attention", tuple(_Attention(model, plan, kind).steps()), model.attention_weights())]
    if kind.cross:
        crossing = tuple(_Attention(model, plan, kind, cross=True).steps())
        made.append(Block("cross", crossing, model.attention_weights(cross=True)))
    steps = _mixture(model, plan, model.experts) if kind.experts and model.experts else _mlp(model, plan)
    further = model.feed_forward_weights(experts=kind.experts)
    return (*made, Block("moe" if kind.experts else "mlp", tuple(steps), further))


@lru_cache(maxsize=1024)
def embedding(model: Model, plan: Plan) -> Block:
    """Look-up of token and position embeddings, scattered addition of their gradient."""
    size, elements = plan.element_bytes, plan.tokens * model.hidden
    if model.encoder_layers:
        elements += plan.encoder_tokens * model.hidden
    work = MemoryPass(elements * 4 * size, Touch.EMBEDDING)
    kept = _local(model, plan) * int(plan.dropout)
    growth = (size + 8) / (4 * size) if plan.trains(Weights.EMBEDDING) else 0.0
    kernel = Kernel(Part.EMBEDDING, work, 3, kept, input_growth=0.0, weight_growth=growth)
    summed = _output("embedding", Role.EMBEDDING, plan, elements * size)
    return Block("embedding", (kernel, *summed), model.embedding_weights())


@lru_cache(maxsize=1024)
def head(model: Model, plan: Plan) -> Block:
    """Final norm, projection, and the vocabulary-parallel loss: cross entropy over logits, whose copies are read and
    written a few times; maximum, target and sum.
    """
    tokens, hidden, vocab = plan.tokens, model.hidden, plan.padded_vocab(model.vocab) // plan.tp
    logits, local = tokens * vocab, plan.element_bytes * _local(model, plan)
    product, weights = Product(tokens, vocab, hidden), Weights.EMBEDDING if model.tied else Weights.HEAD
    kept = float((plan.element_bytes + plan.loss_bytes) * logits)
    kernels = [
        replace(_norm(Part.HEAD, _local(model, plan), plan, weights), keeps_bytes=2 * local),
        Kernel(Part.HEAD, product, keeps_bytes=kept, wide=True, trained=plan.trains(weights)),
        _pass(Part.HEAD, logits, 4 * (plan.loss_bytes or plan.element_bytes), Touch.SOFTMAX, launches=8),
    ]
    column = _column("head", Role.HEAD, plan, _hidden_bytes(model, plan), kernels)
    size = LOSS_BYTES * tokens
    loss = [Collective(f"cross_entropy{i}", Role.ENTROPY, Axis.TENSOR, size, ALL_REDUCE) for i in (1, 2, 3)]
    return Block("head", (*column, *(loss if plan.tp > 1 else ())), model.head_weights())


def mtp_blocks(model: Model, plan: Plan) -> tuple[Block, Block]:
    """What an MTP module has beside its layer: next tokens' embeddings and hidden states projected together, a head."""
    size, weights = _hidden_bytes(model, plan), model.mtp_weights()
    local, width = _local(model, plan), max(1, model.hidden // plan.tp)
    kept, norm = 2.0 * plan.element_bytes * 2 * local, _norm(Part.MTP_COMBINE, 2 * local, plan, Weights.UP)
    norms = replace(norm, launches=2, keeps_bytes=kept)
    combine = [norms, *_linear(Part.MTP_COMBINE, plan, Weights.UP, (plan.tokens, width, 2 * model.hidden))]
    # Columns are gathered. Of whole gradients each rank cuts its own; parts of the sequence are gathered for that.
    back = ALL_GATHER if plan.shards_sequence else None
    gathered = Collective("mtp_combine_output", Role.FURTHER, Axis.TENSOR, size, ALL_GATHER, back)
    column = _column("mtp_combine", Role.FURTHER, plan, 2 * size, combine)
    steps = (*embedding(model, plan).steps, *column, *((gathered,) if plan.tp > 1 else ()))
    return Block("mtp_combine", steps, weights[:3]), replace(head(model, plan), weights=weights[3:])


def model_blocks(model: Model, plan: Plan) -> Iterator[tuple[Block, int]]:
    """All blocks of a model, and how many it has of each: those of its kinds of layers, its ends, its MTP modules."""
    for kind, count in kinds(model, range(model.depth + model.mtp_layers)):
        yield from ((block, count) for block in blocks(model, plan, kind))
    yield from ((embedding(model, plan), 1), (head(model, plan), 1))
    yield from ((block, model.mtp_layers) for block in (mtp_blocks(model, plan) if model.mtp_layers else ()))


def optimizer(parameter_count: float, state_bytes: int = 12) -> Kernel:
    """A mixed-precision Adam step on the parameters of one rank.

    States are read and written; the other 18 bytes: gradient to 32 bits and unscaled (2 + 4 + 8), norm (4), clip (8),
    read by Adam (4), less what is fused; the 16-bit copy of the weight (4).
    """
    return _pass(Part.OPTIMIZER, parameter_count, 18 + 2 * state_bytes, Touch.ELEMENTWISE, launches=8)


def accumulation(parameter_count: float, bytes_each: float) -> tuple[Kernel, ...]:
    """A pass per weight matrix: adding the gradients of a micro-batch to those before it, where no product does."""
    if not bytes_each * parameter_count:
        return ()
    return (_pass(Part.OPTIMIZER, parameter_count, bytes_each, Touch.ELEMENTWISE, launches=4),)
