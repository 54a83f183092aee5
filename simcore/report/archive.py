"""events.npz: the whole timeline in NumPy's archive format, written and read back.

Columns are those of `EventTable`; strings are UTF-8 arrays, so nothing is pickled and `numpy.load` needs no trust.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.timeline.events import COLUMNS, EventTable, LinkTable, Timeline

__all__ = ["events_npz", "read_events"]

MOST_BYTES = 16 * 2**30
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip file can hold: same timeline, same bytes
Arrays = Mapping[str, NDArray[np.generic]]


def events_npz(timeline: Timeline) -> bytes:
    """A timeline as the bytes of a compressed `.npz` file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, column in _arrays(timeline).items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(column, order="C"), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data.getvalue())
    return out.getvalue()


def _arrays(timeline: Timeline) -> Arrays:
    """Everything in a timeline but its details."""
    links = timeline.links
    members = [np.asarray(ranks, dtype=np.int64) for ranks in timeline.ranks]
    arrays: dict[str, NDArray[np.generic]] = {column: getattr(timeline.events, column) for column in COLUMNS}
    arrays |= {
        "names": _strings(timeline.events.names),
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
        arrays |= {"link_src": _strings(links.src), "link_dst": _strings(links.dst)}
        arrays |= {"link_bytes": links.size_bytes, "link_busy_ns": links.busy_ns}
    return arrays


def _strings(texts: Iterable[str]) -> NDArray[np.str_]:
    return np.array(list(texts), dtype=np.str_)


def read_events(path: str | os.PathLike[str]) -> Timeline:
    """The timeline of an `events.npz`, without its `details`.

    Raises
    ------
    InputError
        If the file is missing, is no such archive, or its columns do not fit together.
    """
    try:
        timeline = _timeline(_unpack(Path(path).read_bytes()))
    except FileNotFoundError:
        raise InputError.at(str(path), "no such file", expected="an events.npz of simcore run -o") from None
    except (KeyError, ValueError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        expected = "an events.npz of simcore run -o"
        raise InputError.at(str(path), "not an event table", expected=expected, found=str(error)) from error
    return timeline


def _unpack(content: bytes) -> Arrays:
    """The arrays of a `.npz` file; ValueError for one that grows beyond reason when unpacked."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
            raise ValueError("more than 16 GiB when unpacked")
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        arrays = ((name, np.lib.format.read_array(archive.open(name), allow_pickle=False)) for name in names)
        return {name.removesuffix(".npy"): array for name, array in arrays}


def _timeline(arrays: Arrays) -> Timeline:
    """Put the arrays back together; ValueError or KeyError when they do not fit."""
    columns = [arrays[column].astype(np.int64, casting="safe") for column in COLUMNS]
    if len({len(column) for column in columns}) != 1:
        raise ValueError("columns of different lengths")
    parts = np.split(arrays["ranks"], np.cumsum(arrays["ranks_per_class"])[:-1].astype(np.int64))
    links = None
    if "link_src" in arrays:
        ends = (_texts(arrays["link_src"]), _texts(arrays["link_dst"]))
        links = LinkTable(*ends, arrays["link_bytes"].astype(np.int64), arrays["link_busy_ns"].astype(np.int64))
    return Timeline(
        events=EventTable(_texts(arrays["names"]), *columns),
        time_ns=int(arrays["time_ns"]),
        iterations=tuple((int(start), int(end)) for start, end in arrays["iterations"].tolist()),
        ranks=tuple(_members(part) for part in parts),
        finish_ns=tuple(arrays["finish_ns"].tolist()),
        layers=_texts(arrays["layers"]),
        dims=tuple(zip(_texts(arrays["dim_kinds"]), arrays["dim_npus"].tolist(), strict=True)),
        links=links,
    )


def _texts(array: NDArray[np.generic]) -> tuple[str, ...]:
    return tuple(str(text) for text in array.tolist())


def _members(ranks: NDArray[np.generic]) -> Sequence[int]:
    """The ranks of a class; a range where they are contiguous."""
    listed: list[int] = ranks.tolist()
    span = range(listed[0], listed[0] + len(listed))
    return span if listed == list(span) else tuple(listed)
