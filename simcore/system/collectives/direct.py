"""Direct: every rank sends to every other rank, all at once or a window of messages at a time."""

from __future__ import annotations

from itertools import groupby

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("direct")
def direct(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Rounds to the ranks 1, 2, .. n-1 on; an all-reduce does so twice, the second half after the whole first."""
    window = min(options.window or size - 1, size - 1)
    share = data_bytes if kind == CollectiveKind.ALL_GATHER else data_bytes // size
    halves = 2 if kind == CollectiveKind.ALL_REDUCE else 1
    hops = [*range(1, size)] * halves
    reduces = _reductions(kind, len(hops), window, size, options)
    rounds = [Round(hop, share, share if reduced else 0) for hop, reduced in zip(hops, reduces, strict=True)]
    counted = tuple((entry, len(list(same))) for entry, same in groupby(rounds))
    return Plan(size, counted, window, half=size - 1 if halves == 2 else 0)


def _reductions(kind: CollectiveKind, count: int, window: int, size: int, options: PlanOptions) -> list[bool]:
    """Which receives are reduced: those of a reduce-scatter, and the first half of an all-reduce."""
    if kind not in {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER}:
        return [False] * count
    if not options.alternate_reductions:
        return [index < size - 1 for index in range(count)]
    return _alternate(kind, count, window, (size - 1) * window if options.local_group else window)


def _alternate(kind: CollectiveKind, count: int, window: int, batch: int) -> list[bool]:
    """ASTRA-sim's counters: `window` packets free, `batch` packets charged, and so on; the first `window` are sends.

    An all-reduce charges every other charged batch only.
    """
    charged: list[bool] = []
    odd = False
    while len(charged) < window + count:
        odd = not odd
        charged += [False] * window + [kind == CollectiveKind.REDUCE_SCATTER or odd] * batch
    return charged[window : window + count]
