"""A model as the kernels see it: `simcore.compute`'s description of a model of `simcore.generate`."""

from __future__ import annotations

from dataclasses import replace

from simcore.compute.operations import Transformer as Shape
from simcore.generate.models import Transformer

__all__ = ["kernel_shape"]


def kernel_shape(model: Transformer, seq: int, vocab: int = 0) -> Shape:
    """The shape at `seq` tokens, with the vocabulary padded to `vocab`.

    There tensor ranks split experts; where fewer do, a rank has that many fewer tokens: the same work in another shape.
    """
    latent, experts = model.latent, model.experts
    shape = Shape(
        model.layers,
        model.hidden,
        model.heads,
        model.ffn,
        vocab or model.vocab,
        seq,
        kv_heads=model.key_heads,
        head_size=latent.nope_size + latent.rope_size if latent else model.head_dim,
        gated=model.gated,
        tied=model.tied,
        learned_positions=bool(model.positions),
    )
    if latent is not None:
        shape = replace(
            shape,
            query_rank=latent.query_rank,
            key_value_rank=latent.key_value_rank,
            rope_size=latent.rope_size,
            value_size=latent.value_size,
        )
    if experts is not None:
        shape = replace(
            shape,
            experts=experts.count,
            top_k=experts.top_k,
            expert_ffn=experts.ffn,
            shared_ffn=experts.shared_ffn,
            dense_layers=experts.dense_layers,
        )
    return shape
