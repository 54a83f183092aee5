"""Another pipeline: a recorded step compiled into a workload of stages, with other degrees, played on a topology.

As in Lumos (MLSys 2025, section 3.4) layers keep their recorded computation and are given to other stages in another
schedule; unlike there all communication is timed by the simulated network, from its recorded sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from statistics import mean, median_low

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.profiles import profiles
from simcore.replay.cells import Cells, read_cells
from simcore.replay.interconnect import Interconnect
from simcore.replay.report import typical_step
from simcore.replay.rows import Part, Rows, StepEnd, mixed_row, part_of, step_end
from simcore.replay.session import Replay
from simcore.report.model import Report
from simcore.workload.loops import schedules
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Workload

__all__ = ["NUMBERS", "Plan", "Rebuilt", "Recorded", "compiled", "played", "rebuild", "recorded", "target_of"]

LOOP = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
REDUCING, CLOSING = "gradient_reduce", "optimizer"  # names by which a pipeline knows the rows of a step's end
SCALAR_BYTES = 1024  # collectives as small as this (norms, counts) do not grow with the parameters
NUMBERS = ("pp", "dp", "layers", "micro_batches", "vpp")


@dataclass(frozen=True, slots=True)
class Plan:
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


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A recorded step by its parts, each with the stage that recorded it; layers stand in the order of the model."""

    plan: Plan
    layers: Placed
    before: Placed
    behind: Placed
    ends: tuple[StepEnd, ...]
    counts: tuple[int, ...]
    pipeline_bytes: int
    sharded: bool
    splits: bool
    file: str

    def chosen(self, count: int) -> Placed:
        """So many layers: the ordinary ones, nearest to the median computation, are repeated or left out."""
        usual = median_low(part.compute_ns for part, _ in self.layers)
        ranked = sorted(range(len(self.layers)), key=lambda at: (abs(self.layers[at][0].compute_ns - usual), at))
        if count < len(self.layers):
            left_out = set(ranked[: len(self.layers) - count])
            return tuple(layer for at, layer in enumerate(self.layers) if at not in left_out)
        at = ranked[0]
        return (*self.layers[:at], *(self.layers[at],) * (count - len(self.layers)), *self.layers[at:])


def recorded(replay: Replay) -> Recorded:
    """The recorded step by its parts.

    Raises
    ------
    InputError
        When the traces do not say what is needed: ranges of layers, all stages, groups, sizes of transfers.
    """
    found = [read_cells(rank, typical_step(replay, number)) for number, rank in enumerate(replay.ranks)]
    stages = [next(same) for _, same in groupby(sorted(found, key=_place), key=_layer_numbers)]
    numbers = sorted(number for cells in stages for number in _layer_numbers(cells))
    sizes = {group: size for cells in stages for group, size in cells.sizes.items()}
    _check_stages(stages, numbers, sizes)
    chunks = max(len(_runs(cells)) for cells in stages)
    runs = sorted((run, stage) for stage, cells in enumerate(stages) for run in _runs(cells, chunks))
    layers = [(part_of(stages[stage], f"layer {n}"), stage) for run, stage in runs for n in range(run[0], run[1])]
    before, behind = _others(stages, runs[0][1], runs[-1][1])
    micro_batches = max(len(some) for some in stages[0].passes.values())
    schedule = _schedule(stages, micro_batches, chunks)
    plan = Plan(
        sizes.get(Group.TP, 1), len(stages), sizes.get(Group.DP, 1), micro_batches, len(layers), schedule, chunks
    )
    ends = tuple(map(step_end, stages))
    return Recorded(
        plan=plan,
        layers=tuple(layers),
        before=before,
        behind=behind,
        ends=ends,
        counts=tuple(run[1] - run[0] for run, _ in runs),
        pipeline_bytes=max((size for cells in stages for size in cells.sent_bytes), default=0),
        sharded=any(map(_scatters, (*(part.last for part, _ in layers), *(end.reducing for end in ends)))),
        splits=any(one.weight for c in stages for some in c.passes.values() for ops in some for one in ops),
        file=stages[0].file,
    )


def _layer_numbers(cells: Cells) -> tuple[int, ...]:
    return tuple(sorted({int(part.split()[1]) for part in cells.parts if part.startswith("layer ")}))


def _place(cells: Cells) -> tuple[tuple[int, ...], int]:
    return _layer_numbers(cells), cells.rank


def _runs(cells: Cells, pieces: int = 0) -> list[tuple[int, int]]:
    """A stage's consecutive layers as (first, behind the last), cut where the model turns round in it."""
    numbers = _layer_numbers(cells)
    cuts = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    if not cuts and pieces > 1:
        cuts = [len(numbers) * piece // pieces for piece in range(1, pieces)]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([0, *cuts, len(numbers)])]


Placed = tuple[tuple[Part, int], ...]  # parts of the model, each with the stage that recorded it


def _others(stages: Sequence[Cells], first: int, last: int) -> tuple[Placed, Placed]:
    """Parts that are no layers: those before the model's first layer, and those behind its last."""
    before, behind = list[tuple[Part, int]](), list[tuple[Part, int]]()
    for stage, cells in enumerate(stages):
        at = next(at for at, name in enumerate(cells.parts) if name.startswith("layer "))
        for place, name in enumerate(cells.parts):
            if name.startswith("layer "):
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


def _scatters(rows: Rows) -> bool:
    phases = (row.weight_grad for row in rows)
    return any(p.collective == CollectiveKind.REDUCE_SCATTER and p.group == Group.DP for p in phases)


def _schedule(stages: Sequence[Cells], micro_batches: int, chunks: int) -> str:
    """The schedule in whose order the stages ran their first layers; 1F1B, or interleaved, where none fits."""
    for name in schedules.names():
        try:
            order = schedules.make(name, len(stages), micro_batches, chunks if chunks > 1 else None).order
        except InputError:
            continue
        if all(
            _came(cells, chunks) == [(c.kind, c.micro_batch, c.chunk) for c in line]
            for cells, line in zip(stages, order, strict=True)
        ):
            return name
    return "interleaved" if chunks > 1 else "1f1b"


def _came(cells: Cells, chunks: int) -> list[tuple[str, int, int]]:
    """(kind, micro-batch, chunk) of a stage's cells, by the first layer of each chunk."""
    first = [f"layer {run[0]}" for run in _runs(cells, chunks)]
    return [(kind, number, first.index(part)) for kind, part, number in cells.order if part in first]


def target_of(base: Recorded, changes: dict[str, int | str]) -> Plan:
    """The recorded plan with changes; InputError for what the trace cannot tell."""
    plan = replace(base.plan, **changes)  # type: ignore[arg-type]
    if plan.schedule not in schedules.names():
        schedules.make(plan.schedule, 1, 1)
    if plan.schedule in ("gpipe", "1f1b", "zb-h1") and "vpp" not in changes:
        plan = replace(plan, vpp=1)
    if plan.schedule in ("interleaved", "zb-v", "dualpipe") and plan.vpp == 1:
        plan = replace(plan, vpp=1 if plan.schedule == "dualpipe" else 2)
    missing = ""
    if plan.pp > 1 and not base.pipeline_bytes:
        missing = "no transfer between stages was recorded, so their size is unknown"
    elif plan.dp > 1 and base.plan.dp == 1:
        missing = "no data parallel collective was recorded, so their sizes are unknown"
    elif schedules.splits_backward(plan.schedule) and not base.splits:
        missing = f"{plan.schedule} runs weight gradients apart, and no range says which kernels these are"
    elif plan.layers < plan.outline.parts:
        missing = f"{plan.layers} layers are fewer than the {plan.outline.parts} parts of {plan.schedule}"
    if missing:
        raise InputError.at("--set", missing, expected="a step that the trace tells everything about", found=base.file)
    return plan


def compiled(base: Recorded, plan: Plan) -> Workload:
    """The recorded step as rows of a pipeline with other degrees; all-gather sizes are totals."""
    layers, outline = base.chosen(plan.layers), plan.outline
    count, extra = divmod(len(layers), outline.parts)
    same = plan.layers == base.plan.layers and outline.parts == len(base.counts)
    counts = base.counts if same else [count + (part < extra) for part in range(outline.parts)]
    marks = list(accumulate(counts, initial=0))
    parts = [list(layers[a:b]) for a, b in pairwise(marks)]
    parts[0] = [*base.before, *parts[0]]
    parts[-1] = [*parts[-1], *base.behind]
    ends: list[list[tuple[Part, int]]] = [[] for _ in parts]
    for number, part in enumerate(parts):  # a stage ends its step once, with the first of its parts
        ends[number if outline.placement == "twoway" else _first_part(outline, number)] += part
    rows = [_part_rows(base, plan, part, end) for part, end in zip(parts, ends, strict=True)]
    sizes = Parallelism(plan.tp, 1, plan.pp, plan.vpp, 0, plan.micro_batches, plan.npus)
    return Workload(
        LOOP, tuple(row for some in rows for row in some), sizes, "simai", pipeline_bytes=base.pipeline_bytes,
        stage_rows=tuple(map(len, rows)), name=base.file,
    )  # fmt: skip


def _first_part(outline: schedules.Schedule, part: int) -> int:
    """The first part of the stage that has a part."""
    return outline.part(outline.stage(part, 0), 0)


def _part_rows(
    base: Recorded, plan: Plan, parts: Sequence[tuple[Part, int]], end: Sequence[tuple[Part, int]]
) -> list[Layer]:
    """The rows of the end of the step, then a block for every micro-batch, the last one first.

    A block has the forward rows of its parts and then, in reverse, their backward rows.
    """
    ahead = [_named(row, part.name) for part, _ in parts for row in part.forward]
    back, last = (
        [_named(row, part.name) for (part, _), rows in zip(parts, some, strict=True) for row in reversed(rows)]
        for some in ([part.backward for part, _ in parts], [part.last for part, _ in parts])
    )
    return [*(_end_rows(base, plan, end) if end else []), *ahead, *last, *[*ahead, *back] * (plan.micro_batches - 1)]


def _end_rows(base: Recorded, plan: Plan, parts: Sequence[tuple[Part, int]]) -> list[Layer]:
    """The end of the recorded steps, each part's share of its stage; reducing rows are played from the last up."""
    shares = _shares(base, parts)
    reducing = _mixed([end.reducing for end in base.ends], shares, 1.0, base.file)
    faster = base.plan.dp / plan.dp if base.sharded else 1.0  # a sharded optimizer
    closing = _mixed([end.closing for end in base.ends], shares, faster, base.file)
    return [_named(row, REDUCING) for row in reversed(reducing)] + [_named(row, CLOSING) for row in closing]


def _named(row: Layer, name: str) -> Layer:
    """A row as a text workload has it: a name of one word, the usual group of a column left to the loop."""
    usual = ((row.forward, Group.TP), (row.input_grad, Group.TP), (row.weight_grad, Group.DP))
    phases = [replace(phase, group=Group.LOOP) if phase.group == own else phase for phase, own in usual]
    return Layer("_".join(name.split()), phases[0], phases[1], phases[2])


def _shares(base: Recorded, parts: Sequence[tuple[Part, int]]) -> list[float]:
    """How much of each recorded stage's parameters some parts hold: by gradient bytes, else by number of layers."""
    every = [*base.before, *base.layers, *base.behind]
    known = any(part.gradient_bytes for part, _ in every)

    def weight(some: Sequence[tuple[Part, int]], stage: int) -> float:
        own = [part for part, its in some if its == stage]
        return sum(part.gradient_bytes if known else part.name.startswith("layer ") for part in own)

    return [weight(parts, stage) / (weight(every, stage) or 1.0) for stage in range(len(base.ends))]


def _mixed(stages: Sequence[Rows], shares: Sequence[float], faster: float, file: str) -> list[Layer]:
    """Row by row the sum of the stages' rows, each by its share."""
    if len({tuple((r.forward.collective, r.weight_grad.collective) for r in rows) for rows in stages}) > 1:
        message = "the stages end their steps differently, so that it is unknown what a stage with other layers does"
        raise InputError.at(file, message, expected="the same collectives at the end of every stage's step")
    return [_mixed_row(rows, shares, faster) for rows in zip(*stages, strict=True)]


def _mixed_row(rows: Sequence[Layer], shares: Sequence[float], faster: float) -> Layer:
    def mixed(phases: Sequence[Phase]) -> Phase:
        compute_ns = sum(share * phase.compute_ns for share, phase in zip(shares, phases, strict=True)) * faster
        size = sum(share * phase.size_bytes for share, phase in zip(shares, phases, strict=True))
        largest = max(phase.size_bytes for phase in phases)
        return replace(
            phases[0], compute_ns=round(compute_ns), size_bytes=round(size) if largest > SCALAR_BYTES else largest
        )

    return mixed_row(rows, mixed)


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """Another pipeline played, and the recorded one compiled and played alike, where a machine of its size is known.

    `period_ns` is the replayed period of the slowest rank.
    """

    recorded: Recorded
    plan: Plan
    report: Report
    base: Report | None
    period_ns: float

    @property
    def base_error(self) -> float | None:
        """How far the compiled recorded step is from the replayed period; relative."""
        return self.base.timeline.time_ns / self.period_ns - 1 if self.base else None


def rebuild(
    replay: Replay,
    changes: dict[str, int | str],
    machine: Interconnect,
    own: Interconnect | None = None,
) -> Rebuilt:
    """Compile the recorded step with changes (of `Plan`) and play it on a machine.

    `own` is the recorded run's; without it `machine` serves where it has as many NPUs.

    Raises
    ------
    InputError
        When the traces do not say what is needed, or the machines do not fit.
    """
    base = recorded(replay)
    plan = target_of(base, changes)
    own = own or (machine if machine.topology.npus == base.plan.npus else None)
    again = played(compiled(base, base.plan), base.plan, own) if own else None
    period_ns = max(mean(step.predicted_ns for step in replay.scored(number)) for number in range(len(replay.ranks)))
    return Rebuilt(base, plan, played(compiled(base, plan), plan, machine), again, period_ns)


def played(workload: Workload, plan: Plan, machine: Interconnect) -> Report:
    """The compiled step on a machine; InputError when its NPUs are not the plan's."""
    topology = machine.topology
    if topology.npus != plan.npus:
        raise InputError.at(
            topology.path or "--topology",
            "the topology does not have as many NPUs as the step has ranks",
            expected=f"{plan.npus} NPUs: tp {plan.tp} x dp {plan.dp} x pp {plan.pp}",
            found=f"{topology.npus} NPUs",
        )
    settings = Settings(schedule=plan.schedule if plan.pp > 1 else "")
    return Report(
        simulate(workload, topology, machine.system, profiles.get("native"), settings), "native", "", workload=workload
    )
