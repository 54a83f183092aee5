"""Pipelines: which rows of a text workload every stage runs in which cell of its schedule, and what it hands on.

A file describes one stage, which all stages then run, or with ``stage_rows`` in its header every part of the model in
turn. Either way it holds the rows of the end of a step, then as many equal blocks as there are micro-batches (``ga``).
The first block is the last micro-batch's: its backward is the last thing the training loops come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from msgspec import Struct, structs

from simcore.errors import InputError, Location
from simcore.workload.loops.hybrid import backward, forward
from simcore.workload.loops.schedules import Cell, Schedule, make
from simcore.workload.loops.step import Order, Ref, Step, loops
from simcore.workload.model import Layer, PhaseName, Role, Workload

INPUT_GRAD, WEIGHT_GRAD = PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD

BEFORE = {Role.REDUCE, Role.REPLICATED, Role.NORM, Role.OPTIMIZER, Role.GATHER}  # what of a step's end comes first

Rows = tuple[int, ...]


class Transfer(Struct, frozen=True):
    """Activations or their gradients to or from another stage; `tag` is the same on both sides."""

    stage: int
    tag: int


class Passage(Struct, frozen=True):
    """A cell with the rows it runs, in forward order, what it waits for and what it hands on."""

    cell: Cell
    rows: Rows
    source: Transfer | None = None
    target: Transfer | None = None


class Pipeline(Struct, frozen=True):
    """The cells of every stage in order, and the rows of the end of its step: those before and behind the blocks."""

    schedule: Schedule
    stages: tuple[tuple[Passage, ...], ...]
    ends: tuple[tuple[Rows, Rows], ...]
    warnings: tuple[str, ...] = ()


class _Part(Struct, frozen=True):
    """A part of the model: rows of the end of a step, then of every micro-batch, then AICB's last ones."""

    head: Rows
    blocks: tuple[Rows, ...]
    tail: Rows = ()


def pipeline_of(workload: Workload, schedule: str = "") -> Pipeline:
    """The pipeline of a workload with `pp` > 1; `schedule` "" = the workload's own, or interleaved with virtual stages,
    else 1f1b. InputError if the training loop has no pipeline, the rows are not `ga` equal blocks, or the schedule does
    not exist for these numbers.
    """
    _check_loop(workload)
    plan, warnings = _schedule(workload, schedule)
    parts = _parts(workload, plan)
    backwards = _goes_back(workload.layers[row] for part in parts for row in part.blocks[0])
    lines = tuple(
        tuple(_passage(plan, parts, stage, cell) for cell in line if cell.kind == "F" or backwards)
        for stage, line in enumerate(plan.order)
    )
    if plan.placement == "twoway":
        warnings.append(f"{plan.name}: the gradients of the two copies of the model are not summed between stages")
    chunks = range(plan.chunks)
    held = (_joined([parts[plan.part(stage, chunk)] for chunk in chunks]) for stage in range(plan.stages))
    return Pipeline(plan, lines, tuple((part.head, part.tail) for part in held), tuple(warnings))


def transfers(workload: Workload) -> int:
    """How often the ranks of a pipeline, one of every stage, hand something to another stage in a step."""
    plan, ways = _schedule(workload, "")[0], "FB" if _goes_back(workload.layers) else "F"
    return sum(
        _target(plan, stage, cell) is not None
        for stage, line in enumerate(plan.order)
        for cell in line
        if cell.kind in ways
    )


def _goes_back(rows: Iterable[Layer]) -> bool:
    """Whether anything is computed or sent for a gradient: a step of inference only goes forwards."""
    gradients = (phase for row in rows for phase in (row.input_grad, row.weight_grad))
    return any(phase.compute_ns or phase.collective for phase in gradients)


def check_stages(workload: Workload, npus: int) -> None:
    """InputError when the stages are not equal parts of so many NPUs."""
    pp, tp = workload.parallelism.pp, max(1, workload.parallelism.tp)
    if npus % (pp * tp):
        raise InputError.at(
            workload.location,
            f"{pp} stages of groups of {tp} do not fit the topology",
            expected=f"a multiple of {pp * tp} NPUs",
            found=f"{npus} NPUs",
            hint="change pp: or model_parallel_NPU_group: in the header, or the topology",
        )


def _check_loop(workload: Workload) -> None:
    if not loops.get(workload.loop).staged:
        *others, last = sorted(name for name in loops if loops.get(name).staged)
        message = f"pp: {workload.parallelism.pp}: {workload.loop} has no pipeline"
        hint = "pp: 1 runs the rows as one stage"
        expected = f"{', '.join(others)} or {last}, whose groups stay within a stage"
        raise InputError.at(workload.location, message, expected=expected, found=workload.loop, hint=hint)
    if workload.checkpoints or workload.checkpoint_initiates:
        message, found = "a pipeline does not recompute from checkpoints", f"checkpoints: {len(workload.checkpoints)}"
        hint = "give what is recomputed rows of its own, as simcore generate does"
        raise InputError.at(workload.location, message, expected="checkpoints: 0", found=found, hint=hint)


def _schedule(workload: Workload, name: str) -> tuple[Schedule, list[str]]:
    """The schedule asked for or usual, and what to say about the choice."""
    sizes, place = workload.parallelism, Location("--schedule")
    if not name and workload.location.file:
        place = workload.location
    name = name or workload.schedule
    virtual, count = max(1, sizes.vpp), max(1, sizes.gradient_accumulation)
    warnings = []
    if not name and virtual > 1 and count % sizes.pp:
        name = "1f1b"
        warnings.append(f"vpp: {virtual}: ga: {count} is no multiple of pp: {sizes.pp}, so stages are not interleaved")
    elif not name and virtual > 1 and not workload.stage_rows:
        read = f"vpp: {virtual} is read as virtual stages; AICB writes the layers of a stage there"
        warnings.append(f"{read} (--schedule 1f1b runs them as one)")
    chosen = name or ("interleaved" if virtual > 1 else "1f1b")
    chunks, rows = virtual if chosen == "interleaved" and virtual > 1 else None, len(workload.layers)
    for key, number in (("ga", count), ("vpp", chunks or 1)):  # a schedule of so many cells would take for ever
        if number > rows:
            message, expected = f"{key}: {number} is more than there are rows", f"{key}: at most {rows}"
            raise InputError.at(workload.location, message, expected=expected, found=str(number))
    try:
        return make(chosen, sizes.pp, count, chunks), warnings
    except InputError as error:
        problems = [replace(problem, location=place) for problem in error.problems]
        raise InputError(problems) from error


def _parts(workload: Workload, plan: Schedule) -> list[_Part]:
    """The parts of the model that the schedule's cells run, cut or joined from those that the file has."""
    if not workload.stage_rows:
        stage = _section(workload, range(len(workload.layers)), plan.micro_batches)
        return [piece for piece in _cut(workload, stage, plan.parts // plan.stages) for _ in range(plan.stages)]
    marks = accumulate(workload.stage_rows, initial=0)
    made = [_section(workload, range(first, last), plan.micro_batches) for first, last in pairwise(marks)]
    if plan.parts % len(made) == 0:
        return [piece for part in made for piece in _cut(workload, part, plan.parts // len(made))]
    if len(made) % plan.parts:
        message = f"{plan.name} runs the model in {plan.parts} parts, the file has {len(made)}"
        expected = f"stage_rows: {plan.parts}, or a multiple or a divisor of it"
        raise InputError.at(workload.location, message, expected=expected, found=f"stage_rows: {len(made)}")
    each = len(made) // plan.parts
    return [_joined(made[i : i + each]) for i in range(0, len(made), each)]


def _section(workload: Workload, rows: range, count: int) -> _Part:
    """One part: the rows of the end of the step, the rest in `count` equal blocks."""
    names, roles = zip(*((workload.layers[row].name, workload.layers[row].role) for row in rows), strict=True)
    first = next((at for at, role in enumerate(roles) if role not in BEFORE), len(names))
    last = len(names)
    for closing in (Role.CLOSING, Role.LOSS if roles[-1] is Role.CLOSING else None):
        while last > first and roles[last - 1] is closing:
            last -= 1
    size, rest = divmod(last - first, count)
    odd = next((at for at in range(first + size, last) if names[at] != names[at - size]), -1)
    if rest or not size or odd >= 0:
        layer = workload.layers[rows[odd if odd >= 0 else first if first < len(names) else 0]]
        message = f"{last - first} rows are not ga: {count} equal micro-batches"
        if odd >= 0:
            equal = f"those of ga: {count} equal micro-batches"
            message = f"the rows are not {equal}; '{layer.name}' is the first that differs"
        expected = f"rows of the end of a step, then the same rows {count} times"
        found = f"{first} rows before '{layer.name}', {last - first} from there"
        hint = "ga: in the header is the number of micro-batches, pp: 1 runs the rows as one stage"
        raise InputError.at(layer.location, message, expected=expected, found=found, hint=hint)
    blocks = tuple(tuple(rows[at : at + size]) for at in range(first, last, size))
    return _Part(tuple(rows[:first]), blocks, tuple(rows[last:]))


def _cut(workload: Workload, part: _Part, pieces: int) -> list[_Part]:
    """A part in pieces of equally many rows of a micro-batch; the end of the step goes with the first."""
    size = len(part.blocks[0])
    if size < pieces:
        message = f"{size} rows of a micro-batch cannot be cut into {pieces} virtual stages"
        raise InputError.at(workload.location, message, expected=f"at least {pieces} rows", found=str(size))
    marks = [size * at // pieces for at in range(pieces + 1)]
    made = [_Part((), tuple(block[a:b] for block in part.blocks)) for a, b in pairwise(marks)]
    return [structs.replace(made[0], head=part.head, tail=part.tail), *made[1:]]


def _joined(parts: Sequence[_Part]) -> _Part:
    """Parts that follow each other as one."""
    head, tail = (tuple(chain.from_iterable(rows)) for rows in zip(*((p.head, p.tail) for p in parts), strict=True))
    blocks = zip(*(part.blocks for part in parts), strict=True)
    return _Part(head, tuple(tuple(chain.from_iterable(rows)) for rows in blocks), tail)


def _passage(plan: Schedule, parts: Sequence[_Part], stage: int, cell: Cell) -> Passage:
    """A cell with its rows; weight gradients hand nothing on."""
    part = plan.part(stage, cell.chunk)
    # Of two ways the first half of the micro-batches goes the first one.
    final = plan.micro_batches // (1 if cell.chunk else plan.ways) - 1
    rows = parts[part].blocks[final - cell.micro_batch]
    if cell.kind == "W":
        return Passage(cell, rows)
    source = _transfer(plan, stage, cell, part - _way(cell), part)
    return Passage(cell, rows, source, _target(plan, stage, cell))


def _way(cell: Cell) -> int:
    return 1 if cell.kind == "F" else -1


def _target(plan: Schedule, stage: int, cell: Cell) -> Transfer | None:
    """The transfer to who goes on with what a cell has done, if another stage does."""
    following = plan.part(stage, cell.chunk) + _way(cell)
    return _transfer(plan, stage, cell, following, following)


def _transfer(plan: Schedule, stage: int, cell: Cell, other: int, into: int) -> Transfer | None:
    """The transfer between a cell and its neighbour in part `other`, entering part `into`; None within a stage."""
    if not 0 <= other < plan.parts:
        return None
    there = plan.stage(other, cell.chunk)
    tag = 2 * (cell.micro_batch * plan.parts + into) + (cell.kind == "B")
    return None if there == stage else Transfer(there, tag)


def steps_of(passage: Passage, *, splits: bool) -> Iterator[Step]:
    """What a cell does with its rows; with `splits`, weight gradients are in cells of their own."""
    kind, rows = passage.cell.kind, passage.rows
    if kind == "F":
        return map(forward, rows)
    if kind == "B" and not splits:
        return _backwards(rows)
    phase, order = (WEIGHT_GRAD, Order.FIFO) if kind == "W" else (INPUT_GRAD, Order.LIFO)
    return (Step(phase, row, issue=Ref(phase, row), order=order, blocking=kind == "B") for row in reversed(rows))


def _backwards(rows: Rows) -> Iterator[Step]:
    return chain.from_iterable(backward(row, send_first=True, reduce_gradients=True) for row in reversed(rows))


def end_steps(head: Rows, tail: Rows) -> tuple[list[Step], list[Step]]:
    """The end of a step: what reduces and gathers; then, when all that has arrived, what needed it."""
    return [*map(forward, tail), *_backwards((*head, *tail))], [*map(forward, head)]
