"""What a transformer layer computes: one `Operation` per kernel class, forward, input-grad and weight-grad apart.

A multiply-add is two FLOPs. Bytes are what a kernel must read and write once in device memory. Shapes are those of one
rank: tensor parallelism divides heads and the feed-forward width, context parallelism and sequence parallelism tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from simcore.workload.model import PhaseName

__all__ = [
    "Kind",
    "Operation",
    "Shard",
    "Transformer",
    "accumulation_operations",
    "attention_values",
    "combine_operations",
    "embedding_operations",
    "expert_parameters",
    "head_operations",
    "layer_operations",
    "layer_parameters",
    "optimizer_operations",
    "parameters",
]

Kind = Literal["gemm", "attention", "memory"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel class: `batch` products of [m, k] by [k, n], an attention kernel, or a pass over memory.

    `kernels` is how many launches the framework makes for it. `wide`: stays in 16 bits where products run in 8 or 4.
    `row`: elements after which the next head's begin in memory, where heads lie side by side.
    """

    name: str
    kind: Kind
    flops: float
    memory_bytes: float
    batch: int = 1
    m: int = 0
    n: int = 0
    k: int = 0
    kernels: int = 1
    wide: bool = False
    row: int = 0


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder-only model's shape.

    `attention`: "flash" (one fused kernel that skips masked blocks) or "unfused" (products, softmax and dropout
    apart, all scores computed). `window` tokens of sliding attention, 0 = all. `parallel_block`: attention and feed-
    forward read the same normalised input. `experts` 0 = dense; `expert_ffn` is the width of one expert,
    `dense_layers` precede the expert layers.
    `key_value_rank` > 0 is multi-head latent attention: low-rank projections (`query_rank` 0: queries directly),
    `head_size` with a part of `rope_size` that all heads share, values of `value_size`.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    seq: int
    kv_heads: int = 0
    head_size: int = 0
    gated: bool = False
    tied: bool = True
    learned_positions: bool = True
    attention: Literal["flash", "unfused"] = "flash"
    dropout: bool = False
    window: int = 0
    parallel_block: bool = False
    experts: int = 0
    top_k: int = 1
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    query_rank: int = 0
    key_value_rank: int = 0
    rope_size: int = 0
    value_size: int = 0

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def key_heads(self) -> int:
        """Heads of keys and values (fewer than query heads under grouped-query attention)."""
        return self.kv_heads or self.heads


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank holds: tensor, context and expert degrees, sequences per micro-batch, element size."""

    micro_batch: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    element_bytes: float = 2.0

    def tokens(self, model: Transformer) -> int:
        """Tokens of a micro-batch on this rank, where they are not split over tensor ranks."""
        return self.micro_batch * model.seq // self.cp


def layer_parameters(model: Transformer, *, dense: bool = False) -> int:
    """Weights, biases and norms of one layer; `dense` = the feed-forward kind in a model with experts."""
    attention, width = _attention_parameters(model), 3 if model.gated else 2
    if model.experts and not dense:
        shared = width * model.hidden * model.shared_ffn + model.hidden * model.experts
        return attention + expert_parameters(model) + shared
    queries, keys = attention_values(model)
    biases = 0 if model.gated else model.ffn + 2 * model.hidden + queries + keys
    return attention + width * model.hidden * model.ffn + biases


def expert_parameters(model: Transformer) -> int:
    """Weights of the routed experts of one layer, all of them."""
    return (3 if model.gated else 2) * model.hidden * model.expert_ffn * model.experts


def attention_values(model: Transformer) -> tuple[int, int]:
    """Elements a token has in queries, and in keys and values together, on all heads."""
    value = model.value_size or model.head_dim
    return model.heads * model.head_dim, model.key_heads * (model.head_dim + value)


def _attention_parameters(model: Transformer) -> int:
    """Projections and the layer's two norms."""
    h, rank, latent = model.hidden, model.query_rank, model.key_value_rank
    queries, keys = attention_values(model)
    out = h * model.heads * (model.value_size or model.head_dim) + 4 * h
    if not latent:
        return h * (queries + keys) + out
    up = latent * model.heads * (model.head_dim - model.rope_size + model.value_size)
    asked = h * rank + rank + rank * queries if rank else h * queries
    return asked + h * (latent + model.rope_size) + latent + up + out


def parameters(model: Transformer) -> int:
    """All parameters: layers, token and position embeddings, an untied head, the final norm.

    >>> round(parameters(Transformer(96, 12288, 96, 49152, 51200, 2048)) / 1e9, 1)
    174.6
    """
    expert_layers = model.layers - model.dense_layers if model.experts else 0
    dense = model.layers - expert_layers
    layers = expert_layers * layer_parameters(model) + dense * layer_parameters(model, dense=True)
    positions = model.seq if model.learned_positions else 0
    tables = (1 if model.tied else 2) * model.vocab + positions
    return layers + tables * model.hidden + 2 * model.hidden


@lru_cache(maxsize=4096)
def layer_operations(
    model: Transformer, shard: Shard, phase: PhaseName, *, dense: bool = False
) -> tuple[Operation, ...]:
    """The operations of one layer in one phase on one rank; `dense` as in `layer_parameters`."""
    block = [*_attention(model, shard), *_feed_forward(model, shard, dense or not model.experts)]
    return tuple(operation for forward in block for operation in _in_phase(forward, phase, shard.element_bytes))


def _in_phase(forward: Operation, phase: PhaseName, element_bytes: float) -> Iterator[Operation]:
    """What a forward operation becomes in `phase`: products have two gradients, the rest is all input gradient."""
    if phase is PhaseName.FORWARD:
        yield forward
    elif forward.kind == "gemm" and not forward.name.startswith("scores"):
        yield _gradient(forward, phase, element_bytes)
    elif phase is PhaseName.INPUT_GRAD:
        more_flops, more_bytes = _BACKWARD_GROWTH[forward.kind]
        yield replace(
            forward,
            flops=forward.flops * more_flops,
            memory_bytes=forward.memory_bytes * _BACKWARD_PASSES.get(forward.name, more_bytes),
            batch=forward.batch * 2 if forward.kind == "gemm" else forward.batch,
        )


# Work of a backward pass over its forward: (FLOPs, bytes). Attention recomputes the scores and makes three more
# products (five against two, FlashAttention-2, section 3.1.2).
_BACKWARD_GROWTH = {"gemm": (2.0, 2.0), "attention": (2.5, 2.0), "memory": (1.0, 1.5)}

# Passes over memory by what they read and write, against the forward's. A softmax or activation reads its tensor and
# the gradient and writes one (1.5); a norm does too and reads both again for its own gradients; dropout reads the
# gradient and its mask and writes one, as forward; behind a residual the bias's sum reads once more what the add
# saves.
_BACKWARD_PASSES = {"norm": 2.5, "residual": 1.0, "attention dropout": 1.0, "transpose": 1.0}


def _gradient(forward: Operation, phase: PhaseName, element_bytes: float) -> Operation:
    """The product that gives the gradient of the input, or of the weight, accumulated in 32 bits."""
    batch, m, n, k = forward.batch, forward.m, forward.n, forward.k
    if phase is PhaseName.INPUT_GRAD:
        return _gemm(forward.name, m, k, n, element_bytes, batch)
    product = _gemm(forward.name, k, n, m, element_bytes, batch)
    return replace(product, memory_bytes=product.memory_bytes + batch * n * k * (8.0 - element_bytes))


# Products that training frameworks keep in 16 bits.
_WIDE = {"scores", "scores by values", "router", "head"}


def _gemm(name: str, m: int, n: int, k: int, element_bytes: float, batch: int = 1) -> Operation:
    moved = element_bytes * batch * (m * k + k * n + m * n)
    return Operation(name, "gemm", 2.0 * batch * m * n * k, moved, batch, m, n, k, wide=name in _WIDE)


def _pass(name: str, elements: float, bytes_per_element: float, kernels: int = 1) -> Operation:
    return Operation(name, "memory", 0.0, elements * bytes_per_element, kernels=kernels)


def _attention(model: Transformer, shard: Shard) -> Iterator[Operation]:
    """Norm, projections, the attention itself, dropout and residual."""
    tokens, size, h = shard.tokens(model), shard.element_bytes, model.hidden
    local = tokens * h / (shard.tp if shard.sequence_parallel else 1)
    heads, keys = max(1, model.heads // shard.tp), max(1, model.key_heads // shard.tp)
    width = heads * (model.value_size or model.head_dim)
    yield _pass("norm", local, 2 * size)
    if model.key_value_rank:
        yield from _latent_projections(model, shard, heads)
    else:
        yield _gemm("qkv", tokens, width + 2 * keys * model.head_dim, h, size)
    yield from (_flash if model.attention == "flash" else _unfused)(model, shard, heads, keys)
    yield _gemm("projection", tokens, h, width, size)
    if not model.parallel_block:
        yield from _residual(model, local, size)


def _latent_projections(model: Transformer, shard: Shard, heads: int) -> Iterator[Operation]:
    """Down, norm and up for queries and for keys with values; tensor ranks split the down projections by tokens."""
    rank, key_value = model.query_rank, model.key_value_rank
    tokens, size = shard.tokens(model), shard.element_bytes
    local = tokens // shard.tp if shard.sequence_parallel else tokens
    if rank:
        yield _gemm("query down", local, rank, model.hidden, size)
        yield _pass("query norm", local * rank, 2 * size)
    yield _gemm("query up", tokens, heads * model.head_dim, rank or model.hidden, size)
    yield _gemm("key-value down", local, key_value + model.rope_size, model.hidden, size)
    yield _pass("key-value norm", local * key_value, 2 * size)
    yield _gemm("key-value up", tokens, heads * (model.head_dim - model.rope_size + model.value_size), key_value, size)


def _residual(model: Transformer, local: float, size: float) -> Iterator[Operation]:
    """Bias, dropout and residual in one fused kernel; dropout keeps a byte of mask."""
    yield _pass("residual", local, 3 * size + (1 if model.dropout else 0))


def _context(model: Transformer) -> float:
    """Tokens a query looks at, on average: the masked half is skipped, a window cuts the rest."""
    window = min(model.window or model.seq, model.seq)
    return window - window * window / (2.0 * model.seq)


def _flash(model: Transformer, shard: Shard, heads: int, keys: int) -> Iterator[Operation]:
    tokens, d, size = shard.tokens(model), model.head_dim, shard.element_bytes
    value = model.value_size or d
    flops = 2.0 * tokens * _context(model) * heads * (d + value)
    moved = size * tokens * (d + value) * (heads + keys)
    shape = (shard.micro_batch * heads, model.seq // shard.cp, model.seq, d)
    yield Operation("attention", "attention", flops, moved, *shape, wide=True)


def _unfused(model: Transformer, shard: Shard, heads: int, keys: int) -> Iterator[Operation]:
    """Scores, scale-mask-softmax, dropout and values apart, over all seq x seq scores, masked ones included."""
    batch, rows, d, size = shard.micro_batch * heads, model.seq // shard.cp, model.head_dim, shard.element_bytes
    scores = batch * rows * model.seq
    yield replace(_gemm("scores", rows, model.seq, d, size, batch), row=d)
    yield _pass("softmax", scores, 2 * size)
    if model.dropout:
        yield _pass("attention dropout", scores, 2 * size + 1)
    yield replace(_gemm("scores by values", rows, d, model.seq, size, batch), row=d)
    yield _pass("transpose", batch * rows * d, 2 * size, kernels=4)


def _feed_forward(model: Transformer, shard: Shard, dense: bool) -> Iterator[Operation]:
    tokens, size, h = shard.tokens(model), shard.element_bytes, model.hidden
    local = tokens * h / (shard.tp if shard.sequence_parallel else 1)
    if not model.parallel_block:
        yield _pass("norm", local, 2 * size)
    if dense:
        yield from _mlp(model, tokens, model.ffn // shard.tp, size)
    else:
        yield from _experts(model, shard, tokens, size)
    yield from _residual(model, local, size)


def _mlp(model: Transformer, tokens: int, width: int, size: float, batch: int = 1) -> Iterator[Operation]:
    wide = 2 * width if model.gated else width
    yield _gemm("up", tokens, wide, model.hidden, size, batch)
    yield _pass("activation", batch * tokens * (wide + width), size)
    yield _gemm("down", tokens, model.hidden, width, size, batch)


def _experts(model: Transformer, shard: Shard, tokens: int, size: float) -> Iterator[Operation]:
    """Router, permutation, grouped products over the local experts (balanced), un-permutation, shared expert."""
    local_experts = max(1, model.experts // shard.ep)
    each = max(1, tokens * model.top_k // local_experts)
    yield _gemm("router", tokens, model.experts, model.hidden, size)
    yield _pass("permute", tokens * model.top_k * model.hidden, 2 * size, kernels=3)
    yield from _mlp(model, each, max(1, model.expert_ffn // shard.tp), size, local_experts)
    yield _pass("unpermute", tokens * model.top_k * model.hidden, 2 * size, kernels=3)
    if model.shared_ffn:
        yield from _mlp(model, tokens, max(1, model.shared_ffn // shard.tp), size)


@lru_cache(maxsize=1024)
def embedding_operations(model: Transformer, shard: Shard, phase: PhaseName) -> tuple[Operation, ...]:
    """Look-up of token and position embeddings (forward), scattered addition of their gradient (weight-grad)."""
    elements = shard.tokens(model) * model.hidden
    if phase is PhaseName.FORWARD:
        return (_pass("embedding", elements, 4 * shard.element_bytes, kernels=3),)
    if phase is PhaseName.WEIGHT_GRAD:
        return (_pass("embedding", elements, shard.element_bytes + 8, kernels=3),)
    return ()


def combine_operations(model: Transformer, shard: Shard, phase: PhaseName) -> list[Operation]:
    """Norms of hidden states and embeddings, and the projection of both to the hidden size, split by columns (MTP)."""
    tokens, size = shard.tokens(model), shard.element_bytes
    local = tokens * model.hidden / (shard.tp if shard.sequence_parallel else 1)
    norms = _pass("norm", 2 * local, 2 * size, kernels=2)
    block = (norms, _gemm("combine", tokens, max(1, model.hidden // shard.tp), 2 * model.hidden, size))
    return [operation for forward in block for operation in _in_phase(forward, phase, size)]


@lru_cache(maxsize=1024)
def head_operations(model: Transformer, shard: Shard, phase: PhaseName) -> tuple[Operation, ...]:
    """Final norm, output projection and cross entropy (32-bit logits, read and written a few times)."""
    tokens, size = shard.tokens(model), shard.element_bytes
    logits = tokens * model.vocab / shard.tp
    product = _gemm("head", tokens, model.vocab // shard.tp, model.hidden, size)
    block = (_pass("norm", tokens * model.hidden, 2 * size), product, _pass("cross entropy", logits, 16, kernels=8))
    return tuple(operation for forward in block for operation in _in_phase(forward, phase, size))


def optimizer_operations(parameter_count: float, bytes_per_parameter: float = 42.0) -> tuple[Operation, ...]:
    """A mixed-precision Adam step on the parameters of one rank.

    The 42 bytes: gradient to 32 bits and unscaled (2 + 4 + 8), norm (4), clip (8), Adam reads gradient, weight and two
    moments and writes three (28) less what is fused; the 16-bit copy of the weight (4).
    """
    return (_pass("optimizer", parameter_count, bytes_per_parameter, kernels=8),)


def accumulation_operations(parameter_count: float, bytes_per_parameter: float) -> tuple[Operation, ...]:
    """Adding the gradients of a micro-batch to those before it, where no product does: a pass per weight matrix."""
    return (_pass("accumulation", parameter_count, bytes_per_parameter, kernels=4),) if bytes_per_parameter else ()
