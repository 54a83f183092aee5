"""`simcore compare`: two reports, or two workloads, aligned: where the time went, what is sent and computed."""

from __future__ import annotations

import gzip
import sys
import zlib
from glob import escape
from pathlib import Path

import click

from simcore import library

__all__ = ["command"]


@click.command(short_help="Compare two reports, workloads or traces.")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON, with every layer.")
@click.option("--rows", default=12, show_default=True, type=click.IntRange(min=1), help="Most rows of a table.")
def command(a: str, b: str, as_json: bool, rows: int) -> None:
    """Say what changed from report A to report B, and why: per layer, collective and dimension.

    A and B are folders written by `simcore run -o`, or files in them: report.json, or events.npz, the timeline, from
    which the report is made again. Or both are workloads (texts, specifications, sets of traces), and what differs is
    what a rank sends and computes. Or both are traces of PyTorch's profiler, aligned kernel by kernel.

    \b
    simcore run --workload dlrm --topology ring64 -o a
    simcore run --workload dlrm --topology torus_4x4x4 -o b
    simcore compare a b
    simcore compare a/events.npz b/report.json --json
    simcore compare step.txt traces/llama
    simcore compare before/rank0.json.gz after/rank0.json.gz
    """
    if _is_profile(a) and _is_profile(b):
        _compare_profiles(a, b, as_json, rows)
        return
    if not (_is_report(a) or _is_report(b)) and (_is_workload(a) or _is_workload(b)):
        _compare_workloads(a, b, as_json, rows)
        return
    from simcore.report.compare import compare, render
    from simcore.report.document import encode, read_report
    from simcore.report.text import terminal_width

    comparison = compare(read_report(a), read_report(b))
    if as_json:
        click.echo(encode(comparison.to_dict()), nl=False)
    else:
        click.echo(render(comparison, width=terminal_width(sys.stdout), num_rows=rows), nl=False)


def _is_profile(name: str) -> bool:
    """Whether a name is a profiler's trace: JSON with a list of events."""
    path = Path(name)
    if not name.endswith((".json", ".json.gz")) or not path.is_file():
        return False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin = file.read(1 << 20)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"traceEvents"' in begin or begin.lstrip().startswith(b"[")


def _compare_profiles(a: str, b: str, as_json: bool, rows: int) -> None:
    from simcore.replay.views.compare import compare_traces, render
    from simcore.report.document import encode
    from simcore.report.text import terminal_width
    from simcore.workload.kineto import read_ranks

    [first], [second] = (read_ranks([name])[:1] for name in (a, b))
    comparison = compare_traces(first, second)
    if as_json:
        click.echo(encode(comparison.to_dict()), nl=False)
    else:
        click.echo(render(comparison, width=terminal_width(sys.stdout), num_rows=rows), nl=False)


def _is_report(name: str) -> bool:
    """Whether a name looks like a report."""
    return name.endswith((".json", ".npz")) or (Path(name) / "report.json").exists()


def _is_workload(name: str) -> bool:
    """Whether a name is a text, a specification, a trace, a folder or prefix of traces, or a shipped workload."""
    path = Path(name)
    traces = path.glob("*.e[tg]*") if path.is_dir() else path.parent.glob(f"{escape(path.name)}.*.e[tg]*")
    return path.is_file() or any(traces) or name in library.names("workloads")


def _compare_workloads(a: str, b: str, as_json: bool, rows: int) -> None:
    from simcore.generate.contents import read_contents
    from simcore.report.document import encode
    from simcore.report.text import terminal_width
    from simcore.report.workload_compare import compare_contents, render

    comparison = compare_contents(read_contents(a), read_contents(b))
    if as_json:
        click.echo(encode(comparison.to_dict()), nl=False)
    else:
        click.echo(render(comparison, width=terminal_width(sys.stdout), num_rows=rows), nl=False)
