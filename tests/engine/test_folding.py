"""Classes of equal NPUs, and what groups of them are called."""

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from simcore.system.groups import Groups, JointDim, LogicalDim, logical_dims
from simcore.system.transport import in_equal_nodes


def test_all_npus_of_a_group_share_one_list_of_its_members():
    """A list for each would be dense: 20,000 lists of 20,000 on a line of 20,000 that cannot be folded."""
    groups, line = Groups([[npu] for npu in range(100)]), LogicalDim(0, 50, 1)
    found = [groups.of(npu, line) for npu in range(100)]
    assert len({id(one) for one in found}) == 2
    assert [one.met for one in found] == [[*range(50)]] * 50 + [[*range(50, 100)]] * 50


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), st.integers(1, 12))
def test_groups_lie_equally_in_nodes_where_every_one_has_as_many_ranks_in_each_of_its_nodes(sizes, node_ranks):
    """Group by group, of one dimension and of several taken as one: `collectives: nccl` folds only then."""
    dims = logical_dims(sizes)
    npus = dims[-1].stride * dims[-1].size
    groups = [JointDim(some) for count in range(1, len(dims) + 1) for some in combinations(dims, count)]
    ranks = [
        {n for npu in range(npus) for n in Counter((dim.members(npu) // node_ranks).tolist()).values()}
        for dim in groups
    ]
    assert in_equal_nodes(dims, npus, node_ranks) == all(len(found) == 1 for found in ranks)
