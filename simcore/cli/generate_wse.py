"""`simcore generate wse`: operations per node and instructions per core of a wafer-scale inference system."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import reduce
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Group, Target, emit, forced
from simcore.cli.generate_wafer import faults
from simcore.cli.generate_wse_visualize import visualize
from simcore.errors import InputError, closest
from simcore.generate.wse.files import GRAPH_HEADER, HEADER, graph_row, row, write_lines
from simcore.generate.wse.jobs import ELEMENT_BYTES, Made
from simcore.generate.wse.jobs import made as all_made
from simcore.generate.wse.nodes import footprint_bytes, operations, totals
from simcore.generate.wse.operations import Operation
from simcore.generate.wse.program import Program, line, summary
from simcore.generate.wse.tiling import Tiling, read_tiling
from simcore.generate.wse.traces import instructions
from simcore.sweep.workers import cores
from simcore.units import format_bytes

__all__ = ["wse"]

MANY_TOKENS = 1 << 14  # sequences x positions x expert layers from which worker processes pay off
COLUMNS = ("memory", "MAC", "HBM reads", "network")


def _option(name: str, **details: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option under the peer's name."""
    return click.option(f"--{name}", name, **details)


def _count(minimum: int) -> click.IntRange:
    return click.IntRange(min=minimum)


# The options that nodes and traces share, under the peer's names.
SHARED: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
    _option("model_config", required=True, type=click.Path(), help="Hugging Face's config.json of the model."),
    _option("system_config", required=True, type=click.Path(), help="Nodes and parallelism: system.json."),
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
    _option("dtype", default="fp16", show_default=True, type=click.Choice(list(ELEMENT_BYTES)), help="Element type."),
    _option("routing", type=click.Path(), help="JSON of routing arrays; then only its steps are made."),
    _option("expert_counts", type=click.Path(), help="JSON of tokens per expert and layer for empirical routing."),
    _option("seed", default=42, show_default=True, type=_count(0), help="Seed of the routing."),
    click.option("-o", "--outdir", type=Target(prefix=True), metavar="DIR", help="Folder to write the files to."),
]


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda made, option: option(made), reversed(SHARED), command)


@click.group(cls=Group)
def wse() -> None:
    """Nodes and traces of a wafer-scale inference system.

    \b
    simcore generate wse nodes --model_config config.json --system_config system.json --bsz 1024 -o output
    """


@wse.command()
@_shared
@click.option("--graph/--no-graph", default=True, show_default=True, help="Also write the graph of every node.")
def nodes(**options: Any) -> None:
    """Operations, memory and network bytes of every node in every step.

    \b
    simcore generate wse nodes --model_config config.json --system_config system.json --bsz 1024 -o output
    """
    options["force"] = forced()
    sums: dict[str, list[list[int]]] = {}
    footprint: list[int] = []
    for made in all_made(options):
        sums[made.step.name] = totals(made.job, made.step, made.nodes, made.routed)
        if made.job.phase == "decode" and not footprint:
            footprint = footprint_bytes(made.job, made.nodes)
        if options["outdir"]:
            with no_collector():
                _write_nodes(made, options)
    if options["outdir"] and footprint:
        write_lines(
            Path(options["outdir"]) / "nodes" / "footprint.json", [json.dumps(footprint)], force=options["force"]
        )
    result = {"iters": sums, "footprint_bytes": footprint}
    emit(result, "\n".join(_lines(result)))


def _write_nodes(made: Made, options: dict[str, Any]) -> None:
    """The CSV, and the graph, of every node in one step; large ones on all processor cores."""
    tokens = made.job.batch * made.step.queries * len(made.routed)
    jobs = min(cores(), len(made.nodes))
    if jobs == 1 or tokens < MANY_TOKENS:
        for node in made.nodes:
            _write_node(made, options, node)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _take, (made, options)) as pool:
        for _ in pool.map(_write_taken, made.nodes):
            pass


_taken: list[tuple[Made, dict[str, Any]]] = []  # what a worker process works on


def _take(made: Made, options: dict[str, Any]) -> None:
    """Prepare a worker: it gets the step once, not once per node."""
    gc.disable()
    _taken[:] = [(made, options)]


def _write_taken(node: int) -> None:
    """Write a node in a worker."""
    _write_node(*_taken[0], node)


def _write_node(made: Made, options: dict[str, Any], node: int) -> None:
    """The CSV, and the graph, of a node."""
    name, force = f"{made.step.name}.csv", options["force"]
    rows: Iterable[Operation] = operations(made.job, made.step, node, made.routed)
    if options["graph"]:
        rows = list(rows)
        lines = [GRAPH_HEADER, *(graph_row(each) for each in rows if each.kind != "Barrier")]
        write_lines(Path(options["outdir"]) / "graph" / f"node_{node}" / name, lines, force=force)
    lines = [HEADER, *map(row, rows)]
    write_lines(Path(options["outdir"]) / "nodes" / made.job.phase / f"node_{node}" / name, lines, force=force)


@contextmanager
def no_collector() -> Iterator[None]:
    """Millions of rows without a cycle among them: the collector would only walk over what is kept."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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


@wse.command(short_help="Instructions of every core.")
@_shared
@click.option("--iter", "step", help="Only this step: decode0, decode9, prefill.")
@click.option("--tiling", type=click.Path(), help="tiling.json: tiles by layer and kind; otherwise chosen by cost.")
@click.option("--spread", is_flag=True, help="Let the core of each bank communicate, not core 0 alone.")
def traces(**options: Any) -> None:
    """Instructions of every core: READ, WRITE, GEMM, ADD, COPY, MULTICAST, BARRIER.

    \b
    simcore generate wse traces --model_config config.json --system_config system.json --layers decode5 -o output
    """
    options["force"] = forced()
    tiling = read_tiling(options["tiling"]) if options["tiling"] else Tiling()
    result: dict[str, Any] = {}
    if options["train"]:
        raise InputError.at("--train", "traces of cores are made of inference steps", hint="simcore generate wse nodes")
    for made in _chosen(options):
        with no_collector():
            program = instructions(made.job, made.step, made.routed, tiling, spread=options["spread"])
            result[made.step.name] = summary(program, made.nodes)
            if options["outdir"]:
                _write_traces(made, program, options)
    lines = []
    for step, counted in result.items():
        shown = ", ".join(f"{count} {kind}" for kind, count in counted["instructions"].items())
        lines.append(f"{step:<10} {shown}")
    emit({"iters": result}, "\n".join(lines))


def _chosen(options: dict[str, Any]) -> Iterator[Made]:
    """The steps that `--iter` leaves."""
    made = list(all_made(options))
    names = [each.step.name for each in made]
    if options["step"] and options["step"] not in names:
        raise InputError.at("--iter", "there is no such step in this run", expected=closest(options["step"], names))
    yield from (each for each in made if options["step"] in {None, each.step.name})


def _write_traces(made: Made, program: Program, options: dict[str, Any]) -> None:
    """One file per core."""
    for node in made.nodes:
        folder = Path(options["outdir"]) / "traces" / made.job.phase / f"node_{node}" / made.step.name
        for core, held in enumerate(program.lists[node]):
            lines = [line(number, each) for number, each in enumerate(held)]
            write_lines(folder / f"core_{core}.csv", lines, force=options["force"])


wse.add_command(faults)
wse.add_command(visualize)
