"""How long a schedule takes, without playing all of its micro-batches.

Between filling and draining every stage repeats itself: `period` more micro-batches insert the same cells again. Once
the ends of a window of micro-batches, longer than any cell waits back, all lie one constant pace behind those a period
before, so do the next, each being the latest of cells that do (max-plus periodicity, Baccelli et al. 1992, chapter 3).
What a longer schedule takes more is then its periods times the pace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.workload.loops.schedules import Durations, Ends, Schedule, family, finish, make, outline

__all__ = ["length"]


_EXACT = 1e-11  # of the pace: what rounding leaves


def length(name: str, stages: int, micro_batches: int, chunks: int | None, durations: Durations) -> float:
    """`play(make(...), durations).makespan` up to rounding, in time that hardly depends on `micro_batches`.

    A schedule without a steady state within half its micro-batches is played whole: looking further costs more.
    """
    repeats, ways = family(name).period(stages), _ways(outline(name, stages, micro_batches, chunks))
    enough = 2 * ways * stages * (family(name).reach + 1)
    short = enough + (micro_batches - enough) % repeats
    while 2 * short <= micro_batches:
        schedule = make(name, stages, short, chunks)
        whole, ends = finish(schedule, durations)
        pace = _pace(schedule, ends, repeats)
        if pace is not None:
            return whole + pace * ((micro_batches - short) // repeats)
        short += repeats * -(-short // repeats)
    return finish(make(name, stages, micro_batches, chunks), durations)[0]


def _ways(schedule: Schedule) -> int:
    """Pipelines that run against each other, each with its own micro-batches."""
    return 2 if schedule.placement == "twoway" else 1


def _pace(schedule: Schedule, ends: Ends, repeats: int) -> float | None:
    """What a period adds, None while the ends of a window before the drain do not repeat."""
    paces = [_repeated(schedule, np.array(ends[way], dtype=float), repeats) for way in "FB"]
    forward, backward = paces
    if forward is None or backward is None:
        return None
    if family(schedule.name).apart:
        return forward + backward
    return forward if abs(forward - backward) <= _EXACT * forward else None


def _repeated(schedule: Schedule, ends: NDArray[np.float64], repeats: int) -> float | None:
    """The pace of one kind of cell: the window reaches as far as cells wait back, and ends as far before the last."""
    ways = _ways(schedule)
    rows, window = ends.reshape(ways, -1, schedule.parts), family(schedule.name).reach * schedule.stages
    step = repeats // ways
    later, former = rows[:, -2 * window : -window], rows[:, -2 * window - step : -window - step]
    gaps = later - former
    pace = float(gaps.mean())
    return pace if float(np.ptp(gaps)) <= _EXACT * pace else None
