"""What the nearest measured configurations say about one in between: a weighted mean that follows a local trend.

Kriging (Matheron 1963; Cressie, Statistics for Spatial Data, 1993) with an exponential covariance, what configurations
of one size have in common whatever the others, an unknown level and gently sloping planes as prior: near points count
most, points that say the same share their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.compute.measured.curves import Floats


@dataclass(frozen=True, slots=True)
class Kriging:
    """`range_octaves`: how far points know of each other; `alike`, `slope`, `level`: variances over the sill's.

    `alike`: of what belongs to one of several sizes, such as how well tiles fit into it; it reaches `alike_octaves` in
    that size and in the others.
    """

    neighbours: int = 16
    range_octaves: float = 4.0
    alike: float = 0.3
    alike_octaves: tuple[float, float] = (2.0, 8.0)
    slope: float = 0.03
    level: float = 100.0

    def weights(self, offsets: Floats, noises: Sequence[float]) -> tuple[Floats, Floats]:
        """Weights [noises, questions, neighbours] of neighbours at `offsets` [questions, neighbours, axes] from the
        question: of sizes, then along the sweep.

        Also the variance [questions] that is left with the first noise; it and `noises`, of one point, are over the
        sill's (the variance of points far from each other).
        """
        towards = self._covariance(offsets)
        between = self._covariance(offsets[:, :, None] - offsets[:, None])
        between += self.slope * offsets @ offsets.transpose(0, 2, 1)
        systems = between + np.multiply.outer(noises, np.eye(offsets.shape[1]))[:, None]
        found: Floats = np.asarray(np.linalg.solve(systems, towards[..., None])[..., 0], float)
        here = self._covariance(np.zeros(offsets.shape[-1]))
        left: Floats = np.maximum(here - (found[0] * towards).sum(-1), 0.0) + noises[0]
        return found, left

    def _covariance(self, apart: Floats) -> Floats:
        """Of points so far `apart` [.., axes], without the planes."""
        squares, (own, others) = apart**2, self.alike_octaves
        far = squares.sum(-1)
        shared: Floats = np.exp(-np.sqrt(far) / self.range_octaves) + self.level
        sizes = apart.shape[-1] - 1
        for axis in range(sizes if sizes > 1 else 0):
            across = np.sqrt(np.maximum(far - squares[..., axis], 0.0))
            shared += self.alike * np.exp(-np.abs(apart[..., axis]) / own - across / others)
        return shared
