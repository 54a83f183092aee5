"""What one expert layer moves between the nodes of a stage, from its routing array: NumPy, once for all nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from simcore.generate.wse.ranks import dispatch_sources, expert_nodes, shared_nodes
from simcore.generate.wse.settings import System
from simcore.model.shape import Experts

__all__ = ["SHARED", "Exchange", "Token"]

Ints = npt.NDArray[np.int64]
Token = tuple[int, int]  # sequence, position
SHARED = -1  # stands for the shared expert where a number of an expert is expected


@dataclass(frozen=True)
class Exchange:
    """Tokens of one layer and step: who sends them, who computes them.

    `routing` has shape [choice, sequence, position]; nodes are numbered inside their stage. `shared` is the node
    of the copy of the shared expert that serves each sequence, -1 where the model has none.
    """

    routing: Ints
    experts: int
    nodes: int
    source: Ints
    holder: Ints
    shared: Ints

    @cached_property
    def dispatch(self) -> Ints:
        """Vectors sent from node to node before the experts, self included: one per token and node. Shape [nodes,
        nodes].
        """
        return self._by_source(self._reached.sum(axis=1))

    @cached_property
    def combine(self) -> Ints:
        """Vectors sent back, self included: one per token and expert. Shape [nodes, nodes]; rows are the experts'
        nodes.
        """
        back = np.zeros((self.nodes, self.nodes), np.int64)
        targets = np.broadcast_to(self.source[None, :, None], self.routing.shape)
        np.add.at(back, (self.holder[self.routing], targets), 1)
        served = self.shared >= 0
        np.add.at(back, (self.shared[served], self.source[served]), self.routing.shape[2])
        return back

    @cached_property
    def load(self) -> Ints:
        """Tokens of each routed expert. Shape [experts]."""
        return np.bincount(self.routing.reshape(-1), minlength=self.experts)

    @cached_property
    def _reached(self) -> npt.NDArray[np.bool_]:
        """Whether a token has business on a node: shape [sequence, position, node]."""
        _, batch, positions = self.routing.shape
        reached = np.zeros((batch, positions, self.nodes), bool)
        sequences, places = np.indices((batch, positions))
        for choice in self.routing:
            reached[sequences, places, self.holder[choice]] = True
        served = np.flatnonzero(self.shared >= 0)
        reached[served, :, self.shared[served]] = True
        return reached

    def _by_source(self, vectors: Ints) -> Ints:
        """Sum rows of sequences [sequence, node] into rows of their sources [node, node]."""
        sums = np.zeros((self.nodes, self.nodes), np.int64)
        np.add.at(sums, self.source, vectors)
        return sums

    def destinations(self, sequence: int, position: int) -> tuple[int, ...]:
        """Nodes where a token has business, ascending."""
        return tuple(np.flatnonzero(self._reached[sequence, position]).tolist())

    @cached_property
    def sent(self) -> dict[tuple[int, int], dict[Token, int]]:
        """Tokens from a source to a node in order, each with its place in the buffer."""
        pairs: dict[tuple[int, int], dict[Token, int]] = defaultdict(dict)
        sources = self.source.tolist()
        for sequence, position, node in np.argwhere(self._reached).tolist():
            buffer = pairs[sources[sequence], node]
            buffer[sequence, position] = len(buffer)
        return pairs

    @cached_property
    def work(self) -> dict[int, list[Token]]:
        """Tokens of each routed expert that has some, in order."""
        tokens: dict[int, list[Token]] = defaultdict(list)
        order = np.argwhere(np.ones(self.routing.shape[1:], bool)).tolist()
        for sequence, position in order:
            for expert in self.routing[:, sequence, position].tolist():
                tokens[expert].append((sequence, position))
        return tokens

    @cached_property
    def back(self) -> dict[tuple[int, int], dict[tuple[int, int, int], int]]:
        """(expert, sequence, position) of the results from a node to a source, each with its place: experts ascending,
        the shared one last.
        """
        pairs: dict[tuple[int, int], dict[tuple[int, int, int], int]] = defaultdict(dict)
        results = [(self.holder[expert], expert, *token) for expert in sorted(self.work) for token in self.work[expert]]
        for sequence in np.flatnonzero(self.shared >= 0).tolist():
            results += [
                (self.shared[sequence], SHARED, sequence, position) for position in range(self.routing.shape[2])
            ]
        for node, expert, sequence, position in results:
            buffer = pairs[int(node), int(self.source[sequence])]
            buffer[expert, sequence, position] = len(buffer)
        return pairs

    def sent_place(self, source: int, node: int, token: Token) -> tuple[int, int]:
        """(length, index of `token`) of the buffer from `source` to `node`."""
        places = self.sent[source, node]
        return len(places), places[token]

    @cached_property
    def origins(self) -> list[int]:
        """`source` as plain numbers."""
        numbers: list[int] = self.source.tolist()
        return numbers

    @cached_property
    def _choices(self) -> list[list[list[tuple[int, int]]]]:
        """(expert, its node) of every token's choices: [sequence][position][choice]."""
        pairs = np.stack([self.routing, self.holder[self.routing]], axis=-1).transpose(1, 2, 0, 3)
        return [[[(a, b) for a, b in token] for token in sequence] for sequence in pairs.tolist()]

    def back_place(self, node: int, source: int, result: tuple[int, int, int]) -> tuple[int, int]:
        """(length, index of `result`) of the buffer of results from `node` to `source`."""
        places = self.back[node, source]
        return len(places), places[result]

    def results(self, sequence: int, position: int) -> Iterator[tuple[int, int]]:
        """(expert, its node) of every vector that a token gets back."""
        yield from self._choices[sequence][position]
        if self.shared[sequence] >= 0:
            yield SHARED, int(self.shared[sequence])

    @classmethod
    def of(cls, routing: Ints, experts: Experts, system: System) -> Exchange:
        """The exchange of one layer of `system`, from its routing array."""
        batch = routing.shape[1]
        shared = shared_nodes(system, batch) if experts.shared_ffn else np.full(batch, -1)
        return cls(
            routing=routing.astype(np.int64),
            experts=experts.count,
            nodes=system.stage_nodes,
            source=dispatch_sources(system, batch),
            holder=expert_nodes(system, experts.count),
            shared=shared,
        )
