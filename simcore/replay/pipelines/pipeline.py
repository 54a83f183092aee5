"""Another pipeline: a recorded step compiled into a workload of stages, with other degrees, played on a topology.

As in Lumos (MLSys 2025, section 3.4) layers keep their recorded computation and are given to other stages in another
schedule; unlike there all communication is timed by the simulated network, from its recorded sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import fsum
from statistics import mean

from msgspec import structs

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.profiles import profiles
from simcore.replay.pipelines.cells import ModelPart, Rows, mixed_row
from simcore.replay.pipelines.stages import PipelinePlan, Recorded
from simcore.replay.session import Replay
from simcore.replay.views.changed import batch
from simcore.replay.whatif.layers import layer_number
from simcore.replay.whatif.transfers import Interconnect
from simcore.report.model import Report
from simcore.report.table import Table, columns
from simcore.units import format_ns
from simcore.workload.loops import schedules
from simcore.workload.model import Group, Layer, Parallelism, Phase, Role, Workload

LOOP = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
REDUCING, CLOSING = ("gradient_reduce", Role.REDUCE), ("optimizer", Role.OPTIMIZER)  # of the end of a step
SCALAR_BYTES = 1024  # collectives as small as this (norms, counts) do not grow with the parameters
NUMBERS = ("pp", "dp", "layers", "micro_batches", "vpp")


def target_of(base: Recorded, changes: dict[str, int | str]) -> PipelinePlan:
    """The recorded plan with changes; InputError for what the trace cannot tell."""
    plan = structs.replace(base.plan, **changes)
    family = schedules.family(plan.schedule)
    if family.chunks == 1 and "vpp" not in changes:
        plan = structs.replace(plan, vpp=1)
    if family.chunks > 1 and plan.vpp == 1 and family.placement != "twoway":
        plan = structs.replace(plan, vpp=family.chunks)
    missing = ""
    if plan.pp > 1 and not base.pipeline_bytes:
        missing = "no transfer between stages was recorded, so their size is unknown"
    elif plan.dp > 1 and base.plan.dp == 1 and any(part.backward for part, _ in base.layers):
        missing = "no data parallel collective was recorded, so their sizes are unknown"
    elif schedules.splits_backward(plan.schedule) and not base.splits:
        missing = f"{plan.schedule} runs weight gradients apart, and no range says which kernels these are"
    elif plan.layers < plan.outline.parts:
        missing = f"{plan.layers} layers are fewer than the {plan.outline.parts} parts of {plan.schedule}"
    if missing:
        raise InputError.at("--set", missing, expected="a step that the trace tells everything about", found=base.file)
    return plan


def compiled(base: Recorded, plan: PipelinePlan) -> Workload:
    """The recorded step as rows of a pipeline with other degrees; all-gather sizes are totals."""
    layers, outline = base.chosen(plan.layers), plan.outline
    count, extra = divmod(len(layers), outline.parts)
    same = plan.layers == base.plan.layers and outline.parts == len(base.counts)
    counts = base.counts if same else [count + (part < extra) for part in range(outline.parts)]
    marks = list(accumulate(counts, initial=0))
    parts = [list(layers[a:b]) for a, b in pairwise(marks)]
    parts[0] = [*base.before, *parts[0]]
    parts[-1] = [*parts[-1], *base.behind]
    ends: list[list[tuple[ModelPart, int]]] = [[] for _ in parts]
    for number, part in enumerate(parts):  # a stage ends its step once, with the first of its parts
        ends[number if outline.placement == "twoway" else outline.part(outline.stage(number, 0), 0)] += part
    rows = [_part_rows(base, plan, part, end) for part, end in zip(parts, ends, strict=True)]
    sizes = Parallelism(plan.tp, 1, plan.pp, plan.vpp, 0, plan.micro_batches, plan.npus)
    return Workload(
        LOOP, tuple(row for some in rows for row in some), sizes, "simai", pipeline_bytes=base.pipeline_bytes,
        stage_rows=tuple(map(len, rows)), name=base.file,
    )  # fmt: skip


def _part_rows(
    base: Recorded, plan: PipelinePlan, parts: Sequence[tuple[ModelPart, int]], end: Sequence[tuple[ModelPart, int]]
) -> list[Layer]:
    """The rows of the end of the step, then a block for every micro-batch, the last one first.

    A block has the forward rows of its parts and then, in reverse, their backward rows.
    """
    ahead = [_named(row, part.name) for part, _ in parts for row in part.forward]
    back, last = (
        [_named(row, part.name) for (part, _), rows in zip(parts, some, strict=True) for row in reversed(rows)]
        for some in ([part.backward for part, _ in parts], [part.last for part, _ in parts])
    )
    rows = [*ahead, *last, *[*ahead, *back] * (plan.micro_batches - 1)]
    if not end:
        return rows
    # The end of the recorded steps, each part's share of its stage; reducing rows are played from the last up.
    shares = _shares(base, end)
    reducing = _mixed([one.reducing for one in base.ends], shares, 1.0, base.file)
    faster = base.plan.dp / plan.dp if base.sharded else 1.0  # a sharded optimizer
    closing = _mixed([one.closing for one in base.ends], shares, faster, base.file)
    return [_named(row, *REDUCING) for row in reversed(reducing)] + [_named(row, *CLOSING) for row in closing] + rows


def _named(row: Layer, name: str, role: Role = Role.MICRO_BATCH) -> Layer:
    """A row as a text workload has it: a name of one word, the usual group of a column left to the loop."""
    usual = ((row.forward, Group.TP), (row.input_grad, Group.TP), (row.weight_grad, Group.DP))
    phases = [replace(phase, group=Group.LOOP) if phase.group == own else phase for phase, own in usual]
    return Layer("_".join(name.split()), phases[0], phases[1], phases[2], role=role)


def _shares(base: Recorded, parts: Sequence[tuple[ModelPart, int]]) -> list[float]:
    """How much of each recorded stage's parameters some parts hold: by gradient bytes, else by number of layers."""
    every = [*base.before, *base.layers, *base.behind]
    known = any(part.gradient_bytes for part, _ in every)

    def weight(some: Sequence[tuple[ModelPart, int]], stage: int) -> float:
        own = [part for part, its in some if its == stage]
        return sum(part.gradient_bytes if known else layer_number(part.name) >= 0 for part in own)

    return [weight(parts, stage) / (weight(every, stage) or 1.0) for stage in range(len(base.ends))]


def _mixed(stages: Sequence[Rows], shares: Sequence[float], faster: float, file: str) -> list[Layer]:
    """Row by row the sum of the stages' rows, each by its share."""
    if len({tuple((r.forward.collective, r.weight_grad.collective) for r in rows) for rows in stages}) > 1:
        message = "the stages end their steps differently, so that it is unknown what a stage with other layers does"
        raise InputError.at(file, message, expected="the same collectives at the end of every stage's step")

    def mixed(phases: Sequence[Phase]) -> Phase:
        compute_ns = fsum(share * phase.compute_ns for share, phase in zip(shares, phases, strict=True)) * faster
        size = fsum(share * phase.size_bytes for share, phase in zip(shares, phases, strict=True))
        largest = max(phase.size_bytes for phase in phases)
        return replace(
            phases[0], compute_ns=round(compute_ns), size_bytes=round(size) if largest > SCALAR_BYTES else largest
        )

    return [mixed_row(rows, mixed) for rows in zip(*stages, strict=True)]


class Rebuilt:
    """Another pipeline played on a machine: the recorded step compiled with changes (of `PipelinePlan`).

    `base` is the recorded one compiled and played alike, where a machine of its size is known: `own`, or `machine`
    where it has as many NPUs. `period_ns` is the replayed period of the slowest rank, `base_error` how far the compiled
    step is from it. InputError when the traces do not say what is needed, or the machines do not fit.
    """

    def __init__(
        self, replay: Replay, changes: dict[str, int | str], machine: Interconnect, own: Interconnect | None = None
    ):
        self.recorded = base = Recorded(replay)
        self.plan = target_of(base, changes)
        own = own or (machine if machine.topology.npus == base.plan.npus else None)
        self.base = played(compiled(base, base.plan), base.plan, own) if own else None
        self.period_ns = max(mean(step.predicted_ns for step in replay.scored(at)) for at in range(len(replay.ranks)))
        self.base_error = self.base.timeline.time_ns / self.period_ns - 1 if self.base else None
        self.report = played(compiled(base, self.plan), self.plan, machine)


def played(workload: Workload, plan: PipelinePlan, machine: Interconnect) -> Report:
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


SHARES = {"compute_ns": "compute", "overlapped_ns": "overlapped", "exposed_comm_ns": "exposed", "idle_ns": "bubble"}


def pipeline_dict(rebuilt: Rebuilt) -> dict[str, object]:
    """The key `pipeline` of the replay's document."""
    return {
        "recorded": structs.asdict(rebuilt.recorded.plan),
        "period_ns": rebuilt.period_ns,
        "compiled_ns": rebuilt.base.timeline.time_ns if rebuilt.base else None,
        "compiled_error": rebuilt.base_error,
        "target": structs.asdict(rebuilt.plan),
        "predicted_ns": rebuilt.report.timeline.time_ns,
        "stages": _stages(rebuilt),
        "notes": list(rebuilt.report.timeline.notes),
    }


def _stages(rebuilt: Rebuilt) -> list[dict[str, object]]:
    document = rebuilt.report.to_dict()
    if "pipeline" in document:
        return [dict(stage) for stage in document["pipeline"]["stages"]]
    return [{"stage": 0, "ranks": f"0-{rebuilt.plan.npus - 1}", **document["breakdown"]}]


def _plan(plan: PipelinePlan) -> str:
    sizes = f"tp {plan.tp}, pp {plan.pp}, dp {plan.dp}, {plan.layers} layers, {plan.micro_batches} micro-batches"
    return f"{sizes}, {plan.schedule}" + (f" with {plan.vpp} chunks" if plan.vpp > 1 else "")


def pipeline_text(rebuilt: Rebuilt, tokens: int = 0) -> str:
    """The answer in a sentence, its stages, and how good the same way of predicting is for the recorded step."""
    time_ns, period_ns = rebuilt.report.timeline.time_ns, rebuilt.period_ns
    answer = f"{format_ns(time_ns)} instead of {format_ns(period_ns)} ({time_ns / period_ns - 1:+.1%})"
    plan, old = rebuilt.plan, rebuilt.recorded.plan
    batches = plan.dp * plan.micro_batches / (old.dp * old.micro_batches)
    answer += batch(batches, period_ns, time_ns, tokens)
    figures = [(key, title, "ns") for key, title in SHARES.items()]
    stages = Table("", columns("stage", "ranks", *figures), _stages(rebuilt))
    lines = [f"With {_plan(rebuilt.plan)} a step takes {answer}.", "", stages.text(indent=2)]
    lines += ["", f"  recorded: {_plan(rebuilt.recorded.plan)}; replayed in {format_ns(period_ns)}"]
    if rebuilt.base is None:
        lines.append("  --recorded-topology T plays the recorded pipeline in the same way, to see how far that is off")
    else:
        compiled_ns = format_ns(rebuilt.base.timeline.time_ns)
        lines.append(f"  the recorded pipeline, played in the same way: {compiled_ns} ({rebuilt.base_error:+.1%})")
    return "\n".join([*lines, *(f"  note: {note}" for note in rebuilt.report.timeline.notes)])
