"""What changes did to a step: its time, its communication kind by kind, its samples; and which would help most."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.replay.kinds import COMMUNICATION
from simcore.replay.session import RecordedStep, Replay, StepReplay
from simcore.replay.steps.build import Prepared
from simcore.replay.whatif.changes import HOST_TIMES, WhatIf, cuda_graphs, host, kinds, unsynchronised
from simcore.units import format_ns, format_ratio
from simcore.workload.model import kind_of

NOTICEABLE = 0.001  # of a step; what saves less is not listed


class Change(Struct, frozen=True):
    """Kernels of one kind: how many, and how long all of them last as recorded and as replayed, waiting left out."""

    count: int = 0
    recorded_ns: int = 0
    new_ns: int = 0


def changes(step: StepReplay) -> dict[str, Change]:
    """The communication kernels of one rank's step whose arguments were recorded, by kind."""
    trace, nodes = step.prepared.view.trace, step.graph.ranks[step.number]
    lengths = (step.timing.end_ns - step.timing.start_ns)[-1]
    found: dict[str, Change] = {}
    for task, node in zip(nodes.tasks, nodes.ends, strict=True):
        said = trace.collectives.get(task)
        if said is None:
            continue
        kind = kind_of(said.operation) or said.operation
        before = found.get(kind, Change())
        recorded_ns = step.source.transfer_ns(step.number, task)
        found[kind] = Change(before.count + 1, before.recorded_ns + recorded_ns, before.new_ns + int(lengths[node]))
    return dict(sorted(found.items()))


def changed_interval_ns(replay: Replay, step: StepReplay) -> tuple[int, int]:
    """What a changed step takes on the device, by how much of the collectives may be waiting."""
    times = [
        other.device_times_ns(other.edited(replay.whats), replay.changes)[step.number]
        for other in step.source.otherwise()
    ]
    return min([*times, step.period.device_ns]), max([*times, step.period.device_ns])


def headline(replay: Replay, number: int, typical: StepReplay) -> str:
    """What a rank's step takes with changes, in a sentence."""
    before_ns, after_ns = (
        mean(getattr(step, side).device_ns for step in replay.scored(number)) for side in ("baseline", "period")
    )
    change = after_ns / before_ns - 1 if before_ns else 0.0
    bounds = [after_ns + end - typical.period.device_ns for end in changed_interval_ns(replay, typical)]
    parts = [
        f"{one.count} {kind} {format_ns(one.new_ns)} instead of {format_ns(one.recorded_ns)}"
        for kind, one in changes(typical).items()
        if one.new_ns != one.recorded_ns
    ]
    said = f"Rank {typical.prepared.view.trace.rank}: with {', '.join(map(str, replay.whats))} a step takes "
    said += f"{format_ns(after_ns)} instead of {format_ns(before_ns)} ({change:+.1%})"
    said += ": " + ", ".join(parts) if parts else ""
    said += batch(replay.batches(number), before_ns, after_ns, replay.tokens) if before_ns and after_ns else ""
    span = " to ".join(map(format_ns, bounds))
    return said + (f"; {span} by how much of communication is waiting." if bounds[0] < bounds[1] else ".")


def batch(batches: float, before_ns: float, after_ns: float, tokens: int) -> str:
    """What the answer says of a step that takes in other samples than the recorded one, or of known `tokens`.

    >>> batch(2.0, 100e6, 125e6, 1000)
    '; the global batch is 2 times as large, 1.6 times the samples a second; 16,000 tokens/s instead of 10,000'
    """
    said = ""
    if batches != 1:
        said += f"; the global batch is {batches:.4g} times as large, "
        said += f"{format_ratio(batches * before_ns / after_ns)} times the samples a second"
    if tokens:
        said += f"; {tokens * batches / after_ns * 1e9:,.0f} tokens/s instead of {tokens / before_ns * 1e9:,.0f}"
    return said


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
    found = dict[Prepared, list[Help]]()
    for number, rank in enumerate(replay.ranks):
        if rank not in found:  # a rank that did not record the step of an earlier one: by a step of its own
            found |= _helps(replay, number)
    return [found[rank] for rank in replay.ranks]


def _helps(replay: Replay, number: int) -> dict[Prepared, list[Help]]:
    """What helps the ranks that recorded the typical step of one of them."""
    steps = replay.by_length(number)
    sources = dict.fromkeys(step.source for step in (replay.typical(number), steps[0], steps[-1]))
    first = next(iter(sources))
    variants = [(source, replay.changes) for source in sources]
    variants += [(first, replace(replay.changes, residual=False))] if replay.changes.residual else []
    others = [(other, replay.changes) for other in first.otherwise()]
    before = {(source, how): source.device_times_ns(source.graph, how) for source, how in [*variants, *others]}
    found: dict[Prepared, list[Help]] = {rank: [] for rank in first.ranks}
    for option, what, waits in _candidates(first):
        asked = variants + (others if waits else [])
        edited = {source: source.edited([what]) for source in dict.fromkeys(source for source, _ in asked)}
        if edited[first].same(first.graph):
            continue
        saved = [
            dict(zip(source.ranks, np.subtract(before[source, how], after_ns).tolist(), strict=True))
            for source, how in asked
            for after_ns in [source.device_times_ns(edited[source], how)]
        ]
        for rank, rows, before_ns in zip(first.ranks, found.values(), before[variants[0]], strict=True):
            own = [each[rank] for each in saved if rank in each]
            if own[0] > NOTICEABLE * before_ns:
                rows.append(Help(str(what), option, own[0], (min(own), max(own))))
    return {rank: sorted(rows, key=lambda row: (-row.saved_ns, row.what)) for rank, rows in found.items()}


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
