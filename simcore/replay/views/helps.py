"""What would help most: one part of a step after the other made shorter, and the step replayed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.replay.kinds import COMMUNICATION
from simcore.replay.session import RecordedStep, Replay
from simcore.replay.whatif.changes import WhatIf, kinds
from simcore.replay.whatif.host import HOST_TIMES, cuda_graphs, host, unsynchronised

NOTICEABLE = 0.001  # of a step; what saves less is not listed


class Help(Struct, frozen=True):
    """A change, the option that replays it, and what a step gets shorter by.

    The interval is that of the typical, the shortest and the longest step, unexplained delays kept and left out, and
    of all that collectives of which one rank was recorded may transfer and wait.
    """

    what: str
    option: str
    saved_ns: int
    interval_ns: tuple[int, int]


def helps(replay: Replay) -> list[list[Help]]:
    """For each rank the changes that make its step shorter, those that save most first."""
    steps = sorted(replay.scored(0), key=lambda step: (step.measured_ns, step.window.index))
    sources = dict.fromkeys(step.source for step in (steps[(len(steps) - 1) // 2], steps[0], steps[-1]))
    first = next(iter(sources))
    variants = [(source, replay.changes) for source in sources]
    variants += [(first, replace(replay.changes, residual=False))] if replay.changes.residual else []
    others = [(other, replay.changes) for other in first.otherwise()]
    before = {(source, how): source.device_times_ns(source.graph, how) for source, how in [*variants, *others]}
    found: list[list[Help]] = [[] for _ in first.ranks]
    for option, what, waits in _candidates(first):
        asked = variants + (others if waits else [])
        edited = {source: source.edited([what]) for source in dict.fromkeys(source for source, _ in asked)}
        if edited[first].same(first.graph):
            continue
        saved = [
            np.subtract(before[source, changes], source.device_times_ns(edited[source], changes)).tolist()
            for source, changes in asked
        ]
        for number, rows in enumerate(found):
            own = [each[number] for each in saved if number < len(each)]
            if own[0] > NOTICEABLE * before[variants[0]][number]:
                rows.append(Help(str(what), option, own[0], (min(own), max(own))))
    return [sorted(rows, key=lambda row: (-row.saved_ns, row.what)) for rows in found]


def _candidates(source: RecordedStep) -> Iterator[tuple[str, WhatIf, bool]]:
    """What might help: every kind of work in half the time, host time, launches and waits; whether ranks wait in it."""
    categories = sorted({
        view.categories[name]
        for view, step in zip(source.views, source.steps, strict=True)
        for name in np.unique(view.trace.tasks.name[view.task_step == step]).tolist()
    })  # fmt: skip
    yield from ((f"--scale {one}=0.5", kinds(one, 0.5), one == COMMUNICATION) for one in categories)
    yield from ((f"--scale {one}=0.5", host(one, 0.5), False) for one in HOST_TIMES)
    yield "--scale synchronisation=0", unsynchronised(), False
    yield "--cuda-graphs", cuda_graphs(), False
