"""The dense feed-forward part, one expert, and the head of the language model."""

from __future__ import annotations

from math import ceil

from simcore.generate.wse.scope import Block, Rows, Scope


def gated(block: Block, shape: tuple[int, int], intermediate: int, source: str) -> Rows:
    """up, gate if there is one, their product (shown as an Add), down on an input [*shape, hidden]."""
    hidden, rows = block.scope.model.hidden, shape[0] * shape[1]
    parts = ("up", "gate") if block.scope.model.gated else ("up",)
    for part in parts:
        yield block.linear(part, (rows, hidden, intermediate), source)
    yield block.move("add", "Add", (*shape, intermediate), *map(block.at, parts))
    yield block.linear("down", (rows, intermediate, hidden), block.at("add"))
    return block.at("down")


def _summed(block: Block, width: int, source: str) -> Rows:
    """All-reduce over the nodes of the cluster."""
    group = block.scope.groups.cluster
    if len(group) == 1:
        return source
    yield block.collective("ar", "AllReduce", (*block.scope.shape[:2], width), group, source)
    return block.at("ar")


def dense(scope: Scope, name: str, source: str) -> Rows:
    """The dense part, its intermediate size split over the nodes that hold the same sequences."""
    block, intermediate = Block(scope, name), ceil(scope.model.ffn / scope.system.cluster_nodes)
    out = yield from gated(block, scope.shape[:2], intermediate, source)
    return (yield from _summed(block, scope.model.hidden, out))


def head(scope: Scope, name: str, source: str) -> Rows:
    """Logits, sharded by vocabulary. The peer adds the shards up (an all-gather would do); kept, for equal bytes."""
    block, width = Block(scope, name), ceil(scope.model.vocab / scope.system.cluster_nodes)
    yield block.linear("head", (scope.tokens, scope.model.hidden, width), source)
    return (yield from _summed(block, width, block.at("head")))
