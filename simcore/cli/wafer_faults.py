"""`simcore generate wse faults`: how much longer steps take with dead links or NPUs, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from simcore.cli.command import emit
from simcore.compute.accelerators import accelerator
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.generate.wse import source
from simcore.network.topology.load import load, logical
from simcore.network.topology.model import Topology, Wafer
from simcore.network.topology.wafer import WaferMesh
from simcore.report.plots import save, titled
from simcore.report.wafer_figure import slowdown_figure
from simcore.units import format_ns
from simcore.wafer.run import simulate_wafer
from simcore.wafer.steps import Rates
from simcore.workload.wafer import CoreStep, NodeStep

MOST_DRAWS = 200
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class _Study:
    """Steps, the wafer they run on when nothing more is dead, and what dies: "links" or "npus"."""

    steps: Sequence[NodeStep | CoreStep]
    wafer: Wafer
    rates: Rates
    dead: str

    def time_ns(self, wafer: Wafer) -> int:
        """Of all steps on a wafer."""
        topology = Topology(logical(wafer, wafer.dims), wafer=wafer)
        return simulate_wafer(self.steps, topology, self.rates, Settings()).time_ns

    def damaged(self, count: int, generator: Generator) -> Wafer:
        """The wafer with `count` more faults that leave it whole; what cuts it is drawn again."""
        draw = _dead_npus if self.dead == "npus" else _dead_links
        for _ in range(MOST_DRAWS):
            wafer = draw(self.wafer, count, generator)
            if wafer is not None and not len(WaferMesh(wafer).unreachable()):
                return wafer
        message = f"{count} more dead {self.dead} leave no whole wafer with {self.wafer.spare_rows} spare rows"
        raise InputError.at("--counts", message, expected="fewer faults, or more spare_rows in the topology")


def _dead_npus(wafer: Wafer, count: int, generator: Generator) -> Wafer | None:
    """NPUs die where their column has a spare; None when there are too few spares."""
    column, row = np.meshgrid(np.arange(wafer.columns), np.arange(wafer.rows))
    cells = np.setdiff1d((column + wafer.columns * row).ravel(), wafer.dead_npus)
    left = wafer.spare_rows - np.bincount(np.array(wafer.dead_npus, int) % wafer.columns, minlength=wafer.columns)
    chosen: list[int] = []
    for cell in generator.permutation(cells).tolist():
        if len(chosen) < count and left[cell % wafer.columns] > 0:
            left[cell % wafer.columns] -= 1
            chosen.append(cell)
    return replace(wafer, dead_npus=tuple(sorted({*wafer.dead_npus, *chosen}))) if len(chosen) == count else None


def _dead_links(wafer: Wafer, count: int, generator: Generator) -> Wafer | None:
    """Pairs of neighbours lose their links; None when there are too few."""
    ids = np.arange(wafer.rows * wafer.columns).reshape(wafer.rows, wafer.columns)
    beside = zip(ids[:, :-1].ravel().tolist(), ids[:, 1:].ravel().tolist(), strict=True)
    below = zip(ids[:-1].ravel().tolist(), ids[1:].ravel().tolist(), strict=True)
    pairs = sorted({*beside, *below} - set(wafer.dead_links))
    if count > len(pairs):
        return None
    chosen = {pairs[place] for place in generator.choice(len(pairs), count, replace=False).tolist()}
    return replace(wafer, dead_links=tuple(sorted(chosen | set(wafer.dead_links))))


def _study(workload: str, topology: str, npu: str | None, dead: str) -> _Study:
    """Everything that a draw needs."""
    machine, path = load(topology), Path(workload)
    if [dim.kind for dim in machine.dims] != ["Mesh", "Mesh"]:
        expected = "topology: [Mesh, Mesh]"
        message = "faults need a network of two Mesh dimensions"
        raise InputError.at("--topology", message, expected=expected, found=repr(topology))
    if not source.is_source(path):
        expected = "a specification with generator: wse, or a folder that simcore generate wse has written"
        message = "not a workload of the wafer-scale generator"
        raise InputError.at("--workload", message, expected=expected, found=repr(workload))
    wafer = machine.wafer or Wafer((machine.dims[0], machine.dims[1]))
    steps = source.load(path).steps
    preset = accelerator(npu or ("wafer-node" if isinstance(steps[0], NodeStep) else "wafer-core"))
    return _Study(steps, wafer, Rates(preset.peak("fp16") / 2, preset.memory_bytes_per_s), dead)


def faults(
    workload: str, topology: str, dead: str, counts: tuple[int, ...], samples: int, seed: int, npu: str | None,
    output: str | None,
) -> None:  # fmt: skip
    """Slowdown of a wafer's steps against the number of dead links or NPUs; spare rows take the place of dead NPUs."""
    study, generator = _study(workload, topology, npu, dead), np.random.default_rng(seed)
    whole = study.time_ns(study.wafer)
    times = [
        [study.time_ns(study.damaged(count, generator)) for _ in range(samples if count else 1)] for count in counts
    ]
    ratios = [np.array(each) / max(whole, 1) for each in times]
    if output:
        most = f"{counts[-1]} dead {dead}: {median(ratios[-1].tolist()):.3f} times as long (median)"
        title = f"{Path(workload).stem} on {Path(topology).stem}; {most}"
        save(titled(slowdown_figure(counts, ratios, f"dead {dead}"), title), Path(output))
    rows = [
        {"dead": count, "slowdown": median(each.tolist()), "most": float(each.max())}
        for count, each in zip(counts, ratios, strict=True)
    ]
    lines = (
        f"{row['dead']:>4} dead {dead}: {row['slowdown']:.3f} times as long (median), {row['most']:.3f} at most"
        for row in rows
    )
    first = f"Without more faults the steps take {format_ns(whole)}."
    emit({"dead": dead, "time_ns": whole, "rows": rows}, "\n".join([first, *lines]))
