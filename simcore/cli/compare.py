"""`simcore compare`: two reports aligned, to say where the time went."""

from __future__ import annotations

import sys

import click

__all__ = ["command"]


@click.command(short_help="Compare two reports or timelines.")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON, with every layer.")
@click.option("--rows", default=12, show_default=True, type=click.IntRange(min=1), help="Most rows of a table.")
def command(a: str, b: str, as_json: bool, rows: int) -> None:
    """Say what changed from report A to report B, and why: per layer, collective and dimension.

    A and B are folders written by `simcore run -o`, or files in them: report.json, or events.npz, the timeline, from
    which the report is made again.

    \b
    simcore run --workload dlrm --topology ring64 -o a
    simcore run --workload dlrm --topology torus_4x4x4 -o b
    simcore compare a b
    simcore compare a/events.npz b/report.json --json
    """
    from simcore.report.compare import compare, render
    from simcore.report.document import encode, read_report
    from simcore.report.text import terminal_width

    comparison = compare(read_report(a), read_report(b))
    if as_json:
        click.echo(encode(comparison.to_dict()), nl=False)
    else:
        click.echo(render(comparison, width=terminal_width(sys.stdout), num_rows=rows), nl=False)
