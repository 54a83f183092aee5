"""What the device worked on in a recorded step: time by category, and the rates it reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from simcore.compute.accelerators import recognised
from simcore.replay.kinds import COMMUNICATION, kind_of_name
from simcore.replay.session import StepReplay
from simcore.replay.whatif.products import launched
from simcore.replay.whatif.transfers import bus_bytes, transfer_of
from simcore.workload.model import kind_of

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
    amounts = {name: list(_amounts(step, name, rows)) for name, rows in done.items()}
    found = []
    for name, rows in done.items():
        time_ns = sum(trace.tasks.length_ns(task) for task in rows)
        amount, spent_ns = sum(each[0] for each in amounts[name]), sum(each[1] for each in amounts[name])
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
            if transfer and transfer.size_bytes:
                yield bus_bytes(transfer) * transfer.size_bytes, step.source.transfer_ns(step.number, task)
    else:
        yield from ((trace.copied[task], trace.tasks.length_ns(task)) for task in rows if task in trace.copied)
