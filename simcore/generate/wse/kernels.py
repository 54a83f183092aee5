"""Products, attention and sums as instructions: one tile on the core that has its weights or its cache.

Weights are always local, inputs are read from the banks they lie in. Partial results of a cut inner dimension (split K,
split cache) stay where they were computed; after a barrier the core of the output tile adds them up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

from simcore.generate.wse.layout import UNPLACED, Banks, bank_bytes, blocks, runs, tiled
from simcore.generate.wse.operations import Operation
from simcore.generate.wse.program import Program
from simcore.generate.wse.ranks import split
from simcore.generate.wse.tiling import Tiling

__all__ = ["Core", "attention", "product", "total"]


@dataclass(frozen=True)
class Core:
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
        program, node = self.program, self.node
        return [
            program.emit(node, core, "READ", (program.bank(node, bank), size), comment) for bank, size in held if size
        ]

    def write(self, core: int, bank: int, size: int, comment: str, after: Iterable[int]) -> None:
        """A WRITE of `size` bytes."""
        self.program.emit(self.node, core, "WRITE", (self.program.bank(self.node, bank), size), comment, after)

    def reduce(self, uid: str, kind: str, tile: tuple[str, int, tuple[int, ...]], parts: list[int]) -> None:
        """Add partial tiles, one in each bank of `parts`, on the core of the output: barrier, chain of READ and
        ADD, WRITE.

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


def product(core: Core, operation: Operation, source: Banks) -> Banks:
    """Linear and GroupedLinear; `source` has shape [groups, M, K] once flattened. Returns the layout of the output."""
    grouped = operation.kind == "GroupedLinear"
    shape = operation.shape
    groups, rows, inner, outer = shape if grouped else (1, *shape)
    if not groups * rows:
        return tiled((groups, rows, outer), (1, 1, 1), core.cores).reshape((*shape[:-2], outer))
    tile = core.tiling.of(operation.uid, operation.kind, shape, core.cores)
    each = tile if grouped else (1, *tile)
    source = source.reshape(groups, rows, inner)
    if source[0, 0, 0] == UNPLACED:
        source = tiled(source.shape, each[:3], core.cores)
    partial: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, extent in blocks((groups, rows, inner), each[:3]):
        held = bank_bytes(source[extent], core.element_bytes)
        for n in range(ceil(outer / each[3])):
            where = _multiply(core, operation.uid, grouped, (groups, rows, inner, outer), each, (*index, n), held)
            partial[index[0], index[1], n].append(where)
    _reduced(core, operation.uid, grouped, (groups, rows, outer), (*each[:2], each[3]), partial)
    out = tiled((groups, rows, outer), (*each[:2], each[3]), core.cores)
    return out if grouped else out[0]


def _multiply(
    core: Core,
    uid: str,
    grouped: bool,
    shape: tuple[int, ...],
    tile: tuple[int, ...],
    index: tuple[int, ...],
    held: list[tuple[int, int]],
) -> int:
    """The instructions of one tile; the core that runs them."""
    counts = [ceil(size / part) for size, part in zip(shape, tile, strict=True)]
    groups, rows, inner, outer = (
        min(part, size - place * part) for size, part, place in zip(shape, tile, index, strict=True)
    )
    g, m, k, n = index
    where = ((g * counts[2] + k) * counts[3] + n) % core.cores
    label = "_".join(map(str, index if grouped else index[1:]))
    comment = f"{uid}_{'grouped_' if grouped else ''}gemm_{label}"
    y = core.element_bytes
    after = core.reads(where, [*held, (where, groups * inner * outer * y)], comment)
    emit = core.program.emit
    done = [emit(core.node, where, "GEMM", (rows, inner, outer), comment, after) for _ in range(groups)]
    whole = counts[2] == 1
    bank = ((g * counts[1] + m) * counts[3] + n) % core.cores if whole else where
    core.write(where, bank, groups * rows * outer * y, comment, done)
    return where


def _reduced(
    core: Core,
    uid: str,
    grouped: bool,
    shape: tuple[int, ...],
    tile: tuple[int, ...],
    partial: dict[tuple[int, ...], list[int]],
) -> None:
    """Add up the partial results of every output tile that has more than one."""
    for number, (index, extent) in enumerate(blocks(shape, tile)):
        if len(partial[index]) > 1:
            dims = tuple(part.stop - part.start for part in extent)
            label = "_".join(map(str, index if grouped else index[1:]))
            output = (label, number % core.cores, dims if grouped else dims[1:])
            core.reduce(uid, "reduce", output, partial[index])


@dataclass(frozen=True)
class Heads:
    """An attention by its numbers: `key` and `value` elements per head, `kv_heads` heads of keys for `heads` of
    queries.

    `cached` positions are read from the cache of the tile's core, or from the layouts `keys` of keys and values in
    prefill.
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
    keys = tuple(source.reshape(batch, queries, -1) for source in sources[1:]) if not operation.hbm_bytes else ()
    return Heads(batch, queries, heads, kv_heads, width, width, scored, 2 * kv_heads * width * element_bytes, keys)


def attention(core: Core, operation: Operation, sources: list[Banks]) -> Banks:
    """Scores and values of every (sequence, block of queries, block of the cache); returns [batch, queries, heads,
    value].
    """
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
            after = _reads(core, shape, (sources[0][extent[:2]], index[0], held, banks[s]), comment)
            _scores(core, shape, (rows, held.stop - held.start, banks[s], bank), comment, after)
        if splits > 1:
            core.reduce(operation.uid, "attn", (label, output, (rows, shape.heads, shape.value)), banks)
    return tiled(dims, out, core.cores)


def _reads(core: Core, shape: Heads, tile: tuple[Banks, int, slice, int], comment: str) -> list[int]:
    """READ the queries of a tile, then its keys and values: from the cache in its bank, or from where they were
    computed.
    """
    queries, sequence, held, where = tile
    y = core.element_bytes
    parts = bank_bytes(queries, y)
    if shape.position_bytes:
        parts.append((where, (held.stop - held.start) * shape.position_bytes))
    for keys in shape.keys:
        parts += bank_bytes(keys[sequence, held], y)
    return core.reads(where, parts, comment)


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


def total(core: Core, operation: Operation, source: Banks) -> Banks:
    """Sum over the first axis of [vectors, 1, hidden]: tiles as in the first vector, dealt to the cores in turn."""
    out = source[:1].copy()
    for number, (_, extent) in enumerate(runs(source[0, 0])):
        where, size = number % core.cores, extent.stop - extent.start
        comment = f"{operation.uid}_{number}"
        parts = [bank_bytes(vector[0, extent], core.element_bytes) for vector in source]
        last = core.chain(where, parts, (1, 1, size), comment)
        core.write(where, where, size * core.element_bytes, comment, [last])
        out[..., extent] = where
    return out
