"""How well published steps scale, and how well they are predicted to: efficiency along curves of one job.

A curve is all steps that one source measured of a model in a number format, of one sequence length and micro-batch, on
one device and software, on different numbers of accelerators. The efficiency of a step is its tokens per second and
accelerator over those of the curve's smallest; what it is missed by is told in points of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from statistics import median

from simcore.cost.published.rows import Row, step_of
from simcore.model.shape import total_parameters
from simcore.report.table import Table, columns

MANY = 512  # accelerators from which on efficiency is judged


@dataclass(frozen=True, slots=True)
class Curve:
    """Numbers of accelerators in rising order, and the median tokens per second and accelerator of each."""

    name: str
    accelerators: tuple[int, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    def points(self) -> list[tuple[int, float, float]]:
        """Accelerators, measured and predicted efficiency of every step of `MANY` and more but the first."""
        found = zip(self.accelerators[1:], self.measured[1:], self.predicted[1:], strict=True)
        return [(n, one / self.measured[0], other / self.predicted[0]) for n, one, other in found if n >= MANY]


def curves(some: Iterable[tuple[Row, float]]) -> list[Curve]:
    """The curves that rows with their predicted seconds lie on, of those with a step of `MANY` to judge."""
    found: dict[tuple[object, ...], dict[int, list[tuple[float, float]]]] = {}
    for row, predicted_s in some:
        step = step_of(row)
        if not step or len(step.jobs) > 1:
            continue
        cluster, (model, plan) = step.system(), step.jobs[0]
        kind = plan.dtype, plan.seq, plan.micro_batch, plan.recompute, plan.context, plan.overlap
        rate = plan.global_batch * plan.seq / plan.world_size
        name = f"{round(total_parameters(model) / 1e9)}B"
        key = row.source, name, model, cluster.accelerator, cluster.software, *kind
        at = found.setdefault(key, {}).setdefault(plan.world_size, [])
        at.append((rate / row.measured, rate / predicted_s))
    made = list[Curve]()
    for (source, title, _, device, _, dtype, *_), points in found.items():
        sizes = sorted(points)
        measured, predicted = (tuple(median(pair[side] for pair in points[size]) for size in sizes) for side in (0, 1))
        made.append(Curve(f"{title} {dtype}, {device} ({source})", tuple(sizes), measured, predicted))
    return [one for one in made if one.points()]


def table(some: Iterable[Curve]) -> Table:
    """A row per curve, and the mean of all points."""
    missed, rows = list[float](), list[tuple[str, ...]]()
    for one in some:
        points = one.points()
        far = [predicted - measured for _, measured, predicted in points]
        missed += far
        _, measured, predicted = points[-1]
        reach = f"{one.accelerators[0]:,} to {points[-1][0]:,}"
        rows.append((one.name, reach, f"{measured:.1%}", f"{predicted:.1%}", f"{100 * max(far, key=abs):+.1f}"))
    mean = fsum(map(abs, missed)) / max(1, len(missed))
    rows.append((f"all {len(missed)} points", f"{MANY:,} and more", "", "", f"{100 * mean:.1f} in the mean"))
    figures = ("efficiency measured", "predicted", "largest miss, points")
    return Table("", columns("curve", "accelerators", *figures), rows)
