"""What a notebook shows of a report: the sentence, the shares as a bar, the layers that cost most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from simcore.report.document import ReportDocument
from simcore.report.palette import BREAKDOWN, text_on
from simcore.report.tables import layers_by_name
from simcore.report.text import Figure, dominating, headline, layer_total
from simcore.units import format_ns

__all__ = ["notebook_html"]

NUM_LAYERS = 15
FIGURES: tuple[Figure, ...] = ("compute_ns", "comm_ns", "exposed_ns")
LEAST_SHARE = 0.06  # of the bar that has room for its figure
BAR = "display:flex;height:1.7em;max-width:60em;font-size:85%;line-height:1.7em;text-align:center"


def notebook_html(document: ReportDocument) -> str:
    """The report as HTML; everything from inputs is escaped."""
    said = "<br>".join(map(escape, dominating(document).splitlines()))
    return f"<p><b>{escape(headline(document))}</b><br>{said}</p>{_bar(document)}{_helps(document)}{_layers(document)}"


def _bar(document: ReportDocument) -> str:
    """The four shares beside each other."""
    whole, shares = max(document["time_ns"], 1), dict(document["breakdown"])
    parts = []
    for key, (label, colour) in BREAKDOWN.items():
        share = int(str(shares[key])) / whole
        style = f"flex:{share:.6f} 0 0;background:{colour};color:{text_on(colour)};overflow:hidden"
        figure = f"{share:.1%}" if share >= LEAST_SHARE else ""
        parts.append(f'<div style="{style}" title="{label}: {share:.1%}">{figure}</div>')
    return f'<div style="{BAR}">{"".join(parts)}</div>'


def _helps(document: ReportDocument) -> str:
    rows = [
        (row["change"], format_ns(row["time_ns"]), f"{-row['saved_ns'] / max(document['time_ns'], 1):+.1%}")
        for row in document.get("what_would_help", ())
    ]
    return _table(("what would help", "time", "difference"), rows) if rows else ""


def _layers(document: ReportDocument) -> str:
    """Layers of equal name added up, what costs most first."""
    layers = sorted(
        layers_by_name(document),
        key=lambda layer: -layer_total(layer, "compute_ns") - layer_total(layer, "exposed_ns"),
    )
    rows = [
        (layer["name"], *(format_ns(layer_total(layer, figure)) for figure in FIGURES)) for layer in layers[:NUM_LAYERS]
    ]
    note = f"<p>{len(layers) - NUM_LAYERS} more layers, each costing less</p>" if len(layers) > NUM_LAYERS else ""
    return _table(("layer", "compute", "communication", "exposed"), rows) + note if rows else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _cells(values: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)
