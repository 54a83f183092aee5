"""A network given link by link: NetworkX's node-link JSON, or GraphML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from simcore.documents import Node, read, read_text
from simcore.errors import Problems, closest
from simcore.markup import Element, is_markup, read_markup
from simcore.network.topology.fabric import Fabric, FloatArray, IntArray
from simcore.network.topology.model import Dimension, Edge, Graph, assemble
from simcore.network.topology.nccl import read_nccl
from simcore.network.topology.paths import ShortestPaths
from simcore.units import parse_bytes_per_s, parse_ns

NODE_KINDS = ["npu", "switch"]


def read_graph(path: Path, gigabyte: float, problems: Problems) -> Graph:
    """The graph in a node-link JSON or, by its suffix, a GraphML file (`.graphml`) or NCCL's topology (`.xml`).

    Every edge has `bandwidth` and `latency`; a node with `kind: switch` is no NPU. NPUs are numbered in the
    order of the file. An undirected edge is a link in each direction.
    """
    if is_markup(path):
        return read_nccl(path)
    root = _graphml(path, problems) if path.suffix == ".graphml" else read(path, problems)
    root.keys(required=("nodes",), optional=("directed", "multigraph", "graph", "links", "edges"))
    if isinstance(root.value, dict) and ("links" in root) == ("edges" in root):
        root.problem("a graph has either 'links' or 'edges'", "node-link JSON as networkx writes it")
    kinds: dict[str, bool] = {}
    for item in root.listed("nodes"):
        name, npu = _node(item)
        if name in kinds:
            item.problem("another node has this id", "an id of its own", repr(name))
        kinds[name] = npu
    edges = [_edge(item, kinds, gigabyte) for key in ("links", "edges") for item in root.listed(key)]
    directed = "directed" in root and root["directed"].flag()
    if not any(kinds.values()):
        root.problem("the graph has no NPU", "at least one node that is not a switch")
    return assemble(kinds, edges, directed)


def graph_dimension(graph: Graph) -> Dimension:
    """The graph seen as one dimension: its slowest link and longest latency."""
    slowest = min((rate for rate in graph.bandwidth_bytes_per_s), default=1.0)
    return Dimension("Graph", graph.npus, slowest, max(graph.latency_ns, default=0.0))


class GraphFabric(Fabric):
    """Links as given. A route has the fewest links; among equals each node takes its link of least latency."""

    bisection_how = "an estimate: the best halves of the NPUs that Kernighan and Lin's exchange finds"
    description = "links given one by one in a file; the path of fewest links"

    def __init__(self, graph: Graph):
        super().__init__(graph_dimension(graph))
        self.graph = graph

    @cached_property
    def paths(self) -> ShortestPaths:
        """Among equals the links of least latency."""
        return ShortestPaths(len(self.graph.names), *self.ends(), np.argsort(self.latencies(), kind="stable"))

    def ends(self) -> tuple[IntArray, IntArray]:
        """In the order of the file."""
        return np.array(self.graph.src, np.int64), np.array(self.graph.dst, np.int64)

    def bandwidths(self) -> FloatArray:
        """As given."""
        return np.array(self.graph.bandwidth_bytes_per_s, np.float64)

    def latencies(self) -> FloatArray:
        """As given."""
        return np.array(self.graph.latency_ns, np.float64)

    def bisection_bytes_per_s(self) -> float:
        """As `bisection_how` says: of two halves exactly what they can send each other, switches on whichever side."""
        import networkx

        if self.npus < 2:
            return 0.0
        weights = np.zeros((len(self.graph.names),) * 2)
        np.add.at(weights, self.ends(), self.bandwidths() / 2)
        weights += weights.T
        graph = networkx.from_numpy_array(weights, edge_attr="capacity")
        side = _halves(_without_switches(weights, self.npus))
        graph.add_edges_from(("from" if one > 0 else "to", npu) for npu, one in enumerate(side.tolist()))
        return float(networkx.maximum_flow_value(graph, "from", "to"))

    def devices(self) -> tuple[str, ...]:
        """The nodes that are no NPUs."""
        return self.graph.names[self.npus :]


def _without_switches(weights: FloatArray, npus: int) -> FloatArray:
    """What joins the NPUs if links are conductors: every switch at the potential that its neighbours give it."""
    switches = weights.sum(axis=0)[npus:] + 1e-9 * weights.max()  # some may have no way to an NPU
    inner = np.diag(switches) - weights[npus:, npus:]
    joined = weights[:npus, :npus] + weights[:npus, npus:] @ np.linalg.solve(inner, weights[npus:, :npus])
    np.fill_diagonal(joined, 0)
    rounded: FloatArray = np.round(joined / weights.max(), 9)  # what is alike stays alike on every machine
    return rounded


def _halves(weights: FloatArray) -> FloatArray:
    """1 for those of one half and -1 for the others: Kernighan and Lin's exchange, from the first half on.

    In every pass the best of one half changes sides, then the best of the other, and so on; as many pairs stay there as
    gain most together.
    """
    side = np.where(np.arange(len(weights)) < len(weights) // 2, 1.0, -1.0)
    while True:
        gain, moved, gained = -side * (weights @ side), list[int](), list[float]()
        for half in (1, -1) * (len(weights) // 2):
            at = int(np.argmax(np.where(side == half, gain, -np.inf)))
            moved.append(at)
            gained.append(float(gain[at]))
            gain += 2 * half * side * weights[at]
            gain[at] = -np.inf
        together = np.cumsum(gained)[1::2]
        if together.max() < 1e-6:
            return side
        side[moved[: 2 * int(together.argmax()) + 2]] *= -1


def _node(item: Node) -> tuple[str, bool]:
    """Name of a node and whether it is an NPU; other attributes are for the user's own tools."""
    if "id" not in item:
        item.problem("a node needs an 'id'", "id: ...")
        return "", True
    kind = item["kind"].choice(NODE_KINDS) if "kind" in item else "npu"
    return str(item["id"].value), kind != "switch"


def _edge(item: Node, kinds: Mapping[str, bool], gigabyte: float) -> Edge:
    """One edge; both ends must be nodes."""
    needed = ("source", "target", "bandwidth", "latency")
    missing = [key for key in needed if key not in item]
    if missing:
        item.problem(f"an edge needs {', '.join(missing)}", ", ".join(needed))
        return Edge(("", ""), 1.0, 0.0)
    for end in ("source", "target"):
        if str(item[end].value) not in kinds:
            item[end].problem("there is no such node", closest(str(item[end].value), kinds))
    rate = item["bandwidth"].quantity(partial(parse_bytes_per_s, gigabyte=gigabyte), above=True)
    ends = str(item["source"].value), str(item["target"].value)
    if ends[0] == ends[1]:
        item["target"].problem("a link joins two nodes", "another node")
    return Edge(ends, rate, item["latency"].quantity(parse_ns))


def _graphml(path: Path, problems: Problems) -> Node:
    """A GraphML file as the node-link document that says the same, every value at its place."""
    root, source = read_markup(path), read_text(path).splitlines()
    graph, directed = _only_graph(root)
    keys = {key.text("id"): key for key in root.all("key")}

    def made(name: str, value: object, element: Element, items: Iterable[Node] = ()) -> Node:
        node = Node(name, value, element.location.line, element.location.column, str(path), source, problems)
        node.items = [*items]
        return node

    def entry(element: Element, *attributes: str) -> Node:
        found = [made(name, element.text(name), element) for name in attributes]
        found += [made(name, said.content.strip(), said) for name, said in _said(element, keys).items()]
        return made(element.name, {item.name: item.value for item in found}, element, found)

    nodes = [entry(node, "id") for node in graph.all("node")]
    links = [entry(edge, "source", "target") for edge in graph.all("edge")]
    parts = [made(name, [each.value for each in own], graph, own) for name, own in (("nodes", nodes), ("links", links))]
    parts.append(made("directed", directed, graph))
    return made("graph", {part.name: part.value for part in parts}, graph, parts)


def _only_graph(root: Element) -> tuple[Element, bool]:
    """What a GraphML file is about, and whether its links have one direction; InputError for what else it may have."""
    graph = next(iter(root.all("graph")), None)
    if root.name != "graphml" or not graph:
        raise root.error("not GraphML", expected="<graphml> with a <graph>", found=f"<{root.name}>")
    directed = graph.attributes.get("edgedefault") == "directed"
    for other in root.walk():
        if other.name == "hyperedge" or (other.name == "graph" and other is not graph):
            raise other.error(f"<{other.name}> is not read", expected="one <graph> of <node> and <edge>")
        if other.name == "edge" and (other.attributes.get("directed", f"{directed}").lower() == "true") != directed:
            raise other.error("links of one direction, and others of both", expected="directed as edgedefault says")
    return graph, directed


def _said(element: Element, keys: Mapping[str, Element]) -> dict[str, Element]:
    """What the data of a node or edge say, by the name of their key, and its defaults of what they do not."""
    of_it = [key for key in keys.values() if key.attributes.get("for", "all") in {"all", element.name}]
    found = {key.attributes.get("attr.name", ""): otherwise for key in of_it for otherwise in key.all("default")}
    for data in element.all("data"):
        if data.text("key") not in keys:
            raise data.error("there is no such <key>", closest(data.text("key"), keys), repr(data.text("key")))
        found[keys[data.text("key")].attributes.get("attr.name", "")] = data
    return found
