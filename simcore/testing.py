"""Laws that collectives, topologies and training loops must keep, for yours as for those shipped.

Each function raises `LawError` with what is broken where; nothing is returned. Our own tests call them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError, SimcoreError
from simcore.network.topology.links import LinkGraph, figures
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system import collectives, config
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.config import SystemConfig
from simcore.system.plans.flow import Claim, faults
from simcore.system.plans.plan import Plan
from simcore.workload.loops import loops
from simcore.workload.model import CollectiveKind, Layer, Phase, PhaseName, Workload

__all__ = ["LawError", "check_collective", "check_folding", "check_loop", "check_plan", "check_topology", "least_bytes"]

Algorithm = Callable[[CollectiveKind, int, int, PlanOptions], Plan]
RANKS = (2, 3, 4, 5, 8, 9, 16)
PLACES = ("Ring", "Switch", "FullyConnected", "Mesh")
SMALL = Topology((Dimension("Ring", 4, 1e9, 10.0), Dimension("Switch", 2, 1e9, 10.0)))


class LawError(SimcoreError, AssertionError):
    """A law does not hold."""


def _hold(holds: object, law: str) -> None:
    if not holds:
        raise LawError(law)


def check_collective(
    algorithm: Algorithm,
    kind: CollectiveKind,
    ranks: Iterable[int] = RANKS,
    share_bytes: int = 1000,
    system: str | Path | None = None,
) -> None:
    """The plans of an algorithm for each number of ranks, with `share_bytes` for every rank, and its runs.

    It is run on a ring, a line, a switch and a full mesh, and must take as long as message by message; `system` is a
    file with the settings of these runs. Numbers and places that the algorithm refuses (InputError, ValueError) are
    passed over, as long as it takes one.
    """
    taken = 0
    for size in ranks:
        try:
            plan = algorithm(kind, size, size * share_bytes, PlanOptions())
        except (InputError, ValueError):
            continue
        check_plan(plan, kind, size, share_bytes)
        taken += _check_runs(algorithm, kind, size, share_bytes, system)
    _hold(taken, f"the algorithm refuses {kind} on every number of ranks")


def _check_runs(
    algorithm: Algorithm, kind: CollectiveKind, size: int, share_bytes: int, system: str | Path | None
) -> int:
    """In how many places the algorithm could be run, as it is message by message."""
    settings = config.read(system) if system else SystemConfig()
    workload = Workload("MICRO", (Layer("alone", weight_grad=Phase(0, kind, size * share_bytes)),))
    taken = 0
    with algorithms.lend(algorithm) as name:
        chosen = {**settings.implementations, kind: (collectives.Algorithm(name),)}
        for dim in PLACES:
            topology = Topology((Dimension(dim, size, 1e9, 500.0),))
            what = f"{kind} on a {dim} of {size} ranks"
            with suppress(InputError):
                _check_messages(what, workload, topology, replace(settings, implementations=chosen))
                taken += 1
    return taken


def check_plan(plan: Plan, kind: CollectiveKind, size: int, share_bytes: int) -> None:
    """A plan of `size` ranks: every round a permutation, nothing less sent than the collective needs.

    Transfers (root 0) are played with sets of contributions: everybody must end with what the collective promises.
    """
    _hold(plan.size == size, f"a plan for {plan.size} ranks where {size} were asked for")
    if not plan.rounds:
        highest = max((chunk for entry in plan.transfers for chunk in entry.chunks), default=0)
        unit = Claim(kind, size, 1).multiple
        broken = next(faults(plan, Claim(kind, size, unit * (1 + highest // unit))), None)
        _hold(broken is None, f"{kind} on {size} ranks: {broken}")
    for _, part in plan.parts:
        for entry, _ in part.rounds:
            peers = [part.peer(rank, entry.hop) for rank in range(plan.size)]
            received = sorted(peers) == list(range(plan.size))
            _hold(received, f"hop {entry.hop}: not every rank receives from one other")
            _hold(all(peer != rank for rank, peer in enumerate(peers)), f"hop {entry.hop}: a rank sends to itself")
    if plan.rounds and not plan.switch:
        least, sent = least_bytes(kind, size, share_bytes), plan.bytes_of(0)
        _hold(sent >= least, f"{kind} on {size} ranks: a rank sends {sent} B, at least {least} B are needed")


def least_bytes(kind: CollectiveKind, size: int, share_bytes: int) -> int:
    """What a rank sends at least in a collective of `size` shares, when all send alike (Chan et al. 2007)."""
    others = (size - 1) * share_bytes
    needed = {CollectiveKind.ALL_REDUCE: 2 * others, CollectiveKind.REDUCE_SCATTER: others}
    needed |= {CollectiveKind.ALL_GATHER: others * size, CollectiveKind.ALL_TO_ALL: others}
    return needed.get(kind, 0)


def check_topology(topology: Topology) -> None:
    """Routes lead where they should, over links that join, past no node twice; figures are those of the graph.

    Every pair of NPUs is tried: for machines of up to a few hundred.
    """
    links = LinkGraph(topology)
    _hold(links.npus == topology.npus, f"{links.npus} NPUs linked of {topology.npus}")
    ids = np.arange(links.npus)
    src, dst = np.repeat(ids, links.npus), np.tile(ids, links.npus)
    routes = links.routes(src, dst)
    for a, b, first, last in zip(src, dst, routes.offsets, routes.offsets[1:], strict=False):
        way = routes.links[first:last]
        nodes = [a, *links.dst[way]]
        _hold(nodes[-1] == b, f"the route from {a} to {b} ends at {nodes[-1]}")
        _hold((links.src[way] == nodes[:-1]).all(), f"the route from {a} to {b} jumps between links")
        _hold(len(set(nodes)) == len(nodes), f"the route from {a} to {b} visits a node twice")
    _check_figures(links)


def _check_figures(links: LinkGraph) -> None:
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(links.nodes))
    graph.add_edges_from(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    found, npus = figures(links), range(links.npus)
    degrees = [graph.out_degree(npu) for npu in npus]
    shortest = dict(networkx.all_pairs_shortest_path_length(graph))
    expected: dict[str, Any] = {
        "degree_min": min(degrees),
        "degree_max": max(degrees),
        "diameter_hops": max(shortest[a][b] for a in npus for b in npus),
        "links": graph.number_of_edges(),
    }
    for name, value in expected.items():
        _hold(getattr(found, name) == value, f"{name} is {getattr(found, name)}, of the graph {value}")


def check_loop(name: str, layers: int = 3) -> None:
    """A registered loop computes its layers and no others, and folds without a difference."""
    exchange = Phase(1000, CollectiveKind.ALL_REDUCE, 4096)
    workload = Workload(name, (Layer("layer", exchange, exchange, exchange),) * layers)
    steps = loops.get(name).steps(workload)
    _hold(all(0 <= step.layer < layers for step in steps), "a step of a layer that is not there")
    forwards = {step.layer for step in steps if step.phase == PhaseName.FORWARD and step.computes}
    _hold(forwards in ({*range(layers)}, set()), f"forwards of {sorted(forwards)} where there are {layers} layers")
    named = {ref.layer for step in steps for ref in (step.before, step.issue, step.after) if ref}
    _hold(named <= {*range(layers)}, f"collectives of layers that are not there: {sorted(named)}")
    check_folding(workload)


def check_folding(workload: Workload, topology: Topology = SMALL, system: str | Path | None = None) -> None:
    """A run gives the report of one in which every message of every NPU is sent, folded or not; `system` is a file."""
    _check_messages(workload.loop, workload, topology, config.read(system) if system else None)


def _check_messages(what: str, workload: Workload, topology: Topology, system: SystemConfig | None) -> None:
    def report(settings: Settings) -> Mapping[str, Any]:
        timeline = simulate(workload, topology, system, profiles.get("native"), settings)
        return Report(timeline, "native", "").to_dict()

    messages = report(Settings(exact="messages"))
    for way, settings in (("folded", Settings()), ("unfolded", Settings(fold=False))):
        found = report(settings)
        for key in sorted({*messages} - {"classes"}, key=lambda key: (key != "time_ns", key)):
            law = f"{what}: message by message {key} is {messages[key]}, {way} {found[key]}"
            _hold(found[key] == messages[key], law)
