"""The engine: classes of a million NPUs, of which one computes slower."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.engine.classes import Rows, alike
from simcore.network.topology.moves import Fold
from simcore.system.groups import logical_dims


@pytest.mark.parametrize("fold", [None, Fold(8, 2)])
def bench_classes_of_a_million_npus_with_one_straggler(benchmark, fold):
    first, *others = logical_dims([8, 128, 1024])
    meeting = [Rows(first.stride, first.size, fold), *(Rows(dim.stride, dim.size) for dim in others)]
    kinds = np.zeros(1 << 20, np.int64)
    kinds[5] = 1
    classes = benchmark.pedantic(lambda: alike(kinds, meeting), rounds=1)
    assert sum(map(len, classes)) == 1 << 20
