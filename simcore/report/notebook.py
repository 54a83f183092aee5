"""What a notebook shows of a report: the sentence, the shares as a bar, the layers that cost most."""

from __future__ import annotations

from html import escape

from simcore.report.document import ReportDocument
from simcore.report.palette import BREAKDOWN, text_on
from simcore.report.tables import helps, per_iteration, top_layers
from simcore.report.text import dominating, headline

NUM_LAYERS = 15
LEAST_SHARE = 0.06  # of the bar that has room for its figure
BAR = "display:flex;height:1.7em;max-width:60em;font-size:85%;line-height:1.7em;text-align:center"


def notebook_html(document: ReportDocument) -> str:
    """The report as HTML; everything from inputs is escaped."""
    each = per_iteration(document)
    said = "<br>".join(map(escape, dominating(each).splitlines()))
    told = (helps(each), top_layers(each, NUM_LAYERS))
    tables = "".join(f"<p>{table.title}</p>{table.html()}" for table in told if table.rows)
    return f"<p><b>{escape(headline(document))}</b><br>{said}</p>{_bar(document)}{tables}"


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
