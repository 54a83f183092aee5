"""Two profiler traces aligned: what a step of each takes on the GPU, kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from simcore.replay.kinds import plain
from simcore.report.compare import Pair
from simcore.report.grid import grid, shorten, top
from simcore.report.text import printable, wrapped
from simcore.timeline.breakdown import union_ns
from simcore.units import format_ns
from simcore.workload.kineto import Intervals, KinetoTrace

__all__ = ["KernelPair", "TraceComparison", "compare_traces", "headline", "render"]

SCHEMA = "simcore.compare_traces/1"
MOST_NAME = 60


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A kernel or copy in both traces: how often it runs in all steps together, and how long in one on average."""

    name: str
    count: Pair
    time_ns: Pair


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """Two traces aligned by the names of what runs on the GPU; times are those of a mean step, rounded.

    A trace without marks of steps is one step. `busy_ns` is the time in which anything runs on the GPU.
    """

    files: tuple[str, str]
    num_steps: Pair
    step_ns: Pair
    busy_ns: Pair
    kernels: tuple[KernelPair, ...]

    def to_dict(self) -> dict[str, object]:
        """A JSON document: every pair as {"a", "b"}."""
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Side:
    """One trace: its steps, and (count, total time in ns) by name."""

    num_steps: int
    step_ns: int
    busy_ns: int
    kernels: dict[str, tuple[int, float]]


def compare_traces(a: KinetoTrace, b: KinetoTrace) -> TraceComparison:
    """Align two traces; kernels that changed most come first."""
    first, second = _side(a), _side(b)
    nothing = (0, 0.0)
    rows = []
    for name in sorted({*first.kernels, *second.kernels}):
        (count_a, time_a), (count_b, time_b) = (side.kernels.get(name, nothing) for side in (first, second))
        rows.append(KernelPair(name, Pair(count_a, count_b), Pair(round(time_a), round(time_b))))
    rows.sort(key=lambda row: (-abs(row.time_ns.difference), row.name))
    return TraceComparison(
        (a.file, b.file),
        Pair(first.num_steps, second.num_steps),
        Pair(first.step_ns, second.step_ns),
        Pair(first.busy_ns, second.busy_ns),
        tuple(rows),
    )


def _side(trace: KinetoTrace) -> _Side:
    """What runs between the first mark of a step and the end of the last, by name."""
    tasks, num_steps = trace.tasks, max(len(trace.steps), 1)
    begin_ns, end_ns = _span(trace)
    inside = (tasks.start_ns >= begin_ns) & (tasks.start_ns < end_ns)
    names, length_ns = tasks.name[inside], (tasks.end_ns - tasks.start_ns)[inside]
    count = np.bincount(names, minlength=len(trace.names))
    total_ns = np.bincount(names, weights=length_ns, minlength=len(trace.names)) / num_steps
    kernels = {trace.names[at]: (int(count[at]), float(total_ns[at])) for at in np.flatnonzero(count).tolist()}
    busy_ns = union_ns(tasks.start_ns[inside], np.minimum(tasks.end_ns[inside], end_ns))
    return _Side(num_steps, round((end_ns - begin_ns) / num_steps), round(busy_ns / num_steps), kernels)


def _span(trace: KinetoTrace) -> tuple[int, int]:
    if trace.steps:
        return min(mark.start_ns for mark in trace.steps), max(mark.end_ns for mark in trace.steps)
    some: Sequence[Intervals] = [each for each in (trace.tasks, trace.calls, trace.operators) if len(each)]
    return min(int(each.start_ns.min()) for each in some), max(int(each.end_ns.max()) for each in some)


def headline(comparison: TraceComparison) -> str:
    """What changed and what is behind it, in a sentence."""
    step, busy = comparison.step_ns, comparison.busy_ns
    idle = Pair(step.a - busy.a, step.b - busy.b)
    said = f"A step of B takes {format_ns(step.b)} where one of A takes {format_ns(step.a)}, {_more(step)}: "
    said += f"the GPU is busy {_more(busy)} and idle {_more(idle)}"
    moved = [row for row in comparison.kernels if row.time_ns.difference]
    if not moved:
        return said + "; no kernel changed."
    most = moved[0]
    what = f"{shorten(plain(most.name), MOST_NAME)} ({_more(most.time_ns)} a step{_runs(comparison, most)})"
    return f"{said}; of what runs on it {what} changed most."


def _more(pair: Pair) -> str:
    if not pair.difference:
        return "as long"
    return f"{format_ns(abs(pair.difference))} {'less' if pair.difference < 0 else 'more'}"


def _runs(comparison: TraceComparison, row: KernelPair) -> str:
    """How often it runs, where that differs."""
    a, b = row.count.a / comparison.num_steps.a, row.count.b / comparison.num_steps.b
    return "" if a == b else f", {b:.4g} times instead of {a:.4g}"


def render(comparison: TraceComparison, *, width: int = 80, num_rows: int = 12) -> str:
    """The whole text."""
    steps, shown = comparison.num_steps, comparison.kernels[:num_rows]
    figures = (("step", comparison.step_ns), ("GPU busy", comparison.busy_ns))
    times = grid(("mean step", "A", "B", "B - A"), ((name, *_cells(pair)) for name, pair in figures), width=width)
    rows = (
        (plain(row.name), f"{row.count.a / steps.a:.4g}", f"{row.count.b / steps.b:.4g}", *_cells(row.time_ns))
        for row in shown
    )
    table = grid(("on the GPU", "runs A", "runs B", "A", "B", "B - A"), rows, width=width)
    about = f"A: {comparison.files[0]} ({steps.a} steps)\nB: {comparison.files[1]} ({steps.b} steps)"
    more = top(len(shown), len(comparison.kernels), "kernels, each changing less,", "--json")
    parts = (wrapped(headline(comparison), width), about, times, table, more)
    return printable("\n\n".join(filter(None, parts))) + "\n"


def _cells(pair: Pair) -> tuple[str, str, str]:
    sign = "+" if pair.difference > 0 else "-" if pair.difference < 0 else ""
    return format_ns(pair.a), format_ns(pair.b), sign + format_ns(abs(pair.difference))
