"""What a topology offers, in figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.network.topology.links import LinkGraph


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a whole topology.

    `links` have one direction each; `degree_min` and `degree_max` count those out of one NPU; `diameter_hops` is the
    most links that the shortest path between two NPUs has; `bisection_bytes_per_s` is what two halves of the NPUs
    can send each other in one direction, `bisection_how` says how it was found.
    """

    npus: int
    devices: int
    links: int
    degree_min: int
    degree_max: int
    diameter_hops: int
    bisection_bytes_per_s: float
    bisection_how: str


def figures(links: LinkGraph) -> Figures:
    """Count and work out the figures; formulas per kind of dimension, searches only on wafers and graphs.

    The bisection is the smallest of the straight cuts across one dimension, which is the least of all cuts into equal
    halves for dimensions of even size; across an odd dimension the halves differ by one layer.
    """
    degrees = np.bincount(links.src, minlength=links.nodes)[: links.npus]
    cuts = [
        (axis.groups * axis.fabric.bisection_bytes_per_s(), index)
        for index, axis in enumerate(links.axes)
        if axis.fabric.npus > 1
    ]
    bisection, across = min(cuts, default=(0.0, 0))
    return Figures(
        links.npus,
        links.nodes - links.npus,
        len(links),
        int(degrees.min()),
        int(degrees.max()),
        sum(axis.fabric.diameter() for axis in links.axes),
        bisection,
        links.axes[across].fabric.bisection_how.format(dimension=across) if cuts else "a single NPU",
    )
