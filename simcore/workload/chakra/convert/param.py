"""Execution traces as PARAM's basic traces: the communication of every rank, to be replayed on a cluster.

One JSON list a rank: process groups first (`init`), then collectives, sends and receives with their sizes in elements,
each with the `wait` that something else needs it for. Computation is in `startTime_ns` alone. Source: the parser of
facebookresearch/param, train/comms/pt (MIT licence).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simcore.errors import InputError
from simcore.workload.chakra.summary import finish_times
from simcore.workload.model import ALL_DIMENSIONS, CollectiveKind, Graph, GraphSet, NodeKind
from simcore.workload.order import waiting_order

Entry = dict[str, Any]
NAMES = {
    CollectiveKind.ALL_GATHER: "all_gather_base",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter_base",
    CollectiveKind.ALL_TO_ALL: "all_to_allv",
}
GATHERS = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}
SCATTERS = {CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER}
ROOTED = {CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER}
DTYPES = {2: "bfloat16", 1: "byte"}


def to_param(graphs: GraphSet) -> list[bytes]:
    """The trace of every rank; InputError where collectives name dimensions of a machine instead of groups."""
    everybody = tuple(range(len(graphs.graph_of_rank)))
    groups = {"": everybody} | {name: tuple(ranks) for name, ranks in sorted(graphs.groups.items())}
    for graph in graphs.graphs:
        if ((graph.kind == NodeKind.COLLECTIVE) & (graph.dims != ALL_DIMENSIONS)).any():
            text = "collectives name dimensions of a machine, which a cluster does not have"
            raise InputError.at(graph.path, text, expected="groups of ranks (pg_name)")
    head = [
        {"comms": "init", "pg_id": number, "req": -1, "global_ranks": list(ranks), "world_size": len(ranks)}
        for number, ranks in enumerate(groups.values())
    ]
    rows = [_Rows(graph) for graph in graphs.graphs]
    made = [[*head, *rows[number].entries(rank, groups)] for rank, number in enumerate(graphs.graph_of_rank.tolist())]
    return [(json.dumps(entries, indent=0, separators=(",", ":")) + "\n").encode() for entries in made]


class _Rows:
    """A graph in the order in which it is replayed, and what each node needs to have ended."""

    def __init__(self, graph: Graph):
        self.graph, self.order = graph, waiting_order(graph.dep_offsets, graph.deps)
        finish = finish_times(graph)
        self.start_ns = [end - duration for end, duration in zip(finish, graph.duration_ns.tolist(), strict=True)]
        self.needs = self._needs()

    def _needs(self) -> dict[int, list[int]]:
        """Communication whose end a node of communication waits for, directly or through others; each once."""
        graph, waited = self.graph, set[int]()
        open_behind: list[set[int]] = [set() for _ in range(len(graph))]
        needs: dict[int, list[int]] = {}
        for row in self.order:
            behind = set().union(*(open_behind[dep] for dep in graph.deps[slice(*graph.dep_offsets[row : row + 2])]))
            open_behind[row] = behind - waited
            if graph.kind[row] >= NodeKind.SEND:
                needs[row] = sorted(open_behind[row])
                waited |= open_behind[row]
                open_behind[row] = {row}
        return needs

    def entries(self, rank: int, groups: dict[str, tuple[int, ...]]) -> Iterator[Entry]:
        """What a rank does, and the waits that nothing asked for at the end."""
        graph, asked = self.graph, dict[int, Entry]()
        number_of = {name: number for number, name in enumerate(groups)}
        for row in (row for row in self.order if row in self.needs):
            for needed in self.needs[row]:
                yield asked.pop(needed)
            name = graph.group_names[graph.group[row]] if graph.kind[row] == NodeKind.COLLECTIVE else ""
            place = {"req": int(graph.node_id[row]), "pg_id": number_of[name], "world_size": len(groups[name])}
            entry = _collective if graph.kind[row] == NodeKind.COLLECTIVE else _transfer
            yield {"startTime_ns": self.start_ns[row], **place, **entry(graph, row, rank, groups[name])}
            asked[row] = {"comms": "wait", **place}
        yield from asked.values()


def _elements(size_bytes: int, multiple: int = 1) -> tuple[int, str]:
    """So many bytes in elements, in a multiple of so many; and their type."""
    width = 1 if size_bytes % 2 else 2
    count = -(-size_bytes // width // multiple) * multiple
    return count, DTYPES[width]


def _transfer(graph: Graph, row: int, rank: int, group: Sequence[int]) -> Entry:
    sends = graph.kind[row] == NodeKind.SEND
    ends = (rank, int(graph.peer[row])) if sends else (int(graph.peer[row]), rank)
    count, dtype = _elements(int(graph.size_bytes[row]))
    return {
        "comms": "isend" if sends else "irecv", "in_msg_size": count, "out_msg_size": count, "dtype": dtype,
        "src_rank": ends[0], "dst_rank": ends[1], "use_batch": False,
    }  # fmt: skip


def _collective(graph: Graph, row: int, rank: int, group: Sequence[int]) -> Entry:
    """A collective with what goes in and comes out of this rank; sizes that do not divide are rounded up."""
    kind, size = list(CollectiveKind)[graph.collective[row]], len(group)
    entry: Entry = {"comms": NAMES.get(kind, kind.value)}
    if kind == CollectiveKind.BARRIER:
        return entry
    count, dtype = _elements(int(graph.size_bytes[row]), size if kind in SCATTERS else 1)
    out = count * size if kind in GATHERS else count // size if kind in SCATTERS else count
    if kind == CollectiveKind.ALL_TO_ALL:
        ends = np.arange(size + 1) * count // size
        parts = np.diff(ends).tolist()
        own = parts[list(group).index(rank)]
        entry |= {"in_split": parts, "out_split": [own] * size}
        out = own * size
    if kind in ROOTED:
        entry["root"] = int(graph.peer[row]) if graph.peer[row] >= 0 else group[0]
    return entry | {"in_msg_size": count, "out_msg_size": out, "dtype": dtype}
