"""`simcore cost scaling`: how many devices a training run can use, and how fast it then is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from simcore.cli.command import emit
from simcore.cli.cost import built
from simcore.cost.closed import scaling
from simcore.cost.closed.describe import DAY_S, duration
from simcore.cost.closed.simple import CHIPS, Chip
from simcore.errors import InputError
from simcore.report.table import Table, columns


def command(**values: Any) -> None:
    """Fastest degrees for every number of devices, of a model that its arithmetic trains best (run_optimizer2)."""
    chip, count = CHIPS["scaling"][values["chip"]], values["chips_per_device"]
    network = values["network_bandwidth"] or count * chip.network_bytes_per_s
    pod = Chip(count * chip.flop_per_s, count * chip.memory_bytes_per_s, network)
    device = scaling.Device(pod, not values["no_network_reduction"], values["base_utilization"])
    model = scaling.model_for(values["training_flop"])
    if values["fixed"]:
        degrees = built(scaling.Degrees, values)
        found = [scaling.evaluate(model, device, degrees, values["bytewidth"])]
    else:
        found = scaling.search(model, device, values["max_devices"], values["bytewidth"])
    if values["no_network_reduction"] and all(one.degrees.devices == one.degrees.pp for one in found):
        expected = "--dp, --tp_hidden or --tp_residual above 1" if values["fixed"] else "more devices"
        raise InputError.at("--no_network_reduction", "has no effect here: nothing is summed", expected=expected)
    document = {"model": asdict(model), "spreads": [{"devices": one.degrees.devices, **asdict(one)} for one in found]}
    best = min(found, key=lambda one: one.train_s)
    devices = f"{best.degrees.devices:,.0f} devices of {values['chip']} chips"
    run = "The run" if values["fixed"] else "The fastest run"
    answer = f"{run} takes {duration(best.train_s)} on {devices}, {best.utilization:.1%} of their peak."
    emit(document, lambda: "\n".join([answer, "", *_lines(model, _doublings(found))]))


def _doublings(found: Sequence[scaling.Spread]) -> Iterator[scaling.Spread]:
    """The first, the first beyond every doubling of the devices, and the last."""
    wanted = 1.0
    for one in found:
        if one.degrees.devices >= wanted or one is found[-1]:
            yield one
            wanted = 2 * one.degrees.devices


def _lines(model: scaling.Model, found: Iterator[scaling.Spread]) -> Iterator[str]:
    yield f"N: {model.parameters:.3e}, D: {model.tokens:.3e}, B: {model.batch_tokens:.3e} tokens"
    yield f"L: {model.layers:.1f}, d: {model.width:.0f}"
    degrees = ("pp", "dp", "tp_hidden", "tp_residual", "micro_batches")
    rows = [
        (one.degrees.devices, *(getattr(one.degrees, name) for name in degrees), one.train_s / DAY_S, one.utilization)
        for one in found
    ]
    shown = [(name, name.removesuffix("_batches"), ".1f") for name in degrees]
    figures = columns(("devices", "devices", ".0f"), *shown, ("days", "days", ".4g"), ("util", "util", "share"))
    yield Table("", figures, rows).text(120)
