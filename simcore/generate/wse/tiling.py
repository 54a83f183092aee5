"""How an operation is cut into tiles, one at a time on a core: chosen by cost, or given in `tiling.json`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from math import ceil, prod
from pathlib import Path

from msgspec import Struct

from simcore.documents import Node, read
from simcore.errors import InputError, Problems, closest
from simcore.generate.wse.operations import ATTENTION

HALVINGS = 6
Tile = tuple[int | None, ...]
# Kind of operation -> the dimensions of its tile. Attention tiles are (positions of queries, positions of the cache).
DIMENSIONS = {
    "Linear": ("M", "K", "N"),
    "GroupedLinear": ("groups", "M", "K", "N"),
    **dict.fromkeys(sorted(ATTENTION), ("queries", "cached")),
}
ATTENTION_POSITIONS = 512


@cache
def autotile(shape: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """The tile of a product [groups,] M, K, N that moves the least data for the occupancy it reaches.

    Every dimension is halved up to five times (rounded up). The cost is the data that all tiles touch over the
    data of the whole product, divided by how evenly the tiles fill the cores; the first minimum in their order counts.

    >>> autotile((147, 7168, 576), 16)
    (147, 896, 288)
    """
    candidates = [[(ceil(size / (1 << halving))) for halving in range(HALVINGS)] for size in shape]
    return min(product(*candidates), key=lambda tile: _cost(shape, tile, cores))


def _cost(shape: tuple[int, ...], tile: tuple[int, ...], cores: int) -> float:
    counts = [ceil(size / part) for size, part in zip(shape, tile, strict=True)]
    rows, inner, outer = shape[-3:]
    many_rows, many_inner, many_outer = counts[-3:]
    touched = many_rows * inner * outer + many_outer * rows * inner + (2 * many_inner + 1) * rows * outer
    ideal = rows * inner + inner * outer + rows * outer
    share = prod(counts) / cores
    return (touched / ideal) / (share / ceil(share))


class Tiling(Struct, frozen=True):
    """Tiles by name of operation (a pattern with `*`), then by kind; what is not named is chosen by `autotile`."""

    layers: dict[str, Tile] = {}
    defaults: dict[str, Tile] = {}

    def of(self, uid: str, kind: str, shape: tuple[int, ...], cores: int) -> tuple[int, ...]:
        """The tile of an operation whose dimensions are `shape`, in the order of `DIMENSIONS`."""
        given = next((tile for pattern, tile in self.layers.items() if fnmatchcase(uid, pattern)), None)
        given = self.defaults.get(kind) if given is None else given
        if given is not None:
            if len(given) != len(shape):
                sizes = ", ".join(DIMENSIONS[kind])
                raise InputError.at("--tiling", f"the tile of {uid} has {len(given)} sizes", expected=f"[{sizes}]")
            return tuple(size if part is None else min(part, size) for part, size in zip(given, shape, strict=True))
        return tuple(min(ATTENTION_POSITIONS, size) for size in shape) if kind in ATTENTION else autotile(shape, cores)


def read_tiling(path: str | Path) -> Tiling:
    """Tiles of a JSON file {"layers": {pattern: [..]}, "defaults": {kind: [..]}}; null stands for the full dimension.
    InputError for unknown keys or kinds, or tiles with another number of dimensions than the kind has.
    """
    with Problems() as problems:
        root = read(path, problems)
        root.keys(optional=("layers", "defaults"))
        layers = {name: _tile(node) for name, node in root["layers"].mapping()} if "layers" in root else {}
        defaults = {name: _default(node) for name, node in root["defaults"].mapping()} if "defaults" in root else {}
    return Tiling(layers, defaults)


def _tile(node: Node) -> Tile:
    """Sizes, null for the full dimension."""
    if not isinstance(node.value, list):
        node.problem("a tile is a list of sizes", expected="[2, 512, null]")
        return ()
    return tuple(None if item.value is None else item.integer(1) for item in node.items)


def _default(node: Node) -> Tile:
    """The tile of a kind."""
    tile = _tile(node)
    if node.name not in DIMENSIONS:
        node.problem("no such kind of operation has tiles", expected=closest(node.name, DIMENSIONS))
    elif len(tile) != len(DIMENSIONS[node.name]):
        sizes = ", ".join(DIMENSIONS[node.name])
        node.problem("the tile has another number of sizes than the operation", expected=f"[{sizes}]")
    return tile
