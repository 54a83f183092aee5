"""Classes of equal NPUs, and what groups of them are called."""

from simcore.engine.folding import GroupNames
from simcore.system.groups import LogicalDim


def test_all_npus_of_a_group_share_one_list_of_its_members():
    """A list for each would be dense: 20,000 lists of 20,000 on a line of 20,000 that cannot be folded."""
    names, line = GroupNames([[npu] for npu in range(100)]), LogicalDim(0, 50, 1)
    found = [names.of(npu, line) for npu in range(100)]
    assert len({id(one) for one in found}) == 2
    assert [one[1] for one in found] == [[*range(50)]] * 50 + [[*range(50, 100)]] * 50
