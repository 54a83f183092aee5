"""Execution trace files into a `GraphSet`: one file per rank, a folder of them, or one file that every NPU runs.

Files of equal content are decoded once and shared; a file is open only while it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.files import read_bytes
from simcore.library import RANK_FILE
from simcore.peers import HEAD, refuse_foreign
from simcore.progress import meter
from simcore.units import format_ranks
from simcore.workload.archives import unpacked
from simcore.workload.chakra import columns, groups, wire
from simcore.workload.chakra.graph import Trace, to_graph
from simcore.workload.chakra.groups import check_ranks
from simcore.workload.chakra.legacy import to_current
from simcore.workload.chakra.schema import messages
from simcore.workload.model import Graph, GraphSet

Groups = Mapping[str, tuple[int, ...]]
SUFFIXES = (".et", ".et.gz", ".eg", ".eg.gz", ".json", ".json.gz")


def read_graphs(path: str, npus: int, communicators: Groups | None = None) -> GraphSet:
    """The graphs that the `npus` NPUs of a topology run.

    `path` is a prefix (of PREFIX.RANK.et), a folder holding one such set, or one file that every NPU runs: .et of any
    schema, gzip too, or the feeder's JSON. `communicators` are the ranks of groups known from elsewhere
    (`groups.read_groups`); those of METADATA nodes are added. InputError names file, message index, byte offset, node
    and field of whatever is wrong, files of ranks that are missing, peers and groups that do not exist.
    """
    traces, graph_of_rank = _distinct(rank_files(path, npus))
    warnings = [text for trace in traces for text in trace.warnings]
    unused = [] if Path(path).is_file() else [rank for rank in files_of_set(path) if rank >= npus]
    if unused:
        warnings.append(
            f"{path}: the traces of ranks {format_ranks(sorted(unused))} are not used: there are {npus} NPUs"
        )
    return _joined(traces, graph_of_rank, communicators or {}, Path(path).name, warnings)


def of_ranks(contents: Sequence[bytes], name: str, warnings: Sequence[str] = ()) -> GraphSet:
    """The graphs of NPUs whose traces of today's schema are at hand; InputError as of `read_graphs`."""
    known: dict[bytes, int] = {}  # the first NPU that has each
    for rank, data in enumerate(contents):
        known.setdefault(data, rank)
    traces = [decode(data, f"{name} of NPU {rank}") for data, rank in known.items()]
    number_of = {data: number for number, data in enumerate(known)}
    return _joined(traces, np.array([number_of[data] for data in contents], np.int32), {}, name, warnings)


def _joined(
    traces: Sequence[Trace], graph_of_rank: NDArray[np.int32], fixed: Groups, name: str, warnings: Sequence[str]
) -> GraphSet:
    """The graphs of all ranks; InputError as of `read_graphs`."""
    graphs, known = grouped(traces, len(graph_of_rank), fixed)
    check_ranks(traces, graphs, graph_of_rank, known)
    return GraphSet(tuple(graphs), graph_of_rank, known, name, tuple(warnings))


def grouped(
    traces: Sequence[Trace], npus: int, fixed: Groups, everybody: Sequence[int] | None = None
) -> tuple[list[Graph], groups.Groups]:
    """The graphs of traces and the ranks of all groups that they name: those `fixed`, and those of METADATA nodes (see
    `groups.of_metadata` and `groups.distinct`).
    """
    known, graphs = dict(fixed), []
    for trace in traces:
        called: dict[str, str] = {}
        for text in trace.metadata:
            called |= groups.distinct(groups.of_metadata(text, npus, trace.graph.path, everybody), known, fixed)
        names = tuple(called.get(name, name) for name in trace.graph.group_names)
        graphs.append(replace(trace.graph, group_names=names) if names != trace.graph.group_names else trace.graph)
    return graphs, known


def distinct_ranks(path: str | Path) -> tuple[list[Trace], dict[int, int]]:
    """The different traces that `path` names, and which one each rank has; a single file is rank 0."""
    files = _files(path, alone=0)
    traces, numbers = _distinct(list(files.values()))
    return traces, dict(zip(files, numbers.tolist(), strict=True))


def _distinct(files: list[Path]) -> tuple[list[Trace], NDArray[np.int32]]:
    """The different traces among the files of all ranks, and which one each rank has; each file is read once."""
    traces: list[Trace] = []
    by_content: dict[bytes, int] = {}
    trace_of_file: dict[Path, int] = {}
    different = dict.fromkeys(files)
    for file in different:
        data = content(file)
        key = hashlib.sha256(data).digest()
        if key not in by_content:
            trace = decode(to_current(data, str(file)), str(file))
            # Equal is also what differs only in ids, which Chakra's converters count on from rank to rank.
            does = hashlib.blake2b(repr((trace.graph.names, trace.graph.group_names, trace.metadata)).encode())
            for column in dataclass_fields(trace.graph) if len(different) > 1 else ():
                value = getattr(trace.graph, column.name)
                if isinstance(value, np.ndarray) and column.name != "node_id":
                    does.update(value.tobytes())
            by_content[key] = by_content.setdefault(does.digest(), len(traces))
            traces += [trace] * (by_content[key] == len(traces))
        trace_of_file[file] = by_content[key]
    return traces, np.array([trace_of_file[file] for file in files], np.int32)


def current_files(path: str, npu_frequency_mhz: float = 1000.0) -> dict[int, bytes]:
    """Rank -> bytes of today's schema of every file that `path` names; -1 = the only one. Each is a sound trace.

    `npu_frequency_mhz` is the clock whose cycles files of 2023-01 count.
    """
    from google.protobuf.message import DecodeError

    files = _files(path, alone=-1)
    found: dict[int, bytes] = {}
    for rank, file in meter().over(sorted(files.items())):
        found[rank] = to_current(content(file), str(file), npu_frequency_mhz)
        decode(found[rank], str(file))
        for index, (start, end) in enumerate(zip(*(side.tolist() for side in wire.frames(found[rank])), strict=True)):
            try:  # the columns pass over attributes nobody reads that are no UTF-8, protobuf does not
                messages()["Node" if index else "GlobalMetadata"].FromString(found[rank][start:end])
            except DecodeError as error:
                raise wire.WireError(index, start, str(error), "UTF-8 in every text").at(str(file)) from error
    return found


def _files(path: str | Path, *, alone: int) -> dict[int, Path]:
    """Rank -> file of what `path` names; `alone` is the rank of a single file."""
    place = Path(path)
    files = {alone: place} if place.is_file() else files_of_set(place)
    if not files:
        expected = "a file, a folder or the prefix of a set"
        raise InputError.at(str(path), "there is no execution trace", expected=expected)
    return files


def distinct_traces(path: str) -> list[tuple[str, Trace]]:
    """Each different trace that `path` names with the ranks that have it ('' for a single file)."""
    traces, number_of = distinct_ranks(path)
    ranks = [] if Path(path).is_file() else sorted(number_of)
    having = (format_ranks([rank for rank in ranks if number_of[rank] == number]) for number in range(len(traces)))
    return list(zip(having, traces, strict=True))


def read_columns(path: str) -> columns.Columns:
    """The node messages of one file, data and control dependencies apart."""
    data = to_current(content(Path(path)), path)
    decode(data, path)
    starts, ends = wire.frames(data)
    return columns.decode(data, starts[1:], ends[1:])


def is_trace(path: str) -> bool:
    """Whether `path` names a trace file, a folder of them or the prefix of a set."""
    place = Path(path)
    if place.is_dir():
        return any(RANK_FILE.fullmatch(file.name) or file.suffix == ".et" for file in place.iterdir())
    return place.name.endswith((".et", ".et.gz", ".eg", ".eg.gz")) or (not place.exists() and bool(files_of_set(place)))


def rank_files(path: str, npus: int) -> list[Path]:
    """The file of every rank; one file stands for all. InputError when some are missing."""
    place = Path(path)
    if place.is_file():
        return [place] * npus
    ranks = files_of_set(place)
    if not ranks and place.is_dir():
        alone = sorted(file for file in place.iterdir() if file.name.endswith(SUFFIXES))
        if len(alone) == 1:
            return alone * npus
    if not ranks:
        expected = f"{path}.0.et{f' to {path}.{npus - 1}.et' if npus > 1 else ''}, a folder of them, or one file"
        found = "a folder without one" if place.is_dir() else "nothing"
        raise InputError.at(path, "there is no execution trace", expected=expected, found=found)
    missing = [rank for rank in range(npus) if rank not in ranks]
    if missing:
        message, found = f"the traces of {len(missing)} of {npus} ranks are missing", f"traces of {len(ranks)} ranks"
        expected = f"the files of ranks {', '.join(map(str, missing[:4]))}" + (" ..." if missing[4:] else "")
        hint = "give one file itself to let every NPU run it"
        raise InputError.at(path, message, expected=expected, found=found, hint=hint)
    return [ranks[rank] for rank in range(npus)]


def count_ranks(path: str | Path) -> int:
    """How many ranks a set of traces is of, counted to the last there is; 1 of a single file."""
    return 1 if Path(path).is_file() else max(files_of_set(path), default=0) + 1


def files_of_set(path: str | Path) -> dict[int, Path]:
    """Rank -> file of the set that a prefix or folder names; InputError where several sets are, or a rank is twice."""
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    if not folder.is_dir():
        return {}
    sets: dict[str, dict[int, Path]] = {}
    for file in sorted(folder.iterdir()):
        match = RANK_FILE.fullmatch(file.name)
        if match and (folder is place or match["prefix"] == place.name):
            rank, ranks = int(match["rank"]), sets.setdefault(f"{match['prefix']}{match['suffix']}", {})
            if other := ranks.get(rank):
                message, found = f"rank {rank} is here twice", f"{other.name} and {file.name}"
                raise InputError.at(str(file), message, expected="one trace a rank", found=found)
            ranks[rank] = file
    traces = {name: ranks for name, ranks in sets.items() if ".json" not in name} or sets
    if len(traces) > 1:
        names = ", ".join(sorted(traces))
        raise InputError.at(
            str(place), "several sets of traces are here", expected="one set", found=names, hint="give a prefix"
        )
    return next(iter(traces.values()), {})


def content(file: Path) -> bytes:
    """The bytes of a file, unpacked when it is gzip."""
    return unpacked(read_bytes(file), str(file))


def decode(data: bytes, path: str) -> Trace:
    """Bytes of today's schema as a trace; InputError names the message (0 = metadata) and byte of the first fault."""
    if not data:
        raise InputError.at(path, "the file is empty", expected="an execution trace: metadata, then nodes")
    first = 0
    try:
        starts, ends = wire.frames(data)
        head = columns.decode_metadata(data, int(starts[0]), int(ends[0]))
        first = 1
        found = columns.decode(data, starts[1:], ends[1:])
    except wire.WireError as error:
        error.row += first
        refuse_foreign(data[:HEAD].decode("latin-1"), path, ("workload_graph",))
        raise error.at(path, "" if error.row else "is this a Chakra execution trace?") from error
    return to_graph(found, path, callers="schema" in head and "input_file" not in head)
