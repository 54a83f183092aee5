"""The network layer: folding the links of large machines."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.network.parts import FoldedLinks
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology

SIZES = {"thousand": (8, 8, 16), "million": (8, 128, 1024)}


def _machine(sizes):
    return Topology(tuple(Dimension("Switch", size, 1e11, 100.0) for size in sizes))


@pytest.mark.parametrize("name", SIZES)
def bench_folding_links(benchmark, name):
    machine = _machine(SIZES[name])

    def table():
        folded = FoldedLinks(LinkGraph(machine))
        zeros = np.zeros(len(folded), np.int64)
        return folded.table(zeros, zeros)

    assert benchmark(table).src[0] == "0"


def bench_routes_of_a_million_messages(benchmark):
    links = LinkGraph(Topology((Dimension("Mesh", 32, 1e11, 100.0), Dimension("Mesh", 32, 1e11, 100.0))))
    src, dst = np.divmod(np.arange(1 << 20), 1 << 10)
    assert benchmark(links.routes, src, dst).counts.sum() > 0
