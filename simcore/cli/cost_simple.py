"""`simcore cost simple`: time of a batch and of the run on a chip of the table."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from simcore.cli.cost_options import built, executed_on, operated, print_result, require
from simcore.cost.closed import describe, operation, simple
from simcore.cost.closed.batches import simple_batch
from simcore.cost.closed.executed import Executed
from simcore.errors import InputError


def command(variant: simple.Variant, **values: Any) -> None:
    """Batch and run time from matrix products, pipeline and ideal collectives (simple_transformer.py)."""
    require(values, "layers", "d_model")
    name, hardware, utilization = _hardware(values, variant)
    setup = built(simple.Setup, values)
    run = simple.evaluate(setup, hardware, variant, utilization)
    document = {key: value for key, value in asdict(run).items() if value is not None} | {"variant": variant}
    lines = describe.simple_lines(run, setup, name, hardware, variant, utilization)
    executed = _executed(values, setup, run)
    speed = f"{run.D / (run.run_time_days * describe.DAY_S) / run.p:,.0f} tokens/s on each"
    took = f"{describe.duration(run.run_time_days * describe.DAY_S)} on {run.p:,} {name}s"
    answer = f"The run takes {took}: {speed}, {run.util:.1%} of the peak (MFU)."
    print_result(answer, document, lines, _operated(values, setup, run), executed)


def _executed(values: dict[str, Any], setup: simple.Setup, run: simple.SimpleRun) -> Executed | None:
    if values["topology"] is None:
        return None

    return executed_on(values["topology"], simple_batch(setup, run))


def _operated(values: dict[str, Any], setup: simple.Setup, run: simple.SimpleRun) -> operation.OperationCost | None:
    """With a wide-area link every site holds a replica and exchanges the gradients of a batch."""
    asked, run_s = operated(values, run.p), run.run_time_days * describe.DAY_S
    if asked is None or asked.wide_area_bytes_per_s is None:
        return operation.evaluate(asked, run_s) if asked else None
    if setup.dp == 1:
        raise InputError.at("--wan_bandwidth", "sites are replicas of the model", expected="--dp above 1", found="1")
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
