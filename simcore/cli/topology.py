"""`simcore topology`: look at a topology before anything runs on it, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

from simcore.cli.command import emit, warn
from simcore.files import write_text
from simcore.network.topology.cost import HOURS_PER_YEAR, USUAL_PRICES, Item, Prices, cost_of, read_prices, total_usd
from simcore.network.topology.draw import speed
from simcore.network.topology.links import Figures, LinkGraph, figures
from simcore.network.topology.load import load
from simcore.network.topology.model import Topology
from simcore.network.topology.packet import FORMATS
from simcore.report.table import Table, columns
from simcore.units import format_ns, format_rate

OF_DIMENSION = ("kind", "npus", "bandwidth_bytes_per_s", "latency_ns")
OF_NETWORK = ("npus", "devices", "links", "diameter_hops", "bisection_bytes_per_s", "bisection_how")
OF_WAFER = ("columns", "rows", "dead_npus", "dead_links", "spare_rows")
WORDS = {"link": "cables", "switch": "switches", "nic": "NICs"}


def show(topology: str, output: str | None) -> None:
    """Figures of a topology, and a picture of it."""
    links = LinkGraph(loaded := _loaded(topology))
    found = figures(links)
    if output:
        from simcore.network.topology.draw import draw
        from simcore.report.plots import save

        save(draw(links), Path(output))
    document: dict[str, object] = {
        "schema": "simcore.topology/1",
        "name": loaded.name,
        "description": loaded.description,
        "degree": {"min": found.degree_min, "max": found.degree_max},
        "dims": [_of(dim, OF_DIMENSION) | {"links": dim.parallel_links} for dim in loaded.dims],
    } | _of(found, OF_NETWORK)
    document |= {"wafer": _of(loaded.wafer, OF_WAFER)} if loaded.wafer else {}
    emit(document, lambda: _text(links, found))


def _loaded(topology: str, gigabyte: str = "") -> Topology:
    """A topology; what its file leaves to us, and what of it is not read, is told."""
    found = load(topology, gigabyte_forced=gigabyte)
    if found.graph and found.graph.note:
        warn(found.graph.note)
    return found


def _of(part: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(part, name) for name in names}


def _text(links: LinkGraph, found: Figures) -> str:
    """The figures for people; all sides of a wafer are one axis."""
    topology, rows = links.topology, []
    for index, dim in enumerate(topology.dims):
        said = speed(links.axes[min(index, len(links.axes) - 1)].fabric, dim.parallel_links)
        rows.append((f"dimension {index}", f"{dim.kind} of {dim.npus}, {said}"))
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


def export(topology: str, output: str) -> None:
    """Write a topology for a packet simulator."""
    loaded = _loaded(topology)
    write_text(output, FORMATS[Path(output).suffix.lower()](LinkGraph(loaded)))
    if loaded.circuits:
        others = ", ".join(other.name for other in loaded.circuits.others)
        warn(f"the file has the circuits that are in place at first: export {others}, too")


def cost(topology: str, prices: str | None, lengths: tuple[float, ...], compat: str | None) -> None:
    """Say what the network of a topology costs and what power it draws."""
    known = read_prices(prices or compat or USUAL_PRICES)
    loaded = _loaded(topology, "binary" if compat else "")
    items = cost_of(LinkGraph(loaded), known, lengths)
    missing = _without_price(loaded, known, items)
    total, watts = total_usd(items), fsum(item.watts for item in items)
    document = {
        "schema": "simcore.network-cost/1",
        "name": loaded.name,
        "npus": loaded.npus,
        "prices": {"name": known.name, "source": known.source},
        "items": [_of(item, Item.__slots__) for item in items],
        "missing": missing,
        "usd": total,
        "usd_per_npu": total / loaded.npus,
        "watts": watts,
        "usd_of_power_per_year": watts / 1000 * HOURS_PER_YEAR * known.usd_per_kwh,
    }
    emit(document, lambda: _astra_lines(known, items) if compat else _cost_text(loaded, known, items, document))


def _without_price(topology: Topology, prices: Prices, items: Sequence[Item]) -> list[str]:
    """What the sum leaves out, in words."""
    bought = {item.dimension for item in items}
    free = [index for index, dim in enumerate(topology.dims) if dim.npus > 1 and index not in bought]
    named = [f"dimension {index}, whose level has no prices in {prices.name}" for index in free]
    if topology.graph and topology.graph.boxes and prices.inside.name not in {item.level for item in items}:
        named.append(f"links inside servers and switches, whose level has no prices in {prices.name}")
    if topology.graph and topology.graph.card_bytes_per_s:
        named.append("what network cards lead to: the file does not tell")
    return named + ["the circuit switch and the cables to it"] * bool(topology.circuits)


def _cost_text(topology: Topology, prices: Prices, items: Sequence[Item], document: dict[str, Any]) -> str:
    """A line for each kind of part, and the sums."""

    def usd(value: object) -> str:
        return f"${value:,.0f}"

    def kw(watts: float) -> str:
        return f"{watts / 1000:,.1f} kW"

    shown = columns("dimension", "level", "part", ("count", "number"), "of", "price", "power")
    rows = [
        (f"{item.dimension}", item.level, WORDS[item.part], item.count, of, usd(item.usd), kw(item.watts))
        for item in items
        for of in [f"{item.ports} x " * (item.ports > 1) + format_rate(item.bandwidth_bytes_per_s)]
    ]
    yearly, drawn = usd(document["usd_of_power_per_year"]), kw(fsum(item.watts for item in items))
    lines = [
        f"{topology.name}: {usd(document['usd'])} for {topology.npus:,} NPUs, {usd(document['usd_per_npu'])} each",
        Table("", shown, rows).text(120) or "there is nothing to buy",
        f"power {drawn}, {yearly} a year at {prices.usd_per_kwh:g} USD per kWh",
        f"prices: {prices.source or prices.name}",
        *(f"not in the sum: {text}" for text in document["missing"]),
    ]
    return "\n".join(lines)


def _astra_lines(prices: Prices, items: Sequence[Item]) -> str:
    """The lines of ASTRA-sim 1.0's CostModel; numbers as C++ prints them."""
    return "\n".join(
        f"[CostModel] Adding (inter-{item.level}, {item.part.title()}) bandwidth: "
        f"{item.bandwidth_bytes_per_s / prices.gigabyte:g}, radix: {item.ports}, count: {item.count} "
        f"(added cost: ${item.usd:g})"
        for item in items
    )
