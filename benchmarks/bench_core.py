"""Messages that meet: the compiled core against the same functions in Python, as a ratio in one run."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np
import pytest

from simcore.api import load_topology
from simcore.network.compiled import installed
from simcore.network.topology.links import LinkGraph
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.messages import layouts
from simcore.system.messages.layouts import Layouts, Running, Shape
from simcore.system.plans.maker import Costs
from simcore.workload.model import CollectiveKind

RING = "topology: [Ring]\nnpus_count: [{}]\nbandwidth: [100]\nlatency: [50]\n"


def _seconds_a_hop(file: Path, npus: int) -> float:
    """CPU time of a direct all-to-all on a ring, for each link that a message crosses."""
    graph = LinkGraph(load_topology(file))
    plan = algorithms.get("direct")(CollectiveKind.ALL_TO_ALL, npus, npus << 16, PlanOptions())
    known = Layouts(timed=False)
    ((layout, base),) = known.of(Shape("ring", graph), plan, np.arange(npus), Costs(10, lambda _: 0, PlanOptions()))
    running = Running(known, len(graph))
    before = process_time()
    running.start(layout, 0, base, 0, 0)
    assert len(list(running.drain())) == npus
    return (process_time() - before) / (npus * (npus * npus // 4))


@pytest.mark.parametrize("npus", [64, 128, 256])
def bench_messages_that_meet(benchmark, monkeypatch, tmp_path, npus):
    if not installed():
        pytest.skip("needs numba")
    (file := tmp_path / "ring.yaml").write_text(RING.format(npus))
    monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), 1 << 60))
    plain = _seconds_a_hop(file, npus)
    monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), -1))
    _seconds_a_hop(file, npus)  # compiles
    fast = benchmark.pedantic(_seconds_a_hop, (file, npus), rounds=1)
    benchmark.extra_info |= {"compiled_ns": fast * 1e9, "python_ns": plain * 1e9}
    assert fast < plain
