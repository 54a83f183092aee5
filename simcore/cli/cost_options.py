"""What the cost commands share: options of the original scripts, what operating a run costs, the printed result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simcore.cli import command
from simcore.cli.numbers import COUNT, POSITIVE, SIZE, Finite
from simcore.cost.closed import describe, operation
from simcore.errors import InputError, Location, Problem
from simcore.units import parse_bytes_per_s

if TYPE_CHECKING:
    from simcore.cost.closed.executed import Batch, Executed

__all__ = [
    "built",
    "executed_on",
    "field_options",
    "operated",
    "option",
    "options",
    "print_result",
    "require",
    "run_options",
]

Command = Callable[..., Any]
Kind = click.IntRange | click.FloatRange | click.types.StringParamType
Made = TypeVar("Made")
Table = Mapping[str, tuple[str, str]]  # an option's name -> the field it sets, and its help


def option(name: str, kind: Kind | None = None, default: object = None, help_text: str = "") -> Command:
    """An option of the original scripts; without a type it is a switch."""
    if kind is None:
        return command.option(f"--{name}", name, is_flag=True, help=help_text)
    shown = default is not None
    return command.option(f"--{name}", name, type=kind, default=default, show_default=shown, help=help_text)


def options(*decorators: Command) -> Command:
    """Several options as one decorator, in their order."""

    def decorate(function: Command) -> Command:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_KINDS: dict[str, Kind | None] = {"int": COUNT, "bool": None}


def field_options(shape: type, table: Table) -> Command:
    """Options that set fields of a dataclass, with its types and defaults."""
    known = {field.name: field for field in fields(shape)}
    made = []
    for name, (field_name, help_text) in table.items():
        field = known[field_name]
        default = None if field.default is MISSING else field.default
        made.append(option(name, _KINDS.get(str(field.type), POSITIVE), default, help_text))
    return options(*made)


def built(shape: type[Made], table: Table, values: Mapping[str, Any], **more: Any) -> Made:
    """The dataclass that the options of `table` describe."""
    return shape(**{field_name: values[name] for name, (field_name, _) in table.items()}, **more)


run_options = options(
    option("topology", click.STRING, None, "A file or a shipped name: a batch executed on it, too."),
    option("chip_watts", click.STRING, None, "Power of a chip with its share of the host, or an accelerator: energy."),
    option("pue", Finite(1, 100), 1.0, "Power usage effectiveness of the site."),
    option("price_per_chip_hour", POSITIVE, None, "Price of a chip for an hour, in any currency."),
    option("mtbf_hours", POSITIVE, None, "Mean time between failures of a chip; 50700 on Llama 3's H100."),
    option("checkpoint_seconds", SIZE, None, "Time to write a checkpoint; the best interval is computed."),
    option("restart_seconds", SIZE, None, "Time from a failure to work again."),
)


def require(values: dict[str, Any], *names: str) -> None:
    """All missing options at once."""
    missing = [name for name in names if values[name] is None]
    if missing:
        problems = (Problem(Location(f"--{name}"), f"the option '--{name}' is missing", field=name) for name in missing)
        raise InputError(problems)


def operated(values: dict[str, Any], chips: int) -> operation.Operation | None:
    """What was asked about operating the run, None when nothing was."""
    if values["mtbf_hours"] is None and (values["checkpoint_seconds"] or values["restart_seconds"]):
        raise InputError.at("--mtbf_hours", "checkpoints and restarts need the mean time between failures of a chip")
    asked = ("wan_bandwidth", "chip_watts", "price_per_chip_hour", "mtbf_hours")
    if all(values[name] is None for name in asked):
        return None
    hours, link = values["mtbf_hours"], values["wan_bandwidth"]
    return operation.Operation(
        chips=chips,
        wide_area_bytes_per_s=None if link is None else _bandwidth(link),
        chip_watts=_watts(values["chip_watts"]),
        power_usage_effectiveness=values["pue"],
        price_per_chip_hour=values["price_per_chip_hour"],
        mean_time_between_failures_s=None if hours is None else hours * operation.HOUR_S,
        checkpoint_s=values["checkpoint_seconds"] or 0.0,
        restart_s=values["restart_seconds"] or 0.0,
    )


def _watts(text: str | None) -> float | None:
    """Watts as stated, or those of an accelerator at work with its share of a node, as measured."""
    from simcore.compute.accelerators import accelerator
    from simcore.compute.kernel import Product
    from simcore.compute.power import node_w, watts

    try:
        return None if text is None else float(POSITIVE.convert(text, None, None))
    except click.BadParameter as error:
        if not str(text)[:1].isalpha():
            expected = "watts above 0, or an accelerator"
            raise InputError.at("--chip_watts", error.message, expected=expected, found=str(text)) from error
        device = accelerator(str(text))
    return node_w(watts(Product(1, 1, 1), device, "bf16"), device.power_w)


def _bandwidth(text: str) -> float:
    try:
        rate = parse_bytes_per_s(_number_or_text(text))
    except ValueError as error:
        raise InputError.at("--wan_bandwidth", str(error), found=text) from error
    if rate <= 0:
        raise InputError.at("--wan_bandwidth", "a bandwidth must be above 0", found=text)
    return rate


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def executed_on(name: str, batch: Batch) -> Executed:
    """A batch on the topology called `name`."""
    from simcore.api import load_topology
    from simcore.cost.closed.executed import execute

    return execute(batch, load_topology(name))


def print_result(
    document: dict[str, Any],
    lines: Iterable[str],
    cost: operation.OperationCost | None,
    executed: Executed | None,
) -> None:
    """The answer, with a batch on a topology and the cost of operating the run where asked."""
    if executed is not None:
        document["executed"] = asdict(executed)
        lines = [*lines, *executed.lines()]
    if cost is not None:
        document["operation"] = {key: value for key, value in asdict(cost).items() if value is not None}
        lines = [*lines, *describe.operation_lines(cost)]
    command.emit(document, "\n".join(lines))
