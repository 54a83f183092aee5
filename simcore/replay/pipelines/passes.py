"""Layers and micro-batches of a pipeline whose program names no ranges: by its transfers, and by what repeats.

What a stage launches after it received an activation are its layers forward, after a gradient its layers backward; the
block of kernels that repeats there is a layer. The rest is before the first stage's layers or behind the last one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from simcore.replay.steps.rank import RankView
from simcore.replay.whatif.layers import NamedRange
from simcore.replay.whatif.repetition import UnclearError, repetitions
from simcore.replay.whatif.retiming import role_of
from simcore.workload.model import SEND, kind_of

Names = tuple[str, ...]
Piece = tuple[str, str, int, int]  # part of the model, pass (F or B), place of its first kernel and behind its last
WAYS = {"F": "forward", "B": "backward"}


class Line:
    """What a rank launched in a step, in order: names of kernels, and (place among them, other rank) of receives.

    `cuts` are the places of all transfers; `before` and `behind` the ranks of the neighbouring stages. Data parallel
    collectives come with one micro-batch only and are left out. The first transfer tells a rank's place: who receives
    first has a stage before it.
    """

    def __init__(self, view: RankView, step: int):
        trace, kept, moved = view.trace, list[int](), list[tuple[int, int, bool]]()
        for task in view.launch_order[view.task_step[view.launch_order] == step].tolist():
            said = trace.collectives.get(task)
            if said is None or not (said.ends or role_of(said) == "dp"):
                kept.append(task)
            elif said.ends and kind_of(said.operation) == SEND:
                receives = said.ends[1] == trace.rank
                moved.append((len(kept), said.ends[1 - receives], receives))
        self.rank, self.launch_ns = trace.rank, view.launch_ns[kept].tolist()
        self.names: Names = tuple(trace.names[name] for name in trace.tasks.name[kept].tolist())
        self.lanes = [int(trace.calls.lane[call]) if call >= 0 else -1 for call in view.launch[kept].tolist()]
        self.received = [(place, rank) for place, rank, receives in moved if receives]
        self.cuts = frozenset(place for place, _, _ in moved)
        self.before = moved[0][1] if moved and moved[0][2] else None
        self.behind = next((rank for _, rank, receives in moved if not receives and rank != self.before), None)


def stages_of(lines: Sequence[Line]) -> list[int]:
    """The stage of each rank, counted from those that no activation is sent to; -1 where that is not known."""
    before = {line.rank: line.before for line in lines}
    found = list[int]()
    for line in lines:
        stage, at = 0, line.before
        while at is not None and at in before and stage <= len(lines):
            stage, at = stage + 1, before[at]
        alone = line.before is None and line.behind is None
        found.append(stage if at is None and not alone else -1)
    return found


def found_ranges(lines: Sequence[Line]) -> list[list[NamedRange]]:
    """The ranges of each rank's step, as if its program had named them; UnclearError when ranks of a stage are missing,
    nothing repeats behind the transfers, or micro-batches differ.
    """
    stages = stages_of(lines)
    if -1 in stages:
        lost = lines[stages.index(-1)]
        raise UnclearError(f"no transfer says which stage rank {lost.rank} is, among those that were recorded")
    forward = _block([(line, place) for line in lines for place, rank in line.received if rank == line.before])
    backward = _block([(line, place) for line in lines for place, rank in line.received if rank == line.behind])
    blocks = sorted((("F", forward), ("B", backward)), key=lambda one: -len(one[1]))
    passes = [list(_passes(line, blocks)) for line in lines]
    counts = [{len(one.starts) for one in some} for some in passes]
    for line, count in zip(lines, counts, strict=True):
        if len(count) != 1:
            raise UnclearError(f"rank {line.rank}: its micro-batches run {sorted(count) or 'no'} layers")
    layers = {stage: min(count) for stage, count in zip(stages, counts, strict=True)}
    first = {stage: sum(layers[other] for other in layers if other < stage) for stage in layers}
    found = []
    for line, some, stage in zip(lines, passes, stages, strict=True):
        numbers, own = Counter[tuple[str, str]](), list[NamedRange]()
        for part, kind, start, end in _pieces(line, some, first[stage]):
            span = line.launch_ns[start], line.launch_ns[end - 1] + 1
            own.append(NamedRange(part, WAYS[kind], False, kind, numbers[part, kind], *span, line.lanes[start]))
            numbers[part, kind] += 1
        found.append(own)
    return found


def _block(stretches: Sequence[tuple[Line, int]]) -> Names:
    """The kernels of a layer: what repeats from the start of a stretch between transfers and fills most of one."""
    most: tuple[int, int, Names] = 0, 0, ()
    for line, place in stretches:
        names = line.names[place : min((cut for cut in line.cuts if cut > place), default=len(line.names))]
        for start, length, period in repetitions(np.array(names), len(names)):
            if start == 0:
                most = max(most, (length // period * period, -period, names[:period]))
    if not most[0]:
        raise UnclearError("no block of kernels repeats behind a transfer")
    return most[2]


def _passes(line: Line, blocks: Sequence[tuple[str, Names]]) -> Iterator[_Pass]:
    """Blocks next to each other that no transfer parts."""
    at, kind, starts = 0, "", list[int]()
    while at <= len(line.names):
        here = next(((way, len(names)) for way, names in blocks if line.names[at : at + len(names)] == names), ("", 1))
        if starts and (here[0] != kind or at in line.cuts):
            yield _Pass(kind, tuple(starts), at)
            starts = []
        if here[0]:
            starts.append(at)
        at, kind = at + here[1], here[0]


class _Pass(Struct, frozen=True):
    """The layers of one micro-batch on a stage, one way: the place of each layer's first kernel, and the end."""

    kind: str
    starts: tuple[int, ...]
    end: int


def _pieces(line: Line, passes: Sequence[_Pass], first: int) -> list[Piece]:
    """The parts of the model in the order in which they came; `first` is the number of the stage's first layer.

    Before its layers the first stage has an "input", behind them the last one has an "output". Between two passes comes
    what ends the one, the input backward or the output forward, and what begins the other.
    """
    part, fronted, tailed = ("input", "F", "B") if line.before is None else ("output", "B", "F")
    gaps = [("", 0, passes[0].kind, passes[0].starts[0])]
    gaps += [(one.kind, one.end, other.kind, other.starts[0]) for one, other in pairwise(passes)]
    front = _front(line, gaps, fronted)
    cut = [(old, start, end - front * (new == fronted), new, end) for old, start, new, end in gaps]
    tails = {line.names[start:turn] for old, start, turn, _, _ in cut if old == tailed}
    strange = [1 for old, start, turn, _, _ in cut if turn < start or (turn > start and old not in ("", tailed))]
    if strange or len(tails) > 1 or ((front or any(tails)) and line.before is not None and line.behind is not None):
        raise UnclearError(f"rank {line.rank}: micro-batches differ, or a stage in the middle runs more than layers")
    tail = len(next(iter(tails), ()))
    found = list[Piece]()
    for (_, _, turn, new, end), one in zip(cut, passes, strict=True):
        found += [(part, new, turn, end)] if end > turn else []
        ends = [*one.starts[1:], one.end]
        numbers = range(len(ends)) if one.kind == "F" else reversed(range(len(ends)))
        found += [
            (f"layer {first + number}", one.kind, begin, until)
            for number, begin, until in zip(numbers, one.starts, ends, strict=True)
        ]
        found += [(part, one.kind, one.end, one.end + tail)] if tail and one.kind == tailed else []
    return found


def _front(line: Line, gaps: Sequence[tuple[str, int, str, int]], fronted: str) -> int:
    """How many kernels come before the layers of a pass: the step's first, or those behind another such pass.

    Where a pass of the other kind ended just before, what another thread launched; on one thread all of it.
    """
    alone = [
        end - start for wanted in (fronted, "") for old, start, new, end in gaps if (old, new) == (wanted, fronted)
    ]
    turns = [line.lanes[start : end + 1] for _, start, new, end in gaps if new == fronted]
    return alone[0] if alone else next((sum(lane == own[-1] for lane in own[:-1]) for own in turns), 0)
