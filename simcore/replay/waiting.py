"""How much of a collective is transfer and how much waiting for other ranks, where those were not recorded.

A collective of one place in the step carries the same bytes in every step, so its quickest time bounds the transfer.
What NCCL was measured to take for its size and ranks on systems of this device says how long it is at least.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simcore.compute.accelerators import recognised
from simcore.replay.rank import RankView
from simcore.replay.whatif.transfers import Transfer, transfer_of
from simcore.system.collectives.nccl import FABRICS, Fabric, collective_s
from simcore.workload.model import CollectiveKind

__all__ = ["Estimate", "transfers"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of a transfer without waiting, in ns: at least, likely and at most."""

    least_ns: int
    likely_ns: int
    most_ns: int


def transfers(rank: RankView) -> dict[int, Estimate]:
    """For each communication kernel, by its row in the tasks, how long it transfers."""
    fabrics = _fabrics(rank.trace.device)
    found = dict[int, Estimate]()
    for rows in _alike(rank).values():
        quickest = min(rank.trace.tasks.length_ns(task) for task in rows)
        said = rank.trace.collectives.get(rows[0])
        transfer = transfer_of(said) if said else None
        measured = [_measured_ns(transfer, fabric) for fabric in fabrics] if transfer and transfer.size_bytes else []
        known = [time_ns for time_ns in measured if time_ns]
        likely = min(max(known, default=quickest), quickest)
        found |= dict.fromkeys(rows, Estimate(min(min(known, default=0), likely), likely, quickest))
    return found


def _alike(rank: RankView) -> Mapping[tuple[object, ...], list[int]]:
    """Communication kernels that are one collective in several steps: the n-th of a name and size on its stream."""
    order, alike = rank.launch_order, defaultdict[tuple[object, ...], list[int]](list)
    for step in range(len(rank.windows)):
        chosen = rank.communicating(step)
        places = Counter[tuple[object, ...]]()
        for task in order[chosen[order]].tolist():
            said = rank.trace.collectives.get(task)
            kind = int(rank.trace.tasks.name[task]), said.elements if said else 0, said.group if said else ""
            places[kind] += 1
            alike[(*kind, places[kind])].append(task)
    return alike


def _fabrics(device: str) -> list[Fabric]:
    """Systems of a device on which NCCL was measured."""
    known = recognised(device)
    family = known.name.partition("-")[0].lower() if known else "unknown"
    return [fabric for name, fabric in FABRICS.items() if family in name.split("-")]


def _measured_ns(transfer: Transfer, fabric: Fabric) -> int:
    """What NCCL takes on a system; 0 where that was not measured for the kind."""
    if transfer.kind not in set(CollectiveKind):
        return 0
    kind, ranks = CollectiveKind(transfer.kind), np.array(transfer.ranks)
    per_node = int(np.unique(ranks // fabric.node_ranks, return_counts=True)[1].max())
    total = transfer.size_bytes * (len(ranks) if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER) else 1)
    return round(collective_s(kind, total, len(ranks), per_node, fabric) * 1e9)
