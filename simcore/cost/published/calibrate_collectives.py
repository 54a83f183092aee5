"""Fit the lines of `simcore.system.collectives.nccl` to published collective curves.

``python -m simcore.cost.published.calibrate_collectives FILE...`` prints, per fabric and place, fixed microseconds,
microseconds per level and GB/s of every line; with ``--cross`` every second point is fitted and the others are
checked. Deterministic.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from simcore.cost.published.rows import Collective, Row
from simcore.cost.published.suites import SUITES, load
from simcore.system.collectives.nccl import FABRICS, Fabric, Line, collective_s

__all__ = ["curves", "fit_lines", "main", "simplex"]

# Where the search begins, in us, us per level and GB/s: a low-latency protocol and a high-rate one, rough figures.
_START = {
    "azure-a100 node": ((40, 5, 150), (90, 5, 230)),
    "azure-a100 across": ((70, 30, 80), (50, 100, 125)),
    "dgx-a100 node": ((40, 5, 150), (90, 5, 230)),
    "hgx-h200 node": ((40, 1, 300), (90, 1, 480)),
    "hgx-h100 node": ((65, 5, 370),),
    "efa-b200 across": ((370, 1, 150), (500, 1, 380)),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the calibration."""
    parser = argparse.ArgumentParser(prog="python -m simcore.cost.published.calibrate_collectives", description=__doc__)
    parser.add_argument("files", nargs="+", help="measurements, in the form of published_measurements.json")
    parser.add_argument("--cross", action="store_true", help="fit on every second point, report on the others")
    options = parser.parse_args(arguments)
    for place, rows in curves([load(path) for path in options.files]).items():
        if place in _START:
            lines = fit_lines(place, rows[::2] if options.cross else rows)
            print(f"{place}: {_error(place, lines, rows[1::2] if options.cross else rows):.1%} mean |error|")
            for line in lines:
                fixed, level, rate = line.fixed_s * 1e6, line.per_level_s * 1e6, line.bytes_per_s / 1e9
                print(f"  {fixed:8.1f} us {level:8.2f} us {rate:8.1f} GB/s")


def curves(documents: Sequence[Mapping[str, object]]) -> dict[str, list[Row]]:
    """Rows per "fabric node" or "fabric across"."""
    found: dict[str, list[Row]] = defaultdict(list)
    for name, place in (("collectives_in_node", "node"), ("collectives_across_nodes", "across")):
        for document in documents:
            for row in SUITES[name].rows(document):
                assert isinstance(row.question, Collective)  # noqa: S101 - these suites ask nothing else
                found[f"{row.question.fabric.name} {place}"].append(row)
    return dict(found)


def fit_lines(place: str, rows: Sequence[Row]) -> tuple[Line, ...]:
    """The lines of a place with the least error: mean and root mean square, so that no stretch is given up."""
    point = [math.log(value) for line in _START[place] for value in line]
    for size in (0.3, 0.1, 0.1):
        point = simplex(lambda some: _loss(place, _lines(some), rows), point, 800, size)
    return _lines(point)


def _lines(point: Sequence[float]) -> tuple[Line, ...]:
    values = [math.exp(x) for x in point]
    return tuple(
        Line(f"line-{i}", values[i] * 1e-6, values[i + 1] * 1e-6, values[i + 2] * 1e9) for i in range(0, len(values), 3)
    )


def _errors(place: str, lines: tuple[Line, ...], rows: Sequence[Row]) -> list[float]:
    system = _with(place, lines)
    found = []
    for row in rows:
        asked = row.question
        assert isinstance(asked, Collective)  # noqa: S101 - `curves` gives nothing else
        seconds = collective_s(asked.kind, asked.size_bytes, asked.ranks, asked.ranks // asked.nodes, system)
        found.append(abs(seconds / row.measured - 1))
    return found


def _with(place: str, lines: tuple[Line, ...]) -> Fabric:
    name, where = place.split()
    system = FABRICS[name]
    return replace(system, node=lines) if where == "node" else replace(system, across=lines)


def _error(place: str, lines: tuple[Line, ...], rows: Sequence[Row]) -> float:
    found = _errors(place, lines, rows)
    return math.fsum(found) / len(found)


def _loss(place: str, lines: tuple[Line, ...], rows: Sequence[Row]) -> float:
    found = _errors(place, lines, rows)
    return math.fsum(found) / len(found) + 0.3 * math.sqrt(math.fsum(x * x for x in found) / len(found))


@dataclass(slots=True)
class _Vertex:
    point: list[float]
    loss: float


def simplex(
    loss: Callable[[Sequence[float]], float], start: Sequence[float], steps: int, size: float = 0.12
) -> list[float]:
    """A minimum of `loss` near `start` (Nelder and Mead), after at most `steps` moves.

    >>> [round(x, 2) for x in simplex(lambda p: (p[0] - 1) ** 2 + (p[1] + 2) ** 2, [0.0, 0.0], 120)]
    [1.0, -2.0]
    """
    points = [list(start), *([x + size * (i == j) for j, x in enumerate(start)] for i in range(len(start)))]
    corners = [_Vertex(point, loss(point)) for point in points]
    for _ in range(steps):
        corners.sort(key=lambda corner: corner.loss)
        _move(corners, loss)
    return min(corners, key=lambda corner: corner.loss).point


def _move(corners: list[_Vertex], loss: Callable[[Sequence[float]], float]) -> None:
    """Replace the worst corner by a better one, or shrink towards the best. `corners` are sorted."""
    worst, count = corners[-1], len(corners) - 1
    centre = [math.fsum(corner.point[i] for corner in corners[:-1]) / count for i in range(count)]

    def along(factor: float) -> _Vertex:
        point = [c + factor * (c - w) for c, w in zip(centre, worst.point, strict=True)]
        return _Vertex(point, loss(point))

    mirrored = along(1.0)
    if mirrored.loss < corners[0].loss:
        far = along(2.0)
        corners[-1] = far if far.loss < mirrored.loss else mirrored
    elif mirrored.loss < corners[-2].loss:
        corners[-1] = mirrored
    else:
        near = along(-0.5 if mirrored.loss >= worst.loss else 0.5)
        if near.loss < min(mirrored.loss, worst.loss):
            corners[-1] = near
            return
        best = corners[0].point
        for corner in corners[1:]:
            corner.point = [b + 0.5 * (x - b) for b, x in zip(best, corner.point, strict=True)]
            corner.loss = loss(corner.point)


if __name__ == "__main__":
    main()
