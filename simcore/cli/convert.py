"""`simcore convert`: workloads and traces to Chakra, JSON and back."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--npus", type=click.IntRange(1), default=1, show_default=True, help="Ranks of a text workload.")
@click.option("--iterations", type=click.IntRange(1), default=1, show_default=True, help="Passes of a text workload.")
@click.option("--kineto", default="", metavar="FILE", help="The device trace that goes with a PyTorch host trace.")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Rank of a PyTorch trace.")
@click.option("--compat", type=click.Choice(["chakra"]), help="Exactly what Chakra's own converter makes.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
def command(
    source: str, target: str, npus: int, iterations: int, kineto: str, rank: int, compat: str | None, force: bool
) -> None:
    """Convert SOURCE to Chakra traces TARGET.RANK.et, or a trace to TARGET.et or TARGET.json.

    SOURCE is a text workload (compute columns become microseconds), a FlexFlow task graph, a PyTorch host trace, a
    Chakra trace of any schema (also a prefix or folder of traces) or its JSON form.

    \b
    simcore convert workload.txt traces/w --npus 4
    simcore convert old.0.eg new.0.et
    simcore convert w.0.et w.0.json
    """
    from simcore.workload.chakra import writer
    from simcore.workload.chakra.conversion import Options, convert

    options = Options(npus, iterations, compat == "chakra", kineto, rank)
    files = convert(source, target, options)
    writer.write_files(files, force=force)
    names = list(files)
    more = f" to {names[-1]}" if len(names) > 1 else ""
    click.echo(f"{names[0]}{more}: {len(names)} file{'s' if len(names) > 1 else ''}", err=True)
