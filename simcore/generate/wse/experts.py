"""The mixture of experts of one layer on one node: gate, dispatch, experts, combine, sum.

Tokens travel to the experts and back by all-to-all, all-gather, multicast, or not at all on one node. Every transport
names the tensors that arrive, so that the experts and the sums can pick theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.operations import Block, Operation, Part, Rows, Scope, tensor
from simcore.generate.wse.rows import gated
from simcore.generate.wse.settings import own_batches
from simcore.model.shape import Experts


class Piece(NamedTuple):
    """Row `place` of a tensor of `vectors` vectors; `vectors` 0 stands for the whole tensor."""

    tensor: str
    vectors: int = 0
    place: int = 0


class _Link(Block, frozen=True, dict=True):
    """What all transports know: how this node's tokens are dispatched and results combined, and where both lie.

    Nodes are numbered inside their copy of the experts except in `group`.
    """

    exchange: Exchange

    @cached_property
    def group(self) -> tuple[int, ...]:
        """The nodes of this copy of the experts."""
        return self.scope.groups.copy

    @cached_property
    def place(self) -> int:
        """The number of this node."""
        return self.scope.node - self.group[0]

    def vectors(self, count: int) -> tuple[int, int, int]:
        """The shape of `count` vectors."""
        return (count, 1, self.scope.model.hidden)

    def tokens(self, source: str, local: range, sequences: range) -> Iterator[Operation]:
        """Every token of `sequences` as a tensor of its own; a sequence is cut out once for all its positions."""
        _, *inner = self.scope.shape
        whole, one = (len(local), *inner), (1, *inner)
        for b in sequences:
            row = b - local.start
            yield self.move(f"seq_{b}", "Slice", (whole, 0, row, row + 1), source)
            for s in range(self.scope.step.queries):
                yield self.move(f"token_{b}_{s}", "Slice", (one, 1, s, s + 1), self.at(f"seq_{b}"))

    def joined(self, uid: str, parts: list[str]) -> Operation:
        """Vectors stacked into one tensor."""
        return self.move(uid, "Concat", (0, (1,) * len(parts), self.vectors(len(parts))), *parts)

    def result(self, expert: int, token: Token) -> str:
        """The tensor with an expert's result for one token, on the expert's node."""
        return self.at(f"exp_{'shared' if expert == SHARED else expert}_out_{token[0]}_{token[1]}")

    def returns(self, target: int) -> list[str]:
        """The tensors with this node's results for the tokens of `target`."""
        return [self.result(expert, (b, s)) for expert, b, s in self.exchange.back.get((self.place, target), ())]

    @property
    def held(self) -> range:
        """The sequences whose results this node adds up: all of its cluster's."""
        return self.scope.local

    def rejoined(self) -> Rows:
        """Bring the sums to the whole cluster, which has them already where all add them up."""
        yield from ()
        return self.at("out")


class _Own(_Link, frozen=True):
    """What transports know by which a node adds up only the results of the tokens that it has sent."""

    @property
    def held(self) -> range:
        """Those sequences."""
        return self.scope.own

    def rejoined(self) -> Rows:
        """By multicast. The row is there even when nobody or nothing is left."""
        scope = self.scope
        node, (count, queries, hidden), group = scope.node, scope.shape, scope.groups.cluster
        others = tuple(other for other in group if other != node)
        held = self.at("out") if len(scope.own) else ""
        yield self.collective("multicast_dp", "Multicast", (len(scope.own), queries, hidden), others, held)
        yield self.barrier("mc", group)
        if scope.movement and count:
            counts = {other: len(own_batches(scope.system, scope.batch, other)) for other in group}
            owners = [other for other in group if counts[other]]
            parts = [self.at("out" if other == node else f"multicast_dp_{other}") for other in owners]
            yield self.move("all", "Concat", (0, tuple(counts[other] for other in owners), scope.shape), *parts)
        return self.at("all")


class AllToAll(_Own, frozen=True):
    """One buffer per pair of nodes; a token crosses to each node once, a result for each expert."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """One AlltoAll of the tokens, without repeats."""
        for target in range(len(self.group)) if self.scope.movement else ():
            buffer = f"disp_{self.group[target]}"
            uids = {f"{buffer}_{b}_{s}": (b, s) for b, s in self.exchange.sent.get((self.place, target), {})}
            for uid, (b, s) in uids.items():  # first its sequence, then its position
                row, whole = b - self.scope.local.start, self.scope.shape
                yield self.move(f"{uid}_seq", "Slice", (whole, 0, row, row + 1), source)
                yield self.move(uid, "Slice", ((1, *whole[1:]), 1, s, s + 1), self.at(f"{uid}_seq"))
            if uids:
                yield self.joined(buffer, [*map(self.at, uids)])
        yield self.all_to_all("a2a_disp", "disp", self.exchange.dispatch.tolist())
        yield self.barrier("disp_a2a", self.group)

    def all_to_all(self, uid: str, buffer: str, vectors: list[list[int]]) -> Operation:
        """The row of one exchange; `vectors` go from node (outer) to node."""
        send, receive = vectors[self.place], [row[self.place] for row in vectors]
        targets = [target for target, count in enumerate(send) if count]
        name = f"{self.name}_{uid}"
        return Operation(
            uid=name,
            kind="AlltoAll",
            shape=(self.vectors(sum(send)), tuple(send), tuple(receive)),
            inputs=tuple(self.at(f"{buffer}_{self.group[target]}") for target in targets),
            outputs=tuple(tensor(self.group[target], f"{name}_{self.scope.node}") for target in targets),
            network_bytes=prod(self.vectors(sum(send) - send[self.place])) * self.scope.element_bytes,
            group=self.group,
        )

    def arrived(self, token: Token) -> Piece:
        """A row of the buffer of the token's source."""
        origin = self.exchange.origin(token[0])
        buffer = self.exchange.sent[origin, self.place]
        return Piece(self.at(f"a2a_disp_{self.group[origin]}"), len(buffer), buffer[token])

    def combine(self) -> Iterator[Operation]:
        """One AlltoAll of the results."""
        if self.scope.movement:
            for target in range(len(self.group)):
                if parts := self.returns(target):
                    yield self.joined(f"comb_{self.group[target]}", parts)
        yield self.all_to_all("combine_a2a", "comb", self.exchange.combine.tolist())
        yield self.barrier("combine_a2a", self.group)

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the buffer of the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        return Piece(self.at(f"combine_a2a_{self.group[holder]}"), count, index)


class Multicast(_Own, frozen=True):
    """One multicast per token, one unicast per pair of nodes on the way back."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """A Multicast of every token with business elsewhere."""
        if self.scope.movement:
            yield from self.tokens(source, self.scope.local, self.scope.own)
        for b, s in ((b, s) for b in self.scope.own for s in range(self.scope.step.queries)):
            goals = tuple(self.group[target] for target in self.exchange.destinations(b, s) if target != self.place)
            if goals:
                held = self.at(f"token_{b}_{s}")
                yield self.collective(f"multicast_exp_{b}_{s}", "Multicast", self.vectors(1), goals, held)
        yield self.barrier("disp_mc", self.group)

    def arrived(self, token: Token) -> Piece:
        """A tensor of its own; this node's tokens never left."""
        origin = self.exchange.origin(token[0])
        if origin == self.place:
            return Piece(self.at(f"token_{token[0]}_{token[1]}"))
        return Piece(self.at(f"multicast_exp_{token[0]}_{token[1]}_{self.group[origin]}"))

    def combine(self) -> Iterator[Operation]:
        """A Unicast to every source with tokens here; the one to itself is free."""
        for target, count in enumerate(self.exchange.combine[self.place].tolist()):
            if count:
                goal = self.group[target]
                if self.scope.movement:
                    yield self.joined(f"comb_{goal}", self.returns(target))
                yield self.unicast(f"{self.name}_unicast_{goal}", goal, self.vectors(count), self.at(f"comb_{goal}"))
        yield self.barrier("uc", self.group)

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the tensor from the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        return Piece(self.at(f"unicast_{self.scope.node}_{self.group[holder]}"), count, index)


class AllGather(_Link, frozen=True):
    """Every node gets all tokens, then all results."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """An AllGather of the tokens."""
        own, whole = self.scope.own, self.scope.shape
        shape = (len(own), *whole[1:])
        if self.scope.movement and len(own):
            for b in own:
                row = b - self.scope.local.start
                yield self.move(f"own_{b}", "Slice", (whole, 0, row, row + 1), source)
            yield self.move("own", "Concat", (0, (1,) * len(own), shape), *(self.at(f"own_{b}") for b in own))
        yield self.collective("ag_disp", "AllGather", shape, self.group, self.at("own") if len(own) else "")
        yield self.barrier("disp_ag", self.group)

    def arrived(self, token: Token) -> Piece:
        """A row among all tokens of this copy."""
        queries, exchange = self.scope.step.queries, self.exchange
        row = (token[0] - exchange.first) * queries + token[1]
        return Piece(self.at("ag_disp"), len(exchange.source) * queries, row)

    def combine(self) -> Iterator[Operation]:
        """An AllGather of the results."""
        count = int(self.exchange.combine[self.place].sum())
        if self.scope.movement and count:
            parts = [part for target in range(len(self.group)) for part in self.returns(target)]
            yield self.joined("results", parts)
        held = self.at("results") if count else ""
        yield self.collective("ag_comb", "AllGather", self.vectors(count), self.group, held)
        yield self.barrier("combine_ag", self.group)

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row among all results of this copy: those of node 0 first, on each those for source 0 first."""
        combine = self.exchange.combine
        origin = self.exchange.origin(token[0])
        _, index = self.exchange.back_place(holder, origin, (expert, *token))
        before = int(combine[:holder].sum() + combine[holder, :origin].sum())
        return Piece(self.at("ag_comb"), int(combine.sum()), before + index)


class Local(_Link, frozen=True):
    """One node has all experts: nothing travels."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """Cut the tokens."""
        if self.scope.movement:
            yield from self.tokens(source, self.scope.local, self.scope.own)

    def arrived(self, token: Token) -> Piece:
        """A tensor of its own."""
        return Piece(self.at(f"token_{token[0]}_{token[1]}"))

    def combine(self) -> Iterator[Operation]:
        """Nothing."""
        yield from ()

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """The expert's own output."""
        return Piece(self.result(expert, token))


class Sliced(Local, frozen=True):
    """Every node has a slice of all experts: the clusters gather each other's tokens; results are summed afterwards."""

    @property
    def held(self) -> range:
        """Those of all clusters."""
        return range(self.scope.batch)

    def rejoined(self) -> Rows:
        """Add the partial results of all tokens up over the stage, keep those of this cluster."""
        scope, local = self.scope, self.scope.local
        shape = (scope.batch, *scope.shape[1:])
        yield self.collective("ar", "AllReduce", shape, scope.groups.stage, self.at("out"))
        yield self.move("all", "Slice", (shape, 0, local.start, local.stop), self.at("ar"))
        return self.at("all")

    def dispatch(self, source: str) -> Iterator[Operation]:
        """An AllGather over the data parallel peers, where there are several, then the tokens cut apart."""
        scope = self.scope
        if scope.system.dp > 1:
            peers = scope.groups.dp
            yield self.collective("ag_disp", "AllGather", scope.shape, peers, source)
            yield self.barrier("disp_ag", peers)
            source = self.at("ag_disp")
        if scope.movement:
            yield from self.tokens(source, range(scope.batch), range(scope.batch))


Transport = AllToAll | Multicast | AllGather | Local
TRANSPORTS: dict[str, Callable[[Scope, str, Exchange], Transport]] = {"none": Local, "sliced": Sliced}
TRANSPORTS |= {"alltoall": AllToAll, "allgather": AllGather, "multicast": Multicast}


def backward_exchange(scope: Scope, exchange: Exchange, name: str, part: str) -> Iterator[Operation]:
    """Rows that send gradients against the way of the forward pass's `part`, "dispatch" or "combine".

    An all-gather is the same both ways: of the tokens' gradients first, of those of the experts' inputs then. What went
    by multicast comes back as one message per pair of nodes.
    """
    kind = scope.system.exchange if scope.system.stage_nodes > 1 else "none"
    if kind == "none":
        return
    link = AllToAll(scope, name, exchange)
    back = (exchange.combine if part == "combine" else exchange.dispatch).T.tolist()
    if kind == "alltoall":
        yield link.all_to_all(f"{part}_dgrad", f"{part}_grad", back)
    elif kind == "allgather":
        held = len(scope.own) * scope.step.queries if part == "combine" else int(exchange.combine[link.place].sum())
        yield link.collective(f"ag_{part}_dgrad", "AllGather", link.vectors(held), link.group, "")
    else:
        for target, count in enumerate(back[link.place]):
            if count and target != link.place:
                goal = link.group[target]
                yield link.unicast(f"{name}_{part}_{goal}_dgrad", goal, link.vectors(count))
    yield link.barrier(f"{part}_dgrad", link.group)


def mixture(scope: Scope, experts: Experts, exchange: Exchange, layer: str, source: str) -> Rows:
    """Rows of one expert layer, from the output of attention to the output for every token of the cluster.

    Experts are spread over the nodes of the stage (ep), or every node holds a slice of each (tp_ffn).
    """
    block, system = Block(scope, f"{layer}_moe"), scope.system
    kind = "sliced" if system.tp_ffn > 1 else system.exchange if system.replica_nodes > 1 else "none"
    yield block.linear("gate", (scope.tokens, scope.model.hidden, experts.count), source)
    transport = TRANSPORTS[kind](scope, block.name, exchange)
    yield from transport.dispatch(source)
    yield from _held(block, layer, experts, exchange, transport)
    yield from transport.combine()
    if scope.movement:
        yield from _sums(block, exchange, transport)
    out = yield from scope.owned(layer, Part.REJOINED, transport.rejoined())
    return out if len(scope.local) else source


def _held(block: Block, layer: str, experts: Experts, exchange: Exchange, transport: Transport) -> Iterator[Operation]:
    """The routed experts of this node that have tokens, then its copy of the shared expert."""
    scope = block.scope
    place, sliced = scope.node % scope.system.replica_nodes, scope.system.tp_ffn > 1
    width, shared = (ceil(ffn / scope.system.tp_ffn) for ffn in (experts.ffn, experts.shared_ffn))
    for expert in np.flatnonzero(((exchange.holder == place) | sliced) & (exchange.load > 0)).tolist():
        tokens = exchange.work[expert] if scope.movement else []
        rows = _expert(block, expert, (int(exchange.load[expert]), width), tokens, transport)
        yield from scope.owned(layer, Part.EXPERT, rows)
    if served := np.flatnonzero((exchange.shared == place) | (sliced & (exchange.shared >= 0))).tolist():
        positions = range(scope.step.queries)
        tokens = [(exchange.first + sequence, position) for sequence in served for position in positions]
        rows = _expert(block, SHARED, (len(tokens), shared), tokens, transport)
        yield from scope.owned(layer, Part.SHARED, rows)


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
