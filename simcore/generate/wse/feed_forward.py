"""The dense feed-forward part, one expert, and the head of the language model."""

from __future__ import annotations

from math import ceil

from simcore.generate.wse.operations import collective, linear, move, tensor
from simcore.generate.wse.ranks import cluster
from simcore.generate.wse.scope import Rows, Scope

__all__ = ["dense", "gated", "head"]


def gated(scope: Scope, name: str, shape: tuple[int, ...], intermediate: int, source: str) -> Rows:
    """up, gate, their product, down on an input of `shape` [..., hidden]; the shape of the product is shown as an
    Add.
    """
    node, y, hidden = scope.node, scope.element_bytes, scope.model.hidden
    rows = shape[0] * shape[1]
    for part in ("up", "gate"):
        yield linear(node, f"{name}_{part}", (rows, hidden, intermediate), y, source)
    parts = (tensor(node, f"{name}_up"), tensor(node, f"{name}_gate"))
    yield move(node, f"{name}_add", "Add", (*shape, intermediate), *parts)
    yield linear(node, f"{name}_down", (rows, intermediate, hidden), y, tensor(node, f"{name}_add"))
    return tensor(node, f"{name}_down")


def _summed(scope: Scope, uid: str, width: int, source: str) -> Rows:
    """All-reduce over the nodes of the cluster."""
    group = cluster(scope.system, scope.node)
    if len(group) == 1:
        return source
    shape = (len(scope.local), scope.step.queries, width)
    yield collective(scope.node, uid, "AllReduce", shape, scope.element_bytes, group, source)
    return tensor(scope.node, uid)


def dense(scope: Scope, name: str, source: str) -> Rows:
    """The dense part, its intermediate size split over the nodes that hold the same sequences."""
    intermediate = ceil(scope.model.intermediate / scope.system.cluster_nodes)
    out = yield from gated(scope, name, (len(scope.local), scope.step.queries), intermediate, source)
    return (yield from _summed(scope, f"{name}_ar", scope.model.hidden, out))


def head(scope: Scope, name: str, source: str) -> Rows:
    """Logits, sharded by vocabulary. The peer adds the shards up (an all-gather would do); kept, for equal bytes."""
    width = ceil(scope.model.vocabulary / scope.system.cluster_nodes)
    shape = (scope.tokens, scope.model.hidden, width)
    yield linear(scope.node, f"{name}_head", shape, scope.element_bytes, source)
    return (yield from _summed(scope, f"{name}_ar", width, tensor(scope.node, f"{name}_head")))
