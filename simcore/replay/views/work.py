"""What the device worked on in a recorded step and at which rates; where in the program something comes from: operator,
module and line of Python; what the host did in a pause.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from simcore.compute.accelerators import recognised
from simcore.replay.kinds import COMMUNICATION, kind_of_name
from simcore.replay.session import StepReplay
from simcore.replay.steps.rank import RankView
from simcore.replay.whatif.products import launched
from simcore.replay.whatif.transfers import bus_bytes, transfer_of
from simcore.workload.kineto import MODULE, Intervals
from simcore.workload.model import CollectiveKind, kind_of

FLOPS, BYTES = "FLOP/s", "byte/s"


class Work(Struct, frozen=True):
    """Tasks of one category in a step; where recorded sizes tell, the rate that `rated` of their time reached.

    `limit` is what the device states for it, 0 where nothing is known. A rate of communication is its bus bandwidth,
    without waiting for other ranks.
    """

    category: str
    count: int
    time_ns: int
    rate: float = 0.0
    unit: str = ""
    limit: float = 0.0
    rated: float = 0.0


def work(step: StepReplay) -> list[Work]:
    """By category, communication by kind or library, what takes most first."""
    trace, done = step.prepared.view.trace, defaultdict[str, list[int]](list)
    for task in step.tasks:
        name = trace.names[trace.tasks.name[task]]
        category, said = kind_of_name(name).category, trace.collectives.get(task)
        if category == COMMUNICATION:
            kind = (kind_of(said.operation) if said else "") or kind_of(name) or kind_of_name(name).library
            category = f"{COMMUNICATION}, {kind}"
        done[category].append(task)
    found = []
    for name, rows in done.items():
        time_ns, amounts = sum(map(trace.tasks.length_ns, rows)), [*_amounts(step, name, rows)]
        amount, spent_ns = sum(each[0] for each in amounts), sum(each[1] for each in amounts)
        if not (amount and spent_ns):
            found.append(Work(name, len(rows), time_ns))
            continue
        unit = FLOPS if name == "products" else BYTES
        rate, rated, limit = amount / (spent_ns / 1e9), min(spent_ns / time_ns, 1.0), 0.0
        # What the device states: of products at their usual data type (fp32 may run as tf32), else unknown.
        if name == "products" and (device := recognised(trace.device)):
            types, counts = np.unique([product.dtype for product in trace.products.values()], return_counts=True)
            usual, peaks = str(types[counts.argmax()]), device.peak_flops_per_s
            limit = max(peaks.get(usual, 0.0), peaks.get("tf32", 0.0) if usual == "fp32" else 0.0)
        found.append(Work(name, len(rows), time_ns, rate, unit, limit, rated))
    return sorted(found, key=lambda each: (-each.time_ns, each.category))


def _amounts(step: StepReplay, category: str, rows: list[int]) -> Iterator[tuple[float, int]]:
    """Operations or bytes of each task that says them, and the time they took in ns."""
    view, chosen = step.prepared.view, set(rows)
    trace = view.trace
    if category == "products":
        window = step.window
        for row, product in trace.products.items():
            if window.start_ns <= trace.operators.start_ns[row] < window.end_ns:
                own = [task for task in launched(view, row).tolist() if task in chosen]
                yield 2.0 * product.m * product.k * product.n * bool(own), sum(map(trace.tasks.length_ns, own))
    elif category.startswith(COMMUNICATION):
        for task in rows:
            transfer = transfer_of(said) if (said := trace.collectives.get(task)) else None
            if transfer and transfer.size_bytes and transfer.kind != CollectiveKind.BARRIER:
                yield bus_bytes(transfer) * transfer.size_bytes, step.source.transfer_ns(step.number, task)
    else:
        yield from ((trace.copied[task], trace.tasks.length_ns(task)) for task in rows if task in trace.copied)


LIBRARY = re.compile(r"^<|(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+)/")


class Origin(Struct, frozen=True):
    """The innermost operator, module and line of the program's own source; empty where not recorded."""

    operator: str
    module: str
    source: str


class Pause(Struct, frozen=True):
    """A time in which nothing ran on the device: what came next, and what the host was doing that launched it."""

    length_ns: int
    before: str
    call: str
    host: Origin


def origin(view: RankView, thread: int, start_ns: int, end_ns: int, *, back: bool = True) -> Origin:
    """What was under way on a thread in a span, as its record says; of a backward operator the module it came from."""
    trace = view.trace
    sources = trace.operators, trace.annotations, trace.frames
    found = [_during(rows, thread, start_ns, end_ns) for rows in sources]
    names = [[trace.names[name] for name in rows.name[own]] for rows, own in zip(sources, found, strict=True)]
    modules = [name.removeprefix(MODULE) for name in names[1] if name.startswith(MODULE)]
    ranges = [name for name in names[1] if not name.startswith(MODULE)]
    lines = [name for name in names[2] if not LIBRARY.search(name)] or names[2]
    if back and not (modules or lines):  # the operator that the innermost one goes back for: of the same number
        rows, numbers = trace.operators, [trace.sequences[row] for row in found[0] if row in trace.sequences]
        ahead = min((row for row, number in trace.sequences.items() if number in numbers[-1:]), default=-1)
        if ahead >= 0 and rows.end_ns[ahead] <= rows.start_ns[found[0][-1]]:
            span = int(rows.start_ns[ahead]), int(rows.end_ns[ahead])
            first = origin(view, int(rows.lane[ahead]), *span, back=False)
            modules, lines = [first.module], [first.source]
    return Origin(*(some[-1] if some else "" for some in (names[0] or ranges, modules, lines)))


def _during(rows: Intervals, thread: int, start_ns: int, end_ns: int) -> list[int]:
    """What took at least half of a span of a thread, outermost first."""
    shared = np.minimum(rows.end_ns, end_ns) - np.maximum(rows.start_ns, start_ns)
    found: list[int] = np.flatnonzero((rows.lane == thread) & (2 * shared >= end_ns - start_ns)).tolist()
    return found


def origin_of(step: StepReplay, name: str) -> Origin:
    """Where the longest task of a name in a step was launched; nothing without a recorded launch."""
    view = step.prepared.view
    own = [
        task for task in step.tasks if view.trace.names[view.trace.tasks.name[task]] == name and view.launch[task] >= 0
    ]
    if not own:
        return Origin("", "", "")
    task = max(own, key=view.trace.tasks.length_ns)
    call, calls = int(view.launch[task]), view.trace.calls
    return origin(view, int(calls.lane[call]), int(calls.start_ns[call]), int(calls.end_ns[call]))


def pauses(step: StepReplay, count: int = 3) -> list[Pause]:
    """The longest times of a recorded step in which the device had nothing to do."""
    view, (from_ns, to_ns) = step.prepared.view, step.measured_span_ns
    tasks = view.trace.tasks
    reach = np.maximum.accumulate(tasks.end_ns) if len(tasks) else tasks.end_ns
    idle = np.maximum(tasks.start_ns - np.maximum(np.r_[from_ns, reach[:-1]], from_ns), 0)
    idle[(tasks.start_ns < from_ns) | (tasks.start_ns > to_ns)] = 0
    found = []
    for row in np.argsort(-idle, kind="stable")[:count].tolist():
        call = int(view.launch[row])
        if idle[row] and call >= 0:
            thread, until_ns = int(view.trace.calls.lane[call]), int(tasks.start_ns[row])
            span = thread, until_ns - int(idle[row]), until_ns
            names, calls = view.trace.names, view.trace.calls.name[_during(view.trace.calls, *span)]
            call_name = names[calls[-1]] if len(calls) else ""
            found.append(Pause(int(idle[row]), names[tasks.name[row]], call_name, origin(view, *span)))
    return found
