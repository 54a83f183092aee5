"""Hashes that are the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mixed(src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of (src, dst) that is the same everywhere."""
    return finalised(src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64))


def finalised(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words whose bits all depend on all bits of these: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return word ^ word >> np.uint64(31)
