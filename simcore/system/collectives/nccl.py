"""How long NCCL takes for a collective: the least of what its algorithms and protocols take, each a straight line.

A line is ``fixed + per_level * levels + wire / rate``: `wire` is what one rank sends (2 (n-1)/n of an all-reduce's
buffer), `levels` is log2 of the ranks in a node or of the nodes. LL-like lines have the small fixed part, the Simple
ring, the double tree and NVLS the high rate; which one wins at a size is NCCL's own choice by its tuning table
(reference: nccl src/graph/tuning.cc), here with rates measured on the system instead of the table's.

Inside a node of a `device` that nccl-tests was run on, the time is what the measured tables say (docs/kernels.md), and
`lone_s`: the tables' calls follow each other without a gap, a lone one is launched and waits for its last peer.

The lines' constants are fitted by `simcore.cost.published.calibrate_collectives`, per system, to published curves of
1 MiB and more. Systems without a curve (V100, MI300X, H100 across nodes, one B200 node) take their stated peak bus
bandwidth and the latencies of the nearest fitted system. The low-latency tree between nodes is NCCL's own estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2

import numpy as np

from simcore.errors import InputError, closest
from simcore.hashed import Hashed
from simcore.workload.model import CollectiveKind

__all__ = ["FABRICS", "Choice", "Fabric", "Line", "choose", "collective_s", "fabric", "point_to_point_s"]


@dataclass(frozen=True, slots=True)
class Line:
    """One algorithm with one protocol: fixed seconds, seconds per level, and bytes per second on the wire of a rank."""

    algorithm: str
    fixed_s: float
    per_level_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Fabric(Hashed):
    """The interconnect of a system as collectives see it.

    `node`: lines inside a node of `node_ranks`; `across`: lines between nodes when every rank of a node takes part,
    their rate shared by all of a node's network cards; `nic_bytes_per_s`: what one card sustains; `hop_s`: a point-
    to-point message. `card_ranks`: the ranks the curves of `across` were measured with, where a node holds more.
    `device`: whose measured tables say what a collective inside a node takes; "" = the lines do. `lone_s`: launch and
    last peer of a lone call (published calls one by one, H200 and A100, over nccl-tests' back to back);
    `over_measured`: how long the rest takes over the tables' time, 1 where links are as there.
    """

    __hash__ = Hashed.__hash__

    name: str
    node_ranks: int
    node: tuple[Line, ...]
    across: tuple[Line, ...]
    nic_bytes_per_s: float
    hop_s: float = 10e-6
    multicast_ranks: int = 6
    card_ranks: int = 0
    device: str = ""
    lone_s: float = 20e-6
    over_measured: float = 1.0

    def with_cards(self, share: float) -> Fabric:
        """With network cards of so many times the rate."""
        return replace(self, across=_share(self.across, share), nic_bytes_per_s=self.nic_bytes_per_s * share)

    @property
    def sharing_ranks(self) -> int:
        """Ranks of a node whose cards together reach the rates of `across`."""
        return self.card_ranks or self.node_ranks


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL takes for a collective: the algorithm, the protocol, how long it takes, what a rank sends."""

    algorithm: str
    protocol: str
    seconds: float
    wire_bytes: float

    def __str__(self) -> str:
        return f"{self.algorithm} {self.protocol}"


def choose(kind: CollectiveKind, size_bytes: float, ranks: int, per_node: int, system: Fabric) -> Choice:
    """The fastest line for a collective of `size_bytes` (the full buffer) on `ranks`, `per_node` in each node.

    >>> str(choose(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, FABRICS["hgx-h100"]))
    'NVLS Simple'
    >>> str(choose(CollectiveKind.ALL_REDUCE, 1 << 12, 64, 8, FABRICS["hgx-h100"]))
    'tree LL'
    """
    passes, wire = _WIRE[kind](ranks)
    if ranks <= 1 or (size_bytes <= 0 and wire):
        return Choice("none", "none", 0.0, 0.0)
    per_node = max(1, min(per_node, ranks))
    nodes = -(-ranks // per_node)
    lines, levels, share = system.across, log2(nodes), per_node / system.sharing_ranks
    share = min(share, _ring_rate(system.node) / _ring_rate(system.across))
    if nodes == 1:
        lines, levels, share = _usable(system, ranks, kind), log2(ranks), 1.0
    elif kind is CollectiveKind.ALL_TO_ALL:
        return Choice("pairwise", "Simple", _exchange_s(size_bytes, ranks, per_node, system), wire * size_bytes)

    def seconds(line: Line) -> float:
        fixed_s = passes * (line.fixed_s + line.per_level_s * levels)
        return fixed_s + wire * size_bytes / (line.bytes_per_s * share)

    best = min(lines, key=seconds)
    name, _, protocol = best.algorithm.partition("-")
    algorithm = _ALGORITHMS.get(kind, name)
    taken_s = seconds(best)
    if nodes == 1 and system.device and max(ranks, system.multicast_ranks) <= _MEASURED_RANKS:
        taken_s = system.lone_s + system.over_measured * _measured_s(kind, size_bytes, ranks, system.device)
    return Choice(_WRITTEN.get(algorithm, algorithm), _WRITTEN[protocol], taken_s, wire * size_bytes)


_MEASURED_RANKS = 8  # as NCCL chooses by itself: a system that may not use NVLS is left to its lines


def _measured_s(kind: CollectiveKind, size_bytes: float, ranks: int, device: str) -> float:
    """What nccl-tests shows for it, or for the one that sends as it does; beyond its sizes at the last rate."""
    from simcore.compute.accelerators import accelerator  # few runs need tables
    from simcore.compute.duration import collective_curve

    sizes, seconds = collective_curve(_MEASURED_AS[kind], ranks, accelerator(device))
    beyond = max(0.0, size_bytes - float(sizes[-1])) * float(seconds[-1] - seconds[-3]) / float(sizes[-1] - sizes[-3])
    within = np.interp(np.log(max(size_bytes, 1.0)), np.log(sizes), np.log(seconds))
    return float(np.exp(within)) + beyond


_MEASURED_AS = {
    CollectiveKind.ALL_REDUCE: "all_reduce",
    CollectiveKind.ALL_GATHER: "all_gather",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter",
    CollectiveKind.ALL_TO_ALL: "all_to_all",
    CollectiveKind.BROADCAST: "all_gather",
    CollectiveKind.REDUCE: "reduce_scatter",
    CollectiveKind.GATHER: "all_to_all",
    CollectiveKind.SCATTER: "all_to_all",
    CollectiveKind.BARRIER: "all_reduce",
}


@lru_cache(maxsize=65536)
def collective_s(kind: CollectiveKind, size_bytes: float, ranks: int, per_node: int, system: Fabric) -> float:
    """Seconds of what `choose` chooses.

    >>> one = collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, FABRICS["dgx-a100"])
    >>> round(one * 1e3, 1)
    8.4
    """
    return choose(kind, size_bytes, ranks, per_node, system).seconds


def _exchange_s(size_bytes: float, ranks: int, per_node: int, system: Fabric) -> float:
    """An all-to-all across nodes: what leaves a node goes over each rank's own card, the rest meanwhile inside."""
    away = size_bytes * (ranks - per_node) / ranks / system.nic_bytes_per_s
    near = size_bytes * per_node / ranks / _ring_rate(system.node)
    return max(away, near) + system.hop_s * log2(ranks)


def point_to_point_s(size_bytes: float, system: Fabric, *, same_node: bool) -> float:
    """Seconds of one message between two ranks."""
    rate = max(line.bytes_per_s for line in system.node) if same_node else system.nic_bytes_per_s
    return system.hop_s + size_bytes / rate


def _ring_rate(lines: tuple[Line, ...]) -> float:
    """The best rate without reduction in the switch."""
    return max(line.bytes_per_s for line in lines if line.algorithm != "nvls")


def _usable(system: Fabric, ranks: int, kind: CollectiveKind) -> tuple[Line, ...]:
    """NVLS needs enough ranks to pay, and reduces only (measured gathers and scatters stayed on the ring)."""
    multicast = kind is CollectiveKind.ALL_REDUCE and ranks >= system.multicast_ranks
    return tuple(line for line in system.node if multicast or line.algorithm != "nvls")


# Kind -> ranks -> (share of an all-reduce's latency, bytes a rank sends per byte of buffer).
_WIRE: dict[CollectiveKind, Callable[[int], tuple[float, float]]] = {
    CollectiveKind.ALL_REDUCE: lambda n: (1.0, 2 * (n - 1) / n),
    CollectiveKind.ALL_GATHER: lambda n: (0.5, (n - 1) / n),
    CollectiveKind.REDUCE_SCATTER: lambda n: (0.5, (n - 1) / n),
    CollectiveKind.ALL_TO_ALL: lambda n: (0.5, (n - 1) / n),
    CollectiveKind.BROADCAST: lambda n: (0.5, 1.0),
    CollectiveKind.REDUCE: lambda n: (0.5, 1.0),
    CollectiveKind.GATHER: lambda n: (0.5, (n - 1) / n),
    CollectiveKind.SCATTER: lambda n: (0.5, (n - 1) / n),
    CollectiveKind.BARRIER: lambda n: (1.0, 0.0),
}

# NCCL's trees and NVLS (as measured) only all-reduce; an all-to-all and what has a root are sends and receives.
_ALGORITHMS: dict[CollectiveKind, str] = {
    **dict.fromkeys((CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER), "ring"),
    **dict.fromkeys((CollectiveKind.BROADCAST, CollectiveKind.REDUCE), "ring"),
    **dict.fromkeys((CollectiveKind.GATHER, CollectiveKind.SCATTER), "direct"),
    CollectiveKind.ALL_TO_ALL: "pairwise",
}
_WRITTEN = {"nvls": "NVLS", "ll": "LL", "ll128": "LL128", "simple": "Simple", "": "Simple"}


def _lines(*rows: tuple[str, float, float, float]) -> tuple[Line, ...]:
    """Lines from rows of (algorithm, fixed us, us per level, GB/s)."""
    return tuple(Line(name, fixed * 1e-6, level * 1e-6, rate * 1e9) for name, fixed, level, rate in rows)


def _share(lines: tuple[Line, ...], share: float) -> tuple[Line, ...]:
    """The lines of nodes with fewer or slower network cards."""
    return tuple(replace(line, bytes_per_s=line.bytes_per_s * share) for line in lines)


_A100_NODE = _lines(("ring-ll128", 48.5, 5.0, 173.0), ("ring-simple", 91.0, 4.6, 229.0))
_A100_ACROSS = _lines(
    ("tree-ll", 35.0, 10.0, 10.0), ("tree-ll128", 47.0, 34.4, 106.0), ("ring-simple", 1.0, 120.0, 127.0)
)
_H100_NODE = _lines(("ring-ll128", 40.0, 1.2, 306.0), ("ring-simple", 64.8, 5.5, 376.0), ("nvls", 86.0, 1.2, 476.0))
_H100_ACROSS = _lines(
    ("tree-ll", 35.0, 10.0, 10.0), ("tree-ll128", 47.0, 34.4, 180.0), ("ring-simple", 1.0, 120.0, 340.0)
)
_V100_NODE = _lines(("ring-ll", 25.0, 4.0, 30.0), ("ring-ll128", 48.5, 5.0, 90.0), ("ring-simple", 91.0, 4.6, 134.0))
_MI300X_NODE = _lines(
    ("ring-ll", 25.0, 4.0, 40.0), ("ring-ll128", 60.0, 5.0, 150.0), ("ring-simple", 120.0, 5.0, 313.0)
)
_B200_NODE = _lines(
    ("ring-ll", 25.0, 4.0, 100.0),
    ("ring-ll128", 40.0, 1.2, 420.0),
    ("ring-simple", 64.8, 5.5, 682.0),
    ("nvls", 86.0, 1.2, 838.0),
)
_NVL72_NODE = _lines(
    ("ring-ll", 25.0, 4.0, 100.0),
    ("ring-ll128", 40.0, 1.2, 420.0),
    ("ring-simple", 64.8, 5.5, 680.0),
    ("nvls", 86.0, 1.2, 850.0),
)
_B200_ACROSS = _lines(("tree-ll128", 368.0, 1.0, 190.0), ("ring-simple", 543.0, 1.0, 387.0))

_PCIE_NODE = _lines(("ring-ll", 25.0, 4.0, 8.0), ("ring-simple", 60.0, 5.0, 22.0))


def _torus(links: int, gigabytes_per_s: float) -> tuple[Line, ...]:
    """Rings along all dimensions at once, each link at the rate that the vendor states for one direction."""
    return _lines(("ring-simple", 10.0, 1.0, links * gigabytes_per_s))


FABRICS: dict[str, Fabric] = {
    entry.name: entry
    for entry in (
        Fabric("azure-a100", 8, _A100_NODE, _A100_ACROSS, 15.9e9, device="a100"),
        Fabric(
            "dgx-a100",
            8,
            _lines(("ring-ll128", 68.3, 4.5, 188.6), ("ring-simple", 406.0, 1.8, 236.9)),
            _A100_ACROSS,
            15.9e9,
            device="a100",
        ),
        Fabric("a100-800g", 8, _A100_NODE, _share(_A100_ACROSS, 1 / 2), 15.9e9 / 2, device="a100"),
        Fabric("jean-zay", 8, _A100_NODE, _share(_A100_ACROSS, 1 / 4), 15.9e9 / 4, device="a100"),
        Fabric("hgx-h100", 8, _H100_NODE, _H100_ACROSS, 42.5e9, device="h100"),
        Fabric("hgx-h200", 8, _H100_NODE, _H100_ACROSS, 42.5e9, device="h200"),
        Fabric("hgx-v100", 8, _V100_NODE, _A100_ACROSS, 11.0e9),
        Fabric("mi300x", 8, _MI300X_NODE, _H100_ACROSS, 42.5e9),
        Fabric("efa-b200", 8, _B200_NODE, _B200_ACROSS, 48.4e9, device="b200"),
        # Boards joined by NVLink bridges; boards on PCIe 4; Gaudi's and Google's own links at their stated rates, a
        # "node" of which is the slice that they join.
        Fabric("nvl-bridge", 4, _H100_NODE, _share(_H100_ACROSS, 1 / 2), 42.5e9, device="h200"),
        Fabric("l40s", 4, _PCIE_NODE, _share(_H100_ACROSS, 1 / 4), 21.2e9),
        Fabric("gaudi2", 8, _MI300X_NODE, _share(_A100_ACROSS, 1.5), 30.0e9),
        Fabric("tpu-v4", 4096, _torus(6, 45.0), _torus(6, 3.1), 3.1e9),
        Fabric("tpu-v5e", 256, _torus(4, 45.0), _torus(4, 3.1), 3.1e9),
        Fabric("tpu-v5p", 8960, _torus(6, 90.0), _torus(6, 6.2), 6.2e9),
        Fabric("tpu-v6e", 256, _torus(4, 90.0), _torus(4, 6.2), 6.2e9),
        Fabric("nvl72", 64, _NVL72_NODE, _B200_ACROSS, 48.4e9, card_ranks=8),
    )
}


def fabric(name: str) -> Fabric:
    """The system called `name`; InputError names the nearest."""
    if name not in FABRICS:
        raise InputError.at(name, "no such fabric", expected=closest(name, FABRICS), found=repr(name))
    return FABRICS[name]
