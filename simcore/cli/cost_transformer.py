"""`simcore cost transformer`: arithmetic and traffic of a run on a grid of clusters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from simcore.cli.cost_options import built, executed_on, operated, print_result, require
from simcore.cost.closed import describe, operation, transformer
from simcore.cost.closed.batches import transformer_batch
from simcore.cost.closed.executed import Executed
from simcore.cost.utilised import Utilised, utilised
from simcore.cost.words import cluster_of
from simcore.errors import InputError

PARTS = (transformer.Model, transformer.Training, transformer.Grid)


def command(**values: Any) -> None:
    """FLOP, Tx and Rx of a GPT-like run on a grid of clusters (training-run-cost's transformer.py)."""
    require(values, "layers", "d_model", "dataset_tokens")
    model = _model(values)
    grid, training = built(transformer.Grid, values), built(transformer.Training, values)
    run = transformer.evaluate(model, grid, training, efficient=not values["skip_efficiency_check"])
    rate, forward_only = values["cluster_flop_rate"], values["fwd_only"]
    rates = describe.rates(run, rate, values["net_precision_bytes"], forward_only=forward_only) if rate else None
    document = describe.transformer_document(run, model.experts, training, rates)
    lines = describe.transformer_lines(run, model.experts, training, grid, rates, forward_only=forward_only)
    executed = _executed(values, model, grid, training, run)
    what = f"{run.parameters:.3g} parameters on {run.tokens:.3g} tokens"
    what, whole = (f"Running {what}", "fwd") if forward_only else (f"Training {what}", "total")
    flop = describe.columns(run.total)[whole]["FLOP"]
    answer = f"{what} takes {flop:.3g} FLOP; --cluster_flop_rate or --cluster says how long."
    if rates:
        answer = f"{what} takes {describe.duration(rates['runtime_s'])}{_speed(run, rates['runtime_s'])}."
    if values["cluster"] is not None:
        found = _predicted(values, model, grid, training, run)
        document["predicted"] = asdict(found)
        took = f"{describe.duration(found.runtime_s)}{_speed(run, found.runtime_s)}"
        answer = f"{what} takes {took}, {found.utilisation:.1%} of the peak (MFU)."
    print_result(answer, document, lines, _operated(values, run, rates), executed)


def _speed(run: transformer.RunCost, runtime_s: float) -> str:
    return f" on {run.clusters:,} clusters: {run.tokens / runtime_s / run.clusters:,.0f} tokens/s on each"


def _model(values: dict[str, Any]) -> transformer.Model:
    d_model, d_head = values["d_model"], values["d_head"]
    d_ffn = _width(values, "d_ffn", "d_ffn_ratio", 1, 4 * d_model)
    if d_model % d_head and values["num_heads"] is None and values["total_attn_width_ratio"] is None:
        message = f"d_model = {d_model} does not divide by d_head = {d_head}"
        raise InputError.at("--d_head", message, expected="a divisor of d_model, or --num_heads")
    return built(
        transformer.Model,
        values,
        d_ffn=d_ffn,
        heads=_width(values, "num_heads", "total_attn_width_ratio", d_head, d_model // d_head),
        multi_query=not values["no_multi_query_attn"],
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


def _predicted(
    values: dict[str, Any],
    model: transformer.Model,
    grid: transformer.Grid,
    training: transformer.Training,
    run: transformer.RunCost,
) -> Utilised:
    """The run at the utilisation that kernels, collectives and bubbles leave."""
    if values["fwd_only"]:
        raise InputError.at("--fwd_only", "what --cluster predicts is a training step", expected="one of the two")

    return utilised(model, grid, training, run, cluster_of(values["cluster"]), values["microbatch_size"])


def _executed(
    values: dict[str, Any],
    model: transformer.Model,
    grid: transformer.Grid,
    training: transformer.Training,
    run: transformer.RunCost,
) -> Executed | None:
    if values["topology"] is None:
        if values["microbatch_size"] is not None and values["cluster"] is None:
            message = "only --topology and --cluster run micro-batches"
            raise InputError.at("--microbatch_size", message, expected="one of them, too")
        return None
    if values["cluster_flop_rate"] is None:
        raise InputError.at("--cluster_flop_rate", "--topology needs the rate of a cluster")

    batch = transformer_batch(
        model,
        grid,
        training,
        run,
        flop_per_s=values["cluster_flop_rate"],
        element_bytes=values["net_precision_bytes"],
        microbatch_size=values["microbatch_size"],
        forward_only=values["fwd_only"],
    )
    return executed_on(values["topology"], batch)


def _operated(
    values: dict[str, Any], run: transformer.RunCost, rates: describe.Rates | None
) -> operation.OperationCost | None:
    asked = operated(values, run.clusters * values["chips_per_cluster"])
    if asked is None:
        return None
    if rates is None:
        raise InputError.at("--cluster_flop_rate", "time, energy and money need the rate of a cluster")
    return operation.evaluate(asked, rates["runtime_s"], rates["net"] * rates["runtime_s"])
