"""`simcore list`: what exists, one line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import getmodule

import click

from simcore.errors import closest

__all__ = ["command"]

Lines = Iterator[tuple[str, str]]


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0].rstrip(".")


def _topologies() -> Lines:
    from simcore import library
    from simcore.network.topology.load import load

    for name in library.names("topologies"):
        topology = load(name)
        yield name, topology.description or f"{topology.npus} NPUs"


def _workloads() -> Lines:
    from simcore import library

    for name in library.names("workloads"):
        with library.resolve(name, "workloads").open(encoding="utf-8", errors="replace") as file:
            yield name, _first_line(file.readline())


def _collectives() -> Lines:
    from simcore.system.collectives import algorithms

    for name in algorithms.names():
        yield name, _first_line(getattr(getmodule(algorithms.get(name)), "__doc__", ""))


def _loops() -> Lines:
    from simcore.workload.loops import loops

    for name in loops.names():
        loop = loops.get(name)
        yield name, f"activations over {loop.activations.value}, weight gradients over {loop.gradients.value}"


def _formats() -> Lines:
    yield "text", "12-column workload of ASTRA-sim 1.0 or SimAI/AICB (header, count, one row a layer)"
    yield "topology YAML", "lists of dimensions as in ASTRA-sim 2.x, with wafers, or a graph of links in a file"
    yield "topology JSON", "ASTRA-sim 1.0's Hierarchical network"
    yield "graph", "node-link JSON or GraphML with bandwidth and latency on the edges"


def _npus() -> Lines:
    from simcore.compute.accelerators import accelerator, names

    for name in names():
        device = accelerator(name)
        rates = ", ".join(f"{dtype} {rate / 1e12:g}" for dtype, rate in device.peak_flops_per_s.items())
        memory = f"{device.memory_bytes / 1e9:g} GB at {device.memory_bytes_per_s / 1e12:g} TB/s"
        yield name, f"{rates} TFLOP/s; {memory}; {device.source}"


# What can be listed; another package adds its line here. Registries are imported when they are listed.
SHELVES: dict[str, Callable[[], Lines]] = {
    "topologies": _topologies,
    "workloads": _workloads,
    "collectives": _collectives,
    "loops": _loops,
    "formats": _formats,
    "npus": _npus,
}


@click.command(short_help="List what exists.")
@click.argument("what", metavar="|".join(SHELVES))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def command(what: str, as_json: bool) -> None:
    """List what exists, one line each.

    \b
    simcore list topologies
    simcore list collectives
    """
    if what not in SHELVES:
        raise click.BadParameter(f"there is nothing called '{what}' to list; {closest(what, SHELVES)}")
    lines = list(SHELVES[what]())
    if as_json:
        entries = [{"name": name, "description": text} for name, text in lines]
        click.echo(json.dumps({what: entries}, indent=1, sort_keys=True))
        return
    width = max((len(name) for name, _ in lines), default=0)
    for name, text in lines:
        click.echo(f"{name:<{width}}  {text}".rstrip())
