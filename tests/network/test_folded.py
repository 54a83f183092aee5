"""Folded links: what one NPU sees stands for what all see; and distances without links."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.fair import FairShare
from simcore.network.instant import Environment
from simcore.network.parts import FoldedLinks
from simcore.network.topology.grid import coordinates
from simcore.network.topology.kinds import FABRICS
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.moves import Fold
from tests.runs import machines, twisted_tori


def shifted(topology, npu, offset):
    """The NPU that is `offset` further in every dimension, around."""
    where = [npu // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)]
    there = [offset // stride % dim.npus for stride, dim in zip(topology.strides, topology.dims, strict=True)]
    moved = [(a + b) % dim.npus for a, b, dim in zip(where, there, topology.dims, strict=True)]
    return sum(place * stride for place, stride in zip(moved, topology.strides, strict=True))


@settings(deadline=None, max_examples=30)
@given(machines(), st.data())
def test_a_message_so_far_on_takes_the_same_folded_links_from_everywhere(topology, data):
    links = FoldedLinks(LinkGraph(topology))
    offset = data.draw(st.integers(0, topology.npus - 1))
    ways = {links.route(npu, shifted(topology, npu, offset)) for npu in range(topology.npus)}
    assert len(ways) == 1


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["Ring", "Switch"]), st.integers(4, 9), st.integers(1, 8), st.integers(1, 1 << 20))
def test_a_message_that_shares_fair_links_with_those_it_stands_for_takes_as_long_as_they_do(kind, npus, hop, size):
    whole = LinkGraph(Topology((Dimension(kind, npus, 1e9, 7.0),)))

    def played(links, senders):
        env = Environment()
        network = FairShare(env, links)
        for npu in range(senders):
            network.send(npu, (npu + hop) % npus, size, npu, lambda: None)
        env.run()
        return env.now, network.table().busy_ns.tolist()

    assert played(FoldedLinks(whole), 1) == played(whole, npus)


@given(st.integers(1, 5), st.integers(2, 6), st.data())
def test_a_ring_that_groups_cut_is_the_same_from_a_group_further_on(inner, groups, data):
    npus = inner * groups
    whole = LinkGraph(Topology((Dimension("Ring", npus, 1e9, 1.0),)), cuts=[[inner, groups]])
    links = FoldedLinks(whole, Fold(npus, inner))
    src, dst = data.draw(st.integers(0, npus - 1)), data.draw(st.integers(0, npus - 1))
    ways = {links.route((src + by) % npus, (dst + by) % npus) for by in range(0, npus, inner)}
    assert len(ways) == 1
    assert len(links) == len(whole) // (groups if npus > 2 else 2)


@settings(deadline=None, max_examples=20)
@given(twisted_tori(st.sampled_from([1e9, 12.5e9]), st.just(1.0)), st.data())
def test_moves_of_a_twisted_torus_lead_back_and_take_ways_to_ways(topology, data):
    links = FoldedLinks(LinkGraph(topology))
    moves, npus = links.axes[0].fabric.moves, np.arange(topology.npus)
    by = np.array(data.draw(st.integers(0, topology.npus - 1)))
    there = moves.on(npus, by)
    assert (moves.back(there, by) == npus).all()
    assert sorted(there.tolist()) == npus.tolist()
    assert len({links.route(*pair) for pair in zip(npus.tolist(), there.tolist(), strict=True)}) == 1


@settings(deadline=None, max_examples=30)
@given(machines())
def test_every_link_stands_for_links_as_fast_as_itself(topology):
    whole = LinkGraph(topology)
    links = FoldedLinks(whole)
    numbers = np.arange(len(links))
    stands_for = links.table(numbers, numbers).size_bytes
    assert sorted(set(stands_for.tolist())) == numbers.tolist()
    assert (links.bandwidth_bytes_per_s[stands_for] == whole.bandwidth_bytes_per_s).all()
    assert (links.latency_ns[stands_for] == whole.latency_ns).all()


@settings(deadline=None, max_examples=30)
@given(machines(("Ring", "FullyConnected", "Switch", "Mesh")))
def test_distances_are_those_of_the_routes(topology):
    npus = np.arange(topology.npus)
    src, dst = np.repeat(npus, topology.npus), np.tile(npus, topology.npus)
    here, there = (coordinates(npus, [dim.npus for dim in topology.dims]).T for npus in (src, dst))
    total = sum(FABRICS.get(dim.kind)(dim).hops(here[index], there[index]) for index, dim in enumerate(topology.dims))
    assert (total == LinkGraph(topology).routes(src, dst).counts).all()
