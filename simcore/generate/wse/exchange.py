"""What one expert layer moves between nodes with a copy of its experts, from its routing array, once for all nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from simcore.generate.wse.settings import Ints, System, dispatch_sources, expert_nodes, shared_nodes
from simcore.model.shape import Experts

Token = tuple[int, int]  # sequence, position
SHARED = -1  # stands for the shared expert where a number of an expert is expected


class Exchange(Struct, frozen=True, dict=True):
    """Tokens of one layer and step on one copy of the experts: who sends them, who computes them.

    `routing` has shape [choice, sequence, position]; nodes are numbered inside their copy. Its columns are sequences
    from number `first` on. `shared` is the node of the copy of the shared expert that serves each, -1: there is none.
    """

    routing: Ints
    experts: int
    nodes: int
    source: Ints
    holder: Ints
    shared: Ints
    first: int = 0

    @cached_property
    def dispatch(self) -> Ints:
        """Vectors sent before the experts, self included, one per token and node: shape [from node, to node]."""
        sums = np.zeros((self.nodes, self.nodes), np.int64)
        np.add.at(sums, self.source, self._reached.sum(axis=1))
        return sums

    @cached_property
    def combine(self) -> Ints:
        """Vectors sent back, self included, one per token and expert: shape [the expert's node, to node]."""
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

    def destinations(self, sequence: int, position: int) -> tuple[int, ...]:
        """Nodes where a token has business, ascending."""
        return tuple(np.flatnonzero(self._reached[sequence - self.first, position]).tolist())

    @cached_property
    def sent(self) -> dict[tuple[int, int], dict[Token, int]]:
        """Tokens from a source to a node in order, each with its place in the buffer."""
        pairs: dict[tuple[int, int], dict[Token, int]] = defaultdict(dict)
        sources = self.source.tolist()
        for sequence, position, node in np.argwhere(self._reached).tolist():
            buffer = pairs[sources[sequence], node]
            buffer[sequence + self.first, position] = len(buffer)
        return pairs

    @cached_property
    def work(self) -> dict[int, list[Token]]:
        """Tokens of each routed expert that has some, in order."""
        tokens: dict[int, list[Token]] = defaultdict(list)
        order = np.argwhere(np.ones(self.routing.shape[1:], bool)).tolist()
        for sequence, position in order:
            for expert in self.routing[:, sequence, position].tolist():
                tokens[expert].append((sequence + self.first, position))
        return tokens

    @cached_property
    def back(self) -> dict[tuple[int, int], dict[tuple[int, int, int], int]]:
        """(expert, sequence, position) of results from node to source and their places; the shared expert's last."""
        pairs: dict[tuple[int, int], dict[tuple[int, int, int], int]] = defaultdict(dict)
        results = [(self.holder[expert], expert, *token) for expert in sorted(self.work) for token in self.work[expert]]
        places = range(self.routing.shape[2])
        for sequence in np.flatnonzero(self.shared >= 0).tolist():
            results += [(self.shared[sequence], SHARED, sequence + self.first, place) for place in places]
        for node, expert, sequence, position in results:
            buffer = pairs[int(node), self.origin(sequence)]
            buffer[expert, sequence, position] = len(buffer)
        return pairs

    def origin(self, sequence: int) -> int:
        """The node that sends a sequence."""
        return int(self.source[sequence - self.first])

    def back_place(self, node: int, source: int, result: tuple[int, int, int]) -> tuple[int, int]:
        """(length, index of `result`) of the buffer of results from `node` to `source`."""
        places = self.back[node, source]
        return len(places), places[result]

    def results(self, sequence: int, position: int) -> Iterator[tuple[int, int]]:
        """(expert, its node) of every vector that a token gets back."""
        chosen = self.routing[:, sequence - self.first, position]
        yield from zip(chosen.tolist(), self.holder[chosen].tolist(), strict=True)
        if (holder := int(self.shared[sequence - self.first])) >= 0:
            yield SHARED, holder

    @classmethod
    def of(cls, routing: Ints, experts: Experts, system: System) -> tuple[Exchange, ...]:
        """The exchange of one layer of `system` on each copy of its experts, from its routing array."""
        nodes = system.replica_nodes
        copy, source = np.divmod(dispatch_sources(system, routing.shape[1]), nodes)
        ends = np.searchsorted(copy, np.arange(system.dp_ffn + 1)).tolist()
        return tuple(
            cls(
                routing=routing[:, first:end].astype(np.int64),
                experts=experts.count,
                nodes=nodes,
                source=source[first:end],
                holder=expert_nodes(system, experts.count),
                shared=shared_nodes(system, end - first) if experts.shared_ffn else np.full(end - first, -1),
                first=first,
            )
            for first, end in pairwise(ends)
        )


Routed = Mapping[str, Sequence[Exchange]]
"""The exchanges of every expert layer, by its name."""
