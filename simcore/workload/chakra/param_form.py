"""PARAM's basic traces, read and written: one JSON list a rank of the communication that it replays on a cluster.

A written one has process groups first (`init`), then collectives, sends and receives with their sizes in elements, each
with the `wait` that something else needs it for. Computation is in `startTime_ns` alone.

Source: the parser of facebookresearch/param, train/comms/pt (MIT licence).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from simcore.errors import InputError
from simcore.places import Source, fitted
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.chakra.summary import finish_times
from simcore.workload.kineto import ELEMENT_BYTES
from simcore.workload.model import ALL_DIMENSIONS, ROOTED, SEND, CollectiveKind, Graph, GraphSet, NodeKind, kind_of
from simcore.workload.order import waiting_order

Entry = dict[str, Any]
Stream = tuple[object, ...]
EMPTY: Mapping[str, object] = {}


def is_param(entries: Sequence[Any]) -> bool:
    """Whether a list is such a trace; a rank may have nothing to do."""
    return not entries or any(
        isinstance(one, dict) and not one.keys().isdisjoint(("comms", "compute")) for one in entries
    )


def from_param(entries: Sequence[Any], source: Source) -> bytes:
    """One rank's trace as a file of Chakra's schema; InputError has the place of the value at fault.

    As PARAM replays it with time stamps: entries are issued in order, none before its `startTime_ns`, and a `wait`, or
    communication without a request, holds back what follows. Collectives of one process group, and products, run one
    after the other. All-to-alls are taken as even.
    """
    replayed = _Replayed()
    for number, said in enumerate(entries):
        fitted(replayed.add, said, source, (number,), "an entry of PARAM")
    return writer.encode(writer.metadata(), [writer.groups(0, replayed.groups), *replayed.nodes])


class _Replayed(Struct):
    """Nodes so far; what comes next waits for `host` and `clock`, `issued` belong to requests."""

    nodes: list[Any] = []
    groups: dict[str, list[int]] = {}
    streams: dict[Stream, int] = {}
    issued: dict[str, list[int]] = {}
    batch: list[int] = []
    host: list[int] = []
    clock: list[int] = []
    clock_ns: int = 0

    def add(self, entry: Entry) -> None:
        """One entry of the trace."""
        request = json.dumps([entry.get("pg_id"), entry.get("req")])
        name = re.sub("[^a-z]", "", str(entry["comms" if "comms" in entry else "compute"]).lower())
        if name == "init":
            self.groups[str(entry["pg_id"])] = [int(rank) for rank in entry["global_ranks"]]
        elif name == "wait":
            self._hold(self.issued.pop(request, []))
        elif name == "batchisendirecv":
            self.issued[request], self.batch = self.batch, []
        elif name == "gemm":
            sides = ("mm0_dim0", "mm0_dim1", "mm1_dim1")
            m, k, n = (int(entry[side] if side in entry else entry["mm_dim"]) for side in sides)
            count, width = int(entry.get("count", 1)), _width(entry["dtype"])
            work = {"num_ops": 2 * count * m * k * n, "tensor_size": count * width * (m * k + k * n + m * n)}
            self._issue(entry, "gemm", NodeKind.COMPUTE, ("compute",), work)
        elif not kind_of(name):
            raise ValueError(f"'{name}' is not supported: init, wait, gemm, collectives, sends and receives are")
        else:
            number = self._communicate(entry, name)
            if entry.get("use_batch"):
                self.batch.append(number)
            elif entry.get("req") is None:
                self._hold([number])
            else:
                self.issued.setdefault(request, []).append(number)

    def _hold(self, done: list[int]) -> None:
        if done:
            self.host = [self._node("wait", NodeKind.COMPUTE, [*self.host, *done], ("wait", len(self.nodes)))]

    def _node(
        self, name: str, kind: NodeKind, after: list[int], stream: Stream, said: Mapping[str, object] = EMPTY
    ) -> int:
        own = {"is_cpu_op": False, "stream": self.streams.setdefault(stream, len(self.streams)), **said}
        self.nodes.append(writer.node(len(self.nodes) + 1, name, kind, data_deps=after, attributes=own))
        return len(self.nodes)

    def _issue(self, entry: Entry, name: str, kind: NodeKind, stream: Stream, said: Mapping[str, object]) -> int:
        """A node at the time of an entry, behind what holds it back."""
        start_ns = int(entry.get("startTime_ns") or 0)
        if start_ns > self.clock_ns:
            lasting = {"duration_ns": start_ns - self.clock_ns}
            self.clock = [self._node("time", NodeKind.COMPUTE, self.clock, ("clock",), lasting)]
            self.clock_ns = start_ns
        return self._node(name, kind, [*self.host, *self.clock], stream, said)

    def _communicate(self, entry: Entry, name: str) -> int:
        kind, group = kind_of(name), entry.get("pg_id")
        size = _width(entry["dtype"]) * int(entry["in_msg_size"]) if kind != CollectiveKind.BARRIER else 0
        if size < 0:
            raise ValueError("the size is negative")
        said: Entry = {"comm_size": size}
        if kind == SEND:
            said |= {"comm_src": int(entry["src_rank"]), "comm_dst": int(entry["dst_rank"])}
            one_way = NodeKind.SEND if "send" in name else NodeKind.RECV
            return self._issue(entry, name, one_way, (one_way, said["comm_src"], said["comm_dst"]), said)
        said["comm_type"] = CommType[kind.upper()]
        said |= {"root": int(entry["root"])} if entry.get("root") is not None else {}
        said |= {"pg_name": str(group)} if group is not None else {}
        return self._issue(entry, name, NodeKind.COLLECTIVE, ("group", group), said)


def _width(dtype: object) -> int:
    """Bytes of an element.

    >>> _width("Float"), _width("bfloat16"), _width("int64")
    (4, 2, 8)
    """
    name = str(dtype).lower()
    bits = re.search(r"(8|16|32|64)$", name)
    if name not in ELEMENT_BYTES and not bits:
        raise ValueError(f"unknown type {dtype!r}")
    return ELEMENT_BYTES.get(name) or int(bits[1] if bits else 0) // 8


NAMES = {
    CollectiveKind.ALL_GATHER: "all_gather_base",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter_base",
    CollectiveKind.ALL_TO_ALL: "all_to_allv",
}
GATHERS = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}
SCATTERS = {CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER}
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
    """A graph in the order in which it is replayed.

    `needs`: of each node of communication, the communication whose end it waits for, directly or through others; each
    once.
    """

    def __init__(self, graph: Graph):
        self.graph, self.order = graph, waiting_order(graph.dep_offsets, graph.deps)
        finish = finish_times(graph)
        self.start_ns = [end - duration for end, duration in zip(finish, graph.duration_ns.tolist(), strict=True)]
        self.needs, waited = dict[int, list[int]](), set[int]()
        open_behind: list[set[int]] = [set() for _ in range(len(graph))]
        for row in self.order:
            behind = set().union(*(open_behind[dep] for dep in graph.deps[slice(*graph.dep_offsets[row : row + 2])]))
            open_behind[row] = behind - waited
            if graph.kind[row] >= NodeKind.SEND:
                self.needs[row] = sorted(open_behind[row])
                waited |= open_behind[row]
                open_behind[row] = {row}

    def entries(self, rank: int, groups: dict[str, tuple[int, ...]]) -> Iterator[Entry]:
        """What a rank does, and the waits that nothing asked for at the end."""
        graph, asked = self.graph, dict[int, Entry]()
        number_of = {name: number for number, name in enumerate(groups)}
        for row in (row for row in self.order if row in self.needs):
            for needed in self.needs[row]:
                yield asked.pop(needed)
            name = graph.group_names[graph.group[row]] if graph.kind[row] == NodeKind.COLLECTIVE else ""
            place = {"req": int(graph.node_id[row]), "pg_id": number_of[name], "world_size": len(groups[name])}
            if graph.kind[row] == NodeKind.COLLECTIVE:
                entry = _collective(graph, row, rank, groups[name])
            else:
                sends, peer = graph.kind[row] == NodeKind.SEND, int(graph.peer[row])
                count, dtype = _elements(int(graph.size_bytes[row]))
                ends = {"src_rank": rank if sends else peer, "dst_rank": peer if sends else rank, "use_batch": False}
                sizes = {"in_msg_size": count, "out_msg_size": count, "dtype": dtype}
                entry = {"comms": "isend" if sends else "irecv", **sizes, **ends}
            yield {"startTime_ns": self.start_ns[row], **place, **entry}
            asked[row] = {"comms": "wait", **place}
        yield from asked.values()


def _elements(size_bytes: int, multiple: int = 1) -> tuple[int, str]:
    """So many bytes in elements, in a multiple of so many; and their type."""
    width = 1 if size_bytes % 2 else 2
    count = -(-size_bytes // width // multiple) * multiple
    return count, DTYPES[width]


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
