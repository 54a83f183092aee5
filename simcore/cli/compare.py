"""`simcore compare`: two reports, or two workloads, aligned: where the time went, what is sent and computed."""

from __future__ import annotations

import sys
from glob import escape
from pathlib import Path

import click

from simcore import library

__all__ = ["command"]


@click.command(short_help="Compare two reports or workloads.")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON, with every layer.")
@click.option("--rows", default=12, show_default=True, type=click.IntRange(min=1), help="Most rows of a table.")
def command(a: str, b: str, as_json: bool, rows: int) -> None:
    """Say what changed from report A to report B, and why: per layer, collective and dimension.

    A and B are folders written by `simcore run -o`, or files in them: report.json, or events.npz, the timeline, from
    which the report is made again. Or both are workloads (texts, specifications, sets of traces), and what differs is
    what a rank sends and computes.

    \b
    simcore run --workload dlrm --topology ring64 -o a
    simcore run --workload dlrm --topology torus_4x4x4 -o b
    simcore compare a b
    simcore compare a/events.npz b/report.json --json
    simcore compare step.txt traces/llama
    """
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
