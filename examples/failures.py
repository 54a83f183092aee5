"""How much of its time does a run train, the more nodes it has? Checkpoints that stop it, and those written behind.

With the name of a picture (`python examples/failures.py failures.png`) it draws goodput against nodes.
"""

import sys
from pathlib import Path

import numpy as np

from simcore.cost.closed.operation import wall_clock_s
from simcore.cost.failures import Checkpoint, Failures, draw
from simcore.report.plots import canvas, save

HOUR_S, DAY_S = 3600.0, 86400.0
MTBF_S = 6334 * HOUR_S  # of a node: 419 unexpected stops of 2,048 in 54 days (Llama 3)
WRITTEN = {
    "stops for it": Checkpoint(5.7e12, 2e11),  # 5.7 TB at 200 GB/s
    "writes behind": Checkpoint(5.7e12, 2e11, snapshot_bytes_per_s=1e10),
}
NODES = (256, 512, 1024, 2048, 4096)
RUNS = 40


def goodput(nodes: int, checkpoint: Checkpoint) -> tuple[float, float, float, float]:
    """Mean, 5th and 95th percentile of what is trained in 54 days, and Daly's formula."""
    asked = Failures(nodes, MTBF_S, 54 * DAY_S, checkpoint, restart_s=600)
    shares = [run.useful_s / asked.wall_s for run in draw(asked, RUNS, seed=0)]
    back_s = asked.restart_s + checkpoint.write_s(nodes) + checkpoint.behind_s(nodes)
    whole_s = wall_clock_s(1.0, asked.work_s(nodes), checkpoint.blocks_s(nodes), back_s, asked.machine_mtbf_s)
    return float(np.mean(shares)), *np.percentile(shares, (5, 95)).tolist(), 1 / whole_s


def picture(rows: dict[str, list[tuple[float, float, float, float]]], path: str, about: str) -> None:
    """Goodput against nodes: means with the range of 90 % of the runs, and the formula."""
    with canvas(7.0, 3.4) as (figure, axes):
        for (name, found), colour in zip(rows.items(), ("#D55E00", "#0072B2"), strict=True):
            mean, low, high, daly = (100 * np.array(column) for column in zip(*found, strict=True))
            axes.errorbar(NODES, mean, (mean - low, high - mean), fmt="o", color=colour, capsize=3, label=name)
            axes.plot(NODES, daly, color=colour, linewidth=1, label=f"{name}, Daly's formula")
        axes.set_title(f"A run of 54 days: {RUNS} draws (mean, 5th to 95th percentile)", loc="left", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks(NODES, [f"{nodes:,}" for nodes in NODES])
        axes.set_xlabel("nodes, each failing every 6,334 h")
        axes.set_ylabel("time that the run trains (%)")
        axes.legend(frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print the table; draw the picture if one is named."""
    rows = {name: [goodput(nodes, checkpoint) for nodes in NODES] for name, checkpoint in WRITTEN.items()}
    lines = ["nodes  checkpoint     mean     p5    p95   Daly"]
    for name, found in rows.items():
        for nodes, shares in zip(NODES, found, strict=True):
            lines.append(f"{nodes:5,}  {name:13} " + " ".join(f"{share:6.1%}" for share in shares))
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(rows, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
