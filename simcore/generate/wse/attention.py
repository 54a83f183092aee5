"""Attention of one layer on one node: latent with absorbed or naive projections, and grouped-query."""

from __future__ import annotations

from math import ceil

from simcore.generate.wse.operations import Operation
from simcore.generate.wse.scope import Block, Rows, Scope
from simcore.model.shape import Latent


def attention(scope: Scope, layer: str, source: str) -> Rows:
    """Rows from the layer's input to the all-reduced output projection.

    Latent attention absorbs its up-projections in decode and keeps them in prefill, as DeepSeek-V3's own code does.
    """
    shape, heads = scope.model.latent, ceil(scope.model.heads / scope.system.tp)
    if shape is None:
        return (yield from _grouped(Block(scope, f"{layer}_attn"), heads, scope.window(layer), source))
    if scope.step.prefill:
        return (yield from _naive(Block(scope, f"{layer}_attn_naive"), shape, heads, source))
    return (yield from _absorb(Block(scope, f"{layer}_attn_absorb"), shape, heads, source))


def _queries(block: Block, shape: Latent, outer: int, source: str) -> Rows:
    """The query projection, in two steps when the queries are compressed."""
    tokens, hidden = block.scope.tokens, block.scope.model.hidden
    if not shape.query_rank:
        yield block.linear("wq", (tokens, hidden, outer), source)
        return block.at("wq")
    yield block.linear("wqa", (tokens, hidden, shape.query_rank), source)
    yield block.linear("wqb", (tokens, shape.query_rank, outer), block.at("wqa"))
    return block.at("wqb")


def _output(block: Block, uid: str, inner: int, source: str) -> Rows:
    """The output projection and its sum over the tensor parallel group."""
    scope = block.scope
    yield block.linear(uid, (scope.tokens, inner, scope.model.hidden), source)
    if scope.system.tp == 1:
        return block.at(uid)
    yield block.collective("ar_tp", "AllReduce", scope.shape, scope.groups.tp, block.at(uid))
    return block.at("ar_tp")


def _sequence_sum(block: Block, heads: int, width: int, source: str) -> Rows:
    """Join the parts of the scores that sequence parallel nodes computed."""
    scope = block.scope
    if scope.system.sp == 1:
        return source
    batch, queries, _ = scope.shape
    shape, deep = (batch, queries, heads * width), (batch, queries, heads, width)
    yield block.move("ar_sp_view_in", "View", (deep, shape), source)
    yield block.collective("ar_sp", "AllReduce", shape, scope.groups.sp, block.at("ar_sp_view_in"))
    yield block.move("ar_sp_view_out", "View", (shape, deep), block.at("ar_sp"))
    return block.at("ar_sp_view_out")


def _absorb(block: Block, shape: Latent, heads: int, source: str) -> Rows:
    """Decode: queries are projected into the latent space, so that the cache is read once for all heads."""
    tokens, hidden = block.scope.tokens, block.scope.model.hidden
    yield block.move("view_in", "View", (block.scope.shape, (tokens, hidden)), source)
    yield block.linear("wkva", (tokens, hidden, shape.key_value_rank + shape.rope_size), block.at("view_in"))
    projected = yield from _queries(block, shape, heads * (shape.nope_size + shape.rope_size), block.at("view_in"))
    absorbed = yield from _absorbed_queries(block, shape, heads, projected)
    yield _latent_attention(block, shape, heads, absorbed)
    out = yield from _sequence_sum(block, heads, shape.key_value_rank, block.at("absorbattn"))
    values = yield from _values(block, shape, heads, out)
    return (yield from _output(block, "wo", heads * shape.value_size, values))


def _absorbed_queries(block: Block, shape: Latent, heads: int, source: str) -> Rows:
    """Bring the queries into the latent space, head by head, and put the rotary part beside them."""
    tokens, both, at = block.scope.tokens, shape.nope_size + shape.rope_size, block.at
    deep, rank = (*block.scope.shape[:2], heads), shape.key_value_rank
    yield block.move("view_wqb", "View", ((tokens, heads * both), (tokens, heads, both)), source)
    cut, parts = (2, (shape.nope_size, shape.rope_size), (tokens, heads, both)), (at("split_q_0"), at("split_q_1"))
    yield Operation(f"{block.name}_split_q", "Split", cut, (at("view_wqb"),), parts)
    yield block.move("transpose_nope", "Transpose", ((0, 1), (tokens, heads, shape.nope_size)), parts[0])
    yield block.move("view_rope", "View", ((tokens, heads, shape.rope_size), (*deep, shape.rope_size)), parts[1])
    yield block.linear("wkvb1", (heads, tokens, shape.nope_size, rank), at("transpose_nope"))
    yield block.move("transpose_q", "Transpose", ((0, 1), (heads, tokens, rank)), at("wkvb1"))
    yield block.move("view_q", "View", ((tokens, heads, rank), (*deep, rank)), at("transpose_q"))
    joined = (3, (rank, shape.rope_size), (*deep, rank + shape.rope_size))
    yield block.move("concat_q", "Concat", joined, at("view_q"), at("view_rope"))
    return at("concat_q")


def _latent_attention(block: Block, shape: Latent, heads: int, source: str) -> Operation:
    """Scores and values on the latent cache, which all heads share: tensor parallelism does not divide it."""
    scope = block.scope
    batch, queries, cached = *scope.shape[:2], ceil(scope.step.context / scope.system.sp)
    size = batch * cached * (shape.key_value_rank + shape.rope_size) * scope.element_bytes
    return Operation(
        uid=f"{block.name}_absorbattn",
        kind="MLAAbsorbAttention",
        shape=(batch, heads, cached, shape.key_value_rank, shape.rope_size, queries),
        inputs=(source,),
        outputs=(block.at("absorbattn"),),
        macs=batch * cached * heads * (2 * shape.key_value_rank + shape.rope_size) * queries,
        memory_bytes=size,
        hbm_bytes=size,
    )


def _values(block: Block, shape: Latent, heads: int, source: str) -> Rows:
    """From the latent space back to the values of every head."""
    tokens, latent, value, at = block.scope.tokens, shape.key_value_rank, shape.value_size, block.at
    deep = (*block.scope.shape[:2], heads, latent)
    yield block.move("view_o", "View", (deep, (tokens, heads, latent)), source)
    yield block.move("transpose_o", "Transpose", ((0, 1), (tokens, heads, latent)), at("view_o"))
    yield block.linear("wkvb2", (heads, tokens, latent, value), at("transpose_o"))
    yield block.move("transpose_v", "Transpose", ((0, 1), (heads, tokens, value)), at("wkvb2"))
    yield block.move("view_v", "View", ((tokens, heads, value), (tokens, heads * value)), at("transpose_v"))
    return at("view_v")


def _naive(block: Block, shape: Latent, heads: int, source: str) -> Rows:
    """Prefill: keys and values are expanded for every head; the positions of the scores are split over sp."""
    tokens, at, (batch, queries, hidden) = block.scope.tokens, block.at, block.scope.shape
    scored = ceil(queries / block.scope.system.sp)
    key, wide = shape.nope_size + shape.rope_size, shape.nope_size + shape.value_size
    latent = shape.key_value_rank + shape.rope_size
    yield block.move("view_in", "View", ((batch, queries, hidden), (tokens, hidden)), source)
    yield block.linear("wkva", (tokens, hidden, latent), at("view_in"))
    cut, parts = (1, (shape.key_value_rank, shape.rope_size), (tokens, latent)), (at("split_kv_0"), at("split_kv_1"))
    yield Operation(f"{block.name}_split_kv", "Split", cut, (at("wkva"),), parts)
    yield block.linear("wkvb", (tokens, shape.key_value_rank, heads * wide), parts[0])
    projected = yield from _queries(block, shape, heads * key, at("view_in"))
    yield from _naive_heads(block, shape, heads, projected)
    yield Operation(
        uid=f"{block.name}_naiveattn",
        kind="MLANaiveAttention",
        shape=(batch, queries, heads, key, scored, shape.value_size),
        inputs=(at("view_q"), at("concat_k"), at("split_k_1")),
        outputs=(at("naiveattn"),),
        macs=batch * scored * heads * (key + shape.value_size) * queries,
    )
    summed = yield from _sequence_sum(block, heads, shape.value_size, at("naiveattn"))
    deep = (batch, queries, heads, shape.value_size)
    yield block.move("view_o", "View", (deep, (tokens, heads * shape.value_size)), summed)
    return (yield from _output(block, "wo", heads * shape.value_size, at("view_o")))


def _naive_heads(block: Block, shape: Latent, heads: int, projected: str) -> Rows:
    """Queries, keys and values with heads of their own; all heads share the rotary part of the key."""
    tokens, at, each = block.scope.tokens, block.at, (*block.scope.shape[:2], heads)
    key, wide = shape.nope_size + shape.rope_size, shape.nope_size + shape.value_size
    yield block.move("view_kv", "View", ((tokens, heads * wide), (*each, wide)), at("wkvb"))
    cut, parts = (3, (shape.nope_size, shape.value_size), (*each, wide)), (at("split_k_0"), at("split_k_1"))
    yield Operation(f"{block.name}_split_k", "Split", cut, (at("view_kv"),), parts)
    yield block.move("view_q", "View", ((tokens, heads * key), (*each, key)), projected)
    repeated = (2, (1,) * heads, (*each, shape.rope_size))
    yield block.move("concat_rope", "Concat", repeated, *[at("split_kv_1")] * heads)
    joined = (3, (shape.nope_size, shape.rope_size), (*each, key))
    yield block.move("concat_k", "Concat", joined, parts[0], at("concat_rope"))
    return at("concat_k")


def _grouped(block: Block, heads: int, window: int, source: str) -> Rows:
    """Grouped-query attention; with more nodes than heads of keys, these are repeated. `window`: positions it sees."""
    scope, at, width = block.scope, block.at, block.scope.model.head_dim
    tokens, system, prefill, (batch, queries, hidden) = scope.tokens, scope.system, scope.step.prefill, scope.shape
    kv_heads, cached = ceil(scope.model.key_heads / system.tp), ceil(min(scope.step.context, window) / system.sp)
    scored = ceil(min(queries, window) / system.sp) if prefill else cached
    for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        yield block.linear(f"{part}proj", (tokens, hidden, count * width), source)
    deep, flat = (batch, queries, heads, width), (batch, queries, heads * width)
    yield block.move("view_q", "View", ((tokens, heads * width), deep), at("qproj"))
    size = 0 if prefill else 2 * batch * cached * kv_heads * width * scope.element_bytes
    yield Operation(
        uid=f"{block.name}_selfattn",
        kind="SelfAttention",
        shape=(batch, queries if prefill else 1, heads, width, scored, kv_heads, queries),
        inputs=(at("view_q"), at("kproj"), at("vproj")),
        outputs=(at("selfattn"),),
        macs=2 * batch * scored * heads * width * queries,
        memory_bytes=size,
        hbm_bytes=size,
    )
    yield block.move("view_o", "View", (deep, flat), at("selfattn"))
    joined = at("view_o")
    if system.sp > 1:
        yield block.collective("ar_sp", "AllReduce", flat, scope.groups.sp, joined)
        joined = at("ar_sp")
    return (yield from _output(block, "oproj", heads * width, joined))
