"""Fit the lines of `simcore.system.collectives.nccl` to published collective curves.

``python -m simcore.cost.published.calibrate_collectives FILE...`` prints, per fabric and place, fixed microseconds,
microseconds per level and GB/s of every line; with ``--cross`` every second point is fitted and the others are
checked. Deterministic.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from simcore.cost.published.calibrate import simplex
from simcore.cost.published.rows import Collective, Row
from simcore.cost.published.suites import SUITES, load
from simcore.system.collectives.nccl import FABRICS, Fabric, Line, collective_s

__all__ = ["curves", "fit_lines", "main"]

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


if __name__ == "__main__":
    main()
