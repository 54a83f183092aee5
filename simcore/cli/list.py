"""`simcore list`: what exists, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simcore import library
from simcore.cli.command import emit
from simcore.cli.kinds import named
from simcore.errors import InputError, closest
from simcore.network.topology.load import load
from simcore.options import SimaiOptions
from simcore.report.table import Table, columns
from simcore.units import format_bytes, format_rate

Lines = Iterator[tuple[str, str]]


def _topologies() -> Lines:
    for name in library.names("topologies"):
        topology = load(name)
        yield name, topology.description or f"{topology.npus} NPUs"


def _workloads() -> Lines:
    for name in library.names("workloads"):
        header, count, *_ = library.resolve(name, "workloads").read_text(encoding="utf-8").splitlines()
        yield name, f"{header.split()[0]}, {count.strip()} layer{'s' * (count.strip() != '1')}"


def _collectives() -> Lines:
    yield from _named("simcore.system.collectives:algorithms", lambda one: one.__doc__.partition("\n")[0].rstrip("."))
    for name, (algorithm, tour) in named("simcore.system.config:WHOLE_MACHINE").items():
        toured = f"all NPUs of a 2-D mesh, torus or wafer in the order of a {tour} tour"
        yield name, f"{algorithm} over {toured if tour else 'the whole machine as one dimension'}"


def _profiles() -> Lines:
    yield from _named("simcore.profiles:profiles", lambda one: f"networks {', '.join(one.networks)}")
    for name in SimaiOptions.profiles:
        yield name, "SimAI's closed forms; nothing is simulated"


def _npus() -> Lines:
    from simcore.compute.accelerators import accelerator, names

    for name in names():
        npu = accelerator(name)
        peak = ", ".join(f"{rate / 1e12:g} TFLOP/s {dtype}" for dtype, rate in [*npu.peak_flops_per_s.items()][:1])
        memory = f"{format_bytes(npu.memory_bytes)} at {format_rate(npu.memory_bytes_per_s)}"
        yield name, f"{npu.year}, {peak}, {memory} ({npu.source})"


def _named(place: str, said: str | Callable[[Any], str]) -> Lines:
    """What is in a registry or a table, imported when it is listed, and what a function or a template says of it."""
    some = named(place)
    return ((name, (said.format if isinstance(said, str) else said)(some.get(name))) for name in some)


def _fabric(one: Any) -> str:
    inside, between = format_rate(one.ring_bytes_per_s), format_rate(one.across_bytes_per_s)
    return f"nodes of {one.node_ranks}, rings carry {inside} inside a node and {between} between nodes"


def _cluster(one: Any) -> str:
    loses = f", loses {one.losses:.1%} of a step" * bool(one.losses)
    return f"{one.accelerator}, nodes of {one.fabric.node_ranks}, fabric {one.fabric.name}{loses}"


def _suite(one: Any) -> str:
    allowed = f", {one.tolerance:.1%} mean error allowed" if one.tolerance else ""
    measured: dict[str, str] = {"s": "times", "bytes": "memory", "w": "power"}
    others = f"; best of others: {one.peer}" if one.peer != "none" else ""
    return measured[one.unit] + allowed + others


LOOP = "activations over {0.activations.value}, weight gradients over {0.gradients.value}"
MODEL = "{0.layers} layers of {0.hidden}, {0.heads} heads, vocabulary of {0.vocab:,}"
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
# What can be listed: what it is, and its lines
SHELVES: dict[str, tuple[str, Callable[[], Lines]]] = {
    "topologies": ("Shipped machines, for --topology", _topologies),
    "workloads": ("Shipped steps, for --workload", _workloads),
    "collectives": ("Algorithms of collectives, for system files", _collectives),
    "loops": ("Training loops of text workloads", partial(_named, "simcore.workload.loops:loops", LOOP)),
    "formats": ("Files that are read and written", lambda: iter(FORMATS.items())),
    "npus": ("Accelerators, for --npu and --power", _npus),
    "models": ("Shapes of models, for --model", partial(_named, "simcore.model.presets:SHIPPED", MODEL)),
    "profiles": ("Timing rules, for --profile", _profiles),
    "kinds": (
        "Kinds of networks, for topology files",
        partial(_named, "simcore.network.topology.kinds:FABRICS", "{0.description}"),
    ),
    "fabrics": (
        "Fabrics with measured collectives, for nccl-fabric in system files",
        partial(_named, "simcore.system.collectives.nccl:FABRICS", _fabric),
    ),
    "systems": ("Known clusters, for --cluster", partial(_named, "simcore.cost.systems:CLUSTERS", _cluster)),
    "suites": (
        "Published measurements, for simcore validate",
        partial(_named, "simcore.cost.published.suites:SUITES", _suite),
    ),
}


def command(what: str | None) -> None:
    """List what there is of a kind, one line each; without a kind the kinds."""
    if what is not None and what not in SHELVES:
        expected = closest(what, SHELVES)
        raise InputError.at("simcore list", "there is nothing of this kind", expected=expected, found=repr(what))
    lines = [*SHELVES[what][1]()] if what else [(kind, said) for kind, (said, _) in SHELVES.items()]
    entries = [{"name": name, "description": text} for name, text in lines]
    emit({what or "lists": entries}, lambda: Table("", columns(("name", ""), ("description", "")), lines).text(500))
