"""Folded links: what one NPU sees stands for what all see; and distances without links."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.distance import addresses, hops
from simcore.network.folded import FoldedLinks, symmetric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from tests.runs import machines


def shifted(topology, npu, offset):
    """The NPU that is `offset` further in every dimension, around."""
    where = [npu // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)]
    there = [offset // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)]
    moved = [(a + b) % dim.npus for a, b, dim in zip(where, there, topology.dims, strict=True)]
    return sum(place * stride for place, stride in zip(moved, topology.strides, strict=True))


@settings(deadline=None, max_examples=30)
@given(machines(), st.data())
def test_a_message_so_far_on_takes_the_same_folded_links_from_everywhere(topology, data):
    parts = [[dim.npus] for dim in topology.dims]
    assert symmetric(topology, parts)
    links = FoldedLinks(LinkGraph(topology), parts)
    offset = data.draw(st.integers(0, topology.npus - 1))
    ways = {links.route(npu, shifted(topology, npu, offset)) for npu in range(topology.npus)}
    assert len(ways) == 1


@settings(deadline=None, max_examples=30)
@given(machines())
def test_every_link_stands_for_links_as_fast_as_itself(topology):
    whole = LinkGraph(topology)
    links = FoldedLinks(whole, [[dim.npus] for dim in topology.dims])
    numbers = np.arange(len(links))
    stands_for = links.table(numbers, numbers).size_bytes
    assert sorted(set(stands_for.tolist())) == numbers.tolist()
    assert (links.bandwidth_bytes_per_s[stands_for] == whole.bandwidth_bytes_per_s).all()
    assert (links.latency_ns[stands_for] == whole.latency_ns).all()


@pytest.mark.parametrize(
    ("kind", "parts", "expected"),
    [
        ("Ring", [8], True),
        ("Ring", [2, 4], False),  # the ends of a part of a ring are not neighbours
        ("Switch", [2, 4], True),
        ("FullyConnected", [2, 4], True),
        ("Mesh", [8], False),
    ],
)
def test_what_looks_the_same_from_everywhere(kind, parts, expected):
    assert symmetric(Topology((Dimension(kind, 8, 1e9, 1.0),)), [parts]) is expected


@settings(deadline=None, max_examples=30)
@given(machines(("Ring", "FullyConnected", "Switch", "Mesh")))
def test_distances_are_those_of_the_routes(topology):
    npus = np.arange(topology.npus)
    src, dst = np.repeat(npus, topology.npus), np.tile(npus, topology.npus)
    here, there = addresses(topology, src), addresses(topology, dst)
    total = sum(hops(dim, here[index], there[index]) for index, dim in enumerate(topology.dims))
    assert (total == LinkGraph(topology).routes(src, dst).counts).all()
