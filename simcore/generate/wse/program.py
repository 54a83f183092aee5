"""What the core level is made of: instructions of every core, as the peer's traces hold them, and banks.

A tensor's layout is an array of its shape that holds each element's bank on its node. Views, splits, transposes, slices
and concatenations of a tensor are those of its array, which is why they cost nothing here. A tile of a tensor that
nobody computed (a view, a slice) is a run of elements in one bank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import md5
from itertools import pairwise, product
from math import ceil, prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from simcore.workload.wafer import Instruction


class Program(Struct):
    """The lists of instructions of all cores: `lists[node][core]`."""

    nodes: int
    cores: int
    lists: list[list[list[Instruction]]] = []

    def __post_init__(self) -> None:
        self.lists = [[[] for _ in range(self.cores)] for _ in range(self.nodes)]

    def emit(
        self, node: int, core: int, kind: str, arguments: tuple[int, ...], comment: str, after: Iterable[int] = ()
    ) -> int:
        """Append an instruction; its place in the core's list."""
        instructions = self.lists[node][core]
        instructions.append(Instruction(kind, arguments, tuple(after), comment))
        return len(instructions) - 1

    def bank(self, node: int, local: int) -> int:
        """The wafer's number of a node's bank or core."""
        return node * self.cores + local

    def barrier(self, name: str, cores: Iterable[int], comment: str | None = None) -> None:
        """Make the cores, by the wafer's numbers, wait for each other; the identifier follows from name and cores."""
        members = sorted(set(cores))
        identifier = md5((name + "_".join(map(str, members))).encode(), usedforsecurity=False).hexdigest()[:16]
        shown = Instruction("BARRIER", (identifier,), (), comment or name)
        for member in members:
            self.lists[member // self.cores][member % self.cores].append(shown)


def line(number: int, instruction: Instruction) -> str:
    """The line of a trace.

    >>> line(4, Instruction("WRITE", (47, 1152), (3,), "decode0_wkva_gemm_0_7_1"))
    '4 WRITE 47 1152 [3]\\t\\t;decode0_wkva_gemm_0_7_1'
    """
    kind, arguments, after, comment = instruction
    waits = f" [{' '.join(map(str, after))}]" if after else ""
    return f"{number} {kind} {' '.join(map(str, arguments))}{waits}\t\t;{comment}"


def summary(program: Program, nodes: Iterable[int]) -> dict[str, dict[str, int]]:
    """Numbers and bytes of the instructions of some nodes by kind, and the operations (2 M K N) of their products."""
    counts: Counter[str] = Counter()
    size: Counter[str] = Counter()
    flops = 0
    for each in (each for node in nodes for core in program.lists[node] for each in core):
        counts[each.kind] += 1
        if each.kind in {"READ", "WRITE", "COPY", "MULTICAST"}:
            size[each.kind] += int(each.arguments[-1])
        elif each.kind == "GEMM":
            flops += 2 * prod(int(number) for number in each.arguments)
    sums = {"instructions": counts, "bytes": size, "flops": {"GEMM": flops}}
    return {name: dict(sorted(held.items())) for name, held in sums.items()}


# --- where elements lie


Banks = npt.NDArray[np.int16]
# Stands where no instruction has placed an element: the queries of the first layer, the product of up and gate. Whoever
# needs the tensor finds it in the tiles that it needs.
UNPLACED = -1


def blocks(shape: tuple[int, ...], tile: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Indices and extent of every tile of a tensor, row-major.

    >>> [index for index, _ in blocks((4, 5), (4, 2))]
    [(0, 0), (0, 1), (0, 2)]
    """
    counts = [ceil(size / part) for size, part in zip(shape, tile, strict=True)]
    for index in product(*map(range, counts)):
        ends = zip(index, tile, shape, strict=True)
        yield index, tuple(slice(place * part, min((place + 1) * part, size)) for place, part, size in ends)


def tiled(shape: tuple[int, ...], tile: tuple[int, ...], banks: int) -> Banks:
    """Tiles dealt to the banks in row-major order, the first to bank 0."""
    number = np.zeros((1,) * len(shape), np.int64)
    for axis, (size, part) in enumerate(zip(shape, tile, strict=True)):
        place = np.arange(size) // part
        spread = place.reshape(-1, *(1,) * (len(shape) - axis - 1))
        number = number * ceil(size / part) + spread
    return np.broadcast_to(number % banks, shape).astype(np.int16)


def unplaced(shape: tuple[int, ...]) -> Banks:
    """The layout of a tensor that no instruction has placed."""
    return np.broadcast_to(np.int16(UNPLACED), shape)


def bank_bytes(part: Banks, element_bytes: int) -> list[tuple[int, int]]:
    """(bank, bytes) of a part of a tensor, banks ascending."""
    counts = np.bincount(part.reshape(-1))
    return [(bank, int(counts[bank]) * element_bytes) for bank in np.flatnonzero(counts).tolist()]


def runs(vector: Banks) -> list[tuple[int, slice]]:
    """(bank, extent) of the runs of equal bank in a vector."""
    if not vector.size:
        return []
    edges = [0, *(np.flatnonzero(np.diff(vector)) + 1).tolist(), vector.size]
    return [(int(vector[first]), slice(first, last)) for first, last in pairwise(edges)]
