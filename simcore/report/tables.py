"""A report's tables as columns, for data frames and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.errors import InputError, closest
from simcore.report.document import LayerRow, PhaseRow, ReportDocument
from simcore.timeline.events import COLUMNS, EventKind, EventTable
from simcore.workload.model import PhaseName

if TYPE_CHECKING:
    from simcore.report.model import Report

__all__ = ["TABLES", "columns", "layer_rows", "layers_by_name", "needed", "phases"]

TABLES = ("layers", "ranks", "dims", "links", "iterations", "events", "what_would_help")


def needed(package: str) -> Any:
    """A package of the extra `tables`; InputError says how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        hint = "pip install 'simcore[tables]'"
        raise InputError.at(package, f"{package} is not installed", expected="the extra 'tables'", hint=hint) from error


def columns(report: Report, table: str) -> Mapping[str, object]:
    """The columns of a table; InputError when there is no such table."""
    if table not in TABLES:
        raise InputError.at(table, "no such table", expected=closest(table, TABLES), found=repr(table))
    if table == "events":
        return event_columns(report.timeline.events)
    document = report.to_dict()
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "layers": layer_rows(document),
        "ranks": document["ranks"],
        "dims": document["dims"],
        "links": document["links"]["hottest"],
        "iterations": document["iterations"],
        "what_would_help": document.get("what_would_help", ()),
    }
    return _transposed(tables[table])


def _transposed(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}


def phases(layer: LayerRow) -> Iterable[tuple[PhaseName, PhaseRow]]:
    """The three phases of a layer, in the order of a training step's columns."""
    return zip(PhaseName, _phase_rows(layer), strict=True)


def layers_by_name(document: ReportDocument) -> list[LayerRow]:
    """Layers of equal name added up, in order of their first: `mlp x32` for a block that occurs 32 times."""
    equal: dict[str, list[LayerRow]] = {}
    for layer in document["layers"]:
        equal.setdefault(layer["name"], []).append(layer)
    return [same[0] if len(same) == 1 else _added_up(same) for same in equal.values()]


def _added_up(same: Sequence[LayerRow]) -> LayerRow:
    forward, input_grad, weight_grad = map(_sum_of_phase, zip(*map(_phase_rows, same), strict=True))
    return {
        "index": same[0]["index"],
        "name": f"{same[0]['name']} x{len(same)}",
        "forward": forward,
        "input_grad": input_grad,
        "weight_grad": weight_grad,
    }


def _phase_rows(layer: LayerRow) -> tuple[PhaseRow, PhaseRow, PhaseRow]:
    return layer["forward"], layer["input_grad"], layer["weight_grad"]


def _sum_of_phase(rows: Sequence[PhaseRow]) -> PhaseRow:
    kinds = dict.fromkeys(row["collective"] for row in rows if row["collective"])
    return {
        "compute_ns": sum(row["compute_ns"] for row in rows),
        "comm_ns": sum(row["comm_ns"] for row in rows),
        "exposed_ns": sum(row["exposed_ns"] for row in rows),
        "collective": ", ".join(kinds) or None,
        "bytes": sum(row["bytes"] for row in rows),
    }


def layer_rows(document: ReportDocument) -> list[dict[str, object]]:
    """One flat row per layer and phase."""
    return [
        {"layer": layer["index"], "name": layer["name"], "phase": phase.value, **figures}
        for layer in document["layers"]
        for phase, figures in phases(layer)
    ]


def event_columns(events: EventTable) -> dict[str, object]:
    """The event table with names and kinds spelled out."""
    spelled = {
        "kind": np.array([kind.name.lower() for kind in EventKind])[events.kind],
        "name": np.array(events.names or ("",))[events.name],
    }
    return {column: spelled.get(column, getattr(events, column)) for column in COLUMNS}
