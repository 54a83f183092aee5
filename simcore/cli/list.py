"""`simcore list`: what exists, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from simcore.cli.command import emit
from simcore.errors import closest

Lines = Iterator[tuple[str, str]]


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0].rstrip(".")


def _topologies() -> Lines:
    """Shipped machines, for --topology."""
    from simcore import library
    from simcore.network.topology.load import load

    for name in library.names("topologies"):
        topology = load(name)
        yield name, topology.description or f"{topology.npus} NPUs"


def _workloads() -> Lines:
    """Shipped steps, for --workload."""
    from simcore import library

    for name in library.names("workloads"):
        header, count, *_ = library.resolve(name, "workloads").read_text(encoding="utf-8").splitlines()
        yield name, f"{header.split()[0]}, {count.strip()} layer{'s' * (count.strip() != '1')}"


def _collectives() -> Lines:
    """Algorithms of collectives, for system files."""
    from simcore.system.collectives import algorithms
    from simcore.system.config import WHOLE_MACHINE

    for name in algorithms.names():
        yield name, _first_line(algorithms.get(name).__doc__)
    for name, (algorithm, tour) in WHOLE_MACHINE.items():
        toured = f"all NPUs of a 2-D mesh, torus or wafer in the order of a {tour} tour"
        yield name, f"{algorithm} over {toured if tour else 'the whole machine as one dimension'}"


def _loops() -> Lines:
    """Training loops of text workloads."""
    from simcore.workload.loops import loops

    for name in loops.names():
        loop = loops.get(name)
        yield name, f"activations over {loop.activations.value}, weight gradients over {loop.gradients.value}"


def _formats() -> Lines:
    """Files that are read and written."""
    yield from FORMATS.items()


def _models() -> Lines:
    """Shapes of models, for --model."""
    from simcore.model.presets import SHIPPED

    for name, model in SHIPPED.items():
        yield name, f"{model.layers} layers of {model.hidden}, {model.heads} heads, vocabulary of {model.vocab:,}"


def _profiles() -> Lines:
    """Timing rules, for --profile."""
    from simcore.options import SimaiOptions
    from simcore.profiles import profiles

    for name in profiles.names():
        yield name, f"networks {', '.join(profiles.get(name).networks)}"
    for name in SimaiOptions.profiles:
        yield name, "SimAI's closed forms; nothing is simulated"


def _kinds() -> Lines:
    """Kinds of networks, for topology files."""
    from simcore.network.topology.kinds import FABRICS

    for name in FABRICS.names():
        yield name, FABRICS.get(name).description


def _fabrics() -> Lines:
    """Fabrics with measured collectives, for nccl-fabric in system files."""
    from simcore.system.collectives.nccl import FABRICS
    from simcore.units import format_rate

    for name, fabric in FABRICS.items():
        inside, across = format_rate(fabric.ring_bytes_per_s), format_rate(fabric.across_bytes_per_s)
        yield name, f"nodes of {fabric.node_ranks}, rings carry {inside} inside a node and {across} between nodes"


def _systems() -> Lines:
    """Known clusters, for --cluster."""
    from simcore.cost.systems import CLUSTERS

    for name, cluster in CLUSTERS.items():
        losses = f", loses {cluster.losses:.1%} of a step" * bool(cluster.losses)
        yield name, f"{cluster.accelerator}, nodes of {cluster.fabric.node_ranks}, fabric {cluster.fabric.name}{losses}"


def _suites() -> Lines:
    """Published measurements, for simcore validate."""
    from simcore.cost.published.suites import SUITES

    measures = {"s": "times", "bytes": "memory", "w": "power"}
    for name, suite in SUITES.items():
        allowed = f", {suite.tolerance:.1%} mean error allowed" if suite.tolerance else ""
        others = f"; best of others: {suite.peer}" if suite.peer != "none" else ""
        yield name, measures[suite.unit] + allowed + others


def _npus() -> Lines:
    """Accelerators, for --npu and --power."""
    from simcore.compute.accelerators import accelerator, names
    from simcore.units import format_bytes, format_rate

    for name in names():
        npu = accelerator(name)
        peak = ", ".join(f"{rate / 1e12:g} TFLOP/s {dtype}" for dtype, rate in [*npu.peak_flops_per_s.items()][:1])
        memory = f"{format_bytes(npu.memory_bytes)} at {format_rate(npu.memory_bytes_per_s)}"
        yield name, f"{npu.year}, {peak}, {memory} ({npu.source})"


FORMATS = {
    "text": "read, written: 12-column workload of ASTRA-sim 1.0 or SimAI/AICB (header, count, one row a layer)",
    "chakra": "read, written: execution traces PREFIX.<rank>.et; older schemas are converted",
    "pytorch": "converted: PyTorch execution traces, with the profiler's times",
    "flexflow": "converted: FlexFlow graphs",
    "kineto": "replayed: PyTorch profiler traces (.json, .json.gz)",
    "topology": "read: YAML lists of dimensions as in ASTRA-sim 2.x, wafers, or a graph; ASTRA-sim 1.0's JSON",
    "graph": "read: node-link JSON or GraphML with bandwidth and latency on the edges",
    "ns-3": "read, written: lists of links of HPCC's and SimAI's forks (simcore topology export T -o net.txt)",
    "timeline": "written: .png .svg .html, Chrome trace .json(.gz), Perfetto .pftrace(.gz)",
}


# What can be listed. Registries are imported when they are listed.
_ALL = (
    *(_topologies, _workloads, _collectives, _loops, _formats, _npus, _models, _profiles, _kinds, _fabrics, _systems),
    _suites,
)
SHELVES: dict[str, Callable[[], Lines]] = {each.__name__[1:]: each for each in _ALL}


def command(what: str | None) -> None:
    """List what there is of a kind, one line each; without KIND the kinds."""
    if what is not None and what not in SHELVES:
        raise click.BadParameter(f"there is nothing called '{what}' to list; {closest(what, SHELVES)}")
    from simcore.report.table import Table, columns

    lines = [*SHELVES[what]()] if what else [(kind, _first_line(shelf.__doc__)) for kind, shelf in SHELVES.items()]
    entries = [{"name": name, "description": text} for name, text in lines]
    emit({what or "lists": entries}, lambda: Table("", columns(("name", ""), ("description", "")), lines).text(500))
