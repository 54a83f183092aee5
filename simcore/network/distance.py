"""How far apart NPUs are in each dimension, vectorised over pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.model import Dimension, Topology

__all__ = ["addresses", "hops"]


def addresses(topology: Topology, npus: NDArray[np.int64]) -> NDArray[np.int64]:
    """Coordinates of NPUs, shape (dimensions, len(npus)); dimension 0 counts fastest."""
    return np.array(
        [npus // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)], dtype=np.int64
    )


def hops(dim: Dimension, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hops between coordinates of one dimension; 0 for the same coordinate."""
    apart: NDArray[np.int64] = np.abs(dst - src)
    if dim.kind == "Ring":
        return np.minimum(apart, dim.npus - apart)
    if dim.kind == "Mesh":
        return apart
    return np.where(apart > 0, 2 if dim.kind == "Switch" else 1, 0)
