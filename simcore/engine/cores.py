"""Traces of a wafer's cores played in time: every core in order, barriers between them, no queues on the links.

A core has two units that work side by side, each in the order of the trace: one computes (GEMM, ADD), one moves
(READ, WRITE, COPY, MULTICAST). An instruction also waits for those it names. A move takes its bytes over the slower of
the bank and, when it leaves the core, the link, plus the latency of every hop of the mesh of cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.errors import DeadlockError

__all__ = ["CoreRates", "CoreTimes", "Instruction", "play_cores"]

IntArray = NDArray[np.int64]


class Instruction(Protocol):
    """A line of a trace (`simcore.generate.wse.program.Instruction`)."""

    @property
    def kind(self) -> str:
        """READ, WRITE, GEMM, ADD, COPY, MULTICAST or BARRIER."""

    @property
    def arguments(self) -> tuple[int | str, ...]:
        """Banks and bytes, dimensions, or the identifier of a barrier."""

    @property
    def after(self) -> tuple[int, ...]:
        """Places in the same trace to wait for."""


@dataclass(frozen=True, slots=True)
class CoreRates:
    """Of one core: products, bytes of its bank and of a link per second; latency of a hop."""

    macs_per_s: float
    bank_bytes_per_s: float
    link_bytes_per_s: float
    hop_ns: float


@dataclass(frozen=True)
class CoreTimes:
    """Per core: when it is through, how long it computes, how long it moves."""

    end_ns: IntArray
    compute_ns: IntArray
    move_ns: IntArray

    @property
    def time_ns(self) -> int:
        """When the last core is through."""
        return int(self.end_ns.max(initial=0))


@dataclass
class _Clock:
    """The state of one core: the next instruction, when its units are free, the ends so far."""

    trace: Sequence[Instruction]
    ends: list[float]
    free: list[float]
    busy: list[float]

    @property
    def place(self) -> int:
        """The next instruction."""
        return len(self.ends)


def play_cores(
    traces: Sequence[Sequence[Instruction]], rates: CoreRates, node_grid: tuple[int, int], core_grid: tuple[int, int]
) -> CoreTimes:
    """Play the traces of all cores, in order of their banks.

    Raises
    ------
    DeadlockError
        When cores wait at barriers that never fill.
    """
    clocks = [_Clock(trace, [], [0.0, 0.0], [0.0, 0.0]) for trace in traces]
    places = _places(node_grid, core_grid)
    members = _members(traces)
    waiting: dict[str, list[int]] = {}
    ready = list(range(len(clocks)))
    while ready:
        core = ready.pop()
        barrier = _advance(clocks[core], core, rates, places)
        if barrier is None:
            continue
        held = waiting.setdefault(barrier, [])
        held.append(core)
        if len(held) == members[barrier]:
            _release([clocks[each] for each in waiting.pop(barrier)])
            ready += held
    if waiting:
        barrier, held = min(waiting.items())
        raise DeadlockError(f"cores {sorted(held)} wait at barrier {barrier} for {members[barrier] - len(held)} more")
    return CoreTimes(
        *(_whole(column) for column in zip(*((max(each.free), *each.busy) for each in clocks), strict=True))
    )


def _whole(times: Iterable[float]) -> IntArray:
    """Whole nanoseconds, rounded up."""
    return np.ceil(np.round(np.array(list(times)), 3)).astype(np.int64)


def _places(node_grid: tuple[int, int], core_grid: tuple[int, int]) -> list[tuple[int, int]]:
    """Row and column of every bank: nodes are row-major on the wafer, cores row-major inside a node."""
    rows, columns = core_grid
    return [
        (node // node_grid[1] * rows + core // columns, node % node_grid[1] * columns + core % columns)
        for node in range(prod(node_grid))
        for core in range(prod(core_grid))
    ]


def _members(traces: Sequence[Sequence[Instruction]]) -> Counter[str]:
    """How many cores meet at every barrier."""
    return Counter(str(each.arguments[0]) for trace in traces for each in trace if each.kind == "BARRIER")


def _advance(clock: _Clock, core: int, rates: CoreRates, places: list[tuple[int, int]]) -> str | None:
    """Run a core up to its next barrier; the barrier, or None at the end."""
    for each in clock.trace[clock.place :]:
        if each.kind == "BARRIER":
            return str(each.arguments[0])
        unit = 0 if each.kind in {"GEMM", "ADD"} else 1
        start = max([clock.free[unit], *(clock.ends[place] for place in each.after)])
        spent = _compute_ns(each, rates) if unit == 0 else _move_ns(each, core, rates, places)
        clock.ends.append(start + spent)
        clock.free[unit] = start + spent
        clock.busy[unit] += spent
    return None


def _compute_ns(each: Instruction, rates: CoreRates) -> float:
    """A GEMM of M K N products, an ADD of as many sums as elements."""
    return prod(int(number) for number in each.arguments) / rates.macs_per_s * 1e9


def _move_ns(each: Instruction, core: int, rates: CoreRates, places: list[tuple[int, int]]) -> float:
    """The slower of bank and link, and the hops to the farthest bank."""
    *banks, size = (int(number) for number in each.arguments)
    ends = banks if each.kind in {"COPY", "MULTICAST"} else [core, *banks]
    row, column = places[ends[0]]
    hops = max(abs(places[end][0] - row) + abs(places[end][1] - column) for end in ends[1:])
    rate = min(rates.bank_bytes_per_s, rates.link_bytes_per_s) if hops else rates.bank_bytes_per_s
    return size / rate * 1e9 + hops * rates.hop_ns


def _release(clocks: list[_Clock]) -> None:
    """All members pass a barrier when the last of their units is free."""
    now = max(max(clock.free) for clock in clocks)
    for clock in clocks:
        clock.free = [now, now]
        clock.ends.append(now)
