"""Communication between nodes as instructions: COPY and MULTICAST of tiles, rings of COPY and ADD, barriers.

The peer issues everything on core 0 of a node; `spread` lets the core of each bank move its own data.
A received tensor is laid out afresh: its tiles go to the banks in row-major order.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from simcore.generate.wse.layout import Banks, bank_bytes, runs
from simcore.generate.wse.operations import Operation
from simcore.generate.wse.program import Program
from simcore.generate.wse.settings import split


class Wires(Struct, frozen=True):
    """Moves tensors between nodes; `spread`: not by core 0 alone but by the core of the bank."""

    program: Program
    element_bytes: int
    spread: bool = False

    def _owner(self, bank: int) -> int:
        return bank if self.spread else 0

    def barrier(self, uid: str, nodes: tuple[int, ...]) -> None:
        """The cores that communicate on all `nodes` wait for each other."""
        cores = range(self.program.cores if self.spread else 1)
        self.program.barrier(uid, [self.program.bank(node, core) for node in nodes for core in cores])

    def send(self, uid: str, kind: str, nodes: tuple[int, ...], held: Banks) -> Banks:
        """COPY or MULTICAST a tensor from the first of `nodes` to the others, vector by vector; its layout there."""
        out = np.empty_like(held)
        if not held.size:
            return out
        number = 0
        for row, vector in enumerate(held.reshape(-1, held.shape[-1])):
            for place, (bank, extent) in enumerate(runs(vector)):
                goal = number % self.program.cores
                out.reshape(-1, held.shape[-1])[row, extent] = goal
                size = (extent.stop - extent.start) * self.element_bytes
                here = self.program.bank(nodes[0], bank)
                banks = [self.program.bank(target, goal) for target in nodes[1:]]
                if banks != [here]:  # it is not in place already
                    comment = f"{uid}_{row}_0_{place}"
                    self.program.emit(nodes[0], self._owner(bank), kind, (here, *banks, size), comment)
                number += 1
        return out

    def all_reduce(self, uid: str, held: dict[int, Banks]) -> None:
        """Ring over the nodes of `held` in order, in place: reduce-scatter, then all-gather; chunks cut the last axis.

        Every node's COPYs add up to 2 (G - 1) / G of the tensor where G divides the last axis.
        """
        nodes, count = tuple(held), len(held)
        chunks = split(next(iter(held.values())).shape[-1], count)
        for i in range(count - 1):
            self._pass(f"{uid}_stage1_{i}", held, [chunks[(p - i) % count] for p in range(count)])
            self.barrier(f"{uid}_barrier_stage1_{i}", nodes)
            for p, node in enumerate(nodes):
                self._add(f"{uid}_reduce_{i}", node, held[node], chunks[(p - i - 1) % count])
            self.barrier(f"{uid}_barrier_reduce_{i}", nodes)
        for i in range(count - 1):
            self._pass(f"{uid}_stage2_{i}", held, [chunks[(p + 1 - i) % count] for p in range(count)])
            self.barrier(f"{uid}_barrier_gather_{i}", nodes)

    def all_gather(self, uid: str, held: dict[int, Banks]) -> Banks:
        """Ring over the nodes of `held`: every part is passed on G - 1 times. Returns the layout of all parts
        together.
        """
        nodes, count = tuple(held), len(held)
        for i in range(count - 1):
            for p, node in enumerate(nodes):
                part = held[nodes[(p - i) % count]]
                self._copies(f"{uid}_gather_{i}", node, nodes[(p + 1) % count], part)
            self.barrier(f"{uid}_barrier_gather_{i}", nodes)
        return np.concatenate(list(held.values()))

    def _pass(self, comment: str, held: dict[int, Banks], chunks: list[range]) -> None:
        """Every node copies one chunk to the next."""
        nodes = tuple(held)
        for p, (node, chunk) in enumerate(zip(nodes, chunks, strict=True)):
            self._copies(comment, node, nodes[(p + 1) % len(nodes)], held[node][..., chunk.start : chunk.stop])

    def _copies(self, comment: str, node: int, target: int, part: Banks) -> None:
        """One COPY per bank to the same bank of another node."""
        for bank, size in bank_bytes(part, self.element_bytes):
            ends = (self.program.bank(node, bank), self.program.bank(target, bank), size)
            self.program.emit(node, self._owner(bank), "COPY", ends, comment)

    def _add(self, comment: str, node: int, held: Banks, chunk: range) -> None:
        """Add a received chunk to one's own."""
        part = held[..., chunk.start : chunk.stop]
        every = bank_bytes(part, self.element_bytes)
        shares = [(0, every, part.shape)]  # core, its banks and bytes, dimensions: all on core 0 ...
        if self.spread:  # ... or each bank on its own core
            shares = [(bank, [(bank, size)], (size // self.element_bytes,)) for bank, size in every]
        for core, parts, dims in shares:
            ends = [(self.program.bank(node, bank), size) for bank, size in parts]
            reads = [self.program.emit(node, core, "READ", end, comment) for end in (*ends, *ends)]
            done = self.program.emit(node, core, "ADD", dims, comment, reads)
            for end in ends:
                self.program.emit(node, core, "WRITE", end, comment, [done])


def receivers(operation: Operation) -> list[int]:
    """The nodes of the outputs of a communication."""
    return [int(name.partition(":")[0]) for name in operation.outputs]
