"""What must hold between a trace and the machine that runs it: peers and groups exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simcore.errors import Problems, closest
from simcore.workload.chakra.graph import Trace
from simcore.workload.model import Graph, NodeKind

__all__ = ["check_ranks"]


def check_ranks(
    traces: Sequence[Trace],
    graphs: Sequence[Graph],
    graph_of_rank: NDArray[np.int32],
    groups: Mapping[str, tuple[int, ...]],
) -> None:
    """InputError naming sends and receives without a peer, and collectives in groups that are unknown or foreign."""
    with Problems() as problems:
        for index, (trace, graph) in enumerate(zip(traces, graphs, strict=True)):
            _check_peers(trace, len(graph_of_rank), problems)
            _check_groups(trace, graph, np.flatnonzero(graph_of_rank == index), groups, problems)


def _check_peers(trace: Trace, npus: int, problems: Problems) -> None:
    kind, peer = trace.graph.kind, trace.graph.peer
    transfer = (kind == NodeKind.SEND) | (kind == NodeKind.RECV)
    for row in np.flatnonzero(transfer & ((peer < 0) | (peer >= npus))).tolist():
        what, field = ("send", "comm_dst") if kind[row] == NodeKind.SEND else ("receive", "comm_src")
        found = str(peer[row]) if peer[row] != -1 else "nothing"
        text = f"the {what} names a rank that does not exist" if found != "nothing" else f"the {what} names no rank"
        problems.add(trace.places.problem(row, text, field, f"ranks 0 to {npus - 1}", found))


def _check_groups(
    trace: Trace, graph: Graph, ranks: NDArray[np.int64], groups: Mapping[str, tuple[int, ...]], problems: Problems
) -> None:
    used = np.where(graph.kind == NodeKind.COLLECTIVE, graph.group, 0)
    for number in np.unique(used[used > 0]).tolist():
        name, row = graph.group_names[number], int(np.flatnonzero(used == number)[0])
        if name not in groups:
            hint = f"{closest(name, groups)}; give --comm-groups"
            problems.add(trace.places.problem(row, f"unknown group '{name}'", "pg_name", hint, repr(name)))
            continue
        foreign = np.setdiff1d(ranks, groups[name]).tolist()
        if foreign:
            text = f"rank {foreign[0]} runs a collective of group '{name}' but is no member"
            problems.add(trace.places.problem(row, text, "pg_name", f"one of the ranks {list(groups[name])}"))
