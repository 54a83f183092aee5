"""How far apart NPUs are in each dimension, vectorised over pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.kinds import FABRICS
from simcore.network.topology.model import Dimension, Topology

__all__ = ["addresses", "hops"]


def addresses(topology: Topology, npus: NDArray[np.int64]) -> NDArray[np.int64]:
    """Coordinates of NPUs, shape (dimensions, len(npus)); dimension 0 counts fastest."""
    return np.array(
        [npus // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)], dtype=np.int64
    )


def hops(dim: Dimension, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hops between coordinates of one dimension; 0 for the same coordinate."""
    return FABRICS.get(dim.kind)(dim).hops(src, dst)
