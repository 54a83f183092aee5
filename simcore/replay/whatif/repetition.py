"""Layers of a step in which nothing names them: the block of kernels that repeats exactly for most of the time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.replay.steps.rank import RankView
from simcore.workload.kineto import Column

LEAST_BLOCK = 2  # kernels; one kernel after another is no layer
LEAST_SHARE = 0.5  # of a step's computation that layers take at least
NOTICED_SHARE = 0.002  # shorter repetitions are nobody's layers, not even in one of many micro-batches
NEARLY = 4  # times the share of a repetition that is one or two blocks shorter: too much to be something else
NESTED_SHARE = 0.75  # of a block's kernels: a block that is itself a repetition may be a pass over all layers
MOST_COMPARISONS = 1 << 29  # half a second


class UnclearError(Exception):
    """Nothing repeats, or it cannot be told which repetition the layers are; the text says what was found."""


class Segment(Struct, frozen=True):
    """A layer's host time on one thread, with everything launched in it."""

    thread: int
    start_ns: int
    end_ns: int


class Run(Struct, frozen=True, eq=False):
    """`count` blocks of kernels that a thread launched, each named as the one `period` kernels before it."""

    thread: int
    rows: Column
    period: int
    share: float
    count: int

    @property
    def rounded(self) -> int:
        """The blocks and, when at least half of it is there, one that is cut short."""
        return (len(self.rows) + self.period // 2) // self.period


def repeated_segments(rank: RankView, step: int) -> dict[int, tuple[Segment, ...]]:
    """The segments of each layer of a step; backward passes, on other threads, go through the layers in reverse.

    Communication is left out of the comparison, because gradients are sent in buckets of several layers. Where whole
    passes repeat (micro-batches, steps without marks), layers are what repeats within them. UnclearError when no
    repetition takes half of the computation, or several could be the layers.
    """
    passes: list[Run] = []
    while True:
        runs = _runs(rank, step, {run.thread: run.period for run in passes})
        chosen = _clear(runs, f"whole passes repeat, {_listed(passes)}, but within them " if passes else "")
        spans = sorted((int(rank.launch_ns[run.rows[0]]), int(rank.launch_ns[run.rows[-1]])) for run in chosen)
        # Threads launch repetitions at the same time: a forward pass, its backward pass, the next forward pass.
        taking_turns = any(following[0] < before[1] for before, following in pairwise(spans))
        if not (taking_turns or any(_synchronises(rank, run) for run in chosen)):
            break
        passes = chosen
    _alone(rank, chosen)
    segments: dict[int, list[Segment]] = defaultdict(list)
    for run in chosen:
        parts = _segments(rank, run)
        for number, part in enumerate(parts if run.thread == rank.windows[step].thread else reversed(parts)):
            segments[number].append(part)
    return {number: tuple(parts) for number, parts in segments.items()}


def _runs(rank: RankView, step: int, shorter_than: Mapping[int, int]) -> list[Run]:
    """The repetitions on the busiest stream of every launching thread, those with most time first."""
    tasks, order = rank.trace.tasks, rank.launch_order
    wanted = (rank.task_step == step) & (rank.launch >= 0) & ~rank.communication
    rows = order[wanted[order]]
    length_ns = tasks.end_ns - tasks.start_ns
    whole_ns = max(int(length_ns[rows].sum()), 1)
    threads = rank.trace.calls.lane[rank.launch[rows]] if len(rows) else rows
    found: list[Run] = []
    for thread in np.unique(threads).tolist():
        own = rows[threads == thread]
        busiest = np.bincount(tasks.lane[own], weights=length_ns[own]).argmax()
        own = own[tasks.lane[own] == busiest]
        share = np.r_[0.0, np.cumsum(length_ns[own])] / whole_ns
        found += _apart(thread, own, tasks.name[own], share, shorter_than.get(thread, len(own)))
    return sorted(found, key=lambda run: (-run.share, run.rows[0]))


def _apart(thread: int, rows: Column, names: Column, share: NDArray[np.float64], shorter_than: int) -> Iterator[Run]:
    """Repetitions apart from each other: those with most time, and of those of one stretch with the shortest block."""
    repeated = repetitions(names, shorter_than)
    found = [(share[start] - share[start + length], period, start, length) for start, length, period in repeated]
    taken: list[_Stretch] = []
    for _, period, start, length in sorted(one for one in found if one[0] <= -NOTICED_SHARE):
        own = _Stretch(start, start + length, period)
        for other in taken:
            own.yield_to(other)
        if own.count > 1:
            taken.append(own)
    for own in taken:
        part = float(share[own.end] - share[own.start])
        if part >= NOTICED_SHARE and own.period >= LEAST_BLOCK:
            yield Run(thread, rows[own.start : own.end], own.period, part, own.count)


class _Stretch(Struct):
    """Where a block repeats in a sequence."""

    start: int
    end: int
    period: int

    @property
    def count(self) -> int:
        """Whole blocks, or two of which one may be cut short."""
        return max(
            (self.end - self.start) // self.period, min((self.end - self.start + self.period // 2) // self.period, 2)
        )

    def yield_to(self, other: _Stretch) -> None:
        """Leave what both hold to the other one, but for what it holds beyond whole blocks."""
        if other.start <= self.start and self.end <= other.end:
            self.end = self.start
        before = self.start < other.start
        shared = self.end - other.start if before else other.end - self.start
        if shared <= 0 or self.end == self.start:
            return
        spare = min(shared, (other.end - other.start) % other.period)
        if before:
            self.end, other.start = other.start + spare, other.start + spare
        else:
            self.start, other.end = other.end - spare, other.end - spare


def repetitions(names: Column, shorter_than: int) -> Iterator[tuple[int, int, int]]:
    """Start, length and period of every longest stretch of at least two blocks in which a short block repeats.

    >>> list(repetitions(np.array([7, 1, 2, 1, 2, 1, 9]), 4))
    [(1, 5, 2)]
    """
    compact = np.unique(names, return_inverse=True)[1].astype(np.int32)
    longest = min(len(names) // 2, MOST_COMPARISONS // max(len(names), 1))
    for period in range(1, min(longest + 1, shorter_than)):
        same = compact[:-period] == compact[period:]
        if np.count_nonzero(same) < period:
            continue
        edges = np.diff(np.r_[0, same.view(np.int8), 0])
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        for at in np.flatnonzero(ends - begins >= period).tolist():
            yield int(begins[at]), int(ends[at] - begins[at]) + period, period


def _clear(runs: list[Run], within: str) -> list[Run]:
    """The repetitions of one count that take most of the computation; `within` says what they were looked for in."""
    if not runs:
        raise UnclearError(f"{within}no block of kernels repeats")
    shares: dict[int, float] = defaultdict(float)
    for run in runs:
        shares[run.count] += run.share
    usual = min(shares, key=lambda one: (-shares[one], one))
    near = [run for run in runs if abs(run.count - usual) <= 2 and NEARLY * shares[run.count] > shares[usual]]

    def support(count: int) -> tuple[float, int]:
        """How much of the computation repeats so often, cut short or not; of equals the least."""
        return round(sum(run.share for run in near if run.count <= count <= run.rounded), 9), -count

    count = max((run.rounded for run in near), key=support)
    if sum(run.share for run in near) < LEAST_SHARE:
        found = f"no block of kernels repeats for half of the computation; the longest do {_listed(runs)}"
        raise UnclearError(within + found)
    # The first or last layer may differ a bit, or something else look like one.
    if not all(run.count - 1 <= count <= run.rounded for run in near):
        raise UnclearError(f"{within}blocks of kernels repeat nearly, but not equally often: {_listed(near)}")
    return [replace(run, count=count) for run in near]


def _alone(rank: RankView, chosen: list[Run]) -> None:
    """Refuse blocks that are themselves repetitions: layers of several experts, or passes over all layers."""
    block = chosen[0].rows[: chosen[0].period]
    inner = list(_apart(0, block, rank.trace.tasks.name[block], np.linspace(0, 1, len(block) + 1), len(block)))
    for count in sorted({run.count for run in inner}):
        same = [run for run in inner if run.count == count]
        if sum(run.share for run in same) > NESTED_SHARE:
            nested = ", ".join(f"{count} x {run.period}" for run in same)
            raise UnclearError(f"{_listed(chosen)} repeat, and {nested} within each block: either could be the layers")


def _listed(runs: Iterable[Run]) -> str:
    """The repetitions with most time, equal ones together."""
    alike: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for run in runs:
        alike[run.thread, run.count, run.period].append(run.share)
    largest = sorted(alike.items(), key=lambda one: (-sum(one[1]), one[0]))[:3]
    return ", ".join(
        f"{count} x {period} kernels {f'{len(shares)} times ' if len(shares) > 1 else ''}"
        f"({sum(shares):.0%} of the computation)"
        for (_, count, period), shares in largest
    )


def _synchronises(rank: RankView, run: Run) -> bool:
    """Whether the host waits for the whole device between every two blocks."""
    calls = rank.trace.calls
    waits = np.array([name.endswith("DeviceSynchronize") for name in rank.trace.names], dtype=bool)
    times_ns = calls.start_ns[waits[calls.name] & (calls.lane == run.thread)]
    starts_ns = rank.launch_ns[run.rows[: run.count * run.period : run.period]]
    return bool(np.diff(np.searchsorted(times_ns, starts_ns)).all())


def _segments(rank: RankView, run: Run) -> list[Segment]:
    """Blocks from their first launch to the next one's; the last takes as long as most, if nothing else begins."""
    launch_ns, whole = rank.launch_ns[run.rows], run.count * run.period
    starts = launch_ns[: whole : run.period].tolist()
    if whole < len(run.rows):
        end = int(launch_ns[whole])
    else:  # before the thread's next call
        calls, last_ns = rank.trace.calls, int(rank.trace.calls.end_ns[rank.launch[run.rows[-1]]])
        later = calls.start_ns[(calls.lane == run.thread) & (calls.start_ns >= last_ns)]
        usual_ns = starts[-1] + int(np.median(np.diff(starts)))
        end = int(min(max(usual_ns, last_ns), later.min(initial=np.iinfo(np.int64).max)))
    return [Segment(run.thread, begin, finish) for begin, finish in zip(starts, [*starts[1:], end], strict=True)]
