"""Communicators of traces that are rows of a dimension, as a loop's groups are: those that are alike are one family.

A row of a dimension has NPUs as far apart as each other, and rows of its size fill the dimension. Ranks name theirs
differently, but do the same with it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from simcore.engine.classes import Ints
from simcore.network.topology.model import Topology
from simcore.system.groups import LogicalDim, cut, first_apart
from simcore.workload.model import NODE_COLUMNS, Graph, GraphSet

_TOLD = ("dep_offsets", "deps", *(column for column in NODE_COLUMNS if column not in {"node_id", "group", "peer"}))


class Family(NamedTuple):
    """Communicators that lie along `dim`, one for every row of it, by their common `name`."""

    name: str
    dim: LogicalDim


def families_of(graphs: GraphSet, topology: Topology) -> dict[str, Family]:
    """The family of every communicator of some NPUs that has collectives; {} where one of them is no row.

    Those in which the NPUs of a graph send first are one family, those in which they do so next are another one, if
    rows are equal.
    """
    found: dict[str, tuple[LogicalDim, int]] = {}
    for graph in graphs.graphs:
        seen = Counter[LogicalDim]()
        for name in _used(graph, graphs, len(graphs.graph_of_rank)):
            dim = row_of(topology, graphs.groups[name])
            if dim is None or found.setdefault(name, (dim, seen[dim])) != (dim, seen[dim]):
                return {}
            seen[dim] += 1
    members: dict[tuple[LogicalDim, int], list[str]] = {}
    for name in sorted(found, key=lambda name: graphs.groups[name]):
        members.setdefault(found[name], []).append(name)
    named = {key: _named(names) for key, names in members.items()}
    return {name: Family(named[key], key[0]) for name, key in found.items()}


def _used(graph: Graph, graphs: GraphSet, npus: int) -> Iterator[str]:
    """The communicators of some NPUs in which those of a graph send something, in the order in which they begin."""
    numbers, first = np.unique(graph.group[graph.collective >= 0], return_index=True)
    for number in numbers[np.argsort(first)].tolist():
        name = graph.group_names[number]
        if 1 < len(graphs.groups.get(name, ())) < npus:
            yield name


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} alike"


def row_of(topology: Topology, ranks: Sequence[int]) -> LogicalDim | None:
    """The groups of which some ranks are one, in their order, inside a dimension; None where they are no such row."""
    index = first_apart(tuple(dim.npus for dim in topology.dims), tuple(ranks))
    inner, stride = topology.strides[index], ranks[-1] - ranks[-2] if len(ranks) > 1 else 0
    if stride < inner or stride % inner or inner * topology.dims[index].npus % (stride * len(ranks)):
        return None
    dim = LogicalDim(index, len(ranks), stride)
    return dim if dim.members(ranks[0]).tolist() == [*ranks] else None


def rows_in(dims: Sequence[LogicalDim], families: Iterable[Family], width: int) -> list[LogicalDim]:
    """Dimensions cut where families begin and end, and stages; [] where these do not lie inside each other."""
    found = list(dims)
    try:
        for edge in sorted({width, *(edge for _, dim in families for edge in (dim.stride, dim.stride * dim.size))}):
            found = cut(found, edge)
    except ValueError:
        return []
    return found


def stage_width(graphs: GraphSet) -> int:
    """How many NPUs a stage has, where messages go to the same place in other stages only; all where there are none.

    1 where nobody has the place of another, as where a graph with messages is that of several NPUs.
    """
    first_of, width = _first_of(graphs), len(graphs.graph_of_rank)
    used = np.bincount(graphs.graph_of_rank, minlength=len(graphs.graphs))
    for graph, first, ranks in zip(graphs.graphs, first_of, used.tolist(), strict=True):
        apart = np.unique(graph.peer[graph.messages] - first)
        width = gcd(width, *apart.tolist()) if ranks == 1 or not len(apart) else 1
    return width


def programs_of(graphs: GraphSet, families: Mapping[str, Family], width: int) -> Ints:
    """A number for what every NPU does, equal where graphs differ only in which of a family's groups they name.

    And in whom they send to: each to the same place in another stage of `width` NPUs.
    """
    told = [_told(graph, first, families) for graph, first in zip(graphs.graphs, _first_of(graphs), strict=True)]
    known: dict[tuple[bytes, int, int], int] = {}
    numbers = enumerate(graphs.graph_of_rank.tolist())
    does = ((told[number], graphs.start_ns.get(rank, 0), rank // width) for rank, number in numbers)
    return np.array([known.setdefault(each, len(known)) for each in does], np.int64)


def _first_of(graphs: GraphSet) -> list[int]:
    """The first rank of every graph."""
    numbers, firsts = np.unique(graphs.graph_of_rank, return_index=True)
    found = dict(zip(numbers.tolist(), firsts.tolist(), strict=True))
    return [found.get(number, 0) for number in range(len(graphs.graphs))]


def _told(graph: Graph, rank: int, families: Mapping[str, Family]) -> bytes:
    """What is equal for graphs that say the same, each of its rank."""
    names = [families[name].name if name in families else name for name in graph.group_names]
    groups = [names[number] for number in graph.group.tolist()]
    content = hashlib.blake2b(repr((graph.policy, graph.names, groups)).encode())
    content.update((graph.peer - np.where(graph.messages, rank, 0)).tobytes())
    for column in _TOLD:
        content.update(getattr(graph, column).tobytes())
    content.update(b"" if graph.chakra_ns is None else graph.chakra_ns.tobytes())
    return content.digest()
