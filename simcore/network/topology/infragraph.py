"""InfraGraph files (YAML, JSON): devices of components, instances of devices, edges between both, as a graph of links.

Components of choice `npu` or `xpu` are NPUs, by instance; all others are nodes on the way. Every link that an edge uses
needs a bandwidth. Latencies are not in the format: ours. Source: github.com/Keysight/infragraph (MIT licence).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

from simcore.documents import Node
from simcore.errors import closest
from simcore.network.topology.model import Edge, Graph, assemble

SHARES = {"bits_per_second": 0.125, "bytes_per_second": 1.0}
GIGABYTES = {f"{prefix}{unit}": share for prefix in ("giga", "g_") for unit, share in SHARES.items()}
MOST_PARTS = 1 << 20
"""Components of all instances, and edges that one entry may stand for."""
INSIDE_NS, BETWEEN_NS = 250.0, 500.0
SCHEMES = ["one2one", "many2many"]
_SLICED = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<slice>-?\d*(:-?\d*){0,2})\])?")

Counts = Mapping[str, int]
"""Component of a device, or instance of the infrastructure -> how many there are."""


def is_infragraph(root: Node) -> bool:
    """Whether a document is one of these."""
    return "devices" in root and "instances" in root


def read_infragraph(root: Node) -> Graph:
    """The graph; what is wrong is noted with its place."""
    devices = {node["name"].text(): node for node in _entries(root, "devices", "name", "components")}
    instances: dict[str, tuple[Node, int]] = {}
    for node in _entries(root, "instances", "name", "device"):
        if node["device"].text() not in devices:
            node["device"].problem("there is no such device", closest(node["device"].text(), devices))
        else:
            count = node["count"].integer(1, MOST_PARTS) if "count" in node else 1
            instances[node["name"].text()] = devices[node["device"].text()], count
    parts = sum(count * total for device, count in instances.values() for total, _ in _components(device).values())
    if parts > MOST_PARTS:
        root["instances"].problem("too many components", f"at most {MOST_PARTS:,} in all")
    if root.problems.found:
        return Graph(0, (), (), (), (), ())
    kinds = {
        f"{name}.{number}.{part}.{index}": npu
        for name, (device, count) in instances.items()
        for number in range(count)
        for part, (total, npu) in _components(device).items()
        for index in range(total)
    }
    edges = [edge for name, (device, count) in instances.items() for edge in _inside(device, name, count)]
    edges += _between(root, instances)
    if not any(kinds.values()):
        root.problem("there is no NPU", "a component with choice: npu or xpu")
    return assemble(kinds, edges, directed=False)


def _entries(owner: Node, key: str, *required: str) -> Iterator[Node]:
    """The entries of a list that have what is required; what others lack is noted."""
    for node in owner[key].sequence() if key in owner else ():
        missing = [name for name in required if not isinstance(node.value, dict) or name not in node]
        if missing:
            node.problem(f"an entry of {key} needs {', '.join(missing)}", ", ".join(required))
        else:
            yield node


def _edges(owner: Node, *required: str) -> Iterator[Node]:
    """The edges that have what is required at both ends."""
    for node in _entries(owner, "edges", "ep1", "ep2", "link"):
        ends = [node[end] for end in ("ep1", "ep2")]
        for end in (end for end in ends if "device" in end):
            end["device"].problem("devices inside a device are not read", "components of the device itself")
        lost = [end for end in ends if not isinstance(end.value, dict) or any(name not in end for name in required)]
        for end in lost:
            end.problem("an end of an edge", ", ".join(required))
        if not lost:
            yield node


def _components(device: Node) -> dict[str, tuple[int, bool]]:
    """Of every component of a device how many there are, and whether they are NPUs."""
    found = {}
    for part in _entries(device, "components", "name"):
        choice = next((part[key].text() for key in ("choice", "type") if key in part), "")
        count = part["count"].integer(1, MOST_PARTS) if "count" in part else 1
        found[part["name"].text()] = count, choice in {"npu", "xpu"}
    return found


def _inside(device: Node, name: str, count: int) -> Iterator[Edge]:
    """The edges of every instance of a device."""
    totals = {part: total for part, (total, _) in _components(device).items()}
    rates = _rates(device)
    for node in _edges(device, "component"):
        ends = [
            [f"{part}.{index}" for part, index in _picked(node[end]["component"], totals)] for end in ("ep1", "ep2")
        ]
        for number, pair in product(range(count), _pairs(node, ends, count)):
            yield Edge((f"{name}.{number}.{pair[0]}", f"{name}.{number}.{pair[1]}"), _rate(node, rates), INSIDE_NS)


def _between(root: Node, instances: Mapping[str, tuple[Node, int]]) -> Iterator[Edge]:
    """The edges between instances."""
    rates, counts = _rates(root), {name: count for name, (_, count) in instances.items()}
    for node in _edges(root, "instance", "component"):
        ends: list[list[str]] = []
        for end in ("ep1", "ep2"):
            chosen = list(_picked(node[end]["instance"], counts))
            device = instances[chosen[0][0]][0] if chosen else None
            totals = {part: total for part, (total, _) in _components(device).items()} if device else {}
            parts = list(_picked(node[end]["component"], totals))
            ends.append([f"{name}.{number}.{part}.{index}" for name, number in chosen for part, index in parts])
        for pair in _pairs(node, ends):
            yield Edge(pair, _rate(node, rates), BETWEEN_NS)


def _picked(node: Node, totals: Counts) -> Iterator[tuple[str, int]]:
    """Which of so many are meant by `npu`, `npu[3]` or a slice `npu[0:4]`."""
    match = _SLICED.fullmatch(node.text())
    if not match or match["name"] not in totals:
        node.problem("there is no such part", closest(node.text(), totals))
        return
    everyone, wanted = range(totals[match["name"]]), match["slice"]
    if wanted and ":" not in wanted and int(wanted) not in everyone:
        node.problem("there is none of this number", f"0 to {len(everyone) - 1}")
        return
    bounds = [int(bound) if bound else None for bound in wanted.split(":")] if wanted else []
    picked = everyone[slice(*bounds)] if len(bounds) > 1 else [everyone[bound] for bound in bounds if bound is not None]
    for index in picked if bounds else everyone:
        yield match["name"], index


def _pairs(node: Node, ends: list[list[str]], count: int = 1) -> list[tuple[str, str]]:
    """Each with its counterpart, or each with all but itself, once; in every one of so many instances."""
    first, second = ends
    scheme = node["scheme"].choice(SCHEMES) if "scheme" in node else "one2one"
    if scheme == "many2many":
        if len(first) * len(second) * count > MOST_PARTS:
            node.problem("too many edges", f"at most {MOST_PARTS:,}")
            return []
        return list({tuple(sorted(pair)): pair for pair in product(first, second) if pair[0] != pair[1]}.values())
    if len(first) != len(second):
        node.problem("one2one joins as many as there are", f"{len(first)} at both ends", f"{len(second)}")
    return list(zip(first, second, strict=False))


def _rates(owner: Node) -> dict[str, float | None]:
    """Bytes per second of the links of a device or of the infrastructure; None where nothing is said."""
    found: dict[str, float | None] = {}
    for link in _entries(owner, "links", "name"):
        physical = link["physical"] if "physical" in link else link  # noqa: SIM401 - a node is no mapping
        said = physical["bandwidth"].mapping() if "bandwidth" in physical else ()
        rates = [value.number(above=True) * GIGABYTES[key] * 1e9 for key, value in said if key in GIGABYTES]
        found[link["name"].text()] = rates[0] if rates else None
    return found


def _rate(node: Node, rates: Mapping[str, float | None]) -> float:
    """Of the link of an edge."""
    name = node["link"].text()
    rate = rates.get(name)
    if rate is None:
        expected = "physical: {bandwidth: {gigabits_per_second: 400}} among its links"
        node.problem(f"link '{name}' has no bandwidth", expected)
    return rate or 1.0
