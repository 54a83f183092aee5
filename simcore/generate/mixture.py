"""Gaussian mixtures of one variable, fitted by expectation maximisation; as many components as the data bear out."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_COMPONENTS = 6
STEPS = 200
SMALLEST_DEVIATION = 0.02  # keeps a component on a repeated value from collapsing


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weights, means and standard deviations of the components."""

    weights: Floats
    means: Floats
    deviations: Floats

    def sample(self, count: int, random: np.random.Generator) -> Floats:
        """`count` draws."""
        chosen = random.choice(len(self.weights), count, p=self.weights)
        drawn: Floats = random.normal(self.means[chosen], self.deviations[chosen])
        return drawn

    def log_likelihood(self, values: Floats) -> float:
        """Sum of the log densities of `values`."""
        return float(np.logaddexp.reduce(self._log_parts(values), axis=1).sum())

    def _log_parts(self, values: Floats) -> Floats:
        """Log density of every value (row) under every component (column), weights included."""
        spread = (values[:, None] - self.means) / self.deviations
        densities: Floats = np.log(self.weights / self.deviations) - 0.5 * np.log(2 * np.pi) - 0.5 * spread**2
        return densities


def fit(values: Floats) -> Mixture:
    """The mixture with the least Bayesian information criterion; `values` must not be empty."""
    distinct = np.unique(values)  # where one value is most of them, quantiles of all would all be that value
    counts = range(1, min(MAX_COMPONENTS, len(distinct)) + 1)
    fitted = [_fit(values, count, starts) for count in counts for starts in (values, distinct)]

    def criterion(mixture: Mixture) -> float:
        parameters = 3 * len(mixture.weights) - 1
        return parameters * math.log(len(values)) - 2 * mixture.log_likelihood(values)

    return min(fitted, key=criterion)


def _fit(values: Floats, count: int, starts: Floats) -> Mixture:
    """Expectation maximisation from means at equal quantiles of `starts`."""
    means = np.quantile(starts, (np.arange(count) + 0.5) / count)
    spread = max(float(np.std(values)) / count, SMALLEST_DEVIATION)
    mixture = Mixture(np.full(count, 1 / count), means, np.full(count, spread))
    before = -np.inf
    for _ in range(STEPS):
        mixture, likelihood = _step(mixture, values)
        if likelihood - before < 1e-7 * len(values):
            break
        before = likelihood
    return mixture


def _step(mixture: Mixture, values: Floats) -> tuple[Mixture, float]:
    """One round: each component's share in each value, then the components that suit; the likelihood before."""
    parts = mixture._log_parts(values)
    total = np.logaddexp.reduce(parts, axis=1)
    share = np.exp(parts - total[:, None])
    mass = share.sum(axis=0) + 1e-12
    means = (share * values[:, None]).sum(axis=0) / mass
    variance = (share * (values[:, None] - means) ** 2).sum(axis=0) / mass
    deviations = np.sqrt(np.maximum(variance, SMALLEST_DEVIATION**2))
    return Mixture(mass / mass.sum(), means, deviations), float(total.sum())
