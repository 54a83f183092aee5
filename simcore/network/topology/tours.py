"""Closed tours of all NPUs of a 2-D mesh, torus or wafer: the order in which a ring visits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from simcore.network.topology.links import LinkGraph

if TYPE_CHECKING:
    import networkx

ATTEMPTS = 200  # shufflings of cycles that could not be joined

Near = dict[int, set[int]]
Factor: TypeAlias = "networkx.Graph[int]"


def snake(links: LinkGraph) -> tuple[int, ...]:
    """Row by row, to and fro, dead NPUs left out; ValueError unless the topology is a 2-D mesh, torus or wafer.

    The last NPU's way back to the first is as long as it is.
    """
    column, row = _places(links)
    return tuple(np.lexsort((np.where(row % 2, -column, column), row)).tolist())


def hamiltonian(links: LinkGraph) -> tuple[int, ...]:
    """A tour on which every step is one link, wrap-around links aside.

    ValueError where there is none, or none was found: joining the cycles of a 2-factor finds one on all but contrived
    wafers.
    """
    column, row = _places(links)
    near: Near = {npu: set() for npu in range(links.npus)}  # who is one link away on the plane
    for a, b in zip(links.src.tolist(), links.dst.tolist(), strict=True):
        if max(a, b) < links.npus and abs(column[a] - column[b]) + abs(row[a] - row[b]) == 1:
            near[a].add(b)
    if len(near) == 2 and near[0]:
        return (0, 1)
    tour = _comb(near, links) or _joined(_two_factor(near, links), near, links)
    if tour is None:
        raise ValueError("no Hamiltonian ring was found on this mesh")
    return tour


TOURS: Mapping[str, Callable[[LinkGraph], tuple[int, ...]]] = {"snake": snake, "hamiltonian": hamiltonian}


def _places(links: LinkGraph) -> tuple[np.ndarray, np.ndarray]:
    """Column and row of every NPU."""
    found = links.coordinates()
    if found is None:
        raise ValueError("a snake or Hamiltonian ring needs a 2-D mesh, torus or wafer")
    return found[: links.npus, 0], found[: links.npus, 1]


def _comb(near: Near, links: LinkGraph) -> tuple[int, ...] | None:
    """The rest to and fro, and back along the first column (or row): on whole rectangles with an even side."""
    column, row = (place - place.min() for place in _places(links))
    columns, rows = int(column.max()) + 1, int(row.max()) + 1
    links_of_all = 2 * (rows * (columns - 1) + columns * (rows - 1))
    whole = columns * rows == len(near) and sum(map(len, near.values())) == links_of_all
    if not whole or min(columns, rows) < 2 or columns * rows % 2:
        return None
    along, across = (row, column) if rows % 2 == 0 else (column, row)  # `along` has an even number
    order = np.lexsort((np.where(along % 2, -across, across), along))
    back = np.flatnonzero(across == 0)
    return (*order[across[order] > 0].tolist(), *back[np.argsort(-along[back])].tolist())


def _two_factor(near: Near, links: LinkGraph) -> Factor:
    """Cycles through all NPUs: every NPU with two of its neighbours; ValueError if there are none.

    A plane's squares have two colours, and neighbours differ: a maximum flow from one colour to the other.
    """
    import networkx

    column, row = _places(links)
    black = dict.fromkeys(npu for npu in near if (column[npu] + row[npu]) % 2 == 0)
    if 2 * len(black) != len(near):
        sides = f"{len(black)} black NPUs and {len(near) - len(black)} white ones"
        raise ValueError(f"there is no Hamiltonian ring: coloured like a chessboard, there are {sides}")
    graph = networkx.DiGraph()
    graph.add_edges_from((("from", npu) if npu in black else (npu, "to") for npu in near), capacity=2)
    graph.add_edges_from(((npu, white) for npu in black for white in sorted(near[npu])), capacity=1)
    _, flow = networkx.maximum_flow(graph, "from", "to")
    factor = networkx.Graph((npu, white) for npu in black for white in near[npu] if flow[npu][white])
    if lonely := [npu for npu in black if npu not in factor or factor.degree[npu] < 2]:
        where = f"({column[lonely[0]]},{row[lonely[0]]})"
        raise ValueError(f"there is no Hamiltonian ring: not every NPU can have two neighbours on it, see {where}")
    return factor


def _joined(factor: Factor, near: Near, links: LinkGraph) -> tuple[int, ...] | None:
    """One cycle of many: two that pass each other along a square are joined across it. None when they cannot be.

    When no more can be joined, some squares are turned by chance (seeded) and it begins again.
    """
    from networkx.utils import UnionFind

    squares = list(_squares(links))
    for attempt in range(ATTEMPTS):
        cycles = UnionFind()
        for tour in _tours(factor):
            cycles.union(*tour)
        for square in squares:
            a, _, c, _ = square
            if cycles[a] != cycles[c] and _turn(square, near, factor):
                cycles.union(a, c)
        tours = _tours(factor)
        if len(tours) == 1:
            return tours[0]
        chance = Random(attempt)  # noqa: S311 - the same every time
        for square in chance.sample(squares, min(len(squares), 1 + attempt % 8)):
            _turn(square, near, factor)
    return None


def _turn(square: tuple[int, int, int, int], near: Near, factor: Factor) -> bool:
    """Where the factor has two opposite sides of a square, ab and cd, give it the others."""
    a, b, c, d = square
    sides, others = [(a, b), (c, d)], [(a, c), (b, d)]
    if not all(factor.has_edge(*side) for side in sides) or any(factor.has_edge(*side) for side in others):
        return False
    if not all(end in near[start] for start, end in others):
        return False
    factor.remove_edges_from(sides)
    factor.add_edges_from(others)
    return True


def _squares(links: LinkGraph) -> Iterator[tuple[int, int, int, int]]:
    """Corners of all squares, both ways: ab and cd are opposite sides."""
    column, row = _places(links)
    at = {place: npu for npu, place in enumerate(zip(column.tolist(), row.tolist(), strict=True))}
    for (x, y), a in sorted(at.items()):
        b, c, d = at.get((x + 1, y)), at.get((x, y + 1)), at.get((x + 1, y + 1))
        if b is not None and c is not None and d is not None:
            yield a, b, c, d
            yield a, c, b, d


def _tours(factor: Factor) -> list[tuple[int, ...]]:
    """The cycles of a 2-factor, each from its least NPU on."""
    import networkx

    starts = sorted(map(min, networkx.connected_components(factor)))
    return [tuple(networkx.dfs_preorder_nodes(factor, start, sort_neighbors=sorted)) for start in starts]
