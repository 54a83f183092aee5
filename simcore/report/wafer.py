"""A wafer's steps: in words, who sent to whom, the cost of faults. `links` draws the map."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.files import write_bytes, write_text
from simcore.report.document import ReportDocument
from simcore.report.palette import DIMENSIONS, HEAT, INK
from simcore.units import format_bytes, format_ns

__all__ = ["draw_matrix", "draw_slowdown", "wafer_steps", "write_wafer"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
MEGA = 1e6
MOST_MATRICES = 6  # pictures of single layers in a folder; traffic.csv has them all


def draw_matrix(path: str | os.PathLike[str], sent_bytes: IntArray, title: str = "") -> None:
    """Bytes from every node (rows) to every node (columns), with what each sends and receives in total."""
    figure, axes = _figure(9, 8)
    shown = np.ma.masked_equal(sent_bytes / MEGA, 0)
    image = axes.imshow(shown, cmap=HEAT, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="bytes sent (MB)", shrink=0.8)
    sent, received = sent_bytes.sum(axis=1), sent_bytes.sum(axis=0)
    most = f"most sent {format_bytes(sent.max(initial=0))}, most received {format_bytes(received.max(initial=0))}"
    axes.set(xlabel="to node", ylabel="from node")
    axes.set_title("\n".join(filter(None, (title, most))), color=INK, fontsize=10)
    _save(figure, path)


def write_wafer(traffic: Mapping[str, IntArray], folder: Path) -> None:
    """traffic.csv: bytes from node to node per layer; matrix.png of all layers, and of the first few of each own."""
    lines = ["layer,source,target,bytes"]
    for layer, sent in traffic.items():
        at = np.nonzero(sent)
        lines += [
            f"{layer},{a},{b},{c}" for a, b, c in zip(*(column.tolist() for column in (*at, sent[at])), strict=True)
        ]
    write_text(folder / "traffic.csv", "\n".join(lines) + "\n")
    draw_matrix(folder / "matrix.png", np.sum(list(traffic.values()), axis=0), "all layers")
    for layer in list(traffic)[:MOST_MATRICES] if len(traffic) > 1 else ():
        draw_matrix(folder / f"matrix_{layer}.png", traffic[layer], layer)


def draw_slowdown(
    path: str | os.PathLike[str], faults: Sequence[int], slowdown: Sequence[FloatArray], what: str
) -> None:
    """Slowdown against the number of faults, an array of draws for each number; the line is the median."""
    figure, axes = _figure(7, 4.5)
    spread = np.repeat(np.asarray(faults), [len(draws) for draws in slowdown])
    axes.scatter(spread, np.concatenate(slowdown), s=12, color=DIMENSIONS[0], alpha=0.6, label="one draw")
    axes.plot(faults, [np.median(draws) for draws in slowdown], color=INK, label="median")
    axes.set(xlabel=what, ylabel="time / time without more faults")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def wafer_steps(document: ReportDocument) -> Iterator[str]:
    """The steps of a wafer in words, a paragraph each; nothing for other runs."""
    for step in document.get("wafer", {"steps": []})["steps"]:
        most, rate = step["compute_ns"], f", {step['tokens_per_s']:,.0f} tokens/s" if step["tokens"] else ""
        busiest = f"NPU {most['npu']} computes most, {format_ns(most['max'])} (mean {format_ns(most['mean'])})"
        lines = [f"{step['name']}: {format_ns(step['time_ns'])}{rate}; {busiest}."]
        late = [
            f"{each['npu']} (+{format_ns(each['cost_ns'])} in {each['phases']} phases)"
            for each in step.get("stragglers", [])
        ]
        lines += [f"Stragglers: {', '.join(late[:3])}."] if late else []
        yield "\n".join(lines)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure without a window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(float(width) + 2, float(height)), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write the picture under its final name when it is complete."""
    from io import BytesIO

    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lstrip(".") or "png", dpi=130)
    write_bytes(path, buffer.getvalue())
