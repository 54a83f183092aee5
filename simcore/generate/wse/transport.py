"""How tokens travel to the experts and back: all-to-all, all-gather, multicast, or not at all on one node.

Every transport names the tensors that arrive, so that the experts and the sums can pick theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.operations import Block, Operation, Rows, Scope, tensor
from simcore.generate.wse.settings import own_batches


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

    @cached_property
    def _one(self) -> tuple[int, int, int]:
        """The shape of one sequence's tokens."""
        return (1, *self.scope.shape[1:])

    def vectors(self, count: int) -> tuple[int, int, int]:
        """The shape of `count` vectors."""
        return (count, 1, self.scope.model.hidden)

    def size_bytes(self, count: int) -> int:
        """Bytes of `count` vectors."""
        return count * self.scope.model.hidden * self.scope.element_bytes

    def cut(self, uid: str, source: str, token: Token) -> Iterator[Operation]:
        """One token out of [local sequences, positions, hidden]: first its sequence, then its position."""
        row = token[0] - self.scope.local.start
        yield self.move(f"{uid}_seq", "Slice", (self.scope.shape, 0, row, row + 1), source)
        yield self.move(uid, "Slice", (self._one, 1, token[1], token[1] + 1), self.at(f"{uid}_seq"))

    def tokens(self, source: str, local: range, sequences: range) -> Iterator[Operation]:
        """Every token of `sequences` as a tensor of its own; a sequence is cut out once for all its positions."""
        whole = (len(local), *self.scope.shape[1:])
        for b in sequences:
            row = b - local.start
            yield self.move(f"seq_{b}", "Slice", (whole, 0, row, row + 1), source)
            for s in range(self.scope.step.queries):
                yield self.move(f"token_{b}_{s}", "Slice", (self._one, 1, s, s + 1), self.at(f"seq_{b}"))

    def joined(self, uid: str, parts: list[str]) -> Operation:
        """Vectors stacked into one tensor."""
        return self.move(uid, "Concat", (0, (1,) * len(parts), self.vectors(len(parts))), *parts)

    def unicast(self, uid: str, target: int, count: int, *inputs: str) -> Operation:
        """So many vectors to one node; what stays costs nothing."""
        outputs = (tensor(self.group[target], f"{uid}_{self.scope.node}"),)
        size_bytes = 0 if target == self.place else self.size_bytes(count)
        group = (self.group[target],)
        return Operation(uid, "Unicast", self.vectors(count), inputs, outputs, network_bytes=size_bytes, group=group)

    def result(self, expert: int, token: Token) -> str:
        """The tensor with an expert's result for one token, on the expert's node."""
        return self.at(f"exp_{'shared' if expert == SHARED else expert}_out_{token[0]}_{token[1]}")

    def returns(self, target: int) -> list[str]:
        """The tensors with this node's results for the tokens of `target`."""
        return [self.result(expert, (b, s)) for expert, b, s in self.exchange.back.get((self.place, target), ())]

    @property
    def held(self) -> range:
        """The sequences whose results this node adds up."""
        return self.scope.own

    def rejoined(self) -> Rows:
        """Bring the sums to the whole cluster by multicast. The row is there even when nobody or nothing is left."""
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


class AllToAll(_Link, frozen=True):
    """One buffer per pair of nodes; a token crosses to each node once, a result for each expert."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """One AlltoAll of the tokens, without repeats."""
        for target in range(len(self.group)) if self.scope.movement else ():
            buffer = f"disp_{self.group[target]}"
            uids = {f"{buffer}_{b}_{s}": (b, s) for b, s in self.exchange.sent.get((self.place, target), {})}
            for uid, token in uids.items():
                yield from self.cut(uid, source, token)
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
            network_bytes=self.size_bytes(sum(send) - send[self.place]),
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
                parts = self.returns(target)
                if parts:
                    yield self.joined(f"comb_{self.group[target]}", parts)
        yield self.all_to_all("combine_a2a", "comb", self.exchange.combine.tolist())
        yield self.barrier("combine_a2a", self.group)

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the buffer of the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        return Piece(self.at(f"combine_a2a_{self.group[holder]}"), count, index)


class Multicast(_Link, frozen=True):
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
                yield self.unicast(f"{self.name}_unicast_{goal}", target, count, self.at(f"comb_{goal}"))
        yield self.barrier("uc", self.group)

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the tensor from the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        return Piece(self.at(f"unicast_{self.scope.node}_{self.group[holder]}"), count, index)


class AllGather(_Link, frozen=True):
    """Every node gets all tokens, then all results."""

    @property
    def held(self) -> range:
        """All of the cluster's."""
        return self.scope.local

    def rejoined(self) -> Rows:
        """Everybody has them already."""
        yield from ()
        return self.at("out")

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

    def rejoined(self) -> Rows:
        """Nobody else is there."""
        yield from ()
        return self.at("out")

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
TRANSPORTS: dict[str, Callable[[Scope, str, Exchange], Transport]] = {
    "alltoall": AllToAll,
    "allgather": AllGather,
    "multicast": Multicast,
    "none": Local,
    "sliced": Sliced,
}


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
                yield link.unicast(f"{name}_{part}_{link.group[target]}_dgrad", target, count)
    yield link.barrier(f"{part}_dgrad", link.group)
