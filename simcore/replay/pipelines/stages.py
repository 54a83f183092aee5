"""A recorded step taken apart: its degrees and schedule, and the parts of the model that its stages ran."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from operator import attrgetter
from statistics import median_low

from msgspec import Struct
from msgspec.structs import replace

from simcore.errors import InputError
from simcore.replay.pipelines.cells import Cells, ModelPart, part_of, step_end
from simcore.replay.pipelines.passes import Line, found_ranges
from simcore.replay.session import Replay, StepReplay
from simcore.replay.whatif.layers import NamedRange, layer_number, named_ranges
from simcore.replay.whatif.repetition import UnclearError
from simcore.workload.loops import schedules
from simcore.workload.model import CollectiveKind, Group

Placed = tuple[tuple[ModelPart, int], ...]  # parts of the model, each with the stage that recorded it


class PipelinePlan(Struct, frozen=True):
    """Degrees, schedule and depth of a step; `tp` is the recorded one, `layers` those of the whole model."""

    tp: int
    pp: int
    dp: int
    micro_batches: int
    layers: int
    schedule: str
    vpp: int = 1

    @property
    def npus(self) -> int:
        """How many ranks the step runs on."""
        return self.tp * self.pp * self.dp

    @property
    def outline(self) -> schedules.Schedule:
        """Which stage has which part of the model."""
        return schedules.outline(self.schedule, self.pp, self.micro_batches, self.vpp if self.vpp > 1 else None)


class Recorded:
    """A recorded step by its parts, each with the stage that recorded it; layers stand in the order of the model.

    InputError when the traces do not say what is needed: layers, all stages, groups, sizes of transfers.
    """

    def __init__(self, replay: Replay):
        steps = [replay.typical(number) for number in range(len(replay.ranks))]
        found = [Cells(step, own) for step, own in zip(steps, _ranges(steps), strict=True)]
        by_layers = sorted(found, key=lambda cells: (cells.layers, cells.rank))
        stages = [next(same) for _, same in groupby(by_layers, key=attrgetter("layers"))]
        numbers = sorted(number for cells in stages for number in cells.layers)
        sizes = {group: size for cells in stages for group, size in cells.sizes.items()}
        _check_stages(stages, numbers, sizes)
        chunks = max(len(_runs(cells)) for cells in stages)
        runs = sorted((run, stage) for stage, cells in enumerate(stages) for run in _runs(cells, chunks))
        layers = [(part_of(stages[stage], f"layer {n}"), stage) for run, stage in runs for n in range(run[0], run[1])]
        micro_batches = max(len(some) for some in stages[0].passes.values())
        degrees = sizes.get(Group.TP, 1), len(stages), sizes.get(Group.DP, 1)
        schedule = _schedule(stages, micro_batches, chunks)
        self.plan = PipelinePlan(*degrees, micro_batches, len(layers), schedule, chunks)
        self.layers, self.counts = tuple(layers), tuple(run[1] - run[0] for run, _ in runs)
        self.before, self.behind = _others(stages, runs[0][1], runs[-1][1])
        self.ends, self.file = tuple(map(step_end, stages)), stages[0].file
        self.pipeline_bytes = max((size for cells in stages for size in cells.sent_bytes), default=0)
        reduced = chain.from_iterable((*(part.last for part, _ in layers), *(end.reducing for end in self.ends)))
        scatter = Group.DP, CollectiveKind.REDUCE_SCATTER
        self.sharded = any((row.weight_grad.group, row.weight_grad.collective) == scatter for row in reduced)
        self.splits = any(one.weight for c in stages for some in c.passes.values() for ops in some for one in ops)

    def chosen(self, count: int) -> Placed:
        """So many layers: the ordinary ones, nearest to the median computation, are repeated or left out, and all are
        numbered anew.
        """
        usual = median_low(part.compute_ns for part, _ in self.layers)
        ranked = sorted(range(len(self.layers)), key=lambda at: (abs(self.layers[at][0].compute_ns - usual), at))
        left_out = set(ranked[: max(len(self.layers) - count, 0)])
        more = {ranked[0]: max(count - len(self.layers), 0)}
        kept = (one for at, one in enumerate(self.layers) if at not in left_out for _ in range(1 + more.get(at, 0)))
        return tuple((replace(part, name=f"layer {number}"), stage) for number, (part, stage) in enumerate(kept))


def _ranges(steps: Sequence[StepReplay]) -> list[list[NamedRange]]:
    """As the program named them; of a pipeline that names no layers, as transfers and repetition tell."""
    named = [named_ranges(step.prepared.view.trace, step.window) for step in steps]
    if all(any(layer_number(one.part) >= 0 for one in ranges) for ranges in named):
        return named
    try:
        return found_ranges([Line(step.prepared.view, step.position) for step in steps])
    except UnclearError as unclear:
        names = ", ".join(sorted({one.part for ranges in named for one in ranges})[:5])
        raise InputError.at(
            steps[0].prepared.view.trace.file,
            "the trace does not say where layers and micro-batches begin and end",
            expected="transfers that say from which rank to which and layers that repeat, or ranges named "
            "'layer 3 forward' and 'layer 3 backward' around what each layer launches",
            found=f"{f'ranges {names}' if names else 'no such range'}; {unclear}",
            hint="torch.profiler.record_function(f'layer {n} forward'); docs/replay.md, 'Another pipeline'",
        ) from unclear


def _runs(cells: Cells, pieces: int = 0) -> list[tuple[int, int]]:
    """A stage's consecutive layers as (first, behind the last), cut where the model turns round in it.

    There something may come between two layers of a pass; where nothing ever does, pieces are equal.
    """
    numbers = cells.layers
    cuts = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    if not cuts and pieces > 1:
        cuts = [at for at in range(1, len(numbers)) if _torn(cells, *numbers[at - 1 : at + 1])]
        if len(cuts) != pieces - 1:
            cuts = [len(numbers) * piece // pieces for piece in range(1, pieces)]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([0, *cuts, len(numbers)])]


def _torn(cells: Cells, layer: int, following: int) -> bool:
    """Whether something comes between two layers in some pass of a micro-batch."""
    place = {one: at for at, one in enumerate(cells.order)}
    passes = ((kind, number) for kind, part, number in place if part == f"layer {layer}")
    names = [[(kind, f"layer {one}", number) for one in (layer, following)] for kind, number in passes]
    return any(abs(place[here] - place[there]) > 1 for here, there in names if there in place)


def _others(stages: Sequence[Cells], first: int, last: int) -> tuple[Placed, Placed]:
    """Parts that are no layers: those before the model's first layer, and those behind its last."""
    before, behind = list[tuple[ModelPart, int]](), list[tuple[ModelPart, int]]()
    for stage, cells in enumerate(stages):
        at = next(at for at, name in enumerate(cells.parts) if layer_number(name) >= 0)
        for place, name in enumerate(cells.parts):
            if layer_number(name) >= 0:
                continue
            if stage != (first if place < at else last):
                message = f"'{name}' runs on a stage in the middle of the model, and is no layer"
                raise InputError.at(
                    cells.file, message, expected="such ranges before the first or behind the last layer"
                )
            (before if place < at else behind).append((part_of(cells, name), stage))
    return tuple(before), tuple(behind)


def _check_stages(stages: Sequence[Cells], numbers: Sequence[int], sizes: dict[Group, int]) -> None:
    """InputError when a stage is missing, a layer is recorded twice, or a group has no place in the compiled step."""
    strange = sorted(set(sizes) - {Group.TP, Group.DP, Group.PP})
    if strange:
        message = f"groups of {', '.join(strange)} cannot be compiled into another pipeline"
        raise InputError.at(stages[0].file, message, expected="tensor, data and pipeline parallel groups")
    if sizes.get(Group.PP, len(stages)) != len(stages) or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InputError.at(
            stages[0].file,
            "the traces do not hold every layer exactly once",
            expected=f"a rank of each of the {sizes.get(Group.PP, len(stages))} stages, each with layers of its own",
            found="; ".join(f"rank {cells.rank}: layers {_runs(cells)}" for cells in stages),
        )


def _schedule(stages: Sequence[Cells], micro_batches: int, chunks: int) -> str:
    """The schedule in whose order the stages ran their first layers; 1F1B, or interleaved, where none fits."""
    for name in schedules.names():
        try:
            order = schedules.make(name, len(stages), micro_batches, chunks if chunks > 1 else None).order
        except InputError:
            continue
        for cells, line in zip(stages, order, strict=True):
            first = [f"layer {run[0]}" for run in _runs(cells, chunks)]  # of each chunk
            came = [(kind, number, first.index(part)) for kind, part, number in cells.order if part in first]
            if came != list(line):
                break
        else:
            return name
    return "interleaved" if chunks > 1 else "1f1b"
