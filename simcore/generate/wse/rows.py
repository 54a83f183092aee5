"""The parts of a layer on one node that rows.txt lists: attention of three kinds, the feed-forward part, the head."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from math import ceil, prod
from typing import Any

from simcore.generate.wse.operations import ATTENTION, Block, Operation, Rows, Scope
from simcore.library import table

Sizes = tuple[tuple[str, int], ...]
PARTS = table(__file__, "rows.txt", 6)


def part(block: Block, name: str, source: str, has: Collection[str] = (), **sizes: int) -> Rows:
    """The rows of a part, some of which are there only where it `has` something, in its `sizes`."""
    scope, last = block.scope, source
    known = dict(zip(("batch", "queries", "hidden"), scope.shape, strict=True)) | {"tokens": scope.tokens} | sizes
    for uid, kind, numbers, inputs, when in _numbered(name, frozenset(has), tuple(known.items())):
        held = [{".": last, "source": source}.get(each) or block.at(each) for each in inputs]
        if kind == "Linear":
            yield block.linear(uid, numbers, *held)
        elif kind == "AllReduce":
            yield block.collective(uid, kind, numbers, getattr(scope.groups, when), *held)
        elif kind in ATTENTION:
            shape, (macs,), (read,) = numbers
            size = read * scope.element_bytes
            yield Operation(f"{block.name}_{uid}", kind, shape, tuple(held), (block.at(uid),), macs, size, size)
        else:
            row = block.move(uid, kind, numbers, *held)
            yield row._replace(outputs=(f"{row.outputs[0]}_0", f"{row.outputs[0]}_1")) if kind == "Split" else row
        last = block.at(uid)
    return last


@lru_cache(maxsize=4096)
def _numbered(name: str, has: frozenset[str], sizes: Sizes) -> list[tuple[str, str, Any, list[str], str]]:
    """Row, kind, numbers, inputs and condition of each row of a part."""
    own = [row for row in PARTS if row[0] == name and row[1] in {"-", *has}]
    missing = {row[2] for row in PARTS if row[0] == name} - {row[2] for row in own}
    known, made = dict(sizes), []
    for _, when, uid, kind, text, inputs in own:
        parts = [_part(words.split(), known) for words in text.split("|")]
        if kind in {"Split", "Concat"}:  # along an axis
            parts[0] = parts[0][0]
        wanted = [each for word in inputs.split() for each in _repeated(word, known) if each not in missing]
        made.append((uid, kind, parts[0] if len(parts) == 1 else tuple(parts), wanted, when))
    return made


def _part(words: list[str], known: dict[str, int]) -> Any:
    """Numbers, each a product."""
    every = (each for word in words for each in _repeated(word, known))
    return tuple(prod(known[size] if size in known else int(size) for size in each.split("*")) for each in every)


def _repeated(word: str, known: dict[str, int]) -> list[str]:
    """`word^size` so many times."""
    once, _, times = word.partition("^")
    return [once] * (known[times] if times else 1)


def _several(scope: Scope, *groups: str) -> set[str]:
    """Those of some groups that have several nodes."""
    return {group for group in groups if len(getattr(scope.groups, group)) > 1}


def attention(scope: Scope, layer: str, source: str) -> Rows:
    """Rows from the layer's input to the all-reduced output projection; the feed-forward part beside it sums for both.

    Latent attention absorbs its up-projections in decode and keeps them in prefill, as DeepSeek-V3's own code does.
    With more nodes than heads of keys, those of grouped attention are repeated.
    """
    model, system, step, shape = scope.model, scope.system, scope.step, scope.model.latent
    has = _several(scope, "sp") if scope.beside(layer) else _several(scope, "tp", "sp")
    heads = ceil(model.heads / system.tp)
    if shape is None:
        window = scope.window(layer)
        cached = ceil(min(step.context, window) / system.sp)
        scored = ceil(min(step.queries, window) / system.sp) if step.prefill else cached
        sizes = {"width": model.head_dim, "kv_heads": ceil(model.key_heads / system.tp), "scored": scored}
        sizes |= {"asked": step.queries, "cached": 0} if step.prefill else {"asked": 1, "cached": cached}
        return (yield from part(Block(scope, f"{layer}_attn"), "grouped", source, has, heads=heads, **sizes))
    rank, rope, nope, value = shape.key_value_rank, shape.rope_size, shape.nope_size, shape.value_size
    sizes = {"rank": rank, "rope": rope, "nope": nope, "value": value, "query_rank": shape.query_rank}
    sizes |= {"key": nope + rope, "wide": nope + value, "wider": nope + rope + value, "latent": rank + rope}
    cached, scored = (ceil(positions / system.sp) for positions in (step.context, step.queries))
    sizes |= {"scoring": 2 * rank + rope, "cached": cached, "scored": scored, "heads": heads}
    has.add("compressed" if shape.query_rank else "plain")
    kind = "naive" if step.prefill else "absorb"
    return (yield from part(Block(scope, f"{layer}_attn_{kind}"), kind, source, has, **sizes))


def gated(block: Block, intermediate: int, source: str, *has: str, **sizes: int) -> Rows:
    """up, gate if there is one, their product, down; on all tokens of the node, or on other `sizes`."""
    gate = ["gate"] * block.scope.model.gated
    return part(block, "gated", source, [*has, *gate], width=intermediate, **sizes)


def dense(scope: Scope, name: str, source: str) -> Rows:
    """The dense part, its intermediate size split over the nodes that hold the same sequences."""
    width = ceil(scope.model.ffn / scope.system.cluster_nodes)
    return gated(Block(scope, name), width, source, *_several(scope, "cluster"))


def head(scope: Scope, name: str, source: str) -> Rows:
    """The head of the language model, which every node has for a part of the vocabulary."""
    width = ceil(scope.model.vocab / scope.system.cluster_nodes)
    return part(Block(scope, name), "head", source, _several(scope, "cluster"), width=width)
