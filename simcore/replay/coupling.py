"""Which communication kernels of different ranks are the same collective, and how far the ranks' clocks differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from simcore.replay.rank import RankView
from simcore.workload.kineto import TaskKind

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
    without recorded groups all communication kernels count as one. Kernels of different names are no match. A rank that
    arrives early waits inside its kernel, so the shortest kernel is the collective without waiting.
    """
    found: dict[tuple[str, int], list[Member]] = defaultdict(list)
    for number, (rank, step) in enumerate(zip(ranks, steps, strict=True)):
        counted: dict[str, int] = defaultdict(int)
        for task in _communication(rank, step):
            recorded = rank.trace.collectives.get(task)
            group = recorded.group if recorded else ""
            found[group, counted[group]].append(Member(number, task))
            counted[group] += 1
    return [_match(ranks, members) for members in found.values() if len(members) > 1 and _same_name(ranks, members)]


def _communication(rank: RankView, step: int) -> list[int]:
    """Communication kernels of a step in the order of their launch."""
    order = rank.launch_order
    kernels = rank.communication[order] & (rank.trace.tasks.kind[order] == TaskKind.KERNEL)
    rows: list[int] = order[kernels & (rank.task_step[order] == step)].tolist()
    return rows


def _same_name(ranks: Sequence[RankView], members: list[Member]) -> bool:
    traces = [(ranks[member.rank].trace, member.task) for member in members]
    return len({trace.names[trace.tasks.name[task]] for trace, task in traces}) == 1


def _match(ranks: Sequence[RankView], members: list[Member]) -> Match:
    tasks = [(ranks[member.rank].trace.tasks, member.task) for member in members]
    return Match(tuple(members), min(int(column.end_ns[task] - column.start_ns[task]) for column, task in tasks))


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
