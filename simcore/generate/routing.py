"""How unevenly tokens go to experts: the load of the busiest expert rank, relative to the mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.documents import read_text
from simcore.errors import InputError
from simcore.options import number

Shares = NDArray[np.float64]
OPTION = "--moe_imbalance"


def expert_shares(kind: str, experts: int, routed_tokens: int, seed: int = 0) -> Shares:
    """Share of the routed tokens that every expert gets; they add up to 1.

    `kind`: "identical"; "uniform" (every token draws its experts with equal chance); "zipf:EXPONENT" (popularity falls
    with rank, the ranks dealt to experts at random); otherwise a file with one count per expert.
    """
    generator = np.random.default_rng(seed)
    if kind == "identical":
        weights = np.ones(experts)
    elif kind == "uniform":
        weights = generator.multinomial(routed_tokens, np.full(experts, 1 / experts)).astype(float)
    elif kind.startswith("zipf"):
        weights = generator.permutation(np.arange(1, experts + 1) ** -_exponent(kind))
    else:
        weights = _counts(kind, experts)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _exponent(kind: str) -> float:
    try:
        exponent = number(kind.partition(":")[2] or 1.0, 0, 100)
    except ValueError:
        exponent = -1.0
    if exponent < 0:
        raise InputError.at(OPTION, "a Zipf exponent is a number from 0", expected="for example zipf:1.2", found=kind)
    return exponent


def _counts(path: str, experts: int) -> NDArray[np.float64]:
    """Counts of a file, one word each."""
    if not Path(path).exists():
        expected = "identical, uniform, zipf:EXPONENT or a file of counts"
        raise InputError.at(OPTION, "no such distribution and no such file", expected=expected, found=path)
    words = read_text(path).split()
    whole = len(words) == experts and all(word.isascii() and word.isdecimal() for word in words)
    if not (whole and any(map(int, words))):
        message, expected = f"'{path}' holds no counts of {experts} experts", f"{experts} whole numbers, not all 0"
        raise InputError.at(OPTION, message, expected=expected, found=str(len(words)))
    return np.array(words, dtype=np.float64)


def busiest_load(shares: Shares, ranks: int) -> float:
    """Load of the busiest of `ranks` that hold equally many neighbouring experts, 1 = the mean.

    >>> busiest_load(np.array([0.5, 0.25, 0.125, 0.125]), 2)
    1.5
    """
    relative = shares * len(shares)
    return round(float(relative.reshape(ranks, -1).mean(axis=1).max()), 9)
