"""How long a schedule takes, without playing all of its micro-batches.

Between filling and draining every stage repeats itself: `period` more micro-batches insert the same cells again. Once
the ends of a window of micro-batches, longer than any cell waits back, all lie one constant pace behind those a period
before, so do the next, each being the latest of cells that do (max-plus periodicity, Baccelli et al. 1992, chapter 3).
What a longer schedule takes more is then its periods times the pace.
"""

from __future__ import annotations

import numpy as np

from simcore.workload.loops.schedules import Schedule, family, make, outline
from simcore.workload.loops.timing import Durations, Floats, Waves, waves_of

_EXACT = 1e-11  # of the pace: what rounding leaves


def length(name: str, stages: int, micro_batches: int, chunks: int | None, durations: Durations) -> float:
    """`play(make(...), durations).makespan` up to rounding, in time that hardly depends on `micro_batches`.

    A schedule without a steady state within half its micro-batches is played whole: looking further costs more.
    """
    shape, repeats = outline(name, stages, micro_batches, chunks), family(name).period(stages)
    enough = 2 * shape.ways * stages * (family(name).reach + 1)
    short = enough + (micro_batches - enough) % repeats
    while 2 * short <= micro_batches:
        whole, ends = _finish(waves_of(make(name, stages, short, chunks)), durations)
        pace = _pace(shape, ends, repeats)
        if pace is not None:
            return whole + pace * ((micro_batches - short) // repeats)
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


def _finish(waves: Waves, durations: Durations) -> tuple[float, Floats]:
    """The length of a schedule, and when every F and every B ends."""
    _, ends = waves.times(durations)
    return float(ends.max()), ends[waves.ends]
