"""Seeded noise: a factor depends on the seed and on what it is for, on nothing else.

No generator with a state is behind it, so neither the order of draws, nor their number, nor how many workers share
them can change one: every factor is a hash of its place (SplitMix64's finaliser, Steele et al., OOPSLA 2014), turned
into a distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.errors import InputError, closest
from simcore.options import number as as_number

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

LEAST = 0.01  # of the mean: no factor is smaller, or a link would have no bandwidth
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
COMPUTE, LINKS = 1, 2  # first number of a place: what the factor is for
SUBJECTS = ("compute", "links")


def _normal(share: Floats, other: Floats) -> Floats:
    """Standard normal draws from two even ones in (0, 1) (Box and Muller, 1958)."""
    drawn: Floats = np.sqrt(-2 * np.log(share)) * np.cos(2 * np.pi * other)
    return drawn


DISTRIBUTIONS: dict[str, Callable[[float, Floats, Floats], Floats]] = {
    "normal": lambda width, a, b: 1 + width * _normal(a, b),
    "lognormal": lambda width, a, b: np.exp(width * _normal(a, b) - width * width / 2),
    "uniform": lambda width, a, _: 1 + width * (2 * a - 1),
    "exponential": lambda width, a, _: 1 - width * np.log(a),
}
"""Name -> factors on a time from a width and two even draws. All have mean 1 but `exponential`, which only slows down:
1 plus an exponential delay of mean `width`."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of factors: `normal` and `lognormal` have standard deviation `width` (of the factor, of its
    logarithm), `uniform` lies within `width` of 1, `exponential` adds `width` on average.
    """

    distribution: str
    width: float

    def factors(self, seed: int, *place: ArrayLike) -> Floats:
        """Factors on times, one per place: whole numbers or columns of them that broadcast."""
        word = _mixed(np.asarray(seed, np.int64).astype(np.uint64))
        for part in place:
            word = _mixed(word ^ np.asarray(part, np.int64).astype(np.uint64))
        first, second = _share(_mixed(word)), _share(_mixed(~word))
        return np.maximum(DISTRIBUTIONS[self.distribution](self.width, first, second), LEAST)


NONE = Spread("uniform", 0.0)


@dataclass(frozen=True, slots=True)
class Noise:
    """What is noisy in a run: compute times, and the time that links need for a byte."""

    seed: int = 0
    compute: Spread | None = None
    links: Spread | None = None

    def compute_factors(self, npu: int, *place: ArrayLike) -> Floats:
        """Factors on compute times of an NPU, by iteration, phase and layer, or by the node of a graph."""
        return (self.compute or NONE).factors(self.seed, COMPUTE, npu, *place)

    def link_factors(self, links: ArrayLike) -> Floats:
        """Factors on the time that each link needs for a byte; they hold for the whole run."""
        return (self.links or NONE).factors(self.seed, LINKS, links)

    def __bool__(self) -> bool:
        return bool(self.compute or self.links)


QUIET = Noise()


def _mixed(word: Words) -> Words:
    """A hash of 64-bit words."""
    with np.errstate(over="ignore"):
        return finalised(word + GOLDEN)


def finalised(word: Words) -> Words:
    """Words whose bits all depend on all bits of these: SplitMix64's finaliser."""
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return word ^ word >> np.uint64(31)


def _share(word: Words) -> Floats:
    """A number within (0, 1), evenly."""
    share: Floats = ((word >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return share


def parse_jitter(texts: tuple[str, ...], seed: int) -> Noise:
    """`SUBJECT=DISTRIBUTION:WIDTH` each.

    >>> parse_jitter(("compute=lognormal:0.02",), 7)
    Noise(seed=7, compute=Spread(distribution='lognormal', width=0.02), links=None)
    """
    found: dict[str, Spread] = {}
    for text in texts:
        subject, _, rest = text.partition("=")
        name, _, number = rest.partition(":")
        width, example = -1.0, "a width from 0 to 1, for example compute=lognormal:0.02"
        with suppress(ValueError):
            width = as_number(number, 0)
        for wrong, message, expected in (
            (subject not in SUBJECTS, "jitter of something unknown", closest(subject, SUBJECTS)),
            (subject in found, f"{subject} is given twice", "one of each"),
            (name not in DISTRIBUTIONS, "no such distribution", closest(name, DISTRIBUTIONS)),
            (not 0 <= width <= 1, "jitter is SUBJECT=DISTRIBUTION:WIDTH", example),
        ):
            if wrong:
                raise InputError.at("--jitter", message, expected=expected, found=repr(text))
        found[subject] = Spread(name, width)
    return Noise(seed, found.get("compute"), found.get("links"))
