"""Which communication kernels are one collective, how far ranks' clocks differ, and how much of a kernel is waiting.

A collective of one place in the step carries the same bytes in every step, so its quickest time bounds the transfer.
What NCCL was measured to take for its size and ranks on systems of this device says how long it is at least.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.compute.accelerators import recognised
from simcore.replay.steps.rank import RankView
from simcore.replay.whatif.transfers import Transfer, transfer_of
from simcore.system.collectives.nccl import FABRICS, Fabric, collective_s
from simcore.workload.kineto import Collective
from simcore.workload.model import CollectiveKind

TOGETHER_NS = 50_000  # one collective ends within this time on all ranks: 7 us on eight V100 (trace `dlrm`)


class Member(Struct, frozen=True):
    """One rank's kernel of a collective: position of the rank, row of its tasks."""

    rank: int
    task: int


class Match(Struct, frozen=True):
    """A collective: its kernels, and how long it takes once the last rank has arrived.

    Where some of its ranks were not recorded (`whole` is False), `waiting_ns` is how long the last of the others waits
    for these.
    """

    members: tuple[Member, ...]
    intrinsic_ns: int
    waiting_ns: int = 0
    whole: bool = True

    @property
    def shortest_ns(self) -> int:
        """How long the kernel of the last recorded rank takes."""
        return self.intrinsic_ns + self.waiting_ns


def match_collectives(ranks: Sequence[RankView], steps: Sequence[int]) -> list[Match]:
    """The collectives of one step that at least two ranks recorded.

    Ranks launch the collectives of a communicator in one order, so its n-th on one rank is its n-th on the others;
    without recorded groups all communication kernels count as one. One whose ranks launched different kernels is not
    coupled, nor are kernels without a group that end apart. A rank that arrives early waits inside its kernel, so the
    shortest kernel is the collective itself.
    """
    apart = told_apart(ranks)
    groups: dict[str, dict[int, list[Member]]] = defaultdict(lambda: defaultdict(list))  # of each rank, by its number
    for number, (rank, step) in enumerate(zip(ranks, steps, strict=True)):
        for task in rank.communicating(step):
            recorded = rank.trace.collectives.get(task)
            groups[communicator(recorded, apart) if recorded else ""][number].append(Member(number, task))

    def same_kernels(rows: Sequence[Sequence[Member]]) -> bool:
        """Whether every rank launched kernels of the same names in the same order."""
        traces = (ranks[members[0].rank].trace for members in rows)
        named = zip(traces, rows, strict=True)
        return len({tuple(own.names[own.tasks.name[one.task]] for one in members) for own, members in named}) == 1

    every = [list(rows.values()) for rows in groups.values()]
    coupled = [rows for rows in every if len(rows) > 1 and same_kernels(rows)]
    return _together(ranks, [_match(ranks, members) for rows in coupled for members in zip(*rows, strict=True)])


def _match(ranks: Sequence[RankView], members: tuple[Member, ...]) -> Match:
    traces = [ranks[one.rank].trace for one in members]
    shortest_ns = min(own.tasks.length_ns(one.task) for own, one in zip(traces, members, strict=True))
    said = traces[0].collectives.get(members[0].task)
    return Match(members, shortest_ns, whole=said is None or said.parties <= len(members))


def _together(ranks: Sequence[RankView], matches: list[Match]) -> list[Match]:
    """The collectives but those of no recorded group, where more than a quarter of these end apart on one clock:
    several communicators, as of a pipeline's replicas, then launch as many kernels.
    """
    apart = dict[int, int]()
    offsets_ns = clock_offsets_ns(ranks, matches)
    for number, match in enumerate(matches):
        traces = [(ranks[one.rank].trace, one) for one in match.members]
        if len(traces) > 2 and all(one.task not in own.collectives for own, one in traces):
            ends = [own.base_ns + int(own.tasks.end_ns[one.task]) - offsets_ns[one.rank] for own, one in traces]
            apart[number] = max(ends) - min(ends)
    if np.percentile([*apart.values()] or [0], 75) <= TOGETHER_NS:
        return matches
    return [match for number, match in enumerate(matches) if number not in apart]


def told_apart(ranks: Sequence[RankView]) -> frozenset[str]:
    """The groups of ranks that have several communicators, which all of these ranks call by the same names."""
    named = defaultdict[str, set[frozenset[str]]](set)
    for rank in ranks:
        for group, names in rank.communicators.items():
            named[group].add(names)
    return frozenset(group for group, (names, *others) in named.items() if len(names) > 1 and not others)


def communicator(said: Collective, apart: frozenset[str]) -> str:
    """What tells a collective's communicator from others: its ranks, in groups that are told `apart` its name, too."""
    return f"{said.group} {said.communicator}" if said.group in apart else said.group


def clock_offsets_ns(ranks: Sequence[RankView], matches: Sequence[Match]) -> list[int]:
    """How much to subtract from each rank's times to have one clock.

    All ranks end a collective together, so the median difference of two ranks' ends is that of their clocks; from rank
    to rank it leads to those that have no collective in common. Ranks that none leads to keep their own clock.
    """
    apart: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for match in matches:
        traces = ((one, ranks[one.rank].trace) for one in match.members)
        (first, first_ns), *others = ((one.rank, own.base_ns + int(own.tasks.end_ns[one.task])) for one, own in traces)
        for other, other_ns in others:
            apart[first][other].append(other_ns - first_ns)
            apart[other][first].append(first_ns - other_ns)
    offsets = dict[int, int]()
    for start in range(len(ranks)):
        reached = [start] if start not in offsets else []
        offsets.setdefault(start, 0)
        for one in reached:
            new = {other: differences for other, differences in apart[one].items() if other not in offsets}
            offsets |= {other: offsets[one] + round(median(differences)) for other, differences in new.items()}
            reached += new
    return [offsets[number] for number in range(len(ranks))]


class Estimate(Struct, frozen=True):
    """The time of a transfer without waiting, in ns: at least, likely and at most."""

    least_ns: int
    likely_ns: int
    most_ns: int


def estimated(match: Match, transfers: Sequence[Mapping[int, Estimate]], chosen: Callable[[Estimate], int]) -> Match:
    """A collective whose last rank may be one that was not recorded: what its shortest kernel takes above a `chosen`
    estimate of the `transfers` of each rank is waiting.
    """
    if match.whole:
        return match
    transfer_ns = min(match.shortest_ns, *(chosen(transfers[one.rank][one.task]) for one in match.members))
    return replace(match, intrinsic_ns=transfer_ns, waiting_ns=match.shortest_ns - transfer_ns)


def transfers(rank: RankView) -> dict[int, Estimate]:
    """For each communication kernel, by its row in the tasks, how long it transfers."""
    known = recognised(rank.trace.device)
    family = known.name.partition("-")[0].lower() if known else "unknown"
    fabrics = [fabric for name, fabric in FABRICS.items() if family in name.split("-")]  # NCCL was measured there
    return {
        task: one
        for rows in _alike(rank).values()
        for task, one in zip(rows, _estimates(rank, rows, fabrics), strict=True)
    }


def _estimates(rank: RankView, rows: Sequence[int], fabrics: Sequence[Fabric]) -> list[Estimate]:
    """For each of these kernels, which are one collective in several steps."""
    lengths_ns, said = [rank.trace.tasks.length_ns(task) for task in rows], rank.trace.collectives.get(rows[0])
    transfer = transfer_of(said) if said else None
    if transfer and len(transfer.ranks) == 1:  # there is nobody to wait for
        return [Estimate(own_ns, own_ns, own_ns) for own_ns in lengths_ns]
    quickest = min(lengths_ns)
    measured = [_measured_ns(transfer, fabric) for fabric in fabrics] if transfer and transfer.size_bytes else []
    times_ns = [time_ns for time_ns in measured if time_ns]
    likely = min(max(times_ns, default=quickest), quickest)
    return [Estimate(min(min(times_ns, default=0), likely), likely, quickest)] * len(rows)


def _alike(rank: RankView) -> Mapping[tuple[object, ...], list[int]]:
    """Communication kernels that are one collective in several steps: the n-th of a name and size on its stream."""
    alike = defaultdict[tuple[object, ...], list[int]](list)
    for step in range(len(rank.windows)):
        places = Counter[tuple[object, ...]]()
        for task in rank.communicating(step):
            said = rank.trace.collectives.get(task)
            kind = int(rank.trace.tasks.name[task]), said.elements if said else 0, said.group if said else ""
            places[kind] += 1
            alike[(*kind, places[kind])].append(task)
    return alike


def _measured_ns(transfer: Transfer, fabric: Fabric) -> int:
    """What NCCL takes on a system; 0 where that was not measured for the kind."""
    if transfer.kind not in set(CollectiveKind):
        return 0
    kind, ranks = CollectiveKind(transfer.kind), np.array(transfer.ranks)
    per_node = int(np.unique(ranks // fabric.node_ranks, return_counts=True)[1].max())
    total = transfer.size_bytes * (len(ranks) if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER) else 1)
    return round(collective_s(kind, total, len(ranks), per_node, fabric) * 1e9)
