"""`simcore generate wse execute`: the steps played on the links of a wafer, with pictures and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simcore.engine.wafer import PhaseTimes, Rates, play
from simcore.errors import InputError
from simcore.generate.wse.shapes import System
from simcore.generate.wse.traffic import Phase, matrix
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.units import parse_bytes_per_s, parse_ns

__all__ = ["Fabric", "draw", "played", "slowdown", "wafer"]

HOTTEST = 10
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fabric:
    """The wafer of a run: its links and what a node computes and reads per second."""

    graph: LinkGraph
    rates: Rates


def wafer(options: dict[str, Any], system: System) -> Fabric:
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


def played(fabric: Fabric, phases: list[Phase], tokens: int) -> tuple[dict[str, Any], PhaseTimes]:
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


def _hottest(graph: LinkGraph, link_bytes: Ints) -> Iterator[dict[str, Any]]:
    """The links with the most bytes, ties by number."""
    for link in np.argsort(-link_bytes, kind="stable")[:HOTTEST].tolist():
        ends = graph.names[int(graph.src[link])], graph.names[int(graph.dst[link])]
        yield {"src": ends[0], "dst": ends[1], "bytes": int(link_bytes[link])}


def draw(folder: Path, step: str, fabric: Fabric, phases: list[Phase], run: PhaseTimes) -> None:
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


def slowdown(
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
