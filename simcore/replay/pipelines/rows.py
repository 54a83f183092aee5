"""Recorded cells as rows of a workload, which a pipeline's stages play: forward rows, backward rows, the step's end.

A row that is played backwards computes, sends its input gradient, computes the weight gradient beside that, sends it,
and waits for the first (`simcore.workload.loops.hybrid.backward`): recorded operations are put into these places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import mean

from simcore.errors import InputError
from simcore.replay.pipelines.cells import NEVER, Cells, Operation
from simcore.workload.model import Group, Layer, Phase

__all__ = ["ModelPart", "Rows", "StepEnd", "mixed_row", "part_of", "step_end"]

IDLE = Layer("")
Rows = tuple[Layer, ...]
Following = Callable[[Operation, int], int]  # as `Cells.following`


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A layer or another part of the model: rows of its passes, each in the order in which they are played.

    Means over micro-batches; `last` is the backward pass of the last one, whose gradients are complete, and has as many
    rows as `backward`. `gradient_bytes` are reduced over data parallel ranks behind it.
    """

    name: str
    forward: Rows
    backward: Rows
    last: Rows
    gradient_bytes: int

    @property
    def compute_ns(self) -> int:
        """Computation for one micro-batch."""
        return sum(phase.compute_ns for row in (*self.forward, *self.backward) for phase in row.phases)


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The end of a step: rows that reduce gradients, and what follows when they and all others have arrived."""

    reducing: Rows
    closing: Rows


def part_of(cells: Cells, name: str) -> ModelPart:
    """The rows of one part of the model; those of a micro-batch only where most micro-batches have them."""
    ahead = [
        _forward(operations, cells.following, f"{cells.file}: {name}")
        for operations in cells.passes.get((name, "forward"), [])
    ]
    back = [_backward(operations, cells.following) for operations in cells.passes.get((name, "backward"), [])]
    usual = _mean(back[:-1] or [_without_gradients(rows) for rows in back])
    pairs = list(zip_longest(usual, back[-1] if back else (), fillvalue=IDLE))
    last = tuple(row for _, row in pairs)
    reduced = sum(row.weight_grad.size_bytes for row in last if row.weight_grad.group == Group.DP)
    return ModelPart(name, _mean(ahead), tuple(row for row, _ in pairs), last, reduced)


def step_end(cells: Cells) -> StepEnd:
    """What ends the step; it closes when something waits for a collective for the first time."""
    if not cells.end:
        return StepEnd((), ())
    every = [*cells.end, *(one for some in cells.passes.values() for operations in some for one in operations)]
    awaited = {one.awaited for one in every if one.collective and one.awaited > cells.end[0].place}
    first = next((at for at, one in enumerate(cells.end) if one.place in awaited), len(cells.end))
    if not any(one.collective for one in cells.end[:first]):
        first = 0
    reducing = _backward(cells.end[:first], lambda *_: -1)
    return StepEnd(reducing, _forward(cells.end[first:], lambda *_: NEVER, cells.file))


def _forward(operations: Sequence[Operation], following: Following, place: str) -> Rows:
    """Computation and the collective that what follows waits for."""
    made, compute_ns = list[Layer](), 0
    for one in operations:
        if one.collective is None:
            compute_ns += one.compute_ns
            continue
        if following(one, one.place) < one.awaited < NEVER:
            raise InputError.at(
                place,
                f"what follows an {one.collective} does not wait for it",
                expected="forward passes whose collectives are awaited at once",
                found=f"{one.size_bytes} bytes in group {one.group}, beside computation",
            )
        made.append(Layer("", forward=_phase(compute_ns, one)))
        compute_ns = 0
    return (*made, Layer("", forward=Phase(compute_ns))) if compute_ns else tuple(made)


def _backward(operations: Sequence[Operation], following: Following) -> Rows:
    """Rows in the order in which they are played."""
    made, row = list[Layer](), IDLE
    sent = -1  # the launch that waits for the row's input gradient
    for one in operations:
        if row.weight_grad.collective or (row.input_grad.collective and one.place >= sent):
            made.append(row)
            row = IDLE
        blocks = one.awaited <= following(one, operations[-1].place)
        if one.collective is None:
            covered = one.weight or row.input_grad.collective is not None
            if row.weight_grad.compute_ns and not covered:
                made.append(row)
                row = IDLE
            more = (0, one.compute_ns) if covered else (one.compute_ns, 0)
            row = replace(
                row, input_grad=_longer(row.input_grad, more[0]), weight_grad=_longer(row.weight_grad, more[1])
            )
        elif blocks and not row.input_grad.collective and not row.weight_grad.compute_ns:
            row, sent = replace(row, input_grad=_phase(row.input_grad.compute_ns, one)), one.awaited
        elif blocks:
            made.append(row)
            row, sent = Layer("", input_grad=_phase(0, one)), one.awaited
        else:
            row = replace(row, weight_grad=_phase(row.weight_grad.compute_ns, one))
    return tuple(made if row is IDLE else [*made, row])


def _longer(phase: Phase, compute_ns: int) -> Phase:
    return replace(phase, compute_ns=phase.compute_ns + compute_ns)


def _phase(compute_ns: int, one: Operation) -> Phase:
    return Phase(compute_ns, one.collective, one.size_bytes, one.group)


def _without_gradients(rows: Rows) -> Rows:
    """What a micro-batch would do that is not the last one."""
    return tuple(
        replace(row, weight_grad=Phase(row.weight_grad.compute_ns)) if row.weight_grad.group == Group.DP else row
        for row in rows
    )


def _structure(rows: Rows) -> tuple[object, ...]:
    return tuple((p.compute_ns > 0, p.collective, p.size_bytes, p.group) for r in rows for p in r.phases)


def _mean(samples: Sequence[Rows]) -> Rows:
    """The mean of those samples that do what most do."""
    if not samples:
        return ()
    usual, _ = Counter(map(_structure, samples)).most_common(1)[0]
    alike = [rows for rows in samples if _structure(rows) == usual]
    return tuple(_mean_row(rows) for rows in zip(*alike, strict=True))


def _mean_row(rows: Sequence[Layer]) -> Layer:
    return mixed_row(rows, lambda same: replace(same[0], compute_ns=round(mean(one.compute_ns for one in same))))


def mixed_row(rows: Sequence[Layer], mixed: Callable[[Sequence[Phase]], Phase]) -> Layer:
    """One row out of several: each phase out of theirs."""
    forward, input_grad, weight_grad = (mixed(same) for same in zip(*(row.phases for row in rows), strict=True))
    return Layer("", forward, input_grad, weight_grad)
