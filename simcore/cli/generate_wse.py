"""`simcore generate wse`: operations per node and instructions per core of a wafer-scale inference system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from simcore.cli.command import Lazy, Target, emit, forced, option, verb
from simcore.cli.options import options_of
from simcore.errors import InputError
from simcore.units import format_bytes

COLUMNS = ("memory", "MAC", "HBM reads", "network")
KINDS = {
    "nodes": ("Operations, memory and network bytes of every node.", "generate_wse:nodes"),
    "traces": ("Instructions of every core.", "generate_wse:traces"),
    "faults": ("Slowdown of steps by dead links or NPUs.", "generate_wafer:faults"),
    "visualize": ("Pictures of what cores move, from traces.", "generate_wse_visualize:visualize"),
}

SHARED = options_of("generate wse", outdir=Target(prefix=True))  # of nodes and traces


@click.group(cls=Lazy, table=KINDS)
def wse() -> None:
    """Nodes and traces of a wafer-scale inference system.

    \b
    simcore generate wse nodes --model_config config.json --system_config system.json --bsz 1024 -o output
    """


@verb(params=[*SHARED])
@option("--graph/--no-graph", default=True, show_default=True, help="Also write the graph of every node.")
def nodes(**options: Any) -> None:
    """Operations, memory and network bytes of every node in every step.

    \b
    simcore generate wse nodes --model_config config.json --system_config system.json --bsz 1024 -o output
    """
    from simcore.cli import wse_files

    result = wse_files.nodes(options | {"force": forced()})
    emit(result, "\n".join(_lines(result)))


def _lines(result: dict[str, Any]) -> Iterator[str]:
    """The range over nodes of every column."""
    for step, rows in result["iters"].items():
        shown = [f"{name} {_range([row[place] for row in rows], name)}" for place, name in enumerate(COLUMNS)]
        yield f"{step:<10} {len(rows)} nodes: {', '.join(shown)}"
    if result["footprint_bytes"]:
        yield f"footprint  {_range(result['footprint_bytes'], 'memory')} a node"


def _range(values: list[int], name: str) -> str:
    """The smallest and the largest value."""
    show = (lambda value: f"{value:.4g}") if name == "MAC" else format_bytes
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} ... {high}"


@verb(short_help="Instructions of every core.", params=[*SHARED])
@option("--iter", "step", help="Only this step: decode0, decode9, prefill.")
@option("--tiling", help="tiling.json: tiles by layer and kind; otherwise chosen by cost.")
@option("--spread", is_flag=True, help="Let the core of each bank communicate, not core 0 alone.")
def traces(**options: Any) -> None:
    """Instructions of every core: READ, WRITE, GEMM, ADD, COPY, MULTICAST, BARRIER.

    \b
    simcore generate wse traces --model_config config.json --system_config system.json --layers decode2 -o output
    """
    from simcore.cli import wse_files

    if options["train"]:
        raise InputError.at("--train", "traces of cores are made of inference steps", hint="simcore generate wse nodes")
    result = wse_files.traces(options | {"force": forced()})
    lines = []
    for step, counted in result.items():
        shown = ", ".join(f"{count} {kind}" for kind, count in counted["instructions"].items())
        lines.append(f"{step:<10} {shown}")
    emit({"iters": result}, "\n".join(lines))
