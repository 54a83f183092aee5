"""Topology files: ASTRA-sim 2.x's four lists in YAML, an explicit graph, or ASTRA-sim 1.0's "Hierarchical" JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from simcore.documents import Node, parse, read_text
from simcore.errors import InputError, Problems
from simcore.library import exists, names, resolve
from simcore.markup import is_markup
from simcore.network.topology.graph import GraphFabric, graph_dimension, read_graph
from simcore.network.topology.infragraph import is_infragraph, read_infragraph
from simcore.network.topology.kinds import FABRICS
from simcore.network.topology.model import Circuits, Dimension, Graph, Memory, Topology, Wafer
from simcore.network.topology.nccl import read_nccl
from simcore.network.topology.packet import is_packet_network, read_packet_network
from simcore.network.topology.ports import NAMED_ROUTINGS, PLAIN, PORT_KEYS, made_ports
from simcore.network.topology.twisted import can_twist, whole_dimension
from simcore.network.topology.wafer import WaferMesh
from simcore.units import parse_bytes_per_s, parse_ns
from simcore.workload.model import CollectiveKind

T = TypeVar("T")
GIGABYTE = {"decimal": 1e9, "binary": 2.0**30}
MAX_NPUS = 1 << 24
MOST_CELLS = 1 << 20  # of a wafer, all of whose links are looked at
"""What fits in memory with a few numbers for each NPU."""

MOST_SEED = (1 << 32) - 1  # hashes take so many bits of each end
GRAPH_KEYS = ("name", "description", "gigabyte", "routing", "routing_seed", "circuits")
Columns = Mapping[str, tuple[str, Callable[[Node], Any], Any]]
"""Key of a file -> field, how an entry is read, what it is without one; None where there must be one."""
COUNT, TIME = partial(Node.integer, minimum=1), partial(Node.quantity, parse=parse_ns)
RATE = partial(Node.quantity, parse=partial(parse_bytes_per_s, gigabyte=GIGABYTE["binary"]), above=True)
# Keys that only some kinds have.
DETAILS: Columns = {
    "oversubscription": ("oversubscription", partial(Node.number, minimum=1.0), 1.0),
    "groups": ("groups", Node.integer, 0),
    "routers": ("routers", Node.integer, 0),
    "global_links": ("global_links", COUNT, 1),
}
LEVELS = {"T": "Tile", "N": "Node", "P": "Pod"}  # short for ASTRA-sim 1.0's levels
HIERARCHICAL_KINDS = ["Ring", "FullyConnected", "Switch"]
# As early files call them, in capitals or not.
EARLY_KINDS = {"alltoall": "FullyConnected", "torus": "Ring", "torus2d": "Ring", "torus3d": "Ring", "switch": "Switch"}
# The keys of ASTRA-sim 1.0.
HIERARCHICAL: Columns = {
    "topologies-per-dim": ("kind", lambda item: item.choice(HIERARCHICAL_KINDS) or "Ring", None),
    "units-count": ("npus", COUNT, None),
    "link-bandwidth": ("bandwidth_bytes_per_s", RATE, None),
    "link-latency": ("latency_ns", TIME, None),
    "links-count": ("links", COUNT, None),
    "nic-latency": ("nic_latency_ns", TIME, 0.0),
    "router-latency": ("router_latency_ns", TIME, 0.0),
    "dimension-type": ("level", lambda item: LEVELS.get(item.text(), item.text()), ""),
}
MEMORY: Columns = {
    "hbm-latency": ("latency_ns", TIME, 0.0),
    "hbm-bandwidth": ("bandwidth_bytes_per_ns", partial(Node.number, above=True), 1.0),
    "hbm-scale": ("scale", Node.number, 0.0),
}


def load(name_or_path: str, *, gigabyte_forced: str = "", switched: bool = True) -> Topology:
    """Read a topology from a file or, given a name, from the shipped ones.

    It may name others that an optical switch makes of it, unless it is one of these itself (`switched` is false).

    `gigabyte_forced` ("decimal" or "binary") is what GB means in a bare bandwidth whatever the file says (the ASTRA-sim
    profiles force "binary"); decimal where neither says. ASTRA-sim 1.0's JSON always counts binary gigabytes.
    InputError says everything that is wrong, and where.
    """
    path = resolve(name_or_path, "topologies")
    text, of_nccl = read_text(path), is_markup(path)
    if of_nccl or is_packet_network(text):
        with Problems() as problems:
            graph = read_nccl(path) if of_nccl else read_packet_network(text, str(path), problems)
            _check_joined(Node("links", {}, 1, 1, str(path), text.splitlines(), problems), graph)
        return _of_graph(graph, path.stem, "as NCCL found it" if of_nccl else "as ns-3 reads it", str(path))
    with Problems() as problems:
        root = parse(text, str(path), problems)
        if "topologies-per-dim" in root or "topology-name" in root:
            topology = _hierarchical(root)
        elif is_infragraph(root):
            graph = read_infragraph(root)
            _check_joined(root, graph)
            topology = _of_graph(graph, _text(root, "name"), _text(root, "description"))
        elif "graph" in root:
            topology = _graph(root, path, gigabyte_forced)
        else:
            topology = _lists(root, gigabyte_forced)
        if "circuits" in root:
            again = partial(load, gigabyte_forced=gigabyte_forced, switched=False)
            circuits = _circuits(root["circuits"], topology, again if switched else None)
            more = [file for other in circuits.others for file in other.files] if circuits else []
            topology = replace(topology, circuits=circuits, beside=(*topology.beside, *more))
        if topology.npus > MAX_NPUS:
            counts = next((root[key] for key in ("npus_count", "units-count") if key in root), root)
            counts.problem(f"{topology.npus:,} NPUs are too many", f"at most {MAX_NPUS:,} in all")
    return replace(topology, name=topology.name or path.stem, path=str(path))


def _lists(root: Node, forced: str) -> Topology:
    """The four lists of ASTRA-sim 2.x with our optional keys."""
    columns = _columns(_gigabyte(root, forced))
    own = ("name", "description", "gigabyte", "wafer", "twisted", "routing_seed", "circuits")
    root.keys(required=_required(columns), optional=(*own, *columns, *PORT_KEYS))
    made = _some(root, [Dimension(**row) for row in _rows(root, columns, -1)])
    for index, dim in enumerate(made):
        _check_details(root, index, dim)
    made = _with_ports(root, made)
    wafer, twisted = _wafer(root, made), _twisted(root, made)
    seen = logical(wafer, made) if wafer else (whole_dimension(twisted),) if twisted else made
    return Topology(seen, _text(root, "name"), _text(root, "description"), wafer=wafer, twisted=twisted)


def _circuits(node: Node, own: Topology, read: Callable[[str], Topology] | None) -> Circuits | None:
    """What an optical switch makes of a topology: the files of other ones, by the collectives that take them."""
    node.keys(required=("delay",), optional=tuple(CollectiveKind))
    if read is None or own.wafer:
        node.problem("not to be switched", "a topology that is no wafer, and whose file no other one's circuits name")
    if node.problems.found or read is None:
        return None
    every, numbers = [own], []
    for kind, item in node.mapping():
        if kind == "delay":
            continue
        beside = Path(node.file).parent / item.text()
        here = exists(beside) and beside.is_file()
        if not here and item.value not in names("topologies"):
            item.problem("there is no such topology", "a file beside this one, or a shipped name")
            continue
        other = read(str(beside) if here else item.text())
        if [dim.npus for dim in other.dims] != [dim.npus for dim in own.dims]:
            sizes = (" x ".join(str(dim.npus) for dim in each.dims) for each in (own, other))
            item.problem("circuits join the same NPUs", *sizes)
        same = (at for at, each in enumerate(every) if _wires(each) == _wires(other))
        numbers.append((kind, next(same, len(every))))
        every += [other] * (numbers[-1][1] == len(every))
    return Circuits(round(node["delay"].quantity(parse=parse_ns)), tuple(every[1:]), tuple(numbers))


def _wires(topology: Topology) -> Topology:
    """A topology whatever it is called."""
    return replace(topology, name="", description="")


def _twisted(root: Node, dims: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The dimensions of a torus whose wrap-arounds are twisted, which only some can be."""
    if "twisted" not in root or not root["twisted"].flag() or root.problems.found:
        return ()
    place, sizes = root["twisted"], [dim.npus for dim in dims]
    if "wafer" in root or {dim.kind for dim in dims} != {"Ring"}:
        place.problem("only a torus can be twisted", "topology: [Torus, Torus] or [Torus, Torus, Torus]")
    elif not can_twist(sizes):
        found = " x ".join(map(str, sizes))
        place.problem("a twisted torus has sides of k and 2k", "4 x 8, 4 x 4 x 8 or 4 x 8 x 8, for example", found)
    elif len({(dim.ports, dim.links) for dim in dims}) > 1:
        place.problem("the dimensions of a twisted torus are alike", "the same links and ports in all of them")
    return dims


def _with_ports(root: Node, dims: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The dimensions with what the file says of their ports."""
    given = [key for key in (*PORT_KEYS, "routing") if key in root]
    columns = {
        key: _column(root, key, convert, len(dims)) if key in root else [other] * len(dims)
        for key, (convert, other) in PORT_KEYS.items()
    }
    seed = root["routing_seed"].integer(maximum=MOST_SEED) if "routing_seed" in root else 0
    if root.problems.found or not given:
        return dims
    found = []
    for index, (dim, *row) in enumerate(zip(dims, *columns.values(), strict=True)):
        fabric = FABRICS.get(dim.kind) if dim.kind in FABRICS.names() else GraphFabric
        routing = ("", 0) if dim.routing in fabric.routings else (dim.routing, seed)  # its kind may do it itself
        flying = dim.bandwidth_bytes_per_s * dim.parallel_links * dim.latency_ns * 1e-9
        places = {key: root[key].items[index] for key in given}
        ports = made_ports(dict(zip(columns, row, strict=True)), flying, routing, places)
        found.append(replace(dim, ports=ports))
    return tuple(found)


def _routing(item: Node) -> str:
    return str(item.choice([*NAMED_ROUTINGS]) or "minimal")


def _columns(gigabyte: float) -> Columns:
    """Of a file of lists."""
    rate = partial(Node.quantity, parse=partial(parse_bytes_per_s, gigabyte=gigabyte), above=True)
    return {
        "topology": ("kind", _kind, None),
        "npus_count": ("npus", COUNT, None),
        "bandwidth": ("bandwidth_bytes_per_s", rate, None),
        "latency": ("latency_ns", TIME, None),
        "links": ("links", COUNT, 1),
        "levels": ("level", Node.text, ""),
        "routing": ("routing", _routing, "minimal"),
        **DETAILS,
    }


def _required(columns: Columns) -> tuple[str, ...]:
    return tuple(key for key, (_, _, other) in columns.items() if other is None)


def _rows(root: Node, columns: Columns, count: int) -> list[dict[str, Any]]:
    """What `Dimension` or `Memory` is made of, for each dimension; the first column says how many, if not `count`."""
    found: dict[str, list[object]] = {}
    for key, (field, convert, other) in columns.items():
        found[field] = _column(root, key, convert, count, other)
        count = count if count >= 0 else len(found[field]) or -1
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=False)]


def _some(root: Node, dims: list[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions; without any, InputError for what is wrong with the file."""
    if not dims:
        raise InputError(root.problems.found)
    return tuple(dims)


def _kind(item: Node) -> str:
    """The kind of a dimension; a torus is made of rings and one dimension of it is a ring."""
    kind = str(item.choice(FABRICS.names()) or "Ring")
    return "Ring" if kind == "Torus" else kind


def _column(root: Node, key: str, convert: Callable[[Node], T], count: int, default: T | None = None) -> list[T]:
    """One value per dimension; `count` values are expected, any number >= 1 when it is negative."""
    if key not in root:
        return [] if default is None else [default] * count
    # Early files of ASTRA-sim 2.x name the kind of their one dimension without a list.
    items = [root[key]] if key == "topology" and isinstance(root[key].value, str) else root[key].sequence()
    values = [convert(item) for item in items]
    if not items and isinstance(root[key].value, list):
        root[key].problem(f"{key} has no entry", expected="one entry per dimension")
    elif items and 0 <= count != len(items):
        root[key].problem(f"{key} must have one entry per dimension", f"{count} entries", f"{len(items)} entries")
    return values


def _gigabyte(root: Node, forced: str) -> float:
    """How many bytes a GB of this file is."""
    stated = root["gigabyte"].choice(list(GIGABYTE)) if "gigabyte" in root else None
    return GIGABYTE[forced or stated or "decimal"]


def _text(root: Node, key: str) -> str:
    return root[key].text() if key in root else ""


def _check_details(root: Node, index: int, dim: Dimension) -> None:
    """The keys that only some kinds have stand with those kinds, and their routers can be filled evenly."""
    place = root["npus_count"].items[index] if "npus_count" in root else root
    for key, (field, _, default) in DETAILS.items():
        kinds = [name for name in FABRICS.names() if key in FABRICS.get(name).keys]
        if getattr(dim, field) != default and dim.kind not in kinds:
            entries = root[key].items if key in root else []
            said = entries[index] if index < len(entries) else place
            expected = f"{default} for this dimension, or {', '.join(kinds)}"
            said.problem(f"{key} does not apply to a {dim.kind}", expected)
    if "groups" in FABRICS.get(dim.kind).keys and (dim.groups < 1 or dim.routers < 1):
        place.problem(f"a {dim.kind} needs groups and routers", "groups: [g] and routers: [r], both >= 1")
    elif dim.npus % (multiple := max(dim.groups, 1) * max(dim.routers, 1)):
        shape = f"{dim.groups} groups of {dim.routers} routers" if dim.groups else f"{dim.routers} leaves"
        place.problem(f"the NPUs must fill {shape} evenly", f"a multiple of {multiple}")


def _wafer(root: Node, dims: tuple[Dimension, ...]) -> Wafer | None:
    """Dead NPUs, dead links and spare rows of a Mesh x Mesh."""
    if "wafer" not in root:
        return None
    node = root["wafer"]
    node.keys(optional=("dead_npus", "dead_links", "spare_rows"))
    if [dim.kind for dim in dims] != ["Mesh", "Mesh"]:
        node.problem("a wafer needs two dimensions of kind Mesh", "topology: [Mesh, Mesh]")
        return None
    columns, rows = dims[0].npus, dims[1].npus
    if columns * rows > MOST_CELLS:
        node.problem(f"a wafer has at most {MOST_CELLS:,} NPUs", found=f"{columns * rows:,} NPUs")
        return None
    if dims[0].ports != dims[1].ports or dims[0].ports != PLAIN:
        node.problem("links of a wafer have no queues", f"no {', '.join(key for key in PORT_KEYS if key in root)}")
    npus = [item.integer(maximum=columns * rows - 1) for item in node.listed("dead_npus")]
    links = [_dead_link(item, columns, rows) for item in node.listed("dead_links")]
    spare = node["spare_rows"].integer() if "spare_rows" in node else 0
    if spare >= rows:
        node["spare_rows"].problem("no row is left to work", f"fewer than {rows} spare rows")
    dead = tuple(sorted(set(npus)))
    wafer = Wafer((dims[0], dims[1]), dead, tuple(sorted({link for link in links if link})), spare)
    _check_wafer(node, wafer)
    return wafer


def _check_wafer(node: Node, wafer: Wafer) -> None:
    """Enough spare rows, somebody alive, and everybody reachable."""
    if node.problems.found:
        return
    if wafer.spare_rows:
        for column, count in sorted(Counter(npu % wafer.columns for npu in wafer.dead_npus).items()):
            if count > wafer.spare_rows:  # a dead NPU is replaced within its column
                expected = f"spare_rows of at least {count}, or none"
                node["spare_rows"].problem(f"column {column} has {count} dead NPUs", expected)
    elif len(wafer.dead_npus) == wafer.columns * wafer.rows:
        node["dead_npus"].problem("no NPU is left to work", "at least one live NPU")
    if not node.problems.found and len(lost := (mesh := WaferMesh(wafer)).unreachable()):
        cut_off = f"NPU {mesh.physical[lost[0]]} cut off"
        node.problem("what is dead cuts the wafer in two", "a way between any two NPUs", cut_off)


def logical(wafer: Wafer, dims: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """What a workload sees of a wafer: the mesh without its spare rows, or the live NPUs when no rectangle is left."""
    column, row = dims
    if wafer.dead_npus and not wafer.spare_rows:
        slowest = min(dim.bandwidth_bytes_per_s for dim in dims)
        live = wafer.columns * wafer.rows - len(wafer.dead_npus)
        return (Dimension("Wafer", max(live, 1), slowest, max(dim.latency_ns for dim in dims)),)
    return column, replace(row, npus=max(wafer.rows - wafer.spare_rows, 1))


def _dead_link(item: Node, columns: int, rows: int) -> tuple[int, int] | None:
    """Two neighbours of the mesh, the smaller id first; a broken link is broken in both directions."""
    ends = [end.integer(maximum=columns * rows - 1) for end in item.sequence()]
    if len(ends) != 2:
        item.problem("a link has two ends", "[a, b]", f"{len(ends)} values")
        return None
    low, high = sorted(ends)
    in_row = high - low == 1 and high % columns > 0
    if not (in_row or high - low == columns):
        item.problem(f"there is no link between NPUs {low} and {high}", "two neighbours of the mesh", str(ends))
        return None
    return low, high


def _graph(root: Node, path: Path, forced: str) -> Topology:
    """Links listed one by one in a file of their own, found next to this one."""
    root.keys(required=("graph",), optional=(*GRAPH_KEYS, *PORT_KEYS))
    gigabyte = _gigabyte(root, forced)
    file = path.parent / root["graph"].text()
    if not file.is_file():
        root["graph"].problem("there is no such graph file", "a path relative to this file", str(file))
        raise InputError(root.problems.found)
    graph = read_graph(file, gigabyte, root.problems)
    _check_joined(root["graph"], graph)
    topology = _of_graph(graph, _text(root, "name"), _text(root, "description"))
    (dim,), (routing, *_) = topology.dims, [*_column(root, "routing", _routing, 1, "minimal"), "minimal"]
    return replace(topology, dims=_with_ports(root, (replace(dim, routing=routing),)), beside=(str(file),))


def _check_joined(place: Node, graph: Graph) -> None:
    if not graph.npus:
        raise InputError(place.problems.found)
    if not place.problems.found and len(lost := GraphFabric(graph).unreachable()):
        place.problem(
            "the graph is not connected", "a way between any two NPUs", f"no way for {graph.names[lost[0]]!r}"
        )


def _of_graph(graph: Graph, name: str, description: str, path: str = "") -> Topology:
    return Topology((graph_dimension(graph),), name, description, graph=graph, path=path)


def _hierarchical(root: Node) -> Topology:
    """ASTRA-sim 1.0: the same lists under other names, with NIC, router and memory terms."""
    _refuse_early(root)
    # Files for ASTRA-sim between 1.0 and 2.0 leave out the only name that there is.
    required = ("dimensions-count", *_required(HIERARCHICAL))
    root.keys(required=required, optional=("topology-name", *HIERARCHICAL, *MEMORY))
    if "topology-name" in root:
        root["topology-name"].choice(["Hierarchical"])
    count = root["dimensions-count"].integer(1) if "dimensions-count" in root else -1
    rows = _rows(root, HIERARCHICAL, count)
    memories = _rows(root, MEMORY, len(rows) if count < 0 else count)
    dims = [
        Dimension(**row, links_per_npu=True, memory=Memory(**memory))
        for row, memory in zip(rows, memories, strict=False)
    ]
    return Topology(_some(root, dims))


def _early_sizes(root: Node) -> list[Node]:
    """How many NPUs each dimension has, under the names that this had."""
    if "nodes-per-dim" in root and "dims-count" in root:
        return [root["nodes-per-dim"]] * root["dims-count"].integer(1)
    return root.listed("units-count") or root.listed("packages-counts")


def _refuse_early(root: Node) -> None:
    """InputError for a file from before links were counted, with the lists that it lacks: nobody says what it meant."""
    sizes = [item.value for item in _early_sizes(root) if isinstance(item.value, int)]
    if "links-count" in root or not sizes:
        return
    named = [item.text() for item in root.listed("topologies-per-dim")] or _text(root, "topology-name").split("_")
    kinds = [EARLY_KINDS.get(kind.lower(), kind) for kind in named * (len(sizes) if len(named) == 1 else 1)]
    counts = [{"Ring": 2, "FullyConnected": size - 1}.get(kind, 1) for kind, size in zip(kinds, sizes, strict=False)]
    units = "" if "units-count" in root else f'"units-count": {sizes}, '
    hint = f'later files write {units}"topologies-per-dim": {json.dumps(kinds)}, "links-count": {counts}'
    wanted, found = "links-count: links of an NPU in each dimension", "a network file of an early ASTRA-sim 1.0"
    raise InputError.at(root.location, "the key 'links-count' is missing", expected=wanted, found=found, hint=hint)
