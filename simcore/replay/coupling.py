"""Which communication kernels of different ranks are the same collective, and how far the ranks' clocks differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from simcore.replay.rank import RankView

__all__ = ["Match", "Member", "clock_offsets_ns", "match_collectives"]


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's kernel of a collective: position of the rank, row of its tasks."""

    rank: int
    task: int


@dataclass(frozen=True, slots=True)
class Match:
    """A collective: its kernels, and how long it takes once the last rank has arrived."""

    members: tuple[Member, ...]
    intrinsic_ns: int


def match_collectives(ranks: Sequence[RankView], steps: Sequence[int]) -> list[Match]:
    """The collectives of one step that at least two ranks recorded.

    Ranks launch the collectives of a group in one order, so the n-th of a group on one rank is the n-th on the others;
    without recorded groups all communication kernels count as one. A group whose ranks launched different kernels is
    not coupled. A rank that arrives early waits inside its kernel, so the shortest kernel is the collective itself.
    """
    groups: dict[str, list[list[Member]]] = defaultdict(list)
    for number, (rank, step) in enumerate(zip(ranks, steps, strict=True)):
        own: dict[str, list[Member]] = defaultdict(list)
        for task in _communication(rank, step):
            recorded = rank.trace.collectives.get(task)
            own[recorded.group if recorded else ""].append(Member(number, task))
        for group, members in own.items():
            groups[group].append(members)
    coupled = [rows for rows in groups.values() if len(rows) > 1 and _same_kernels(ranks, rows)]
    return [_match(ranks, members) for rows in coupled for members in zip(*rows, strict=True)]


def _communication(rank: RankView, step: int) -> list[int]:
    """Communication kernels of a step in the order of their launch."""
    rows: list[int] = rank.launch_order[rank.communicating(step)[rank.launch_order]].tolist()
    return rows


def _same_kernels(ranks: Sequence[RankView], rows: list[list[Member]]) -> bool:
    """Whether every rank launched kernels of the same names in the same order."""
    traces = [ranks[members[0].rank].trace for members in rows]
    names = {
        tuple(trace.names[trace.tasks.name[member.task]] for member in members)
        for trace, members in zip(traces, rows, strict=True)
    }
    return len(names) == 1


def _match(ranks: Sequence[RankView], members: tuple[Member, ...]) -> Match:
    tasks = [(ranks[member.rank].trace.tasks, member.task) for member in members]
    return Match(members, min(column.length_ns(task) for column, task in tasks))


def clock_offsets_ns(ranks: Sequence[RankView], matches: Sequence[Match]) -> list[int]:
    """How much to subtract from each rank's times to have one clock.

    All ranks end a collective together, so the median difference of their ends is that of their clocks. Ranks without
    a common collective keep their own clock.
    """
    bases = [round(rank.trace.base_us * 1e3) for rank in ranks]
    differences: list[list[int]] = [[] for _ in ranks]
    for match in matches:
        ends = {m.rank: bases[m.rank] + int(ranks[m.rank].trace.tasks.end_ns[m.task]) for m in match.members}
        earliest = min(ends.values())
        for number, end in ends.items():
            differences[number].append(end - earliest)
    return [round(median(values)) if values else 0 for values in differences]
