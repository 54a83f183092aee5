"""What does a faster network cost? The price of eight networks of 64 NPUs against the time of two collectives.

With the name of a picture (`python examples/network_cost.py network_cost.png`) it draws one against the other.
"""

import sys
from pathlib import Path

import simcore
from simcore.network.topology.cost import cost_of, read_prices, total_usd
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.report.plots import canvas, save

RATE, LATENCY_NS = 50e9, 500.0  # 400 Gb/s


def dims(kind: str, *sizes: int, **more: int) -> Topology:
    """Dimensions of one kind, all of them cables between servers."""
    return Topology(tuple(Dimension(kind, size, RATE, LATENCY_NS, level="cluster", **more) for size in sizes))


NETWORKS = {
    "ring": dims("Ring", 64),
    "mesh 8 x 8": dims("Mesh", 8, 8),
    "torus 8 x 8": dims("Ring", 8, 8),
    "torus 4 x 4 x 4": dims("Ring", 4, 4, 4),
    "dragonfly": dims("Dragonfly", 64, groups=4, routers=4),
    "fat tree 2:1": dims("FatTree", 64, routers=8, oversubscription=2),
    "fat tree": dims("FatTree", 64, routers=8),
    "8 rails of 8": dims("Switch", 8, 8),
}
WORKLOADS = {"all-reduce": "micro_all_reduce", "all-to-all": "micro_all_to_all"}
MARKS = {"all-reduce": ("o", "#0072B2"), "all-to-all": ("s", "#D55E00")}


def picture(rows: dict[str, tuple[float, list[float]]], path: str, about: str) -> None:
    """Time against price, a mark for each network and collective."""
    with canvas(7.0, 4.2) as (figure, axes):
        for number, (name, (shape, colour)) in enumerate(MARKS.items()):
            points = [(usd / 1e3, times[number]) for usd, times in rows.values()]
            axes.scatter(*zip(*points, strict=True), marker=shape, color=colour, label=name)
        for name, (usd, times) in rows.items():
            axes.plot([usd / 1e3] * 2, times, color="#BFBFBF", linewidth=1, zorder=0)
            axes.annotate(name, (usd / 1e3, max(times)), (4, 4), textcoords="offset points", fontsize=8,
                          bbox={"color": "white", "pad": 0.3})  # fmt: skip
        axes.set_title("64 NPUs at 400 Gb/s a link: what the network costs and how long a collective takes",
                       loc="left", fontsize=10)  # fmt: skip
        axes.set_xlabel("network (1,000 USD, prices of 2024)")
        axes.set_ylabel("time of a step (ms)")
        axes.set_yscale("log")
        axes.set_yticks([1.5, 2, 3, 5, 10], ["1.5", "2", "3", "5", "10"], minor=False)
        axes.minorticks_off()
        axes.margins(x=0.15)
        axes.legend(frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print the table, the cheapest first; draw the picture if one is named."""
    prices = read_prices("400g-2024")
    costs = {name: total_usd(cost_of(LinkGraph(made), prices)) for name, made in NETWORKS.items()}
    rows = {
        name: (costs[name], [simcore.run(work, NETWORKS[name]).time_ns / 1e6 for work in WORKLOADS.values()])
        for name in sorted(costs, key=costs.get)
    }
    lines = [f"{'network':16} {'USD':>8}  {'all-reduce':>10}  {'all-to-all':>10}"]
    lines += [f"{name:16} {usd:8,.0f}  {one:7.3f} ms  {other:7.3f} ms" for name, (usd, (one, other)) in rows.items()]
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(rows, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
