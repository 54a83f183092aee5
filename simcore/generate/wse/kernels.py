"""What nodes compute and send to each other as instructions of their cores.

Products, attention and sums: one tile on the core that has its weights or its cache.

Weights are always local, inputs are read from the banks they lie in. Partial results of a cut inner dimension (split K,
split cache) stay where they were computed; after a barrier the core of the output tile adds them up.

Communication: COPY and MULTICAST of tiles, rings of COPY and ADD, barriers. The peer issues all on core 0 of a node;
`spread` lets the core of each bank move its own data. Tiles of a received tensor go to the banks in row-major order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from math import ceil, prod

import numpy as np
from msgspec import Struct

from simcore.generate.wse.operations import Operation
from simcore.generate.wse.program import UNPLACED, Banks, Program, bank_bytes, blocks, runs, tiled, unplaced
from simcore.generate.wse.settings import split
from simcore.generate.wse.tiling import Tiling


class Core(Struct, frozen=True):
    """What every kernel needs: the program to extend, the node, the tiles, the size of an element."""

    program: Program
    node: int
    tiling: Tiling
    element_bytes: int

    @property
    def cores(self) -> int:
        """Cores, and banks, of the node."""
        return self.program.cores

    def reads(self, core: int, held: Iterable[tuple[int, int]], comment: str) -> list[int]:
        """One READ per bank; their places."""
        node, emit, bank_of = self.node, self.program.emit, self.program.bank
        return [emit(node, core, "READ", (bank_of(node, bank), size), comment) for bank, size in held if size]

    def write(self, core: int, bank: int, size: int, comment: str, after: Iterable[int]) -> None:
        """A WRITE of `size` bytes."""
        self.program.emit(self.node, core, "WRITE", (self.program.bank(self.node, bank), size), comment, after)

    def reduce(self, uid: str, kind: str, tile: tuple[str, int, tuple[int, ...]], parts: list[int]) -> None:
        """Add partial tiles, one in each bank of `parts`, on the output's core: barrier, chain of READ and ADD, WRITE.

        `tile` is the output tile's label, core and dimensions.
        """
        label, core, dims = tile
        size = prod(dims) * self.element_bytes
        members = [self.program.bank(self.node, each) for each in (*parts, core)]
        name = f"reduce_{label}"
        self.program.barrier(f"{uid}_barrier_{name}", members, f"{uid}_intrabarrier_{name}")
        comment = f"{uid}_{kind}_{label}"
        last = self.chain(core, [[(bank, size)] for bank in parts], dims, comment)
        self.write(core, core, size, comment, [last])

    def chain(self, core: int, parts: list[list[tuple[int, int]]], dims: tuple[int, ...], comment: str) -> int:
        """READ every part, ADD it to the sum so far; the place of the last instruction."""
        before = self.reads(core, parts[0], comment)
        for part in parts[1:]:
            after = [*before, *self.reads(core, part, comment)]
            before = [self.program.emit(self.node, core, "ADD", dims, comment, after)]
        return before[-1]


class Tiles(Struct, frozen=True, dict=True):
    """A product [groups, M, K, N] and its tiles; a Linear has one group, which its labels leave out."""

    uid: str
    grouped: bool
    shape: tuple[int, ...]
    tile: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tiles along every dimension."""
        return tuple(ceil(size / part) for size, part in zip(self.shape, self.tile, strict=True))

    def label(self, index: tuple[int, ...]) -> str:
        """The place of a tile in names."""
        return "_".join(map(str, index if self.grouped else index[1:]))

    def sizes(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """What is inside the product of a tile at its edge."""
        every = zip(self.shape, self.tile, index, strict=True)
        return tuple(min(part, size - place * part) for size, part, place in every)

    @property
    def output(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and tile of the output."""
        return (*self.shape[:2], self.shape[3]), (*self.tile[:2], self.tile[3])


def product(core: Core, operation: Operation, sources: list[Banks]) -> Banks:
    """Linear and GroupedLinear on an input of as many elements as [groups, M, K]; returns the layout of the output."""
    grouped = operation.kind == "GroupedLinear"
    shape = operation.shape if grouped else (1, *operation.shape)
    if not shape[0] * shape[1]:
        return unplaced((*operation.shape[:-2], shape[3]))
    tile = core.tiling.of(operation.uid, operation.kind, operation.shape, core.cores)
    tiles = Tiles(operation.uid, grouped, shape, tile if grouped else (1, *tile))
    source = sources[0].reshape(shape[:3])
    if source[0, 0, 0] == UNPLACED:
        source = tiled(source.shape, tiles.tile[:3], core.cores)
    partial: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, extent in blocks(shape[:3], tiles.tile[:3]):
        held = bank_bytes(source[extent], core.element_bytes)
        for n in range(tiles.counts[3]):
            partial[index[0], index[1], n].append(_multiply(core, tiles, (*index, n), held))
    for number, (at, extents) in enumerate(blocks(*tiles.output)):
        if len(partial[at]) > 1:  # several partial results of an output tile
            dims = tuple(part.stop - part.start for part in extents)
            core.reduce(tiles.uid, "reduce", (tiles.label(at), number % core.cores, dims[not grouped :]), partial[at])
    out = tiled(*tiles.output, core.cores)
    return out if grouped else out[0]


def _multiply(core: Core, tiles: Tiles, index: tuple[int, ...], held: list[tuple[int, int]]) -> int:
    """The instructions of one tile, on the core of its weights; that core."""
    g, m, k, n = index
    _, many_rows, many_inner, many_outer = tiles.counts
    groups, rows, inner, outer = tiles.sizes(index)
    where = ((g * many_inner + k) * many_outer + n) % core.cores
    comment = f"{tiles.uid}_{'grouped_' if tiles.grouped else ''}gemm_{tiles.label(index)}"
    after = core.reads(where, [*held, (where, groups * inner * outer * core.element_bytes)], comment)
    emit = core.program.emit
    done = [emit(core.node, where, "GEMM", (rows, inner, outer), comment, after) for _ in range(groups)]
    bank = ((g * many_rows + m) * many_outer + n) % core.cores if many_inner == 1 else where
    core.write(where, bank, groups * rows * outer * core.element_bytes, comment, done)
    return where


class Heads(Struct, frozen=True):
    """An attention by its numbers: `key` and `value` elements a head, `kv_heads` heads of keys for `heads` of queries.

    `cached` positions are read from the cache of the tile's core, in prefill from layouts `keys` of keys and values.
    """

    batch: int
    queries: int
    heads: int
    kv_heads: int
    key: int
    value: int
    cached: int
    position_bytes: int
    keys: tuple[Banks, ...] = ()


def heads_of(operation: Operation, element_bytes: int, sources: list[Banks]) -> Heads:
    """The numbers of an attention operation."""
    numbers = operation.shape
    if operation.kind == "MLAAbsorbAttention":
        batch, heads, cached, latent, rope, queries = numbers
        return Heads(batch, queries, heads, 1, latent + rope, latent, cached, (latent + rope) * element_bytes)
    if operation.kind == "MLANaiveAttention":
        batch, queries, heads, key, scored, value = numbers
        return Heads(batch, queries, heads, heads, key, value, scored, 0, tuple(sources[1:]))
    batch, _, heads, width, scored, kv_heads, queries = numbers
    new = () if operation.hbm_bytes else sources[1:]
    keys = tuple(source.reshape(batch, queries, kv_heads * width) for source in new)
    return Heads(batch, queries, heads, kv_heads, width, width, scored, 2 * kv_heads * width * element_bytes, keys)


def attention(core: Core, operation: Operation, sources: list[Banks]) -> Banks:
    """Every (sequence, block of queries, block of the cache); returns the layout of [batch, queries, heads, value]."""
    shape = heads_of(operation, core.element_bytes, sources)
    tile = core.tiling.of(operation.uid, operation.kind, (shape.queries, max(shape.cached, 1)), core.cores)
    dims, out = (shape.batch, shape.queries, shape.heads, shape.value), (1, tile[0], shape.heads, shape.value)
    splits = ceil(shape.cached / tile[1])
    for number, (index, extent) in enumerate(blocks(dims, out)):
        label = f"{index[0]}_{index[1]}"
        rows, output = extent[1].stop - extent[1].start, number % core.cores
        banks = [(index[0] * splits + s) % core.cores for s in range(splits)]
        for (s,), (held,) in blocks((shape.cached,), (tile[1],)):
            bank = banks[s] if splits > 1 else output
            comment = f"{operation.uid}_attn_{label}_{s}"
            parts = bank_bytes(sources[0][extent[:2]], core.element_bytes)  # queries; then keys and values
            if shape.position_bytes:
                parts.append((banks[s], (held.stop - held.start) * shape.position_bytes))
            for keys in shape.keys:
                parts += bank_bytes(keys[index[0], held], core.element_bytes)
            after = core.reads(banks[s], parts, comment)
            _scores(core, shape, (rows, held.stop - held.start, banks[s], bank), comment, after)
        if splits > 1:
            core.reduce(operation.uid, "attn", (label, output, (rows, shape.heads, shape.value)), banks)
    return tiled(dims, out, core.cores)


def _scores(core: Core, shape: Heads, tile: tuple[int, int, int, int], comment: str, after: list[int]) -> None:
    """Two products per head of keys, for all its heads of queries; then the WRITE."""
    rows, held, where, bank = tile
    size = rows * shape.heads * shape.value * core.element_bytes
    emit, done = core.program.emit, []
    for heads in split(shape.heads, shape.kv_heads):
        many = rows * len(heads)
        first = emit(core.node, where, "GEMM", (many, shape.key, held), comment, after)
        done.append(emit(core.node, where, "GEMM", (many, held, shape.value), comment, [first]))
    core.write(where, bank, size, comment, done)


def total(core: Core, operation: Operation, sources: list[Banks]) -> Banks:
    """Sum over the first axis of [vectors, 1, hidden]: tiles as in the first vector, dealt to the cores in turn."""
    source = sources[0]
    out = source[:1].copy()
    for number, (_, extent) in enumerate(runs(source[0, 0])):
        where, size = number % core.cores, extent.stop - extent.start
        comment = f"{operation.uid}_{number}"
        parts = [bank_bytes(vector[0, extent], core.element_bytes) for vector in source]
        last = core.chain(where, parts, (1, 1, size), comment)
        core.write(where, where, size * core.element_bytes, comment, [last])
        out[..., extent] = where
    return out


# --- between nodes


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
        """Ring over the nodes of `held`, parts passed on G - 1 times; returns the layout of all parts together."""
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
