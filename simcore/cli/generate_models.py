"""`simcore generate megatron|deepspeed|deepseek|inference`: workloads of language models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from simcore.errors import InputError
from simcore.generate.aicb.options import Options

__all__ = ["deepseek", "deepspeed", "inference", "megatron"]

F = TypeVar("F", bound=Callable[..., Any])

AICB = "aicb-2.1"
FRAMES = {"megatron": "Megatron", "deepspeed": "DeepSpeed", "deepseek": "DeepSeek"}

# AICB's options by what they are for; type and default are those of `Options`.
HELP = {
    "gpu_type": "Accelerator: computes the times; under --compat it names the file only.",
    "model_name": "Name of the model.",
    "world_size": "GPUs in all.",
    "tensor_model_parallel_size": "Ranks that split every matrix (TP).",
    "pipeline_model_parallel": "Pipeline stages (PP).",
    "expert_model_parallel_size": "Ranks that share the experts (EP).",
    "context_parallel_size": "Ranks that share a sequence (CP).",
    "pp_rank": "Stage whose set-up an operation list shows.",
    "global_batch": "Sequences of a step.",
    "micro_batch": "Sequences of a micro-batch.",
    "epoch_num": "Steps of an operation list.",
    "dtype": "Number format: bfloat16, float16 or float32.",
    "computation_enable": "Name matrix multiplications in operation lists.",
    "workload_only": "Operation list of stage 0 of a pipeline.",
    "hidden_size": "Width of the model.",
    "num_layers": "Transformer layers.",
    "seq_length": "Tokens of a sequence.",
    "num_attention_heads": "Attention heads; as many as layers when not given.",
    "vocab_size": "Words.",
    "max_position_embeddings": "Rows of the position table.",
    "ffn_hidden_size": "Width of the feed-forward layer.",
    "add_bias_linear": "Biases in linear layers.",
    "use_flash_attn": "Flash attention.",
    "swiglu": "Gated feed-forward layer.",
    "enable_sequence_parallel": "Split norms and residuals along the sequence (SP).",
    "use_distributed_optimizer": "Shard the optimizer over data parallel ranks.",
    "make_vocab_size_divisible_by": "Pad the vocabulary to a multiple of this times TP.",
    "recompute_activations": "Recompute attention in the backward.",
    "aiob_enable": "Computation times from --comp_filepath.",
    "comp_filepath": "AICB's file of measured kernel times.",
    "moe_enable": "Experts in place of feed-forward layers.",
    "num_experts": "Experts of a layer.",
    "moe_router_topk": "Experts of a token.",
    "moe_grouped_gemm": "One kernel for all experts of a rank.",
    "n_dense_layers": "DeepSeek: layers without experts.",
    "n_shared_expert": "DeepSeek: experts that see every token.",
    "qk_rope_dim": "DeepSeek: rotary part of a query.",
    "qk_nope_dim": "DeepSeek: other part of a query.",
    "q_lora_rank": "DeepSeek: rank of the query projection.",
    "kv_lora_rank": "DeepSeek: rank of the key-value projection.",
    "v_head_dim": "DeepSeek: width of a value.",
    "stage": "DeepSpeed: ZeRO stage, 1 to 3.",
    "amp_enabled": "DeepSpeed: mixed precision by amp.",
    "reduce_bucket_size": "DeepSpeed: elements of a gradient bucket.",
    "allgather_bucket_size": "DeepSpeed: elements of a parameter bucket.",
    "contiguous_gradients": "DeepSpeed: ZeRO-2 reduces to the owner of a gradient.",
    "param_persistence_threshold": "DeepSpeed: elements up to which a parameter stays.",
    "model_persistence_threshold": "DeepSpeed: elements that may stay in all.",
    "max_live_parameters": "DeepSpeed: elements gathered at a time.",
    "prefetch_bucket_size": "DeepSpeed: elements gathered ahead.",
}
# Options of AICB that its generators read and never use.
WITHOUT_EFFECT = (
    *("enable_visual", "overlap_grad_reduce", "overlap_version"),
    *("bias_gelu_fusion", "openai_gelu", "onnx_safe", "squared_relu"),
)


class Spelling(click.Command):
    """A command whose long options are written with underscores or hyphens, in full or as a unique beginning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, after every option got its declared spelling."""
        known = {name.replace("-", "_"): name for parameter in self.params for name in parameter.opts}
        return super().parse_args(ctx, [_spelled(word, known) for word in args])


def _spelled(word: str, known: dict[str, str]) -> str:
    """The declared form of an option; what begins none or several is left to click."""
    name, equals, value = word.partition("=")
    plain = "--" + name[2:].replace("-", "_")
    if not name.startswith("--") or len(name) < 4:
        return word
    declared = {"--" + form[2:]: option for form, option in known.items() if form.startswith("__")}
    matches = [plain] if plain in declared else [form for form in declared if form.startswith(plain)]
    return declared[matches[0]] + equals + value if len(matches) == 1 else word


def _value_options(function: F) -> F:
    """AICB's options, typed by `Options`; what is not given is None, so that a preset can fill it."""
    for field in reversed(fields(Options)):
        if field.name not in HELP:
            continue
        kind: Any = click.IntRange(1, 3) if field.name == "stage" else int if "int" in str(field.type) else str
        how: dict[str, Any] = {"is_flag": True} if field.type == "bool" else {"type": kind}
        shown = "" if field.default in (None, False) else f" [default: {field.default}]"
        function = click.option(f"--{field.name}", default=None, help=HELP[field.name] + shown, **how)(function)
    for name in WITHOUT_EFFECT:
        function = click.option(f"--{name}", is_flag=True, hidden=True)(function)
    return function


def _output_options(formats: tuple[str, ...]) -> Callable[[F], F]:
    """Where and how a workload is written."""

    def decorate(function: F) -> F:
        choices = [
            click.option("--compat", type=click.Choice([AICB]), help="AICB's own output, byte for byte."),
            click.option("--format", "form", type=click.Choice(formats), default="text", show_default=True),
            click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output if none."),
            click.option("--force", is_flag=True, help="Overwrite the file."),
            click.option("--json", "as_json", is_flag=True, help="Header, rows and deviations from AICB as JSON."),
        ]
        for option in reversed(choices):
            function = option(function)
        return function

    return decorate


def _emit(text: str, output: Path | None, force: bool) -> None:
    """Write the workload through a temporary name, or print it."""
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise InputError.at("--output", f"'{output}' exists", expected="a new file, or --force", found=str(output))
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(output)
    except OSError as error:
        raise InputError.at("--output", f"cannot write '{output}': {error.strerror or error}") from error


def _options(frame: str, values: dict[str, Any]) -> Options:
    """AICB's options: what is given, else the preset's, else AICB's default."""
    from simcore.generate.aicb.presets import preset

    size = values.pop("model_size")
    chosen = dict(preset(frame, size)) if size else {}
    chosen |= {name: value for name, value in values.items() if value is not None}
    return Options(frame=frame, **chosen)


def _compat_text(frame: str, options: Options, form: str) -> str:
    """AICB's file of a training step."""
    if form == "text" and frame != "DeepSpeed":
        from simcore.generate.aicb.training import training_text

        return str(training_text(options))
    if form != "csv":
        offered = "csv" if frame == "DeepSpeed" else "text or csv"
        raise InputError.at("--format", f"AICB has no {form} of {frame}", expected=offered, found=form)
    from simcore.generate.aicb.operations import csv_text

    if frame == "DeepSpeed":
        from simcore.generate.aicb.deepspeed import deepspeed_operations

        return csv_text(deepspeed_operations(options))
    from simcore.generate.aicb.megatron import megatron_operations

    return csv_text(megatron_operations(options))


def _training(name: str) -> click.Command:
    """The command of a training framework."""
    frame = FRAMES[name]

    @click.command(name, cls=Spelling)
    @click.option("-m", "--model_size", help="A model of AICB's scripts: 7, 13, 22, 175, ...; options override it.")
    @_value_options
    @_output_options(("text", "csv", "chakra", "spec"))
    def command(**values: Any) -> None:
        ignored = [option for option in WITHOUT_EFFECT if values.pop(option)]
        if ignored:
            click.echo(f"warning: without effect: {', '.join('--' + option for option in ignored)}", err=True)
        output, force, as_json, compat, form = (
            values.pop(key) for key in ("output", "force", "as_json", "compat", "form")
        )
        options = _options(frame, values)
        _emit(_compat_text(frame, options, form), output, force)

    command.help = f"One training step of {frame}."
    return command


megatron = _training("megatron")
deepspeed = _training("deepspeed")
deepseek = _training("deepseek")


@click.command(cls=Spelling)
@click.argument("model")
@click.argument("config", type=click.Path())
@click.option("--world_size", type=int, default=1, show_default=True, help=HELP["world_size"])
@click.option("--tensor_model_parallel_size", type=int, default=1, show_default=True, help="Ranks of TP.")
@click.option("--expert_model_parallel_size", type=int, default=1, show_default=True, help="Ranks of EP.")
@click.option("--pipeline_model_parallel", type=int, default=1, show_default=True, help="Pipeline stages.")
@click.option("--seq_length", type=int, default=1, show_default=True, help=HELP["seq_length"])
@click.option("--micro_batch", type=int, default=1, show_default=True, help="Sequences decoded together.")
@click.option("--phase", type=click.Choice(["prefill", "decode"]), default="decode", show_default=True)
@click.option("--comp_filepath", type=click.Path(), help=HELP["comp_filepath"])
@_output_options(("text",))
def inference(model: str, config: str, **values: Any) -> None:
    """One prefill or decode step of MODEL (DeepSeek..., Qwen3-Moe..., Qwen3-Next...) as CONFIG describes it."""
    from simcore.generate.aicb.inference import InferenceOptions, inference_text

    output, force, as_json, compat, _ = (values.pop(key) for key in ("output", "force", "as_json", "compat", "form"))
    text = inference_text(InferenceOptions(model, config, **values))
    _emit(str(text), output, force)
