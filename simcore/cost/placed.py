"""What joins accelerators: the interconnect usual for them, domains, network cards; or a topology file's dimensions."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from simcore.compute.accelerators import Accelerator, accelerator, variant
from simcore.cost.cluster import Cluster, Software
from simcore.cost.systems import TABLE
from simcore.cost.systems import software as profile_of
from simcore.errors import InputError
from simcore.library import table
from simcore.network.topology.links import rates_bytes_per_s
from simcore.network.topology.model import Topology
from simcore.system.collectives.nccl import FABRICS, Fabric

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
    a kind of the device is told. NVL72 is cut into domains of 72 where these divide the accelerators, else of 64.
    """
    known = accelerator(device)
    rate = _RATE.search(remarks)
    if rate:
        known = variant(known, float(rate[1]) * 1e12)
    fabric, gigabits = _usual(known)
    if fabric.name == "nvl72":
        ranks = 72 if count % 72 == 0 or count < fabric.node_ranks else 64
        fabric = replace(fabric, node_ranks=ranks)
    elif per_node and not fabric.name.startswith("tpu"):
        fabric = replace(fabric, node_ranks=per_node)
    cards = _CARDS.search(scale_out)
    if cards:
        fabric = fabric.with_cards(int(cards[1] or 1) * int(cards[2]) / gigabits)
    return Cluster(known.name, fabric, software_on(known, software))


def software_on(device: Accelerator, name: str = "") -> Software:
    """A software profile on a device, without a name the usual one; nobody sends collectives in pieces over PCIe."""
    profile = profile_of(name or TABLE["usual"].get(device.maker, "unknown"), device.maker)
    return replace(profile, tiles=False) if 0 < device.link_bytes_per_s < _FOR_PIECES else profile


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

    Raises
    ------
    InputError
        For graphs, wafers and twisted tori, which have no nodes.
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
