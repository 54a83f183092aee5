"""Networks of packet simulators: ns-3's list of links, read and written, and htsim's fat trees, written.

The first line counts the nodes, the switches and the links; in SimAI's files nodes, GPUs of a server, NVSwitches,
switches, links and the kind of GPU. The second line numbers the switches, all other nodes are NPUs. Then a line for
each link, both ways: ends, rate, delay, error rate. Empty lines mean nothing.
Sources: github.com/alibaba-edu/High-Precision-Congestion-Control and github.com/aliyun/SimAI, gen_Topo_Template.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TypeVar

from simcore.errors import InputError, Location, Problem, Problems
from simcore.network.topology.kinds import FatTree
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Edge, Graph, assemble
from simcore.units import parse_bytes_per_s, parse_ns

T = TypeVar("T")
MOST_NODES = 1 << 20
GIGABIT = 1e9 / 8
NOTE = "error rates of ns-3's links are not read: nothing is lost on a link"
_HEAD = re.compile(r"[ \t]*[0-9]{1,9}(([ \t]+[0-9]{1,9}){2}|([ \t]+[0-9]{1,9}){4}[ \t]+[^\s0-9:]\S*)[ \t\r]*(\n|$)")
_MEASURE = re.compile(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?[A-Za-z]+(/s)?", re.ASCII)
_WORDS = re.compile(r"\S+")


def is_packet_network(text: str) -> bool:
    """Whether a text begins as one of these lists."""
    return bool(_HEAD.match(text))


class _Lines:
    """The words of a list, and the problems at their places."""

    def __init__(self, text: str, file: str, problems: Problems):
        self.file, self.problems, self.source = file, problems, text.splitlines()
        self.words = [[*_WORDS.finditer(line)] for line in self.source]

    def problem(self, line: int, place: int, message: str, expected: str) -> None:
        words = self.words[line] if line < len(self.words) else []
        word = words[place] if place < len(words) else None
        where = Location(self.file, line + 1, word.start() + 1 if word else 1)
        source = self.source[line] if line < len(self.source) else ""
        self.problems.add(Problem(where, message, expected, repr(word[0]) if word else "nothing", source=source))

    def value(self, line: int, place: int, convert: Callable[[str], T], otherwise: T, expected: str) -> T:
        words = self.words[line] if line < len(self.words) else []
        try:
            return convert(words[place][0])
        except (IndexError, ValueError):
            self.problem(line, place, "this is not what stands here in ns-3's lists of links", expected)
            return otherwise


def read_packet_network(text: str, file: str, problems: Problems) -> Graph:
    """The network as a graph; what is wrong is noted with its place."""
    lines = _Lines(text, file, problems)
    head = [int(word[0]) for word in lines.words[0][:5]]
    nodes, num_switches, num_links = head if len(head) == 3 else (head[0], head[2] + head[3], head[4])
    if nodes > MOST_NODES or num_switches >= nodes:
        lines.problem(
            0, 0, "the nodes are not NPUs and switches", f"1 to {MOST_NODES:,} nodes, some of them no switches"
        )
        return Graph(0, (), (), (), (), ())

    def node(word: str) -> str:
        if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) < nodes):
            raise ValueError(word)
        return f"{int(word)}"

    def rate(word: str) -> float:
        found = parse_bytes_per_s(re.sub("bps$", "b/s", _measure(word)))
        if not 0 < found < inf:
            raise ValueError(word)
        return found

    known = f"a node, 0 to {nodes - 1}"
    told = [at for at in range(1, len(lines.words)) if lines.words[at]]
    numbers = told.pop(0) if num_switches and told else 1
    switches = {lines.value(numbers, place, node, "", known) for place in range(num_switches)}
    used = told[:num_links]  # ns-3 reads no further: words behind are the author's
    if count := sum(lines.words[at][0][0].isdigit() for at in told[num_links:]) or len(used) - num_links:
        found = num_links + count
        lines.problem(0, len(head) - 1, f"there are {found} links", f"{found} in the first line")
    for line in used:
        if len(words := lines.words[line]) > 1 and words[0][0] == words[1][0]:
            lines.problem(line, 1, "a link joins two nodes", "another node")
    edges = [
        Edge(
            (lines.value(line, 0, node, "0", known), lines.value(line, 1, node, "0", known)),
            lines.value(line, 2, rate, 1.0, "a rate above 0: 400Gbps"),
            lines.value(line, 3, lambda word: parse_ns(_measure(word)), 0.0, "a delay: 0.0005ms"),
        )
        for line in used
    ]
    graph = assemble({f"{name}": f"{name}" not in switches for name in range(nodes)}, edges, directed=False)
    lossy = any(word[0].strip("0.") for line in used for word in lines.words[line][4:5])
    return replace(graph, note=NOTE) if lossy else graph


def _measure(word: str) -> str:
    """A number with a unit: a bare one means bits per second or seconds there, and something else here."""
    if not _MEASURE.fullmatch(word):
        raise ValueError(word)
    return word


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
        if sorted(ways.get((dst, src), ())) != sorted(there):
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
