"""Layers of a recorded step: by the ranges that the program or PyTorch's module stack named, or by repetition.

A named range says which part of the model runs forward or backward, for which micro-batch.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median_low

import numpy as np
from msgspec import Struct

from simcore.errors import InputError
from simcore.replay.steps.rank import RankView
from simcore.replay.whatif.repetition import LEAST_SHARE, Segment, UnclearError, repeated_segments
from simcore.workload.kineto import KinetoTrace, StepMark

NUMBERED = re.compile(r"(.*?)(\d+)(\D*)$", re.DOTALL)
AUTOGRAD = "autograd::engine"


class LayerStack:
    """The layers of a step under one name, so many as `count`; without a name they were found by repetition.

    `alike` are the numbers of those that launch what most of them launch, `kernels` of them each, from the most
    ordinary kernel time outwards; `segments` are all parts (forward, backward, per micro-batch) of each layer.
    """

    def __init__(self, rank: RankView, step: int, title: str, segments: dict[int, tuple[Segment, ...]]):
        length_ns, own = rank.trace.tasks.end_ns - rank.trace.tasks.start_ns, rank.task_step == step
        launched = {
            number: [rank.launched(part.thread, part.start_ns, part.end_ns, own) for part in parts]
            for number, parts in segments.items()
        }
        kernels = {number: tuple(map(len, rows)) for number, rows in launched.items()}
        usual, _ = Counter(kernels.values()).most_common(1)[0]
        times = {
            number: int(sum(length_ns[each].sum() for each in rows))
            for number, rows in launched.items()
            if kernels[number] == usual
        }
        ordinary = median_low(times.values())
        middle = median_low(times)  # the first and the last layer border on something else
        order = sorted(times, key=lambda number: (abs(times[number] - ordinary), abs(number - middle), number))
        self.title, self.segments, self.alike = title.strip(" _:-"), segments, tuple(order)
        self.count, self.kernels, self.kernel_ns = len(segments), sum(usual), sum(times.values())


def find_layers(rank: RankView, step: int) -> LayerStack:
    """The numbered ranges of a step that hold the most kernel time, those called layers first; if equal, the fewest.

    Where no names hold all of a layer, the blocks of kernels that repeat exactly. InputError when no names with numbers
    hold layers that launch the same kernels, or only forward passes are named, and nothing repeats clearly.
    """
    groups = _numbered(rank, step)
    stacks = [LayerStack(rank, step, title, segments) for title, segments in groups.items() if len(segments) > 1]
    found = [stack for stack in stacks if len(stack.alike) > 1 and stack.kernel_ns]
    if not found:
        return _repeated(rank, step, "no numbered annotations or modules launch the same kernels")
    best = min(
        found, key=lambda stack: ("layer" not in stack.title.lower(), -stack.kernel_ns, stack.count, stack.title)
    )
    if _backward_outside(rank, step, best):
        return _repeated(rank, step, f"the backward pass runs outside the ranges {best.title!r}")
    return best


def layers_if_clear(rank: RankView, step: int) -> dict[str, object] | None:
    """What the report says of them: `name` is empty when they were found by repetition; None where nothing tells."""
    try:
        stack = find_layers(rank, step)
    except InputError:
        return None
    return {"count": stack.count, "alike": len(stack.alike), "kernels": stack.kernels, "name": stack.title}


def _repeated(rank: RankView, step: int, unnamed: str) -> LayerStack:
    """The layers by repetition; `unnamed` says why names do not tell."""
    try:
        stack = LayerStack(rank, step, "", repeated_segments(rank, step))
    except UnclearError as unclear:
        raise _unnamed(rank, f"{unnamed}; {unclear}") from unclear
    own = (rank.task_step == step) & ~rank.communication
    computation_ns = int((rank.trace.tasks.end_ns - rank.trace.tasks.start_ns)[own].sum())
    if len(stack.alike) < 2 or stack.kernel_ns < LEAST_SHARE * computation_ns:
        raise _unnamed(rank, f"{unnamed}; blocks that repeat are less than half of the step, or not alike")
    if _backward_outside(rank, step, stack):
        raise _unnamed(rank, f"{unnamed}; in the backward pass no block of kernels repeats as often as in the forward")
    return stack


def _unnamed(rank: RankView, found: str) -> InputError:
    return InputError.at(
        "--set",
        "layers cannot be changed: the trace does not say which calls and kernels are a layer",
        expected=f"ranges like 'layer 3 forward' and 'layer 3 backward' (torch.profiler.record_function), for a "
        f"forward pass the modules of with_stack=True, or one block of kernels that repeats, in {rank.trace.file}",
        found=found,
    )


def _numbered(rank: RankView, step: int) -> dict[str, dict[int, tuple[Segment, ...]]]:
    """Ranges of a step by the text before the number in their name, then by number; none inside another one."""
    ranges, window = rank.trace.annotations, rank.windows[step]
    chosen = np.flatnonzero((ranges.start_ns >= window.start_ns) & (ranges.end_ns <= window.end_ns))
    parts = {name: NUMBERED.match(rank.trace.names[name]) for name in set(ranges.name[chosen].tolist())}
    groups: dict[str, dict[int, list[Segment]]] = defaultdict(lambda: defaultdict(list))
    reach: dict[tuple[str, int], int] = {}
    for row in chosen.tolist():
        part, thread = parts[int(ranges.name[row])], int(ranges.lane[row])
        start, end = int(ranges.start_ns[row]), int(ranges.end_ns[row])
        if part is None or start < reach.get((part[1], thread), start):
            continue
        reach[part[1], thread] = end
        groups[part[1]][int(part[2])].append(Segment(thread, start, end))
    return {title: {number: tuple(parts) for number, parts in group.items()} for title, group in groups.items()}


def _backward_outside(rank: RankView, step: int, stack: LayerStack) -> bool:
    """Whether autograd works in this step, but in no part of a layer."""
    window, operators = rank.windows[step], rank.trace.operators
    names = np.array([name.startswith(AUTOGRAD) for name in rank.trace.names], dtype=bool)
    rows = names[operators.name] & (operators.start_ns >= window.start_ns) & (operators.start_ns < window.end_ns)
    starts = operators.start_ns[rows]
    parts = [part for parts in stack.segments.values() for part in parts]
    inside = [((starts >= part.start_ns) & (starts < part.end_ns)).any() for part in parts]
    return len(starts) > 0 and not any(inside)


WEIGHTS = "weight gradient"
RANGE = re.compile(rf"(.+?)[ _:]+(forward|backward|{WEIGHTS})$", re.IGNORECASE)
LAYER = re.compile(r"(?:.*[^a-z])?layers?[ _.:]*(\d+)", re.IGNORECASE)


class NamedRange(Struct, frozen=True):
    """A part of the model ("layer 3") in a pass, on a host thread; `weight` where it computes weight gradients only.

    A range inside one of the same part belongs to that one's pass: `kind` is "" then, else F, B or W.
    """

    part: str
    way: str
    weight: bool
    kind: str
    micro_batch: int
    start_ns: int
    end_ns: int
    lane: int


def named_ranges(trace: KinetoTrace, window: StepMark) -> list[NamedRange]:
    """The named ranges of a step by their start, outer ones first; the n-th of a name is the n-th micro-batch."""
    rows, found, opened = trace.annotations, list[NamedRange](), dict[int, list[NamedRange]]()
    counts: dict[tuple[str, str], int] = {}
    named = {name: RANGE.match(trace.names[name]) for name in set(rows.name.tolist())}
    columns = (rows.start_ns.tolist(), rows.end_ns.tolist(), rows.lane.tolist(), rows.name.tolist())
    chosen = [
        (start, -end, match[2].lower(), lane, match[1])
        for start, end, lane, name in zip(*columns, strict=True)
        if (match := named[name]) and window.start_ns <= start < window.end_ns
    ]
    # Of equal spans weight gradients are inside.
    for start, minus_end, way, lane, said in sorted(chosen, key=lambda one: (*one[:2], one[2] == WEIGHTS)):
        part, end = f"layer {number}" if (number := layer_number(said)) >= 0 else said.lower(), -minus_end
        outer = [one for one in opened.get(lane, ()) if one.end_ns >= end and one.part == part]
        if outer:
            top = outer[-1]
            one = NamedRange(part, top.way, top.weight or way == WEIGHTS, "", top.micro_batch, start, end, lane)
        else:
            again = counts[part, way] = counts.get((part, way), -1) + 1
            passing = "forward" if way == "forward" else "backward"
            one = NamedRange(part, passing, way == WEIGHTS, way[0].upper(), again, start, end, lane)
        opened[lane] = [*outer, one]
        found.append(one)
    return found


def layer_number(part: str) -> int:
    """The number of a layer, -1 of what is none."""
    layer = LAYER.fullmatch(part)
    return int(layer[1]) if layer else -1


def model_order(ranges: Sequence[NamedRange]) -> tuple[str, ...]:
    """Parts in the order of forward passes; one that only goes backwards where the backward passes have it."""
    found = list(dict.fromkeys(one.part for one in ranges if one.kind == "F"))
    before = ""
    for part in reversed(dict.fromkeys(one.part for one in ranges if one.kind == "B")):
        if part not in found:
            found.insert(found.index(before) + 1 if before else 0, part)
        before = part
    return tuple(found)
