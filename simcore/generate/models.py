"""Language models by their shape: every weight with how it is split, shipped models, Hugging Face configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

__all__ = ["Experts", "Latent", "Transformer", "Weight", "elements", "mtp_parameters", "total_parameters"]

Split = Literal["column", "row", "none", "expert"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of `inputs` x `outputs` elements, with a bias or not, or a vector (`inputs` 1).

    `split` says what a tensor-parallel rank holds: some columns, some rows or everything; `units` heads are not cut, so
    with fewer of them than ranks each rank holds one. `copies` experts of this shape are dealt to expert ranks.
    """

    name: str
    inputs: int
    outputs: int
    split: Split = "none"
    units: int = 1
    bias: bool = False
    copies: int = 1

    def elements(self, tp: int = 1) -> int:
        """Elements of one copy on a tensor-parallel rank."""
        share = max(1, ceil(self.units / tp)) / self.units if self.units > 1 else 1 / tp
        held = 1.0 if self.split == "none" else share
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

    The first `dense_layers` layers have none. `router_bias`: a bias per expert that balances their loads.
    """

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    shared_gate: bool = False


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder-only model's shape; sizes in elements.

    `kv_heads` and `head_size` 0 follow from `heads` and `hidden`; `positions` rows of a learned position table (0:
    rotary); `norm` "layer" has a bias, "rms" none; `tied`: the head is the word table. `mtp_layers` modules predict
    further tokens in training (DeepSeek-V3, section 2.2): each has a layer of its own behind the others.
    """

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
    linear_bias: bool = False
    qkv_bias: bool = False
    query_key_norm: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    mtp_layers: int = 0

    @property
    def head_dim(self) -> int:
        """Width of a query head."""
        return self.head_size or self.hidden // self.heads

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    def dense(self, layer: int) -> bool:
        """Whether this layer (counted from 0) has an ordinary feed-forward block."""
        return self.experts is None or layer < self.experts.dense_layers

    def norm_weight(self, width: int, name: str = "norm") -> Weight:
        """One norm."""
        return Weight(name, 1, width, bias=self.norm == "layer")

    def attention_weights(self) -> tuple[Weight, ...]:
        """Weights of an attention block, its norm included."""
        inner = self._latent_weights(self.latent) if self.latent else self._grouped_weights()
        return (self.norm_weight(self.hidden), *inner)

    def feed_forward_weights(self, layer: int) -> tuple[Weight, ...]:
        """Weights of a layer's feed-forward block, its norm included."""
        norm = self.norm_weight(self.hidden)
        if self.dense(layer) or self.experts is None:
            return (norm, *self._mlp_weights(self.ffn))
        return (norm, *self._expert_weights(self.experts))

    def embedding_weights(self) -> tuple[Weight, ...]:
        """Word and position tables."""
        words = Weight("words", self.vocab, self.hidden, "row")
        return (words, Weight("positions", self.positions, self.hidden)) if self.positions else (words,)

    def head_weights(self) -> tuple[Weight, ...]:
        """Final norm and, unless tied, the head."""
        norm = self.norm_weight(self.hidden)
        return (norm,) if self.tied else (norm, Weight("head", self.hidden, self.vocab, "column"))

    def mtp_weights(self) -> tuple[Weight, ...]:
        """What an MTP module has beside its layer: norms of its two inputs, their projection, the norm of its head.

        Word table and head are the model's.
        """
        norm = self.norm_weight(self.hidden)
        return (norm, norm, Weight("combine", 2 * self.hidden, self.hidden, "column"), norm)

    def layer_weights(self, layer: int) -> tuple[Weight, ...]:
        """Every weight of a layer."""
        return (*self.attention_weights(), *self.feed_forward_weights(layer))

    def _grouped_weights(self) -> Iterator[Weight]:
        width, bias = self.head_dim, self.linear_bias or self.qkv_bias
        yield Weight("query", self.hidden, self.heads * width, "column", self.heads, bias)
        for name in ("key", "value"):
            yield Weight(name, self.hidden, self.key_heads * width, "column", self.key_heads, bias)
        if self.query_key_norm:
            yield from (Weight("query_norm", 1, width), Weight("key_norm", 1, width))
        yield Weight("projection", self.heads * width, self.hidden, "row", self.heads, self.linear_bias)

    def _latent_weights(self, latent: Latent) -> Iterator[Weight]:
        query = self.heads * (latent.nope_size + latent.rope_size)
        if latent.query_rank:
            yield Weight("query_down", self.hidden, latent.query_rank)
            yield self.norm_weight(latent.query_rank, "query_norm")
        yield Weight("query_up", latent.query_rank or self.hidden, query, "column", self.heads)
        yield Weight("key_value_down", self.hidden, latent.key_value_rank + latent.rope_size)
        yield self.norm_weight(latent.key_value_rank, "key_value_norm")
        wide = self.heads * (latent.nope_size + latent.value_size)
        yield Weight("key_value_up", latent.key_value_rank, wide, "column", self.heads)
        yield Weight("projection", self.heads * latent.value_size, self.hidden, "row", self.heads, self.linear_bias)

    def _mlp_weights(self, ffn: int, into: Split = "column", out: Split = "row", copies: int = 1) -> Iterator[Weight]:
        for name in ("gate", "up") if self.gated else ("up",):
            yield Weight(name, self.hidden, ffn, into, bias=self.linear_bias, copies=copies)
        yield Weight("down", ffn, self.hidden, out, bias=self.linear_bias, copies=copies)

    def _expert_weights(self, experts: Experts) -> Iterator[Weight]:
        yield Weight("router", self.hidden, experts.count, bias=experts.router_bias)
        yield from self._mlp_weights(experts.ffn, "expert", "expert", experts.count)
        if experts.shared_ffn:
            yield from self._mlp_weights(experts.shared_ffn)
        if experts.shared_gate:
            yield Weight("shared_gate", self.hidden, 1)


def elements(weights: tuple[Weight, ...], tp: int = 1, *, experts: bool | None = None) -> int:
    """Elements of weights on a tensor-parallel rank, all experts counted; `experts` keeps only those, or the others."""
    kept = (weight for weight in weights if experts is None or (weight.split == "expert") is experts)
    return sum(weight.copies * weight.elements(tp) for weight in kept)


def total_parameters(model: Transformer, *, active: bool = False) -> int:
    """Parameters of the model without MTP modules; `active` counts of the experts only those that a token sees.

    >>> from simcore.generate.presets import model
    >>> total_parameters(model("llama-3-8b"))
    8030261248
    """
    tables = elements((*model.embedding_weights(), *model.head_weights()))
    return tables + sum(_layer_parameters(model, layer, active) for layer in range(model.layers))


def mtp_parameters(model: Transformer) -> int:
    """Parameters of all MTP modules, those that they share with the model left out."""
    layers = range(model.layers, model.layers + model.mtp_layers)
    return sum(elements(model.mtp_weights()) + _layer_parameters(model, layer, active=False) for layer in layers)


def _layer_parameters(model: Transformer, layer: int, active: bool) -> int:
    weights = model.layer_weights(layer)
    routed = elements(weights, experts=True)
    if active and model.experts is not None:
        routed = routed * model.experts.top_k // model.experts.count
    return elements(weights, experts=False) + routed
