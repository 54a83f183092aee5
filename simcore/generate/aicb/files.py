"""AICB's files of a step, training or inference, in the forms that AICB has."""

from __future__ import annotations

from dataclasses import replace

from simcore.errors import InputError
from simcore.generate.aicb.deepspeed import deepspeed_operations
from simcore.generate.aicb.inference import InferenceOptions, inference_text
from simcore.generate.aicb.megatron import megatron_operations
from simcore.generate.aicb.operations import csv_text
from simcore.generate.aicb.options import Options
from simcore.generate.aicb.rows import TextFile
from simcore.generate.aicb.training import training_text
from simcore.generate.made import Made
from simcore.workload.contents import Contents, of_workload
from simcore.workload.text import parse

SUFFIXES = {"text": ".txt", "csv": ".csv", "spec": ".yaml", "chakra": ""}


def aicb_step(options: Options, form: str) -> Made:
    """AICB's file; InputError where AICB refuses, crashes or has no such file."""
    deepspeed = options.frame == "DeepSpeed"
    if form == "text" and not deepspeed:
        return _written(training_text(options))
    if form != "csv":
        offered = "csv" if deepspeed else "text or csv"
        raise InputError.at("--format", f"AICB has no {form} of {options.frame}", expected=offered, found=form)
    text = csv_text(deepspeed_operations(options) if deepspeed else megatron_operations(options))
    header, *rows = text.splitlines()
    return Made(text, {"header": header, "rows": [row.split(",") for row in rows], "deviations": []})


def file_name(options: Options, form: str) -> str:
    """What AICB calls the file of such options, as far as it has such a file; others end as their form says."""
    if form == "csv" or options.frame == "DeepSpeed":
        frame = f"deepspeed_stage{options.stage}" if options.frame == "DeepSpeed" else "megatron"
        said = f"sp_{options.enable_sequence_parallel}_iteration_{options.epoch_num}"
        listed = f"{said}_computationEnable_{options.computes}_{options.world_size}n"
        stem = f"{frame}_{options.model_name}_{listed}_workload"
    else:
        degrees = f"tp{options.tp}-pp{options.pipeline_model_parallel}-ep{options.expert_model_parallel_size}"
        batch = f"gbs{options.global_batch}-mbs{options.micro_batch}-seq{options.seq_length}"
        kernels = f"GEMM-{options.moe_grouped_gemm}-flash_attn-{options.use_flash_attn}"
        world = f"world_size{options.world_size}-{degrees}-{batch}"
        stem = f"{options.gpu_type}-{options.model_name}-{world}-MOE-{options.moe_enable}-{kernels}"
    return stem + SUFFIXES[form]


def inference_file_name(options: InferenceOptions, model: str, form: str) -> str:
    """What AICB calls the file of an inference step of a `model` of this name."""
    degrees = f"tp{options.tensor_model_parallel_size}-pp{options.pipeline_model_parallel}"
    world = f"world_size{options.world_size}-{degrees}-ep{options.expert_model_parallel_size}"
    sizes = f"bs{options.micro_batch}-seq{options.seq_length}"
    return f"{model}-{world}-{sizes}-{options.phase}{SUFFIXES[form]}"


def aicb_inference_step(options: InferenceOptions) -> Made:
    """AICB's file of an inference step; InputError where AICB refuses."""
    return _written(inference_text(options))


def _written(file: TextFile) -> Made:
    def contents() -> Contents:
        return replace(of_workload(parse(str(file), "made")), name="AICB's file")

    rows = [row.split("\t") for row in file.rows()]
    return Made(str(file), {"header": file.header, "rows": rows, "deviations": []}, contents=contents)
