"""The contents of a workload: tables for a terminal, a data document, a picture, an HTML page that opens from disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path

from simcore.errors import printable
from simcore.files import suffix_of, write_bytes
from simcore.report.table import Table, columns
from simcore.report.tables import share
from simcore.report.text import PHASE_WORDS
from simcore.units import format_bytes, format_ns
from simcore.workload.contents import Contents, Roof, Work
from simcore.workload.model import PhaseName

SCHEMA = "simcore.workload/1"
SUMMARIES = (".html", ".png", ".svg", ".pdf", ".json")
NUM_ROWS = 16
PAGE = Path(__file__).parent / "page" / "workload.html"


def document(contents: Contents) -> dict[str, object]:
    """The contents as a JSON document; sums over `num_ranks` ranks."""
    return {"schema": SCHEMA, **asdict(contents)}


def write_summary(contents: Contents, path: str | Path) -> None:
    """Write a page, a picture or the data, by the name's suffix."""
    suffix = suffix_of(path, SUMMARIES, "summary", "--summary")
    if suffix == ".json":
        from simcore.report.document import encode

        write_bytes(path, encode(document(contents)).encode())
        return
    from simcore.report.plots import image
    from simcore.report.workload_figure import contents_figure

    figure = contents_figure(contents)
    if suffix == ".html":
        write_bytes(path, _page(contents, image(figure, "svg").decode()).encode())
    else:
        write_bytes(path, image(figure, suffix[1:]))  # type: ignore[arg-type]


def render(contents: Contents, *, width: int = 80) -> str:
    """The contents for a terminal."""
    tables = (replace(table, title="").first(NUM_ROWS).text(width) for table in _tables(contents))
    return "\n\n".join(filter(None, (printable(_headline(contents)), *tables))) + "\n"


def _headline(contents: Contents) -> str:
    ranks = contents.num_ranks
    who = f"{contents.name or 'workload'}: " + (f"of {ranks} ranks a mean one" if ranks > 1 else "one rank")
    sent, computed = format_bytes(contents.total_bytes / ranks), format_ns(contents.compute_ns / ranks)
    return f"{who} communicates {sent} and computes {computed} a step."


def _tables(contents: Contents) -> Iterator[Table]:
    """Traffic, sizes, computation, work; figures of a mean rank."""
    ranks, size = contents.num_ranks, contents.total_bytes
    groups = [
        (kind, group, count / ranks, sent / ranks, share(sent, size) if size else None)
        for (kind, group), (count, sent) in contents.by_group().items()
    ]
    shown = columns("collective", "group", "count", "bytes", "share")
    yield Table("Communication", shown, groups)
    messages = [(row.collective, row.group, row.size_bytes, row.count / ranks) for row in contents.traffic]
    yield Table("Messages", columns("messages", "group", "size_bytes", "count"), messages)
    kinds = []
    for kind, times in contents.by_kind().items():
        total, each = sum(times.values()), [times[name] / ranks if name in times else None for name in PhaseName]
        kinds.append((kind, *each, total / ranks, share(total, contents.compute_ns)))
    phases = [(str(name), word, "ns") for name, word in PHASE_WORDS.items()]
    yield Table("Computation", columns("layers", *phases, "all_ns", "share"), kinds)
    if contents.roof:
        yield _work_table(contents.work, contents.roof)


def _work_table(work: Sequence[Work], roof: Roof) -> Table:
    rows = [
        (
            each.name,
            each.phase,
            each.flops / 1e9,
            each.memory_bytes,
            each.flops / each.memory_bytes,
            each.flops / each.time_ns / 1e3 if each.time_ns else None,
        )
        for each in work
    ]
    figures = ("gflop", "GFLOP", ",.4g"), "bytes", ("intensity", "FLOP/byte", ",.4g"), ("rate", "TFLOP/s", ",.4g")
    return Table("Work of one layer", columns(("part", f"part, on {roof.device}"), "phase", *figures), rows)


def _page(contents: Contents, picture: str) -> str:
    """The picture and every table in full; nothing is fetched and nothing runs."""
    tables = "".join(f"<h2>{table.title}</h2>{table.html()}" for table in _tables(contents) if table.rows)
    svg = picture[picture.index("<svg") :]
    title = escape(printable(contents.name or "workload"))
    page = PAGE.read_text(encoding="utf-8")
    return page.format(title=title, headline=escape(printable(_headline(contents))), picture=svg, tables=tables)
