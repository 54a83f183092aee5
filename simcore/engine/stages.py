"""A pipelined workload made ready to run: what every stage plays, and the processes of its classes of NPUs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from simcore.engine.setup import Placement
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.system.npu import Cell, Npu
from simcore.timeline.events import EventBuffer, PipelineRun
from simcore.workload.loops.pipeline import Passage, Pipeline, end_steps, steps_of
from simcore.workload.model import Workload


def check_fits(workload: Workload, topology: Topology, placement: Placement) -> None:
    """InputError when the stages are not equal parts of the machine, or some algorithm spans all of it."""
    sizes = workload.parallelism
    model = max(1, sizes.tp) * sizes.pp
    if topology.npus % model:
        raise InputError.at(
            workload.location,
            f"{sizes.pp} stages of groups of {max(1, sizes.tp)} do not fit the topology",
            expected=f"a number of NPUs that {model} divides",
            found=f"{topology.npus} NPUs",
            hint="change pp: or model_parallel_NPU_group: in the header, or the topology",
        )
    across = next((lane.algorithm for lane in placement.every_lane if lane.algorithm.whole_machine), None)
    if across:
        message = f"{across.name} spans the whole machine, a pipeline's collectives stay within a stage"
        raise InputError.at(across.location or "--system", message, expected="an algorithm for each dimension")


def stage_cells(workload: Workload, pipeline: Pipeline, events: EventBuffer) -> list[list[Cell]]:
    """What every stage plays in an iteration: its cells, then what reduces and gathers, then what needs its results."""
    splits = pipeline.schedule.splits_backward
    made = []
    for passages, (head, tail) in zip(pipeline.stages, pipeline.ends, strict=True):
        cells = [
            Cell(list(steps_of(each, splits=splits)), np.array(each.rows), _content(workload, each), name, each)
            for each, name in ((each, events.name(str(each.cell))) for each in passages)
        ]
        rows, (reducing, closing) = np.array(sorted(head + tail), np.int64), end_steps(head, tail)
        ends = Cell(reducing, rows, ("reducing", head, tail)), Cell(closing, rows, ("closing", head, tail), drains=True)
        made.append([*cells, *ends])
    return made


def _content(workload: Workload, passage: Passage) -> Hashable:
    """Equal for cells that do the same: equal phases of a file are one object."""
    layers = [workload.layers[row] for row in passage.rows]
    if passage.cell.kind == "F":
        return "F", tuple((id(layer.forward), layer.update_ns, layer.name) for layer in layers)
    each = ((id(layer.input_grad), id(layer.weight_grad), layer.update_ns, layer.name) for layer in layers)
    return passage.cell.kind, tuple(each)


def pipeline_run(pipeline: Pipeline, npus: Sequence[Npu], first: Sequence[int]) -> PipelineRun:
    """What the report says about the pipeline; `first` are the classes of the stages' first NPUs."""
    schedule = pipeline.schedule
    cells: list[tuple[int, str, int, int, int, int]] = []
    for stage, npu_class in enumerate(first):
        for cell, start_ns, end_ns in npus[npu_class].played:
            if cell.passage:
                own = cell.passage.cell
                cells.append((stage, own.kind, own.micro_batch, own.chunk, start_ns, end_ns))
    for stage, npu_class in enumerate(first):
        ends = [times_ns for cell, *times_ns in npus[npu_class].played if not cell.passage]
        for index, ((start_ns, _), (_, end_ns)) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
            if end_ns > start_ns:
                cells.append((stage, "E", index, 0, start_ns, end_ns))
    return PipelineRun(
        schedule.name, schedule.stages, schedule.micro_batches, schedule.chunks, tuple(first), tuple(cells)
    )
