"""The mixture of experts of one layer on one node: gate, dispatch, experts, combine, sum."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.feed_forward import gated
from simcore.generate.wse.operations import Operation, Part
from simcore.generate.wse.ranks import cluster, own_batches, stage
from simcore.generate.wse.scope import Block, Rows, Scope, owned
from simcore.generate.wse.transport import TRANSPORTS, Piece, Transport
from simcore.model.shape import Experts


def mixture(scope: Scope, experts: Experts, exchange: Exchange, layer: str, source: str) -> Rows:
    """Rows of one expert layer, from the output of attention to the output for every token of the cluster.

    Experts are spread over the nodes of the stage (ep), or every node holds a slice of each (tp_ffn).
    """
    block, kind = Block(scope, f"{layer}_moe"), _transport(scope)
    yield block.linear("gate", (scope.tokens, scope.model.hidden, experts.count), source)
    transport = TRANSPORTS[kind](scope, block.name, exchange)
    yield from transport.dispatch(source)
    yield from _experts(block, layer, experts, exchange, transport)
    yield from transport.combine()
    if scope.movement:
        held = {"sliced": range(scope.batch), "allgather": scope.local}.get(kind, scope.own)
        yield from _sums(block, exchange, transport, held)
    out = yield from owned(scope, layer, Part.REJOINED, _rejoined(block, kind))
    return out if len(scope.local) else source


def _rejoined(block: Block, kind: str) -> Rows:
    """Bring the sums of the tokens to the whole cluster."""
    if kind == "sliced":
        return (yield from _slices_summed(block))
    if kind in {"allgather", "none"}:
        return block.at("out")
    return (yield from _share(block))


def _transport(scope: Scope) -> str:
    """The name of the transport of this system."""
    if scope.system.tp_ffn > 1:
        return "sliced"
    return scope.system.exchange if scope.system.replica_nodes > 1 else "none"


def _experts(
    block: Block, layer: str, experts: Experts, exchange: Exchange, transport: Transport
) -> Iterator[Operation]:
    """The routed experts of this node that have tokens, then its copy of the shared expert."""
    scope = block.scope
    place, sliced = scope.node % scope.system.replica_nodes, scope.system.tp_ffn > 1
    width, shared = (ceil(ffn / scope.system.tp_ffn) for ffn in (experts.ffn, experts.shared_ffn))
    for expert in np.flatnonzero(((exchange.holder == place) | sliced) & (exchange.load > 0)).tolist():
        tokens = exchange.work[expert] if scope.movement else []
        rows = _expert(block, expert, (int(exchange.load[expert]), width), tokens, transport)
        yield from owned(scope, layer, Part.EXPERT, rows)
    served = np.flatnonzero((exchange.shared == place) | (sliced & (exchange.shared >= 0))).tolist()
    if served:
        positions = range(scope.step.queries)
        tokens = [(exchange.first + sequence, position) for sequence in served for position in positions]
        rows = _expert(block, SHARED, (len(tokens), shared), tokens, transport)
        yield from owned(scope, layer, Part.SHARED, rows)


def _expert(block: Block, expert: int, shape: tuple[int, int], tokens: list[Token], transport: Transport) -> Rows:
    """Gather the tokens, compute, cut the results apart."""
    scope, (count, width) = block.scope, shape
    own = Block(scope, f"{block.name}_exp_{'shared' if expert == SHARED else expert}")
    if scope.movement:
        yield from _joined(own, "in", {f"in_{b}_{s}": transport.arrived((b, s)) for b, s in tokens})
    out = yield from gated(own, (count, 1), width, own.at("in"))
    if scope.movement:
        whole = (count, 1, scope.model.hidden)
        for index, (b, s) in enumerate(tokens):
            yield own.move(f"out_{b}_{s}", "Slice", (whole, 0, index, index + 1), out)
    return out


def _joined(block: Block, uid: str, pieces: dict[str, Piece]) -> Iterator[Operation]:
    """One tensor of all pieces, each cut out under its name where it is part of a larger one."""
    hidden = block.scope.model.hidden
    for name, (source, vectors, place) in pieces.items():
        if vectors:
            yield block.move(name, "Slice", ((vectors, 1, hidden), 0, place, place + 1), source)
    parts = [block.at(name) if piece.vectors else piece.tensor for name, piece in pieces.items()]
    yield block.move(uid, "Concat", (0, (1,) * len(parts), (len(parts), 1, hidden)), *parts)


def _sums(block: Block, exchange: Exchange, transport: Transport, sequences: range) -> Iterator[Operation]:
    """Add up the results of every token and put the tokens back in order."""
    hidden, queries = block.scope.model.hidden, block.scope.step.queries
    if not len(sequences):
        return
    for token in ((sequence, position) for sequence in sequences for position in range(queries)):
        yield from _sum(block, exchange, transport, token)
    for position in range(queries):
        sums = [block.at(f"sum_{sequence}_{position}") for sequence in sequences]
        shape = (0, (1,) * len(sums), (len(sums), 1, hidden))
        yield block.move(f"out_{position}", "Concat", shape, *sums)
    columns = [block.at(f"out_{position}") for position in range(queries)]
    yield block.move("out", "Concat", (1, (1,) * queries, (len(sequences), queries, hidden)), *columns)


def _sum(block: Block, exchange: Exchange, transport: Transport, token: Token) -> Iterator[Operation]:
    """One token: its vectors from all its experts."""
    label = f"{token[0]}_{token[1]}"
    pieces = {
        f"res_{label}_{'shared' if expert == SHARED else expert}": transport.returned(token, expert, holder)
        for expert, holder in exchange.results(*token)
    }
    yield from _joined(block, f"stack_{label}", pieces)
    hidden = block.scope.model.hidden
    shape = ((len(pieces), 1, hidden), 0, (1, 1, hidden))
    yield block.move(f"sum_{label}", "Sum", shape, block.at(f"stack_{label}"))


def _share(block: Block) -> Rows:
    """Multicast the node's tokens to the rest of its cluster. The row is there even when nobody or nothing is left."""
    scope = block.scope
    node, (count, queries, hidden), group = scope.node, scope.shape, cluster(scope.system, scope.node)
    others = tuple(other for other in group if other != node)
    held = block.at("out") if len(scope.own) else ""
    yield block.collective("multicast_dp", "Multicast", (len(scope.own), queries, hidden), others, held)
    yield Operation(f"{block.name}_barrier_mc", "Barrier", (), group=group)
    if scope.movement and count:
        counts = {other: len(own_batches(scope.system, scope.batch, other)) for other in group}
        owners = [other for other in group if counts[other]]
        parts = [block.at("out" if other == node else f"multicast_dp_{other}") for other in owners]
        yield block.move("all", "Concat", (0, tuple(counts[other] for other in owners), scope.shape), *parts)
    return block.at("all")


def _slices_summed(block: Block) -> Rows:
    """Add the partial results of all tokens up over the stage, keep those of this cluster."""
    scope, local = block.scope, block.scope.local
    shape = (scope.batch, *scope.shape[1:])
    yield block.collective("ar", "AllReduce", shape, stage(scope.system, scope.node), block.at("out"))
    yield block.move("all", "Slice", (shape, 0, local.start, local.stop), block.at("ar"))
    return block.at("all")
