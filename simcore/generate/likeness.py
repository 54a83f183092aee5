"""How like its sources a synthetic trace is: Kolmogorov-Smirnov on sizes and gaps, chi-square on what follows what.

Levels are those of independent draws, which those of a chain are not: they tell sets apart, they prove nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import erfc, exp, fsum, sqrt
from typing import Any

import numpy as np

from simcore.generate.synthetic import Master, Mixture, Model

WITHIN = 1.05
"""Sizes and times this close count as equal: none of the source's may come up again."""
Score = tuple[float, float]
"""A distance or a sum, and the level at which it is reached by chance."""


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float], within: float = 1.0) -> Score:
    """Largest difference of two empirical distributions, and its level (asymptotic; Stephens 1970 for few values).

    Values whose ratio is at most `within` count as equal.

    >>> kolmogorov_smirnov([1, 2, 3, 4], [1, 2, 3, 4]), kolmogorov_smirnov([8] * 9, [9] * 9, within=1.2)
    ((0.0, 1.0), (0.0, 1.0))
    """
    first, second = np.sort(one), np.sort(other)
    over = [
        float((np.searchsorted(a, a, "right") / len(a) - np.searchsorted(b, a * within, "right") / len(b)).max())
        for a, b in ((first, second), (second, first))
    ]
    distance = max(0.0, *over)
    root = sqrt(len(first) * len(second) / (len(first) + len(second)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    terms = [(-1) ** (k - 1) * exp(-2 * (k * scaled) ** 2) for k in range(1, 101)]
    return distance, min(1.0, max(0.0, 2 * fsum(terms))) if scaled > 0.2 else 1.0


def chi_square(one: Counter[Any], other: Counter[Any]) -> Score:
    """Homogeneity of two tables of counts, per degree of freedom, and its level (Wilson and Hilferty 1931).

    >>> total, level = chi_square(Counter(a=40, b=60), Counter(a=60, b=40))
    >>> round(total, 9), round(level, 3)  # 8 at one degree of freedom: 0.0047
    (8.0, 0.005)
    """
    kinds = sorted(one | other)
    ratio, freedom = sqrt(other.total() / one.total()), len(kinds) - 1
    total = fsum((ratio * one[kind] - other[kind] / ratio) ** 2 / (one[kind] + other[kind]) for kind in kinds)
    if not freedom or total < 1e-9:
        return 0.0, 1.0
    spread = 2 / (9 * freedom)
    return total / freedom, erfc(((total / freedom) ** (1 / 3) - 1 + spread) / sqrt(2 * spread)) / 2


def likeness(source: Master, made: Master) -> dict[str, Any]:
    """Scores of what was made against one of its sources: sizes by collective, gaps, and collectives by kind."""
    sizes = {
        kind: kolmogorov_smirnov(_sizes(source, kind), _sizes(made, kind), WITHIN)
        for kind in sorted({event.kind.value for event in source.events} & {event.kind.value for event in made.events})
    }
    gaps = ([event.gap_ns for event in master.events] for master in (source, made))
    kinds = [Counter(event.kind.value for event in master.events) for master in (source, made)]
    return {
        "collectives": len(source.events),
        "sizes": {kind: _named("distance", score) for kind, score in sizes.items()},
        "gaps": _named("distance", kolmogorov_smirnov(next(gaps), next(gaps), WITHIN)),
        "kinds": _named("chi_square_per_degree", chi_square(*kinds)),
    }


def _sizes(master: Master, kind: str) -> list[float]:
    return [event.size_bytes for event in master.events if event.kind.value == kind]


def _named(name: str, score: Score) -> dict[str, float]:
    return {name: score[0], "level": score[1]}


def learnt(model: Model, masters: Iterable[Master]) -> dict[str, Any]:
    """What a model holds: how often each collective comes, its sizes and the gaps as mixtures, what follows what."""
    counts = Counter(event.kind.value for master in masters for event in master.events)
    return {
        "npus": model.npus,
        "groups": len(model.groups),
        "length": model.length,
        "states": len(model.follows) - 1,
        "kinds": {
            kind: {"share": counts[kind] / counts.total(), "log2_bytes": _components(mixture)}
            for kind, mixture in model.sizes.items()
        },
        "no_gap": model.no_gap,
        "log2_gap_ns": _components(model.gaps) if model.gaps else [],
    }


def _components(mixture: Mixture) -> list[dict[str, float]]:
    """Components by descending weight."""
    rows = zip(mixture.weights.tolist(), mixture.means.tolist(), mixture.deviations.tolist(), strict=True)
    return [{"weight": weight, "mean": mean, "deviation": deviation} for weight, mean, deviation in sorted(rows)[::-1]]
