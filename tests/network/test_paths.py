"""Shortest paths against networkx."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simcore.network.topology.paths import ShortestPaths


@given(st.integers(2, 24), st.integers(0, 2**32), st.booleans(), st.integers(1, 40))
def test_the_longest_of_the_shortest_paths_is_found_without_looking_at_all(nodes, seed, both_ways, extra):
    chance = np.random.default_rng(seed)
    graph = nx.cycle_graph(nodes, create_using=nx.DiGraph)  # every node is reached
    graph.add_edges_from(tuple(pair) for pair in chance.integers(nodes, size=(extra, 2)).tolist())
    graph = graph.to_undirected().to_directed() if both_ways else graph
    src, dst = (np.array(side, np.int64) for side in zip(*graph.edges, strict=True))
    targets = int(chance.integers(1, nodes + 1))

    distance = dict(nx.all_pairs_shortest_path_length(graph))
    expected = max(distance[a][b] for a in range(targets) for b in range(targets))
    assert ShortestPaths(nodes, src, dst).longest(np.arange(targets), targets) == expected
