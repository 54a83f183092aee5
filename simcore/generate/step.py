"""One training step in the form asked for: the corrected workload, and what makes it different from AICB's file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from simcore import library
from simcore.compute.accelerators import accelerator
from simcore.errors import InputError
from simcore.generate.aicb.operations import csv_text
from simcore.generate.build import BESIDE, Asked, aicb_options, asked_in, ignored, model_of, plan_of, specification
from simcore.generate.deviations import deviations
from simcore.generate.durations import Roofline, chosen_gpu, measured, parts_of, profile, rescaled, roofline, with_work
from simcore.generate.made import Document, Made, row_document
from simcore.generate.traces import listed_step, write_set
from simcore.model.layer import model_blocks
from simcore.model.memory import held_parameters, room, stage_memory, tied_gradient_bytes
from simcore.model.plan import Plan
from simcore.model.rows import Timer, check_rows, pipeline_workload, stage_workload, unsaid
from simcore.model.shape import Model, mtp_parameters, total_parameters
from simcore.workload import text
from simcore.workload.chakra.groups import of_set
from simcore.workload.chakra.reader import SUFFIXES, distinct_ranks, files_of_set, grouped
from simcore.workload.contents import Contents, of_graphs, of_workload
from simcore.workload.headers import write_header
from simcore.workload.model import Workload


@dataclass(frozen=True, slots=True)
class Step:
    """A model under a plan: the stage asked for as a workload, or all of them when none was asked for."""

    model: Model
    plan: Plan
    stage: int
    workload: Workload
    durations: Timer
    gpu: str
    warnings: tuple[str, ...]

    def document(self, memory: Document, warnings: Iterable[str]) -> Document:
        """What `--json` prints of any step."""
        return {
            "deviations": [],
            "header": write_header(self.workload),
            "memory": memory,
            "rows": [row_document(layer) for layer in self.workload.layers],
            "warnings": [*warnings],
        }


def make_step(asked: Asked) -> Step:
    """Build the corrected step; times come from `comp_filepath`, otherwise from the accelerator `gpu_type`."""
    options, origin = asked.options, asked.values["rescale_from"]
    model = model_of(asked)
    plan = plan_of(asked, model)
    check_rows(model, plan)
    stage = max(options.pp_rank, 0)
    if stage >= plan.pp:
        raise InputError.at("--pp_rank", "there is no such stage", expected=f"0 to {plan.pp - 1}", found=str(stage))
    gpu, warnings = chosen_gpu(options.gpu_type, computed=bool(origin) or not options.comp_filepath)
    if plan.narrow:
        accelerator(gpu).peak(plan.dtype)  # refused where the accelerator has none
    if origin:
        durations: Timer = _rescaled(options.comp_filepath, origin, model, plan, gpu)
    elif options.comp_filepath:
        durations = measured(options.comp_filepath)
        warnings.append("times are those of the file, whatever shape and GPU they were measured on")
    else:
        durations = roofline(model, plan, accelerator(gpu))
    one = options.pp_rank >= 0
    workload = stage_workload(model, plan, durations, stage) if one else pipeline_workload(model, plan, durations)
    if idle := [f"--{name}" for name in ignored(asked, model, plan)]:
        workload = replace(workload, warnings=(*workload.warnings, f"without effect: {', '.join(idle)}"))
    return Step(model, plan, stage, workload, durations, gpu, (*warnings, *workload.warnings))


def load_step(path: str | Path, npu: str | None = None) -> Step:
    """The step of a specification, for accelerator `npu` if one is named; InputError says which key is wrong, where."""
    with asked_in(path, npu) as asked:
        return make_step(asked)


def _rescaled(file: str | None, origin: str, model: Model, plan: Plan, gpu: str) -> Timer:
    """Times of a file that were measured where the specification `origin` says, for this shape and GPU."""
    if not file:
        raise InputError.at("--rescale_from", "there are no times to rescale", expected="--comp_filepath", found="none")
    source = load_step(origin)
    there = roofline(source.model, source.plan, accelerator(source.gpu))
    here = roofline(model, plan, accelerator(gpu))
    return rescaled(measured(file), there, _held_elements(source), here)


def corrected_step(asked: Asked, form: str) -> Made:
    """The corrected workload as text, operation list or specification."""
    if (count := asked.options.epoch_num) < 1:
        raise InputError.at("--epoch_num", "a file has a step at least", expected="1 or more", found=f"{count}")
    step = make_step(asked)
    one = stage_workload(step.model, step.plan, step.durations, step.stage)
    found = [deviation.to_dict() for deviation in deviations(aicb_options(asked.options, step.model), one.layers)]
    memory, warnings = _memory(step)[0], _warnings(step, asked, form)
    counted = {
        "name": step.model.name,
        "parameters": total_parameters(step.model),
        "active_parameters": total_parameters(step.model, active=True),
        **({"mtp_parameters": mtp_parameters(step.model)} if step.model.mtp_layers else {}),
    }
    document = step.document(memory, warnings)
    document |= {"deviations": found, "model": counted, "stage": step.stage}
    return Made(_text(step, asked, form), document, warnings, times_of(step), partial(contents_of_step, step))


def times_of(step: Step) -> str:
    """The times of a step as AICB's time file."""
    plan, parts = step.plan, parts_of(block for block, _ in model_blocks(step.model, step.plan))
    shape = f"sequence {plan.seq}, micro-batch {plan.micro_batch}, tp {plan.tp}, {plan.dtype}"
    about = f"simcore: {step.model.name} on {step.gpu}, {shape}"
    return profile(step.durations, parts, _held_elements(step), about)


def contents_of_step(step: Step) -> Contents:
    """The contents of a generated step, with the work of every part of the model against the accelerator's roof."""
    costs = step.durations
    if not isinstance(costs, Roofline):
        costs = roofline(step.model, step.plan, accelerator(step.gpu))
    return with_work(of_workload(step.workload), costs, step.durations)


def _held_elements(step: Step) -> int:
    """Parameters of a rank of the step's stage, whose optimizer step a time file has."""
    return held_parameters(step.model, step.plan, step.stage).whole


def write_traces(
    step: Step, asked: Asked, prefix: Path, ranks: Sequence[int], *, force: bool
) -> tuple[list[Path], tuple[str, ...]]:
    """Write PREFIX.RANK.et of the ranks (none given: all) and PREFIX.groups.json; the paths, and what to warn about."""
    tied = tied_gradient_bytes(step.model, step.plan)
    paths = write_set(step.workload, step.plan, prefix, ranks, force=force, tied_bytes=tied)
    return paths, _warnings(step, asked, "chakra")


def _warnings(step: Step, asked: Asked, form: str) -> tuple[str, ...]:
    """What to warn about in a form: lists and traces say what rows cannot, and not every option matters in each."""
    said = unsaid(step.model, step.plan) if form in ("csv", "chakra") else ()
    told = [warning for warning in step.warnings if warning not in said] + _memory(step)[1]
    elsewhere = {under for under in BESIDE.values() if under[0] == "-" and form not in re.findall(r"\w+", under)}
    for under in sorted(elsewhere):
        if names := [f"--{name}" for name in sorted(asked.given) if BESIDE.get(name) == under]:
            told.append(f"without effect but under {under}: {', '.join(names)}")
    return tuple(told)


def _text(step: Step, asked: Asked, form: str) -> str:
    if form == "spec":
        return specification(asked)
    if form == "text":
        return text.write(step.workload)
    whole = pipeline_workload(step.model, step.plan, step.durations)
    tied = tied_gradient_bytes(step.model, step.plan)
    listed = listed_step(whole, step.plan, step.stage, tied_bytes=tied)
    return csv_text(listed * asked.options.epoch_num)


def _memory(step: Step) -> tuple[Document, list[str]]:
    """Memory per stage against the accelerator's, with a warning where it does not fit."""
    device = accelerator(step.gpu)
    stages, warnings = [], []
    for stage in range(step.plan.pp):
        memory = stage_memory(step.model, step.plan, stage)
        parts = {f"{name.removesuffix('s')}_bytes": size for name, size in memory._asdict().items()}
        stages.append({"stage": stage, **parts, "total_bytes": memory.total})
        if memory.total > device.memory_bytes:
            told = room(memory.total, device.memory_bytes)
            warnings.append(f"stage {stage} on {device.name}: {told}; what would fit: simcore predict --oom")
    if warnings[1:]:
        warnings = [f"{warnings[0]} ({len(warnings) - 1} more stages do not fit)"]
    return {"device": device.name, "device_bytes": device.memory_bytes, "stages": stages}, warnings


# --- what is in any workload


_LARGEST_RANK = 1 << 31


def read_contents(path: str) -> Contents:
    """The contents of a file, a folder of traces, the prefix of a set or a shipped workload; InputError if it is none.

    Groups of traces are read from PREFIX.groups.json where that exists, and from the traces themselves.
    """
    place = Path(path)
    if not place.is_file() and not files_of_set(place):
        place = library.resolve(path, "workloads")
        if not place.is_file():
            raise InputError.at(path, "there is no workload", expected="a text, a specification or traces", found=path)
    if place.suffix in (".yaml", ".yml"):
        return replace(contents_of_step(load_step(place)), name=place.stem)
    if place.is_file() and not place.name.endswith(SUFFIXES):
        return replace(of_workload(text.read(place)), name=place.stem)
    return _read_traces(path)


def _read_traces(path: str) -> Contents:
    place = Path(path)
    traces, number_of_rank = distinct_ranks(path)
    everybody = tuple(number_of_rank) if len(number_of_rank) > 1 else ()  # one file says nothing of the others
    graphs, groups = grouped(traces, _LARGEST_RANK, of_set(path, _LARGEST_RANK), everybody)
    numbers = list(number_of_rank.values())
    counted = [(numbers.count(number), graph) for number, graph in enumerate(graphs)]
    return of_graphs(place.name, counted, groups, len(number_of_rank))
