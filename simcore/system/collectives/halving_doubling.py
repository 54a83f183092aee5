"""Halving-doubling: pairs exchange ever smaller halves, then ever larger ones (Rabenseifner 2004)."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("halvingDoubling")
def halving_doubling(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Rounds with partners 1, 2, 4, .. away for the halving, n/2, .., 1 for the doubling.

    ValueError unless n is a power of two, and for an all-to-all.
    """
    if size & (size - 1):
        raise ValueError(f"halvingDoubling needs a power of two of ranks, not {size}")
    if kind == CollectiveKind.ALL_TO_ALL:
        raise ValueError("halvingDoubling cannot do an all-to-all")
    levels = range(size.bit_length() - 1)
    halving = [(1 << level, data_bytes >> (level + 1)) for level in levels]
    doubling = [(size >> (level + 1), data_bytes << level) for level in levels]
    messages = {
        CollectiveKind.REDUCE_SCATTER: halving,
        CollectiveKind.ALL_GATHER: doubling,
        CollectiveKind.ALL_REDUCE: halving + (_doubled_back(halving) if options.late_reductions else halving[::-1]),
    }[kind]
    reduced = len(halving) if kind != CollectiveKind.ALL_GATHER else 0
    charges = [sent for _, sent in messages[:reduced]]
    if options.late_reductions and charges:
        charges = charges[1:]
    charges += [0] * (len(messages) - len(charges))
    rounds = tuple((Round(hop, sent, charge), 1) for (hop, sent), charge in zip(messages, charges, strict=True))
    return Plan(size, rounds, exchange=True)


def _doubled_back(halving: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """ASTRA-sim's way back of an all-reduce: the last size is halved once more, truncated, and doubled every time."""
    smallest = halving[-1][1] // 2
    return [(hop, smallest << doublings) for doublings, (hop, _) in enumerate(reversed(halving), 1)]
