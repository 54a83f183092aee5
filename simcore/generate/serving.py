"""One inference step in the form asked for."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simcore.compute.accelerators import accelerator
from simcore.errors import InputError
from simcore.generate.aicb.operations import csv_text
from simcore.generate.build import number_format
from simcore.generate.durations import chosen_gpu
from simcore.generate.inference import Request, durations_of, held_bytes, inference_pipeline, inference_workload
from simcore.generate.listing import listed_step
from simcore.generate.made import Document, Made, row_document
from simcore.generate.step import Step, contents_of_step
from simcore.generate.traces import write_set
from simcore.model.presets import model as named_model
from simcore.workload.headers import write_header
from simcore.workload.text import write


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
    if comp_filepath:
        raise InputError.at("--comp_filepath", "a time file is read under --compat only", found=comp_filepath)
    request, step = _served(model, config, gpu_type, values, pp_rank)
    held, device = held_bytes(step.model, request, pp_rank), accelerator(step.gpu)
    lacking, warnings = sum(held.values()) - device.memory_bytes, [*step.warnings]
    if lacking > 0:
        warnings.append(f"stage {pp_rank} on {device.name}: does not fit: {lacking / 1e9:.1f} GB too much")
    document: Document = {
        "deviations": [],
        "header": write_header(step.workload),
        "memory": held | {"device": device.name, "device_bytes": device.memory_bytes},
        "rows": [row_document(layer) for layer in step.workload.layers],
        "warnings": warnings,
    }
    if form == "csv":
        text = csv_text(listed_step(inference_pipeline(step.model, request, device), request.plan, pp_rank))
    else:
        text = write(step.workload)
    return Made(text, document, tuple(warnings), contents=partial(contents_of_step, step))


_NAMES = {
    "tensor_model_parallel_size": "tp",
    "expert_model_parallel_size": "ep",
    "pipeline_model_parallel": "pp",
    "seq_length": "context",
    "micro_batch": "batch",
}
"""AICB's names of what is served."""


def _served(
    model: str, config: str | None, gpu_type: str | None, values: dict[str, Any], stage: int | None = None
) -> tuple[Request, Step]:
    """What is served, and one of its stages, or all."""
    chosen = replace(named_model(config or model), mtp_layers=0)  # what predicts further tokens serves training
    values["dtype"] = number_format(values.get("dtype") or "bf16")
    request = Request(**{_NAMES.get(name, name): value for name, value in values.items()})
    gpu, warnings = chosen_gpu(gpu_type)
    device = accelerator(gpu)
    device.peak(request.dtype)  # refused where the accelerator has none
    if stage is None:
        workload = inference_pipeline(chosen, request, device)
    elif stage < request.pp:
        workload = inference_workload(chosen, request, device, stage)
    else:
        raise InputError.at("--pp_rank", "there is no such stage", expected=f"0 to {request.pp - 1}", found=str(stage))
    durations = durations_of(chosen, request, device)
    return request, Step(chosen, request.plan, stage or 0, workload, durations, gpu, tuple(warnings))


def inference_traces(
    model: str, config: str | None, prefix: Path, ranks: Sequence[int], force: bool, gpu_type: str | None, **values: Any
) -> tuple[list[Path], tuple[str, ...]]:
    """Write the traces of an inference step; as `write_traces`, values as those of `inference_step`."""
    _, step = _served(model, config, gpu_type, values)
    return write_set(step.workload, step.plan, prefix, ranks, force=force), step.warnings
