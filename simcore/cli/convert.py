"""`simcore convert`: workloads and traces to Chakra, JSON and back."""

from __future__ import annotations

from pathlib import Path

import click

from simcore.workload import text
from simcore.workload.chakra import text_converter, writer

__all__ = ["command"]


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--npus", type=click.IntRange(1), default=1, show_default=True, help="Ranks to write.")
@click.option("--iterations", type=click.IntRange(1), default=1, show_default=True, help="Passes of a text workload.")
@click.option("--compat", type=click.Choice(["chakra"]), help="Byte for byte as Chakra's own converter.")
@click.option("--force", is_flag=True, help="Overwrite files.")
def command(source: str, target: str, npus: int, iterations: int, compat: str | None, force: bool) -> None:
    """Convert SOURCE to TARGET."""
    made = text_converter.steps(text.read(source), iterations)
    if compat:
        body = Path(source).read_text()
        ranks = [
            text_converter.encode(made, first_id=rank * len(made), compat=True, source=body) for rank in range(npus)
        ]
    else:
        ranks = [text_converter.encode(made)] * npus
    paths = writer.write_ranks(target, ranks, force=force)
    click.echo(f"{len(made)} nodes a rank: {paths[0]} to {paths[-1]}")
