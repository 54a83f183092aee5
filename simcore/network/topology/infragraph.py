"""InfraGraph files (YAML, JSON): devices of components, instances of devices, edges between both, as a graph of links.

Components of choice `npu` or `xpu` are NPUs, by instance; all others are nodes on the way, and those of choice `device`
are devices in turn. Every link that an edge uses needs a bandwidth. Where a link has no latency it is ours.
Source: github.com/Keysight/infragraph (MIT licence).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from msgspec import Struct

from simcore.documents import Node
from simcore.errors import closest
from simcore.network.topology.model import Edge, Graph, assemble

SHARES = {"bits_per_second": 0.125, "bytes_per_second": 1.0}
GIGABYTES = {f"{prefix}{unit}": share for prefix in ("giga", "g_") for unit, share in SHARES.items()}
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
MOST_PARTS = 1 << 20
"""Components of all instances, and edges that one entry may stand for."""
MOST_DEEP = 64
INSIDE_NS, BETWEEN_NS = 250.0, 500.0
NOTE = "where InfraGraph's links have no latency it is 250 ns a hop inside a device, 500 ns between two"
SCHEMES = ["one2one", "many2many"]
READ = (
    *("name", "description", "devices", "instances", "links", "edges", "components", "count", "choice", "type"),
    *("device", "component", "instance", "ep1", "ep2", "link", "scheme", "many2many"),
    *("physical", "bandwidth", "latency", *GIGABYTES, *NANOSECONDS),
)
_SLICED = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<slice>(-?\d+)?(:(-?\d+)?){0,2})\])?")


class _Part(Struct, frozen=True):
    """So many components of a name, or devices with parts of their own; `size` counts all that is in them."""

    count: int
    size: int
    npu: bool = False
    device: Node | None = None
    inside: Mapping[str, _Part] = {}


_Links = dict[str, tuple[float | None, float | None]]
Parts = Mapping[str, _Part]
"""Of a device, or the instances of the infrastructure: what it consists of, by name."""


def is_infragraph(root: Node) -> bool:
    """Whether a document is one of these."""
    return "devices" in root and "instances" in root


def read_infragraph(root: Node) -> Graph:
    """The graph; what is wrong is noted with its place."""
    devices = {node["name"].text(): node for node in _entries(root, "devices", "name", "components")}
    known: dict[str, Parts | None] = {}
    instances = {
        node["name"].text(): part
        for node in _entries(root, "instances", "name", "device")
        if (part := _part(node, node["device"], devices, known))
    }
    if sum(part.size for part in instances.values()) > MOST_PARTS:
        root["instances"].problem("too many components", f"at most {MOST_PARTS:,} in all")
    if root.problems.found:
        return Graph(0, (), (), (), (), ())
    kinds = dict(_kinds(instances, ""))
    edges = [*_inside(instances, [""]), *_edges(root, instances, [""], BETWEEN_NS)]
    if not any(kinds.values()):
        root.problem("there is no NPU", "a component with choice: npu or xpu")
    notes = [NOTE] if {INSIDE_NS, BETWEEN_NS} & {edge.latency_ns for edge in edges} else []
    notes += [f"of the InfraGraph these keys are not read: {', '.join(unread)}"] if (unread := [*_unread(root)]) else []
    graph = assemble(kinds, edges, directed=False)
    boxes = (".".join(name.split(".", 2)[:2]) for name in graph.names)  # the instance that a node is in
    return replace(graph, boxes=tuple(boxes), note="; ".join(notes))


def _unread(node: Node) -> Iterator[str]:
    """The keys in a document that nobody looks for, with the line of each."""
    for item in node.items:
        if isinstance(node.value, dict) and item.name not in READ:
            yield f"{item.name} (line {item.line})"
        else:
            yield from _unread(item)


def _entries(owner: Node, key: str, *required: str) -> Iterator[Node]:
    """The entries of a list that have what is required; what others lack is noted, and a name that is taken."""
    taken = set[str]()
    for node in owner.listed(key):
        missing = [name for name in required if not isinstance(node.value, dict) or name not in node]
        if missing:
            node.problem(f"an entry of {key} needs {', '.join(missing)}", ", ".join(required))
        elif "name" in required and str(node["name"].value) in taken:
            node["name"].problem(f"another one of {key} has this name", "a name of its own")
        else:
            taken |= {str(node["name"].value)} if "name" in required else set()
            yield node


def _part(node: Node, named: Node, devices: Mapping[str, Node], known: dict[str, Parts | None]) -> _Part | None:
    """So many of a device, as an instance or inside another one; None if there is none, or if it is inside itself."""
    count = node["count"].integer(1, MOST_PARTS) if "count" in node else 1
    name = named.text()
    if name in devices and name not in known and list(known.values()).count(None) < MOST_DEEP:
        known[name] = None  # until all that is in it is known
        known[name] = _components(devices[name], devices, known)
    if (inside := known.get(name)) is None:
        if name in devices:
            named.problem("a device is inside itself", f"devices inside each other, at most {MOST_DEEP}")
        else:
            named.problem("there is no such device", closest(name, devices))
        return None
    size = sum(part.size for part in inside.values())
    return _Part(count, count * max(size, 1), device=devices[name], inside=inside)


def _components(device: Node, devices: Mapping[str, Node], known: dict[str, Parts | None]) -> Parts:
    """What a device consists of."""
    found: dict[str, _Part] = {}
    for node in _entries(device, "components", "name"):
        choice = next((node[key].text() for key in ("choice", "type") if key in node), "")
        if choice == "device":
            part = _part(node, node["name"], devices, known)
        else:
            count = node["count"].integer(1, MOST_PARTS) if "count" in node else 1
            part = _Part(count, count, choice in {"npu", "xpu"})
        if part:
            found[node["name"].text()] = part
    return found


def _kinds(parts: Parts, prefix: str) -> Iterator[tuple[str, bool]]:
    """All components by name, and whether they are NPUs."""
    for (name, part), number in ((item, number) for item in parts.items() for number in range(item[1].count)):
        own = f"{prefix}{name}.{number}"
        yield from _kinds(part.inside, f"{own}.") if part.device else ((own, part.npu),)


def _inside(parts: Parts, prefixes: list[str]) -> Iterator[Edge]:
    """The edges of every device among parts that are at these places, and of the devices inside."""
    for name, part in parts.items():
        if part.device:
            own = [f"{prefix}{name}.{number}." for prefix in prefixes for number in range(part.count)]
            yield from _inside(part.inside, own)
            yield from _edges(part.device, part.inside, own, INSIDE_NS)


def _edges(owner: Node, parts: Parts, prefixes: list[str], latency_ns: float) -> Iterator[Edge]:
    """The edges of a device or of the infrastructure, at all of its places."""
    links = _links(owner)
    for node in _entries(owner, "edges", "ep1", "ep2", "link"):
        pairs = _pairs(node, [_end(node[end], parts) for end in ("ep1", "ep2")], len(prefixes))
        rate, given_ns = _link(node, links) if pairs else (1.0, None)
        for prefix, (one, other) in product(prefixes, pairs):
            yield Edge((prefix + one, prefix + other), rate, latency_ns if given_ns is None else given_ns)


def _end(node: Node, parts: Parts) -> list[str]:
    """The components that an end of an edge names, by the instance or device they are in: `nic[0]`, `card[0].port`."""
    if not isinstance(node.value, dict) or "component" not in node:
        node.problem("an end of an edge", "component, with instance between devices and device of one inside")
        return []
    outer = [node[key] for key in ("instance", "device") if key in node][:1]
    names, part = [""], _Part(1, 1, inside=parts)
    for step in (*outer, node["component"]):
        for text in step.text().split("."):
            picked = list(_picked(step, text, part.inside))
            names = [f"{name}.{own}.{number}" for name in names for own, number in picked]
            part = part.inside[picked[0][0]] if picked else _Part(1, 1)
    if part.device:
        node["component"].problem("this is a device", "device: with its name, and component: of what is in it")
    return [name[1:] for name in names]


def _picked(node: Node, text: str, parts: Parts) -> Iterator[tuple[str, int]]:
    """Which of so many are meant by `npu`, `npu[3]` or a slice `npu[0:4]`."""
    match = _SLICED.fullmatch(text)
    if not match or match["name"] not in parts:
        if parts:  # of what is in something that is not there nothing is said
            node.problem("there is no such part", closest(text, parts))
        return
    name, count = match["name"], parts[match["name"]].count
    bounds = [int(bound) if bound else None for bound in (match["slice"] or ":").split(":")]
    if len(bounds) == 1:  # a number alone, -1 for the last
        bounds = [int(match["slice"]), int(match["slice"]) + 1 or None]
    there = all(bound is None or abs(bound) <= count for bound in bounds[:2]) and bounds[2:] != [0]
    picked = range(count)[slice(*bounds)] if there else ()
    if not picked:
        node.problem("there are none of these numbers", f"some of 0 to {count - 1}, all of which are {name}[0:{count}]")
    for index in picked:
        yield name, index


def _pairs(node: Node, ends: list[list[str]], count: int) -> list[tuple[str, str]]:
    """Each with its counterpart, or each with all, once and never with itself; in every one of so many instances.

    Where neither component has a number or slice (`nic` and `port`) the first of each are joined, as far as they go.
    """
    first, second = ends
    all_with_all = "many2many" in node and node["many2many"].flag()  # as it was said before there were schemes
    scheme = node["scheme"].choice(SCHEMES) if "scheme" in node else SCHEMES[all_with_all]
    if scheme == "many2many":
        if len(first) * len(second) * count > MOST_PARTS:
            node.problem("too many edges", f"at most {MOST_PARTS:,}")
            return []
        return list({tuple(sorted(pair)): pair for pair in product(first, second) if pair[0] != pair[1]}.values())
    whole = not any("[" in node[end]["component"].text() for end in ("ep1", "ep2"))
    if len(first) != len(second) and first and second and not whole:  # of what is not there something is said
        node.problem("one2one joins as many as there are", f"{len(first)} at both ends", f"{len(second)}")
    return [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]


def _links(owner: Node) -> _Links:
    """Bytes per second and latency of the links of a device or of the infrastructure; None where nothing is said."""
    found: _Links = {}
    for link in _entries(owner, "links", "name"):
        physical = link["physical"] if "physical" in link else link  # noqa: SIM401 - a node is no mapping
        unit, value = _said(physical, "bandwidth")
        rate = value.number(above=True) * GIGABYTES[unit] * 1e9 if value and unit in GIGABYTES else None
        unit, value = _said(physical, "latency")
        latency_ns = value.number() * NANOSECONDS[unit] if value and unit in NANOSECONDS else None
        if value and unit not in NANOSECONDS:
            value.problem(f"no such unit of a latency: '{unit}'", closest(unit, NANOSECONDS))
        found[link["name"].text()] = rate, latency_ns
    return found


def _said(physical: Node, key: str) -> tuple[str, Node | None]:
    """The unit and value of a bandwidth or latency; None where nothing is said, noted where several things are."""
    said = [(unit, value) for unit, value in (physical[key].mapping() if key in physical else ()) if unit != "choice"]
    if len(said) > 1:
        physical[key].problem(f"{key} is said {len(said)} times", "one of them", ", ".join(unit for unit, _ in said))
    return said[0] if said else ("", None)


def _link(node: Node, links: _Links) -> tuple[float, float | None]:
    """Of an edge."""
    name = node["link"].text()
    rate, latency_ns = links.get(name, (None, None))
    if name not in links:
        node["link"].problem("there is no such link", closest(name, links))
    elif rate is None:
        expected = "physical: {bandwidth: {gigabits_per_second: 400}} among its links"
        node["link"].problem(f"link '{name}' has no bandwidth", expected)
    return rate or 1.0, latency_ns
