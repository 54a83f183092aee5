"""`simcore generate megatron|deepspeed|deepseek|inference`: workloads of language models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simcore.cli.command import Command, Target, emit, forced, option, warn
from simcore.errors import InputError
from simcore.files import write_text
from simcore.generate.aicb.options import FRAMES, Options

if TYPE_CHECKING:
    from simcore.generate.build import Asked
    from simcore.generate.made import Made
    from simcore.workload.contents import Contents

__all__ = ["deepseek", "deepspeed", "inference", "megatron"]

F = TypeVar("F", bound=Callable[..., Any])

AICB = "aicb-2.1"
SCHEMA = "simcore.generate/1"

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
    "dtype": "Number format of products: bfloat16, float16, float32, float8 or float4.",
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
    *("enable_visual", "overlap_version"),
    *("bias_gelu_fusion", "openai_gelu", "onnx_safe", "squared_relu"),
)
VALUES_WITHOUT_EFFECT = (
    *("activation_func", "gated_linear_unit", "begin_size", "end_size", "test_comm", "iter_num"),
    "multi_all_reduce_enable",
)
ALIASES = {"pipeline_model_parallel": "pipeline_model_parallel_size"}


class Spelling(Command):
    """A command whose long options are written with underscores or hyphens, in full or as a unique beginning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, after every option got its declared spelling."""
        known = {name: str(parameter.name) for parameter in self.params for name in parameter.opts}
        return super().parse_args(ctx, [_spelled(word, known) for word in args])


def _spelled(word: str, known: dict[str, str]) -> str:
    """The declared form of an option; `known` tells which parameter each sets; what begins none or several stays."""
    name, equals, value = word.partition("=")
    if not name.startswith("--") or len(name) < 4:
        return word
    plain = "--" + name[2:].replace("-", "_")
    matches = [plain] if plain in known else [name for name in known if name.startswith(plain)]
    one = len({known[name] for name in matches}) == 1
    return matches[0] + equals + value if one else word


def _value_options(function: F) -> F:
    """AICB's options, typed by `Options`; what is not given is None, so that a preset can fill it."""
    for field in reversed(fields(Options)):
        if field.name not in HELP:
            continue
        kind: Any = click.IntRange(1, 3) if field.name == "stage" else int if "int" in str(field.type) else str
        how: dict[str, Any] = {"is_flag": True} if field.type == "bool" else {"type": kind}
        shown = "" if field.default in (None, False) else f" [default: {field.default}]"
        names = [f"--{name}" for name in (field.name, ALIASES.get(field.name)) if name]
        function = option(*names, field.name, default=None, help=HELP[field.name] + shown, **how)(function)
    for name in WITHOUT_EFFECT:
        function = option(f"--{name}", is_flag=True, hidden=True)(function)
    for name in VALUES_WITHOUT_EFFECT:
        function = option(f"--{name}", hidden=True)(function)
    return function


def _summaries() -> Collection[str]:
    from simcore.report.workload import SUMMARIES

    return SUMMARIES


def _output_options(formats: tuple[str, ...]) -> Callable[[F], F]:
    """Where and how a workload is written."""

    def decorate(function: F) -> F:
        choices = [
            option("--compat", type=click.Choice([AICB]), help="AICB's own output, byte for byte."),
            option("--format", "form", type=click.Choice(formats), default="text", show_default=True),
            option(
                "-o",
                "--output",
                type=Target(prefix=True),
                metavar="FILE",
                help="File, or DIR/ for AICB's name in it; none: standard output.",
            ),
            option("--ranks", help="With --format chakra: ranks to write, for example 0-3,7; default: all."),
            option(
                "--summary",
                type=Target(_summaries),
                metavar="FILE",
                help="Also write what is in it: .html, .png, .svg, .pdf or .json.",
            ),
        ]
        for choice in reversed(choices):
            function = choice(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class _Output:
    """Where and how a workload is written: the options of `_output_options`."""

    compat: str | None
    form: str
    output: str | None
    summary: str | None
    ranks: str | None

    @property
    def is_folder(self) -> bool:
        """Whether only the folder of the file is given."""
        return self.output is not None and (self.output.endswith("/") or Path(self.output).is_dir())

    def named(self, name: Callable[[], str]) -> _Output:
        """With a file of this name where only a folder was given."""
        if not self.is_folder:
            return self
        folder = Path(str(self.output))
        folder.mkdir(parents=True, exist_ok=True)
        made = replace(self, output=str(folder / name()))
        made.check()
        return made

    def check(self) -> None:
        """InputError for a file that cannot be written."""
        if self.output and (self.compat or self.form != "chakra"):
            Target().convert(self.output, None, None)

    @classmethod
    def taken(cls, values: dict[str, Any]) -> _Output:
        """Those of a command's values, which lose them; InputError for what does not go together or cannot be."""
        made = cls(**{field.name: values.pop(field.name) for field in fields(cls)})
        if made.ranks and (made.compat or made.form != "chakra"):
            raise InputError.at("--ranks", "only execution traces are written per rank", expected="--format chakra")
        if not made.is_folder:
            made.check()
        return made

    def finish(self, made: Made) -> None:
        """Write or print the workload; with --json the document goes to standard output."""
        self.summarise(made.contents)
        for warning in made.warnings:
            warn(warning)
        if self.output is not None:
            write_text(self.output, made.text)
        emit({"schema": SCHEMA} | made.document, "" if self.output else made.text)

    def summarise(self, contents: Callable[[], Contents] | None) -> None:
        """Write a summary where one is wanted."""
        if not self.summary:
            return
        from simcore.report.workload import write_summary

        if contents is None:
            raise InputError.at("--summary", "AICB's operation lists are not summarised", expected="--format text")
        write_summary(contents(), self.summary)

    def traces(self, write: Callable[[Path, Sequence[int]], tuple[list[Path], tuple[str, ...]]]) -> None:
        """Write execution traces under a prefix and say how many."""
        from simcore.report.selection import parse_ranks

        if self.output is None:
            raise InputError.at("--output", "execution traces are files", expected="--output PREFIX", found="none")
        paths, warnings = write(Path(self.output), tuple(parse_ranks(self.ranks)) if self.ranks else ())
        for warning in warnings:
            warn(warning)
        document = {"schema": SCHEMA, "groups": str(paths[0]), "traces": [str(path) for path in paths[1:]]}
        emit(document, f"{len(paths) - 1} traces {self.output}.RANK.et, groups in {paths[0]}")


def _options(frame: str, size: str | None, values: dict[str, Any]) -> Options:
    """AICB's options: what is given, else the preset's, else AICB's default."""
    from simcore.generate.aicb.presets import preset

    chosen: dict[str, Any] = dict(preset(frame, size)) if size else {}
    chosen |= {name: value for name, value in values.items() if value is not None}
    return Options(frame=frame, **chosen)


# Options of the corrected workload only: name -> (type, meaning).
EXTRA: dict[str, tuple[Any, str]] = {
    "model": (str, "A shipped model (gpt-175b, llama-3-405b, deepseek-v3, ...) or a Hugging Face config.json."),
    "recompute": (click.Choice(["none", "selective", "full"]), "What the backward computes again."),
    "num_query_groups": (click.IntRange(1), "Heads of keys and values (grouped queries)."),
    "mtp_num_layers": (click.IntRange(0), "Modules that predict further tokens (DeepSeek-V3's MTP)."),
    "untie_embeddings_and_output_weights": (bool, "The head has a matrix of its own."),
    "expert_tensor_parallel_size": (click.IntRange(1), "Ranks that split an expert; TP when not given."),
    "virtual_pipeline_model_parallel_size": (click.IntRange(1), "Interleaved chunks of a stage."),
    "schedule": (
        click.Choice(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"]),
        "Order of cells in csv and chakra; default: 1f1b, with virtual stages interleaved.",
    ),
    "shard_ranks": (click.IntRange(1), "ZeRO-3: ranks that share the parameters, replicated outside (HSDP)."),
    "rescale_from": (str, "Specification (YAML) of what --comp_filepath was measured on: its times are rescaled."),
    "gradient_dtype": (click.Choice(["bfloat16", "float32"]), "Number format gradients are reduced in."),
    "overlap_grad_reduce": (bool, "Reduce a layer's gradients as soon as they are complete."),
    "moe_expert_capacity_factor": (
        click.FloatRange(0, min_open=True),
        "Every expert is padded to so many times its share.",
    ),
    "moe_imbalance": (str, "Tokens per expert: identical, uniform (random), zipf:EXPONENT or a file of counts."),
    "seed": (click.IntRange(0), "Seed of random routing. [default: 0]"),
}


def _extra_options(function: F) -> F:
    """The options of `EXTRA`."""
    for name, (kind, meaning) in reversed(EXTRA.items()):
        how: dict[str, Any] = {"is_flag": True} if kind is bool else {"type": kind}
        function = option(f"--{name}", default=None, help=meaning, **how)(function)
    return function


SIZES = {"megatron": "13", "deepspeed": "13", "deepseek": "16 --enable_sequence_parallel"}
TRAINING_HELP = """One training step of {frame}.

Options have AICB's names, with underscores or hyphens, in full or as a unique beginning.

\b
simcore generate {name} --model llama-3-8b --world_size 64 --global_batch 64 --gpu_type H100 -o step.txt
simcore generate {name} -m {size} --world_size 8 --global_batch 8 --format chakra -o w
"""


def _training(name: str) -> click.Command:
    """The command of a training framework."""
    frame = FRAMES[name]

    @click.command(name, cls=Spelling)
    @option("-m", "--model_size", help="A model of AICB's scripts: 7, 13, 22, 175, ...; options override it.")
    @option("--frame", type=click.Choice([frame]), hidden=True)
    @_value_options
    @_extra_options
    @option("--profile_out", type=Target(), metavar="FILE", help="Also write the times as AICB's time file.")
    @_output_options(("text", "csv", "chakra", "spec"))
    def command(**values: Any) -> None:
        ignored = [name for name in (*WITHOUT_EFFECT, *VALUES_WITHOUT_EFFECT) if values.pop(name)]
        if ignored:
            warn(f"without effect: {', '.join('--' + name for name in ignored)}")
        values.pop("frame")
        output = _Output.taken(values)
        extra = {key: values.pop(key) for key in EXTRA}
        size, profile = (values.pop(key) for key in ("model_size", "profile_out"))
        options = _options(frame, size, values)
        output = output.named(lambda: _aicb_name(options, extra["model"], output.form))
        if output.compat:
            from simcore.generate.aicb.files import aicb_step

            _only_corrected(extra | {"profile_out": profile})
            output.finish(aicb_step(options, output.form))
            return
        from simcore.generate.build import Asked, Extra
        from simcore.generate.step import corrected_step

        given = {key for key, value in (values | extra).items() if value is not None}
        asked = Asked(options, Extra(**extra), given, size)
        if output.form == "chakra":
            _write_traces(asked, output)
            return
        made = corrected_step(asked, output.form)
        if profile is not None and made.profile:
            write_text(profile, made.profile)
        output.finish(made)

    command.help = TRAINING_HELP.format(frame=frame, name=name, size=SIZES[name])
    return command


def _aicb_name(options: Options, model: str | None, form: str) -> str:
    """AICB's name of the file; a model of ours is called by its own."""
    from simcore.generate.aicb.files import file_name

    named = Path(model).stem if model else None
    return file_name(replace(options, model_name=options.model_name or named), form)


def _write_traces(asked: Asked, output: _Output) -> None:
    """Write execution traces of the ranks of every stage."""
    from simcore.generate.step import contents_of_step, make_step, write_traces

    asked = replace(asked, given=asked.given - {"pp_rank"})
    output.summarise(lambda: contents_of_step(make_step(asked)))
    output.traces(partial(write_traces, asked, force=forced()))


def _only_corrected(extra: dict[str, Any]) -> None:
    """Refuse under --compat what AICB does not have."""
    given = [name for name, value in extra.items() if value is not None and name != "overlap_grad_reduce"]
    if given:
        raise InputError.at(
            f"--{given[0]}", f"AICB has no such option; leave it out or --compat {AICB}", found=given[0]
        )


megatron = _training("megatron")
deepspeed = _training("deepspeed")
deepseek = _training("deepseek")


@click.command(cls=Spelling)
@click.argument("model")
@click.argument("config", type=click.Path(), required=False)
@option("--world_size", type=click.IntRange(1), default=1, show_default=True, help=HELP["world_size"])
@option("--tensor_model_parallel_size", type=int, default=1, show_default=True, help="Ranks of TP.")
@option("--expert_model_parallel_size", type=int, default=1, show_default=True, help="Ranks of EP.")
@option("--pipeline_model_parallel", type=int, default=1, show_default=True, help="Pipeline stages.")
@option("--pp_rank", type=click.IntRange(0), default=0, show_default=True, help="Stage to describe.")
@option("--seq_length", type=click.IntRange(1), default=1, show_default=True, help="Tokens of a context.")
@option("--micro_batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences at once.")
@option("--phase", type=click.Choice(["prefill", "decode"]), default="decode", show_default=True)
@option("--gpu_type", help="Accelerator that computes the times. [default: A100]")
@option("--dtype", help=f"{HELP['dtype']} [default: bfloat16]")
@option("--fp8_dispatch", is_flag=True, help="Send tokens to experts in fp8 with scales.")
@option("--comp_filepath", type=click.Path(), help="With --compat: AICB's file of measured kernel times.")
@option("--aiob_enable", is_flag=True, help="With --compat: times from --comp_filepath.")
@option("--moe_enable", is_flag=True, hidden=True)
@option("--aiob_forward_loops", type=int, hidden=True)
@option("--result_dir", hidden=True)
@_output_options(("text", "csv", "chakra"))
def inference(model: str, config: str | None, **values: Any) -> None:
    """One prefill or decode step of MODEL.

    MODEL is a shipped model or, with a Hugging Face CONFIG, any name. Under --compat AICB's models: DeepSeek...,
    Qwen3-Moe..., Qwen3-Next..., and its CONFIG files.

    \b
    simcore generate inference llama-3-8b --phase prefill --seq_length 4096 -o prefill.txt
    simcore generate inference deepseek-v3 --world_size 32 --expert_model_parallel_size 32 --micro_batch 32 -o d.txt
    """
    output, profiled = _Output.taken(values), values.pop("aiob_enable")
    output = output.named(lambda: _inference_name(model, config, values, output.form))
    for name in (
        "moe_enable",
        "aiob_forward_loops",
        "result_dir",
    ):  # AICB's models have experts, its files our --output
        values.pop(name)
    if profiled and not (output.compat and values["comp_filepath"]):
        found = "--aiob_enable without a time file" if output.compat else "--aiob_enable without --compat"
        raise InputError.at("--comp_filepath", "AICB would profile on a GPU here", expected="a time file", found=found)
    if output.compat:
        _only_corrected({"dtype": values["dtype"]})
        if output.form != "text":
            raise InputError.at(
                "--format", f"AICB has no {output.form} of inference", expected="text", found=output.form
            )
        output.finish(_aicb_inference(model, config, values))
        return
    from simcore.generate.serving import inference_step, inference_traces

    made = inference_step(model, config, output.form, **values)
    if output.form != "chakra":
        output.finish(made)
        return
    output.summarise(made.contents)
    served = {name: value for name, value in values.items() if name not in ("pp_rank", "comp_filepath")}
    output.traces(partial(inference_traces, model, config, force=forced(), **served))


def _inference_name(model: str, config: str | None, values: dict[str, Any], form: str) -> str:
    """AICB's name of the file."""
    from simcore.generate.aicb.files import inference_file_name
    from simcore.generate.aicb.inference import InferenceOptions

    names = {field.name for field in fields(InferenceOptions)}
    known = {name: value for name, value in values.items() if name in names}
    return inference_file_name(InferenceOptions(model, config or "", **known), form)


def _aicb_inference(model: str, config: str | None, values: dict[str, Any]) -> Made:
    """AICB's file of an inference step."""
    from simcore.generate.aicb.files import aicb_inference_step
    from simcore.generate.aicb.inference import InferenceOptions

    if config is None:
        raise InputError.at("CONFIG", "AICB needs a configuration file", expected="a JSON file", found="none")
    names = {field.name for field in fields(InferenceOptions)}
    known = {name: value for name, value in values.items() if name in names}
    return aicb_inference_step(InferenceOptions(model, config, **known))
