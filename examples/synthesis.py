"""Traces like two given sets, and how like them they are: distances of sizes and gaps, chi-square of the collectives.

With the name of a picture (`python examples/synthesis.py synthesis.png`) it draws the sizes.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import simcore
from simcore.generate.synthetic import Master, learn, likeness, merge, sample, together
from simcore.report.plots import canvas, save
from simcore.workload.chakra.reader import read_graphs

NPUS, STEPS = 4, 60


def job(folder: Path, median_bytes: int, share: float, seed: int) -> Master:
    """Made-up traces of a job: all-reduces, and all-to-alls at this share of the steps, of sizes around a median."""
    draw, graph, last = np.random.default_rng(seed), simcore.graph(NPUS), None
    for _ in range(STEPS):
        before = graph.compute(int(draw.lognormal(11, 0.3)), depends=[last] if last else [])
        kind = "all_to_all" if draw.random() < share else "all_reduce"
        last = graph.collective(kind, int(median_bytes * draw.lognormal(0, 0.4)), depends=[before])
    graph.save(folder / f"job{seed}")
    return merge(read_graphs(str(folder / f"job{seed}"), NPUS))


def sizes(master: Master) -> np.ndarray:
    """Of all collectives, in order of size."""
    return np.sort([event.size_bytes for event in master.events])


def picture(sets: dict[str, Master], path: str, about: str) -> None:
    """Share of the collectives that are at most so large."""
    with canvas(7.0, 3.2) as (figure, axes):
        for (name, master), colour in zip(sets.items(), ("#0072B2", "#E69F00", "#222222"), strict=True):
            found = sizes(master)
            axes.step(
                found / 1e6, 100 * np.arange(1, len(found) + 1) / len(found), where="post", color=colour, label=name
            )
        axes.set_title(
            "Sizes of the collectives of two sets, and of the traces made from both", loc="left", fontsize=10
        )
        axes.set_xscale("log")
        axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        axes.minorticks_off()
        axes.set_xlabel("size (MB)")
        axes.set_ylabel("collectives up to it (%)")
        axes.set_ylim(0, 102)
        axes.legend(frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print the scores of each set; draw the picture if one is named."""
    names = ("small messages", "large messages")
    with tempfile.TemporaryDirectory() as folder:
        read = [job(Path(folder), 1 << 20, 0.1, seed=1), job(Path(folder), 1 << 23, 0.5, seed=2)]
    masters = together(read, names)
    made = sample(learn(*masters, path=names[0]), length=2 * STEPS, seed=3)
    lines = ["set             of                 distance (KS)    level"]
    for name, master in zip(names, masters, strict=True):
        score = likeness(master, made)
        rows = [*((f"size of {kind}", row) for kind, row in score["sizes"].items()), ("gap", score["gaps"])]
        lines += [f"{name}  {what:18} {row['distance']:13.3f}  {row['level']:7.2g}" for what, row in rows]
        kinds = score["kinds"]
        lines.append(f"{name}  kinds, chi-square {kinds['chi_square_per_degree']:13.3f}  {kinds['level']:7.2g}")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(dict(zip((*names, "made from both"), (*masters, made), strict=True)), sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
