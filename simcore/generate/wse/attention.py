"""Attention of one layer on one node: latent with absorbed or naive projections, and grouped-query."""

from __future__ import annotations

from functools import partial
from math import ceil

from simcore.generate.wse.operations import Operation, collective, grouped_linear, linear, move, tensor
from simcore.generate.wse.ranks import sp_group, tp_group
from simcore.generate.wse.scope import Rows, Scope
from simcore.generate.wse.shapes import Gqa, Mla

__all__ = ["attention"]


def attention(scope: Scope, layer: str, source: str) -> Rows:
    """Rows from the layer's input to the all-reduced output projection.

    Latent attention absorbs its up-projections in decode and keeps them in prefill, as DeepSeek-V3's own code does.
    """
    shape = scope.model.attention
    if isinstance(shape, Gqa):
        return (yield from _gqa(scope, shape, f"{layer}_attn", source))
    if scope.step.prefill:
        return (yield from _naive(scope, shape, f"{layer}_attn_naive", source))
    return (yield from _absorb(scope, shape, f"{layer}_attn_absorb", source))


def _part(node: int, name: str, uid: str) -> str:
    """The tensor that a row of this attention leaves."""
    return tensor(node, f"{name}_{uid}")


def _queries(scope: Scope, shape: Mla, name: str, outer: int, source: str) -> Rows:
    """The query projection, in two steps when the queries are compressed."""
    node, hidden, tokens, y = scope.node, scope.model.hidden, scope.tokens, scope.element_bytes
    if not shape.q_lora:
        yield linear(node, f"{name}_wq", (tokens, hidden, outer), y, source)
        return tensor(node, f"{name}_wq")
    yield linear(node, f"{name}_wqa", (tokens, hidden, shape.q_lora), y, source)
    yield linear(node, f"{name}_wqb", (tokens, shape.q_lora, outer), y, tensor(node, f"{name}_wqa"))
    return tensor(node, f"{name}_wqb")


def _output(scope: Scope, uid: str, all_reduce: str, inner: int, source: str) -> Rows:
    """The output projection and its sum over the tensor parallel group."""
    node, hidden = scope.node, scope.model.hidden
    yield linear(node, uid, (scope.tokens, inner, hidden), scope.element_bytes, source)
    if scope.system.tp == 1:
        return tensor(node, uid)
    shape = (len(scope.local), scope.step.queries, hidden)
    group = tp_group(scope.system, node)
    yield collective(node, all_reduce, "AllReduce", shape, scope.element_bytes, group, tensor(node, uid))
    return tensor(node, all_reduce)


def _sequence_sum(scope: Scope, uid: str, heads: int, width: int, source: str) -> Rows:
    """Join the parts of the scores that sequence parallel nodes computed."""
    if scope.system.sp == 1:
        return source
    node, batch, queries = scope.node, len(scope.local), scope.step.queries
    flat, out = f"{uid}_view_in", f"{uid}_view_out"
    shape, deep = (batch, queries, heads * width), (batch, queries, heads, width)
    yield move(node, flat, "View", (deep, shape), source)
    yield collective(
        node, uid, "AllReduce", shape, scope.element_bytes, sp_group(scope.system, node), tensor(node, flat)
    )
    yield move(node, out, "View", (shape, deep), tensor(node, uid))
    return tensor(node, out)


def _absorb(scope: Scope, shape: Mla, name: str, source: str) -> Rows:
    """Decode: queries are projected into the latent space, so that the cache is read once for all heads."""
    node, y, tokens, hidden = scope.node, scope.element_bytes, scope.tokens, scope.model.hidden
    heads = ceil(shape.heads / scope.system.tp)
    place = partial(_part, node, name)
    whole = (len(scope.local), scope.step.queries, hidden)
    yield move(node, f"{name}_view_in", "View", (whole, (tokens, hidden)), source)
    yield linear(node, f"{name}_wkva", (tokens, hidden, shape.kv_lora + shape.rope), y, place("view_in"))
    projected = yield from _queries(scope, shape, name, heads * (shape.nope + shape.rope), place("view_in"))
    absorbed = yield from _absorbed_queries(scope, shape, name, heads, projected)
    yield _latent_attention(scope, shape, name, heads, absorbed)
    out = yield from _sequence_sum(scope, f"{name}_ar_sp", heads, shape.kv_lora, place("absorbattn"))
    values = yield from _values(scope, shape, name, heads, out)
    return (yield from _output(scope, f"{name}_wo", f"{name}_ar_tp", heads * shape.value, values))


def _absorbed_queries(scope: Scope, shape: Mla, name: str, heads: int, source: str) -> Rows:
    """Bring the queries into the latent space, head by head, and put the rotary part beside them."""
    node, tokens, both = scope.node, scope.tokens, shape.nope + shape.rope
    deep = (len(scope.local), scope.step.queries, heads)
    place = partial(_part, node, name)
    cut = (2, (shape.nope, shape.rope), (tokens, heads, both))
    latent = (heads, tokens, shape.kv_lora)
    turned = (tokens, heads, shape.kv_lora)
    yield move(node, f"{name}_view_wqb", "View", ((tokens, heads * both), (tokens, heads, both)), source)
    parts = (place("split_q_0"), place("split_q_1"))
    yield Operation(f"{name}_split_q", "Split", cut, (place("view_wqb"),), parts)
    yield move(node, f"{name}_transpose_nope", "Transpose", ((0, 1), (tokens, heads, shape.nope)), parts[0])
    yield move(node, f"{name}_view_rope", "View", ((tokens, heads, shape.rope), (*deep, shape.rope)), parts[1])
    product = (heads, tokens, shape.nope, shape.kv_lora)
    yield grouped_linear(node, f"{name}_wkvb1", product, scope.element_bytes, place("transpose_nope"))
    yield move(node, f"{name}_transpose_q", "Transpose", ((0, 1), latent), place("wkvb1"))
    yield move(node, f"{name}_view_q", "View", (turned, (*deep, shape.kv_lora)), place("transpose_q"))
    joined = (3, (shape.kv_lora, shape.rope), (*deep, shape.kv_lora + shape.rope))
    yield move(node, f"{name}_concat_q", "Concat", joined, place("view_q"), place("view_rope"))
    return place("concat_q")


def _latent_attention(scope: Scope, shape: Mla, name: str, heads: int, source: str) -> Operation:
    """Scores and values on the latent cache, which all heads share: tensor parallelism does not divide it."""
    batch, queries, cached = len(scope.local), scope.step.queries, ceil(scope.step.context / scope.system.sp)
    size = batch * cached * (shape.kv_lora + shape.rope) * scope.element_bytes
    return Operation(
        uid=f"{name}_absorbattn",
        kind="MLAAbsorbAttention",
        shape=(batch, heads, cached, shape.kv_lora, shape.rope, queries),
        inputs=(source,),
        outputs=(_part(scope.node, name, "absorbattn"),),
        macs=batch * cached * heads * (2 * shape.kv_lora + shape.rope) * queries,
        memory_bytes=size,
        hbm_bytes=size,
    )


def _values(scope: Scope, shape: Mla, name: str, heads: int, source: str) -> Rows:
    """From the latent space back to the values of every head."""
    node, tokens = scope.node, scope.tokens
    latent, value = (tokens, heads, shape.kv_lora), (heads, tokens, shape.value)
    place = partial(_part, node, name)
    deep = (len(scope.local), scope.step.queries, heads, shape.kv_lora)
    yield move(node, f"{name}_view_o", "View", (deep, latent), source)
    yield move(node, f"{name}_transpose_o", "Transpose", ((0, 1), latent), place("view_o"))
    product = (heads, tokens, shape.kv_lora, shape.value)
    yield grouped_linear(node, f"{name}_wkvb2", product, scope.element_bytes, place("transpose_o"))
    yield move(node, f"{name}_transpose_v", "Transpose", ((0, 1), value), place("wkvb2"))
    flat = ((tokens, heads, shape.value), (tokens, heads * shape.value))
    yield move(node, f"{name}_view_v", "View", flat, place("transpose_v"))
    return place("view_v")


def _naive(scope: Scope, shape: Mla, name: str, source: str) -> Rows:
    """Prefill: keys and values are expanded for every head; the positions of the scores are split over sp."""
    node, y, tokens, hidden = scope.node, scope.element_bytes, scope.tokens, scope.model.hidden
    batch, queries = len(scope.local), scope.step.queries
    heads = ceil(shape.heads / scope.system.tp)
    scored = ceil(queries / scope.system.sp)
    key, wide = shape.nope + shape.rope, shape.nope + shape.value
    latent = shape.kv_lora + shape.rope
    place = partial(_part, node, name)
    yield move(node, f"{name}_view_in", "View", ((batch, queries, hidden), (tokens, hidden)), source)
    yield linear(node, f"{name}_wkva", (tokens, hidden, latent), y, place("view_in"))
    cut = (1, (shape.kv_lora, shape.rope), (tokens, latent))
    yield Operation(f"{name}_split_kv", "Split", cut, (place("wkva"),), (place("split_kv_0"), place("split_kv_1")))
    yield linear(node, f"{name}_wkvb", (tokens, shape.kv_lora, heads * wide), y, place("split_kv_0"))
    projected = yield from _queries(scope, shape, name, heads * key, place("view_in"))
    yield from _naive_heads(scope, shape, name, heads, projected)
    yield Operation(
        uid=f"{name}_naiveattn",
        kind="MLANaiveAttention",
        shape=(batch, queries, heads, key, scored, shape.value),
        inputs=(place("view_q"), place("concat_k"), place("split_k_1")),
        outputs=(place("naiveattn"),),
        macs=batch * scored * heads * (key + shape.value) * queries,
    )
    summed = yield from _sequence_sum(scope, f"{name}_ar_sp", heads, shape.value, place("naiveattn"))
    deep = (batch, queries, heads, shape.value)
    yield move(node, f"{name}_view_o", "View", (deep, (tokens, heads * shape.value)), summed)
    return (yield from _output(scope, f"{name}_wo", f"{name}_ar_tp", heads * shape.value, place("view_o")))


def _naive_heads(scope: Scope, shape: Mla, name: str, heads: int, projected: str) -> Rows:
    """Queries, keys and values with heads of their own; all heads share the rotary part of the key."""
    node, tokens, batch, queries = scope.node, scope.tokens, len(scope.local), scope.step.queries
    key, wide = shape.nope + shape.rope, shape.nope + shape.value
    place = partial(_part, node, name)
    deep = (batch, queries, heads, wide)
    yield move(node, f"{name}_view_kv", "View", ((tokens, heads * wide), deep), place("wkvb"))
    outputs = (place("split_k_0"), place("split_k_1"))
    yield Operation(f"{name}_split_k", "Split", (3, (shape.nope, shape.value), deep), (place("view_kv"),), outputs)
    yield move(node, f"{name}_view_q", "View", ((tokens, heads * key), (batch, queries, heads, key)), projected)
    repeated = (2, (1,) * heads, (batch, queries, heads, shape.rope))
    yield move(node, f"{name}_concat_rope", "Concat", repeated, *[place("split_kv_1")] * heads)
    joined = (3, (shape.nope, shape.rope), (batch, queries, heads, key))
    yield move(node, f"{name}_concat_k", "Concat", joined, place("split_k_0"), place("concat_rope"))
    return place("concat_k")


def _gqa(scope: Scope, shape: Gqa, name: str, source: str) -> Rows:
    """Grouped-query attention; with more nodes than heads of keys, these are repeated."""
    node, y, tokens, hidden = scope.node, scope.element_bytes, scope.tokens, scope.model.hidden
    batch, queries, system = len(scope.local), scope.step.queries, scope.system
    heads, kv_heads = ceil(shape.heads / system.tp), ceil(shape.kv_heads / system.tp)
    cached = ceil(scope.step.context / system.sp)
    scored = ceil(queries / system.sp) if scope.step.prefill else cached
    place = partial(_part, node, name)
    for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        yield linear(node, f"{name}_{part}proj", (tokens, hidden, count * shape.head_dim), y, source)
    deep = (batch, queries, heads, shape.head_dim)
    yield move(node, f"{name}_view_q", "View", ((tokens, heads * shape.head_dim), deep), place("qproj"))
    size = 0 if scope.step.prefill else 2 * batch * cached * kv_heads * shape.head_dim * y
    yield Operation(
        uid=f"{name}_selfattn",
        kind="SelfAttention",
        shape=(batch, queries if scope.step.prefill else 1, heads, shape.head_dim, scored, kv_heads, queries),
        inputs=(place("view_q"), place("kproj"), place("vproj")),
        outputs=(place("selfattn"),),
        macs=2 * batch * scored * heads * shape.head_dim * queries,
        memory_bytes=size,
        hbm_bytes=size,
    )
    flat, joined = f"{name}_view_o", place("selfattn")
    yield move(node, flat, "View", (deep, (batch, queries, heads * shape.head_dim)), joined)
    joined = tensor(node, flat)
    if system.sp > 1:
        shape_out, group = (batch, queries, heads * shape.head_dim), sp_group(system, node)
        yield collective(node, f"{name}_ar_sp", "AllReduce", shape_out, y, group, joined)
        joined = place("ar_sp")
    return (yield from _output(scope, f"{name}_oproj", f"{name}_ar_tp", heads * shape.head_dim, joined))
