"""`simcore generate wse execute`: the steps played on the links of a wafer, with pictures and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simcore.cli.generate_wse import Made, no_collector
from simcore.engine.cores import CoreRates, play_cores
from simcore.engine.wafer import PhaseTimes, Rates, play
from simcore.errors import InputError
from simcore.generate.wse.program import Program
from simcore.generate.wse.shapes import System
from simcore.generate.wse.traces import instructions
from simcore.generate.wse.traffic import Phase, matrix, phases
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.units import format_bytes, format_ns, parse_bytes_per_s, parse_ns

__all__ = ["execute_step", "sentence"]

HOTTEST = 10
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fabric:
    """The wafer of a run: its links and what a node computes and reads per second."""

    graph: LinkGraph
    rates: Rates


def _wafer(options: dict[str, Any], system: System) -> Fabric:
    """The network that the options describe: a topology file, or the node grid as a mesh.

    Raises
    ------
    InputError
        When the network has fewer NPUs than the system nodes, or a value is not a rate or a time.
    """
    topology = load(options["topology"]) if options["topology"] else _mesh(options, system)
    graph = LinkGraph(topology)
    if graph.npus < system.nodes:
        name = options["topology"] or "--topology"
        raise InputError.at(name, "too few NPUs for the nodes", expected=f"{system.nodes}", found=f"{graph.npus}")
    read = _parsed("--core-bandwidth", parse_bytes_per_s, options["core_bandwidth"])
    return Fabric(graph, Rates(system.cores * options["core_macs"], system.cores * read))


def _mesh(options: dict[str, Any], system: System) -> Topology:
    """The node grid: node ids are row-major, so columns are the innermost dimension."""
    rate = _parsed("--link-bandwidth", parse_bytes_per_s, options["link_bandwidth"])
    latency = _parsed("--link-latency", parse_ns, options["link_latency"])
    rows, columns = system.node_grid
    return Topology((Dimension("Mesh", columns, rate, latency), Dimension("Mesh", rows, rate, latency)))


def _parsed(option: str, parse: Any, text: str) -> float:
    """A value of an option with its unit, above zero."""
    try:
        bare = float(text) if text.replace(".", "", 1).isdigit() else text
        value = float(parse(bare))
    except ValueError as error:
        raise InputError.at(option, str(error)) from error
    if value <= 0:
        raise InputError.at(option, "the value must be above 0", found=repr(text))
    return value


def _played(fabric: Fabric, phases: list[Phase], tokens: int) -> tuple[dict[str, Any], PhaseTimes]:
    """The figures of one step, as printed by `--json`, and the run itself."""
    try:
        run = play(fabric.graph, phases, fabric.rates)
    except ValueError as error:
        raise InputError.at("--topology", f"the wafer is cut in two: {error}") from error
    nodes = len(phases[0].macs)
    compute = run.compute_ns[:nodes]
    figures = {
        "time_ns": run.time_ns,
        "tokens_per_s": tokens / run.time_ns * 1e9 if run.time_ns else 0.0,
        "compute_ns": {"max": int(compute.max()), "mean": float(compute.mean()), "node": int(compute.argmax())},
        "bytes": int(matrix(phases, nodes).sum()),
        "links": {"count": len(fabric.graph), "hottest": list(_hottest(fabric.graph, run.link_bytes))},
    }
    return figures, run


def _played_cores(options: dict[str, Any], program: Program, system: System, tokens: int) -> dict[str, Any]:
    """The figures of one step from the instructions of all cores, on a mesh of cores without queues."""
    rates = CoreRates(
        options["core_macs"],
        _parsed("--core-bandwidth", parse_bytes_per_s, options["core_bandwidth"]),
        _parsed("--link-bandwidth", parse_bytes_per_s, options["link_bandwidth"]),
        _parsed("--link-latency", parse_ns, options["link_latency"]),
    )
    traces = [held for cores in program.lists for held in cores]
    run = play_cores(traces, rates, system.node_grid, system.core_grid)
    busiest = int(run.compute_ns.argmax())
    return {
        "time_ns": run.time_ns,
        "tokens_per_s": tokens / run.time_ns * 1e9 if run.time_ns else 0.0,
        "compute_ns": {"max": int(run.compute_ns.max()), "mean": float(run.compute_ns.mean()), "core": busiest},
        "move_ns": {"max": int(run.move_ns.max()), "mean": float(run.move_ns.mean())},
    }


def _hottest(graph: LinkGraph, link_bytes: Ints) -> Iterator[dict[str, Any]]:
    """The links with the most bytes, ties by number."""
    for link in np.argsort(-link_bytes, kind="stable")[:HOTTEST].tolist():
        ends = graph.names[int(graph.src[link])], graph.names[int(graph.dst[link])]
        yield {"src": ends[0], "dst": ends[1], "bytes": int(link_bytes[link])}


def _draw(folder: Path, step: str, fabric: Fabric, phases: list[Phase], run: PhaseTimes) -> None:
    """Pictures of a step: links by bytes (where the network is a grid), and who sent to whom."""
    from simcore.report.wafer import draw_links, draw_matrix

    folder.mkdir(parents=True, exist_ok=True)
    places = fabric.graph.coordinates()
    load_ns = run.compute_ns.astype(float)
    if places is not None:
        ends = (fabric.graph.src, fabric.graph.dst)
        relative = load_ns / max(load_ns.mean(), 1.0)
        draw_links(
            folder / f"{step}_links.png", places, ends, run.link_bytes, relative, f"{step}: bytes over the links"
        )
    draw_matrix(folder / f"{step}_matrix.png", matrix(phases, len(phases[0].macs)), f"{step}: bytes between nodes")


def _slowdown(
    fabric: Fabric, phases: list[Phase], faults: list[int], samples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Step time with dead links over step time without: shape [faults, samples].

    Draws that cut the wafer are drawn again.

    Raises
    ------
    InputError
        When the network is not a mesh, or has too few links to lose that many.
    """
    dims = fabric.graph.topology.dims
    if [dim.kind for dim in dims] != ["Mesh", "Mesh"]:
        raise InputError.at("--faults", "faults need a network of two Mesh dimensions")
    pairs = np.unique(np.sort(np.stack([fabric.graph.src, fabric.graph.dst], axis=1), axis=1), axis=0)
    most = len(pairs) - fabric.graph.npus + 1
    if max(faults) > most:
        raise InputError.at("--faults", "a mesh with so many dead links falls apart", expected=f"at most {most}")
    whole = play(fabric.graph, phases, fabric.rates).time_ns
    generator = np.random.default_rng(seed)
    times = [
        [play(_damaged(dims, pairs, count, generator), phases, fabric.rates).time_ns for _ in range(samples)]
        for count in faults
    ]
    return np.array(times) / whole


def _damaged(dims: tuple[Dimension, ...], pairs: Ints, count: int, generator: np.random.Generator) -> LinkGraph:
    """The mesh without `count` links that leave it in one piece."""
    while True:
        dead = generator.choice(len(pairs), count, replace=False)
        links = tuple((int(low), int(high)) for low, high in pairs[np.sort(dead)])
        graph = LinkGraph(Topology(dims, wafer=Wafer((dims[0], dims[1]), dead_links=links)))
        whole = getattr(graph.axes[0].fabric, "unreachable", lambda: ())()
        if not len(whole):
            return graph


def execute_step(options: dict[str, Any], made: Made) -> dict[str, Any]:
    """Play one step at the level of `--level`; its figures."""
    return (_cores if options["level"] == "cores" else _nodes)(options, made)


def sentence(figures: dict[str, Any]) -> str:
    """The figures of a step for people."""
    parts = [format_ns(figures["time_ns"]), f"{figures['tokens_per_s']:,.0f} tokens/s"]
    where = next(key for key in ("node", "core") if key in figures["compute_ns"])
    busiest = figures["compute_ns"]
    parts.append(f"computing at most {format_ns(busiest['max'])} ({where} {busiest[where]})")
    hottest = figures.get("links", {"hottest": []})["hottest"][:1]
    parts += [f"hottest link {link['src']} > {link['dst']} {format_bytes(link['bytes'])}" for link in hottest]
    return ", ".join(parts)


def _nodes(options: dict[str, Any], made: Made) -> dict[str, Any]:
    """Play the rows of the nodes on the links."""
    fabric = _wafer(options, made.job.system)
    work = phases(made.job, made.step, made.routed)
    figures, run = _played(fabric, work, made.job.batch * made.step.queries)
    if options["outdir"]:
        _draw(options["outdir"] / "visuals", made.step.name, fabric, work, run)
    if options["faults"]:
        figures["faults"] = _faults(options, fabric, work, made.step.name)
    return figures


def _cores(options: dict[str, Any], made: Made) -> dict[str, Any]:
    """Play the instructions of the cores."""
    for option in ("topology", "faults", "outdir"):
        if options[option]:
            raise InputError.at(f"--{option}", "goes with --level nodes only", hint="cores are a mesh without faults")
    with no_collector():
        program = instructions(made.job, made.step, made.routed)
        return _played_cores(options, program, made.job.system, made.job.batch * made.step.queries)


def _faults(options: dict[str, Any], fabric: Fabric, work: list[Phase], step: str) -> list[dict[str, Any]]:
    """The slowdown by number of dead links, and its picture."""
    from simcore.report.wafer import draw_slowdown

    try:
        counts = [int(count) for count in options["faults"].split(",")]
    except ValueError:
        counts = [-1]
    if min(counts) < 0:
        raise InputError.at("--faults", "not a list of numbers", expected="0,2,4,8", found=repr(options["faults"]))
    ratios = _slowdown(fabric, work, counts, options["samples"], options["seed"])
    if options["outdir"]:
        draw_slowdown(options["outdir"] / "visuals" / f"{step}_faults.png", counts, ratios, f"{step}: dead links")
    medians = np.median(ratios, axis=1).tolist()
    return [{"dead_links": count, "slowdown": value} for count, value in zip(counts, medians, strict=True)]
