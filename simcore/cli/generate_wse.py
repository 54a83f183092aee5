"""`simcore generate wse nodes|traces|visualize`: operations per node and instructions per core of a wafer."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import isqrt
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from simcore.cli.command import emit
from simcore.cli.kinds import forced
from simcore.documents import read
from simcore.errors import InputError, Problems, closest
from simcore.files import write_text
from simcore.generate.wse.files import GRAPH_HEADER, HEADER, claim, graph_row, row, write_lines
from simcore.generate.wse.jobs import Made, made
from simcore.generate.wse.nodes import footprint_bytes, operations, totals
from simcore.generate.wse.operations import Operation
from simcore.generate.wse.program import Program, line, summary
from simcore.generate.wse.source import load
from simcore.generate.wse.tiling import Tiling, read_tiling
from simcore.generate.wse.traces import instructions
from simcore.memory import collection_paused
from simcore.report.plots import save
from simcore.report.table import Table, columns
from simcore.report.wafer_figure import layers_of, moves_figure, node_bytes
from simcore.sweep.workers import cores
from simcore.units import format_bytes
from simcore.workload.wafer import CoreStep

MANY_TOKENS = 1 << 14  # sequences x positions x expert layers from which worker processes pay off
COLUMNS = ("memory", "MAC", "HBM reads", "network")


def nodes(**options: Any) -> None:
    """Operations, memory and network bytes of every node in every step."""
    result = _nodes(options | {"force": forced()})
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


def traces(**options: Any) -> None:
    """Instructions of every core: READ, WRITE, GEMM, ADD, COPY, MULTICAST, BARRIER."""
    if options["train"]:
        raise InputError.at("--train", "traces of cores are made of inference steps", hint="simcore generate wse nodes")
    result = _traces(options | {"force": forced()})
    lines = []
    for step, counted in result.items():
        shown = ", ".join(f"{count} {kind}" for kind, count in counted["instructions"].items())
        lines.append(f"{step:<10} {shown}")
    emit({"iters": result}, "\n".join(lines))


def _nodes(options: dict[str, Any]) -> dict[str, Any]:
    """Sums of every node in every step, and what a node holds; written where a folder is named."""
    sums: dict[str, list[list[int]]] = {}
    footprint: list[int] = []
    for one in made(options):
        sums[one.step.name] = totals(one.job, one.step, one.nodes, one.routed)
        if one.job.phase == "decode" and not footprint:
            footprint = footprint_bytes(one.job, one.nodes)
        if options["outdir"]:
            with collection_paused():
                _write_nodes(one, options)
    if options["outdir"] and footprint:
        path = Path(options["outdir"]) / "nodes" / "footprint.json"
        write_lines(path, [json.dumps(footprint)], force=options["force"])
    return {"iters": sums, "footprint_bytes": footprint}


def _write_nodes(made: Made, options: dict[str, Any]) -> None:
    """The CSV, and the graph, of every node in one step; large ones on all processor cores."""
    tokens = made.job.batch * made.step.queries * len(made.routed)
    jobs = min(cores(), len(made.nodes)) if tokens >= MANY_TOKENS else 1
    if jobs == 1:
        _write_some(made, options, made.nodes)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), gc.disable) as pool:  # each gets the step once
        for _ in pool.map(partial(_write_some, made, options), (made.nodes[first::jobs] for first in range(jobs))):
            pass


def _write_some(made: Made, options: dict[str, Any], nodes: list[int]) -> None:
    name, force, folder = f"{made.step.name}.csv", options["force"], Path(options["outdir"])
    for node in nodes:
        rows: Iterable[Operation] = operations(made.job, made.step, node, made.routed)
        if options["graph"]:
            rows = list(rows)
            lines = [GRAPH_HEADER, *(graph_row(each) for each in rows if each.kind != "Barrier")]
            write_lines(folder / "graph" / f"node_{node}" / name, lines, force=force)
        lines = [HEADER, *map(row, rows)]
        write_lines(folder / "nodes" / made.job.phase / f"node_{node}" / name, lines, force=force)


def _traces(options: dict[str, Any]) -> dict[str, Any]:
    """What the cores of every node do in every step; written where a folder is named."""
    tiling = read_tiling(options["tiling"]) if options["tiling"] else Tiling()
    result: dict[str, Any] = {}
    for one in _steps(options):
        with collection_paused():
            program = instructions(one.job, one.step, one.routed, tiling, spread=options["spread"])
            result[one.step.name] = summary(program, one.nodes)
            if options["outdir"]:
                _write_traces(one, program, options)
    return result


def _steps(options: dict[str, Any]) -> Iterator[Made]:
    """The steps that `--iter` leaves."""
    found = list(made(options))
    names = [each.step.name for each in found]
    if options["step"] and options["step"] not in names:
        raise InputError.at("--iter", "there is no such step in this run", expected=closest(options["step"], names))
    yield from (each for each in found if options["step"] in {None, each.step.name})


def _write_traces(made: Made, program: Program, options: dict[str, Any]) -> None:
    """One file per core."""
    for node in made.nodes:
        folder = Path(options["outdir"]) / "traces" / made.job.phase / f"node_{node}" / made.step.name
        for core, held in enumerate(program.lists[node]):
            lines = [line(number, each) for number, each in enumerate(held)]
            write_lines(folder / f"core_{core}.csv", lines, force=options["force"])


def visualize(layers: str, step: str | None, system_config: str, outdir: str) -> None:
    """Draw a PNG for every layer under DIR/visuals/STEP, and its bytes from node to node as CSV."""
    folder = Path(outdir) / "traces"
    if not folder.is_dir():
        hint = "simcore generate wse traces -o DIR makes them"
        raise InputError.at(str(folder), "there are no traces", expected="a folder of traces", hint=hint)
    names = {file.name for file in folder.glob("*/node_*/*")}
    if step is not None and step not in names:
        raise InputError.at("--iter", "there is no such step on disk", expected=closest(step, names), found=repr(step))
    drawn: dict[str, dict[str, int]] = {}
    for played in (each for each in load(folder, step or "").steps if isinstance(each, CoreStep)):
        name = played.name
        grids = _grids(system_config, name, len(played.traces) // played.cores, played.cores)
        moved = layers_of(played)
        for layer in _chosen(layers, list(moved)):
            path = Path(outdir) / "visuals" / name / f"{layer}.png"
            claim(path, force=forced())
            save(moves_figure(moved[layer], f"{name}, {layer}", *grids), path)
            between = node_bytes(moved[layer], len(played.traces) // played.cores, played.cores)
            write_text(path.with_suffix(".csv"), "".join(",".join(map(str, row)) + "\n" for row in between.tolist()))
            drawn.setdefault(name, {})[layer] = sum(moved[layer].values())
    rows = [(name, layer, size) for name, sizes in drawn.items() for layer, size in sizes.items()]
    emit({"bytes": drawn}, lambda: Table("", columns("step", "layer", "bytes"), rows).text())


def _chosen(text: str, known: list[str]) -> list[str]:
    """The layers of `--layers` that move anything."""
    if text == "all":
        return known
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            expected = closest(name, known)
            raise InputError.at("--layers", "these traces move nothing for it", expected=expected, found=repr(name))
    return names


def _grids(system_config: str, step: str, nodes: int, cores: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of nodes and of a node's cores, in the phase of a step."""
    if not system_config:
        return _squarest(nodes), _squarest(cores)
    with Problems() as problems:
        root = read(system_config, problems)
        part = root["prefill" if step == "prefill" else "decode"]
        listed = ([item.integer(1) for item in part[key].sequence()] for key in ("node_grid", "core_grid"))
        found = [(some[0], some[1]) if len(some) == 2 else (0, 0) for some in listed]
        for key, (rows, columns), count in zip(("node_grid", "core_grid"), found, (nodes, cores), strict=True):
            if not problems.found and rows * columns != count:
                part[key].problem("not the grid of these traces", f"rows x columns = {count}", f"{rows} x {columns}")
    return found[0], found[1]


def _squarest(count: int) -> tuple[int, int]:
    """Rows and columns of the rectangle that is nearest to a square."""
    rows = next(rows for rows in range(isqrt(count), 0, -1) if count % rows == 0)
    return rows, count // rows
