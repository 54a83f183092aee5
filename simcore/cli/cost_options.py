"""What the cost commands share: what operating a run costs, the printed result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

import click

from simcore.api import load_topology
from simcore.cli.command import emit, option_of
from simcore.cli.kinds import POSITIVE
from simcore.compute.accelerators import accelerator
from simcore.compute.kernel import Product
from simcore.compute.power import node_w, watts
from simcore.cost.closed import describe, operation
from simcore.cost.closed.executed import Batch, Executed, execute
from simcore.errors import InputError, Location, Problem

Made = TypeVar("Made")


def built(shape: type[Made], values: Mapping[str, Any], **more: Any) -> Made:
    """The dataclass whose fields options set, and `more`."""
    known = {field.name: values[field.name] for field in fields(shape) if field.name in values}  # type: ignore[arg-type]
    return shape(**known | more)


def require(values: dict[str, Any], *names: str) -> None:
    """All missing options at once."""
    if missing := [option_of(name) for name in names if values[name] is None]:
        raise InputError(Problem(Location(one), f"the option '{one}' is missing", field=one[2:]) for one in missing)


def operated(values: dict[str, Any], chips: int) -> operation.Operation | None:
    """What was asked about operating the run, None when nothing was."""
    if values["mtbf_hours"] is None and (values["checkpoint_seconds"] or values["restart_seconds"]):
        raise InputError.at("--mtbf_hours", "checkpoints and restarts need the mean time between failures of a chip")
    asked = ("wan_bandwidth", "chip_watts", "price_per_chip_hour", "mtbf_hours")
    if all(values[name] is None for name in asked):
        return None
    hours, link = values["mtbf_hours"], values["wan_bandwidth"]
    if link == 0:
        raise InputError.at("--wan_bandwidth", "a bandwidth must be above 0", found="0")
    return operation.Operation(
        chips=chips,
        wide_area_bytes_per_s=link,
        chip_watts=_watts(values["chip_watts"]),
        power_usage_effectiveness=values["pue"],
        price_per_chip_hour=values["price_per_chip_hour"],
        mean_time_between_failures_s=None if hours is None else hours * operation.HOUR_S,
        checkpoint_s=values["checkpoint_seconds"] or 0.0,
        restart_s=values["restart_seconds"] or 0.0,
    )


def _watts(text: str | None) -> float | None:
    """Watts as stated, or those of an accelerator at work with its share of a node, as measured."""
    try:
        return None if text is None else float(POSITIVE.convert(text, None, None))
    except click.BadParameter as error:
        if not str(text)[:1].isalpha():
            expected = "watts above 0, or an accelerator"
            raise InputError.at("--chip_watts", error.message, expected=expected, found=str(text)) from error
        device = accelerator(str(text))
    return node_w(watts(Product(1, 1, 1), device, "bf16"), device.power_w)


def executed_on(name: str, batch: Batch) -> Executed:
    """A batch on the topology called `name`."""
    return execute(batch, load_topology(name))


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
        document["operation"] = {key: value for key, value in asdict(cost).items() if value is not None}
        lines = [*lines, *describe.operation_lines(cost)]
    emit(document, "\n".join([answer, "", *lines]))
