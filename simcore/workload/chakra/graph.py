"""Columns of a trace file into a `Graph`, and what must hold of it on its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.errors import InputError, Location, Problem, Problems
from simcore.workload.chakra.columns import MISSING, TEXTS, Columns
from simcore.workload.chakra.schema import NODE_TYPES, CommType, messages
from simcore.workload.model import ALL_DIMENSIONS, NO_COLLECTIVE, CollectiveKind, Graph, NodeKind
from simcore.workload.order import waiting_order

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

COLLECTIVES = {kind: CollectiveKind[kind.name] for kind in CommType if kind != CommType.REDUCE_SCATTER_BLOCK} | {
    CommType.REDUCE_SCATTER_BLOCK: CollectiveKind.REDUCE_SCATTER
}
"""Chakra's collectives as ours; the block variant moves the same bytes."""

_COLLECTIVE_INDEX = np.array([list(CollectiveKind).index(COLLECTIVES[kind]) for kind in CommType], np.int8)
MOST_DIMENSIONS = 62  # of a bit mask; no machine has a further one
_MAX_MICROS = (1 << 63) // 1000
_MEMORY = (NodeKind.MEM_LOAD, NodeKind.MEM_STORE)

_NOT_NEGATIVE = {
    "comm_size": "size",
    "tensor_size": "size",
    "num_ops": "number of operations",
    "duration_ns": "duration",
}


class Places(Struct, frozen=True):
    """Where the rows of a graph stand in their file; message 0 is the metadata."""

    path: str
    message: Integers
    start: Integers
    node_id: Integers
    names: tuple[str, ...]

    def problem(self, row: int, text: str, field: str, expected: str = "", found: str = "") -> Problem:
        """A problem of the node in `row`."""
        node = f"node {self.node_id[row]} '{self.names[row][:80]}'"
        place = f"message {self.message[row]} at byte {self.start[row]}, {node}"
        return Problem(Location(self.path), f"{place}: {text}", expected, found, field=field)

    def check(
        self, problems: Problems, bad: Mask, text: str, field: str, expected: str, found: Integers | None = None
    ) -> None:
        """Note every row that breaks a rule."""
        for row in np.flatnonzero(bad).tolist():
            shown = "nothing" if found is None else str(found[row])
            problems.add(self.problem(row, text, field, expected, shown))


class Trace(Struct, frozen=True):
    """One file: its graph, where its nodes stand, the texts of its METADATA nodes, and warnings."""

    graph: Graph
    places: Places
    metadata: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def to_graph(columns: Columns, path: str, *, callers: bool = False) -> Trace:
    """The graph of one file, rows by ascending id; InputError names every fault it holds, at most 20.

    An attribute `duration_ns` (our own: converters write it where duration_micros would not say it) outdoes
    duration_micros. Where the two are further apart than rounding goes, ASTRA-sim's time is in `chakra_ns`.

    With `callers` (traces made from PyTorch's) control dependencies name the calling operation. Those whose caller was
    not kept are left out, and all of them where they contradict the data dependencies; warnings say so. In any other
    trace both are errors.
    """
    order = np.argsort(columns.node_id, kind="stable")
    attributes = {name: column[order] for name, column in columns.attributes.items()}
    node_id, micros = columns.node_id[order], columns.duration_micros[order]
    kind = columns.kind[order]
    # Collectives without type and size that are known by their duration, or are labels on the CPU side, count as
    # computation: the kernel of a label has its own node, a duration can only be replayed.
    nameless = (attributes["comm_type"] == MISSING) & (attributes["comm_size"] == MISSING)
    unspecified = (kind == NodeKind.COLLECTIVE) & nameless & ((attributes["is_cpu_op"] > 0) | (micros > 0))
    kind = np.where(unspecified, NodeKind.COMPUTE, kind)
    names = tuple([columns.names[row] for row in order.tolist()])
    places = Places(path, order + 1, columns.start[order], node_id, names)
    with Problems() as problems:
        check = partial(places.check, problems)
        _check_nodes(check, node_id, kind, micros, attributes)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        data = _pairs(rank, node_id, columns.data, check, "data_deps")
        control = _pairs(rank, node_id, columns.control, None if callers else check, "ctrl_deps")
    warnings = []
    on_host = kind > NodeKind.COLLECTIVE
    if on_host.any():
        kind = np.where(on_host, NodeKind.COMPUTE, kind)
        for said in ("is_cpu_op", "is_delay"):  # a slow accelerator reads its files as fast
            attributes[said] = np.where(on_host, 1, attributes[said])
        text = f"{on_host.sum()} nodes of storage, batches and checkpoints take their recorded durations on the host"
        warnings.append(f"{path}: {text}")
    replayed = int((unspecified & (attributes["is_cpu_op"] <= 0)).sum())
    if replayed:
        warnings.append(f"{path}: {replayed} collectives have neither type nor size: their durations are replayed")
    lost = len(columns.control[0]) - len(control[0])
    if lost:
        warnings.append(f"{path}: {lost} control dependencies on nodes that are not in the file are left out")
    offsets, deps = _edges(len(order), data, control)
    stuck = _never_ready(offsets, deps)
    duration_ns = np.where(attributes["duration_ns"] == MISSING, micros * 1000, attributes["duration_ns"])
    rounded_ns = duration_ns - micros * 1000  # what whole microseconds lost, to the nearest or cut
    if stuck and callers:
        warnings.append(f"{path}: the control dependencies contradict the data dependencies and are left out")
        offsets, deps = _edges(len(order), data)
        stuck = _never_ready(offsets, deps)
    if stuck:
        raise _cycle(offsets, deps, stuck, places)
    graph = Graph(
        node_id=node_id,
        kind=kind.astype(np.uint8),
        duration_ns=duration_ns,
        chakra_ns=np.where((rounded_ns >= -500) & (rounded_ns < 1000), duration_ns, micros * 1000),
        dep_offsets=offsets,
        deps=deps,
        names=names,
        path=path,
        **_attribute_columns(kind, attributes),
        **_text_columns(attributes, columns.texts, places),
    )
    return Trace(graph, places, tuple(text for _, text in columns.inputs), tuple(warnings))


def _check_nodes(
    check: Callable[..., None], node_id: Integers, kind: Integers, micros: Integers, attributes: dict[str, Integers]
) -> None:
    """The numbers of all nodes, and what each type of node must say."""
    check(node_id < 0, "the id is too large", "id", "an id below 2^63", node_id)
    twice = np.zeros(len(node_id), bool)
    twice[1:] = node_id[1:] == node_id[:-1]
    check(twice, "the id stands twice", "id", "one node per id", node_id)
    known = ", ".join(f"{number} {name}" for number, name in enumerate(NODE_TYPES))
    check((kind < 0) | (kind > max(NodeKind)), "unknown node type", "type", known, kind)
    long = (micros < 0) | (micros >= _MAX_MICROS)
    check(long, "the duration is too long", "duration_micros", "below 2^63 ns", micros)
    collective, comm_type, size = kind == NodeKind.COLLECTIVE, attributes["comm_type"], attributes["comm_size"]
    check(collective & (comm_type == MISSING), "the collective has no type", "comm_type", "an integer attribute")
    unknown = (comm_type != MISSING) & ((comm_type < 0) | (comm_type > max(CommType)))
    known = ", ".join(f"{member.value} {member.name}" for member in CommType)
    check(collective & unknown, "unknown collective", "comm_type", known, comm_type)
    sized = collective & (comm_type != CommType.BARRIER)
    check(sized & (size == MISSING), "the collective has no size", "comm_size", "bytes >= 0")
    memory = np.isin(kind, _MEMORY) & (attributes["tensor_size"] == MISSING)
    check(memory, "the memory access has no size", "tensor_size", "bytes >= 0")
    for name, what in _NOT_NEGATIVE.items():
        value = attributes[name]
        check((value < 0) & (value != MISSING), f"the {what} is negative", name, "a number >= 0", value)


def _pairs(
    rank: Integers, node_id: Integers, found: tuple[Integers, Integers], check: Callable[..., None] | None, field: str
) -> tuple[Integers, Integers]:
    """Waiting row and row waited for; those that lead nowhere are problems, or left out when there is no `check`."""
    owner, wanted = rank[found[0]], found[1]
    row = np.minimum(np.searchsorted(node_id, wanted), max(0, len(node_id) - 1))
    missing = node_id[row] != wanted if len(wanted) else np.zeros(0, bool)
    if check and missing.any():
        lost, name = np.zeros(len(node_id), bool), np.zeros(len(node_id), np.int64)
        lost[owner[missing]], name[owner[missing]] = True, wanted[missing]
        check(lost, "waits for a node that is not in the file", field, "the id of a node in this file", name)
    return owner[~missing], row[~missing]


def _edges(count: int, *pairs: tuple[Integers, Integers]) -> tuple[Integers, NDArray[np.int32]]:
    """Offsets and rows of what each row waits for, in ascending order and without doubles."""
    base = max(1, count)
    keys = np.sort(np.concatenate([owner * base + row for owner, row in pairs]))
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.searchsorted(keys, np.arange(count + 1) * base), (keys % base).astype(np.int32)


def _attribute_columns(kind: Integers, attributes: dict[str, Integers]) -> dict[str, Any]:
    """The graph's columns that come from integer attributes."""

    def value(name: str, default: int) -> Integers:
        column = attributes[name]
        return np.where(column == MISSING, default, column)

    comm_size, tensor_size = attributes["comm_size"], value("tensor_size", 0)
    communicates = kind >= NodeKind.SEND
    collective = (kind == NodeKind.COLLECTIVE) & (attributes["comm_type"] != MISSING)
    send = kind == NodeKind.SEND
    root = np.where(attributes["root"] == MISSING, value("comm_src", -1), attributes["root"])
    peer = np.where(send, value("comm_dst", -1), np.where(collective, root, value("comm_src", -1)))
    int32 = np.iinfo(np.int32)
    return {
        "size_bytes": np.where(communicates & (comm_size != MISSING), comm_size, tensor_size),
        "collective": np.where(
            collective, _COLLECTIVE_INDEX[np.where(collective, attributes["comm_type"], 0)], NO_COLLECTIVE
        ).astype(np.int8),
        "peer": np.where(communicates, peer, -1).clip(int32.min, int32.max).astype(np.int32),
        "tag": value("comm_tag", 0),
        "priority": value("comm_priority", 0),
        "num_ops": value("num_ops", 0),
        "on_cpu": attributes["is_cpu_op"] > 0,
        "delays": attributes["is_delay"] > 0,
        "stream": value("stream", -1).clip(-1, int32.max).astype(np.int32),
    }


def _text_columns(attributes: dict[str, Integers], texts: list[bytes], places: Places) -> dict[str, Any]:
    """Communicator of each row and their names ('' and '0' are all NPUs), bit mask of the dimensions it spans."""
    from google.protobuf.message import DecodeError

    index = {"": 0}

    def number(text: bytes) -> int:
        name = text.decode()
        return index.setdefault("" if name == "0" else name, len(index))

    def mask(text: bytes) -> int:
        values = enumerate(messages()["BoolList"].FromString(text).values)
        return sum({1 << min(place, MOST_DIMENSIONS) for place, value in values if value})

    made = {}
    for name, read, usual in (("pg_name", number, 0), ("involved_dim", mask, ALL_DIMENSIONS)):
        column, found = attributes[name], np.full(len(texts) + 1, usual)  # its last entry serves MISSING
        for used in np.unique(column[column != MISSING]).tolist():
            try:
                found[used] = read(texts[used])
            except (DecodeError, UnicodeDecodeError) as error:
                row, (_, what) = int(np.argmax(column == used)), TEXTS[name]
                text = f"attribute {name} is not {what}"
                raise InputError(places.problem(row, text, name, what, repr(texts[used]))) from error
        made[name] = found[np.where(column == MISSING, len(texts), column)]
    return {"group": made["pg_name"].astype(np.int32), "group_names": tuple(index), "dims": made["involved_dim"]}


def _never_ready(offsets: Integers, deps: NDArray[np.int32]) -> list[int]:
    """Rows that can never start as they wait, directly or not, for themselves."""
    return sorted(set(range(len(offsets) - 1)).difference(waiting_order(offsets, deps)))


def _cycle(offsets: Integers, deps: NDArray[np.int32], stuck: list[int], places: Places) -> InputError:
    """The error that names one cycle among `stuck` rows: each waits for the next, the last for the first."""
    waiting, seen = set(stuck), dict[int, int]()
    row = stuck[0]
    while row not in seen:
        seen[row] = len(seen)
        row = next(dep for dep in deps[offsets[row] : offsets[row + 1]].tolist() if dep in waiting)
    loop = list(seen)[seen[row] :]
    chain = " -> ".join(f"{places.node_id[row]}" for row in [*loop, loop[0]][:12])
    text = "waits for itself" if len(loop) == 1 else f"these nodes wait for each other: {chain}"
    return InputError(places.problem(loop[0], text, "data_deps", "dependencies without a cycle", chain))
