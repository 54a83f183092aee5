"""The engine: classes of a million NPUs, of which one computes slower."""

from __future__ import annotations

import numpy as np

from simcore.engine.transports import fold
from simcore.system.groups import logical_dims


def bench_classes_of_a_million_npus_with_one_straggler(benchmark):
    dims = logical_dims([8, 128, 1024])
    kinds = np.zeros(1 << 20, np.int64)
    kinds[5] = 1
    classes = benchmark.pedantic(lambda: fold(dims, kinds), rounds=1)
    assert sum(map(len, classes)) == 1 << 20
