"""The mixture of experts of one layer on one node: gate, dispatch, experts, combine, sum."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.feed_forward import gated
from simcore.generate.wse.operations import Operation, collective, linear, move, tensor
from simcore.generate.wse.ranks import cluster, own_batches, stage
from simcore.generate.wse.scope import Rows, Scope
from simcore.generate.wse.shapes import Experts
from simcore.generate.wse.transport import TRANSPORTS, Piece, Transport

__all__ = ["mixture"]


def mixture(scope: Scope, experts: Experts, exchange: Exchange, name: str, source: str) -> Rows:
    """Rows of one expert layer, from the output of attention to the output for every token of the cluster.

    Experts are spread over the nodes of the stage (ep), or every node holds a slice of each (tp_ffn).
    """
    shape = (scope.tokens, scope.model.hidden, experts.routed)
    yield linear(scope.node, f"{name}_gate", shape, scope.element_bytes, source)
    kind = _transport(scope)
    transport = TRANSPORTS[kind](scope, exchange, name)
    yield from transport.dispatch(source)
    yield from _experts(scope, experts, exchange, name, transport)
    yield from transport.combine()
    if scope.movement:
        held = {"sliced": range(scope.batch), "allgather": scope.local}.get(kind, scope.own)
        yield from _sums(scope, exchange, name, transport, held)
    out = yield from _rejoined(scope, kind, name)
    return out if len(scope.local) else source


def _rejoined(scope: Scope, kind: str, name: str) -> Rows:
    """Bring the sums of the tokens to the whole cluster."""
    if kind == "sliced":
        return (yield from _slices_summed(scope, name))
    if kind in {"allgather", "none"}:
        return tensor(scope.node, f"{name}_out")
    return (yield from _share(scope, name))


def _transport(scope: Scope) -> str:
    """The name of the transport of this system."""
    if scope.system.tp_ffn > 1:
        return "sliced"
    return scope.system.exchange if scope.system.stage_nodes > 1 else "none"


def _experts(
    scope: Scope, experts: Experts, exchange: Exchange, name: str, transport: Transport
) -> Iterator[Operation]:
    """The routed experts of this node that have tokens, then its copy of the shared expert."""
    place, sliced = scope.node % scope.system.stage_nodes, scope.system.tp_ffn > 1
    width = ceil(experts.intermediate / scope.system.tp_ffn)
    for expert in np.flatnonzero(((exchange.holder == place) | sliced) & (exchange.load > 0)).tolist():
        tokens = exchange.work[expert] if scope.movement else []
        yield from _expert(scope, name, expert, (int(exchange.load[expert]), width), tokens, transport)
    served = np.flatnonzero((exchange.shared == place) | (sliced & (exchange.shared >= 0))).tolist()
    if served:
        tokens = [(sequence, position) for sequence in served for position in range(scope.step.queries)]
        yield from _expert(scope, name, SHARED, (len(tokens), width * experts.shared), tokens, transport)


def _expert(
    scope: Scope, name: str, expert: int, shape: tuple[int, int], tokens: list[Token], transport: Transport
) -> Iterator[Operation]:
    """Gather the tokens, compute, cut the results apart."""
    count, width = shape
    uid = f"{name}_exp_{'shared' if expert == SHARED else expert}"
    node = scope.node
    if scope.movement:
        pieces = {f"{uid}_in_{token[0]}_{token[1]}": transport.arrived(token) for token in tokens}
        yield from _joined(scope, f"{uid}_in", pieces)
    out = yield from gated(scope, uid, (count, 1), width, tensor(node, f"{uid}_in"))
    if scope.movement:
        shape_out = (count, 1, scope.model.hidden)
        for index, (sequence, position) in enumerate(tokens):
            yield move(node, f"{uid}_out_{sequence}_{position}", "Slice", (shape_out, 0, index, index + 1), out)


def _joined(scope: Scope, uid: str, pieces: dict[str, Piece]) -> Iterator[Operation]:
    """One tensor of all pieces, each cut out under its name where it is part of a larger one."""
    node, hidden = scope.node, scope.model.hidden
    for name, (source, vectors, place) in pieces.items():
        if vectors:
            yield move(node, name, "Slice", ((vectors, 1, hidden), 0, place, place + 1), source)
    parts = [tensor(node, name) if piece.vectors else piece.tensor for name, piece in pieces.items()]
    yield move(node, uid, "Concat", (0, (1,) * len(parts), (len(parts), 1, hidden)), *parts)


def _sums(scope: Scope, exchange: Exchange, name: str, transport: Transport, sequences: range) -> Iterator[Operation]:
    """Add up the results of every token and put the tokens back in order."""
    node, hidden, queries = scope.node, scope.model.hidden, scope.step.queries
    if not len(sequences):
        return
    for token in ((sequence, position) for sequence in sequences for position in range(queries)):
        yield from _sum(scope, exchange, name, transport, token)
    for position in range(queries):
        sums = [tensor(node, f"{name}_sum_{sequence}_{position}") for sequence in sequences]
        shape = (0, (1,) * len(sums), (len(sums), 1, hidden))
        yield move(node, f"{name}_out_{position}", "Concat", shape, *sums)
    columns = [tensor(node, f"{name}_out_{position}") for position in range(queries)]
    yield move(node, f"{name}_out", "Concat", (1, (1,) * queries, (len(sequences), queries, hidden)), *columns)


def _sum(scope: Scope, exchange: Exchange, name: str, transport: Transport, token: Token) -> Iterator[Operation]:
    """One token: its vectors from all its experts."""
    node, hidden = scope.node, scope.model.hidden
    label = f"{token[0]}_{token[1]}"
    pieces = {
        f"{name}_res_{label}_{'shared' if expert == SHARED else expert}": transport.returned(token, expert, holder)
        for expert, holder in exchange.results(*token)
    }
    yield from _joined(scope, f"{name}_stack_{label}", pieces)
    shape = (len(pieces), 1, hidden)
    yield move(node, f"{name}_sum_{label}", "Sum", (shape, 0, (1, 1, hidden)), tensor(node, f"{name}_stack_{label}"))


def _share(scope: Scope, name: str) -> Rows:
    """Multicast the node's tokens to the rest of its cluster. The row is there even when nobody or nothing is left."""
    node, queries, hidden = scope.node, scope.step.queries, scope.model.hidden
    group = cluster(scope.system, node)
    others = tuple(other for other in group if other != node)
    shape, uid = (len(scope.own), queries, hidden), f"{name}_multicast_dp"
    held = tensor(node, f"{name}_out") if len(scope.own) else ""
    yield collective(node, uid, "Multicast", shape, scope.element_bytes, others, held)
    yield Operation(f"{name}_barrier_mc", "Barrier", (), group=group)
    if scope.movement and len(scope.local):
        counts = {other: len(own_batches(scope.system, scope.batch, other)) for other in group}
        owners = [other for other in group if counts[other]]
        parts = [tensor(node, f"{name}_out" if other == node else f"{uid}_{other}") for other in owners]
        sizes = tuple(counts[other] for other in owners)
        yield move(node, f"{name}_all", "Concat", (0, sizes, (len(scope.local), queries, hidden)), *parts)
    return tensor(node, f"{name}_all")


def _slices_summed(scope: Scope, name: str) -> Rows:
    """Add the partial results of all tokens up over the stage, keep those of this cluster."""
    node, local = scope.node, scope.local
    shape, group = (scope.batch, scope.step.queries, scope.model.hidden), stage(scope.system, node)
    yield collective(node, f"{name}_ar", "AllReduce", shape, scope.element_bytes, group, tensor(node, f"{name}_out"))
    yield move(node, f"{name}_all", "Slice", (shape, 0, local.start, local.stop), tensor(node, f"{name}_ar"))
    return tensor(node, f"{name}_all")
