"""Two profiler traces aligned: what a step of each takes on the GPU, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simcore.replay.kinds import plain
from simcore.report.aligned import Comparison, Pair, align, both
from simcore.report.table import Table, columns, shorten
from simcore.timeline.breakdown import union_ns
from simcore.units import format_ns
from simcore.workload.kineto import KinetoTrace

MOST_NAME = 60


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A kernel or copy in both traces: how often it runs in all steps together, and how long in one on average."""

    name: str
    count: Pair
    time_ns: Pair


@dataclass(frozen=True, slots=True)
class TraceComparison(Comparison):
    """Two traces aligned by the names of what runs on the GPU; times are those of a mean step, rounded.

    A trace without marks of steps is one step. `busy_ns` is the time in which anything runs on the GPU.
    """

    SCHEMA: ClassVar[str] = "simcore.compare_traces/1"

    files: tuple[str, str]
    num_steps: Pair
    step_ns: Pair
    busy_ns: Pair
    kernels: tuple[KernelPair, ...]

    def headline(self) -> str:
        """What changed and what is behind it."""
        step, busy = self.step_ns, self.busy_ns
        idle = Pair(step.a - busy.a, step.b - busy.b)
        said = f"A step of B takes {format_ns(step.b)} where one of A takes {format_ns(step.a)}, {_more(step)}: "
        said += f"the GPU is busy {_more(busy)} and idle {_more(idle)}"
        moved = [row for row in self.kernels if row.time_ns.difference]
        if not moved:
            return said + "; no kernel changed."
        runs_a, runs_b = self._runs(moved[0])
        runs = "" if runs_a == runs_b else f", {runs_b:.4g} times instead of {runs_a:.4g}"
        what = f"{shorten(plain(moved[0].name), MOST_NAME)} ({_more(moved[0].time_ns)} a step{runs})"
        return f"{said}; of what runs on it {what} changed most."

    def about(self) -> str:
        """Which traces they are."""
        counts = (self.num_steps.a, self.num_steps.b)
        named = zip("AB", self.files, counts, strict=True)
        return "\n".join(f"{side}: {file} ({count} steps)" for side, file, count in named)

    def tables(self) -> Iterator[Table]:
        """A mean step, and what runs in it."""
        times: list[tuple[object, ...]] = [("step", *self.step_ns.sides), ("GPU busy", *self.busy_ns.sides)]
        yield Table("", columns("mean step", *both("ns")), times)
        rows = [(plain(row.name), *self._runs(row), *row.time_ns.sides) for row in self.kernels]
        shown = columns("on the GPU", *both(".4g", "runs")[:2], *both("ns"))
        yield Table("", shown, rows, noun="kernels, each changing less,")

    def _runs(self, row: KernelPair) -> tuple[float, float]:
        return row.count.a / self.num_steps.a, row.count.b / self.num_steps.b


# Steps, the time of a mean one and of what runs in it; (count, total time in ns) by name.
Side = tuple[tuple[int, int, int], dict[str, tuple[int, float]]]


def compare_traces(a: KinetoTrace, b: KinetoTrace) -> TraceComparison:
    """Align two traces; kernels that changed most come first."""
    (figures_a, first), (figures_b, second) = _side(a), _side(b)
    steps, step_ns, busy_ns = (Pair(*both) for both in zip(figures_a, figures_b, strict=True))
    rows = [
        KernelPair(name, Pair(count_a, count_b), Pair(round(time_a), round(time_b)))
        for name, (count_a, time_a), (count_b, time_b) in align(first, second, (0, 0.0))
    ]
    rows.sort(key=lambda row: (-abs(row.time_ns.difference), row.name))
    return TraceComparison((a.file, b.file), steps, step_ns, busy_ns, tuple(rows))


def _side(trace: KinetoTrace) -> Side:
    """What runs between the first mark of a step and the end of the last, by name."""
    tasks, num_steps = trace.tasks, max(len(trace.steps), 1)
    begin_ns, end_ns = trace.span_ns
    if trace.steps:
        begin_ns, end_ns = min(mark.start_ns for mark in trace.steps), max(mark.end_ns for mark in trace.steps)
    inside = (tasks.start_ns >= begin_ns) & (tasks.start_ns < end_ns)
    names, length_ns = tasks.name[inside], (tasks.end_ns - tasks.start_ns)[inside]
    count = np.bincount(names, minlength=len(trace.names))
    total_ns = np.bincount(names, weights=length_ns, minlength=len(trace.names)) / num_steps
    kernels = {trace.names[at]: (int(count[at]), float(total_ns[at])) for at in np.flatnonzero(count).tolist()}
    busy_ns = union_ns(tasks.start_ns[inside], np.minimum(tasks.end_ns[inside], end_ns))
    return (num_steps, round((end_ns - begin_ns) / num_steps), round(busy_ns / num_steps)), kernels


def _more(pair: Pair) -> str:
    if not pair.difference:
        return "as long"
    return f"{format_ns(abs(pair.difference))} {'less' if pair.difference < 0 else 'more'}"
