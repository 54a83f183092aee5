"""Language models by their shape: every weight with how it is split, every kind of layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import ceil
from typing import Literal

from simcore.hashed import Hashed

Split = Literal["column", "row", "none", "expert"]


class Weights(StrEnum):
    """Kinds of weights, by Megatron-LM's names of the modules that hold them."""

    EMBEDDING = "embedding"
    QKV = "linear_qkv"
    PROJECTION = "linear_proj"
    UP = "linear_fc1"
    DOWN = "linear_fc2"
    EXPERTS = "experts"
    ROUTER = "router"
    NORM = "norms"
    HEAD = "output_layer"


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of `inputs` x `outputs` elements, with a bias or not, or a vector (`inputs` 1).

    `split` says what a tensor-parallel rank holds: some columns, some rows or everything; `units` heads (0: it has
    none) are not cut, so with fewer of them than ranks each rank holds one. `copies` experts of this shape are dealt to
    expert ranks. `behind`: it reads what an encoder wrote.
    """

    kind: Weights
    inputs: int
    outputs: int
    split: Split = "none"
    units: int = 0
    bias: bool = False
    copies: int = 1
    behind: bool = False

    def share(self, tp: int) -> float:
        """The part of it that a tensor-parallel rank holds."""
        if self.split == "none":
            return 1.0
        return max(1, ceil(self.units / tp)) / self.units if self.units else 1 / tp

    def elements(self, tp: int = 1) -> int:
        """Elements of one copy on a tensor-parallel rank."""
        held = self.share(tp)
        bias = self.outputs * (held if self.split == "column" else 1) if self.bias else 0
        return round(self.inputs * self.outputs * held + bias)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): ranks of the projections, sizes of a head's parts."""

    query_rank: int
    key_value_rank: int
    rope_size: int
    nope_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Expert layers: `count` of width `ffn`, `top_k` for every token, a shared one of width `shared_ffn` (0: none).

    The first `dense_layers` layers have none, and of the others the first and every `every`-th behind it.
    `router_bias`: a bias per expert that balances their loads.
    """

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    shared_gate: bool = False
    every: int = 1


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What tells a layer from others of its model: experts or none, tokens it looks back on (0: all), its place.

    Layers of an encoder see the tokens behind them, too; those of its decoder also look at the encoder's output.
    """

    experts: bool = False
    window: int = 0
    encoder: bool = False
    cross: bool = False


@dataclass(frozen=True)
class Model(Hashed):
    """A transformer's shape; sizes in elements.

    `kv_heads` and `head_size` 0 follow from `heads` and `hidden`; `positions` rows of a learned position table (0:
    rotary); `norm` "layer" has a bias, "rms" none, and there are `norms` in a layer: one that both blocks read, one
    ahead of each, or another behind each; `tied`: the head is the word table. `mtp_layers` modules predict further
    tokens in training (DeepSeek-V3, section 2.2): each has a layer of its own behind the others. With a `window` layers
    look back on so many tokens, but for every `full_every`-th (0: none), which sees all; with `pieces` a sequence is
    cut into such windows. `parallel_block`: attention and feed-forward read the same input. `norm_of_all`: norms of
    queries and keys have weights for every head, not those of one for all. `encoder_layers` stand before the `layers`
    of a decoder with cross-attention; both have a table of `relative_positions`. Biases are those of queries, keys
    and values, of attention's output, of feed-forward blocks, of the head, or of all products of layers
    (`linear_bias`).
    """

    __hash__ = Hashed.__hash__

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    kv_heads: int = 0
    head_size: int = 0
    gated: bool = True
    tied: bool = False
    positions: int = 0
    norm: Literal["layer", "rms"] = "rms"
    norms: int = 2
    linear_bias: bool = False
    qkv_bias: bool = False
    projection_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    query_key_norm: bool = False
    norm_of_all: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    mtp_layers: int = 0
    window: int = 0
    full_every: int = 0
    pieces: bool = False
    sinks: bool = False
    parallel_block: bool = False
    encoder_layers: int = 0
    relative_positions: int = 0

    @property
    def head_dim(self) -> int:
        """Width of a query head."""
        if self.latent:
            return self.latent.nope_size + self.latent.rope_size
        return self.head_size or self.hidden // self.heads

    @property
    def value_dim(self) -> int:
        """Width of a head's values."""
        return self.latent.value_size if self.latent else self.head_dim

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.latent else self.kv_heads or self.heads

    @property
    def depth(self) -> int:
        """Layers in all, an encoder's first; MTP modules are numbered behind them."""
        return self.encoder_layers + self.layers

    @property
    def norms_behind(self) -> bool:
        """Whether what a block adds is normalised first."""
        return self.norms > 2

    def kind(self, layer: int) -> LayerKind:
        """What a layer (counted from 0) is."""
        full = not self.window or bool(self.full_every and (layer + 1) % self.full_every == 0)
        encoder = layer < self.encoder_layers
        cross = bool(self.encoder_layers) and not encoder
        return LayerKind(not self.dense(layer), 0 if full else self.window, encoder, cross)

    def seen(self, kind: LayerKind, context: int) -> int:
        """Tokens of a context that its last one sees in a layer, itself included."""
        if not kind.window:
            return context
        return (context - 1) % kind.window + 1 if self.pieces else min(context, kind.window)

    def dense(self, layer: int) -> bool:
        """Whether this layer (counted from 0) has an ordinary feed-forward block."""
        if self.experts is None or layer < self.experts.dense_layers:
            return True
        return (layer - self.experts.dense_layers) % self.experts.every > 0

    def norm_weight(self, width: int) -> Weight:
        """One norm."""
        return Weight(Weights.NORM, 1, width, bias=self.norm == "layer")

    def attention_weights(self, *, cross: bool = False) -> tuple[Weight, ...]:
        """Weights of an attention block, or of cross-attention, its norms included."""
        inner = self._latent_weights(self.latent) if self.latent else self._grouped_weights(cross)
        return (*self._norms(self.norms - self.norms // 2), *inner)

    def feed_forward_weights(self, *, experts: bool) -> tuple[Weight, ...]:
        """Weights of a feed-forward block, its norms included."""
        mixture = self.experts if experts else None
        if mixture is None:
            return (*self._norms(self.norms // 2), *self._mlp_weights(self.ffn))
        router = Weight(Weights.ROUTER, self.hidden, mixture.count, bias=mixture.router_bias)
        shared = self._mlp_weights(mixture.shared_ffn) if mixture.shared_ffn else ()
        gate = (Weight(Weights.ROUTER, self.hidden, 1),) * mixture.shared_gate
        routed = self._mlp_weights(mixture.ffn, "expert", "expert", mixture.count)
        return (*self._norms(self.norms // 2), router, *routed, *shared, *gate)

    def _norms(self, number: int) -> tuple[Weight, ...]:
        """Those of one of a layer's two blocks; where both read one, attention has it."""
        return (self.norm_weight(self.hidden),) * number

    def embedding_weights(self) -> tuple[Weight, ...]:
        """Word and position tables, and the norm behind an encoder."""
        words = Weight(Weights.EMBEDDING, self.vocab, self.hidden, "row")
        tables = (words, Weight(Weights.EMBEDDING, self.positions, self.hidden)) if self.positions else (words,)
        if not self.encoder_layers:
            return tables
        relative = Weight(Weights.EMBEDDING, self.relative_positions, self.heads, "column", self.heads)
        return (*tables, relative, relative, self.norm_weight(self.hidden))

    def head_weights(self) -> tuple[Weight, ...]:
        """Final norm and, unless tied, the head."""
        head = Weight(Weights.HEAD, self.hidden, self.vocab, "column", bias=self.head_bias)
        return (self.norm_weight(self.hidden), *(() if self.tied else (head,)))

    def mtp_weights(self) -> tuple[Weight, ...]:
        """What an MTP module has beside its layer: norms of its two inputs, their projection, the norm of its head.

        Word table and head are the model's.
        """
        norm = self.norm_weight(self.hidden)
        return (norm, norm, Weight(Weights.UP, 2 * self.hidden, self.hidden, "column"), norm)

    def layer_weights(self, kind: LayerKind) -> tuple[Weight, ...]:
        """Every weight of a layer."""
        cross = self.attention_weights(cross=True) if kind.cross else ()
        return (*self.attention_weights(), *cross, *self.feed_forward_weights(experts=kind.experts))

    def _grouped_weights(self, cross: bool) -> Iterator[Weight]:
        width, bias = self.head_dim, self.linear_bias or self.qkv_bias
        yield Weight(Weights.QKV, self.hidden, self.heads * width, "column", self.heads, bias)
        for _ in ("key", "value"):
            size = self.hidden, self.key_heads * width
            yield Weight(Weights.QKV, *size, "column", self.key_heads, bias, behind=cross)
        if self.query_key_norm:
            yield from map(self._head_norm, (self.heads, self.key_heads))
        if self.sinks:
            yield Weight(Weights.NORM, 1, self.heads, "column", self.heads)
        yield self._projection(width)

    def _projection(self, width: int) -> Weight:
        """Of what so many channels of every head say."""
        bias = self.linear_bias or self.projection_bias
        return Weight(Weights.PROJECTION, self.heads * width, self.hidden, "row", self.heads, bias)

    def _head_norm(self, heads: int) -> Weight:
        """The norm of queries or keys, of which there are so many heads."""
        if self.norm_of_all:
            return Weight(Weights.NORM, 1, heads * self.head_dim, "column", heads)
        return Weight(Weights.NORM, 1, self.head_dim)

    def _latent_weights(self, latent: Latent) -> Iterator[Weight]:
        query = self.heads * (latent.nope_size + latent.rope_size)
        if latent.query_rank:
            yield Weight(Weights.QKV, self.hidden, latent.query_rank, bias=self.qkv_bias)
            yield self.norm_weight(latent.query_rank)
        yield Weight(Weights.QKV, latent.query_rank or self.hidden, query, "column", self.heads)
        yield Weight(Weights.QKV, self.hidden, latent.key_value_rank + latent.rope_size, bias=self.qkv_bias)
        yield self.norm_weight(latent.key_value_rank)
        wide = self.heads * (latent.nope_size + latent.value_size)
        yield Weight(Weights.QKV, latent.key_value_rank, wide, "column", self.heads)
        yield self._projection(latent.value_size)

    def _mlp_weights(self, ffn: int, into: Split = "column", out: Split = "row", copies: int = 1) -> Iterator[Weight]:
        up, down = (Weights.EXPERTS,) * 2 if into == "expert" else (Weights.UP, Weights.DOWN)
        bias = self.linear_bias or self.mlp_bias
        for _ in ("gate", "up") if self.gated else ("up",):
            yield Weight(up, self.hidden, ffn, into, bias=bias, copies=copies)
        yield Weight(down, ffn, self.hidden, out, bias=bias, copies=copies)


@lru_cache(maxsize=8192)
def kinds(model: Model, layers: range) -> tuple[tuple[LayerKind, int], ...]:
    """The kinds of some layers, in order of appearance, and how many there are of each."""
    return tuple(Counter(model.kind(layer) for layer in layers).items())


def elements(weights: tuple[Weight, ...], tp: int = 1, *, experts: bool | None = None) -> int:
    """Elements of weights on a tensor-parallel rank, all experts counted; `experts` keeps only those, or the others."""
    kept = (weight for weight in weights if experts is None or (weight.split == "expert") is experts)
    return sum(weight.copies * weight.elements(tp) for weight in kept)


def total_parameters(model: Model, *, active: bool = False) -> int:
    """Parameters of the model without MTP modules; `active` counts of the experts only those that a token sees.

    >>> from simcore.model.presets import model
    >>> total_parameters(model("llama-3-8b"))
    8030261248
    """
    tables, layers = (*model.embedding_weights(), *model.head_weights()), kinds(model, range(model.depth))
    return elements(tables) + sum(count * _kind_parameters(model, kind, active) for kind, count in layers)


def mtp_parameters(model: Model) -> int:
    """Parameters of all MTP modules, those that they share with the model left out."""
    own = kinds(model, range(model.depth, model.depth + model.mtp_layers))
    shared = elements(model.mtp_weights())
    return sum(count * (shared + _kind_parameters(model, kind, active=False)) for kind, count in own)


def _kind_parameters(model: Model, kind: LayerKind, active: bool) -> int:
    weights = model.layer_weights(kind)
    routed = elements(weights, experts=True)
    if active and model.experts is not None:
        routed = routed * model.experts.top_k // model.experts.count
    return elements(weights, experts=False) + routed
