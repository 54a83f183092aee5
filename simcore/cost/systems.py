"""Clusters, software and kinds of run by name, and accelerators with the interconnect that is usual for them.

`software.json` beside this file describes the named, with sources. A software profile says what a framework makes of
measured kernels and collectives (`Software`, `Loop`); `like` names one whose other fields it shares. A cluster is
accelerators, a fabric and a software profile; what a cluster states of a software's fields is its site's. Fabrics are
in `simcore.system.collectives.nccl`, or the dimensions of a topology file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from simcore.compute.accelerators import Accelerator, accelerator, variant
from simcore.cost.cluster import Cluster, Software
from simcore.errors import InputError, closest
from simcore.library import table
from simcore.network.topology.links import rates_bytes_per_s
from simcore.network.topology.model import Topology
from simcore.system.collectives.nccl import FABRICS, Fabric

TABLE: Mapping[str, Any] = json.loads((Path(__file__).parent / "software.json").read_text(encoding="utf-8"))


def profile(table: Mapping[str, Mapping[str, Any]], name: str) -> Software:
    """A profile of a table, with what it shares with others."""
    stated = dict(table[name])
    base = profile(table, stated.pop("like")) if "like" in stated else Software()
    return _with(base, {field: value for field, value in stated.items() if field not in ("source", "on")})


def _with(base: Software, stated: Mapping[str, Any]) -> Software:
    """A profile with other values of the fields that are stated; those of kernels are a mapping of its own."""
    fields = dict(stated)
    if "kernels" in fields:
        fields["kernels"] = replace(base.kernels, **fields["kernels"])
    return replace(base, **fields)


def clusters(table: Mapping[str, Any] = TABLE) -> dict[str, Cluster]:
    """All clusters of a table of the form of `software.json`."""
    found = {}
    for name, stated in table["clusters"].items():
        site = dict(stated)
        device, fabric_name, software_name = (site.pop(key) for key in ("accelerator", "fabric", "software"))
        losses = table["runs"][site.pop("run", "benchmark")]["losses"]
        site.pop("source", None)
        made = _with(profile(table["software"], software_name), site)
        found[name] = Cluster(device, FABRICS[fabric_name], made, losses)
    return found


SOFTWARE: dict[str, Software] = {name: profile(TABLE["software"], name) for name in TABLE["software"]}
CLUSTERS = clusters()
RUNS: dict[str, float] = {name: run["losses"] for name, run in TABLE["runs"].items()}


_DESCRIPTIONS = table(__file__, "described.txt")


def fabric_of(hardware: str) -> Fabric:
    """The fabric a collective table's hardware text means; no NVLS where it says that NCCL was held to rings."""
    name = next(name for word, name in _DESCRIPTIONS if word == "-" or word in hardware)
    return replace(FABRICS[name], multicast_ranks=1 << 30) if "forced to ring" in hardware else FABRICS[name]


_USUAL = {
    start: (fabric, int(rate), float(link.strip("-") or 0))
    for start, fabric, rate, link in table(__file__, "usual.txt")
}
_ON_PCIE = "l40s", 800, 32.0  # of others with links of PCIe's rate
_FOR_PIECES = 100e9  # bytes/s of links to peers below which nobody sends collectives in pieces (PCIe)
_CARDS = re.compile(r"(?:(\d+) x )?(\d+) Gb(?:/s)?(?: \w+)? per node")
_RATE = re.compile(r"([\d.]+) TB/s")


def placed(
    device: str, software: str, *, count: int, per_node: int = 0, scale_out: str = "", remarks: str = ""
) -> Cluster:
    """Accelerators with the interconnect usual for them and some software.

    `scale_out` may state the network cards ("4 x 100 Gb RoCE per node"), `remarks` a memory rate ("2.4 TB/s") by which
    a kind of the device is told.
    """
    known = accelerator(device)
    rate = _RATE.search(remarks)
    if rate:
        known = variant(known, float(rate[1]) * 1e12)
    fabric, gigabits = _usual(known)
    fabric = fabric.in_nodes(count, per_node)
    cards = _CARDS.search(scale_out)
    if cards:
        fabric = fabric.with_cards(int(cards[1] or 1) * int(cards[2]) / gigabits)
    return Cluster(known.name, fabric, software_on(known, software))


def software_on(device: Accelerator, name: str = "") -> Software:
    """A software profile on a device, without a name the usual one, or what stands for it on the maker's devices.

    Nobody sends collectives in pieces over PCIe. InputError names the nearest.
    """
    known, name = TABLE["software"], name or TABLE["usual"].get(device.maker, "unknown")
    if name not in known:
        raise InputError.at(name, "no such software", expected=closest(name, known), found=repr(name))
    at = name
    while at and device.maker not in known[at].get("on", ()):
        at = known[at].get("like", "")
    found = SOFTWARE[known[at]["on"][device.maker] if at else name]
    return replace(found, tiles=False) if 0 < device.link_bytes_per_s < _FOR_PIECES else found


def usual_fabric(device: Accelerator) -> Fabric:
    """The interconnect usual for a device; InputError where none is known."""
    return _usual(device)[0]


def _usual(device: Accelerator) -> tuple[Fabric, int]:
    """The fabric, and the Gb/s of its network cards."""
    link = device.link_bytes_per_s * 1e-9
    found = next((entry for start, entry in _USUAL.items() if device.name.startswith(start)), None)
    if 0 < link < _FOR_PIECES * 1e-9 and not (found and found[2] == link):
        found = _ON_PCIE
    if found is None:
        hint = f"state a fabric ({', '.join(FABRICS)}) or a topology"
        raise InputError.at(device.name, "no interconnect is known", expected=", ".join(_USUAL), hint=hint)
    name, gigabits, told = found
    return FABRICS[name].with_links(link / told if told else 1.0), gigabits


_MESSAGE_S = 10e-6
_WAYS = 2  # the passes of a level, there and back


def fabric_of_topology(topology: Topology) -> Fabric:
    """Nodes are the first dimension; the slowest of the others is what they are joined by. Stated rates, not measured.

    InputError for graphs, wafers and twisted tori, which have no nodes.
    """
    if not topology.apart:
        message, found = "predictions count with nodes and what joins them", topology.name or topology.path
        raise InputError.at("topology", message, expected="a topology of dimensions", found=found)
    node, *others = topology.dims
    further = others or [node]
    own_bytes_per_s, *shared_bytes_per_s = (  # that an NPU sends when all do
        rate / dim.oversubscription for rate, dim in zip(rates_bytes_per_s(topology), topology.dims, strict=True)
    )
    slowest_bytes_per_s = min(shared_bytes_per_s, default=own_bytes_per_s)
    latency_s = max(dimension.latency_ns for dimension in further) * 1e-9
    return Fabric(
        topology.name,
        node.npus if others else prod(dimension.npus for dimension in topology.dims),
        "stated",
        own_bytes_per_s,
        slowest_bytes_per_s * node.npus,
        slowest_bytes_per_s,
        near_s=_WAYS * node.latency_ns * 1e-9,
        far_s=_WAYS * latency_s,
        hop_s=_MESSAGE_S + latency_s,
    )
