"""Dependency graphs made in memory, row by row."""

import numpy as np

from simcore.workload.model import ALL_DIMENSIONS, Graph

_EMPTY = {"collective": -1, "dims": ALL_DIMENSIONS, "stream": -1, "group": 0}
_COLUMNS = (
    *("duration_ns", "size_bytes", "collective", "group", "dims"),
    *("peer", "tag", "priority", "num_ops", "stream"),
)


def node(kind, *deps, **details):
    """A row: what it is, the rows it waits for, and columns that are not zero."""
    return {"kind": kind, "deps": deps, **details}


def graph(*rows, path="trace.et", group_names=("",)):
    """A rank's graph."""
    return Graph(
        node_id=np.arange(len(rows)),
        kind=np.array([row["kind"] for row in rows], np.uint8),
        on_cpu=np.array([row.get("on_cpu", False) for row in rows], np.bool_),
        delays=np.zeros(len(rows), np.bool_),
        dep_offsets=np.cumsum([0, *(len(row["deps"]) for row in rows)]),
        deps=np.array([dep for row in rows for dep in row["deps"]], np.int32),
        names=tuple(row.get("name", f"node {number}") for number, row in enumerate(rows)),
        group_names=group_names,
        path=path,
        **{name: np.array([row.get(name, _EMPTY.get(name, 0)) for row in rows], np.int64) for name in _COLUMNS},
    )
