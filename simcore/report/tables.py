"""A report's tables as columns, for data frames and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from simcore.errors import InputError, closest
from simcore.report.document import LayerRow, PhaseRow, ReportDocument
from simcore.timeline.events import COLUMNS, EventKind, EventTable
from simcore.units import format_ns
from simcore.workload.model import PhaseName

if TYPE_CHECKING:
    from simcore.report.model import Report

__all__ = ["TABLES", "columns", "layer_rows", "notebook_html", "phases"]

TABLES = ("layers", "ranks", "dims", "links", "iterations", "events")


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
    }
    return _transposed(tables[table])


def _transposed(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}


def phases(layer: LayerRow) -> Iterable[tuple[PhaseName, PhaseRow]]:
    """The three phases of a layer, in the order of a training step's columns."""
    return zip(PhaseName, (layer["forward"], layer["input_grad"], layer["weight_grad"]), strict=True)


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


def notebook_html(document: ReportDocument) -> str:
    """What a notebook shows: the run in one line and its layers as a table."""
    shares = document["breakdown"].items()
    summary = f"<b>{format_ns(document['time_ns'])}</b> on {document['npus']:,} NPUs: "
    summary += ", ".join(f"{escape(name.removesuffix('_ns'))} {format_ns(int(str(value)))}" for name, value in shares)
    header = ("layer", "name", "phase", "compute_ns", "comm_ns", "exposed_ns", "collective", "bytes")
    rows = [[row[key] for key in header] for row in layer_rows(document)]
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<p>{summary}</p><table><thead><tr>{_cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _cells(values: Iterable[object], tag: str) -> str:
    return "".join(f"<{tag}>{escape('' if value is None else str(value))}</{tag}>" for value in values)
