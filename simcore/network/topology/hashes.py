"""Hashes that are the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.noise import finalised


def mixed(src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of (src, dst) that is the same everywhere."""
    return finalised(src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64))
