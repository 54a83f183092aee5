"""simcore predict: one training step of a model under a plan on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore.cli.command import Named, Target, emit, forced, option, pictures, verb
from simcore.cli.numbers import Finite

if TYPE_CHECKING:
    from simcore.cost.answer import Answer

__all__ = ["command"]

FORMATS = (".txt", ".et")
VIEWS = (".png", ".svg", ".pdf", ".html", ".csv", ".json")
COUNT, NONE_OR_MORE = click.IntRange(1, 1 << 30), click.IntRange(0, 1 << 20)

# Words of a plan: a number, one of some (None: see `simcore.cost.words`), or yes (bool).
WORDS: dict[str, tuple[click.ParamType[Any], str]] = {
    "tp": (COUNT, "Tensor parallel ranks."),
    "cp": (COUNT, "Context parallel ranks."),
    "ep": (COUNT, "Expert parallel ranks."),
    "expert_tp": (COUNT, "Ranks that split one expert: 1 or as many as tensor ranks."),
    "pp": (COUNT, "Pipeline stages."),
    "dp": (COUNT, "Data parallel ranks; default: what is left of the accelerators."),
    "virtual_stages": (COUNT, "Chunks of the model on each stage (interleaved schedule)."),
    "micro_batch": (COUNT, "Sequences of a micro-batch."),
    "global_batch": (COUNT, "Sequences of a step."),
    "encoder_seq": (NONE_OR_MORE, "Tokens of an encoder's input; default: --seq."),
    "zero": (click.IntRange(0, 3), "ZeRO level: 1 shares the optimizer state, 2 gradients too, 3 parameters too."),
    "shard": (NONE_OR_MORE, "Hybrid sharding: parameters are shared by so many ranks and replicated across."),
    "gradient_bytes": (click.IntRange(2, 4), "Bytes of a gradient when it is reduced."),
    "recompute_layers": (NONE_OR_MORE, "With --recompute full: how many layers of each chunk."),
    "lora_rank": (NONE_OR_MORE, "Train adapters of this rank; all weights are frozen."),
    "offload_layers": (NONE_OR_MORE, "With --offload: how many layers of each chunk."),
    "capacity": (Finite(0, 1e6), "Capacity factor of experts: tokens of each are padded to it."),
    "load": (Finite(1, 1e6), "Imbalance: tokens of the busiest expert rank over the mean."),
}
SWITCHES = {
    "sequence_parallel": "Tensor ranks share the tokens outside matrix products.",
    "overlap": "Gradients are reduced during the backward pass.",
    "overlap_pipeline": "Transfers between stages run beside kernels.",
    "scatter_pipeline": "Each tensor rank sends its part of the activations.",
    "dropout": "Layers have dropout.",
    "unfused_attention": "Attention as separate products and softmax, not one fused kernel.",
}
_MODULES = (
    "core_attn|layernorm|mla_up_proj|moe_act|mlp|moe|shared_experts|"
    "fused_attn|qkv_proj|out_proj|mlp_up|mlp_gate|mlp_act|mlp_down"
)
# Words that are one of some, as the help shows them; which there are is in `simcore.cost.words`.
SPELLED = {
    "recompute": ("none|selective|full", "What the backward pass computes again: nothing, modules, or whole layers."),
    "recompute_method": ("block|uniform", "Which layers: the first of each chunk, or groups of equal size."),
    "context": ("gather|ring|all_to_all", "How context ranks exchange keys and values."),
    "dtype": ("fp32|tf32|fp16|bf16|fp8|int8|fp4", "Number format of matrix products."),
    "attention_dtype": ("fp8", "Number format of attention; default: 16 bits."),
    "parameter_dtype": ("fp8", "Number format of weights as they are held and gathered; default: 16 bits."),
    "schedule": ("gpipe|1f1b|interleaved|zb-h1|zb-v|dualpipe", "Order of forward and backward passes in the pipeline."),
    "recompute_modules": (_MODULES, "What --recompute selective drops (repeatable)."),
    "lora_modules": (
        "linear_qkv|linear_proj|linear_fc1|linear_fc2",
        "Weights that have adapters; default: all (repeatable).",
    ),
    "frozen": (
        "embedding|linear_qkv|linear_proj|linear_fc1|linear_fc2|experts|router|norms|output_layer",
        "Weights that are not trained (repeatable).",
    ),
    "offload": ("activations|weights|optimizer", "What the host's memory keeps (repeatable)."),
}


_REPEATED = {"recompute_modules", "lora_modules", "frozen", "offload"}


def _choices(name: str) -> Collection[str]:
    from simcore.cost.words import CHOICES

    return CHOICES[name]


def _words(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a plan."""
    made = [_word(name, type=kind, help=told) for name, (kind, told) in WORDS.items()]
    made += [
        _word(name, type=Named(partial(_choices, name)), metavar=shown, help=told, multiple=name in _REPEATED)
        for name, (shown, told) in SPELLED.items()
    ]
    made += [option("--cuts", help="Layers of each chunk of the model: 7,8,8,7.")]
    made += [_word(name, is_flag=True, default=None, help=told) for name, told in SWITCHES.items()]
    for each in reversed(made):
        function = each(function)
    return function


def _word(name: str, **about: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return option(f"--{name.replace('_', '-')}", name, **about)


@verb(short_help="Predict a training step.")
@option("--model", required=True, help="A shipped model, a Hugging Face config.json, or a YAML file of fields.")
@option("--cluster", required=True, help="A known cluster, or a file: {accelerator: H100, software: megatron-core}.")
@option("--accelerators", required=True, type=COUNT, help="How many the step runs on.")
@option("--seq", required=True, type=COUNT, help="Tokens of a sequence.")
@_words
@option("--conditions", default="", help="benchmark, or production: adds what long runs lose.")
@option("--run", "runs", is_flag=True, help="Also play the same step with the native engine.")
@option(
    "-o", "--output", type=Target(lambda: FORMATS), metavar="FILE", help="Write the step: .txt, or .et of every rank."
)
@option("--memory", type=Target(lambda: VIEWS), metavar="FILE", help=f"Memory over time: {' '.join(VIEWS)}.")
@option("--oom", is_flag=True, help="If the plan does not fit: which single changes would.")
@option("--plot", type=Target(pictures), metavar="FILE", help="Picture of what the step consists of (.png .svg .pdf).")
def command(
    model: str,
    cluster: str,
    accelerators: int,
    seq: int,
    *,
    conditions: str,
    runs: bool,
    output: str | None,
    memory: str | None,
    oom: bool,
    plot: str | None,
    **words: Any,
) -> None:
    """Predict one training step: how long it takes, what it consists of, what memory it needs.

    \b
    simcore predict --model llama-3-70b --cluster h100 --accelerators 64 --tp 8 --pp 4 --global-batch 256 --seq 8192
    """
    from simcore.api import predict

    answer = predict(model, cluster, accelerators, seq, conditions=conditions, **_given(words))
    document = answer.to_dict()
    if runs:
        document["run_s"] = answer.run_s()
        if (network_s := answer.network_s()) is not None:
            document["network_run_s"] = network_s
    if output:
        _write(answer, Path(output))
    if memory:
        document |= _over_time(answer, Path(memory))
    if plot:
        from simcore.cost.picture import step_figure
        from simcore.report.plots import save

        save(step_figure(answer), Path(plot))
    if oom:
        document["would_fit"] = _would_fit(answer)
    emit(document, lambda: "\n".join(_lines(answer, document)))


def _given(words: dict[str, Any]) -> dict[str, Any]:
    """The words that were said, as fields of a plan."""
    from simcore.errors import InputError

    said = {name: value for name, value in words.items() if value is not None and value != ()}
    if said.pop("unfused_attention", False):
        said["fused_attention"] = False
    if "cuts" in said:
        numbers = said["cuts"].split(",")
        if not all(number.strip().isdecimal() for number in numbers):
            raise InputError.at("--cuts", "is no list of layers", expected="7,8,8,7", found=said["cuts"])
        said["cuts"] = tuple(map(int, numbers))
    return said


def _write(answer: Answer, output: Path) -> None:
    """The step as the engine runs it."""
    from simcore.cost.played import program, write_step
    from simcore.files import write_text
    from simcore.workload.text import write

    if output.suffix == ".et":
        write_step(answer.model, answer.plan, answer.cluster, output.with_suffix(""), force=forced())
    else:
        write_text(output, write(program(answer.model, answer.plan, answer.cluster)))


def _over_time(answer: Answer, path: Path) -> dict[str, Any]:
    """Write the curves; every stage's peak with its cause."""
    from simcore.cost.memory_views import occupancies, told, write_memory

    some = occupancies(answer)
    write_memory(answer, some, path)
    return {"memory_over_time": [told(one) for one in some]}


def _would_fit(answer: Answer) -> list[dict[str, Any]]:
    """Changes with which the plan fits; none where it does."""
    from simcore.cost.room import remedies

    if max(memory.total for memory in answer.memory) <= answer.cluster.memory_bytes:
        return []
    found = remedies(answer.model, answer.plan, answer.cluster)
    return [{"option": option, "peak_bytes": size, "step_s": step_s} for option, size, step_s in found]


def _lines(answer: Answer, document: dict[str, Any]) -> Iterator[str]:
    from simcore.model.memory import room
    from simcore.report.table import Table, columns
    from simcore.units import format_bytes

    plan, (low, high) = answer.plan, answer.interval_s
    degrees = ("tp", "cp", "ep", "pp", "dp")
    spread = ", ".join(f"{name} {getattr(plan, name)}" for name in degrees if getattr(plan, name) > 1) or "one replica"
    yield f"{answer.model.name} on {plan.world_size} x {answer.cluster.accelerator}: {spread}"
    yield f"a step takes {answer.step_s:.4g} s (nine in ten measured steps: {low:.4g} to {high:.4g} s)"
    if "run_s" in document:
        yield f"the engine runs it in {document['run_s']:.9g} s"
    if "network_run_s" in document and answer.cluster.topology:
        yield f"on the links of {answer.cluster.topology.name} it takes {document['network_run_s']:.9g} s"
    yield f"{answer.tokens_per_s:,.0f} tokens/s on each, {answer.mfu:.1%} of the peak of {plan.dtype} (MFU)"
    parts = [(name, seconds) for name, seconds in document["parts"].items() if seconds]
    rows = [(name.removesuffix("_s").replace("_", " "), took * 1e9, took / answer.step_s) for name, took in parts]
    yield Table("", columns("part", "time_ns", ("share", "of the step")), rows).text(indent=2)
    yield from _basis(document)
    capacity = answer.cluster.memory_bytes
    names = [name for name in answer.memory[0].parts if any(memory.parts[name] for memory in answer.memory)]
    kept = [
        (stage, memory.total, *(memory.parts[name] for name in names), room(memory.total, capacity).removeprefix("; "))
        for stage, memory in enumerate(answer.memory)
    ]
    sizes = [(name, name, "bytes") for name in ("memory", *names)]
    title = f"memory of each stage, of {format_bytes(capacity)}:"
    yield Table(title, columns("stage", *sizes, ("room", "")), kept).text(200)
    yield from document.get("memory_over_time", [])
    if "would_fit" in document:
        all_fit = all(memory.total <= capacity for memory in answer.memory)
        helped = "would fit, the fastest first:" if document["would_fit"] else "no one change helps"
        yield "it fits" if all_fit else helped
        fits = [(one["option"], one["peak_bytes"], one["step_s"] * 1e9) for one in document["would_fit"]]
        yield Table("", columns("option", "peak_bytes", "step_ns"), fits).text(indent=2)


def _basis(document: dict[str, Any]) -> Iterator[str]:
    from simcore.report.table import Table, columns

    """What the times rest on, the kernels that decide, and the power."""
    sources = document["sources"]
    shares = ", ".join(
        f"{sources[f'{name}_share']:.0%} {name}"
        for name in ("measured", "interpolated", "transferred", "roofline")
        if sources[f"{name}_share"] >= _SHOWN
    )
    yield f"times rest on {shares} (mean distance {sources['mean_distance'] or 0:.1f} octaves); what decides:"
    about = ("spread", "+-", ".0%"), "source", "table", ("distance", "octaves", ".1f")
    shown = ("share", "of it"), "kernel", "time_ns", *about
    rows = [{**one, "time_ns": one["seconds"] * 1e9} for one in sources["deciding"]]
    yield Table("", columns(*shown), rows).text(120, indent=2)
    if document["power"]:
        power = document["power"]
        yield (
            f"{power['board_w']:,.0f} W and {power['board_j'] / 1e3:,.1f} kJ a step on each board,"
            f" {power['tokens_per_j']:.3g} tokens/J"
        )


_SHOWN = 0.005
