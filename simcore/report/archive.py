"""events.npz: a report with its whole timeline in NumPy's archive format, written and read back.

Columns are those of `EventTable`; `about` is JSON of all else, and `names` are texts, or a JSON list of them where an
array, in which all are as long as the longest, would be too large. Nothing is pickled: `numpy.load` needs no trust.
"""

from __future__ import annotations

import io
import os
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.files import read_bytes
from simcore.peers import HEAD, refuse_foreign
from simcore.report.document import SCHEMA, ReportDocument, StepRow
from simcore.report.model import Report
from simcore.timeline.events import (
    COLUMNS,
    NO_LAYER,
    EventKind,
    EventTable,
    FaultCount,
    LinkTable,
    QueueTable,
    Timeline,
    WaferRun,
)
from simcore.timeline.link_use import LinkHistory, LinkRows
from simcore.workload.archives import LEAST_LIMIT_BYTES, MOST_GROWTH
from simcore.workload.model import PhaseName

MOST_BYTES = 16 * 2**30
MOST_TEXT_BYTES = 16 * 2**20
MOST_STREAMS = 1 << 20
QUEUE = "queue_"
_BROKEN = (
    *(KeyError, ValueError, TypeError, UserWarning, OSError, EOFError, MemoryError, OverflowError, RuntimeError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, msgspec.MsgspecError),
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip file can hold: same timeline, same bytes
OF_REPORT = ("profile", "network", "inputs", "warnings", "noise", "helps", "rules", "options", "jobs")
OF_TIMELINE = ("notes", "asked", "streams", "pipeline", "circuits", "rated_bytes_per_s")
Arrays = Mapping[str, NDArray[np.generic]]
Ints = NDArray[np.int64]
About = Mapping[str, Any]  # what is no column, by the names of the fields of `Report` and `Timeline`


def events_npz(report: Report) -> bytes:
    """A report as the bytes of a compressed `.npz` file; of a wafer's traffic, what its links carried."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, column in _arrays(report).items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(column, order="C"), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data.getvalue())
    return out.getvalue()


def _about(report: Report) -> bytes:
    timeline = report.timeline
    said = {name: getattr(report, name) for name in OF_REPORT} | {name: getattr(timeline, name) for name in OF_TIMELINE}
    said |= {"asked": tuple(dict(layer) for layer in timeline.asked), "options": dict(report.options)}
    faults = timeline.links.faults if timeline.links else ()
    steps = list(timeline.wafer.steps) if timeline.wafer else None
    return msgspec.json.encode(said | {"faults": faults, "steps": steps}, order="sorted")


def _read_about(said: bytes) -> About:
    """What `_about` wrote, of the types of its fields; what earlier versions did not write is left out."""
    kinds = get_type_hints(Report) | get_type_hints(Timeline)
    kinds = {name: kinds[name] for name in (*OF_REPORT, *OF_TIMELINE)}
    kinds |= {"faults": tuple[FaultCount, ...], "steps": list[StepRow] | None}
    found = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
    return {name: msgspec.json.decode(found[name], type=kind) for name, kind in kinds.items() if name in found}


def _arrays(report: Report) -> Arrays:
    timeline = report.timeline
    links = timeline.links
    members = [np.asarray(ranks, dtype=np.int64) for ranks in timeline.ranks]
    arrays: dict[str, NDArray[np.generic]] = {column: getattr(timeline.events, column) for column in COLUMNS}
    arrays |= {
        "about": np.frombuffer(_about(report), dtype=np.uint8),
        "messages": timeline.events.messages,
        "names": _plain(timeline.events.names),
        "layers": _strings(timeline.layers),
        "iterations": np.array(timeline.iterations, dtype=np.int64).reshape(-1, 2),
        "time_ns": np.array(timeline.time_ns, dtype=np.int64),
        "finish_ns": np.array(timeline.finish_ns, dtype=np.int64),
        "ranks": np.concatenate(members),
        "ranks_per_class": np.array([len(ranks) for ranks in members], dtype=np.int64),
        "dim_kinds": _strings(kind for kind, _ in timeline.dims),
        "dim_npus": np.array([npus for _, npus in timeline.dims], dtype=np.int64),
    }
    if links is not None:
        src, dst, names = links.ends()  # a large machine has far fewer nodes than links
        arrays |= {"link_src": src.astype(np.int32), "link_dst": dst.astype(np.int32), "nodes": _strings(names)}
        arrays |= {"link_bytes": links.size_bytes, "link_busy_ns": links.busy_ns}
        arrays |= {} if links.coordinates is None else {"link_coordinates": links.coordinates}
        arrays |= {} if links.queues is None else _of_queues(links.queues)
    if timeline.wafer:
        arrays["load_ns"] = timeline.wafer.load_ns
    return arrays


def _of_queues(queues: QueueTable) -> Arrays:
    """Its columns, and its curves: the rows, once where several parts have the same, and when each part began."""
    parts = queues.curves.parts
    rows = {id(part.columns): part.columns for part in parts}
    ends = dict(zip(rows, np.cumsum([columns.shape[1] for columns in rows.values()]).tolist(), strict=True))
    arrays = {name: getattr(queues, name) for name in QueueTable.COLUMNS} | {"stands_for": queues.curves.stands_for}
    arrays["curves"] = np.concatenate([*rows.values()], axis=1)
    arrays["begins_ns"] = np.concatenate([part.begins_ns for part in parts])
    each = [(part.first, ends[id(part.columns)], len(part), len(part.begins_ns)) for part in parts]
    return {QUEUE + name: array for name, array in (arrays | {"parts": np.array(each)}).items()}


def _queues(arrays: Arrays, links: int) -> QueueTable:
    """What `_of_queues` wrote; ValueError when columns do not fit."""
    of = {name.removeprefix(QUEUE): _ints(array) for name, array in arrays.items() if name.startswith(QUEUE)}
    columns = {name: of[name] for name in QueueTable.COLUMNS}
    shapes = {each.shape for each in (*columns.values(), of["stands_for"])}
    if shapes != {(links,)} or len(of["curves"]) != 4 or of["parts"].shape[1:] != (4,):
        raise ValueError("queues of other links")
    begins = np.split(of["begins_ns"], np.cumsum(of["parts"][:, 3])[:-1])
    parts = [
        LinkRows(first, of["curves"][:, end - rows : end], begins_ns)
        for (first, end, rows, _), begins_ns in zip(of["parts"].tolist(), begins, strict=True)
    ]
    return QueueTable(**columns, curves=LinkHistory(parts, of["stands_for"]))


def _strings(texts: Iterable[str]) -> NDArray[np.str_]:
    return np.array(list(texts), dtype=np.str_)


def _plain(names: Sequence[str]) -> NDArray[np.generic]:
    """Names as texts; as JSON where these take too much room, or lose a NUL at their end."""
    rows, longest = len(names), max(map(len, names), default=0)
    if 4 * rows * longest <= MOST_TEXT_BYTES and not any(name.endswith("\0") for name in names):
        return _strings(names)
    return np.frombuffer(msgspec.json.encode(names), dtype=np.uint8)


def read_archive(path: str | os.PathLike[str]) -> Report:
    """The report of an `events.npz`, with its timeline; InputError if it is no such file, or columns do not fit."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # NumPy guesses at headers that nobody writes today
            arrays = _unpack(read_bytes(path))
            about = _read_about(_said(arrays["about"]))
            return Report(_timeline(arrays, about), **{name: about[name] for name in OF_REPORT if name in about})
    except _BROKEN as error:
        expected = "an events.npz of simcore run -o"
        raise InputError.at(str(path), "not an event table", expected=expected, found=str(error)) from error


def read_report(path: str | os.PathLike[str]) -> ReportDocument:
    """A report from its file, from the folder of `simcore run -o`, or from the events.npz in it.

    InputError, which names the file, if there is none or it is no report of this schema.
    """
    given = Path(path)
    file = given / "report.json" if given.is_dir() else given
    if file.suffix == ".npz":
        return read_archive(file).to_dict()
    if not file.is_file():
        raise InputError.at(str(file), "no report there", expected="report.json, or the folder of simcore run -o")
    content = read_bytes(file)
    try:
        document = msgspec.json.decode(content, type=ReportDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        refuse_foreign(content[:HEAD].decode("latin-1"), str(file), ("breakdown",))
        raise InputError.at(str(file), "not a report", expected=f"JSON of {SCHEMA}", found=str(error)) from error
    if document["schema"] != SCHEMA:
        found = repr(document["schema"])
        raise InputError.at(str(file), "a document of another schema", expected=SCHEMA, found=found)
    return document


def _unpack(content: bytes) -> Arrays:
    """The arrays of a `.npz` file; ValueError for one that grows beyond reason when unpacked."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        most_bytes = min(MOST_BYTES, max(LEAST_LIMIT_BYTES, MOST_GROWTH * len(content)))
        if sum(entry.file_size for entry in archive.infolist()) > most_bytes:
            raise ValueError(f"more than {most_bytes:,} bytes when unpacked")
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        arrays = ((name, np.lib.format.read_array(archive.open(name), allow_pickle=False)) for name in names)
        return {name.removesuffix(".npy"): array for name, array in arrays}


def _ints(array: NDArray[np.generic]) -> Ints:
    return array.astype(np.int64, casting="safe")


def _timeline(arrays: Arrays, about: About) -> Timeline:
    """Put the arrays back together; ValueError or KeyError when they do not fit."""
    columns, names = [_ints(arrays[column]) for column in COLUMNS], _names(arrays["names"])
    if len({len(column) for column in columns}) != 1:
        raise ValueError("columns of different lengths")
    messages = _ints(arrays["messages"]).reshape(-1, 2)
    _check(columns, names, arrays, about, messages)
    parts = np.split(arrays["ranks"], np.cumsum(arrays["ranks_per_class"])[:-1].astype(np.int64))
    return Timeline(
        events=replace(EventTable(names, *columns), messages=messages),
        time_ns=int(arrays["time_ns"]),
        iterations=tuple((int(start), int(end)) for start, end in arrays["iterations"].tolist()),
        ranks=tuple(_members(part) for part in parts),
        finish_ns=tuple(arrays["finish_ns"].tolist()),
        layers=_texts(arrays["layers"]),
        dims=tuple(zip(_texts(arrays["dim_kinds"]), arrays["dim_npus"].tolist(), strict=True)),
        links=_links(arrays, about) if "link_src" in arrays else None,
        wafer=None if about["steps"] is None else WaferRun(about["steps"], arrays["load_ns"].astype(np.int64)),
        **{name: about[name] for name in OF_TIMELINE if name in about},
    )


def _links(arrays: Arrays, about: About) -> LinkTable:
    """What links and their queues did; ValueError when columns do not fit."""
    nodes = _texts(arrays["nodes"]) if "nodes" in arrays else ()
    src, dst = (_named(arrays[column], nodes) for column in ("link_src", "link_dst"))
    carried, busy_ns = arrays["link_bytes"].astype(np.int64), arrays["link_busy_ns"].astype(np.int64)
    places = arrays["link_coordinates"].astype(np.int64) if "link_coordinates" in arrays else None
    queues = _queues(arrays, len(busy_ns)) if QUEUE + "curves" in arrays else None
    return LinkTable(src, dst, carried, busy_ns, places, about["faults"], queues=queues)


def _names(array: NDArray[np.generic]) -> tuple[str, ...]:
    """What `_plain` has made of the names of events."""
    if array.dtype.kind == "U":
        return _texts(array)
    return msgspec.json.decode(_said(array), type=tuple[str, ...])


def _said(array: NDArray[np.generic]) -> bytes:
    return array.astype(np.uint8, casting="safe").tobytes()


def _check(columns: Sequence[Ints], names: Sequence[str], arrays: Arrays, about: About, messages: Ints) -> None:
    """ValueError when what a report looks up is not there."""
    of = dict(zip(COLUMNS, columns, strict=True))
    classes, layers = len(arrays["ranks_per_class"]), len(arrays["layers"])
    bounds = {"npu_class": (0, classes), "kind": (0, len(EventKind)), "name": (0, len(names))}
    bounds |= {"layer": (NO_LAYER, layers), "phase": (-1, len(PhaseName)), "stream": (0, MOST_STREAMS)}
    for name, (least, end) in bounds.items():
        if len(of[name]) and not least <= int(of[name].min()) <= int(of[name].max()) < end:
            raise ValueError(f"{name} out of range")
    if len(messages) and not 0 <= messages.min() <= messages.max() < len(columns[0]):
        raise ValueError("messages out of range")
    if not classes or len(arrays["finish_ns"]) != classes or int(arrays["ranks_per_class"].min()) < 1:
        raise ValueError("not a class of NPUs for every time of finishing")
    if about["asked"] and len(about["asked"]) != layers:
        raise ValueError("not what every layer asks for")
    if about["pipeline"] and not all(0 <= each < classes for each in about["pipeline"].classes):
        raise ValueError("a stage of a class that is not there")


def _named(ends: NDArray[np.generic], nodes: Sequence[str]) -> tuple[str, ...]:
    """The names of numbered nodes, or those that earlier versions wrote; ValueError for numbers of none."""
    if ends.dtype.kind == "U":
        return _texts(ends)
    numbers = _ints(ends)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(nodes):
        raise ValueError("links of nodes that are not there")
    return tuple(nodes[number] for number in numbers.tolist())


def _texts(array: NDArray[np.generic]) -> tuple[str, ...]:
    return tuple(str(text) for text in array.tolist())


def _members(ranks: NDArray[np.generic]) -> Sequence[int]:
    """The ranks of a class; a range where they are contiguous."""
    listed: list[int] = ranks.tolist()
    span = range(listed[0], listed[0] + len(listed))
    return span if listed == list(span) else tuple(listed)
