"""The system layer: one collective solved at once against the same played message by message."""

from __future__ import annotations

import numpy as np

from simcore.system.alone.solver import solve, stepped
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.groups import RankGroup
from simcore.system.plans.maker import Costs
from simcore.workload.model import CollectiveKind

NPUS = 256


def bench_a_skewed_ring_all_reduce_solved(benchmark):
    plan = algorithms.get("ring")(CollectiveKind.ALL_REDUCE, NPUS, 1 << 20, PlanOptions())
    arrivals = np.arange(NPUS, dtype=np.int64) * 7 % 1000
    group = RankGroup(np.arange(NPUS), lambda src, dst, size_bytes: np.full(len(src), 500 + size_bytes // 100))
    costs = Costs(10, lambda _: 0, PlanOptions())
    solved = benchmark(solve, plan, group, arrivals, costs)
    played = stepped(plan, arrivals, lambda _, number: 500 + plan.expanded[number].size_bytes // 100, costs)
    assert solved.tolist() == played.tolist()
