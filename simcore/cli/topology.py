"""`simcore topology`: look at a topology before anything runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simcore.cli.command import PICTURE, Group, Target, emit, option
from simcore.cli.completion import shipped
from simcore.cli.numbers import SIZE

if TYPE_CHECKING:
    from collections.abc import Collection

    from simcore.network.topology.figures import Figures
    from simcore.network.topology.model import Topology


@click.group(cls=Group, short_help="Show a topology, or what it costs.")
def command() -> None:
    """Look at a topology before anything runs on it.

    \b
    simcore topology show torus_4x4x4
    simcore topology show net.yaml -o net.png
    """


@command.command(short_help="Figures of a topology, and a picture of it.")
@click.argument("topology", metavar="T", shell_complete=shipped("topologies"))
@option("-o", "--output", type=PICTURE, metavar="FILE", help="Draw it: .png .svg .pdf.")
def show(topology: str, output: str | None) -> None:
    """Print the figures of topology T, a file or a shipped name; draw it with -o.

    \b
    simcore topology show ring64
    simcore topology show wafer_8x7 -o wafer.svg
    """
    from simcore.network.topology.figures import figures
    from simcore.network.topology.links import LinkGraph
    from simcore.network.topology.load import load

    loaded = load(topology)
    links = LinkGraph(loaded)
    found = figures(links)
    if output:
        from simcore.network.topology.draw import draw
        from simcore.report.plots import save

        save(draw(links), Path(output))
    emit(_document(loaded, found), lambda: _text(loaded, found))


OF_DIMENSION = ("kind", "npus", "bandwidth_bytes_per_s", "latency_ns", "links")
OF_NETWORK = ("npus", "devices", "links", "diameter_hops", "bisection_bytes_per_s", "bisection_how")
OF_WAFER = ("columns", "rows", "dead_npus", "dead_links", "spare_rows")


def _document(topology: Topology, found: Figures) -> dict[str, object]:
    """All figures, keys sorted."""
    document: dict[str, object] = {
        "schema": "simcore.topology/1",
        "name": topology.name,
        "description": topology.description,
        "degree": {"min": found.degree_min, "max": found.degree_max},
        "dims": [_of(dim, OF_DIMENSION) for dim in topology.dims],
    } | _of(found, OF_NETWORK)
    return document | ({"wafer": _of(topology.wafer, OF_WAFER)} if topology.wafer else {})


def _of(part: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(part, name) for name in names}


def _text(topology: Topology, found: Figures) -> str:
    """The figures for people."""
    from simcore.report.table import Table, columns
    from simcore.units import format_ns, format_rate

    rows = []
    for index, dim in enumerate(topology.dims):
        links = f"{dim.links} x " if dim.links > 1 else ""
        speed = f"{links}{format_rate(dim.bandwidth_bytes_per_s)}, {format_ns(dim.latency_ns)} a hop"
        rows.append((f"dimension {index}", f"{dim.kind} of {dim.npus}, {speed}"))
    if wafer := topology.wafer:
        dead = f"{len(wafer.dead_npus)} dead NPUs, {len(wafer.dead_links)} dead links, {wafer.spare_rows} spare rows"
        rows.append(("wafer", f"{wafer.columns} columns x {wafer.rows} rows, {dead}"))
    if circuits := topology.circuits:
        of = {kind: circuits.others[number - 1].name for kind, number in circuits.numbers if number}
        named = ", ".join(f"{name} for {kind}" for kind, name in of.items())
        rows.append(("circuits", f"{named}, changed in {format_ns(circuits.delay_ns)}"))
    low, high = found.degree_min, found.degree_max
    rows += [
        ("NPUs", f"{found.npus:,}"),
        ("other nodes", f"{found.devices:,}"),
        ("links", f"{found.links:,} of one direction"),
        ("degree", f"{low}" if low == high else f"{low} to {high} links out of an NPU"),
        ("diameter", f"{found.diameter_hops} hops"),
        ("bisection", f"{format_rate(found.bisection_bytes_per_s)} one way ({found.bisection_how})"),
    ]
    title = f"{topology.name}: {topology.description}" if topology.description else topology.name
    return title + "\n" + Table("", columns(("name", ""), ("text", "")), rows).text(500, indent=2)


@command.command(short_help="What a network costs: links, NICs, switches, power.")
@click.argument("topology", metavar="T", shell_complete=shipped("topologies"))
@option("--prices", default="400g-2024", metavar="FILE", help="Price file, or a name.  [default: 400g-2024]")
@option("--length", "lengths", type=SIZE, multiple=True, metavar="M", help="Metres of a cable, once a dimension.")
@option("--compat", type=click.Choice(["astra-sim-1.0"]), help="The lines and prices of ASTRA-sim 1.0.")
def cost(topology: str, prices: str, lengths: tuple[float, ...], compat: str | None) -> None:
    """Say what the network of topology T costs and what power it draws.

    \b
    simcore topology cost h100_fat_tree
    simcore topology cost net.json --compat astra-sim-1.0
    """
    from simcore.cli.topology_cost import astra_lines, document, text
    from simcore.network.topology.cost import cost_of, read_prices
    from simcore.network.topology.links import LinkGraph
    from simcore.network.topology.load import load

    known = read_prices(compat or prices)
    loaded = load(topology, gigabyte_forced="binary" if compat else "")
    items = cost_of(LinkGraph(loaded), known, lengths)
    emit(document(loaded, known, items), lambda: (astra_lines if compat else text)(loaded, known, items))


def _formats() -> Collection[str]:
    from simcore.network.topology.export import FORMATS

    return FORMATS


@command.command(short_help="A topology for ns-3 or htsim.")
@click.argument("topology", metavar="T", shell_complete=shipped("topologies"))
@option("-o", "--output", type=Target(_formats), required=True, metavar="FILE",
              help="File to write: .txt for ns-3 (HPCC, SimAI), .topo for htsim.")  # fmt: skip
def export(topology: str, output: str) -> None:
    """Write topology T for a packet simulator.

    \b
    simcore topology export torus_4x4x4 -o torus.txt
    """
    from simcore.files import write_text
    from simcore.network.topology.export import FORMATS
    from simcore.network.topology.links import LinkGraph
    from simcore.network.topology.load import load

    write_text(output, FORMATS[Path(output).suffix.lower()](LinkGraph(load(topology))))
