"""What the nearest measured configurations say about one in between: a weighted mean that follows a local trend.

Kriging (Matheron 1963; Cressie, Statistics for Spatial Data, 1993) with an exponential covariance, an unknown level
and gently sloping planes as prior: near points count most, points that say the same share their weight.
"""

from dataclasses import dataclass

import numpy as np

from simcore.compute.measured.curves import Floats


@dataclass(frozen=True, slots=True)
class Kriging:
    """`range_octaves`: how far points know of each other; `slope`, `level`: variances over the sill's."""

    neighbours: int = 16
    range_octaves: float = 4.0
    slope: float = 0.03
    level: float = 100.0

    def weights(self, offsets: Floats, noise: float) -> tuple[Floats, Floats]:
        """Weights [questions, neighbours] of neighbours at `offsets` [questions, neighbours, axes] from the question.

        Also the variance [questions] that is left; it and `noise`, of one point, are over the sill's (the variance of
        points far from each other).
        """
        between = np.sqrt(((offsets[:, :, None] - offsets[:, None]) ** 2).sum(-1))
        planes = self.slope * offsets @ offsets.transpose(0, 2, 1)
        system = np.exp(-between / self.range_octaves) + planes + self.level
        system += noise * np.eye(offsets.shape[1])
        towards = np.exp(-np.sqrt((offsets**2).sum(-1)) / self.range_octaves) + self.level
        found = np.linalg.solve(system, towards[..., None])[..., 0]
        left = 1.0 + self.level - (found * towards).sum(-1)
        return found, np.maximum(left, 0.0) + noise
