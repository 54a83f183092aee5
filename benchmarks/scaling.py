"""Draw docs/images/scaling.png: what a run costs against its NPUs, folded, with a straggler, unfolded, with noise.

    python -m benchmarks.scaling [WORKLOAD [PICTURE]]

Machines are Switch 8 x Switch a x Switch b; the workload is the shipped resnet50_data_parallel by default, any other
that fits groups of 8 will do. The bottom panel counts classes, of which each is one process of the simulation.
"""

from __future__ import annotations

import json
import sys
import tempfile
from math import prod
from pathlib import Path

from benchmarks.runs import ROOT, simcore, topology

PICTURE = ROOT / "docs" / "images" / "scaling.png"
OUTER = ((4, 4), (8, 16), (32, 32), (64, 128), (128, 256), (128, 1024))
EACH = ((2, 4), (4, 8), (8, 16), (16, 32), (32, 64))
JITTER = "--jitter", "compute=lognormal:0.02"
ONE = "MICRO\n1\nall -1 0 NONE 0 0 NONE 0 100000 ALLREDUCE 16777216 1\n"
CASES = {
    "all alike": ((), OUTER, ""),
    "one straggler": (("--straggler", "5=1.5"), OUTER, ""),
    "all alike, --no-fold": (("--no-fold",), OUTER[:2], ""),
    "jitter of every NPU": (JITTER, EACH[:3], ""),
    "jitter of every NPU, one all-reduce": (JITTER, EACH, ONE),
}
"""Options, machines, and rows in place of the workload."""


def _point(workload: str, outer: tuple[int, int], options: tuple[str, ...], folder: Path) -> tuple[int, float, int]:
    """NPUs, CPU seconds and classes of one run."""
    sizes = (8, *outer)
    place = topology(folder / "switches.yaml", *(("Switch", size) for size in sizes))
    cost = simcore("run", "--workload", workload, "--topology", place, "--json", *options)
    return prod(sizes), cost.cpu_s, json.loads(cost.said)["classes"]


def main(workload: str = "resnet50_data_parallel", picture: str = str(PICTURE)) -> None:
    """Run all cases and draw them."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (seconds, classes) = pyplot.subplots(
        2, 1, figsize=(7, 6), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    with tempfile.TemporaryDirectory() as folder:
        for (label, (options, outers, rows)), marker in zip(CASES.items(), "os^vd", strict=True):
            (own := Path(folder, "rows.txt")).write_text(rows)
            points = (_point(str(own) if rows else workload, outer, options, Path(folder)) for outer in outers)
            npus, cpu_s, count = zip(*points, strict=True)
            seconds.plot(npus, cpu_s, marker=marker, label=label)
            classes.plot(npus, count, marker=marker)
            print(label, *zip(npus, cpu_s, count, strict=True))
    for axes in (seconds, classes):
        axes.set(xscale="log", yscale="log")
        axes.grid(which="major", alpha=0.3)
    seconds.set(
        ylabel="CPU seconds, start-up included", title=f"{Path(workload).stem} on shared links: cost against NPUs"
    )
    classes.set(ylabel="classes", xlabel="NPUs")
    figure.legend(loc="outside lower center", ncols=2)
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
