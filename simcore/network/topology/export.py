"""Topologies for packet simulators: ns-3's list of links as HPCC's and SimAI's forks read it, and htsim's fat trees."""

from __future__ import annotations

from collections.abc import Callable

from simcore.errors import InputError
from simcore.network.topology.kinds import FatTree
from simcore.network.topology.links import LinkGraph

GIGABIT = 1e9 / 8


def _ns3(links: LinkGraph) -> str:
    """Nodes, switches and links; the switches; and a line for each link: ends, rate, delay, error rate.

    A link and the one back are one, so they must be alike.
    """
    ways: dict[tuple[int, int], list[tuple[float, float]]] = {}
    columns = (links.src, links.dst, links.bandwidth_bytes_per_s, links.latency_ns)
    for src, dst, rate, latency_ns in zip(*(column.tolist() for column in columns), strict=True):
        ways.setdefault((src, dst), []).append((rate, latency_ns))
    lines = []
    for (src, dst), there in ways.items():
        if ways.get((dst, src)) != there:
            ends = f"{links.names[src]} > {links.names[dst]}"
            raise InputError.at(ends, "ns-3 has no links of one direction", expected="a link back of the same kind")
        if src < dst:
            lines += [f"{src} {dst} {rate / GIGABIT:.10g}Gbps {ns / 1e6:.10g}ms 0" for rate, ns in there]
    switches = range(links.npus, links.nodes)
    head = f"{links.nodes} {len(switches)} {len(lines)}"
    return "\n".join([head, " ".join(map(str, switches)), *lines]) + "\n"


def _htsim(links: LinkGraph) -> str:
    """A fat tree of two tiers; leaves are its tier 0."""
    (axis,) = links.axes if len(links.axes) == 1 else (None,)
    tree = axis.fabric if axis else None
    if not isinstance(tree, FatTree) or tree.leaves < 2:
        kinds = ", ".join(dim.kind for dim in links.topology.dims)
        raise InputError.at(
            links.topology.name, "htsim's files describe fat trees", expected="one FatTree", found=kinds
        )
    down, *_, up = tree.bandwidths() / GIGABIT
    latency_ns, ratio = tree.dim.latency_ns, tree.leaf_npus / tree.spines
    figures = {"Gb/s of a link": down, "ns of latency": latency_ns, "NPUs of a leaf for each spine": ratio}
    fits = {f"whole {what}": (value, value >= 1 and value == round(value)) for what, value in figures.items()}
    for expected, (value, does) in {**fits, f"uplinks of {down:.10g} Gb/s, too": (up, up == down)}.items():
        if not does:
            message = "htsim's file cannot say that: its numbers are whole, and all its links are alike"
            raise InputError.at(links.topology.name, message, expected=expected, found=f"{value:.10g}")
    links_say = f"Downlink_Latency_ns {latency_ns:.0f}\nSwitch_Latency_ns 0\n"
    return (
        f"Nodes {tree.npus}\nTiers 2\nPodsize {tree.npus}\n\n"
        f"Tier 0\nDownlink_speed_Gbps {down:.0f}\nRadix_Down {tree.leaf_npus}\nRadix_Up {tree.spines}\n"
        f"{f'Oversubscribed {ratio:.0f}' if ratio > 1 else ''}\n{links_say}\n"
        f"Tier 1\nDownlink_speed_Gbps {down:.0f}\nRadix_Down {tree.leaves}\n{links_say}"
    )


FORMATS: dict[str, Callable[[LinkGraph], str]] = {".txt": _ns3, ".topo": _htsim}
"""End of a file's name -> what makes it, .txt for ns-3 and .topo for htsim; InputError where that cannot say it."""
