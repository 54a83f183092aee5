"""`simcore list`: what exists, one line each; `shelves.txt` says where it is found."""

from __future__ import annotations

from collections.abc import Iterator
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


SHELVES = {kind: cells for kind, *cells in library.table(__file__, "shelves.txt")}
"""What can be listed: what it is, where it is found, what is said of each."""
FORMATS = dict(library.table(__file__, "formats.txt"))


def _topologies() -> Lines:
    for name in library.names("topologies"):
        topology = load(name)
        yield name, topology.description or f"{topology.npus} NPUs"


def _workloads() -> Lines:
    for name in library.names("workloads"):
        header, count, *_ = library.resolve(name, "workloads").read_text(encoding="utf-8").splitlines()
        yield name, f"{header.split()[0]}, {count.strip()} layer{'s' * (count.strip() != '1')}"


def _collectives() -> Lines:
    algorithms = named("simcore.system.collectives:algorithms")
    for name in algorithms:
        yield name, algorithms.get(name).__doc__.partition("\n")[0].rstrip(".")
    for name, (algorithm, tour) in named("simcore.system.config:WHOLE_MACHINE").items():
        toured = f"all NPUs of a 2-D mesh, torus or wafer in the order of a {tour} tour"
        yield name, f"{algorithm} over {toured if tour else 'the whole machine as one dimension'}"


def _profiles() -> Lines:
    known = named("simcore.profiles:profiles")
    for name in known:
        yield name, f"networks {', '.join(known.get(name).networks)}"
    for name in SimaiOptions.profiles:
        yield name, "SimAI's closed forms; nothing is simulated"


def _npus() -> Lines:
    from simcore.compute.accelerators import accelerator, names

    for name in names():
        npu = accelerator(name)
        peak = ", ".join(f"{rate / 1e12:g} TFLOP/s {dtype}" for dtype, rate in [*npu.peak_flops_per_s.items()][:1])
        memory = f"{format_bytes(npu.memory_bytes)} at {format_rate(npu.memory_bytes_per_s)}"
        yield name, f"{npu.year}, {peak}, {memory} ({npu.source})"


def _lines(place: str, said: str) -> Lines:
    """What a function yields; or what is in a registry or a table, and what a function or a template says of it."""
    some = named(place)
    if callable(some):
        return iter(some())
    tell = named(said) if said.startswith("list:") else said.format
    return ((name, tell(some.get(name))) for name in some)


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


def command(what: str | None) -> None:
    """List what there is of a kind, one line each; without a kind the kinds."""
    if what is not None and what not in SHELVES:
        expected = closest(what, SHELVES)
        raise InputError.at("simcore list", "there is nothing of this kind", expected=expected, found=repr(what))
    lines = [*_lines(*SHELVES[what][1:])] if what else [(kind, said) for kind, (said, *_) in SHELVES.items()]
    entries = [{"name": name, "description": text} for name, text in lines]
    emit({what or "lists": entries}, lambda: Table("", columns(("name", ""), ("description", "")), lines).text(500))
