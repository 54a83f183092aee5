"""What a network costs, as a table, as JSON and in ASTRA-sim 1.0's own lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from simcore.network.topology.cost import HOURS_PER_YEAR, Item, Prices, total_usd
from simcore.network.topology.model import Topology
from simcore.report.table import Table, columns
from simcore.units import format_rate

SCHEMA = "simcore.network-cost/1"
WORDS = {"link": "cables", "switch": "switches", "nic": "NICs"}


def document(topology: Topology, prices: Prices, items: Sequence[Item]) -> dict[str, object]:
    """All figures."""
    watts = fsum(item.watts for item in items)
    return {
        "schema": SCHEMA,
        "name": topology.name,
        "npus": topology.npus,
        "prices": {"name": prices.name, "source": prices.source},
        "items": [{name: getattr(item, name) for name in Item.__slots__} for item in items],
        "usd": total_usd(items),
        "usd_per_npu": total_usd(items) / topology.npus,
        "watts": watts,
        "usd_of_power_per_year": watts / 1000 * HOURS_PER_YEAR * prices.usd_per_kwh,
    }


def text(topology: Topology, prices: Prices, items: Sequence[Item]) -> str:
    """A line for each kind of part, and the sums."""
    total, watts = total_usd(items), fsum(item.watts for item in items)
    shown = columns("dimension", "level", "part", ("count", "number"), "of", "price", "power")
    rows = [
        (f"{item.dimension}", item.level, WORDS[item.part], item.count, of, _usd(item.usd), _kw(item.watts))
        for item in items
        for of in [f"{item.ports} x " * (item.ports > 1) + format_rate(item.bandwidth_bytes_per_s)]
    ]
    yearly = watts / 1000 * HOURS_PER_YEAR * prices.usd_per_kwh
    lines = [
        f"{topology.name}: {_usd(total)} for {topology.npus:,} NPUs, {_usd(total / topology.npus)} each",
        Table("", shown, rows).text(120) or "no part of it has a price",
        f"power {_kw(watts)}, {_usd(yearly)} a year at {prices.usd_per_kwh:g} USD per kWh",
        f"prices: {prices.source or prices.name}",
    ]
    return "\n".join(lines)


def astra_lines(topology: Topology, prices: Prices, items: Sequence[Item]) -> str:
    """The lines of ASTRA-sim 1.0's CostModel; numbers as C++ prints them."""
    return "\n".join(
        f"[CostModel] Adding (inter-{item.level}, {item.part.title()}) bandwidth: "
        f"{item.bandwidth_bytes_per_s / prices.gigabyte:g}, radix: {item.ports}, count: {item.count} "
        f"(added cost: ${item.usd:g})"
        for item in items
    )


def _usd(value: float) -> str:
    return f"${value:,.0f}"


def _kw(watts: float) -> str:
    return f"{watts / 1000:,.1f} kW"
