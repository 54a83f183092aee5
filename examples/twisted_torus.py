"""What does a twist of a torus gain? The fullest link of an all-to-all, beside what was measured on TPU v4.

With the name of a picture (`python examples/twisted_torus.py twisted_torus.png`) it draws a twisted torus.
"""

import sys
from pathlib import Path

import numpy as np

from simcore.network.topology.draw import draw
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.twisted import whole_dimension
from simcore.report.plots import save

SIDES = {(4, 4, 8): (1.63, 1.75), (4, 8, 8): (1.31, 1.39)}
"""Measured (Jouppi et al., ISCA 2023, figure 6), and with perfect balance."""


def twisted(sides: tuple[int, ...]) -> LinkGraph:
    """The links of such a torus, 45 GB/s each."""
    dims = tuple(Dimension("Ring", side, 45e9, 1000.0) for side in sides)
    return LinkGraph(Topology((whole_dimension(dims),), "twisted torus", twisted=dims))


def gain(sides: tuple[int, ...]) -> float:
    """How many times more the fullest link of the plain torus carries, with ways in balance there."""
    links = twisted(sides)
    ids = np.arange(links.npus)
    carried = np.bincount(links.routes(np.repeat(ids, links.npus), np.tile(ids, links.npus)).links)
    plain = links.npus * max(sides) / 4 / 2  # a quarter of the longest side on average, each way
    return float(plain / carried.max())


def main() -> str:
    """Print the table; draw a twisted torus of 4 x 8 if a picture is named."""
    lines = ["torus      here  measured  perfect balance"]
    for sides, (measured, perfect) in SIDES.items():
        name = " x ".join(map(str, sides))
        lines.append(f"{name}  {gain(sides):.2f}      {measured:.2f}             {perfect:.2f}")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        save(draw(twisted((4, 8))), Path(sys.argv[1]), text)
    return text


if __name__ == "__main__":
    print(main())
