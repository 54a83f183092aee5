"""The ranges that a program names: which part of the model runs forward or backward, for which micro-batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simcore.replay.rank import Window
from simcore.workload.kineto import KinetoTrace

__all__ = ["NamedRange", "layer_number", "model_order", "named_ranges"]

WEIGHTS = "weight gradient"
RANGE = re.compile(rf"(.+?)[ _:]+(forward|backward|{WEIGHTS})$", re.IGNORECASE)
LAYER = re.compile(r"(?:.*[^a-z])?layers?[ _.:]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NamedRange:
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


def named_ranges(trace: KinetoTrace, window: Window) -> list[NamedRange]:
    """The named ranges of a step by their start, outer ones first; the n-th of a name is the n-th micro-batch."""
    found, opened = list[NamedRange](), dict[int, list[NamedRange]]()
    counts: dict[tuple[str, str], int] = {}
    for start, end, lane, part, way in _matching(trace, window):
        outer = [one for one in opened.get(lane, ()) if one.end_ns >= end and one.part == part]
        if outer:
            top = outer[-1]
            one = NamedRange(part, top.way, top.weight or way == WEIGHTS, "", top.micro_batch, start, end, lane)
        else:
            number = counts[part, way] = counts.get((part, way), -1) + 1
            passing = "forward" if way == "forward" else "backward"
            one = NamedRange(part, passing, way == WEIGHTS, way[0].upper(), number, start, end, lane)
        opened[lane] = [*outer, one]
        found.append(one)
    return found


def _matching(trace: KinetoTrace, window: Window) -> Iterator[tuple[int, int, int, str, str]]:
    """(start, end, thread, part, pass) of ranges with such a name; of equal spans weight gradients are inside."""
    rows = trace.annotations
    named = {name: RANGE.match(trace.names[name]) for name in set(rows.name.tolist())}
    columns = (rows.start_ns.tolist(), rows.end_ns.tolist(), rows.lane.tolist(), rows.name.tolist())
    chosen = [
        (start, -end, match[2].lower() == WEIGHTS, lane, match)
        for start, end, lane, name in zip(*columns, strict=True)
        if (match := named[name]) and window.start_ns <= start < window.end_ns
    ]
    for start, minus_end, _, lane, match in sorted(chosen, key=lambda one: one[:3]):
        layer = LAYER.fullmatch(match[1])
        yield start, -minus_end, lane, f"layer {int(layer[1])}" if layer else match[1].lower(), match[2].lower()


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
