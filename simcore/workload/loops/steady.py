"""How long a schedule takes, without playing all of its micro-batches.

Between filling and draining every stage repeats itself: `period` more micro-batches insert the same cells again. Once
the ends of a window of micro-batches, longer than any cell waits back, all lie one constant pace behind those a period
before, so do the next, each being the latest of cells that do (max-plus periodicity, Baccelli et al. 1992, chapter 3).
What a longer schedule takes more is then its periods times the pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.workload.loops.schedules import Cell, Durations, Schedule, family, make, outline, waits

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
_EXACT = 1e-11  # of the pace: what rounding leaves


def length(name: str, stages: int, micro_batches: int, chunks: int | None, durations: Durations) -> float:
    """`play(make(...), durations).makespan` up to rounding, in time that hardly depends on `micro_batches`.

    A schedule without a steady state within half its micro-batches is played whole: looking further costs more.
    """
    shape, repeats = outline(name, stages, micro_batches, chunks), family(name).period(stages)
    enough = 2 * shape.ways * stages * (family(name).reach + 1)
    short = enough + (micro_batches - enough) % repeats
    while 2 * short <= micro_batches:
        whole, ends = _finish(_waves(name, stages, short, chunks), durations)
        pace = _pace(shape, ends, repeats)
        if pace is not None:
            return whole + pace * ((micro_batches - short) // repeats)
        short += repeats * -(-short // repeats)
    return _finish(_waves(name, stages, micro_batches, chunks), durations)[0]


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

    `waves`: where each stands, and the two cells whose ends each of its cells waits for (behind the last: none);
    `moved`: which transfer, `lengths`: which duration it takes; `ends`: F's and B's cells, of micro-batch i on part j
    at place i * parts + j.
    """

    waves: list[tuple[slice, Places, Places]]
    moved: Places
    lengths: Places
    ends: Places


@lru_cache(maxsize=128)
def _waves(name: str, stages_: int, micro_batches: int, chunks_: int | None) -> _Waves:
    schedule = make(name, stages_, micro_batches, chunks_)
    parts, cells, lines = schedule.parts, [*chain(*schedule.order)], np.array([*map(len, schedule.order)])
    count, stages, chunks = len(cells), range(schedule.stages), range(schedule.chunks)
    columns = [_KINDS.index(cell[0]) for cell in cells], [cell[1] for cell in cells], [cell[2] for cell in cells]
    kind, number, chunk = (np.array(column, dtype=np.intp) for column in columns)
    told = [[[_told(schedule, stage, Cell(name, 0, one)) for one in chunks] for name in _KINDS] for stage in stages]
    part, needed, there, moved = np.array(told, dtype=np.intp)[np.repeat(stages, lines), kind, chunk].T
    ends = np.full((3, parts * schedule.micro_batches), count)
    ends[kind, number * parts + part] = np.arange(count)
    ends[2] = count
    before, first = np.arange(-1, count - 1), np.cumsum(lines) - lines
    before[first] = count
    awaited = ends[needed, number * parts + there]
    starts = _unit_starts(awaited, first, first + lines)
    order = np.argsort(starts, kind="stable")
    ranks = np.full(count + 1, count)
    ranks[order] = np.arange(count)
    edges = [0, *(np.flatnonzero(np.diff(starts[order])) + 1).tolist(), count]
    before, awaited = ranks[before[order]], ranks[awaited[order]]
    waves = [(here, before[here], awaited[here]) for here in map(slice, edges, edges[1:])]
    return _Waves(waves, moved[order], (kind * parts + part)[order], ranks[ends[:2]])


_KINDS = "FBW"


def _told(schedule: Schedule, stage: int, cell: Cell) -> tuple[int, int, int, int]:
    """As `waits`, with kinds as numbers: that of W where nothing is awaited, as nothing awaits a W."""
    part, needed, there, moved = waits(schedule, stage, cell)
    return part, _KINDS.index(needed or "W"), there, moved


def _unit_starts(awaited: Places, first: Places, behind: Places) -> Places:
    """When cells of one step each begin; those of a stage lie from `first` to `behind`."""
    starts, at = np.full(len(awaited) + 1, len(awaited)), first.copy()
    starts[-1] = -1  # of what awaits nothing
    for step in range(len(awaited)):
        left = np.flatnonzero(at < behind)
        if not len(left):
            break
        runs = left[starts[awaited[at[left]]] < step]
        starts[at[runs]] = step
        at[runs] += 1
    return starts[:-1]


def _finish(waves: _Waves, durations: Durations) -> tuple[float, Floats]:
    """Length of `play`, and when every F and every B ends."""
    each, parts = durations.transfer, len(durations.forward)
    transfers = [*(each if isinstance(each, Sequence) else [each] * parts), 0.0]  # at place -1: none
    weight = durations.weight or [0.0] * parts
    sent, lengths = (
        np.array(transfers)[waves.moved],
        np.array([*durations.forward, *durations.backward, *weight])[waves.lengths],
    )
    ends = np.zeros(len(lengths) + 1)
    for here, before, needed in waves.waves:
        ready = np.maximum(ends[before], ends[needed] + sent[here])
        ends[here] = ready + lengths[here]
    return float(ends.max()), ends[waves.ends]
