"""The contents of a workload: tables for a terminal, a data document, a picture, an HTML page that opens from disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path

from simcore.errors import InputError, closest, printable
from simcore.files import write_bytes
from simcore.report.grid import grid, top
from simcore.report.text import PHASE_WORDS
from simcore.units import format_bytes, format_ns
from simcore.workload.contents import Contents, Work
from simcore.workload.model import PhaseName

__all__ = ["SUMMARIES", "by_group", "by_kind", "check_summary", "document", "render", "write_summary"]

SCHEMA = "simcore.workload/1"
SUMMARIES = (".html", ".png", ".svg", ".pdf", ".json")
NUM_ROWS = 16

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def by_group(contents: Contents) -> dict[tuple[str, str], tuple[int, int]]:
    """Collective and group -> how many and their bytes, most bytes first; sums over the ranks."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in contents.traffic:
        counts[row.collective, row.group] += row.count
        sizes[row.collective, row.group] += row.total_bytes
    return {key: (counts[key], sizes[key]) for key in sorted(sizes, key=lambda key: (-sizes[key], key))}


def by_kind(contents: Contents) -> dict[str, dict[str, int]]:
    """Kind of layer -> time by phase, the most time first; sums over the ranks."""
    found: dict[str, dict[str, int]] = {}
    for row in contents.compute:
        phases = found.setdefault(row.kind, {})
        phases[row.phase] = phases.get(row.phase, 0) + row.time_ns
    return dict(sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def document(contents: Contents) -> dict[str, object]:
    """The contents as a JSON document; sums over `num_ranks` ranks."""
    return {"schema": SCHEMA, **asdict(contents)}


def check_summary(path: str | Path) -> str:
    """The suffix that decides what a summary is; InputError when it is none of those known."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUMMARIES:
        raise InputError.at("--summary", "cannot tell the format", expected=closest(suffix, SUMMARIES), found=str(path))
    return suffix


def write_summary(contents: Contents, path: str | Path) -> None:
    """Write a page, a picture or the data, by the name's suffix."""
    suffix = check_summary(path)
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
    parts = [_headline(contents)]
    for _, header, rows in _tables(contents):
        note = top(NUM_ROWS, len(rows), "rows")
        parts.append(grid(header, rows[:NUM_ROWS], width=width) + ("\n" + note if note else ""))
    return printable("\n\n".join(parts)) + "\n"


def _headline(contents: Contents) -> str:
    ranks = contents.num_ranks
    who = f"{contents.name or 'workload'}: " + (f"of {ranks} ranks a mean one" if ranks > 1 else "one rank")
    sent, computed = format_bytes(contents.total_bytes / ranks), format_ns(contents.compute_ns / ranks)
    return f"{who} communicates {sent} and computes {computed} a step."


def _tables(contents: Contents) -> Iterable[Table]:
    """Title, header and rows: traffic, sizes, computation, work; figures of a mean rank."""
    yield "Communication", ("collective", "group", "count", "bytes", "share"), list(_group_rows(contents))
    yield "Messages", ("messages", "group", "size", "count"), list(_message_rows(contents))
    yield "Computation", ("layers", *map(str, PHASE_WORDS.values()), "all", "share"), list(_kind_rows(contents))
    if contents.roof:
        about = f"part, on {contents.roof.device}"
        header = (about, "phase", "GFLOP", "bytes", "FLOP/byte", "TFLOP/s")
        yield "Work of one layer", header, list(map(_work_row, contents.work))


def _group_rows(contents: Contents) -> Iterator[tuple[str, ...]]:
    ranks, whole = contents.num_ranks, contents.total_bytes
    for (kind, group), (count, size) in by_group(contents).items():
        yield kind, group, f"{count / ranks:,.6g}", format_bytes(size / ranks), _share(size, whole)


def _message_rows(contents: Contents) -> Iterator[tuple[str, ...]]:
    for row in contents.traffic:
        yield row.collective, row.group, format_bytes(row.size_bytes), f"{row.count / contents.num_ranks:,.6g}"


def _kind_rows(contents: Contents) -> Iterator[tuple[str, ...]]:
    ranks = contents.num_ranks
    for kind, times in by_kind(contents).items():
        total = sum(times.values())
        yield kind, *_phases(times, ranks), format_ns(total / ranks), _share(total, contents.compute_ns)


def _work_row(work: Work) -> tuple[str, ...]:
    rate = f"{work.flops / work.time_ns / 1e3:,.4g}" if work.time_ns else "-"
    intensity = f"{work.flops / work.memory_bytes:,.4g}"
    return work.name, work.phase, f"{work.flops / 1e9:,.4g}", format_bytes(work.memory_bytes), intensity, rate


def _phases(times: Mapping[str, int], ranks: int) -> tuple[str, ...]:
    return tuple(format_ns(times[name] / ranks) if name in times else "-" for name in map(str, PhaseName))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .15rem .8rem; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0 }}
</style></head><body>
<h1>{title}</h1><p>{headline}</p>
{picture}
{tables}
</body></html>
"""


def _page(contents: Contents, picture: str) -> str:
    """The picture and every table in full; nothing is fetched and nothing runs."""
    tables = "".join(
        f"<h2>{title}</h2>{_html_table(header, rows)}" for title, header, rows in _tables(contents) if rows
    )
    svg = picture[picture.index("<svg") :]
    title = escape(printable(contents.name or "workload"))
    return _PAGE.format(title=title, headline=escape(printable(_headline(contents))), picture=svg, tables=tables)


def _html_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [_html_row("th", header), *(_html_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _html_row(element: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{element}>{escape(printable(cell))}</{element}>" for cell in cells) + "</tr>"
