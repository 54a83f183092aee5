"""`simcore cost transformer|simple`: a whole training run in closed form, what operating it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from simcore.api import load_topology
from simcore.cli.command import emit
from simcore.compute.accelerators import accelerator
from simcore.compute.kernel import Product
from simcore.compute.power import node_w, watts
from simcore.cost.closed import describe, operation, simple, transformer
from simcore.cost.closed.executed import Executed, execute, simple_batch, transformer_batch, utilised
from simcore.cost.closed.transformer import Grid, Model, RunCost, Training
from simcore.cost.words import cluster_of
from simcore.errors import InputError, wrong
from simcore.options import factor

Made = TypeVar("Made")


def built(shape: type[Made], values: Mapping[str, Any], **more: Any) -> Made:
    """The dataclass whose fields options set, and `more`."""
    named = (field.name for field in fields(shape))  # type: ignore[arg-type]
    return shape(**{name: values[name] for name in named if values.get(name) is not None} | more)


def operated(values: dict[str, Any], chips: int) -> operation.Operation | None:
    """What was asked about operating the run, None when nothing was."""
    asked, hours = ("wide_area_bytes_per_s", "chip_watts", "price_per_chip_hour", "mtbf_hours"), values["mtbf_hours"]
    if all(values[name] is None for name in asked):
        return None
    mtbf_s = None if hours is None else hours * operation.HOUR_S
    told = {"chip_watts": _watts(values["chip_watts"]), "mean_time_between_failures_s": mtbf_s}
    return built(operation.Operation, values, chips=chips, **told)


def _watts(text: str | None) -> float | None:
    """Watts as stated, or those of an accelerator at work with its share of a node, as measured."""
    try:
        return None if text is None else factor(text)
    except ValueError as error:
        if not str(text)[:1].isalpha():
            raise wrong("--chip_watts", "watts above 0, or an accelerator", text) from error
        device = accelerator(str(text))
    return node_w(watts(Product(1, 1, 1), device, "bf16"), device.power_w)


def print_result(
    answer: str,
    document: dict[str, Any],
    lines: Iterable[str],
    cost: operation.OperationCost | None,
    executed: Executed | None,
) -> None:
    """The answer in a sentence, then the source's lines, a batch on a topology and the cost of operating the run."""
    if executed is not None:
        document["executed"] = asdict(executed)
        lines = [*lines, *executed.lines()]
    if cost is not None:
        document["operation"] = {key: value for key, value in vars(cost).items() if value is not None}
        lines = [*lines, *describe.operation_lines(cost)]
    emit(document, "\n".join([answer, "", *lines]))


def transformer_run(**values: Any) -> None:
    """FLOP, Tx and Rx of a GPT-like run on a grid of clusters (training-run-cost's transformer.py)."""
    grid, training = built(Grid, values), built(Training, values)
    run = transformer.evaluate(_model(values), grid, training, efficient=not values["skip_efficiency_check"])
    rate = values["cluster_flop_rate"]
    rates = describe.rates(run, rate, values["net_precision_bytes"]) if rate else None
    document, lines = describe.transformer_document(run, rates), describe.transformer_lines(run, rates)
    executed = _executed(values, run)
    what = "Running" if training.forward_only else "Training"
    what += f" {run.parameters:.3g} parameters on {run.tokens:.3g} tokens"
    answer = f"{what} takes {run.done.flop:.3g} FLOP; --cluster_flop_rate or --cluster says how long."
    runtime_s = rates["runtime_s"] if rates else None
    if runtime_s is not None:
        answer = f"{what} takes {describe.duration(runtime_s)}{_speed(run, runtime_s)}."
    if values["cluster"] is not None:
        if training.forward_only:
            raise InputError.at("--fwd_only", "what --cluster predicts is a training step", expected="one of the two")
        if (chips := values["chips_per_cluster"]) > 1:
            message = "with --cluster every cluster of the grid is one accelerator"
            raise InputError.at("--chips_per_cluster", message, expected="1, or --cluster_flop_rate", found=str(chips))
        found = utilised(run, cluster_of(values["cluster"]), values["microbatch_size"])
        document["predicted"], runtime_s = asdict(found), found.runtime_s
        took = f"{describe.duration(runtime_s)}{_speed(run, runtime_s)}"
        answer = f"{what} takes {took}, {found.utilisation:.1%} of the peak (MFU)."
        if rates:
            answer += f" By the closed form it would be {describe.duration(rates['runtime_s'])}, as told below."
    print_result(answer, document, lines, _operated(values, run, runtime_s), executed)


def _speed(run: RunCost, runtime_s: float) -> str:
    return f" on {run.grid.clusters:,} clusters: {run.tokens / runtime_s / run.grid.clusters:,.0f} tokens/s on each"


def _model(values: dict[str, Any]) -> Model:
    d_model, d_head = values["d_model"], values["d_head"]
    d_ffn = _width(values, "d_ffn", "d_ffn_ratio", 1, 4 * d_model)
    if d_model % d_head and values["num_heads"] is None and values["total_attn_width_ratio"] is None:
        message = f"d_model = {d_model} does not divide by d_head = {d_head}"
        raise InputError.at("--d_head", message, expected="a divisor of d_model, or --num_heads")
    heads = _width(values, "num_heads", "total_attn_width_ratio", d_head, d_model // d_head)
    return built(Model, values, d_ffn=d_ffn, heads=heads, multi_query=not values["no_multi_query_attn"])


def _width(values: dict[str, Any], name: str, ratio_name: str, unit: int, default: int) -> int:
    """A width given in units or as a multiple of d_model, not both."""
    given, ratio = values[name], values[ratio_name]
    if given is not None and ratio is not None:
        message = f"--{name} and --{ratio_name} exclude each other"
        raise InputError.at(f"--{ratio_name}", message, expected="one of them")
    if ratio is None:
        return int(given or default)
    width = ratio * values["d_model"] / unit
    if width != int(width) or width < 1:
        message = f"{ratio:g} x d_model is not a whole number of {unit}"
        raise InputError.at(f"--{ratio_name}", message, found=f"{width:g}")
    return int(width)


def _executed(values: dict[str, Any], run: RunCost) -> Executed | None:
    if values["topology"] is None:
        return None
    if values["cluster_flop_rate"] is None:
        raise InputError.at("--cluster_flop_rate", "--topology needs the rate of a cluster")
    rates = {"flop_per_s": values["cluster_flop_rate"], "element_bytes": values["net_precision_bytes"]}
    batch = transformer_batch(run, **rates, microbatch_size=values["microbatch_size"])
    return execute(batch, load_topology(values["topology"]))


def _operated(values: dict[str, Any], run: RunCost, runtime_s: float | None) -> operation.OperationCost | None:
    asked = operated(values, run.grid.clusters * values["chips_per_cluster"])
    if asked is None:
        return None
    if runtime_s is None:
        message, expected = "time, energy and money need the rate of a cluster", "--cluster_flop_rate or --cluster"
        raise InputError.at("--cluster_flop_rate", message, expected=expected)
    net = describe.figures(run.done)["net"]
    return operation.OperationCost(asked, runtime_s, values["net_precision_bytes"] * net / run.grid.clusters)


def simple_run(variant: simple.Variant, **values: Any) -> None:
    """Batch and run time from matrix products, pipeline and ideal collectives (simple_transformer.py)."""
    name, hardware, utilization = _hardware(values, variant)
    setup = built(simple.Setup, values)
    run = simple.evaluate(setup, hardware, variant, utilization)
    document: dict[str, Any] = {**run.figures, "variant": variant}
    lines = describe.simple_lines(run, setup, name, hardware, variant, utilization)
    place = values["topology"]
    executed = None if place is None else execute(simple_batch(setup, run), load_topology(place))
    speed = f"{run.D / (run.run_time_days * describe.DAY_S) / run.p:,.0f} tokens/s on each"
    took = f"{describe.duration(run.run_time_days * describe.DAY_S)} on {run.p:,} {name}s"
    answer = f"The run takes {took}: {speed}, {run.util:.1%} of the peak (MFU)."
    print_result(answer, document, lines, _simple_operated(values, setup, run, hardware.chips), executed)


def _simple_operated(
    values: dict[str, Any], setup: simple.Setup, run: simple.SimpleRun, chips: int
) -> operation.OperationCost | None:
    """With a wide-area link every site holds a replica and exchanges gradients once a batch. A pod is many `chips`."""
    asked, run_s = operated(values, run.p * chips), run.run_time_days * describe.DAY_S
    if asked is None or asked.wide_area_bytes_per_s is None:
        return operation.OperationCost(asked, run_s) if asked else None
    if setup.dp == 1:
        raise InputError.at("--wan_bandwidth", "sites are replicas of the model", expected="--dp above 1", found="1")
    gradients_s = run.gradient_reduction_time * run.n_batches
    return operation.OperationCost(asked, run_s - gradients_s, simple.gradient_bytes(setup, run) * run.n_batches)


def _hardware(values: dict[str, Any], variant: simple.Variant) -> tuple[str, simple.Chip, float]:
    """Name and rates of the chip, and the share of them that can be reached."""
    bandwidth, utilization = values["network_bandwidth"], values["base_utilization"]
    later = [name for name in ("network_bandwidth", "base_utilization") if values[name] is not None]
    if variant == "readme" and later:
        raise InputError.at(f"--{later[0]}", "this option belongs to --variant head")
    name = values["chip_type"] or ("H100" if variant == "head" else "")
    if not name:
        raise InputError.at("--chip_type", "variant readme needs a chip", expected=", ".join(simple.CHIPS[variant]))
    hardware = simple.chip(name, variant)
    if bandwidth is not None:
        hardware = replace(hardware, network_bytes_per_s=bandwidth)
    return name, hardware, simple.BASE_UTILIZATION[variant] if utilization is None else utilization
