"""`simcore generate wse visualize`: pictures of what the cores of a wafer move, from traces on disk."""

from __future__ import annotations

from math import isqrt
from pathlib import Path

from simcore.cli.command import emit
from simcore.cli.kinds import forced
from simcore.documents import read
from simcore.errors import InputError, Problems, closest
from simcore.files import write_text
from simcore.generate.wse.files import claim
from simcore.generate.wse.source import load
from simcore.report.plots import save
from simcore.report.table import Table, columns
from simcore.report.wafer_figure import layers_of, moves_figure, node_bytes
from simcore.workload.wafer import CoreStep


def visualize(layers: str, step: str | None, system_config: str, outdir: str) -> None:
    """Draw a PNG for every layer under DIR/visuals/STEP, and its bytes from node to node as CSV."""
    folder = Path(outdir) / "traces"
    if not folder.is_dir():
        hint = "simcore generate wse traces -o DIR makes them"
        raise InputError.at(str(folder), "there are no traces", expected="a folder of traces", hint=hint)
    steps = {each.name: each for each in load(folder).steps if isinstance(each, CoreStep)}
    if step is not None and step not in steps:
        raise InputError.at("--iter", "there is no such step on disk", expected=closest(step, steps), found=repr(step))
    drawn: dict[str, dict[str, int]] = {}
    for name, played in steps.items():
        if step not in {None, name}:
            continue
        grids = _grids(system_config, len(played.traces) // played.cores, played.cores)
        moved = layers_of(played)
        for layer in _chosen(layers, list(moved)):
            path = Path(outdir) / "visuals" / name / f"{layer}.png"
            claim(path, force=forced())
            save(moves_figure(moved[layer], f"{name}, {layer}", *grids), path)
            between = node_bytes(moved[layer], len(played.traces) // played.cores, played.cores)
            write_text(path.with_suffix(".csv"), "".join(",".join(map(str, row)) + "\n" for row in between.tolist()))
            drawn.setdefault(name, {})[layer] = sum(moved[layer].values())
    rows = [(name, layer, size) for name, sizes in drawn.items() for layer, size in sizes.items()]
    emit({"bytes": drawn}, lambda: Table("", columns("step", "layer", "bytes"), rows).text())


def _chosen(text: str, known: list[str]) -> list[str]:
    """The layers of `--layers` that move anything."""
    if text == "all":
        return known
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            expected = closest(name, known)
            raise InputError.at("--layers", "these traces move nothing for it", expected=expected, found=repr(name))
    return names


def _grids(system_config: str, nodes: int, cores: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of nodes and of a node's cores."""
    if not system_config:
        return _squarest(nodes), _squarest(cores)
    with Problems() as problems:
        root = read(system_config, problems)
        part = root["decode" if "decode" in root else "prefill"]
        found = [_pair([item.integer(1) for item in part[key].sequence()]) for key in ("node_grid", "core_grid")]
        for key, (rows, columns), count in zip(("node_grid", "core_grid"), found, (nodes, cores), strict=True):
            if not problems.found and rows * columns != count:
                part[key].problem("not the grid of these traces", f"rows x columns = {count}", f"{rows} x {columns}")
    return found[0], found[1]


def _pair(values: list[int]) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) == 2 else (0, 0)


def _squarest(count: int) -> tuple[int, int]:
    """Rows and columns of the rectangle that is nearest to a square."""
    rows = next(rows for rows in range(isqrt(count), 0, -1) if count % rows == 0)
    return rows, count // rows
