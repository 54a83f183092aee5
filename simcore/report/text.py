"""The report on a terminal and in a notebook: first the sentence a user came for, then layers, dimensions, links."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from operator import itemgetter
from typing import TextIO

from simcore.errors import printable
from simcore.report.document import DimensionRow, LayerRow, PhaseRow, RankRow, ReportDocument
from simcore.report.palette import BREAKDOWN, text_on
from simcore.report.queues import queues_text
from simcore.report.table import Table, columns, shorten
from simcore.report.tables import helps, joined, layer_total, layers_by_name, per_iteration, phases, share, top_layers
from simcore.timeline.breakdown import OperationTotal
from simcore.units import format_bytes, format_joules, format_ns, format_rate
from simcore.workload.model import PhaseName

NUM_ROWS, NOTEBOOK_ROWS = 12, 15
ADVICE = "--what-would-help runs it again with faster NPUs and links and says what each would save."
MOST_OF_NAMES = 40  # characters
UNEVEN = 1.02  # how much longer one computes, or takes, than the others before it is named
EXPOSED_DEFINITIONS = (
    "not computing: the run's time less the time rank 0 computes (ASTRA-sim's figure; waiting and idle time count)",
    "communication alone: the time in which rank 0 communicates and computes nothing",
)
PHASE_WORDS = {
    PhaseName.FORWARD: "forward",
    PhaseName.INPUT_GRAD: "input gradient",
    PhaseName.WEIGHT_GRAD: "weight gradient",
}


def use_colour(stream: TextIO | None) -> bool:
    """Whether a stream, None where it was closed, wants colour: a terminal, and NO_COLOR not set."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def terminal_width(stream: TextIO | None) -> int:
    """Columns of the terminal; 80 where the stream is a file, or was closed."""
    on_terminal = stream is not None and stream.isatty()
    return max(60, min(shutil.get_terminal_size((80, 24)).columns, 160)) if on_terminal else 80


def render(
    document: ReportDocument,
    *,
    operations: Sequence[OperationTotal] = (),
    width: int = 80,
    colour: bool = False,
    num_rows: int = NUM_ROWS,
) -> str:
    """The whole text; tables hold at most `num_rows` rows and say what they leave out.

    `operations` (of `timeline.breakdown.operation_totals`) are shown for graphs, which have no layers.
    """
    parts = _parts(document, per_iteration(document), operations, width, num_rows)
    first, *others = (printable(part) for part in parts if part)
    return "\n\n".join([f"\x1b[1m{first}\x1b[0m" if colour else first, *others]) + "\n"


def wrapped(text: str, width: int) -> str:
    """Lines broken at the width."""
    return "\n".join(textwrap.fill(line, width, break_long_words=False) for line in text.splitlines())


def _parts(
    whole: ReportDocument, each: ReportDocument, operations: Sequence[OperationTotal], width: int, num_rows: int
) -> Iterator[str]:
    """The text, part by part: of the `whole` run and of `each` iteration."""
    yield wrapped(headline(whole), width)
    yield wrapped(_noise(whole), width)
    yield wrapped(dominating(each), width)
    yield helps(each).text(width)
    yield _rules(whole, width)
    yield top_layers(each, num_rows).text(width) or _operations(whole, operations, width, num_rows)
    yield _dims(each, width)
    yield _pipeline(each, width)
    yield _ranks(each, width, num_rows)
    yield _links(each, width)
    yield queues_text(whole, width)
    yield from (wrapped(note, width) for note in _notes(whole))
    yield from _wafer_steps(whole)
    yield _definitions(whole, width)
    yield "" if "what_would_help" in whole or not whole["time_ns"] else wrapped(ADVICE, width)


def headline(document: ReportDocument) -> str:
    """The time of an iteration, or of all jobs, and what it is made of."""
    time_ns, shares = document["time_ns"], document["breakdown"]
    num_iterations = max(1, len(document["iterations"]))
    each = f"One iteration takes {format_ns(time_ns / num_iterations)}"
    if num_iterations > 1:
        each += f" (mean of {num_iterations}; {format_ns(time_ns)} in all)"
    if jobs := document.get("jobs"):
        each = f"{'A job is' if len(jobs) == 1 else f'{len(jobs):,} jobs are'} done after {format_ns(time_ns)}"
    compute = _percent(shares["compute_ns"] + shares["overlapped_ns"], time_ns)
    hidden_ns = shares["overlapped_ns"]
    overlapped = f" ({_percent(hidden_ns, time_ns)} overlaps communication)" * bool(hidden_ns)
    exposed, idle = _percent(shares["exposed_comm_ns"], time_ns), _percent(shares["idle_ns"], time_ns)
    npus = f"{document['npus']:,} NPU" + "s" * (document["npus"] != 1)
    whose = "; rank 0" * (len(document["ranks"]) > 1)
    return f"{each} on {npus}{whose}: {compute} compute{overlapped}, {exposed} exposed communication, {idle} idle."


def _noise(document: ReportDocument) -> str:
    noise = document.get("noise")
    if not noise or noise["runs"] == 1:
        return ""
    last, count = noise["seed"] + noise["runs"] - 1, max(1, len(document["iterations"]))
    spread = ", ".join(f"{name} {format_ns(float(str(ns)) / count)}" for name, ns in noise["time_ns"].items())
    each = " an iteration" * (count > 1)
    return f"Seeds {noise['seed']} to {last}: {spread}{each}; what follows is seed {noise['seed']}."


def _notes(document: ReportDocument) -> Iterator[str]:
    """How often an optical switch changed its circuits, what each fault did, what the boards draw."""
    if row := document.get("circuits"):
        among, took = ", ".join(row["configurations"]), format_ns(row["changing_ns"])
        yield f"Circuits ({among}) were changed {row['changes']:,} times, {took} in all."
    yield "\n".join(
        f"Fault {row['fault']}: {row['transfers']:,} transfers slowed down ({format_bytes(row['bytes'])}), "
        f"{row['rerouted']:,} led around."
        for row in document.get("faults", ())
    )
    if power := document.get("power"):
        name, npus, count = power["accelerator"], document["npus"], len(document["iterations"])
        drawn = f"{power['board_w']:,.0f} W on average, {format_joules(power['energy_j'] / npus)}"
        over = f" in {count} iterations" * (count > 1)
        yield f"Power: a {name} draws {drawn}; all {npus:,} {format_joules(power['energy_j'])}{over}."


def _wafer_steps(document: ReportDocument) -> Iterator[str]:
    """The steps of a wafer in words, a paragraph each; nothing for other runs."""
    for step in document.get("wafer", {"steps": []})["steps"]:
        most, rate = step["compute_ns"], f", {step['tokens_per_s']:,.0f} tokens/s" if step["tokens"] else ""
        busiest = f"NPU {most['npu']} computes most, {format_ns(most['max'])} (mean {format_ns(most['mean'])})"
        lines = [f"{step['name']}: {format_ns(step['time_ns'])}{rate}; {busiest}."]
        late = [
            f"{each['npu']} (+{format_ns(each['cost_ns'])} in {each['phases']} phases)"
            for each in step.get("stragglers", [])
        ]
        lines += [f"Stragglers: {', '.join(late[:3])}."] if late else []
        yield "\n".join(lines)


def dominating(document: ReportDocument) -> str:
    """Which layers and which dimension decide the time; a line each, none where there is nothing to say."""
    told = (
        _most_compute(document),
        _most_exposed(document),
        _straggler(document) or _last(document),
        _busiest(document),
    )
    return "\n".join(line for line in told if line)


def _rules(document: ReportDocument, width: int) -> str:
    """What the rules of the profile add to the native model: those that matter in this run, or cannot be told apart."""
    rows = document.get("profile_rules", ())
    if not rows:
        return ""
    lines = [f"What profile {document['profile']} adds to this run, by the same run without the rule"]
    margin = " " * 25
    for row in rows:
        added_ns = row["added_ns"] or 0
        share = f"{added_ns / max(document['time_ns'], 1):+.2%}"
        said = f"{added_ns:+14,} ns {share:>7}" if row["time_ns"] is not None else f"{'not alone':>25}"
        why = f" ({row['refused']})" * bool(row["refused"])
        if added_ns or why:
            lines.append(textwrap.fill(f"{said}  {row['rule']}{why}", width, subsequent_indent=f"{margin}  "))
    silent = sum(row["added_ns"] == 0 for row in rows[:-1])  # the last row is all of them
    lines += [f"{silent} rules change nothing here."] * bool(silent)
    return "\n".join(lines)


def _percent(part: float, whole: float) -> str:
    return f"{share(part, whole):.1%}"


def _most_compute(document: ReportDocument) -> str:
    layers = layers_by_name(document)
    totals = sorted(layers, key=lambda layer: -layer_total(layer, "compute_ns"))[:2]
    whole = sum(layer_total(layer, "compute_ns") for layer in layers)
    named = [f"{_short(layer['name'])} ({_percent(layer_total(layer, 'compute_ns'), whole)})" for layer in totals]
    return f"Most compute: {', '.join(named)}." if whole else ""


def _most_exposed(document: ReportDocument) -> str:
    rows: list[tuple[LayerRow, PhaseName, PhaseRow]] = [
        (layer, phase, row) for layer in layers_by_name(document) for phase, row in phases(layer)
    ]
    whole = sum(row["exposed_ns"] for _, _, row in rows)
    if not whole:
        return ""
    layer, phase, row = max(rows, key=lambda entry: entry[2]["exposed_ns"])
    what = f"{row['collective'] or 'collective'} of {_short(layer['name'])} ({PHASE_WORDS[phase]})"
    return f"Longest waiting: for the {what}, {_percent(row['exposed_ns'], whole)} of all waiting."


def _straggler(document: ReportDocument) -> str:
    """The ranks that the others wait for: they compute longest."""
    slowest, *others = sorted(document["ranks"], key=lambda row: -row["compute_ns"])
    if (
        not others
        or {"pipeline", "jobs"} & document.keys()
        or slowest["compute_ns"] <= UNEVEN * others[0]["compute_ns"]
    ):
        return ""
    times = f"{format_ns(slowest['compute_ns'])} where no other computes more than {format_ns(others[0]['compute_ns'])}"
    who = "it computes" if slowest["ranks"].isdecimal() else "they compute"
    return f"Everyone waits for {_named(slowest)}: {who} {times}."


def _named(row: RankRow) -> str:
    return f"rank{'s' * (not row['ranks'].isdecimal())} {_short(row['ranks'])}"


def _short(name: str) -> str:
    """A name that fits into a line."""
    return shorten(name, MOST_OF_NAMES)


def _last(document: ReportDocument) -> str:
    """The ranks that end last, where rank 0 ends before them and its figures say little of the time."""
    if len(document["ranks"]) < 2 or "pipeline" in document:
        return ""
    own, row = document["ranks"][0], max(document["ranks"], key=itemgetter("finish_ns"))
    if row["finish_ns"] <= UNEVEN * own["finish_ns"]:
        return ""
    compute, exposed = (_percent(row[figure], row["finish_ns"]) for figure in ("compute_ns", "exposed_comm_ns"))
    return f"Last to end: {_named(row)}, {compute} compute, {exposed} exposed communication."


def _busiest(document: ReportDocument) -> str:
    if not any(dim["bytes_per_npu"] for dim in document["dims"]):
        moved = any(row["comm_ns"] for row in document["ranks"])
        return "" if moved else "Nothing was communicated: the network does not matter for this workload."
    dim = max(document["dims"], key=lambda dim: (dim["busy_ns"], dim["bytes_per_npu"]))
    name = f"dimension {dim['index']} ({dim['kind']} of {dim['npus']})"
    sent = f"{_percent(dim['busy_ns'], document['time_ns'])} of the time: {format_bytes(dim['bytes_per_npu'])} per NPU"
    if (rate := _rate(dim)) and (rated := dim.get("rated_bytes_per_s")):
        sent += f" at {format_rate(rate)}, of {format_rate(rated)} rated"
    return f"Busiest: {name}, {sent}."


def _operations(document: ReportDocument, operations: Sequence[OperationTotal], width: int, num_rows: int) -> str:
    rows = [
        (each.name, each.kind.name.lower(), each.count, each.total_ns, share(each.total_ns, document["time_ns"]))
        for each in operations
    ]
    shown = columns("operation", "kind", "count", "time_ns", ("share", "of time"))
    title, noun = "Operations (rank 0; they may overlap)", "operations, each taking less,"
    return Table(title, shown, rows, noun=noun, listed="events.npz").first(num_rows).text(width)


def _rate(dim: DimensionRow) -> float | None:
    """Bytes per second that rank 0 sends while a dimension is busy."""
    return dim["bytes_per_npu"] / dim["busy_ns"] * 1e9 if dim["busy_ns"] else None


def _dims(document: ReportDocument, width: int) -> str:
    rows = [
        (
            f"{dim['index']}: {dim['kind']} of {dim['npus']}",
            dim["bytes_per_npu"],
            dim["busy_ns"],
            share(dim["busy_ns"], document["time_ns"]),
            _rate(dim),
            dim.get("rated_bytes_per_s"),
        )
        for dim in document["dims"]
    ]
    figures = (("sent_bytes", "sent per NPU"), "busy_ns", ("busy_share", "of time"))
    rates = ("rate_bytes_per_s", "while busy"), ("rated_bytes_per_s", "rated")
    shown = columns("dimension", *figures, *rates)
    return Table("Dimensions (rank 0)", shown, rows).text(width)


def _pipeline(document: ReportDocument, width: int) -> str:
    if "pipeline" not in document:
        return ""
    told, time_ns = document["pipeline"], document["time_ns"]
    rows = [
        (
            f"{row['stage']}: {row['ranks']}",
            row["finish_ns"],
            share(row["compute_ns"] + row["overlapped_ns"], time_ns),
            share(row["exposed_comm_ns"], time_ns),
            share(row["idle_ns"], time_ns),
        )
        for row in told["stages"]
    ]
    chunks = f", {told['chunks']} chunks a stage" if told["chunks"] > 1 else ""
    title = f"Pipeline ({told['schedule']}, {told['micro_batches']} micro-batches{chunks})"
    shares = ("compute_share", "exposed_comm_share", ("idle_share", "idle (bubble)"))
    return Table(title, columns(("ranks", "stage: ranks"), "finish_ns", *shares), rows).text(width)


def _ranks(document: ReportDocument, width: int, num_rows: int) -> str:
    """Ranks that differ, the slowest first."""
    rows = sorted(document["ranks"], key=lambda row: -row["finish_ns"])
    figures = ("finish_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "idle_ns")
    table = Table("", columns(("ranks", "ranks, slowest first"), *figures), rows, noun="groups of ranks")
    return table.first(num_rows).text(width) if len(rows) > 1 else ""


def _links(document: ReportDocument, width: int, num_rows: int = 5) -> str:
    links, time_ns = document["links"], document["time_ns"]
    rows = [(*row.values(), share(row["busy_ns"], time_ns)) for row in joined(links["hottest"])[:num_rows]]
    title = f"Hottest {len(links['hottest'])} of {links['count']:,} links"
    shown = columns("link", ("bytes", "carried", "bytes"), "busy_ns", ("busy_share", "of time"))
    return Table(title, shown, rows).text(width)


def _definitions(document: ReportDocument, width: int) -> str:
    """Both definitions of exposed communication, with their figures."""
    count = max(1, len(document["iterations"]))
    figures = [ns / count for ns in (document["exposed_comm_ns"], document["breakdown"]["exposed_comm_ns"])]
    if figures[0] == figures[1]:
        said = f"Exposed communication: {format_ns(figures[0])}, which is all of the time without computing."
        return wrapped(said, width)
    lines = (f"  {format_ns(ns):>9}  {text}" for ns, text in zip(figures, EXPOSED_DEFINITIONS, strict=True))
    rows = (textwrap.fill(line, width, subsequent_indent=" " * 13) for line in lines)
    return "Exposed communication, by its two definitions\n" + "\n".join(rows)


LEAST_SHARE = 0.06  # of the bar that has room for its figure
BAR = "display:flex;height:1.7em;max-width:60em;font-size:85%;line-height:1.7em;text-align:center"


def notebook_html(document: ReportDocument) -> str:
    """The report as HTML; everything from inputs is escaped."""
    each = per_iteration(document)
    said = "<br>".join(map(escape, dominating(each).splitlines()))
    told = (helps(each), top_layers(each, NOTEBOOK_ROWS))
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
