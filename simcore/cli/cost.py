"""`simcore cost transformer` and `simcore cost simple`: a whole training run in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from simcore.cli.numbers import COUNT, POSITIVE, SIZE, Finite
from simcore.cost import describe, operation, simple, transformer
from simcore.errors import InputError, Location, Problem
from simcore.report.document import encode
from simcore.units import parse_bytes_per_s

if TYPE_CHECKING:
    from simcore.cost.executed import Executed

__all__ = ["command"]

Command = Callable[..., Any]
Kind = click.IntRange | click.FloatRange | click.types.StringParamType


def option(name: str, kind: Kind | None = None, default: object = None, help_text: str = "") -> Command:
    """An option of the original scripts: spelled with underscores or hyphens; without a type it is a switch."""
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    if kind is None:
        return click.option(*spellings, name, is_flag=True, help=help_text)
    shown = default is not None
    return click.option(*spellings, name, type=kind, default=default, show_default=shown, help=help_text)


def options(*decorators: Command) -> Command:
    """Several options as one decorator, in their order."""

    def decorate(function: Command) -> Command:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


operation_options = options(
    option("chip_watts", POSITIVE, None, "Power of a chip with its share of the host, for the energy."),
    option("pue", Finite(1, 100), 1.0, "Power usage effectiveness of the site."),
    option("price_per_chip_hour", POSITIVE, None, "Price of a chip for an hour, in any currency."),
    option("mtbf_hours", POSITIVE, None, "Mean time between failures of a chip; 50700 on Llama 3's H100."),
    option("checkpoint_seconds", SIZE, None, "Time to write a checkpoint; the best interval is computed."),
    option("restart_seconds", SIZE, None, "Time from a failure to work again."),
)
output = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Cost of a whole training run: arithmetic, traffic, time, energy and money, in closed form."""


@command.command("transformer")
@options(
    option("num_layers", COUNT, None, "Layers (required)."),
    option("d_model", COUNT, None, "Width of the residual stream (required)."),
    option("dataset_size", POSITIVE, None, "Tokens to train on (required)."),
    option("batch_size", COUNT, 2048, "Sequences of a batch."),
    option("seq_len", COUNT, 2048, "Tokens of a sequence."),
    option("num_experts", COUNT, 1, "Experts; a token goes to one."),
    option("d_ffn", COUNT, None, "Width of the FFN (4 x d_model)."),
    option("d_ffn_ratio", POSITIVE, None, "The same as a multiple of d_model."),
    option("d_head", COUNT, 64, "Width of a head."),
    option("num_heads", COUNT, None, "Heads (d_model / d_head)."),
    option("total_attn_width_ratio", POSITIVE, None, "Width of all heads as a multiple of d_model."),
    option("use_glu", help_text="Gated FFN: three matrices."),
    option("no_multi_query_attn", help_text="Keys and values for every head."),
    option("consecutive_attn_and_ffn", help_text="FFN after attention instead of beside it."),
    option("activation_checkpointing", help_text="Recompute the forward pass in the backward pass."),
    option("p_data", COUNT, 1, "Data parallelism."),
    option("p_pipe", COUNT, 1, "Pipeline stages."),
    option("p_exp", COUNT, 1, "Expert parallelism."),
    option("p_seq", COUNT, 1, "Sequence parallelism."),
    option("p_tensor_int", COUNT, 1, "Tensor parallelism of FFN and heads."),
    option("p_tensor_ext", COUNT, 1, "Tensor parallelism of d_model."),
    option("cluster_flop_rate", POSITIVE, None, "FLOP/s of a cluster, for rates and time."),
    option("net_precision_bytes", POSITIVE, 2.0, "Bytes of an element on the network."),
    option("skip_efficiency_check", help_text="Accept what wastes the hardware."),
    option("fwd_only", help_text="Show and time the forward pass alone."),
    option("chips_per_cluster", COUNT, 1, "Chips of a cluster, for failures, energy and money."),
    option("wan_bandwidth", click.STRING, None, "Link of a cluster to the others: GB/s or '400 Gb/s'."),
)
@operation_options
@output
def transformer_command(as_json: bool, **values: Any) -> None:
    """FLOP, Tx and Rx of a GPT-like run on a grid of clusters (transformer.py of document 004).

    \b
    simcore cost transformer --num_layers 96 --d_model 12288 --dataset_size 3e11 --batch_size 1536 --p_data 8
    simcore cost transformer --num_layers 96 --d_model 12288 --dataset_size 3e11 --cluster_flop_rate 1e15 --json
    """
    _required(values, "num_layers", "d_model", "dataset_size")
    model, grid, training = _model(values), _grid(values), _training(values)
    run = transformer.evaluate(model, grid, training, efficient=not values["skip_efficiency_check"])
    rate, forward_only = values["cluster_flop_rate"], values["fwd_only"]
    rates = describe.rates(run, rate, values["net_precision_bytes"], forward_only=forward_only) if rate else None
    operated = _operated_transformer(values, run, rates)
    document = describe.transformer_document(run, model.experts, training, rates)
    lines = describe.transformer_lines(run, model.experts, training, grid, rates, forward_only=forward_only)
    _print(document, lines, operated, as_json)


def _required(values: dict[str, Any], *names: str) -> None:
    """All missing options at once."""
    missing = [name for name in names if values[name] is None]
    if missing:
        problems = (Problem(Location(f"--{name}"), f"the option '--{name}' is missing", field=name) for name in missing)
        raise InputError(problems)


def _model(values: dict[str, Any]) -> transformer.Model:
    d_model, d_head = values["d_model"], values["d_head"]
    d_ffn = _width(values, "d_ffn", "d_ffn_ratio", 1, 4 * d_model)
    if d_model % d_head and values["num_heads"] is None and values["total_attn_width_ratio"] is None:
        message = f"d_model = {d_model} does not divide by d_head = {d_head}"
        raise InputError.at("--d_head", message, expected="a divisor of d_model, or --num_heads")
    return transformer.Model(
        layers=values["num_layers"],
        d_model=d_model,
        d_ffn=d_ffn,
        heads=_width(values, "num_heads", "total_attn_width_ratio", d_head, d_model // d_head),
        d_head=d_head,
        experts=values["num_experts"],
        glu=values["use_glu"],
        multi_query=not values["no_multi_query_attn"],
        consecutive=values["consecutive_attn_and_ffn"],
    )


def _width(values: dict[str, Any], name: str, ratio_name: str, unit: int, default: int) -> int:
    """A width given in units or as a multiple of d_model, not both."""
    given, ratio = values[name], values[ratio_name]
    if given is not None and ratio is not None:
        raise InputError.at(
            f"--{ratio_name}", f"--{name} and --{ratio_name} exclude each other", expected="one of them"
        )
    if ratio is None:
        return int(given or default)
    width = ratio * values["d_model"] / unit
    if width != int(width) or width < 1:
        message = f"{ratio:g} x d_model is not a whole number of {unit}"
        raise InputError.at(f"--{ratio_name}", message, found=f"{width:g}")
    return int(width)


def _grid(values: dict[str, Any]) -> transformer.Grid:
    axes = ("tensor_ext", "data", "tensor_int", "seq", "exp", "pipe")
    return transformer.Grid(**{axis: values[f"p_{axis}"] for axis in axes})


def _training(values: dict[str, Any]) -> transformer.Training:
    return transformer.Training(
        values["dataset_size"], values["batch_size"], values["seq_len"], values["activation_checkpointing"]
    )


def _operated_transformer(
    values: dict[str, Any], run: transformer.RunCost, rates: describe.Rates | None
) -> operation.OperationCost | None:
    asked = _operation(values, run.clusters * values["chips_per_cluster"])
    if values["wan_bandwidth"] is not None:
        asked = replace(asked or operation.Operation(run.clusters), wide_area_bytes_per_s=_bandwidth(values))
    if asked is None:
        return None
    if rates is None:
        raise InputError.at("--cluster_flop_rate", "time, energy and money need the rate of a cluster")
    return operation.evaluate(asked, rates["runtime_s"], rates["net"] * rates["runtime_s"])


def _bandwidth(values: dict[str, Any]) -> float:
    try:
        rate = parse_bytes_per_s(_number_or_text(values["wan_bandwidth"]))
    except ValueError as error:
        raise InputError.at("--wan_bandwidth", str(error), found=values["wan_bandwidth"]) from error
    if rate <= 0:
        raise InputError.at("--wan_bandwidth", "a bandwidth must be above 0", found=values["wan_bandwidth"])
    return rate


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _operation(values: dict[str, Any], chips: int) -> operation.Operation | None:
    """What was asked about operating the run, None when nothing was."""
    if values["mtbf_hours"] is None and (values["checkpoint_seconds"] or values["restart_seconds"]):
        raise InputError.at("--mtbf_hours", "checkpoints and restarts need the mean time between failures of a chip")
    if not any(values[name] for name in ("chip_watts", "price_per_chip_hour", "mtbf_hours")):
        return None
    hours = values["mtbf_hours"]
    return operation.Operation(
        chips=chips,
        chip_watts=values["chip_watts"],
        power_usage_effectiveness=values["pue"],
        price_per_chip_hour=values["price_per_chip_hour"],
        mean_time_between_failures_s=None if hours is None else hours * operation.HOUR_S,
        checkpoint_s=values["checkpoint_seconds"] or 0.0,
        restart_s=values["restart_seconds"] or 0.0,
    )


def _print(
    document: dict[str, Any], lines: Iterable[str], operated: operation.OperationCost | None, as_json: bool
) -> None:
    if operated is not None:
        document["operation"] = {key: value for key, value in asdict(operated).items() if value is not None}
        lines = [*lines, *describe.operation_lines(operated)]
    click.echo(encode(document) if as_json else "\n".join([*lines, ""]), nl=False)


@command.command("simple")
@options(
    click.option("--variant", type=click.Choice(get_args(simple.Variant)), default="readme", show_default=True),
    click.option("--chip_type", "--chip-type", "--chip", "chip_type", help="A chip of the table (head: H100)."),
    option("n_layers", COUNT, None, "Layers (required)."),
    option("d_model", COUNT, None, "Width of the residual stream (required)."),
    option("d_internal_ratio", COUNT, 5, "Width of FFN and attention as a multiple of d_model."),
    option("n_experts", COUNT, 1, "Experts, and the degree of expert parallelism."),
    option("n_routed_experts", COUNT, 1, "Experts a token goes to."),
    option("dataset_size", POSITIVE, None, "Tokens to train on (20 per parameter)."),
    option("batch_size", COUNT, 2048, "Sequences of a batch."),
    option("microbatch_size", COUNT, 1, "Sequences of a micro-batch over all replicas."),
    option("seq_len", COUNT, 2048, "Tokens of a sequence."),
    option("precision_bits", POSITIVE, 8.0, "Bits of a number."),
    option("pp", COUNT, 1, "Pipeline stages."),
    option("pipeline_interleaving", COUNT, 1, "Virtual stages of a stage."),
    option("dp", COUNT, 1, "Data parallelism."),
    option("tp", COUNT, 1, "Tensor parallelism of the internal width."),
    option("tp2", COUNT, 1, "Tensor parallelism of d_model."),
    option("network_bandwidth", POSITIVE, None, "Network of a chip, bytes/s (variant head)."),
    option("base_utilization", Finite(1e-12, 1), None, "Reachable share (head: 0.6)."),
    option("topology", click.STRING, None, "A file or a shipped name: the batch executed on it, too."),
    option("wan_bandwidth", click.STRING, None, "Link of a site, a replica of the model each: GB/s or '400 Gb/s'."),
)
@operation_options
@output
def simple_command(as_json: bool, variant: simple.Variant, **values: Any) -> None:
    """Batch and run time from matrix products, pipeline and ideal collectives (simple_transformer.py).

    \b
    simcore cost simple --n_layers 96 --d_model 12288 --pp 8 --tp 8 --dp 12
    simcore cost simple --chip A100_40GB --n_layers 96 --d_model 12288 --variant head --json
    """
    _required(values, "n_layers", "d_model")
    name, hardware, utilization = _hardware(values, variant)
    setup = _setup(values)
    run = simple.evaluate(setup, hardware, variant, utilization)
    document = {key: value for key, value in asdict(run).items() if value is not None} | {"variant": variant}
    lines = [*describe.simple_lines(run, setup, name, hardware, variant, utilization)]
    if values["topology"] is not None:
        executed = _executed(values["topology"], setup, run)
        document["executed"] = asdict(executed)
        lines += executed.lines()
    _print(document, lines, _operated_simple(values, setup, run), as_json)


def _executed(topology: str, setup: simple.Setup, run: simple.SimpleRun) -> Executed:
    from simcore.api import load_topology
    from simcore.cost.executed import execute

    return execute(setup, run, load_topology(topology))


def _operated_simple(
    values: dict[str, Any], setup: simple.Setup, run: simple.SimpleRun
) -> operation.OperationCost | None:
    """With a wide-area link every site holds a replica and exchanges the gradients of a batch."""
    asked = _operation(values, run.p)
    run_s = run.run_time_days * describe.DAY_S
    if values["wan_bandwidth"] is None:
        return operation.evaluate(asked, run_s) if asked else None
    if setup.dp == 1:
        raise InputError.at("--wan_bandwidth", "sites are replicas of the model", expected="--dp above 1", found="1")
    asked = replace(asked or operation.Operation(run.p), wide_area_bytes_per_s=_bandwidth(values))
    gradients_s = run.gradient_reduction_time * run.n_batches
    return operation.evaluate(asked, run_s - gradients_s, simple.gradient_bytes(setup, run) * run.n_batches)


def _hardware(values: dict[str, Any], variant: simple.Variant) -> tuple[str, simple.Chip, float]:
    """Name and rates of the chip, and the share of them that can be reached."""
    bandwidth, utilization = values["network_bandwidth"], values["base_utilization"]
    later = [name for name in ("network_bandwidth", "base_utilization") if values[name] is not None]
    if variant == "readme" and later:
        raise InputError.at(f"--{later[0]}", "this option belongs to --variant head")
    name = values["chip_type"] or ("H100" if variant == "head" else "")
    if not name:
        raise InputError.at("--chip_type", "variant readme needs a chip", expected=", ".join(simple.CHIPS))
    hardware = simple.chip(name, variant)
    if bandwidth is not None:
        hardware = replace(hardware, network_bytes_per_s=bandwidth)
    return name, hardware, simple.BASE_UTILIZATION[variant] if utilization is None else utilization


def _setup(values: dict[str, Any]) -> simple.Setup:
    return simple.Setup(
        layers=values["n_layers"],
        d_model=values["d_model"],
        d_internal_ratio=values["d_internal_ratio"],
        experts=values["n_experts"],
        routed=values["n_routed_experts"],
        dataset_tokens=values["dataset_size"],
        batch_size=values["batch_size"],
        microbatch_size=values["microbatch_size"],
        seq_len=values["seq_len"],
        precision_bits=values["precision_bits"],
        pp=values["pp"],
        interleaving=values["pipeline_interleaving"],
        dp=values["dp"],
        tp=values["tp"],
        tp2=values["tp2"],
    )
