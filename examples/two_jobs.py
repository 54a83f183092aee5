"""Two jobs on one ring: side by side they do not meet, spread over it they share every link.

With the name of a picture (`python examples/two_jobs.py two_jobs.png`) it draws each job's step alone and together.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.engine.jobs import JobOutcome
from simcore.report.plots import canvas, save

JOBS = """\
topology: ring8
jobs:
  - {{name: left, workload: dlrm, npus: 4, place: {0}}}
  - {{name: right, workload: dlrm, npus: 4, place: {0}}}
"""
PLACES = ("packed", "random", "spread")


def outcomes(place: str) -> list[JobOutcome]:
    """Both jobs placed so on a ring whose links jobs share evenly."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jobs.yaml").write_text(JOBS.format(place))
        return simcore.run_jobs(Path(folder) / "jobs.yaml").runs.outcomes


def picture(rows: dict[str, list[JobOutcome]], path: str, about: str) -> None:
    """Bars: alone and together, for each job and placement."""
    with canvas(7.0, 3.1) as (figure, axes):
        bars = [(place, job) for place, jobs in rows.items() for job in jobs]
        lines = range(len(bars))
        axes.barh(lines, [job.together_ns / 1e3 for _, job in bars], color="#D55E00", label="beside the other job")
        axes.barh(lines, [job.alone_ns / 1e3 for _, job in bars], color="#0072B2", label="alone")
        for line, (_, job) in zip(lines, bars, strict=True):
            axes.annotate(f" {job.slowdown:.2f} x", (job.together_ns / 1e3, line), va="center", fontsize=8)
        axes.set_yticks(lines, [f"{place}, {job.name}" for place, job in bars])
        axes.invert_yaxis()
        axes.set_title("A step of each of two jobs on a ring of 8, by placement", loc="left", fontsize=10)
        axes.set_xlabel("time of a step (us)")
        axes.margins(x=0.12)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print both jobs' steps by placement; draw the picture if one is named."""
    rows = {place: outcomes(place) for place in PLACES}
    lines = ["place   job    NPUs         alone   together  slowdown"]
    for place, jobs in rows.items():
        for job in jobs:
            npus = ",".join(map(str, job.npus))
            times = f"{job.alone_ns / 1e3:6.1f} us  {job.together_ns / 1e3:6.1f} us"
            lines.append(f"{place:7} {job.name:6} {npus:8} {times}  {job.slowdown:8.3f}")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(rows, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
