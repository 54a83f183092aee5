"""One training step in the form asked for: AICB's own file, or the corrected workload with what makes it different."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.errors import InputError
from simcore.generate.aicb.operations import Operation, csv_text
from simcore.generate.aicb.options import Options
from simcore.generate.build import Extra, aicb_options, model_of, plan_of
from simcore.generate.models import Transformer, total_parameters
from simcore.generate.plan import Plan
from simcore.workload.model import Layer, PhaseName, Workload

__all__ = [
    "Document",
    "Made",
    "Step",
    "aicb_inference_step",
    "aicb_step",
    "corrected_step",
    "inference_step",
    "inference_traces",
    "make_step",
    "row_document",
    "write_traces",
]

if TYPE_CHECKING:
    from simcore.compute.accelerators import Accelerator
    from simcore.generate.aicb.inference import InferenceOptions
    from simcore.generate.aicb.rows import TextFile
    from simcore.generate.durations import Durations
    from simcore.generate.inference import Request
    from simcore.workload.contents import Contents

DEFAULT_GPU = "A100"

ONLY_AICB = (
    *("epoch_num", "computation_enable", "workload_only", "moe_grouped_gemm", "amp_enabled", "contiguous_gradients"),
    *("reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size", "max_live_parameters"),
    *("param_persistence_threshold", "model_persistence_threshold"),
)
"""Options that shape AICB's own files and not the corrected workload."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Made:
    """A workload as text, the document that `--json` prints, what to warn about, and its times as AICB's file.

    `contents` summarises it; operation lists of AICB have none.
    """

    text: str
    document: Document
    warnings: tuple[str, ...] = ()
    profile: str = ""
    contents: Callable[[], Contents] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A model under a plan: the stage asked for as a workload, or all of them when none was asked for."""

    model: Transformer
    plan: Plan
    stage: int
    workload: Workload
    durations: Durations
    gpu: str
    warnings: tuple[str, ...]


def aicb_step(options: Options, form: str) -> Made:
    """AICB's file; InputError where AICB refuses, crashes or has no such file."""
    if form == "text" and options.frame != "DeepSpeed":
        from simcore.generate.aicb.training import training_text

        return _written(training_text(options))
    if form != "csv":
        offered = "csv" if options.frame == "DeepSpeed" else "text or csv"
        raise InputError.at("--format", f"AICB has no {form} of {options.frame}", expected=offered, found=form)
    return _listed(_aicb_operations(options))


def aicb_inference_step(options: InferenceOptions) -> Made:
    """AICB's file of an inference step; InputError where AICB refuses."""
    from simcore.generate.aicb.inference import inference_text

    return _written(inference_text(options))


def _written(file: TextFile) -> Made:
    def contents() -> Contents:
        from simcore.workload.contents import of_workload
        from simcore.workload.text import parse

        return replace(of_workload(parse(str(file), "made")), name="AICB's file")

    rows = [row.split("\t") for row in file.rows()]
    return Made(str(file), {"header": file.header, "rows": rows, "deviations": []}, contents=contents)


def inference_step(
    model: str,
    config: str | None,
    form: str = "text",
    *,
    comp_filepath: str | None,
    gpu_type: str | None,
    pp_rank: int,
    **values: Any,
) -> Made:
    """The corrected inference step of a shipped or read model; the names of `values` are AICB's."""
    from simcore.generate.inference import held_bytes, inference_pipeline, inference_workload
    from simcore.generate.listing import listed_step
    from simcore.workload.text import write

    if comp_filepath:
        raise InputError.at("--comp_filepath", "a time file is read under --compat only", found=comp_filepath)
    chosen, request, device, warnings = _inference(model, config, gpu_type, values)
    if pp_rank >= request.pp:
        raise InputError.at(
            "--pp_rank", "there is no such stage", expected=f"0 to {request.pp - 1}", found=str(pp_rank)
        )
    workload = inference_workload(chosen, request, device, pp_rank)
    held = held_bytes(chosen, request, pp_rank)
    lacking = sum(held.values()) - device.memory_bytes
    if lacking > 0:
        warnings.append(f"stage {pp_rank} on {device.name}: does not fit: {lacking / 1e9:.1f} GB too much")
    document: Document = {
        "deviations": [],
        "header": _header(workload),
        "memory": held | {"device": device.name, "device_bytes": device.memory_bytes},
        "rows": [row_document(layer) for layer in workload.layers],
        "warnings": warnings,
    }

    def contents() -> Contents:
        from simcore.generate.contents import with_work
        from simcore.generate.inference import durations_of
        from simcore.workload.contents import of_workload

        durations = durations_of(chosen, request, device)
        return with_work(of_workload(workload), durations, durations)

    if form == "csv":
        whole = inference_pipeline(chosen, request, device)
        text = csv_text(listed_step(whole, request.plan, pp_rank))
    else:
        text = write(workload)
    return Made(text, document, tuple(warnings), contents=contents)


def _inference(
    model: str, config: str | None, gpu_type: str | None, values: dict[str, Any]
) -> tuple[Transformer, Request, Accelerator, list[str]]:
    """What is served, how and on what, and what to warn about."""
    from simcore.compute.accelerators import accelerator
    from simcore.generate.inference import Request
    from simcore.generate.presets import model as named_model

    names = {"tensor_model_parallel_size": "tp", "expert_model_parallel_size": "ep", "pipeline_model_parallel": "pp"}
    names |= {"seq_length": "context", "micro_batch": "batch"}
    request = Request(**{names.get(name, name): value for name, value in values.items()})
    warnings = [] if gpu_type else [f"no --gpu_type: computation times are those of an {DEFAULT_GPU}"]
    return named_model(config or model), request, accelerator(gpu_type or DEFAULT_GPU), warnings


def _aicb_operations(options: Options) -> list[Operation]:
    if options.frame == "DeepSpeed":
        from simcore.generate.aicb.deepspeed import deepspeed_operations

        return deepspeed_operations(options)
    from simcore.generate.aicb.megatron import megatron_operations

    return megatron_operations(options)


def _listed(operations: list[Operation]) -> Made:
    text = csv_text(operations)
    header, *rows = text.splitlines()
    return Made(text, {"header": header, "rows": [row.split(",") for row in rows], "deviations": []})


def make_step(options: Options, extra: Extra, given: Set[str], size: str | None) -> Step:
    """Build the corrected step; times come from `comp_filepath`, otherwise from the accelerator `gpu_type`."""
    from simcore.generate.durations import measured, roofline
    from simcore.generate.plan import check
    from simcore.generate.training import pipeline_workload, stage_workload

    model = model_of(options, extra, given, size)
    plan = plan_of(options, extra, model)
    check(model, plan)
    stage = max(options.pp_rank, 0)
    if stage >= plan.pp:
        raise InputError.at("--pp_rank", "there is no such stage", expected=f"0 to {plan.pp - 1}", found=str(stage))
    gpu, warnings = _gpu(options, computed=bool(extra.rescale_from) or not options.comp_filepath)
    if extra.rescale_from:
        durations: Durations = _rescaled(options, extra.rescale_from, model, plan, gpu)
    elif options.comp_filepath:
        durations = measured(options.comp_filepath)
        warnings.append("times are those of the file, whatever shape and GPU they were measured on")
    else:
        from simcore.compute.accelerators import accelerator

        durations = roofline(model, plan, accelerator(gpu))
    asked = "pp_rank" in given
    workload = stage_workload(model, plan, durations, stage) if asked else pipeline_workload(model, plan, durations)
    return Step(model, plan, stage, workload, durations, gpu, (*warnings, *workload.warnings))


def _rescaled(options: Options, origin: str, model: Transformer, plan: Plan, gpu: str) -> Durations:
    """Times of `comp_filepath`, which were measured where the specification `origin` says, for this shape and GPU."""
    from simcore.compute.accelerators import accelerator
    from simcore.generate.durations import measured, rescaled, roofline
    from simcore.generate.spec import load_step

    if not options.comp_filepath:
        raise InputError.at("--rescale_from", "there are no times to rescale", expected="--comp_filepath", found="none")
    source = load_step(origin)
    there = roofline(source.model, source.plan, accelerator(source.gpu))
    here = roofline(model, plan, accelerator(gpu))
    return rescaled(measured(options.comp_filepath), there, _held_elements(source), here)


def _gpu(options: Options, *, computed: bool) -> tuple[str, list[str]]:
    """The accelerator that computes; the text 'None' of AICB's scripts is none."""
    if options.gpu_type and options.gpu_type != "None":
        return options.gpu_type, []
    told = f"no --gpu_type: computation times are those of an {DEFAULT_GPU}"
    return DEFAULT_GPU, [told] if computed else []


def corrected_step(options: Options, extra: Extra, given: Set[str], size: str | None, form: str) -> Made:
    """The corrected workload as text, operation list or specification."""
    from simcore.generate.deviations import deviations
    from simcore.generate.training import stage_workload

    if extra.schedule and form != "csv":
        message = "rows are in no order of micro-batches; the schedule is an option of simcore run"
        raise InputError.at("--schedule", message, expected="--format csv or chakra", found=form)
    step = make_step(options, extra, given, size)
    text = _text(step, options, extra, given, size, form)
    one = stage_workload(step.model, step.plan, step.durations, step.stage)
    found = [deviation.to_dict() for deviation in deviations(aicb_options(options, step.model), one.layers)]
    memory, warnings = _memory(step, options)
    told = _of_lists(step) if form == "csv" else step.warnings
    ignored = sorted(given & set(ONLY_AICB))
    if ignored:
        warnings.append(f"without effect but under --compat: {', '.join(f'--{name}' for name in ignored)}")
    document: Document = {
        "deviations": found,
        "header": _header(step.workload),
        "memory": memory,
        "model": {
            "name": step.model.name,
            "parameters": total_parameters(step.model),
            "active_parameters": total_parameters(step.model, active=True),
        },
        "rows": [row_document(layer) for layer in step.workload.layers],
        "stage": step.stage,
        "warnings": [*told, *warnings],
    }

    def contents() -> Contents:
        from simcore.generate.contents import contents_of_step

        return contents_of_step(step)

    return Made(text, document, (*told, *warnings), _profile(step), contents)


def _profile(step: Step) -> str:
    from simcore.generate.durations import profile

    plan = step.plan
    shape = f"sequence {plan.seq}, micro-batch {plan.micro_batch}, tp {plan.tp}, {plan.dtype}"
    about = f"simcore: {step.model.name} on {step.gpu}, {shape}"
    return profile(step.durations, _held_elements(step), about)


def _held_elements(step: Step) -> int:
    """Parameters of a rank of the step's stage, whose optimizer step a time file has."""
    from simcore.generate.training import held_parameters

    held = held_parameters(step.model, step.plan, step.stage)
    return held.dense + held.experts


def write_traces(
    options: Options, extra: Extra, given: Set[str], size: str | None, prefix: Path, ranks: Sequence[int], force: bool
) -> tuple[list[Path], tuple[str, ...]]:
    """Write PREFIX.RANK.et of the ranks (none given: all) and PREFIX.groups.json; the paths, and what to warn about."""
    from simcore.generate.listing import listed_step
    from simcore.generate.traces import check_set, write_set
    from simcore.generate.training import tied_gradient_bytes
    from simcore.workload.loops.pipeline import pipeline_of

    plan = plan_of(options, extra, model_of(options, extra, given, size))
    check_set(prefix, plan, ranks, force=force)
    step = make_step(options, extra, given - {"pp_rank"}, size)
    pipeline, tied = pipeline_of(step.workload, extra.schedule or ""), tied_gradient_bytes(step.model, plan)

    def listed(stage: int) -> list[Operation]:
        return listed_step(step.workload, plan, stage, tied_bytes=tied, pipeline=pipeline)

    return write_set(prefix, plan, ranks, listed), _of_lists(step)


def inference_traces(
    model: str, config: str | None, prefix: Path, ranks: Sequence[int], force: bool, gpu_type: str | None, **values: Any
) -> tuple[list[Path], tuple[str, ...]]:
    """Write the traces of an inference step; as `write_traces`, values as those of `inference_step`."""
    from simcore.generate.inference import inference_pipeline
    from simcore.generate.listing import listed_step
    from simcore.generate.traces import check_set, write_set

    chosen, request, device, warnings = _inference(model, config, gpu_type, values)
    workload = inference_pipeline(chosen, request, device)
    check_set(prefix, request.plan, ranks, force=force)
    paths = write_set(prefix, request.plan, ranks, lambda stage: listed_step(workload, request.plan, stage))
    return paths, tuple(warnings)


def _of_lists(step: Step) -> tuple[str, ...]:
    """What to warn about in operation lists, which say what rows cannot."""
    from simcore.generate.training import tied_warning

    said = tied_warning(step.model, step.plan)
    return tuple(warning for warning in step.warnings if warning != said)


def _text(step: Step, options: Options, extra: Extra, given: Set[str], size: str | None, form: str) -> str:
    if form == "csv":
        from simcore.generate.listing import listed_step
        from simcore.generate.training import pipeline_workload, tied_gradient_bytes

        whole = pipeline_workload(step.model, step.plan, step.durations)
        tied = tied_gradient_bytes(step.model, step.plan)
        return csv_text(listed_step(whole, step.plan, step.stage, extra.schedule or "", tied_bytes=tied))
    if form == "spec":
        from simcore.generate.spec import write

        return write(options, extra, given, size)
    from simcore.workload.text import write as write_text

    return write_text(step.workload)


def _header(workload: Workload) -> str:
    from simcore.workload.headers import write_header

    return write_header(workload)


def _memory(step: Step, options: Options) -> tuple[Document, list[str]]:
    """Memory per stage against the accelerator's, with a warning where it does not fit."""
    from simcore.compute.accelerators import accelerator
    from simcore.generate.memory import advice, stage_memory

    device = accelerator(step.gpu)
    stages, warnings = [], []
    for stage in range(step.plan.pp):
        memory = stage_memory(step.model, step.plan, stage, flash=options.use_flash_attn or step.model.norm == "rms")
        stages.append(
            {
                "stage": stage,
                "parameter_bytes": memory.parameters,
                "gradient_bytes": memory.gradients,
                "optimizer_bytes": memory.optimizer,
                "activation_bytes": memory.activations,
                "total_bytes": memory.total,
            }
        )
        told = advice(memory, step.plan, device.memory_bytes)
        if told:
            warnings.append(f"stage {stage} on {device.name}: {told}")
    if warnings[1:]:
        warnings = [f"{warnings[0]} ({len(warnings) - 1} more stages do not fit)"]
    return {"device": device.name, "device_bytes": device.memory_bytes, "stages": stages}, warnings


def row_document(layer: Layer) -> Document:
    """One row as data."""
    row: Document = {"name": layer.name, "update_ns": layer.update_ns}
    for name in PhaseName:
        phase = layer.phase(name)
        row[str(name)] = {
            "bytes": phase.size_bytes,
            "collective": None if phase.collective is None else str(phase.collective),
            "compute_ns": phase.compute_ns,
            "group": str(phase.group),
        }
    return row
