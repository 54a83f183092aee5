"""`simcore generate wse`: operations per node and instructions per core of a wafer-scale inference system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import click

from simcore.cli.command import Lazy, Target, emit, forced, option, verb
from simcore.errors import InputError
from simcore.units import format_bytes

__all__ = ["nodes", "traces", "wse"]

COLUMNS = ("memory", "MAC", "HBM reads", "network")
KINDS = {
    "nodes": ("Operations, memory and network bytes of every node.", "generate_wse:nodes"),
    "traces": ("Instructions of every core.", "generate_wse:traces"),
    "faults": ("Slowdown of steps by dead links or NPUs.", "generate_wafer:faults"),
    "visualize": ("Pictures of what cores move, from traces.", "generate_wse_visualize:visualize"),
}


def _option(name: str, **details: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option under the peer's name."""
    return option(f"--{name}", name, **details)


def _count(minimum: int) -> click.IntRange:
    return click.IntRange(min=minimum)


# The options that nodes and traces share, under the peer's names.
SHARED: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
    _option("model_config", required=True, help="Hugging Face's config.json of the model."),
    _option("system_config", required=True, help="Nodes and parallelism: system.json."),
    _option("bsz", default=1, show_default=True, type=_count(1), help="Sequences in the global batch."),
    _option("prefill_len", default=32, show_default=True, type=_count(1), help="Positions of a prompt."),
    _option("decode_len", default=10, show_default=True, type=_count(1), help="Positions to decode."),
    _option("spec_dec", default=0, show_default=True, type=_count(0), help="Speculative positions of a decode step."),
    _option("only_decode", default=1, show_default=True, type=click.IntRange(0, 1), help="1: no prefill."),
    _option("only_prefill", default=0, show_default=True, type=click.IntRange(0, 1), help="1: no decode steps."),
    _option(
        "simplified_decode", default=1, show_default=True, type=click.IntRange(0, 1), help="1: first and last step."
    ),
    _option("train", is_flag=True, help="One training step of prefill_len positions, in place of prefill and decode."),
    _option("nodes", default="all", show_default=True, help="Nodes to write: all, or ranges such as 0-3,5."),
    _option("layers", default="all", show_default=True, help="all, or names: decode0,decode5,lm_head."),
    _option("dtype", default="fp16", show_default=True, type=click.Choice(["fp16", "fp8"]), help="Element type."),
    _option("routing", help="JSON of routing arrays; then only its steps are made."),
    _option("expert_counts", help="JSON of tokens per expert and layer for empirical routing."),
    _option("seed", default=42, show_default=True, type=_count(0), help="Seed of the routing."),
    option("-o", "--outdir", type=Target(prefix=True), metavar="DIR", help="Folder to write the files to."),
]


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda made, each: each(made), reversed(SHARED), command)


@click.group(cls=Lazy, table=KINDS)
def wse() -> None:
    """Nodes and traces of a wafer-scale inference system.

    \b
    simcore generate wse nodes --model_config config.json --system_config system.json --bsz 1024 -o output
    """


@verb()
@_shared
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


@verb(short_help="Instructions of every core.")
@_shared
@option("--iter", "step", help="Only this step: decode0, decode9, prefill.")
@option("--tiling", help="tiling.json: tiles by layer and kind; otherwise chosen by cost.")
@option("--spread", is_flag=True, help="Let the core of each bank communicate, not core 0 alone.")
def traces(**options: Any) -> None:
    """Instructions of every core: READ, WRITE, GEMM, ADD, COPY, MULTICAST, BARRIER.

    \b
    simcore generate wse traces --model_config config.json --system_config system.json --layers decode5 -o output
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
