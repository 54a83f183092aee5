"""How tokens travel to the experts and back: all-to-all, all-gather, multicast, or not at all on one node.

Every transport names the tensors that arrive, so that the experts and the sums can pick theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from simcore.generate.wse.exchange import SHARED, Exchange, Token
from simcore.generate.wse.operations import Operation, collective, move, tensor
from simcore.generate.wse.ranks import dp_group, stage
from simcore.generate.wse.scope import Scope

__all__ = ["TRANSPORTS", "Piece", "Transport", "backward_exchange", "expert_output"]


class Piece(NamedTuple):
    """Row `place` of a tensor of `vectors` vectors; `vectors` 0 stands for the whole tensor."""

    tensor: str
    vectors: int = 0
    place: int = 0


class Transport(Protocol):
    """Dispatch and combine of one layer on one node."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """Rows that send this node's tokens out."""

    def arrived(self, token: Token) -> Piece:
        """Where a token lies that this node's experts need."""

    def combine(self) -> Iterator[Operation]:
        """Rows that send the experts' results back."""

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """Where the result of an expert on node `holder` for one of this node's tokens lies."""


def expert_output(scope: Scope, name: str, expert: int, token: Token) -> str:
    """The tensor with an expert's result for one token, on the expert's node."""
    label = "shared" if expert == SHARED else expert
    return tensor(scope.node, f"{name}_exp_{label}_out_{token[0]}_{token[1]}")


@dataclass(frozen=True)
class _Link:
    """What all transports know; nodes are numbered inside the stage except in `group`."""

    scope: Scope
    exchange: Exchange
    name: str

    @cached_property
    def group(self) -> tuple[int, ...]:
        """The nodes of the stage."""
        return stage(self.scope.system, self.scope.node)

    @cached_property
    def place(self) -> int:
        """The number of this node."""
        return self.scope.node - self.group[0]

    @cached_property
    def _whole(self) -> tuple[int, int, int]:
        """The shape of this cluster's tokens."""
        return (len(self.scope.local), self.scope.step.queries, self.scope.model.hidden)

    @cached_property
    def _one(self) -> tuple[int, int, int]:
        """The shape of one sequence's tokens."""
        return (1, self.scope.step.queries, self.scope.model.hidden)

    def vectors(self, count: int) -> tuple[int, int, int]:
        """The shape of `count` vectors."""
        return (count, 1, self.scope.model.hidden)

    def size_bytes(self, count: int) -> int:
        """Bytes of `count` vectors."""
        return count * self.scope.model.hidden * self.scope.element_bytes

    def barrier(self, uid: str) -> Operation:
        """Wait for the whole stage."""
        return Operation(f"{self.name}_barrier_{uid}", "Barrier", (), group=self.group)

    def cut(self, uid: str, source: str, token: Token, local: range) -> Iterator[Operation]:
        """One token out of [sequences `local`, positions, hidden]: first its sequence, then its position."""
        node, row = self.scope.node, token[0] - local.start
        yield move(node, f"{uid}_seq", "Slice", (self._whole, 0, row, row + 1), source)
        yield move(node, uid, "Slice", (self._one, 1, token[1], token[1] + 1), f"{node}:{uid}_seq")

    def tokens(self, source: str, local: range, sequences: range) -> Iterator[Operation]:
        """Every token of `sequences` as a tensor of its own; a sequence is cut out once for all its positions."""
        whole = (len(local), self.scope.step.queries, self.scope.model.hidden)
        for b in sequences:
            row, part = b - local.start, f"{self.name}_seq_{b}"
            yield move(self.scope.node, part, "Slice", (whole, 0, row, row + 1), source)
            for s in range(self.scope.step.queries):
                yield self._position(f"{self.name}_token_{b}_{s}", part, s)

    def _position(self, uid: str, part: str, position: int) -> Operation:
        shape = (self._one, 1, position, position + 1)
        return move(self.scope.node, uid, "Slice", shape, tensor(self.scope.node, part))

    def joined(self, uid: str, parts: list[str]) -> Operation:
        """Vectors stacked into one tensor."""
        shape = (0, (1,) * len(parts), self.vectors(len(parts)))
        return move(self.scope.node, uid, "Concat", shape, *parts)

    def returns(self, target: int) -> list[str]:
        """The tensors with this node's results for the tokens of `target`."""
        back = self.exchange.back.get((self.place, target), [])
        return [expert_output(self.scope, self.name, expert, (b, s)) for expert, b, s in back]

    def own_tokens(self) -> list[Token]:
        """Tokens this node sends, in order."""
        return [(b, s) for b in self.scope.own for s in range(self.scope.step.queries)]


class AllToAll(_Link):
    """One buffer per pair of nodes; a token crosses to each node once, a result for each expert."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """One AlltoAll of the tokens, without repeats."""
        if self.scope.movement:
            for target in range(len(self.group)):
                yield from self._packed(target, source)
        yield self.all_to_all("a2a_disp", "disp", self.exchange.dispatch.tolist())
        yield self.barrier("disp_a2a")

    def _packed(self, target: int, source: str) -> Iterator[Operation]:
        """The buffer for one node."""
        tokens = self.exchange.sent.get((self.place, target), [])
        uids = [f"{self.name}_disp_{self.group[target]}_{b}_{s}" for b, s in tokens]
        for uid, token in zip(uids, tokens, strict=True):
            yield from self.cut(uid, source, token, self.scope.local)
        if uids:
            yield self.joined(f"{self.name}_disp_{self.group[target]}", [tensor(self.scope.node, u) for u in uids])

    def all_to_all(self, uid: str, buffer: str, vectors: list[list[int]]) -> Operation:
        """The row of one exchange; `vectors` go from node (outer) to node."""
        send = vectors[self.place]
        receive = [row[self.place] for row in vectors]
        targets = [target for target, count in enumerate(send) if count]
        name, node = f"{self.name}_{uid}", self.scope.node
        return Operation(
            uid=name,
            kind="AlltoAll",
            shape=(self.vectors(sum(send)), tuple(send), tuple(receive)),
            inputs=tuple(tensor(node, f"{self.name}_{buffer}_{self.group[target]}") for target in targets),
            outputs=tuple(tensor(self.group[target], f"{name}_{node}") for target in targets),
            network_bytes=self.size_bytes(sum(send) - send[self.place]),
            group=self.group,
        )

    def arrived(self, token: Token) -> Piece:
        """A row of the buffer of the token's source."""
        origin = self.exchange.origins[token[0]]
        count, index = self.exchange.sent_place(origin, self.place, token)
        return Piece(tensor(self.scope.node, f"{self.name}_a2a_disp_{self.group[origin]}"), count, index)

    def combine(self) -> Iterator[Operation]:
        """One AlltoAll of the results."""
        if self.scope.movement:
            for target in range(len(self.group)):
                parts = self.returns(target)
                if parts:
                    yield self.joined(f"{self.name}_comb_{self.group[target]}", parts)
        yield self.all_to_all("combine_a2a", "comb", self.exchange.combine.tolist())
        yield self.barrier("combine_a2a")

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the buffer of the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        return Piece(tensor(self.scope.node, f"{self.name}_combine_a2a_{self.group[holder]}"), count, index)


class Multicast(_Link):
    """One multicast per token, one unicast per pair of nodes on the way back."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """A Multicast of every token with business elsewhere."""
        node = self.scope.node
        if self.scope.movement:
            yield from self.tokens(source, self.scope.local, self.scope.own)
        for token in self.own_tokens():
            label = f"{self.name}_token_{token[0]}_{token[1]}"
            targets = [self.group[target] for target in self.exchange.destinations(*token) if target != self.place]
            if targets:
                uid, shape = f"{self.name}_multicast_exp_{token[0]}_{token[1]}", self.vectors(1)
                bytes_each, group = self.scope.element_bytes, tuple(targets)
                yield collective(node, uid, "Multicast", shape, bytes_each, group, tensor(node, label))
        yield self.barrier("disp_mc")

    def arrived(self, token: Token) -> Piece:
        """A tensor of its own; this node's tokens never left."""
        origin = self.exchange.origins[token[0]]
        if origin == self.place:
            return Piece(tensor(self.scope.node, f"{self.name}_token_{token[0]}_{token[1]}"))
        uid = f"{self.name}_multicast_exp_{token[0]}_{token[1]}_{self.group[origin]}"
        return Piece(tensor(self.scope.node, uid))

    def combine(self) -> Iterator[Operation]:
        """A Unicast to every source with tokens here; the one to itself is free."""
        for target, count in enumerate(self.exchange.combine[self.place].tolist()):
            if count:
                yield from self._unicast(target, count)
        yield self.barrier("uc")

    def _unicast(self, target: int, count: int) -> Iterator[Operation]:
        node, goal = self.scope.node, self.group[target]
        buffer, uid = f"{self.name}_comb_{goal}", f"{self.name}_unicast_{goal}"
        if self.scope.movement:
            yield self.joined(buffer, self.returns(target))
        yield Operation(
            uid=uid,
            kind="Unicast",
            shape=self.vectors(count),
            inputs=(tensor(node, buffer),),
            outputs=(tensor(goal, f"{uid}_{node}"),),
            network_bytes=0 if target == self.place else self.size_bytes(count),
            group=(goal,),
        )

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row of the tensor from the expert's node."""
        count, index = self.exchange.back_place(holder, self.place, (expert, *token))
        uid = f"{self.name}_unicast_{self.scope.node}_{self.group[holder]}"
        return Piece(tensor(self.scope.node, uid), count, index)


class AllGather(_Link):
    """Every node gets all tokens, then all results."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """An AllGather of the tokens."""
        node, own, local = self.scope.node, self.scope.own, self.scope.local
        queries, hidden, name = self.scope.step.queries, self.scope.model.hidden, self.name
        shape = (len(own), queries, hidden)
        if self.scope.movement and len(own):
            uids = [f"{name}_own_{b}" for b in own]
            for uid, b in zip(uids, own, strict=True):
                row = b - local.start
                yield move(node, uid, "Slice", ((len(local), queries, hidden), 0, row, row + 1), source)
            yield move(node, f"{name}_own", "Concat", (0, (1,) * len(own), shape), *(tensor(node, u) for u in uids))
        held = f"{node}:{name}_own" if len(own) else ""
        yield collective(node, f"{name}_ag_disp", "AllGather", shape, self.scope.element_bytes, self.group, held)
        yield self.barrier("disp_ag")

    def arrived(self, token: Token) -> Piece:
        """A row among all tokens of the stage."""
        queries = self.scope.step.queries
        uid = tensor(self.scope.node, f"{self.name}_ag_disp")
        return Piece(uid, self.scope.batch * queries, token[0] * queries + token[1])

    def combine(self) -> Iterator[Operation]:
        """An AllGather of the results."""
        node, count = self.scope.node, int(self.exchange.combine[self.place].sum())
        if self.scope.movement and count:
            parts = [part for target in range(len(self.group)) for part in self.returns(target)]
            yield self.joined(f"{self.name}_results", parts)
        shape, held = self.vectors(count), f"{node}:{self.name}_results" if count else ""
        yield collective(node, f"{self.name}_ag_comb", "AllGather", shape, self.scope.element_bytes, self.group, held)
        yield self.barrier("combine_ag")

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """A row among all results of the stage: those of node 0 first, on each those for source 0 first."""
        combine = self.exchange.combine
        origin = self.exchange.origins[token[0]]
        _, index = self.exchange.back_place(holder, origin, (expert, *token))
        before = int(combine[:holder].sum() + combine[holder, :origin].sum())
        return Piece(tensor(self.scope.node, f"{self.name}_ag_comb"), int(combine.sum()), before + index)


class Local(_Link):
    """One node has all experts: nothing travels."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """Cut the tokens."""
        if self.scope.movement:
            yield from self.tokens(source, self.scope.local, self.scope.own)

    def arrived(self, token: Token) -> Piece:
        """A tensor of its own."""
        return Piece(tensor(self.scope.node, f"{self.name}_token_{token[0]}_{token[1]}"))

    def combine(self) -> Iterator[Operation]:
        """Nothing."""
        yield from ()

    def returned(self, token: Token, expert: int, holder: int) -> Piece:
        """The expert's own output."""
        return Piece(expert_output(self.scope, self.name, expert, token))


class Sliced(Local):
    """Every node has a slice of all experts: the clusters gather each other's tokens; results are summed afterwards."""

    def dispatch(self, source: str) -> Iterator[Operation]:
        """An AllGather over the data parallel peers, where there are several, then the tokens cut apart."""
        scope, node = self.scope, self.scope.node
        queries, hidden = scope.step.queries, scope.model.hidden
        if scope.system.dp > 1:
            peers, shape = dp_group(scope.system, node), (len(scope.local), queries, hidden)
            yield collective(node, f"{self.name}_ag_disp", "AllGather", shape, scope.element_bytes, peers, source)
            yield Operation(f"{self.name}_barrier_disp_ag", "Barrier", (), group=peers)
            source = tensor(node, f"{self.name}_ag_disp")
        if scope.movement:
            yield from self.tokens(source, range(scope.batch), range(scope.batch))


TRANSPORTS: dict[str, Callable[[Scope, Exchange, str], Transport]] = {
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
    link = AllToAll(scope, exchange, name)
    back = (exchange.combine if part == "combine" else exchange.dispatch).T.tolist()
    if kind == "alltoall":
        yield link.all_to_all(f"{part}_dgrad", f"{part}_grad", back)
    elif kind == "allgather":
        held = len(scope.own) * scope.step.queries if part == "combine" else int(exchange.combine[link.place].sum())
        uid, shape = f"{name}_ag_{part}_dgrad", link.vectors(held)
        yield collective(scope.node, uid, "AllGather", shape, scope.element_bytes, link.group, "")
    else:
        for target, count in enumerate(back[link.place]):
            if count and target != link.place:
                yield _gradients(link, f"{name}_{part}_{link.group[target]}_dgrad", target, count)
    yield link.barrier(f"{part}_dgrad")


def _gradients(link: AllToAll, uid: str, target: int, count: int) -> Operation:
    """A Unicast of gradients."""
    node, goal = link.scope.node, link.group[target]
    outputs = (tensor(goal, f"{uid}_{node}"),)
    return Operation(
        uid, "Unicast", link.vectors(count), (), outputs, network_bytes=link.size_bytes(count), group=(goal,)
    )
