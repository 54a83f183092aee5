"""The mixture of experts of one layer on one node: gate, dispatch, experts, combine, sum."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.operations import Block, Operation, Part, Rows, Scope, owned
from simcore.generate.wse.rows import gated
from simcore.generate.wse.transport import TRANSPORTS, Piece, Transport
from simcore.model.shape import Experts


def mixture(scope: Scope, experts: Experts, exchange: Exchange, layer: str, source: str) -> Rows:
    """Rows of one expert layer, from the output of attention to the output for every token of the cluster.

    Experts are spread over the nodes of the stage (ep), or every node holds a slice of each (tp_ffn).
    """
    block, system = Block(scope, f"{layer}_moe"), scope.system
    kind = "sliced" if system.tp_ffn > 1 else system.exchange if system.replica_nodes > 1 else "none"
    yield block.linear("gate", (scope.tokens, scope.model.hidden, experts.count), source)
    transport = TRANSPORTS[kind](scope, block.name, exchange)
    yield from transport.dispatch(source)
    yield from _experts(block, layer, experts, exchange, transport)
    yield from transport.combine()
    if scope.movement:
        yield from _sums(block, exchange, transport)
    out = yield from owned(scope, layer, Part.REJOINED, transport.rejoined())
    return out if len(scope.local) else source


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
    out = yield from gated(own, width, own.at("in"), tokens=count, batch=count, queries=1)
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


def _sums(block: Block, exchange: Exchange, transport: Transport) -> Iterator[Operation]:
    """Add up the results of every token, its vectors from all its experts, and put the tokens back in order."""
    hidden, queries, sequences = block.scope.model.hidden, block.scope.step.queries, transport.held
    if not len(sequences):
        return
    for token in ((sequence, position) for sequence in sequences for position in range(queries)):
        label = f"{token[0]}_{token[1]}"
        pieces = {
            f"res_{label}_{'shared' if expert == SHARED else expert}": transport.returned(token, expert, holder)
            for expert, holder in exchange.results(*token)
        }
        yield from _joined(block, f"stack_{label}", pieces)
        added = ((len(pieces), 1, hidden), 0, (1, 1, hidden))
        yield block.move(f"sum_{label}", "Sum", added, block.at(f"stack_{label}"))
    for position in range(queries):
        sums = [block.at(f"sum_{sequence}_{position}") for sequence in sequences]
        shape = (0, (1,) * len(sums), (len(sums), 1, hidden))
        yield block.move(f"out_{position}", "Concat", shape, *sums)
    columns = [block.at(f"out_{position}") for position in range(queries)]
    yield block.move("out", "Concat", (1, (1,) * queries, (len(sequences), queries, hidden)), *columns)
