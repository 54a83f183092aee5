"""How long a schedule takes, without playing all of its micro-batches.

Between filling and draining every stage repeats itself: `period` more micro-batches insert the same cells again. Once
the ends of a window of micro-batches, longer than any cell waits back, all lie one constant pace behind those a period
before, so do the next, each being the latest of cells that do (max-plus periodicity, Baccelli et al. 1992, chapter 3).
What a longer schedule takes more is then its periods times the pace.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.workload.loops.schedules import Durations, Schedule, family, make, outline, play

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
_EXACT = 1e-11  # of the pace: what rounding leaves


def length(name: str, stages: int, micro_batches: int, chunks: int | None, durations: Durations) -> float:
    """`play(make(...), durations).makespan` up to rounding, in time that hardly depends on `micro_batches`.

    A schedule without a steady state within half its micro-batches is played whole: looking further costs more.
    """
    repeats, ways = family(name).period(stages), outline(name, stages, micro_batches, chunks).ways
    enough = 2 * ways * stages * (family(name).reach + 1)
    short = enough + (micro_batches - enough) % repeats
    while 2 * short <= micro_batches:
        schedule = make(name, stages, short, chunks)
        whole, ends = _finish(schedule, durations)
        pace = _pace(schedule, ends, repeats)
        if pace is not None:
            return whole + pace * ((micro_batches - short) // repeats)
        short += repeats * -(-short // repeats)
    return _finish(make(name, stages, micro_batches, chunks), durations)[0]


def _pace(schedule: Schedule, ends: Floats, repeats: int) -> float | None:
    """What a period adds, None while the ends of a window before the drain do not repeat."""
    forward, backward = (_repeated(schedule, some, repeats) for some in ends)
    if forward is None or backward is None:
        return None
    if family(schedule.name).apart:
        return forward + backward
    return forward if abs(forward - backward) <= _EXACT * forward else None


def _repeated(schedule: Schedule, ends: Floats, repeats: int) -> float | None:
    """The pace of one kind of cell: the window reaches as far as cells wait back, and ends as far before the last."""
    rows, window = ends.reshape(schedule.ways, -1, schedule.parts), family(schedule.name).reach * schedule.stages
    step = repeats // schedule.ways
    later, former = rows[:, -2 * window : -window], rows[:, -2 * window - step : -window - step]
    gaps = later - former
    pace = float(gaps.mean())
    return pace if float(np.ptp(gaps)) <= _EXACT * pace else None


class _Waves(NamedTuple):
    """A schedule's cells by the first step they can run in, were all of one step: those of a wave await others only.

    `edges`: where waves begin; `before` and `needed`: cells whose ends each waits for (behind the last: none), `moved`:
    which transfer, `lengths`: which duration it takes; `ends`: F's and B's cells, of micro-batch i on part j at place
    i * parts + j.
    """

    edges: list[int]
    before: Places
    needed: Places
    moved: Places
    lengths: Places
    ends: Places


@lru_cache(maxsize=128)
def _waves(schedule: Schedule) -> _Waves:
    parts, kinds, steps = schedule.parts, {"F": 0, "B": 1, "W": 2}, list(chain(*schedule.steps))
    count, unit = len(steps), [1] * parts
    starts = np.array([*chain(*play(schedule, Durations(unit, unit, unit)).start)], dtype=np.intp)
    order = np.argsort(starts, kind="stable")
    ranks = np.full(count + 1, count)
    ranks[order] = np.arange(count)
    columns = (
        (kinds[kind], part, own, kinds.get(needed, 2), there, moved) for kind, part, own, needed, there, moved in steps
    )
    kind, part, own, needed, there, moved = np.array([*columns], dtype=np.intp).T
    ends = np.full((3, parts * schedule.micro_batches), count)
    ends[kind, own] = np.arange(count)
    ends[2] = count
    before = np.arange(-1, count - 1)
    before[np.cumsum([0, *map(len, schedule.steps[:-1])])] = count
    edges = [0, *(np.flatnonzero(np.diff(starts[order])) + 1).tolist(), count]
    behind = (ranks[before[order]], ranks[ends[needed, there][order]])
    return _Waves(edges, *behind, moved[order], (kind * parts + part)[order], ranks[ends[:2]])


def _finish(schedule: Schedule, durations: Durations) -> tuple[float, Floats]:
    """Length of `play`, and when every F and every B ends."""
    waves, each = _waves(schedule), durations.transfer
    transfers = [*(each if isinstance(each, Sequence) else [each] * schedule.stages), 0.0]  # at place -1: none
    weight = durations.weight or [0.0] * schedule.parts
    sent, lengths = (
        np.array(transfers)[waves.moved],
        np.array([*durations.forward, *durations.backward, *weight])[waves.lengths],
    )
    ends = np.zeros(len(lengths) + 1)
    for first, last in pairwise(waves.edges):
        here = slice(first, last)
        ready = np.maximum(ends[waves.before[here]], ends[waves.needed[here]] + sent[here])
        ends[here] = ready + lengths[here]
    return float(ends.max()), ends[waves.ends]
