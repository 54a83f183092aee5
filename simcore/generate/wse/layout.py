"""Where the elements of a tensor lie: an array of the tensor's shape that holds each element's bank on its node.

Views, splits, transposes, slices and concatenations of a tensor are those of its array, which is why they cost
nothing here. A tile of a tensor that nobody computed (a view, a slice) is a run of elements in one bank.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import ceil

import numpy as np
import numpy.typing as npt

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
