"""A report's tables as columns, for data frames and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Literal, cast, get_args

import numpy as np

from simcore.errors import InputError, closest
from simcore.report.document import BreakdownRow, LayerRow, PhaseRow, ReportDocument, layer_row, phase_row
from simcore.report.table import Table, columns
from simcore.timeline.events import COLUMNS, EventKind, EventTable
from simcore.workload.model import PhaseName

Figure = Literal["compute_ns", "comm_ns", "exposed_ns"]
LAYER_COLUMNS = ("layer", "name", "phase", "compute_ns", "comm_ns", "exposed_ns", "collective", "bytes")

SUMMED = {"time_ns", "compute_ns", "exposed_comm_ns", "breakdown", "layers", "ranks", "dims", "pipeline"}
SUMMED |= {"what_would_help"}
SHARES = BreakdownRow.__annotations__
TABLES = ("layers", "ranks", "dims", "links", "iterations", "events", "what_would_help")


def joined(links: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of links; those that differ in their ends alone are one row, named after the first.

    >>> joined([{"src": "0", "dst": "1", "bytes": 4}, {"src": "1", "dst": "2", "bytes": 4}])
    [{'link': '0 -> 1 and 1 alike', 'bytes': 4}]
    """
    names: dict[str, list[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for link in links:
        figures = {key: value for key, value in link.items() if key not in ("src", "dst")}
        names.setdefault(str(figures), []).append(f"{link['src']} -> {link['dst']}")
        rows[str(figures)] = figures
    several = {key: f" and {len(each) - 1} alike" * (len(each) > 1) for key, each in names.items()}
    return [{"link": names[key][0] + several[key], **figures} for key, figures in rows.items()]


def needed(package: str) -> Any:
    """A package of the extra `tables`; InputError says how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        hint = "pip install 'simcore[tables]'"
        raise InputError.at(package, f"{package} is not installed", expected="the extra 'tables'", hint=hint) from error


def columns_of(document: ReportDocument, table: str) -> Mapping[str, object]:
    """The columns of a table; InputError when there is no such table."""
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "layers": layer_rows(document),
        "ranks": document["ranks"],
        "dims": document["dims"],
        "links": document["links"]["hottest"],
        "iterations": document["iterations"],
        "what_would_help": document.get("what_would_help", ()),
    }
    if table not in [*tables]:
        raise InputError.at(str(table), "no such table", expected=closest(table, TABLES), found=repr(table))
    rows = tables[table]
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}


def per_iteration(document: ReportDocument) -> ReportDocument:
    """The report with the mean of its iterations wherever it has their sum; moments of iterations stay."""
    count = len(document["iterations"])
    if count <= 1:
        return document
    summed = {name: value for name, value in document.items() if name in SUMMED}
    links = [row | {"bytes": round(row["bytes"] / count)} for row in document["links"]["hottest"]]
    shown = document | {"links": document["links"] | {"hottest": links}}
    return cast(ReportDocument, shown | _mean(summed | {"links": shown["links"]}, count))


def _mean(value: Any, count: int, key: str = "") -> Any:
    """A part of the document with a mean for each time and each traffic of an NPU."""
    if isinstance(value, dict):
        means = {name: _mean(part, count, name) for name, part in value.items()}
        return means | _mean_shares(value, count) if value.keys() >= SHARES.keys() else means
    if isinstance(value, list):
        return [_mean(part, count) for part in value]
    return round(value / count) if key.endswith(("_ns", "bytes_per_npu")) else value


def _mean_shares(shares: Mapping[str, int], count: int) -> dict[str, int]:
    """Means of the four shares that add up to the mean of their sum, which those rounded one by one need not do."""
    ends = [round(end / count) for end in accumulate((shares[name] for name in SHARES), initial=0)]
    return {name: end - begin for name, (begin, end) in zip(SHARES, pairwise(ends), strict=True)}


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
    summed = map(sum_of_phases, zip(*map(_phase_rows, same), strict=True))
    return layer_row(same[0]["index"], f"{same[0]['name']} x{len(same)}", *summed)


def _phase_rows(layer: LayerRow) -> tuple[PhaseRow, PhaseRow, PhaseRow]:
    return layer["forward"], layer["input_grad"], layer["weight_grad"]


def sum_of_phases(rows: Sequence[PhaseRow]) -> PhaseRow:
    """Phases added up; nothing of none."""
    kinds = ", ".join(dict.fromkeys(filter(None, map(itemgetter("collective"), rows)))) or None
    size, *times = (sum(map(itemgetter(figure), rows)) for figure in ("bytes", *get_args(Figure)))
    return phase_row((kinds, size), *times)


def layer_rows(document: ReportDocument) -> list[dict[str, object]]:
    """One flat row per layer and phase."""
    return [
        {"layer": layer["index"], "name": layer["name"], "phase": phase.value, **figures}
        for layer in document["layers"]
        for phase, figures in phases(layer)
    ]


def share(part: float, whole: float) -> float:
    """A part of a whole, which may be 0."""
    return part / whole if whole else 0.0


def layer_total(layer: LayerRow, figure: Figure) -> int:
    """One figure of a layer, summed over its phases."""
    return sum(row[figure] for _, row in phases(layer))


def layer_cost(layer: LayerRow) -> int:
    """What a layer computes, and what is waited for its collectives."""
    return layer_total(layer, "compute_ns") + layer_total(layer, "exposed_ns")


def top_layers(document: ReportDocument, num_rows: int) -> Table:
    """The layers that cost most, those of equal name added up, in the order of the workload."""
    layers = layers_by_name(document)
    by_cost = sorted(layers, key=lambda layer: -layer_cost(layer))
    stages = len(document["pipeline"]["stages"]) if "pipeline" in document else 1
    rows = []
    for layer in sorted(by_cost[:num_rows], key=lambda layer: layer["index"]):
        compute, comm, exposed = (layer_total(layer, figure) for figure in get_args(Figure))
        kinds = sorted({row["collective"] for _, row in phases(layer) if row["collective"]})
        of_time = share(compute + exposed, document["time_ns"] * stages)
        rows.append((layer["name"], compute, comm, exposed, of_time, ", ".join(kinds)))
    whose = "rank 0" if stages == 1 else "the first rank of every stage"
    shown = columns("layer", *get_args(Figure), ("share", "of time"), "collectives")
    whose += ", mean of an iteration" * (len(document["iterations"]) > 1)
    title, noun = f"Layers ({whose})", "layers, each costing less,"
    return Table(title, shown, rows, len(layers), noun)


def helps(document: ReportDocument) -> Table:
    """What changes of the run would save."""
    time_ns = max(document["time_ns"], 1)
    rows = [(row["change"], row["time_ns"], -row["saved_ns"] / time_ns) for row in document.get("what_would_help", ())]
    title = "What would help (the same run with one change, simulated again)"
    return Table(title, columns("change", "time_ns", ("difference", "difference", "+share")), rows)


def event_columns(events: EventTable) -> dict[str, object]:
    """The event table with names and kinds spelled out."""
    spelled = {
        "kind": np.array([kind.name.lower() for kind in EventKind])[events.kind],
        "name": np.array(events.names or ("",))[events.name],
    }
    return {column: spelled.get(column, getattr(events, column)) for column in COLUMNS}
