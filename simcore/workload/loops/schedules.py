"""Pipeline schedules as data: for every stage the order of its forward (F), backward (B) and weight-gradient (W) cells.

A schedule is only an order; `timing` gives it times. It prints as a stage x step grid and parses back::

    schedule 1f1b: 2 stages, 3 micro-batches, 1 chunk, loop
    0 | F0 F1 .  B0 F2 B1 .  B2
    1 | .  F0 B0 F1 B1 F2 B2 .

A cell is a kind, a micro-batch and, where a stage holds several parts of the model, `.chunk`. A B without W cells in
the schedule computes both gradients. Chunks are placed as a `loop` (chunk c of stage s is part c*p + s), a `v` (chunk
1 runs back from the last stage to the first) or `twoway` (each stage holds a part of two whole pipelines that run
against each other, half the micro-batches each).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from typing import NamedTuple

from simcore.errors import InputError, Location, closest
from simcore.hashed import Hashed


class Cell(NamedTuple):
    """One computation of one micro-batch on one chunk of a stage."""

    kind: str
    micro_batch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}" + (f".{self.chunk}" if self.chunk else "")


@dataclass(frozen=True)
class Schedule(Hashed):
    """The order of cells on every stage; `placement` is "loop", "v" or "twoway"."""

    __hash__ = Hashed.__hash__

    name: str
    stages: int
    micro_batches: int
    chunks: int
    placement: str
    order: tuple[tuple[Cell, ...], ...]

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients are cells of their own."""
        return any(cell.kind == "W" for cell in self.order[0])

    @property
    def ways(self) -> int:
        """Pipelines that run against each other, each with its own micro-batches."""
        return 2 if self.placement == "twoway" else 1

    @property
    def parts(self) -> int:
        """How many pieces one pass goes through."""
        return self.stages if self.ways == 2 else self.stages * self.chunks

    def part(self, stage: int, chunk: int) -> int:
        """The piece of the model that a chunk of a stage is, 0 = first."""
        if self.placement == "loop":
            return chunk * self.stages + stage
        return stage if chunk == 0 else 2 * self.stages // self.ways - 1 - stage

    def stage(self, part: int, chunk: int) -> int:
        """The stage that runs a part of the model; `chunk` says which of two pipelines it belongs to (twoway)."""
        if self.placement == "loop":
            return part % self.stages
        if self.ways == 2:
            return part if chunk == 0 else self.stages - 1 - part
        return min(part, 2 * self.stages - 1 - part)


Lines = Iterable[Iterable[Cell]]


def _alternate(warm_up: int, total: int) -> tuple[Cell, ...]:
    """After a warm-up of one forward per later stage, forward and backward alternate (PipeDream-Flush, Megatron-LM)."""
    warm_up = min(warm_up, total)
    steady = [cell for i in range(total - warm_up) for cell in (Cell("F", i + warm_up), Cell("B", i))]
    return (*_cells("F", range(warm_up)), *steady, *_cells("B", range(total - warm_up, total)))


def _interleaved(stages: int, micro_batches: int, chunks: int) -> Lines:
    """1F1B over several chunks per stage, in groups of `stages` micro-batches (Narayanan et al. 2021, 2.2.2)."""
    if micro_batches % stages:
        raise _refused("interleaved", f"a multiple of {stages} micro-batches (the stages)", micro_batches)
    places = (
        (i // (stages * chunks) * stages + i % stages, i // stages % chunks) for i in range(micro_batches * chunks)
    )
    forward = [Cell("F", *place) for place in places]
    backward = [Cell("B", cell.micro_batch, chunks - 1 - cell.chunk) for cell in forward]
    for stage in range(stages):
        warm_up = min((stages - stage - 1) * 2 + (chunks - 1) * stages, len(forward))
        steady = [cell for pair in zip(forward[warm_up:], backward, strict=False) for cell in pair]
        yield (*forward[:warm_up], *steady, *backward[len(forward) - warm_up :])


def _zb_h1(stages: int, micro_batches: int, chunks: int) -> Lines:
    """Zero-bubble H1 (Qi et al. 2024): weight gradients fill the gaps, memory as in 1F1B, a third of its bubble."""

    def delayed(stage: int) -> Iterator[Cell]:
        """A weight gradient trails its backward by as many micro-batches as there are earlier stages."""
        for cell in _alternate(stages - stage - 1, micro_batches):
            yield cell
            if cell.kind == "B" and cell.micro_batch >= stage:
                yield Cell("W", cell.micro_batch - stage)
        yield from _cells("W", range(max(0, micro_batches - stage), micro_batches))

    return map(delayed, range(stages))


def _zb_v(stages: int, micro_batches: int, chunks: int) -> Lines:
    """Zero-bubble V (Qi et al. 2024): two chunks that go down and back up the stages; no bubble where F = B = W.

    Every step a stage takes a ready backward, else a forward while memory lasts (for two chunks' activations a stage,
    from forward to weight gradient), else a weight gradient; later chunks first, which free memory sooner.
    """
    shape, held = outline("zb-v", stages, micro_batches), [0] * stages
    lines: list[list[Cell]] = [[] for _ in held]
    ends = {(kind, part): list[int]() for kind in "BFW" for part in range(shape.parts)}  # the steps of cells so far
    choices = []
    for stage, kind, chunk in product(range(stages), "BFW", (1, 0)):
        need = needs(shape, stage, Cell(kind, 0, chunk))
        # A first forward leaves room for the one that must follow it on its stage.
        room = 2 * stages + 1 if kind != "F" else 2 * stages - (chunk == 0)
        own = ends[kind, shape.part(stage, chunk)]
        choices.append((stage, kind, chunk, room, own, ends[need[0], need[2]] if need else None))
    step, ran = 0, {-1}
    while ran:
        ran = set()
        for stage, kind, chunk, room, own, needed in choices:
            number = len(own)
            ready = needed is None or (number < len(needed) and needed[number] < step)
            if ready and stage not in ran and number < micro_batches and held[stage] < room:
                ran.add(stage)
                lines[stage].append(Cell(kind, number, chunk))
                own.append(step)
                held[stage] += {"F": 1, "B": 0, "W": -1}[kind]
        step += 1
    return lines


def _dual_pipe(stages: int, micro_batches: int, chunks: int) -> Lines:
    """DualPipe (DeepSeek-V3 report, section 3.2.1): two pipelines against each other, eight phases per stage.

    The half of the stages that a direction enters last sees the other direction first.
    """
    if stages % 2 or micro_batches % 2 or micro_batches < 2 * stages:
        expected = f"an even number of stages and an even number of at least {2 * stages} micro-batches"
        raise _refused("dualpipe", expected, f"{stages} stages, {micro_batches} micro-batches")
    for stage in range(stages):
        near = min(stage, stages - 1 - stage)
        outer, inner = stages // 2 - near - 1, near + 1
        main = micro_batches // 2 - stages + near + 1
        # The first half of the last backwards still carries its weight gradient; the second leaves it for the gaps.
        drain = " ".join(f"B{1 - i % 2}{' W' if i < inner else ''}" for i in range(2 * inner))
        program = [*["F0"] * (2 * outer), *["F0 F1"] * inner, *["B1 W F1"] * outer, *["F0 B1 W F1 B0 W"] * main]
        program += [*["B1 W F1 B0 W"] * outer, drain, *["W B0"] * outer, *["W"] * inner]
        yield _numbered(" ".join(program).split(), swapped=stage >= stages // 2, half=micro_batches // 2)


def _numbered(program: Iterable[str], *, swapped: bool, half: int) -> Iterator[Cell]:
    """The cells of a program: each direction counts its own micro-batches, W takes the oldest B."""
    counts, waiting = Counter[tuple[str, int]](), list[Cell]()
    for step in program:
        if step == "W":
            yield waiting.pop(0)
            continue
        kind, direction = step[0], int(step[1]) ^ swapped
        cell = Cell(kind, counts[kind, direction] + direction * half, direction)
        counts[kind, direction] += 1
        waiting += [cell._replace(kind="W")] * (kind == "B")
        yield cell
    yield from waiting


def needs(schedule: Schedule, stage: int, cell: Cell) -> tuple[str, int, int] | None:
    """The (kind, micro-batch, part) a cell waits for, None for the very first of a micro-batch."""
    part = schedule.part(stage, cell.chunk)
    if cell.kind == "W":
        return "B", cell.micro_batch, part
    if cell.kind == "F":
        return ("F", cell.micro_batch, part - 1) if part else None
    last = part == schedule.parts - 1
    return ("F", cell.micro_batch, part) if last else ("B", cell.micro_batch, part + 1)


_HEAD = re.compile(r"schedule (\S+): (\d+) stages, (\d+) micro-batches, (\d+) chunks?, (loop|v|twoway)$")
_CELL = re.compile(r"([FBW])(\d+)(?:\.(\d+))?$")


def parse(text: str, file: str = "schedule") -> Schedule:
    """The schedule of a printed grid; InputError names the line and column that is wrong."""
    lines = text.splitlines()
    shape = _shape(lines[0] if lines else "", Location(file, 1, 1))
    rows = [(Location(file, number, 1), row) for number, row in enumerate(lines[1:], start=2) if row.strip()]
    if len(rows) != shape.stages:
        place = Location(file, 1, 1)
        raise InputError.at(place, "wrong number of rows", expected=f"{shape.stages}", found=str(len(rows)))
    order = tuple(_row(shape, stage, *row) for stage, row in enumerate(rows))
    kinds, wanted = {"F"} | {cell.kind for cell in chain(*order)}, shape.micro_batches * shape.chunks // shape.ways
    for ((place, _), cells), kind in product(zip(rows, order, strict=True), sorted(kinds)):
        found = sum(cell.kind == kind for cell in cells)
        if found != wanted:
            expected = f"{wanted} cells {kind}, one for every micro-batch on every chunk"
            raise InputError.at(place, "cells are missing", expected=expected, found=str(found))
    return replace(shape, order=order)


def _shape(head: str, place: Location) -> Schedule:
    """What the head of a grid says."""
    found = _HEAD.match(head)
    if not found:
        expected = "schedule NAME: P stages, M micro-batches, C chunks, loop | v | twoway"
        raise InputError.at(place, "a schedule starts with its head", expected=expected)
    name, *numbers, placement = found.groups()
    stages, micro_batches, chunks = map(int, numbers)
    if not (stages and micro_batches and chunks) or (placement != "loop" and chunks != 2):
        expected = "numbers above 0, and 2 chunks with v and twoway"
        raise InputError.at(place, "there is no such schedule", expected=expected, found=repr(head))
    return Schedule(name, stages, micro_batches, chunks, placement, ())


def _row(shape: Schedule, stage: int, place: Location, row: str) -> tuple[Cell, ...]:
    """The cells of a stage, none of them twice."""
    body, cells = row.index("|") + 1 if "|" in row else 0, dict[Cell, None]()
    label = row[: max(0, body - 1)].strip()
    if body and label != str(stage):
        raise InputError.at(place, "not the row of the next stage", expected=f"{stage} | ...", found=repr(label))
    for token in re.finditer(r"\S+", row[body:]):
        if token.group() == ".":
            continue
        found = _CELL.match(token.group())
        cell = Cell(found[1], int(found[2]), int(found[3] or 0)) if found else None
        if cell is None or cell in cells or not _has(shape, cell):
            at = replace(place, column=body + token.start() + 1)
            sizes = f"micro-batches below {shape.micro_batches}, chunks below {shape.chunks}"
            expected = f"F3, B0.1, W2 or ., each once, {sizes}"
            raise InputError.at(at, "not a cell", expected=expected, found=repr(token.group()))
        cells[cell] = None
    return tuple(cells)


def _has(shape: Schedule, cell: Cell) -> bool:
    """Whether a stage may run a cell; of two ways each has its half of the micro-batches."""
    inside = cell.micro_batch < shape.micro_batches and cell.chunk < shape.chunks
    return inside and (shape.ways == 1 or 2 * cell.micro_batch // shape.micro_batches == cell.chunk)


def _cells(kind: str, micro_batches: range) -> Iterator[Cell]:
    return (Cell(kind, i) for i in micro_batches)


def _refused(name: str, expected: str, found: object) -> InputError:
    return InputError.at(f"schedule {name}", "this schedule does not exist", expected=expected, found=str(found))


class Family(NamedTuple):
    """The lines of a schedule's stages for (stages, micro-batches, chunks), and what holds of it for all numbers.

    A stage has one chunk or two, with `any_chunks` any number. Its order repeats after `period(stages)` micro-batches;
    a cell waits back as many as `reach` times the stages, or with `apart` forwards and backwards repeat each at a pace
    of their own.
    """

    lines: Callable[[int, int, int], Lines]
    chunks: int = 1
    placement: str = "loop"
    any_chunks: bool = False
    period: Callable[[int], int] = lambda stages: 1
    reach: int = 1
    apart: bool = False


# ZB-V's period was found in its orders: with stages in threes the greedy construction takes turns.
_FAMILIES = {
    # All forwards, then all backwards (Huang et al. 2019).
    "gpipe": Family(lambda p, m, chunks: [(*_cells("F", range(m)), *_cells("B", range(m)))] * p, apart=True),
    "1f1b": Family(lambda p, m, chunks: (_alternate(p - stage - 1, m) for stage in range(p))),
    "interleaved": Family(_interleaved, 2, any_chunks=True, period=lambda stages: stages, reach=3),
    "zb-h1": Family(_zb_h1),
    "zb-v": Family(_zb_v, 2, "v", period=lambda stages: 1 if stages % 3 else 2 * stages // 3, reach=2),
    "dualpipe": Family(_dual_pipe, 2, "twoway", period=lambda stages: 2),
}


def names() -> list[str]:
    """Names of all schedules."""
    return list(_FAMILIES)


def family(name: str) -> Family:
    """What holds of the schedules of a name; InputError when there are none."""
    if name not in _FAMILIES:
        raise InputError.at(name, "no such schedule", expected=closest(name, _FAMILIES), found=repr(name))
    return _FAMILIES[name]


@lru_cache(maxsize=4096)
def outline(name: str, stages: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """What `make` returns, without cells: enough to know which parts a stage holds.

    >>> outline("zb-v", 4, 8).part(0, 1)
    7
    """
    known = family(name)
    return Schedule(name, stages, micro_batches, chunks or known.chunks, known.placement, ())


def splits_backward(name: str) -> bool:
    """Whether the cells of a schedule leave weight gradients to cells of their own.

    >>> [name for name in names() if splits_backward(name)]
    ['zb-h1', 'zb-v', 'dualpipe']
    """
    return make(name, 2, 4).splits_backward


@lru_cache(maxsize=256)
def make(name: str, stages: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """The schedule called `name`; InputError when there is none or it does not exist for these numbers.

    >>> print(*make("1f1b", 2, 3).order[0])
    F0 F1 B0 F2 B1 B2
    """
    known = family(name)
    if stages < 1 or micro_batches < 1 or (chunks is not None and chunks < 1):
        raise _refused(name, "positive numbers", (stages, micro_batches, chunks))
    count = chunks or known.chunks
    if count != known.chunks and not known.any_chunks:
        raise _refused(name, "2 chunks" if known.chunks == 2 else "1 chunk per stage", count)
    lines = tuple(map(tuple, known.lines(stages, micro_batches, count)))
    return Schedule(name, stages, micro_batches, count, known.placement, lines)
