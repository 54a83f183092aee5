"""How long NCCL takes for a collective: the least of what its algorithms and protocols take by its own cost model.

A time is ``base + near steps * near + far steps * far + bytes / rate``. Bases, latencies of a step over NVLink and over
the network, and shares of a ring's rate are NCCL's (src/graph/tuning.cc, 2.27); a system's rates are what its rings and
NVLS reach, its latency is what the network adds to NCCL's (`Fabric`). Trees grow with the logarithm of nodes, rings
with the ranks; so do all-gathers and reduce-scatters, where PAT (one rank a node) does not take over.

Inside a node of a `device` that nccl-tests was run on, the time is what the measured tables say (docs/kernels.md), and
`lone_s`: the tables' calls follow each other without a gap, a lone one is launched and waits for its last peer.

Rates and latencies across nodes are two numbers a system: of A100 with Azure's InfiniBand and of B200 on EFA they fit
published curves; others take their links' stated rates at the same share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2
from typing import NamedTuple

import numpy as np

from simcore.documents import Node
from simcore.errors import InputError
from simcore.hashed import Hashed
from simcore.library import table
from simcore.workload.model import CollectiveKind


@dataclass(frozen=True)
class Fabric(Hashed):
    """The interconnect of a system as collectives see it.

    `generation`: whose constants of NCCL hold (`_LL_GIGABYTES`); "stated", "slices": not NCCL's, with `near_s`, `far_s`
    a step. `ring_bytes_per_s`, `nvls_bytes_per_s`: on the wire of a rank inside a node of `node_ranks` (0 = no NVLS);
    `across_bytes_per_s`: the same between nodes when all their cards take part; `nic_bytes_per_s`: what one card
    sustains. `near_s`, `far_s`: what a step inside a node and one over the network take beyond NCCL's figures; `hop_s`:
    a point-to-point message. `card_ranks`: the ranks that share the cards of `across_bytes_per_s`, where a node holds
    more. `wider`: another size of nodes that its links join, where that divides the accelerators. `device`: whose
    measured tables say what a collective inside a node takes; "" = the model does. `lone_s`: launch and last peer of a
    lone call (published calls one by one, H200 and A100, over nccl-tests' back to back).
    """

    __hash__ = Hashed.__hash__

    name: str
    node_ranks: int
    generation: str
    ring_bytes_per_s: float
    across_bytes_per_s: float
    nic_bytes_per_s: float
    nvls_bytes_per_s: float = 0.0
    near_s: float = 0.0
    far_s: float = 0.0
    hop_s: float = 10e-6
    multicast_ranks: int = 6
    card_ranks: int = 0
    wider: int = 0
    device: str = ""
    lone_s: float = 20e-6

    def with_cards(self, share: float) -> Fabric:
        """With network cards of so many times the rate."""
        across, nic = self.across_bytes_per_s * share, self.nic_bytes_per_s * share
        return replace(self, across_bytes_per_s=across, nic_bytes_per_s=nic)

    def with_links(self, share: float) -> Fabric:
        """With links inside a node of so many times the rate, which nobody measured."""
        ring, nvls = self.ring_bytes_per_s * share, self.nvls_bytes_per_s * share
        return replace(self, ring_bytes_per_s=ring, nvls_bytes_per_s=nvls, device="") if share != 1 else self

    def in_nodes(self, count: int, per_node: int) -> Fabric:
        """As so many accelerators have it, `per_node` in a host where that is known; links may join several hosts.

        Slices are alike: of several there are the fewest that share all evenly.
        """
        if self.generation == "slices" and count > self.node_ranks:
            least = -(-count // self.node_ranks)
            return replace(self, node_ranks=count // next(n for n in range(least, count + 1) if count % n == 0))
        if self.wider and (count % self.wider == 0 or count < self.node_ranks):
            return replace(self, node_ranks=self.wider)
        return replace(self, node_ranks=per_node) if per_node and not self.card_ranks else self

    @property
    def sharing_ranks(self) -> int:
        """Ranks of a node whose cards together reach the rate across nodes."""
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


class _Call(NamedTuple):
    """One collective: `size_bytes` of the full buffer on `ranks` in `nodes`; how often its data go round."""

    kind: CollectiveKind
    size_bytes: float
    ranks: int
    nodes: float
    passes: int
    wire_bytes: float


class _Protocol(NamedTuple):
    """One algorithm with one protocol: microseconds, those of a step near and far, and its share of a ring's rate."""

    algorithm: str
    protocol: str
    base_us: float
    near_us: float
    far_us: float
    share: float


_TUNED = (
    _Protocol("tree", "LL", 6.8, 0.6, 5.0, 0.92 / 3.8),
    _Protocol("tree", "LL128", 14.0, 1.25, 8.5, 0.92 * 120 / 128),
    _Protocol("tree", "Simple", 8.4, 4.0, 14.0, 0.92),
    _Protocol("ring", "LL", 6.6, 0.6, 2.7, 0.5),
    _Protocol("ring", "LL128", 14.0, 1.9, 4.0, 0.92),
    _Protocol("ring", "Simple", 8.4, 3.4, 14.0, 1.0),
    _Protocol("NVLS", "Simple", 0.0, 25.0, 0.0, 1.0),
    _Protocol("NVLS tree", "Simple", 0.0, 25.0, 20.9, 0.85),
    _Protocol("PAT", "Simple", 8.0, 2.8, 4.0, 1.0),
    _Protocol("pairwise", "Simple", 8.4, 3.4, 14.0, 1.0),
    _Protocol("direct", "Simple", 8.4, 3.4, 14.0, 1.0),
)
_STATED = (_Protocol("ring", "Simple", 0.0, 0.0, 0.0, 1.0),)
# At least of a ring's near step, where a network card is fed too.
_OVERHEAD_US = {"LL": 1.0, "LL128": 1.0, "Simple": 3.0}

# GB/s that LL reaches at most on 1, 2 and more nodes.
_LL_GIGABYTES = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
# What trees lose of their rate by protocol, for buffers of 64 bytes and every power of two from there.
_TREE_SHARES = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1),
    "Simple": (*[0.9] * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9),
}

# Algorithm -> steps near and far of a call. Of a stated system: a level after the other; between slices round a ring.
_STEPS: dict[str, Callable[[_Call], tuple[float, float]]] = {
    "ring": lambda call: (call.passes * (call.ranks - call.nodes), call.passes * (call.nodes - 1)),
    "tree": lambda call: (2 * (call.ranks / call.nodes - 1), 2 * log2(call.nodes)),
    "NVLS": lambda call: (1, 0),
    "NVLS tree": lambda call: (1, 2 * log2(call.nodes)),
    "PAT": lambda call: (call.ranks, log2(call.nodes)),
    "pairwise": lambda call: (log2(call.ranks), log2(call.nodes)),
    "direct": lambda call: (log2(call.ranks), log2(call.nodes)),
    "stated": lambda call: (call.passes / 2 * log2(call.ranks / call.nodes), call.passes / 2 * log2(call.nodes)),
    "slices": lambda call: (call.passes / 2 * log2(call.ranks / call.nodes), call.passes * (call.nodes - 1)),
}


def choose(kind: CollectiveKind, size_bytes: float, ranks: int, per_node: int, system: Fabric) -> Choice:
    """What is fastest for a collective of `size_bytes` (the full buffer) on `ranks`, `per_node` in each node.

    >>> str(choose(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, FABRICS["hgx-h100"]))
    'NVLS Simple'
    >>> str(choose(CollectiveKind.ALL_REDUCE, 1 << 12, 64, 8, FABRICS["hgx-h100"]))
    'tree LL'
    """
    wire = _KINDS[kind].wire_share(ranks)
    if ranks <= 1 or (size_bytes <= 0 and wire):
        return Choice("none", "none", 0.0, 0.0)
    per_node = max(1, min(per_node, ranks))
    call = _Call(kind, size_bytes, ranks, -(-ranks // per_node), _KINDS[kind].passes, wire * size_bytes)
    if call.nodes > 1 and kind is CollectiveKind.ALL_TO_ALL:
        # What leaves a node goes over each rank's own card, the rest meanwhile inside.
        away_s = size_bytes * (ranks - per_node) / ranks / system.nic_bytes_per_s
        near_s = size_bytes * per_node / ranks / system.ring_bytes_per_s
        return Choice("pairwise", "Simple", max(away_s, near_s) + system.hop_s * log2(ranks), call.wire_bytes)
    taken_s, chosen = _fastest(call, system, per_node)
    if call.nodes == 1 and system.device and max(ranks, system.multicast_ranks) <= _MEASURED_RANKS:
        taken_s = system.lone_s + _measured_s(call, wire, system)
    return Choice(chosen.algorithm, chosen.protocol, taken_s, call.wire_bytes)


def _fastest(call: _Call, system: Fabric, per_node: int) -> tuple[float, _Protocol]:
    """The time of NCCL's choice, and the choice."""
    return min((_seconds(call, one, system, per_node), one) for one in _usable(call, system))


def _seconds(call: _Call, one: _Protocol, system: Fabric, per_node: int) -> float:
    """What a call takes with one algorithm and protocol."""
    stated, inside = system.generation not in _LL_GIGABYTES, call.nodes == 1
    near, far = _STEPS[system.generation if stated else one.algorithm](call)
    near_us = one.near_us
    if one.algorithm == "ring" and not (stated or inside):
        near_us = max(near_us, _OVERHEAD_US[one.protocol])
    steps_s = near * (near_us * 1e-6 + system.near_s) + far * (one.far_us * 1e-6 + system.far_s)
    across = min(system.across_bytes_per_s * per_node / system.sharing_ranks, system.ring_bytes_per_s)
    rate = one.share * (system.ring_bytes_per_s if inside else across)
    amount = call.wire_bytes
    if one.algorithm == "NVLS":
        rate = system.nvls_bytes_per_s
    if one.protocol == "LL":
        rate = min(rate, _LL_GIGABYTES[system.generation][min(2, int(call.nodes) - 1)] * 1e9)
    if "tree" in one.algorithm:
        amount = call.passes * call.size_bytes if call.wire_bytes else 0.0
    if one.algorithm == "tree":
        shares = _TREE_SHARES[one.protocol]
        rate *= float(np.interp(log2(max(call.size_bytes, 64.0) / 64), range(len(shares)), shares))
    return system.lone_s + one.base_us * 1e-6 + steps_s + amount / rate


_MEASURED_RANKS = 8  # as NCCL chooses by itself: a system that may not use NVLS is left to the model


def _usable(call: _Call, system: Fabric) -> Iterator[_Protocol]:
    """What NCCL can use: trees and NVLS only all-reduce, PAT has one rank a node, NVLS needs enough ranks to pay."""
    if system.generation not in _LL_GIGABYTES:
        yield from _STATED
        return
    for one in _TUNED:
        multicast = system.nvls_bytes_per_s and call.ranks / call.nodes >= system.multicast_ranks
        fits = {
            "NVLS": multicast and call.nodes == 1,
            "NVLS tree": multicast and call.nodes > 1,
            "PAT": call.nodes == call.ranks,
        }
        if one.algorithm in _KINDS[call.kind].made_of and fits.get(one.algorithm, True):
            yield one


def _measured_s(call: _Call, wire: float, system: Fabric) -> float:
    """What nccl-tests shows for it, or for the one that sends as it does; beyond its sizes what the model adds."""
    from simcore.compute.accelerators import accelerator  # few runs need tables
    from simcore.compute.duration import collective_curve

    sizes, seconds = collective_curve(_KINDS[call.kind].measured_as, call.ranks, accelerator(system.device))
    within_s = float(np.exp(np.interp(np.log(max(call.size_bytes, 1.0)), np.log(sizes), np.log(seconds))))
    last = call._replace(size_bytes=float(sizes[-1]), wire_bytes=wire * float(sizes[-1]))
    if call.size_bytes <= last.size_bytes:
        return within_s
    return within_s + _fastest(call, system, call.ranks)[0] - _fastest(last, system, call.ranks)[0]


@lru_cache(maxsize=65536)
def collective_s(kind: CollectiveKind, size_bytes: float, ranks: int, per_node: int, system: Fabric) -> float:
    """Seconds of what `choose` chooses.

    >>> one = collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, FABRICS["dgx-a100"])
    >>> round(one * 1e3, 1)
    8.3
    """
    return choose(kind, size_bytes, ranks, per_node, system).seconds


def point_to_point_s(size_bytes: float, system: Fabric, *, same_node: bool) -> float:
    """Seconds of one message between two ranks; of one without data none: it is not sent."""
    if not size_bytes:
        return 0.0
    rate = max(system.ring_bytes_per_s, system.nvls_bytes_per_s) if same_node else system.nic_bytes_per_s
    return system.hop_s + size_bytes / rate


class _Kind(NamedTuple):
    """Of a kind of collective: how often its data go round, what a rank sends per byte of buffer in units of (n-1)/n
    or of everything, what NCCL makes it of, and as which one nccl-tests show it.
    """

    passes: int
    wire: float
    whole: bool
    made_of: tuple[str, ...]
    measured_as: str

    def wire_share(self, ranks: int) -> float:
        """Bytes that a rank sends per byte of the buffer."""
        return self.wire if self.whole else self.wire * (ranks - 1) / ranks


_REDUCED, _SHARED = ("tree", "ring", "NVLS", "NVLS tree"), ("ring", "PAT")
_KINDS = {
    CollectiveKind.ALL_REDUCE: _Kind(2, 2, False, _REDUCED, "all_reduce"),
    CollectiveKind.ALL_GATHER: _Kind(1, 1, False, _SHARED, "all_gather"),
    CollectiveKind.REDUCE_SCATTER: _Kind(1, 1, False, _SHARED, "reduce_scatter"),
    CollectiveKind.ALL_TO_ALL: _Kind(1, 1, False, ("pairwise",), "all_to_all"),
    CollectiveKind.BROADCAST: _Kind(1, 1, True, ("ring",), "all_gather"),
    CollectiveKind.REDUCE: _Kind(1, 1, True, ("ring",), "reduce_scatter"),
    CollectiveKind.GATHER: _Kind(1, 1, False, ("direct",), "all_to_all"),
    CollectiveKind.SCATTER: _Kind(1, 1, False, ("direct",), "all_to_all"),
    CollectiveKind.BARRIER: _Kind(2, 0, False, _REDUCED, "all_reduce"),
}


def _fabrics() -> Iterator[Fabric]:
    """The systems of the table."""
    for name, sizes, share, generation, *figures, device in table(__file__, "fabrics.txt"):
        ranks, *wider = sizes.split("/")
        ring, across, card, nvls, near, far, lone = (0.0 if one == "-" else float(one) for one in figures)
        rates = ring * 1e9, across * 1e9, card * 1e9, nvls * 1e9
        found = Fabric(name, int(ranks), generation, *rates, near_s=near * 1e-6, far_s=far * 1e-6, lone_s=lone * 1e-6)
        yield replace(
            found,
            card_ranks=int(share) if share != ranks else 0,
            wider=int(wider[0]) if wider else 0,
            device=device.strip("-"),
        )


FABRICS: dict[str, Fabric] = {made.name: made for made in _fabrics()}


def read_fabric(node: Node) -> Fabric:
    """A known system by its name, or one `like` it with a site's own nodes and network cards; InputError locates."""
    if isinstance(node.value, str):
        return FABRICS[_known(node)]
    node.keys(required=("like",), optional=("node_ranks", "cards", "card_gbit_per_s", "latency_us"))
    if node.problems.found:
        raise InputError(node.problems.found)
    known = FABRICS[_known(node["like"])]
    made = replace(known, node_ranks=node["node_ranks"].integer(1), wider=0) if "node_ranks" in node else known
    # A known fabric has a card for each rank.
    cards = node["cards"].number(above=True) if "cards" in node else float(made.node_ranks)
    rate = node["card_gbit_per_s"].number(above=True) * 1e9 / 8 * _CARD_SHARE if "card_gbit_per_s" in node else 0.0
    made = made.with_cards(cards / made.node_ranks * ((rate or known.nic_bytes_per_s) / known.nic_bytes_per_s))
    made = replace(made, across_bytes_per_s=made.across_bytes_per_s * made.sharing_ranks / known.sharing_ranks)
    if "latency_us" in node:
        latency_s = node["latency_us"].number() * 1e-6
        made = replace(made, hop_s=latency_s, far_s=max(0.0, latency_s - known.hop_s))
    return made


_CARD_SHARE = 0.85  # of a card's rate that messages reach: 42.5 of 50 GB/s (H100 with 400 Gb/s), 48.4 of 50 (B200, EFA)


def _known(node: Node) -> str:
    name = node.choice(list(FABRICS))
    if name is None:
        raise InputError(node.problems.found)
    return name
