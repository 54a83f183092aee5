"""Schedules in time: when every cell runs, where each stage runs its order as soon as inputs are there.

How long a schedule takes as a whole is known without playing all of its micro-batches (`length`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.errors import SimulationError
from simcore.workload.loops.schedules import Cell, Schedule, family, make, needs, outline

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
_KINDS = "FBW"
_EXACT = 1e-11  # of the pace of a steady state: what rounding leaves


class Durations(Struct, frozen=True):
    """Time of every cell by part of the model (any one unit), and of a transfer between neighbouring stages.

    `transfer` is one for all, or one for every stage and the next (for the last: the first).
    `backward` is the whole backward pass when the schedule has no W cells, the input gradient alone when it has.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float] = ()
    transfer: float | Sequence[float] = 0


class Played(Struct, frozen=True):
    """Start and end of every cell, in the schedule's order of cells, per stage."""

    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]

    @property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return max((ends[-1] for ends in self.end if ends), default=0)

    def busy(self, stage: int) -> float:
        """Time a stage computes."""
        return sum(end - start for start, end in zip(self.start[stage], self.end[stage], strict=True))


class Waves(NamedTuple):
    """A schedule's cells by the first step they can run in, were all of one step: those of a wave await others only.

    `waves`: where each stands, and the two cells whose ends each of its cells waits for (behind the last: none);
    `moved`: which transfer, `lengths`: which duration it takes; `ends`: F's and B's cells, of micro-batch i on part j
    at place i * parts + j; `places`: all cells, in the schedule's order; `last`: the last of every stage.
    """

    waves: list[tuple[slice, Places, Places]]
    moved: Places
    lengths: Places
    ends: Places
    places: Places
    last: Places

    def times(self, durations: Durations) -> tuple[Floats, Floats]:
        """Start and end of every cell; behind the last: 0."""
        each, parts = durations.transfer, len(durations.forward)
        transfers = np.array([*(each if isinstance(each, Sequence) else [each] * parts), 0.0])  # at place -1: none
        weight = durations.weight or [0.0] * parts
        lengths = np.array([*durations.forward, *durations.backward, *weight])[self.lengths]
        sent, (starts, ends) = transfers[self.moved], np.zeros((2, len(lengths) + 1))
        for here, before, needed in self.waves:
            starts[here] = np.maximum(ends[before], ends[needed] + sent[here])
            ends[here] = starts[here] + lengths[here]
        return starts, ends


@lru_cache(maxsize=128)
def waves_of(schedule: Schedule) -> Waves:
    """The cells of a schedule, ready to time; SimulationError when its order can never finish."""
    parts, cells, lines = schedule.parts, [*chain(*schedule.order)], np.array([*map(len, schedule.order)])
    count, stages, chunks = len(cells), range(schedule.stages), range(schedule.chunks)
    columns = [_KINDS.index(cell[0]) for cell in cells], [cell[1] for cell in cells], [cell[2] for cell in cells]
    kind, number, chunk = (np.array(column, dtype=np.intp) for column in columns)
    told = [[[_waits(schedule, stage, Cell(name, 0, one)) for one in chunks] for name in _KINDS] for stage in stages]
    stage_of = np.repeat(stages, lines)
    part, needed, there, moved = np.array(told, dtype=np.intp)[stage_of, kind, chunk].T
    ends = np.full((3, parts * schedule.micro_batches), count)
    ends[kind, number * parts + part] = np.arange(count)
    ends[2] = count
    before, first = np.arange(-1, count - 1), np.cumsum(lines) - lines
    before[first] = count
    awaited = ends[needed, number * parts + there]
    starts = _unit_starts(awaited, first, first + lines)
    for stuck in np.flatnonzero(starts == count)[:1].tolist():
        stage, cell = int(stage_of[stuck]), cells[stuck]
        text = f"stage {stage} waits for {needs(schedule, stage, cell)} at {cell}"
        raise SimulationError(f"schedule {schedule.name} can never finish: {text}")
    order = np.argsort(starts, kind="stable")
    ranks = np.full(count + 1, count)
    ranks[order] = np.arange(count)
    edges = [0, *(np.flatnonzero(np.diff(starts[order])) + 1).tolist(), count]
    before, awaited = ranks[before[order]], ranks[awaited[order]]
    waves = [(here, before[here], awaited[here]) for here in map(slice, edges, edges[1:])]
    places = ranks[:-1]
    return Waves(waves, moved[order], (kind * parts + part)[order], ranks[ends[:2]], places, places[first + lines - 1])


def _waits(schedule: Schedule, stage: int, cell: Cell) -> tuple[int, int, int, int]:
    """Part, kind and part it waits for (W where it waits for nothing, as nothing waits for a W), where that moves.

    A transfer is named by the stage ahead of it: -1 = it stays within one.
    """
    part, needed = schedule.part(stage, cell.chunk), needs(schedule, stage, cell)
    if needed is None:
        return part, _KINDS.index("W"), 0, -1
    kind, _, there = needed
    near, far = sorted((stage, schedule.stage(there, cell.chunk)))
    return part, _KINDS.index(kind), there, -1 if near == far else near if far == near + 1 else far


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


def play(schedule: Schedule, durations: Durations) -> Played:
    """Start and end of every cell; a transfer is paid between different stages only.

    SimulationError when the order can never finish.
    """
    waves, cuts = waves_of(schedule), np.cumsum([*map(len, schedule.order)])[:-1]
    lines = (np.split(column[waves.places], cuts) for column in waves.times(durations))
    return Played(*(tuple(tuple(line.tolist()) for line in some) for some in lines))


def show(schedule: Schedule) -> str:
    """The grid of a schedule, every cell one step long; `parse` reads it back."""
    unit = [1] * schedule.parts
    played = play(schedule, Durations(unit, unit, unit))
    width = max(len(str(cell)) for line in schedule.order for cell in line)
    plural = "" if schedule.chunks == 1 else "s"
    head = (
        f"schedule {schedule.name}: {schedule.stages} stages, {schedule.micro_batches} micro-batches, "
        f"{schedule.chunks} chunk{plural}, {schedule.placement}"
    )
    rows = [["."] * int(played.makespan) for _ in schedule.order]
    for row, line, starts in zip(rows, schedule.order, played.start, strict=True):
        for cell, start in zip(line, starts, strict=True):
            row[int(start)] = str(cell)
    digits = len(str(schedule.stages - 1))
    body = [f"{i:>{digits}} | " + " ".join(f"{text:<{width}}" for text in row).rstrip() for i, row in enumerate(rows)]
    return "\n".join([head, *body]) + "\n"


def stage_ends(name: str, stages: int, micro_batches: int, chunks: int | None, durations: Durations) -> Floats:
    """When `play(make(...), durations)` is over on every stage, up to rounding.

    That takes a time that hardly depends on `micro_batches`: between filling and draining every stage repeats itself,
    `period` more micro-batches insert the same cells again.
    Once the ends of a window of micro-batches, longer than any cell waits back, all lie one constant pace behind those
    a period before, so do the next, each being the latest of cells that do (max-plus periodicity, Baccelli et al. 1992,
    chapter 3). What a longer schedule takes more is then its periods times the pace. A schedule without a steady state
    within half its micro-batches is played whole: looking further costs more.
    """
    shape, repeats = outline(name, stages, micro_batches, chunks), family(name).period(stages)
    enough = 2 * shape.ways * stages * (family(name).reach + 1)
    short = enough + (micro_batches - enough) % repeats
    while 2 * short <= micro_batches:
        whole, ends = _finish(waves_of(make(name, stages, short, chunks)), durations)
        pace = _pace(shape, ends, repeats)
        if pace is not None:
            return whole + pace * ((micro_batches - short) // repeats)  # every stage's last cell moves so
        short += repeats * -(-short // repeats)
    return _finish(waves_of(make(name, stages, micro_batches, chunks)), durations)[0]


def _pace(schedule: Schedule, ends: Floats, repeats: int) -> float | None:
    """What a period adds, None while the ends of a window before the drain do not repeat.

    The window reaches as far as cells wait back, and ends as far before the last.
    """
    known, step, paces = family(schedule.name), repeats // schedule.ways, []
    window = known.reach * schedule.stages
    for rows in ends.reshape(2, schedule.ways, -1, schedule.parts):  # of forwards, of backwards
        gaps = rows[:, -2 * window : -window] - rows[:, -2 * window - step : -window - step]
        paces.append(float(gaps.mean()))
        if float(np.ptp(gaps)) > _EXACT * paces[-1]:
            return None
    forward, backward = paces
    if known.apart:
        return forward + backward
    return forward if abs(forward - backward) <= _EXACT * forward else None


def _finish(waves: Waves, durations: Durations) -> tuple[Floats, Floats]:
    """When a schedule ends on every stage, and when every F and every B ends."""
    _, ends = waves.times(durations)
    return ends[waves.last], ends[waves.ends]
