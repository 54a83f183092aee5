"""Communicator groups: ASTRA-sim 2.x's JSON file, METADATA nodes of traces, and whether what traces name exists."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore import documents, library
from simcore.errors import InputError, Problems, closest
from simcore.peers import refuse_foreign
from simcore.workload.chakra.graph import Trace
from simcore.workload.model import Graph, GraphSet, NodeKind

Groups = dict[str, tuple[int, ...]]


def read_groups(path: str, npus: int) -> Groups:
    """Groups of a JSON file `{"id": [npu, ...]}` in ring order as written; ids are > 0 (0 means all NPUs).

    Raises InputError with line and column of ranks that do not exist or stand twice, and of empty groups.
    """
    with Problems() as problems:
        found: Groups = {}
        root = documents.read(path, problems)
        refuse_foreign("\n".join(root.source), root.file, ("a file of groups of ranks",))
        for name, node in root.mapping():
            if not (name.isascii() and name.isdecimal()) or int(name) < 1:
                node.problem(f"'{name}' is no group id", "a whole number >= 1", repr(name), "0 means all NPUs")
            before = len(problems.found)
            ranks = [item.integer() for item in node.sequence()]
            for item, rank in zip(node.items, ranks, strict=False):
                if rank >= npus:
                    item.problem(f"group {name} names a rank that does not exist", f"ranks 0 to {npus - 1}")
            sound = len(problems.found) == before
            if sound and len(set(ranks)) < len(ranks):
                node.problem(f"group {name} names a rank twice", "every rank once", str(ranks))
            if sound and not ranks:
                node.problem(f"group {name} has no ranks", "a list of ranks", "nothing")
            found[name] = tuple(ranks)
    return found


def unused(graphs: GraphSet, named: str) -> Iterator[str]:
    """That no collective is of a group of the file that is named."""
    sent = (graph.group_names[at] for graph in graphs.graphs for at in np.unique(graph.group[graph.collective >= 0]))
    if named and graphs.groups.keys().isdisjoint(sent):
        yield "--comm-groups changes nothing: no collective is of one of its groups"


def of_set(prefix: str, npus: int, named: str = "") -> Groups:
    """The groups of a set of traces: those of the file that is named, or of PREFIX.groups.json, if there is one."""
    file = named or library.groups_of(prefix)
    return read_groups(file, npus) if file else {}


def of_metadata(text: str, npus: int, path: str, everybody: Sequence[int] | None = None) -> Groups:
    """Groups in the values of a METADATA node: a JSON list of objects with pg_name and ranks, also quoted once more.

    A group without ranks is one of all (PyTorch lists those of smaller groups only): `everybody`, or all NPUs. Texts
    that define no groups are passed over.
    """
    found: Groups = {}
    for entry in _objects(text):
        name, ranks = str(entry.get("pg_name", "")), entry.get("ranks")
        if name in {"", "0"} or not isinstance(ranks, list):
            continue
        if not ranks:
            found[name] = tuple(range(npus) if everybody is None else everybody)
            continue
        if not all(isinstance(rank, int) and 0 <= rank < npus for rank in ranks) or len(set(ranks)) < len(ranks):
            message, expected = f"group {name} of a METADATA node is wrong", f"ranks 0 to {npus - 1}, each once"
            raise InputError.at(path, message, expected=expected, found=str(ranks))
        found[name] = tuple(ranks)
    return found


def distinct(own: Mapping[str, tuple[int, ...]], known: Groups, fixed: Collection[str] = ()) -> dict[str, str]:
    """The names that a trace's groups get in `known`, into which they go; names in `fixed` keep their ranks.

    Ranks of different jobs may call different groups by one name: the later one gets its ranks appended to its name.
    """
    names = {}
    for name, ranks in own.items():
        if name not in fixed:
            taken = known.setdefault(name, ranks) != ranks
            names[name] = f"{name}@{','.join(map(str, ranks))}" if taken else name
            known[names[name]] = ranks
    return names


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in JSON, or in a Python list of strings of JSON as PyTorch's converter leaves it."""
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, str):
        for parse in (json.loads, ast.literal_eval):
            try:
                found = parse(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            yield from _objects(found)
            return


def check_ranks(
    traces: Sequence[Trace],
    graphs: Sequence[Graph],
    graph_of_rank: NDArray[np.int32],
    groups: Mapping[str, tuple[int, ...]],
) -> None:
    """InputError naming sends and receives without a peer, and collectives in groups that are unknown or foreign."""
    npus = len(graph_of_rank)
    with Problems() as problems:
        for index, (trace, graph) in enumerate(zip(traces, graphs, strict=True)):
            kind, peer = trace.graph.kind, trace.graph.peer
            transfer = (kind == NodeKind.SEND) | (kind == NodeKind.RECV)
            for row in np.flatnonzero(transfer & ((peer < 0) | (peer >= npus))).tolist():
                what, field = ("send", "comm_dst") if kind[row] == NodeKind.SEND else ("receive", "comm_src")
                found = str(peer[row]) if peer[row] != -1 else "nothing"
                text = f"the {what} names {'no rank' if peer[row] == -1 else 'a rank that does not exist'}"
                problems.add(trace.places.problem(row, text, field, f"ranks 0 to {npus - 1}", found))
            used = np.where(graph.kind == NodeKind.COLLECTIVE, graph.group, 0)
            for number in np.unique(used[used > 0]).tolist():
                name, row = graph.group_names[number], int(np.flatnonzero(used == number)[0])
                if name not in groups:
                    hint = f"{closest(name, groups)}; give --comm-groups"
                    problems.add(trace.places.problem(row, f"unknown group '{name}'", "pg_name", hint, repr(name)))
                elif foreign := np.setdiff1d(np.flatnonzero(graph_of_rank == index), groups[name]).tolist():
                    text = f"rank {foreign[0]} runs a collective of group '{name}' but is no member"
                    problems.add(trace.places.problem(row, text, "pg_name", f"one of the ranks {list(groups[name])}"))
